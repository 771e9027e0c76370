"""Facts about final failures, such as those of a job that cannot continue, in every
operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.errors import DataLossError, DataServiceError, PipelineError, UnavailableError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.states import Bookmark
from zmqdata.nodes.base import Node
from zmqdata.operations.sources import Range

WHOLE = 60
OPERATIONS = {
    "shuffle": lambda dataset: dataset.shuffle(8),
    "small shuffle": lambda dataset: dataset.shuffle(2),
    "prefetch": lambda dataset: dataset.prefetch(3),
    "parallel map": lambda dataset: dataset.map(int, num_parallel_calls=2),
    "unordered map": lambda dataset: dataset.map(int, num_parallel_calls=2, deterministic=False),
    "interleave": lambda dataset: dataset.interleave(
        lambda x: Dataset.from_tensors(x).repeat(2), cycle_length=2
    ),
    "parallel interleave": lambda dataset: dataset.interleave(
        lambda x: Dataset.from_tensors(x).repeat(2), cycle_length=2, num_parallel_calls=2
    ),
    "flat map": lambda dataset: dataset.flat_map(lambda x: Dataset.from_tensors(x).repeat(2)),
    "window": lambda dataset: dataset.window(3, shift=1).flat_map(lambda window: window),
    "batch": lambda dataset: dataset.batch(3),
    "group": lambda dataset: dataset.group_by_window(
        lambda x: x % 2, lambda _, group: group.batch(3), window_size=3
    ),
    "buckets": lambda dataset: dataset.map(
        lambda x: np.full(int(x) % 5, x)
    ).bucket_by_sequence_length(len, [2, 4], [2, 2, 2]),
    "unbatch": lambda dataset: dataset.batch(4).unbatch(),
    "ignored errors": lambda dataset: dataset.ignore_errors(),
    "prefetched shuffle": lambda dataset: dataset.shuffle(4).prefetch(2),
}


class Place(Bookmark):
    """A place like that of an iterator that reads from the service."""

    def __init__(self, place: int) -> None:
        self.place = place

    def plain(self) -> int:
        return self.place


class Breaking(ElementIterator):
    """Count from 0, and fail for good after a number of elements since creation or
    restoring.
    """

    def __init__(self, breaks: int | None, error: type[DataServiceError]) -> None:
        self.place, self.breaks, self.ended, self.error = 0, breaks, False, error
        self.begin = 0

    def __next__(self) -> Any:
        if self.ended or self.place == WHOLE:
            raise StopIteration
        if self.place - self.begin == self.breaks:
            self.ended = True
            error = self.error("gone")
            error.final = True
            raise error
        self.place += 1
        return np.int64(self.place - 1)

    def state(self) -> Place:
        return Place(self.place)

    def restore(self, state: Place) -> None:
        self.place = self.begin = state.plain()


class BreakingRange(Range):
    """A range whose iterator may break."""

    breaks: int | None = None
    error: type[DataServiceError] = UnavailableError


@make_iterator.register(BreakingRange)
def make_breaking(node: BreakingRange, context: Context) -> ElementIterator:
    return Breaking(node.breaks, node.error)


def running(
    operation: Any, breaks: int | None, error: type[DataServiceError] = UnavailableError
) -> ElementIterator:
    class Ours(BreakingRange):
        pass

    Ours.breaks, Ours.error = breaks, error
    node: Node = operation(Dataset(Ours(start=0, stop=WHOLE))).node
    return make_iterator(node, Context(seed=3))


def plain(elements: list[Any]) -> list[Any]:
    return [np.asarray(element).tolist() for element in elements]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("breaks", [0, 1, 4, 12])
def test_why_nothing_more_comes_is_told_when_a_state_is_loaded(name: str, breaks: int) -> None:
    """An input that cannot continue raises its reason first, instead of ending
    early.
    """
    first = running(OPERATIONS[name], None)
    for _ in range(5):
        next(first)
    state = first.state()
    first.close()
    again = running(OPERATIONS[name], breaks)

    def load_and_read() -> None:
        again.restore(state)
        list(again)

    with pytest.raises(UnavailableError, match="gone"):
        load_and_read()
    again.close()


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_state_taken_behind_such_a_failure_lacks_nothing(name: str) -> None:
    """A final failure stands for no element: the same elements follow, and a started
    batch is yielded whole.
    """
    expected = plain(list(running(OPERATIONS[name], None)))
    first = running(OPERATIONS[name], 41)
    had: list[Any] = []
    with pytest.raises(UnavailableError, match="gone"):
        had.extend(first)
    state = first.state()
    first.close()
    again = running(OPERATIONS[name], None)
    again.restore(state)
    if name == "unordered map":
        assert sorted(plain(had) + plain(list(again))) == sorted(expected)
    else:
        assert plain(had) + plain(list(again)) == expected
    again.close()


@pytest.mark.parametrize("error", [DataLossError, PipelineError])
def test_errors_of_a_whole_job_are_not_ignored(error: type[DataServiceError]) -> None:
    """ignore_errors skips elements that fail; a job that failed has no more
    elements.
    """
    with pytest.raises(error, match="gone"):
        list(running(OPERATIONS["ignored errors"], 7, error))
