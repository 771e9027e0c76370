"""Tests of ``zmqdata.client.pairing``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset, ShardingPolicy, TextLineDataset, distribute
from zmqdata.client.splitting import check_splitting
from zmqdata.errors import InvalidArgumentError


def images() -> Dataset:
    return Dataset.range(40)


def labels() -> Dataset:
    return Dataset.from_tensor_slices(np.arange(40))


def counted() -> Iterator[int]:
    yield from range(40)


def generated() -> Dataset:
    return Dataset.from_generator(counted, output_types=np.int64)


def of_both(change: Callable[[Dataset], Dataset]) -> Dataset:
    return Dataset.zip(change(images()), change(labels()))


KEPT: dict[str, Callable[[], Dataset]] = {
    "rows": lambda: Dataset.zip({"image": images(), "label": labels()}).map(tuple_of),
    "list": lambda: Dataset.zip(images(), Dataset.from_list(list(range(40)))),
    "one to one": lambda: Dataset.zip(
        images().map(lambda x: x, num_parallel_calls=2).prefetch(3),
        labels().map(lambda x: x, on_error="retry", retries=1).cache(),
    ),
    "lengths": lambda: Dataset.zip(images(), labels(), Dataset.range(30)).map(lambda a, b, c: (a, b)),
    "shuffles": lambda: of_both(lambda one: one.shuffle(9, seed=3)),
    "batches": lambda: of_both(lambda one: one.batch(3)).unbatch(),
    "batches by a function": lambda: Dataset.zip(
        images().batch(3, collate_fn=np.array), labels().batch(3)
    ).unbatch(),
    "repeats": lambda: of_both(lambda one: one.repeat(2)),
    "taken": lambda: of_both(lambda one: one.skip(1).take(1)),
    "nested": lambda: Dataset.zip(Dataset.zip(images(), labels()), labels()).map(
        lambda pair, label: (pair[0], label)
    ),
    "repeated": lambda: Dataset.zip(images(), Dataset.range(50)).repeat(2),
    "generators": lambda: Dataset.zip(
        generated().filter(lambda x: x > 3), generated().filter(lambda x: x > 3)
    ),
}  # fmt: skip

LOST: dict[str, Callable[[Path], Dataset]] = {
    "a filter": lambda _: Dataset.zip(images().filter(lambda x: x > 3), labels()),
    "skipped errors": lambda _: Dataset.zip(images().map(int, on_error="skip"), labels()),
    "batches": lambda _: Dataset.zip(images().batch(2), labels().batch(4)),
    "batches by a function": lambda _: Dataset.zip(
        images().batch(2, collate_fn=np.array), labels().batch(4)
    ),
    "a batch": lambda _: Dataset.zip(images().batch(2), labels()),
    "lengths of repeats": lambda _: Dataset.zip(images(), Dataset.range(3).repeat()),
    "lengths of repeated": lambda _: Dataset.zip(images().repeat(), Dataset.range(3).repeat()),
    "lines": lambda folder: Dataset.zip(TextLineDataset([folder / "a", folder / "b"]), labels()),
    "files": lambda folder: Dataset.zip(
        *[Dataset.list_files(str(folder / "*")).flat_map(TextLineDataset)] * 2
    ),
    "a generator": lambda _: Dataset.zip(generated(), labels()),
    "a constant": lambda _: Dataset.zip(images(), Dataset.from_tensors(1).repeat()),
    "joined": lambda _: Dataset.zip(images().concatenate(labels()), images()),
    "unbatched": lambda _: Dataset.zip(images().batch(3).unbatch(), images()),
    "below": lambda _: Dataset.zip(images(), labels().filter(lambda x: x > 3)).map(
        lambda a, b: a
    ).batch(2).repeat(),
}  # fmt: skip


IN_TURN = Dataset.range(2).repeat()
BLOCKS = Dataset.from_list(([0] * 10 + [1] * 10) * 4)


def chosen(
    first: Dataset, second: Dataset, choices: Dataset = BLOCKS, stop: bool = True
) -> Dataset:
    return Dataset.choose_from_datasets([first, second], choices, stop)


def low() -> Dataset:
    return Dataset.range(40)


def high() -> Dataset:
    return Dataset.range(100, 140)


ALL_CHOSEN: dict[str, Callable[[], Dataset]] = {
    "in turn": lambda: chosen(low(), high(), IN_TURN),
    "in turn, behind operations": lambda: chosen(
        low().map(lambda x: x), high().shuffle(9), IN_TURN
    ),
    "single": lambda: chosen(generated(), generated().map(lambda x: x + 100)),
    "without a stop": lambda: chosen(low(), high(), stop=False),
    "samples": lambda: Dataset.sample_from_datasets([low(), high()], seed=1),
    "of one": lambda: Dataset.choose_from_datasets([low()], Dataset.from_list([0] * 50)),
    "beside an endless one": lambda: chosen(low(), Dataset.range(-5, 0).repeat(), IN_TURN).filter(
        lambda x: x >= 0
    ),
}
"""Choices of which a promised order leaves nothing out."""

STOPPED: dict[str, Callable[[], Dataset]] = {
    "blocks": lambda: chosen(low(), high()),
    "unequal lengths": lambda: chosen(low(), Dataset.range(30), IN_TURN),
    "a filter": lambda: chosen(low().filter(lambda x: x > 3), high(), IN_TURN),
    "another turn": lambda: chosen(low(), high(), Dataset.range(1, -1, -1).repeat()),
    "few turns": lambda: chosen(low(), high(), Dataset.range(2).repeat(40)),
    "samples": lambda: Dataset.sample_from_datasets(
        [low(), high()], seed=1, stop_on_empty_dataset=True
    ),
    "a constant": lambda: chosen(low(), Dataset.from_tensors(7)),
    "below": lambda: chosen(low(), high()).map(lambda x: x).batch(2).repeat(),
    "taken": lambda: chosen(
        low().repeat().filter(lambda x: x > 3).take(9), high().repeat().filter(lambda x: x).take(9)
    ),
}
"""Choices of which a promised order would leave elements out."""


def tuple_of(pair: Any) -> Any:
    return pair["image"], pair["label"]


def pairs_of(dataset: Dataset) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in dataset]


@pytest.mark.parametrize("kind", KEPT)
def test_a_promised_order_keeps_pairs(kind: str) -> None:
    """Zips that a promised order takes have pairs of equal positions on any number of
    workers, and as many as a local reading where no operation counts for itself.
    """
    local = pairs_of(KEPT[kind]())
    found = []
    for workers in (1, 3):
        with WatchedService(workers) as service:
            check_splitting(KEPT[kind]().node, ShardingPolicy.DYNAMIC, 5)
            read = service.read(KEPT[kind](), "distributed_epoch", deterministic=True, num_tasks=5)
            found.append(pairs_of(read))
    assert found[0] == found[1]
    assert all(a == b for a, b in found[0])
    assert kind == "taken" or sorted(found[0]) == sorted(local)


@pytest.mark.parametrize("kind", LOST)
def test_a_promised_order_refuses_to_lose_pairs(kind: str, tmp_path: Path) -> None:
    """A zip whose pairs a promised order would lose is an error that names the zip and
    the remedy, when `distribute` is applied.
    """
    for name in "ab":
        (tmp_path / name).write_text("0\n1\n")
    ask = distribute("distributed_epoch", "tcp://127.0.0.1:1", deterministic=True)
    with pytest.raises(InvalidArgumentError, match=r"zip\(.*from_tensor_slices\(\(image_files"):
        LOST[kind](tmp_path).apply(ask)


@pytest.mark.parametrize("kind", ALL_CHOSEN)
def test_a_promised_order_keeps_choices(kind: str) -> None:
    """Choices that a promised order takes leave nothing of a local reading out."""
    with WatchedService(2) as service:
        read = service.read(
            ALL_CHOSEN[kind](), "distributed_epoch", deterministic=True, num_tasks=5
        )
        assert sorted(map(int, read)) == sorted(map(int, ALL_CHOSEN[kind]()))


@pytest.mark.parametrize("kind", STOPPED)
def test_a_promised_order_refuses_to_leave_choices_out(kind: str) -> None:
    """A choice that would stop early in each task of a promised order is an error that
    names it and the remedy; a single task may read it.
    """
    with pytest.raises(
        InvalidArgumentError, match=r"_from_datasets\(.*stop_on_empty_dataset=False"
    ):
        check_splitting(STOPPED[kind]().node, ShardingPolicy.DYNAMIC, 5)
    check_splitting(STOPPED[kind]().node, ShardingPolicy.DYNAMIC, 1)


def test_a_single_task_keeps_pairs_and_choices() -> None:
    """A promised order of one task is that of a local reading."""
    dataset = chosen(low(), high()).concatenate(
        Dataset.zip(images().filter(lambda x: x > 3), labels()).map(lambda a, b: 1000 * a + b)
    )
    with WatchedService(2) as service:
        read = service.read(dataset, "distributed_epoch", deterministic=True, num_tasks=1)
        assert list(map(int, read)) == list(map(int, dataset))


def test_dynamic_sharding_warns_of_choices() -> None:
    """Without a promise, a choice that stops at an empty input is a warning at the
    user's line, beside that of a zip.
    """
    both = Dataset.zip(chosen(images(), labels()), images())
    with pytest.warns(UserWarning, match=r"^(zip|choose_from_datasets)\(") as caught:
        both.apply(distribute("distributed_epoch", "tcp://127.0.0.1:1"))
    assert [warning.filename for warning in caught] == [__file__] * 2
    of_choice = str(caught[1].message)
    assert of_choice.startswith("choose_from_datasets(")
    assert "2 of its inputs may end" in of_choice
    assert "ShardingPolicy.DATA" in of_choice


@pytest.mark.parametrize(
    "dataset",
    [
        chosen(low(), high(), stop=False),
        Dataset.sample_from_datasets([low(), high()]),
        chosen(low().repeat(), high().repeat()),
        chosen(low(), high().shuffle(9).repeat()),
        chosen(low().repeat().filter(lambda x: x > 3), high().repeat().flat_map(Dataset.range)),
        Dataset.choose_from_datasets([low()], IN_TURN),
        low().flat_map(lambda x: chosen(low(), high())),
        chosen(low(), high(), chosen(low(), high()), stop=False),
    ],
)
def test_choices_that_lose_nothing_are_silent(dataset: Dataset) -> None:
    """Choices without a stop, of endless inputs, of one that ends, and those that are
    not split cause no warning.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_splitting(dataset.node, ShardingPolicy.DYNAMIC)


def test_choices_without_a_stop_keep_all() -> None:
    """DYNAMIC leaves nothing out of a choice that skips inputs that have ended."""
    dataset = chosen(low(), high(), Dataset.from_list([0] * 40 + [1] * 40), stop=False)
    with WatchedService(2) as service:
        assert sorted(map(int, service.read(dataset))) == [*range(40), *range(100, 140)]


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("OFF", {}),
        *[(policy, {}) for policy in ("DATA", "HINT")],
        *[(policy, {"deterministic": True, "num_tasks": 3}) for policy in ("DATA", "HINT")],
    ],
)
def test_other_policies_keep_choices(policy: str, options: dict[str, Any]) -> None:
    """The elements of a local reading come where each worker chooses from all of the
    inputs, without a warning.
    """
    dataset = chosen(low(), high().filter(lambda x: x > 110))
    local, names = sorted(map(int, dataset)), ["localhost"] * 2
    if policy == "HINT":
        dataset = dataset.shard(-1, -1)
    with warnings.catch_warnings(), WatchedService(2, worker_addresses=names) as service:
        warnings.simplefilter("error")
        found = sorted(map(int, service.read(dataset, ShardingPolicy[policy], **options)))
    assert found == sorted(local * (2 if policy == "OFF" else 1))


def test_dynamic_sharding_warns_of_pairs() -> None:
    """Without a promise, a zip of inputs that are split is a warning at the user's
    line, which names the modes that keep pairs.
    """
    with pytest.warns(UserWarning, match="Pairs hold under ShardingPolicy.DATA") as caught:
        of_both(lambda one: one).apply(distribute("distributed_epoch", "tcp://127.0.0.1:1"))
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    "dataset",
    [
        images(),
        Dataset.zip(images(), Dataset.counter()),
        Dataset.zip(images(), Dataset.random(seed=1)),
        Dataset.zip(images(), Dataset.from_tensors(7).repeat()),
        images().flat_map(lambda x: Dataset.zip(Dataset.range(2), Dataset.range(2))),
    ],
)
def test_zips_without_pairs_are_silent(dataset: Dataset) -> None:
    """Counters, draws and constants beside an input, and zips that functions make,
    cause no warning.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_splitting(dataset.node, ShardingPolicy.DYNAMIC)


@pytest.mark.parametrize("policy", ["OFF", "DATA", "HINT"])
def test_other_policies_keep_pairs(policy: str) -> None:
    """Pairs hold where each worker zips all of its input, without a warning."""
    dataset = Dataset.zip(images().filter(lambda x: x > 3), labels().filter(lambda x: x > 3))
    if policy == "HINT":
        dataset = dataset.shard(-1, -1)
    with warnings.catch_warnings(), WatchedService(2) as service:
        warnings.simplefilter("error")
        check_splitting(dataset.node, ShardingPolicy[policy])
        options = {} if policy == "OFF" else {"deterministic": True, "num_tasks": 3}
        found = pairs_of(service.read(dataset, ShardingPolicy[policy], **options))
    assert sorted(found) == sorted([(x, x) for x in range(4, 40)] * (2 if policy == "OFF" else 1))
