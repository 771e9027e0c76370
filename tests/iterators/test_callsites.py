"""Facts about the calls that a watched pipeline notes, and the elements that it
skips.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore
from tests.iterators.watch import RecordingWatch
from zmqdata import Dataset
from zmqdata.errors import PipelineError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.watch import IDLE
from zmqdata.nodes.base import Node
from zmqdata.operations.limits import Enumerate
from zmqdata.operations.mapping import (
    Filter,
    FilterIterator,
    Map,
    MapIterator,
    WatchedFilterIterator,
    WatchedMapIterator,
)
from zmqdata.operations.sources import Range

COUNT = 6
WAYS: dict[str, Callable[[Dataset], Dataset]] = {
    "map": lambda ds: ds.map(lambda x: x),
    "guarded map": lambda ds: ds.map(lambda x: x, on_error="skip"),
    "parallel map": lambda ds: ds.map(lambda x: x, num_parallel_calls=2),
    "random map": lambda ds: ds.random_map(lambda x, rng: x),
    "parallel random map": lambda ds: ds.random_map(lambda x, rng: x, num_parallel_calls=2),
    "filter": lambda ds: ds.filter(lambda x: True),
    "flat map": lambda ds: ds.flat_map(Dataset.from_tensors),
    "interleave": lambda ds: ds.interleave(Dataset.from_tensors, cycle_length=1),
    "parallel interleave": lambda ds: ds.interleave(
        Dataset.from_tensors, cycle_length=1, num_parallel_calls=1
    ),
    "source": lambda ds: Dataset.from_source(list(range(COUNT))),
}


def opened(dataset: Dataset, watch: RecordingWatch, quarantine: Any = None) -> Any:
    context = Context(seed=7, watch=watch)
    if quarantine is not None:
        context = Context(seed=7, watch=watch, quarantine=quarantine)
    return make_iterator(dataset.node, context)


def read(dataset: Dataset, watch: RecordingWatch) -> list[int]:
    iterator = opened(dataset, watch)
    found = [int(x) for x in iterator]
    iterator.close()
    return found


@pytest.mark.parametrize("way", WAYS)
def test_each_call_is_noted(way: str) -> None:
    """The number of an element is noted while a function runs on it, and not
    afterwards.
    """
    watch = RecordingWatch()
    assert read(WAYS[way](Dataset.range(COUNT)), watch) == list(range(COUNT))
    assert sorted(watch.notes["/"]) == list(range(COUNT))
    assert all(slot.cells[slot.at] == IDLE for slot in watch.slots)


@pytest.mark.parametrize("way", WAYS)
def test_poison_is_left_out(way: str) -> None:
    """A poisoned element is never passed to a function. All others are yielded, and the
    quarantine names it.
    """
    watch = RecordingWatch(poisoned={"/": {2, 4}})
    quarantine: list[Any] = []
    iterator = opened(WAYS[way](Dataset.range(COUNT)), watch, quarantine)
    assert [int(x) for x in iterator] == [0, 1, 3, 5]
    iterator.close()
    assert sorted(watch.notes["/"]) == [0, 1, 3, 5]
    assert [one.number for one in quarantine] == [2, 4]
    assert "on_poison='skip'" in quarantine[0].error


@pytest.mark.parametrize("way", WAYS)
def test_suspects_are_called_for_alone(way: str) -> None:
    """A function runs on a suspect under the lock of its process, and on any other
    element without it.
    """
    watch = RecordingWatch(suspects={"/": {3}})
    assert read(WAYS[way](Dataset.range(COUNT)), watch) == list(range(COUNT))
    assert watch.entered == 1


@pytest.mark.parametrize("way", WAYS)
def test_numbers_survive_a_restoring(way: str) -> None:
    """A restored iterator continues its count: an element has the same number in every
    attempt.
    """
    dataset = WAYS[way](Dataset.range(COUNT))
    first = opened(dataset, RecordingWatch())
    before = [int(next(first)) for _ in range(3)]
    watch = RecordingWatch(poisoned={"/": {4}})
    second = opened(dataset, watch)
    second.restore(first.state())
    assert before + [int(x) for x in second] == [0, 1, 2, 3, 5]
    first.close()
    second.close()


@pytest.mark.parametrize(
    "way", ["map", "guarded map", "parallel map", "random map", "filter", "flat map"]
)
def test_a_failing_call_ends_its_note(way: str) -> None:
    """An exception ends the note of its call, and the next element has the next
    number.
    """

    def fail(x: Any, *rng: Any) -> Any:
        raise ValueError("no")

    ways: dict[str, Callable[[Dataset], Dataset]] = {
        "map": lambda ds: ds.map(fail),
        "guarded map": lambda ds: ds.map(fail, retries=1, on_error="retry"),
        "parallel map": lambda ds: ds.map(fail, num_parallel_calls=1),
        "random map": lambda ds: ds.random_map(fail),
        "filter": lambda ds: ds.filter(fail),
        "flat map": lambda ds: ds.flat_map(fail),
    }
    watch = RecordingWatch()
    iterator = opened(ways[way](Dataset.range(2)), watch)
    for _ in range(2):
        with pytest.raises(Exception, match="no"):
            next(iterator)
    iterator.close()
    assert sorted(watch.notes["/"]) == [0, 1]
    assert all(slot.cells[slot.at] == IDLE for slot in watch.slots)


def test_a_generator_is_noted_and_leaves_nothing_out() -> None:
    """The current element of a generator is noted, but cannot be skipped, as a
    generator cannot continue after it.
    """
    watch = RecordingWatch()
    assert read(Dataset.from_generator(lambda: iter(range(3))), watch) == [0, 1, 2]
    assert watch.notes["/"] == [0, 1, 2, 3]
    assert watch.skippable == {"/": False}


def test_places_tell_nodes_apart() -> None:
    """Two maps, the parts of a zip, and the datasets that a function makes of each
    element have separate places.
    """
    watch = RecordingWatch()
    one = Dataset.range(2).map(lambda x: x).map(lambda x: x)
    read(Dataset.zip((one, Dataset.range(2).filter(lambda x: True))).map(lambda x, y: x + y), watch)
    assert set(watch.notes) == {"/", "/0.0", "/0.0.0", "/0.1"}
    watch = RecordingWatch()
    read(Dataset.range(2).flat_map(lambda x: Dataset.range(3).map(lambda y: y)).repeat(2), watch)
    nested = {"/0[0]/", "/0[1]/"}
    again = {"/0 in repetition 1[0]/ in repetition 1", "/0 in repetition 1[1]/ in repetition 1"}
    assert set(watch.notes) == {"/0", "/0 in repetition 1"} | nested | again


def test_slots_are_given_back() -> None:
    """An unused iterator keeps no slot, as the datasets of a flat_map would otherwise
    soon use all slots.
    """
    watch = RecordingWatch()
    dataset = Dataset.range(50).flat_map(
        lambda x: Dataset.range(2).map(lambda y: y, num_parallel_calls=1)
    )
    read(dataset, watch)
    gc.collect()
    assert len(watch.slots) <= 1


def test_nobody_watches_at_home() -> None:
    """The user's own process runs map and filter without a watch."""
    iterator = make_iterator(
        Dataset.range(3).map(lambda x: x).filter(lambda x: True).node, Context()
    )
    assert type(iterator).__name__ == "FilterIterator"
    assert iterator.state() == 0


def lacking(x: Any) -> Any:
    if int(x) == 3:
        raise MemoryError("no room")
    return x


def lacking_dataset(x: Any) -> Any:
    return Dataset.from_tensors(lacking(x))


FAILING: dict[str, Callable[[Dataset], Dataset]] = {
    "map": lambda ds: ds.map(lacking),
    "guarded map": lambda ds: ds.map(lacking, on_error="skip"),
    "retried map": lambda ds: ds.map(lacking, on_error="retry", retries=1),
    "parallel map": lambda ds: ds.map(lacking, num_parallel_calls=2),
    "random map": lambda ds: ds.random_map(lambda x, rng: lacking(x)),
    "parallel random map": lambda ds: ds.random_map(
        lambda x, rng: lacking(x), num_parallel_calls=2
    ),
    "filter": lambda ds: ds.filter(lambda x: bool(lacking(x) >= 0)),
    "flat map": lambda ds: ds.flat_map(lacking_dataset),
    "interleave": lambda ds: ds.interleave(lacking_dataset, cycle_length=1),
    "parallel interleave": lambda ds: ds.interleave(
        lacking_dataset, cycle_length=1, num_parallel_calls=1
    ),
}


@pytest.mark.parametrize("way", FAILING)
def test_a_failure_is_heard_while_its_element_is_noted(way: str) -> None:
    """The watch hears of a failure while the element is noted, as it may end the
    process then. This holds even for a skipped element.
    """
    watch = RecordingWatch()
    with contextlib.suppress(PipelineError):
        read(FAILING[way](Dataset.range(COUNT)), watch)
    causes = [(error.__cause__ or error, noted) for error, noted in watch.failures]
    assert causes
    assert all(isinstance(error, MemoryError) and 3 in noted for error, noted in causes)


# --- map and filter

KINDS: dict[str, Callable[..., Node]] = {
    "map": lambda source, function: Map(inputs=(source,), function=function, site="a.py:1"),
    "filter": lambda source, function: Filter(inputs=(source,), predicate=function, site="a.py:1"),
}
NUMBERS = Range(start=0, stop=6)
PAIRS = Enumerate(inputs=(NUMBERS,))


def always(*parts: Any) -> bool:
    return True


def opened_node(node: Node, watch: RecordingWatch, **more: Any) -> ElementIterator:
    return make_iterator(node, Context(watch=watch, **more))


@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_ones_run_where_nobody_watches(kind: str) -> None:
    """Only the context decides which of the two iterators runs a node."""
    node = KINDS[kind](NUMBERS, always)
    assert type(make_iterator(node, Context())) in (MapIterator, FilterIterator)
    assert type(opened_node(node, RecordingWatch())) in (WatchedMapIterator, WatchedFilterIterator)


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

    iterator = opened_node(KINDS[kind](NUMBERS, look), watch)
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

    list(opened_node(KINDS[kind](PAIRS, take), RecordingWatch()))
    assert seen == [(x, x) for x in range(6)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_names_the_node_and_ends_the_note(kind: str) -> None:
    """An exception of the function is a single failure, and the iterator continues with
    the next number.
    """
    watch = RecordingWatch()

    def fail_at_two(x: Any) -> bool:
        return bool(1 // (int(x) - 2)) or True

    iterator = opened_node(KINDS[kind](NUMBERS, fail_at_two), watch)
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

    assert len(list(opened_node(KINDS[kind](NUMBERS, look), watch, quarantine=quarantine))) == 4
    assert (watch.notes["/"], alone) == ([0, 2, 3, 4], [3])
    assert [one.number for one in quarantine] == [1, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_are_left_out_in_a_row(kind: str) -> None:
    """Elements left out in a row use no stack, whether others follow or not."""
    many = Range(start=0, stop=4001)
    watch = RecordingWatch(poisoned={"/": {*range(2000), *range(2001, 4001)}})
    assert len(list(opened_node(KINDS[kind](many, always), watch))) == 1
    assert watch.notes["/"] == [2000]


@pytest.mark.parametrize("kind", KINDS)
def test_they_restore_at_every_step(kind: str) -> None:
    """The state holds the number of the next element, so that notes and poison continue
    at the same place.
    """
    node = KINDS[kind](NUMBERS, lambda x: x != 2)
    assert check_restore(node, lambda: Context(watch=RecordingWatch())) == check_restore(node)
    first = opened_node(node, RecordingWatch())
    next(first)
    watch = RecordingWatch()
    second = opened_node(node, watch)
    second.restore(first.state())
    list(second)
    assert watch.notes["/"] == [1, 2, 3, 4, 5]


def test_lists_become_arrays() -> None:
    """The result of a watched map's function is converted to an element as without a
    watch.
    """
    node = Map(inputs=(NUMBERS,), function=lambda x: {"x": [x, x]})
    assert next(opened_node(node, RecordingWatch()))["x"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("answer", "kept"), [(True, 6), (False, 0), (np.True_, 6), (np.zeros((), bool), 0)]
)
def test_a_predicate_answers_with_one_truth_value(answer: Any, kept: int) -> None:
    """Truth values of Python and numpy are equivalent."""
    assert (
        len(list(opened_node(KINDS["filter"](NUMBERS, lambda x: answer), RecordingWatch()))) == kept
    )


def test_a_predicate_that_answers_with_something_else_is_a_failure() -> None:
    """A result that is not a truth value is refused, as without a watch."""
    with pytest.raises(PipelineError, match="failed: "):
        next(opened_node(KINDS["filter"](NUMBERS, lambda x: "yes"), RecordingWatch()))
