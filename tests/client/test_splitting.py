"""Tests of ``zmqdata.client.splitting``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.service import WatchedService
from zmqdata import (
    Dataset,
    DispatchServer,
    ShardingPolicy,
    distribute,
    from_dataset_id,
    register_dataset,
)
from zmqdata.client.splitting import LONGEST_ORIGIN, check_splitting, units_of
from zmqdata.errors import InvalidArgumentError
from zmqdata.storage.manifests import is_done

COUNT = 200
ROWS = Dataset.range(40)
PAIRS = Dataset.zip(ROWS.filter(lambda x: x > 3), ROWS)
CHOICES = Dataset.choose_from_datasets([ROWS, ROWS], Dataset.from_list([0] * 9 + [1] * 9))
ORDERED: dict[str, Any] = {"deterministic": True, "num_tasks": 3}


def itself(one: Any) -> Any:
    return one


SELECTING: dict[str, Callable[[Dataset], Dataset]] = {
    "take": lambda chunks: chunks.take(1).flat_map(itself),
    "skip": lambda chunks: chunks.prefetch(1).skip(1).interleave(itself),
    "shard": lambda chunks: chunks.shard(2, 1).flat_map(itself),
    "enumerate": lambda chunks: (
        chunks.enumerate().filter(lambda i, one: i % 2 == 1).flat_map(lambda i, one: one)
    ),
    "shuffle": lambda chunks: chunks.shuffle(9).take(1).flat_map(itself),
}
REARRANGING: dict[str, Callable[[Dataset], Dataset]] = {
    "shuffle": lambda chunks: chunks.shuffle(9).interleave(itself),
    "batch": lambda chunks: chunks.flat_map(lambda one: one.batch(7)).unbatch(),
    "filter": lambda chunks: chunks.flat_map(itself).filter(lambda x: x >= 0),
    "map": lambda chunks: chunks.map(itself).flat_map(itself).prefetch(2),
    "all": lambda chunks: chunks.skip(0).take(-1).shard(1, 0).flat_map(itself),
    "of a chunk": lambda chunks: chunks.flat_map(lambda one: one.take(COUNT)),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a distributed save of several chunks."""
    path = str(tmp_path_factory.mktemp("saves") / "saved")
    small = {"snapshot_max_chunk_size_bytes": 400, "buffer_bytes": 1 << 10}
    with WatchedService(2, worker_options=small, pace=0.05, journalled=True) as service:
        service.save(Dataset.range(COUNT), path)
        assert service.run_until(lambda: is_done(path), 600.0)
    return path


def test_a_selection_of_chunks_is_a_warning(saved: str) -> None:
    """Under DYNAMIC, each operation that selects chunks by position is a warning at the
    user's line, which names it; the function runs as often as without the check.
    """
    for kind, select in SELECTING.items():
        calls: list[int] = []

        def counted(chunks: Any, select: Any = select, calls: Any = calls) -> Any:
            calls.append(1)
            return select(chunks)

        loaded = Dataset.load(saved, reader_func=counted)
        name = "take" if kind == "shuffle" else kind
        with pytest.warns(UserWarning, match=rf"^{name}\(.*`reader_func` of load\(") as caught:
            loaded.apply(distribute("distributed_epoch", "tcp://127.0.0.1:1"))
        assert [warning.filename for warning in caught] == [__file__]
        assert len(calls) == 1


@pytest.mark.parametrize("kind", REARRANGING)
def test_a_rearranging_reader_is_silent(kind: str, saved: str) -> None:
    """A reader function that rearranges chunks, or selects elements, has every element
    under DYNAMIC, and no warning.
    """
    with warnings.catch_warnings(), WatchedService(2) as service:
        warnings.simplefilter("error")
        read = service.read(Dataset.load(saved, reader_func=REARRANGING[kind]))
        assert sorted(map(int, read)) == list(range(COUNT))


@pytest.mark.parametrize("policy", ["OFF", "DATA"])
@pytest.mark.parametrize("kind", ["take", "skip", "shard", "enumerate"])
def test_other_policies_select_chunks(policy: str, kind: str, saved: str) -> None:
    """Under OFF and DATA, a selection of chunks is that of a local reading."""
    loaded = Dataset.load(saved, reader_func=SELECTING[kind])
    names = ["localhost"] * 2
    with warnings.catch_warnings(), WatchedService(2, worker_addresses=names) as service:
        warnings.simplefilter("error")
        found = sorted(map(int, service.read(loaded, ShardingPolicy[policy])))
    local = sorted(map(int, loaded))
    assert 0 < len(local) < COUNT
    assert found == sorted(local * (2 if policy == "OFF" else 1))


def test_what_no_tasks_share_is_silent(saved: str, tmp_path: Path) -> None:
    """A selection of elements, of the shards of a plain save, or in a promised order of
    one task causes no warning.
    """
    Dataset.range(9).save(tmp_path, shard_func=lambda x: x % 3)
    selected = Dataset.load(saved, reader_func=SELECTING["take"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_splitting(selected.node, ShardingPolicy.DYNAMIC, 1)
        for dataset in (
            Dataset.load(tmp_path, reader_func=SELECTING["take"]),
            Dataset.load(saved, reader_func=REARRANGING["shuffle"]).take(3).enumerate(),
            Dataset.load(saved).take(3),
        ):
            check_splitting(dataset.node, ShardingPolicy.DYNAMIC)


# --- readers who know only an id


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with DispatchServer() as dispatcher:
        yield dispatcher.target


def test_readers_by_id_are_warned(target: str) -> None:
    """Readers who know only the id of a dataset get the warnings of its zips and
    choices at their line, which name the operations.
    """
    both = register_dataset(target, Dataset.zip(CHOICES, PAIRS))
    with pytest.warns(UserWarning, match=r"ShardingPolicy\.DYNAMIC") as caught:
        from_dataset_id("distributed_epoch", target, both)
    assert [str(one.message).partition("(")[0] for one in caught] == [
        "zip",
        "choose_from_datasets",
    ]
    assert [one.filename for one in caught] == [__file__] * 2


def test_readers_by_id_are_warned_of_selections(target: str, saved: str) -> None:
    """Readers who know only the id of a dataset are warned of a selection of chunks, in
    a promised order, too.
    """
    selected = register_dataset(target, Dataset.load(saved, reader_func=SELECTING["take"]))
    for options in ({}, ORDERED):
        with pytest.warns(UserWarning, match=r"^take\(.*`reader_func` of load\("):
            from_dataset_id("distributed_epoch", target, selected, **options)


@pytest.mark.parametrize("dataset", [PAIRS, CHOICES])
def test_readers_by_id_are_refused_an_order(target: str, dataset: Dataset) -> None:
    """The promise of an order that loses elements is an error for readers who know only
    the id, unless a single task reads.
    """
    registered = register_dataset(target, dataset)
    with pytest.raises(InvalidArgumentError, match="among the tasks of a promised order"):
        from_dataset_id("distributed_epoch", target, registered, **ORDERED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_dataset_id("distributed_epoch", target, registered, deterministic=True, num_tasks=1)


def test_readers_by_id_lose_nothing_elsewhere(target: str) -> None:
    """Other policies, and datasets without losses, cause neither warning nor error."""
    both = register_dataset(target, Dataset.zip(CHOICES, PAIRS))
    kept = register_dataset(target, Dataset.zip(ROWS, ROWS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_dataset_id("parallel_epochs", target, both)
        from_dataset_id(ShardingPolicy.DATA, target, both)
        from_dataset_id("distributed_epoch", target, kept, **ORDERED)


def test_a_status_names_what_is_read() -> None:
    """The origin of a dataset has the line of its last operation and at most three of
    its sources, and is short. A function may name a dataset of another library.
    """

    class Fetch:
        zmqdata_dataset_name = "ImageFolder"

        def __call__(self, row: Any) -> Any:
            return row

    def origin(dataset: Dataset) -> str:
        return units_of(dataset.node, ()).origin

    read = origin(ROWS.map(itself).batch(2))
    assert read.startswith("test_splitting.py:")
    assert read.endswith(", range(40)")
    assert origin(ROWS.map(Fetch()).map(itself)).endswith(", ImageFolder")
    many = Dataset.zip((ROWS,) * 4)
    assert origin(many).endswith(", range(40), range(40), range(40)")
    Fetch.zmqdata_dataset_name = "I" * 300
    assert len(origin(ROWS.map(Fetch()))) == LONGEST_ORIGIN
