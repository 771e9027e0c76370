"""Tests of ``zmqdata.operations.nested`` and ``zmqdata.iterators.trail``."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.iterators.checks import check_restore, plain, provided, run
from tests.iterators.watch import RecordingWatch
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import FailedPreconditionError, PipelineError, WrongTypeError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.inference import infer_spec
from zmqdata.iterators.trail import Trail
from zmqdata.nodes.base import Node
from zmqdata.operations.limits import Take
from zmqdata.operations.mapping import Map
from zmqdata.operations.nested import FlatMap, Interleave
from zmqdata.operations.random_map import RandomMap
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import FromGenerator, Range


@dataclass
class Nested:
    """The result of a user's function: an object with a node, like Dataset."""

    node: Node


def count(stop: int, start: int = 0) -> Range:
    return Range(start=start, stop=stop)


def upto(x: Any) -> Nested:
    return Nested(count(int(x)))


def tens(x: Any) -> Nested:
    return Nested(count(int(x) * 10 + 3, int(x) * 10))


def flat(node: Node, function: Any = upto) -> Node:
    return FlatMap(inputs=(node,), function=function, site="a.py:4")


def interleaved(node: Node, cycle: int, block: int = 1, function: Any = tens) -> Node:
    return Interleave(inputs=(node,), function=function, cycle_length=cycle, block_length=block)


def numbers(read: list[Any]) -> list[int]:
    return [outcome[3] for outcome in read]


def test_flat_map_reads_one_dataset_after_the_other() -> None:
    """All elements of the first nested dataset precede those of the second."""
    assert numbers(check_restore(flat(count(4)))) == [0, 0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("cycle", "block", "expected"),
    [
        (1, 1, [0, 1, 2, 10, 11, 12, 20, 21, 22]),
        (2, 1, [0, 10, 1, 11, 2, 12, 20, 21, 22]),
        (2, 2, [0, 1, 10, 11, 2, 12, 20, 21, 22]),
        (3, 1, [0, 10, 20, 1, 11, 21, 2, 12, 22]),
        (9, 2, [0, 1, 10, 11, 20, 21, 2, 12, 22]),
    ],
)
def test_interleave_takes_turns(cycle: int, block: int, expected: list[int]) -> None:
    """``block`` elements come from each of ``cycle`` datasets in turn. An exhausted
    dataset is replaced at its next turn.
    """
    assert numbers(check_restore(interleaved(count(3), cycle, block))) == expected


@pytest.mark.parametrize(
    "inner",
    [
        lambda: Dataset.range(3).random_map(lambda x, rng: x, num_parallel_calls=2),
        lambda: Dataset.range(3).prefetch(2).ignore_errors(),
        lambda: Dataset.zip(Dataset.range(3).prefetch(2).cache(), Dataset.range(3)).map(min),
    ],
)
def test_nested_datasets_have_operations_with_threads(inner: Callable[[], Dataset]) -> None:
    """Threads of a nested dataset know what surrounds it, whatever operation is between
    them and the function.
    """
    assert list(Dataset.range(2).flat_map(lambda x: inner())) == [0, 1, 2, 0, 1, 2]


def test_empty_nested_datasets_are_passed_over() -> None:
    """Empty nested datasets are skipped, and an empty outer input yields no element."""
    zeros = Map(inputs=(count(40),), function=lambda x: 0)
    assert check_restore(flat(zeros)) == check_restore(interleaved(zeros, 3, function=upto)) == []
    assert check_restore(interleaved(count(0), 3)) == []


@pytest.mark.parametrize("kind", [flat, lambda node, function: interleaved(node, 2, 1, function)])
def test_failures_fail_one_outer_element(kind: Any) -> None:
    """A function that raises, or does not return a dataset, fails its element, and the
    next elements are read.
    """

    def sometimes(x: Any) -> Any:
        return 1 // 0 if x == 1 else 7 if x == 2 else Nested(count(1, int(x) - 1 if x else 0))

    read = check_restore(kind(count(4), lambda x: sometimes(x) if x else Nested(count(1))))
    assert [outcome[0] for outcome in read].count("raised") == 2
    assert any(
        "must return a Dataset, it returned a int" in outcome[2]
        for outcome in read
        if outcome[0] == "raised"
    )


def yielding(x: Any) -> Iterator[np.int64]:
    for number in range(3):
        yield np.int64(10 * int(x) + number)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (flat(count(3), yielding), [0, 1, 2, 10, 11, 12, 20, 21, 22]),
        (interleaved(count(3), 2, 1, yielding), [0, 10, 1, 11, 2, 12, 20, 21, 22]),
        (flat(count(2), lambda x: (x for _ in range(2))), [0, 0, 1, 1]),
    ],
)
def test_generator_functions_make_datasets(node: Node, expected: list[int]) -> None:
    """Values that a generator function yields are elements, and a restored iterator
    runs it again up to its position.
    """
    assert numbers(check_restore(node)) == expected
    assert infer_spec(node) == TensorSpec((), int)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: iter([x]),
        lambda x: map(int, [x]),
        lambda x: itertools.count(),
        lambda x: iter(Dataset.range(2)),
        lambda x: io.StringIO("a line"),
    ],
)
@pytest.mark.parametrize("kind", [flat, lambda node, function: interleaved(node, 2, 1, function)])
def test_iterators_that_are_no_generators_are_refused(kind: Any, function: Any) -> None:
    """The error says what a second pass would miss, and names the remedies."""
    with pytest.raises(WrongTypeError, match=r"an iterator.*miss.*from_list\(.*generator function"):
        infer_spec(kind(count(1), function))


def test_a_refused_iterator_keeps_its_elements() -> None:
    """Neither the spec nor a pass takes an element of an iterator that the function
    returns.
    """
    values = iter(range(9))
    node = flat(count(2), lambda x: values)
    with pytest.raises(WrongTypeError):
        infer_spec(node)
    assert [outcome[0] for outcome in run(node)] == ["raised", "raised"]
    assert [*values] == [*range(9)]


@pytest.mark.parametrize("parallel", [None, 2])
def test_a_generator_that_a_function_returns_again_is_refused(parallel: int | None) -> None:
    """Only the first element that got the generator has its values."""
    values = (x for x in range(4))
    dataset = Dataset.range(2).interleave(lambda x: values, 2, num_parallel_calls=parallel)
    with (
        closing(iter(dataset)) as iterator,
        pytest.raises(PipelineError, match=r"the generator that an earlier call had returned"),
    ):
        list(iterator)


def test_generators_on_threads_and_their_failures() -> None:
    """Parallel interleave takes generators, and an exception in one has its name."""

    def breaks(x: Any) -> Iterator[int]:
        yield 1
        raise ValueError("boom")

    parallel = Dataset.range(3).interleave(yielding, cycle_length=2, num_parallel_calls=2)
    assert [int(x) for x in parallel] == [0, 10, 1, 11, 2, 12, 20, 21, 22]
    read = run(flat(count(1), breaks))
    assert [outcome[0] for outcome in read] == ["int", "raised"]
    assert "from_generator(breaks)" in read[1][2]
    assert "boom" in read[1][2]


def test_failures_inside_name_the_inner_node() -> None:
    """A failure in a nested dataset is raised unchanged, and that dataset continues."""
    broken = Map(inputs=(count(3),), function=lambda x: 1 // (int(x) - 1), site="b.py:9")
    read = run(flat(count(1), lambda x: Nested(broken)))
    assert [outcome[0] for outcome in read] == ["int", "raised", "int"]
    assert "map(<lambda>) at b.py:9" in read[1][2]


def test_nested_datasets_are_read_in_full() -> None:
    """Only the outer input is split; nested datasets are read in full."""
    read = check_restore(flat(count(9)), provided([[(2, 4)]]))
    assert numbers(read) == [0, 1, 0, 1, 2]


def test_nested_shuffles_differ_per_outer_element() -> None:
    """The order of a nested shuffle depends on the outer element and can be
    restored.
    """
    shuffled = Shuffle(inputs=(count(8),), buffer_size=8)
    read = numbers(check_restore(flat(count(4), lambda x: Nested(shuffled))))
    assert len({tuple(read[start : start + 8]) for start in range(0, 32, 8)}) == 4


def test_restoring_calls_functions_for_open_datasets_only() -> None:
    """Datasets that were read to their end are not made again."""
    made: list[int] = []

    def make(x: Any) -> Nested:
        made.append(int(x))
        return tens(x)

    node = interleaved(count(50), 2, 1, make)
    iterator = make_iterator(node, Context())
    for _ in range(100):
        next(iterator)
    state, following = iterator.state(), next(iterator)
    made.clear()
    restored = make_iterator(node, Context())
    restored.restore(state)
    assert len(made) <= 2
    assert next(restored) == following


def test_closing_closes_what_is_open() -> None:
    """Closing closes the nested iterators and the input."""
    closed = []

    def generate(name: Any) -> Any:
        try:
            yield from range(9)
        finally:
            closed.append(str(name))

    def opened(name: Any) -> Nested:
        return Nested(FromGenerator(generator=generate, args=(name,)))

    for node in (
        flat(opened("outer").node, opened),
        interleaved(opened("outer").node, 1, 1, opened),
    ):
        closed.clear()
        iterator = make_iterator(node, Context())
        next(iterator)
        iterator.close()
        assert closed == ["0", "outer"]


def test_states_stay_small() -> None:
    """The notes do not accumulate while a dataset is open for long."""

    def mostly_short(x: Any) -> Nested:
        return Nested(count(10**6 if x == 0 else 1))

    iterator = make_iterator(interleaved(count(10**6), 2, 1, mostly_short), Context())
    for _ in range(10_000):
        next(iterator)
    assert len(iterator._trail._marks) <= 64  # type: ignore[attr-defined]
    assert len(msgspec.msgpack.encode(iterator.state())) < 100


def test_a_trail_pulls_the_wanted_elements_again() -> None:
    """Restoring returns the elements with the wanted numbers and continues after the
    last pulled element.
    """
    trail = Trail(make_iterator(count(9), Context()), 2, lambda: 3)
    for _ in range(6):
        trail.pull()
    again = Trail(make_iterator(count(9), Context()), 2, lambda: 3)
    assert again.restore(trail.state(), {3, 5}) == {3: 3, 5: 5}
    assert again.pull() == 6


def test_a_trail_notices_a_shorter_input() -> None:
    """Restoring on an input that has become shorter is an error, not a wrong order."""
    trail = Trail(make_iterator(count(9), Context()), 20, lambda: 0)
    for _ in range(9):
        trail.pull()
    with pytest.raises(FailedPreconditionError, match="had 9 or more"):
        Trail(make_iterator(count(4), Context()), 20, lambda: 0).restore(trail.state(), ())


def test_a_trail_counts_failures() -> None:
    """A failing element has a number like any other, and fails quietly when pulled
    again.
    """
    failing = Map(inputs=(count(4),), function=lambda x: 1 // (int(x) - 1))
    trail = Trail(make_iterator(failing, Context()), 9, lambda: 0)
    trail.pull()
    with pytest.raises(PipelineError):
        trail.pull()
    trail.pull()
    again = Trail(make_iterator(failing, Context()), 9, lambda: 0)
    assert list(again.restore(trail.state(), {0, 1, 2})) == [0, 2]
    assert plain(again.pull()) == plain(0)
    assert np.int64(again.pulled) == 4


@pytest.mark.parametrize("make", [flat, lambda node, function: interleaved(node, 1, 1, function)])
def test_a_poisoned_outer_element_has_no_dataset(make: Any) -> None:
    """A watch notes each call, and a skipped outer element yields nothing."""
    watch = RecordingWatch(poisoned={"/": {1}})
    quarantine: list[Any] = []
    read = numbers(run(make(count(3), tens), Context(watch=watch, quarantine=quarantine)))
    assert (read, watch.notes["/"]) == ([0, 1, 2, 20, 21, 22], [0, 2])
    assert [one.number for one in quarantine] == [1]


def test_the_split_is_that_of_the_outer_element() -> None:
    """An element of a nested dataset has the split of its outer element. interleave
    does not know the split.
    """
    splits = provided([[(2, 4), (6, 7)]])
    iterator = make_iterator(flat(count(10), tens), splits())
    assert [iterator.current_split() for _ in range(9) if next(iterator) is not None] == [
        (2, 4)
    ] * 6 + [(6, 7)] * 3
    mixed = make_iterator(interleaved(count(10), 2), splits())
    next(mixed)
    assert mixed.current_split() is None


READY = [
    Dataset.range(3),
    Dataset.range(400),
    Dataset.from_tensors(np.arange(2)),
    Dataset.from_tensor_slices(np.arange(3)),
    Dataset.random(seed=None).take(2),
    Dataset.range(3).shuffle(3),
    Dataset.range(2).random_map(lambda x, rng: rng.integers(10**9)),
]


@pytest.mark.parametrize("ready", READY, ids=str)
@pytest.mark.parametrize("kind", [flat, lambda node, function: interleaved(node, 2, 1, function)])
def test_a_dataset_that_a_function_returns_again_is_read_anew(kind: Any, ready: Dataset) -> None:
    """Elements, their names and draws, and states are those of a new dataset for each
    element.
    """

    def again(x: Any) -> Dataset:
        return ready

    def anew(x: Any) -> Dataset:
        return Dataset(replace(ready.node))

    read = []
    for function in (again, anew):
        node = kind(count(4), function)
        drawn = RandomMap(
            inputs=(node,), function=lambda x, rng: (np.sum(x), rng.integers(10**9)), seed=1
        )
        read.append(list(make_iterator(repeated(drawn), Context(seed=5))))
        check_restore(Take(inputs=(node,), count=30))
    assert read[0] == read[1]


def repeated(node: Node) -> Node:
    return Repeat(inputs=(node,), count=2)
