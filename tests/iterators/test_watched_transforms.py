"""Tests of ``zmqdata.iterators.callsites``: map and filter of a watched pipeline, in
addition to the tests of all call sites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore
from tests.iterators.watch import RecordingWatch
from zmqdata import nodes
from zmqdata.errors import PipelineError
from zmqdata.iterators import Context, ElementIterator, make_iterator
from zmqdata.iterators.callsites import WatchedFilterIterator, WatchedMapIterator
from zmqdata.iterators.transforms import FilterIterator, MapIterator
from zmqdata.iterators.watch import IDLE

KINDS: dict[str, Callable[..., nodes.Node]] = {
    "map": lambda source, function: nodes.Map(inputs=(source,), function=function, site="a.py:1"),
    "filter": lambda source, function: nodes.Filter(
        inputs=(source,), predicate=function, site="a.py:1"
    ),
}
COUNT = nodes.Range(start=0, stop=6)
PAIRS = nodes.Enumerate(inputs=(COUNT,))


def always(*parts: Any) -> bool:
    return True


def opened(node: nodes.Node, watch: RecordingWatch, **more: Any) -> ElementIterator:
    return make_iterator(node, Context(watch=watch, **more))


@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_ones_run_where_nobody_watches(kind: str) -> None:
    """Only the context decides which of the two iterators runs a node."""
    node = KINDS[kind](COUNT, always)
    assert type(make_iterator(node, Context())) in (MapIterator, FilterIterator)
    assert type(opened(node, RecordingWatch())) in (WatchedMapIterator, WatchedFilterIterator)


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_is_noted_during_the_call(kind: str) -> None:
    """The slot has the number of the element while the function runs, and is idle
    before and after.
    """
    watch, seen = RecordingWatch(), []

    def look(x: Any) -> bool:
        [slot] = watch.slots
        seen.append((int(x), slot.cells[slot.at]))
        return True

    iterator = opened(KINDS[kind](COUNT, look), watch)
    [slot] = watch.slots
    for number in range(6):
        assert slot.cells[slot.at] == IDLE
        next(iterator)
        assert seen[number] == (number, number)
    assert slot.cells[slot.at] == IDLE
    assert list(iterator) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_tuple_becomes_arguments(kind: str) -> None:
    """A plain tuple is passed as its parts, as without a watch."""
    seen: list[tuple[int, int]] = []

    def take(index: Any, x: Any) -> bool:
        seen.append((int(index), int(x)))
        return True

    list(opened(KINDS[kind](PAIRS, take), RecordingWatch()))
    assert seen == [(x, x) for x in range(6)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_names_the_node_and_ends_the_note(kind: str) -> None:
    """An exception of the function is a single failure, and the iterator continues with
    the next number.
    """
    watch = RecordingWatch()

    def fail_at_two(x: Any) -> bool:
        return bool(1 // (int(x) - 2)) or True

    iterator = opened(KINDS[kind](COUNT, fail_at_two), watch)
    assert len([next(iterator), next(iterator)]) == 2
    with pytest.raises(
        PipelineError, match=rf"{kind}\(fail_at_two\) at a.py:1 failed: ZeroDivisionError"
    ):
        next(iterator)
    assert [slot.cells[slot.at] for slot in watch.slots] == [IDLE]
    assert len(list(iterator)) == 3
    assert watch.notes["/"] == list(range(6))


@pytest.mark.parametrize("kind", KINDS)
def test_poison_is_left_out_and_suspects_are_alone(kind: str) -> None:
    """A poisoned element is in the quarantine and never passed to the function. The
    function runs on a suspect under the watch's lock.
    """
    watch = RecordingWatch(poisoned={"/": {1, 5}}, suspects={"/": {3}})
    quarantine: list[Any] = []
    alone: list[int] = []

    def look(x: Any) -> bool:
        if watch._lock.locked():
            alone.append(int(x))
        return True

    assert len(list(opened(KINDS[kind](COUNT, look), watch, quarantine=quarantine))) == 4
    assert (watch.notes["/"], alone) == ([0, 2, 3, 4], [3])
    assert [one.number for one in quarantine] == [1, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_are_left_out_in_a_row(kind: str) -> None:
    """Elements left out in a row use no stack, whether others follow or not."""
    many = nodes.Range(start=0, stop=4001)
    watch = RecordingWatch(poisoned={"/": {*range(2000), *range(2001, 4001)}})
    assert len(list(opened(KINDS[kind](many, always), watch))) == 1
    assert watch.notes["/"] == [2000]


@pytest.mark.parametrize("kind", KINDS)
def test_they_restore_at_every_step(kind: str) -> None:
    """The state holds the number of the next element, so that notes and poison continue
    at the same place.
    """
    node = KINDS[kind](COUNT, lambda x: x != 2)
    assert check_restore(node, lambda: Context(watch=RecordingWatch())) == check_restore(node)
    first = opened(node, RecordingWatch())
    next(first)
    watch = RecordingWatch()
    second = opened(node, watch)
    second.restore(first.state())
    list(second)
    assert watch.notes["/"] == [1, 2, 3, 4, 5]


def test_lists_become_arrays() -> None:
    """The result of a watched map's function is converted to an element as without a
    watch.
    """
    node = nodes.Map(inputs=(COUNT,), function=lambda x: {"x": [x, x]})
    assert next(opened(node, RecordingWatch()))["x"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("answer", "kept"), [(True, 6), (False, 0), (np.True_, 6), (np.zeros((), bool), 0)]
)
def test_a_predicate_answers_with_one_truth_value(answer: Any, kept: int) -> None:
    """Truth values of Python and numpy are equivalent."""
    assert len(list(opened(KINDS["filter"](COUNT, lambda x: answer), RecordingWatch()))) == kept


def test_a_predicate_that_answers_with_something_else_is_a_failure() -> None:
    """A result that is not a truth value is refused, as without a watch."""
    with pytest.raises(PipelineError, match="failed: "):
        next(opened(KINDS["filter"](COUNT, lambda x: "yes"), RecordingWatch()))
