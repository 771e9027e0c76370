"""Facts about the calls that a watched pipeline notes, and the elements that it
skips.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import pytest

from tests.iterators.watch import RecordingWatch
from zmqdata import Dataset
from zmqdata.errors import PipelineError
from zmqdata.iterators import Context, make_iterator
from zmqdata.iterators.watch import IDLE

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
