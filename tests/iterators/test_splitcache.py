"""Tests of ``zmqdata.iterators.splitcache``."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.iterators.checks import check_restore, provided, run
from zmqdata.errors import AlreadyExistsError
from zmqdata.iterators import Context, cache, make_iterator
from zmqdata.nodes.base import Node
from zmqdata.nodes.combinations import Concatenate
from zmqdata.nodes.sources import Range
from zmqdata.nodes.storage import Cache
from zmqdata.nodes.transforms import FlatMap, Map, Repeat, Shuffle

LEDGER = [(2, 4), (7, 9)]


def counted(stop: int = 10) -> Node:
    return Range(start=0, stop=stop)


def cached(tmp_path: Path, source: Node | None = None) -> Cache:
    return Cache(inputs=(source or counted(),), filename=str(tmp_path / "cache"))


def repeated(node: Node, count: int = 3) -> Repeat:
    return Repeat(inputs=(node,), count=count)


def numbers(node: Node, context: Context) -> list[Any]:
    return [outcome[3] for outcome in run(node, context)]


def test_tasks_play_what_they_saw(tmp_path: Path) -> None:
    """Each task repeats its own splits, even with the same file name, and asks for no
    others.
    """
    node = repeated(cached(tmp_path))
    one, other = (make_iterator(node, provided([splits])()) for splits in (LEDGER, [(0, 2)]))
    found = [(int(next(one)), int(next(other))) for _ in range(2)]
    assert found == [(2, 0), (3, 1)]
    assert [int(x) for x in other] == [0, 1, 0, 1]
    assert [int(x) for x in one] == [7, 8, 2, 3, 7, 8, 2, 3, 7, 8]


def test_no_task_reads_what_others_left(tmp_path: Path) -> None:
    """A task reads neither files of an earlier task nor those of an unsplit
    pipeline.
    """
    node = cached(tmp_path)
    assert numbers(node, Context()) == list(range(10))
    assert numbers(repeated(node, 2), provided([LEDGER])()) == [2, 3, 7, 8] * 2
    assert numbers(repeated(node, 2), provided([[(1, 3)]])()) == [1, 2] * 2
    assert numbers(node, Context()) == list(range(10))


def test_restoring_at_every_step(tmp_path: Path) -> None:
    """Another worker, without the files, pulls the splits of the first repetition
    again, also in later repetitions.
    """
    shuffled = Shuffle(inputs=(counted(),), buffer_size=3)
    for source in (counted(), shuffled):
        seen = check_restore(
            repeated(cached(tmp_path, source)), provided([LEDGER, [(0, 2)], [(4, 6)]])
        )
        assert sorted(value[3] for value in seen) == sorted([2, 3, 7, 8] * 3)
    behind = Concatenate(inputs=(counted(), cached(tmp_path, shuffled)))
    check_restore(
        repeated(behind), provided([[(0, 1)], [(1, 2)], [(2, 3)]], [LEDGER, [(0, 2)], [(4, 6)]])
    )


def test_two_caches_of_one_task_have_folders_of_their_own(tmp_path: Path) -> None:
    """The caches have separate folders, even with the same file name."""
    inner = cached(tmp_path)
    outer = cached(tmp_path, Map(inputs=(inner,), function=lambda x: -x))
    assert numbers(repeated(outer, 2), provided([[(1, 3)]])()) == [-1, -2, -1, -2]


@pytest.mark.parametrize("filename", ["", "cache"])
def test_nothing_is_kept_for_nobody(tmp_path: Path, filename: str) -> None:
    """A task without a repeat above the cache never replays, so the cache keeps nothing
    in memory or in files.
    """
    node = Cache(inputs=(counted(),), filename=filename and str(tmp_path / filename))
    tapes = len(cache._tapes)
    iterator = make_iterator(node, provided([LEDGER])())
    assert [int(x) for x in iterator] == [2, 3, 7, 8]
    assert len(cache._tapes) == tapes
    assert list(tmp_path.iterdir()) == []
    assert len(check_restore(node, provided([LEDGER]))) == 4


def folders(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("task-*"))


def test_folders_go_with_their_task(tmp_path: Path) -> None:
    """A running task has a single folder, however often it repeats."""
    iterator = make_iterator(repeated(cached(tmp_path), -1), provided([LEDGER])())
    for _ in range(20):
        next(iterator)
    assert len(folders(tmp_path)) == 1
    iterator.close()
    del iterator
    gc.collect()
    assert folders(tmp_path) == []


def test_folders_of_killed_tasks_go_with_the_next_one(tmp_path: Path) -> None:
    """An abandoned folder is removed, and the folder of a living task stays."""
    living = make_iterator(repeated(cached(tmp_path)), provided([LEDGER])())
    next(living)
    (kept,) = folders(tmp_path)
    (tmp_path / "cache" / "task-of-the-dead").mkdir()
    numbers(repeated(cached(tmp_path)), provided([[(0, 1)]])())
    gc.collect()
    assert folders(tmp_path) == [kept]
    assert len(list(living)) == 11


def test_nested_caches_are_not_of_the_task(tmp_path: Path) -> None:
    """A dataset that a function makes is not split, so its cache has a single file, and
    a second writer is refused.
    """
    whole = cached(tmp_path)
    node = FlatMap(inputs=(counted(2),), function=lambda x: _Made(whole))
    one, other = (make_iterator(replace(node), provided([[(0, 1)]])()) for _ in range(2))
    assert int(next(one)) == 0
    with pytest.raises(
        AlreadyExistsError, match=r"concurrent caching iterator.*one worker on each machine"
    ):
        next(other)
    one.close()


class _Made:
    def __init__(self, node: Node) -> None:
        self.node = node
