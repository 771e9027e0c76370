"""Tests of ``zmqdata.operations.cache``."""

from __future__ import annotations

import gc
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import numpy as np
import pytest

from tests.iterators.checks import check_restore, outcomes, plain, provided, run
from zmqdata.blocks import copied
from zmqdata.dataset import Dataset
from zmqdata.errors import AlreadyExistsError, FailedPreconditionError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations import cache
from zmqdata.operations.cache import Cache, Tape
from zmqdata.operations.combinations import Concatenate
from zmqdata.operations.mapping import Map
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sequences import FromSource
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import FromGenerator, Range

Point = namedtuple("Point", "x y")


def counting(count: int) -> tuple[Cache, list[int]]:
    seen: list[int] = []

    def see(x: Any) -> Any:
        seen.append(int(x))
        return x

    return Cache(inputs=(Map(inputs=(Range(start=0, stop=count),), function=see),)), seen


def renewed(node: Node) -> Any:
    """Return the pipeline as another process has it: its caches have no tapes yet."""
    return replace(node, inputs=tuple(renewed(one) for one in node.inputs))


def check_renewed(
    node: Node, context: Callable[[], Context] = lambda: Context(seed=7)
) -> list[Any]:
    """Restore at every step in a pipeline without tapes, and compare what follows."""
    original = renewed(node)
    iterator, states, seen = make_iterator(original, context()), [], []
    states.append(msgspec.msgpack.encode(iterator.state()))
    for outcome in islice(outcomes(iterator), 80):
        seen.append(outcome)
        states.append(msgspec.msgpack.encode(iterator.state()))
    for step, state in enumerate(states):
        restored = make_iterator(renewed(node), replace(context(), iteration=step))
        restored.restore(msgspec.msgpack.decode(state))
        assert list(islice(outcomes(restored), len(seen) - step)) == seen[step:]
        restored.close()
    iterator.close()
    return seen


def test_the_input_runs_once() -> None:
    """Other iterators of the dataset replay the recorded elements, also in other
    repetitions and after half a run.
    """
    node, seen = counting(5)
    first = make_iterator(node, Context(seed=1))
    assert [int(next(first)) for _ in range(3)] == [0, 1, 2]
    assert [int(x) for x in make_iterator(node, Context(seed=2))] == [0, 1, 2, 3, 4]
    assert [int(x) for x in first] == [3, 4]
    assert [value[3] for value in run(Repeat(inputs=(node,), count=2))] == [
        *range(5),
        *range(5),
    ]
    assert seen.count(4) == 1
    assert check_restore(node) == [plain(np.int64(x)) for x in range(5)]


def test_an_iterator_continues_where_a_closed_one_ended() -> None:
    """The state that an iterator reports when it is closed is noted, and the next
    iterator pulls no element again.
    """
    node, seen = counting(5)
    first = make_iterator(node, Context(seed=1))
    assert [int(next(first)) for _ in range(3)] == [0, 1, 2]
    first.state()
    first.close()
    assert [int(x) for x in make_iterator(node, Context(seed=2))] == [0, 1, 2, 3, 4]
    assert seen == [0, 1, 2, 3, 4]


def test_what_is_handed_out_are_copies() -> None:
    """A receiver that changes an element changes neither the tape nor the elements of
    others.
    """
    rows = FromSource(sequence=[{"x": (np.zeros(1), "a"), "y": Point(np.zeros(1), 2)}])
    node = Cache(inputs=(rows,))
    for _ in range(3):
        (element,) = make_iterator(node, Context())
        assert (element["x"][0][0], element["y"].x[0]) == (0, 0)
        element["x"][0][0] = element["y"].x[0] = 1
    thing = object()
    assert copied(thing) is thing


@pytest.mark.parametrize("inner", ["shuffle", "plain"])
def test_another_process_restores_exactly(inner: str) -> None:
    """Without the tape, every repetition continues from any step in the order of the
    first.
    """
    source: Node = Range(start=0, stop=11)
    if inner == "shuffle":
        source = Shuffle(inputs=(source,), buffer_size=4)
    seen = check_renewed(Repeat(inputs=(Cache(inputs=(source,)),), count=3))
    assert seen[:11] == seen[11:22] == seen[22:]


def test_a_task_repeats_what_it_saw() -> None:
    """The tape of a task with a provider requests no split again, and another attempt
    restores exactly.
    """
    node = Repeat(inputs=(Cache(inputs=(Range(start=0, stop=10),)),), count=3)
    one, other = provided([[(2, 4), (7, 9)]]), provided([[(0, 2)]])
    assert [value[3] for value in run(node, one())] == [2, 3, 7, 8] * 3
    assert [value[3] for value in run(node, other())] == [0, 1] * 3
    check_renewed(node, one)


def test_a_late_cache_knows_where_it_began() -> None:
    """An attempt that begins in a later repetition, before the cache is reached,
    replays the elements of the first.
    """
    source = Range(start=0, stop=10)
    joined = Concatenate(inputs=(source, Cache(inputs=(source,))))
    own, kept = [[(0, 1)], [(1, 2)], [(2, 3)]], [[(2, 4), (7, 9)], [(0, 2)], [(4, 6)]]
    node = Repeat(inputs=(joined,), count=3)
    seen = [value[3] for value in check_renewed(node, provided(own, kept))]
    assert seen == [0, 2, 3, 7, 8, 1, 2, 3, 7, 8, 2, 2, 3, 7, 8]


def test_two_caches_of_one_task_have_tapes_of_their_own() -> None:
    """Caches at different places of a pipeline do not mix, and tapes are freed with
    their owner.
    """
    inner = Cache(inputs=(Range(start=0, stop=4),))
    outer = Cache(inputs=(Map(inputs=(inner,), function=lambda x: -x),))
    iterator = make_iterator(Repeat(inputs=(outer,), count=2), provided([[(1, 3)]])())
    assert [int(x) for x in iterator] == [-1, -2] * 2
    before = len(cache._tapes)
    del iterator
    gc.collect()
    assert len(cache._tapes) < before


def test_failures_come_once() -> None:
    """A failing element is raised while the tape is recorded, and skipped when it is
    replayed or pulled again.
    """

    def odd(x: Any) -> Any:
        if x % 3 == 1:
            raise ValueError("no")
        return x

    mapped = Map(inputs=(Range(start=0, stop=5),), function=odd)
    seen = check_renewed(Repeat(inputs=(Cache(inputs=(mapped,)),), count=2))
    kinds = [outcome[0] for outcome in seen]
    assert kinds == ["int64", "raised", "int64", "int64", "raised", "int64", "int64", "int64"]
    iterator = make_iterator(Cache(inputs=(mapped,)), Context())
    next(iterator)
    with pytest.raises(PipelineError, match="no"):
        next(iterator)


def test_restoring_on_a_shorter_input_is_refused() -> None:
    """An input with fewer elements than were cached cannot be continued."""
    counts = iter([8, 3, 3])
    node = Cache(inputs=(FromGenerator(generator=lambda: range(next(counts))),))
    iterator = make_iterator(node, Context())
    assert len(list(iterator)) == 8
    again = make_iterator(node, Context())
    assert [next(again) for _ in range(5)] == [0, 1, 2, 3, 4]
    for place in (5, 3):
        restored = make_iterator(renewed(node), Context())
        with pytest.raises(FailedPreconditionError, match="has 3 elements now"):  # noqa: PT012 - either of them raises
            restored.restore([place, 8, *again.state()[2:]])
            next(restored)


def test_few_marks_are_kept_of_a_long_run() -> None:
    """The number of noted states stays small in a long run, and some state is near any
    element.
    """
    source = make_iterator(Range(start=0, stop=1), Context())
    tape = Tape([0, 0, 0, 0], source.state())
    for number in range(100_000):
        tape.mark(number, source)
    assert len(tape._marks) <= 65
    assert all(
        number - tape.nearest(number)[0] <= 100_000 / 16 for number in range(0, 100_000, 777)
    )


@pytest.mark.parametrize(
    "below",
    [
        lambda ds: ds.repeat(1),
        lambda ds: ds.map(lambda x: x),
        lambda ds: ds.take(3).concatenate(ds.skip(3)),
        lambda ds: Dataset.zip(ds, Dataset.range(9)).map(lambda x, place: x),
    ],
    ids=["repeat", "map", "concatenate", "zip"],
)
def test_one_that_was_read_in_part_keeps_its_draws(below: Callable[[Dataset], Dataset]) -> None:
    """A cache whose input draws without a seed continues with the same draws, wherever
    it stands in the next pipeline.
    """
    dataset = Dataset.range(9).shuffle(9).cache()
    first = next(iter(dataset))
    seen = list(below(dataset))
    assert seen[0] == first
    assert sorted(seen) == list(range(9))


def test_one_that_a_pipeline_has_twice_is_restored_with_its_draws() -> None:
    """A pipeline that reads a cache in two places continues with the draws of the first
    place in another process.
    """

    def twice() -> Dataset:
        dataset = Dataset.range(9).shuffle(9).cache()
        return dataset.concatenate(dataset)

    for step in range(18):
        iterator = iter(twice())
        began = [next(iterator) for _ in range(step)]
        state, rest = iterator.state_dict(), list(iterator)
        restored = iter(twice())
        restored.load_state_dict(state)
        assert list(restored) == rest
        assert [*began, *rest][:9] == [*began, *rest][9:]


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


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return an empty file system in memory."""
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def test_tasks_have_folders_in_a_store(memory: Any) -> None:
    """Each task repeats what it saw from a folder of its own, which goes with it, and
    another worker continues it at every step. A folder that a killed task left stays.
    """
    memory.pipe("/b/x/task-of-the-dead/manifest.json", b"")
    node = repeated(Cache(inputs=(counted(),), filename="memory://b/x"))
    one, other = (make_iterator(node, provided([splits])()) for splits in (LEDGER, [(0, 2)]))
    assert [int(x) for x in other] == [0, 1] * 3
    assert [int(next(one)) for _ in range(6)] == [2, 3, 7, 8, 2, 3]
    assert len(memory.ls("/b/x")) == 3
    assert [int(x) for x in one] == [7, 8, 2, 3, 7, 8]
    del one, other
    gc.collect()
    assert memory.find("/b/x") == ["/b/x/task-of-the-dead/manifest.json"]
    shuffled = Shuffle(inputs=(counted(),), buffer_size=3)
    node = repeated(Cache(inputs=(shuffled,), filename="memory://b/x"))
    assert len(check_restore(node, provided([LEDGER, [(0, 2)], [(4, 6)]]))) == 12


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
