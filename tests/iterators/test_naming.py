"""Tests of ``zmqdata.iterators.naming``: the draws for an element are its own in every
reading.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, run
from tests.iterators.kinds import sample_pipelines
from zmqdata.dataset import Dataset, TextLineDataset
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.operations.files import TextLines
from zmqdata.operations.sharding import shard_statically

D = Dataset


def draw(*parts: Any) -> tuple[str, float]:
    *element, rng = parts
    return str(element), float(rng.random())


def drawn(dataset: Dataset, **more: Any) -> Dataset:
    return dataset.random_map(draw, seed=7, **more)


def read(dataset: Dataset, **context: Any) -> list[tuple[str, float]]:
    return list(make_iterator(dataset.node, Context(**context)))


def test_no_two_elements_draw_the_same() -> None:
    """Each element has draws of its own, behind each source and operation, and in a
    batch that is not full.
    """
    draws: list[float] = []

    def note(*parts: Any) -> int:
        draws.append(parts[-1].random())
        return 0

    for dataset in sample_pipelines():
        for ahead in (dataset, dataset.repeat(2), dataset.concatenate(dataset.take(2)).batch(1)):
            read_now = len(draws)
            run(ahead.random_map(note, seed=len(draws)).node)
            assert len(set(draws[read_now:])) == len(draws[read_now:]), ahead
    assert len(draws) > 500


def test_restored_iterators_draw_the_same() -> None:
    """An iterator restored anywhere behind each source and operation draws the same."""
    for dataset in sample_pipelines():
        check_restore(drawn(dataset).node, limit=8)


PASSED_ON: dict[str, Callable[[Dataset], Dataset]] = {
    "filter": lambda ds: ds.filter(lambda x: x % 3 != 0),
    "skip": lambda ds: ds.skip(7),
    "shard": lambda ds: ds.shard(3, 1),
    "shuffle": lambda ds: ds.shuffle(5),
    "prefetch": lambda ds: ds.prefetch(2),
    "parallel": lambda ds: ds.map(abs, num_parallel_calls=2),
    "guarded": lambda ds: ds.map(abs, on_error="skip"),
    "drawn": lambda ds: ds.random_map(lambda x, rng: x, num_parallel_calls=2),
    "cached away": lambda ds: ds.cache().take_while(lambda x: True),
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_names_pass_through(name: str) -> None:
    """An element draws the same, whatever operation passes it on."""
    alone = dict(read(drawn(D.range(20))))
    behind = read(drawn(PASSED_ON[name](D.range(20))))
    assert behind == [(element, alone[element]) for element, _ in behind] != []


@pytest.mark.parametrize("name", ["plain", "skip", "retry", "threads", "threads that skip"])
def test_every_random_map_draws_the_same(name: str) -> None:
    """Threads, retries and skipping change no draw."""
    more: dict[str, dict[str, Any]] = {
        "plain": {},
        "skip": {"on_error": "skip"},
        "retry": {"on_error": "retry"},
        "threads": {"num_parallel_calls": 3},
        "threads that skip": {"num_parallel_calls": 3, "on_error": "skip"},
    }
    for source in (D.range(20).shuffle(20, seed=1), D.range(4).window(1)):
        expected = read(drawn(source.map(str)))
        assert read(drawn(source.map(str), **more[name])) == expected


def test_datasets_within_datasets_draw_for_themselves() -> None:
    """A seeded random map inside of flat_map or interleave has other draws for each
    outer element, and they depend on its name, not on its place.
    """

    def nested(i: Any) -> Dataset:
        return drawn(D.range(3).map(lambda x: (int(i), int(x))))

    for open_all in (
        lambda ds: ds.flat_map(nested),
        lambda ds: ds.interleave(nested, cycle_length=3),
        lambda ds: ds.interleave(nested, cycle_length=3, num_parallel_calls=2),
    ):
        whole = dict(read(open_all(D.range(8))))
        assert len(set(whole.values())) == 24
        part = read(open_all(D.range(8).filter(lambda i: i % 2 == 1)))
        assert part == [(element, whole[element]) for element, _ in part]


def test_each_pass_draws_anew() -> None:
    """Repetitions draw anew behind and before repeat, unless draws stay the same."""
    for repeated in (drawn(D.range(5).repeat(2).repeat(2)), drawn(D.range(5)).repeat(4)):
        assert len(set(read(repeated))) == 20
    same = drawn(D.range(5), rerandomize_each_iteration=False).repeat(4)
    assert len(set(read(same))) == 5


def test_static_parts_draw_as_the_whole(tmp_path: Path) -> None:
    """The parts of FILE and DATA give each element the draws that it has in the
    whole, although a part has other numbers of files.
    """
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(f"{number}a\n{number}b\n")
    names = [str(tmp_path / f"{number}.txt") for number in range(6)]
    for lines in (
        TextLineDataset(names),
        D.from_tensor_slices(names).flat_map(TextLineDataset),
        D.list_files(names).interleave(TextLineDataset, cycle_length=2),
    ):
        whole = read(drawn(lines))
        for policy in ("FILE", "DATA"):
            parts = []
            for index in range(3):
                node = shard_statically(drawn(lines).node, policy, 3, index, seed=5)
                parts += list(make_iterator(node, Context(seed=index, task=index)))
            assert sorted(parts) == sorted(whole)


def test_what_has_no_name_is_counted_in_its_task() -> None:
    """Windows have no names: each task has draws of its own for them, and so has each
    copy of the input in mode OFF for everything.
    """
    windows = drawn(D.range(40).window(2).flat_map(lambda window: window.batch(2)))
    assert read(windows, task=0) == read(windows)
    tasks = [value for task in range(3) for _, value in read(windows, task=task)]
    assert len(set(tasks)) == 60
    for dataset in (drawn(D.range(20)), D.random(seed=1).take(20).enumerate()):
        copies = [str(value) for copy in range(3) for _, value in read(dataset, copy=copy)]
        assert len(set(copies)) == 60


def test_choices_are_drawn_in_each_task() -> None:
    """Tasks choose from their datasets independently, though the seed is one."""
    sampled = D.sample_from_datasets([D.range(30), D.range(30, 60)], seed=1)
    weighted = D.sample_from_datasets(
        [D.range(30), D.range(30, 60)], D.from_tensors(np.ones(2)).repeat(), seed=1
    )
    chosen = D.choose_from_datasets(
        [D.range(30), D.range(30, 60)], D.random(seed=1).map(lambda x: x % 2).take(99)
    )
    for dataset in (sampled, weighted, chosen):
        orders = {tuple(int(x) >= 30 for x in read(dataset, task=task)) for task in range(4)}
        assert len(orders) == 4


def test_random_access_draws_the_same() -> None:
    """at() gives each element the draws that it has in an iteration."""
    fixed = {"rerandomize_each_iteration": False}
    rows = D.range(12).batch(3, drop_remainder=True)
    for ahead in (
        D.range(12).skip(3),
        D.range(12).shard(3, 1),
        D.range(4).repeat(3),
        D.range(4).concatenate(D.range(4, 8)),
        D.from_source(range(9), shuffle=True, seed=1, reshuffle_each_iteration=False),
        D.range(11).batch(4).map(lambda x: x.sum()),
        D.range(11).batch(4, collate_fn=sum),
        rows.unbatch(),
        D.range(12).map_batches(lambda x: x, 4),
        D.zip(D.range(5), D.range(5)),
    ):
        for more in ({}, {"num_parallel_calls": 2}):
            dataset = drawn(ahead, **fixed, **more)
            assert [dataset.at(i) for i in range(len(dataset))] == list(dataset)


def test_a_seed_of_the_user_alone_decides() -> None:
    """Draws with a seed of the user do not depend on the seeds of the reading, even
    behind a shuffle without a seed.
    """
    readings = [read(drawn(D.range(20).shuffle(20)), seed=seed) for seed in (3, 4)]
    assert readings[0] != readings[1]
    assert sorted(readings[0]) == sorted(readings[1])


def test_the_last_part_keeps_its_name_after_its_end(tmp_path: Path) -> None:
    """The name of the last record can be asked for after the end of its file, also if a
    worker reads renumbered files alone.
    """
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\n")
    node = TextLines(filenames=(str(path),), places=range(7, 8))
    iterator = make_iterator(node, Context())
    namer = iterator.namer()
    assert namer is not None
    names = [namer() for _ in iterator]
    assert len(set(names)) == 2
    after = namer()
    assert after is not None
    assert after[0] == names[0][0]
