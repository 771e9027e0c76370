"""The order of elements: what a client has handed out, and how elements arrive again in
that order.

Operations after an iterator that hold elements record places, to which they return to
get those elements again. A place is the number of elements that were handed out before
it. When a client resumes from a state, ``Ordering`` keeps blocks that are not due until
their turn. ``HandedOut`` records what was handed out of each task, and in which order
since the oldest place to which an operation may return.

Decision 0019; protocol 3.12.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from zmqdata.core.ranges import RangeSet
from zmqdata.errors import FailedPreconditionError
from zmqdata.messages import Block

Run = tuple[int, int, int]
"""Task or its index, first and stop: elements of a task that were handed out
consecutively.
"""
Runs = list[Run]
"""Runs in the order in which they were handed out."""


@dataclass
class HeldBlock:
    """A block that waits for its turn."""

    header: Block
    """Header of the block."""
    content: object
    """Its decoded content."""
    skip: int
    """Position of its first element that still waits."""
    turn: int
    """Number of the block in the order of arrival."""

    @property
    def next(self) -> int:
        return self.header.first + self.skip

    @property
    def stop(self) -> int:
        return self.header.first + self.header.stop


DuePart = tuple[Block, object, int, int]
"""A block with its content, and the positions of the first due element and after the
last.
"""


class Ordering:
    """Blocks that wait for their turn.

    A task sends its elements in the order of their numbers, so its due elements arrive
    before its other elements. Elements that another client received do not arrive. They
    are awaited until the task is known to continue without them.

    Args:
        order: the runs in which elements have to be delivered first.
        indices: index of each task. It must be known before the first block of the
            task.
    """

    def __init__(self, order: Iterable[Run], indices: Mapping[int, int]) -> None:
        self._runs = deque(order)
        self._indices = indices
        self._held: dict[int, deque[HeldBlock]] = {}
        self._ended: set[int] = set()
        self._turn = 0

    def __bool__(self) -> bool:
        return bool(self._runs) or any(self._held.values())

    def add(self, task: int, header: Block, content: object) -> None:
        """Take a block of a task."""
        index = self._indices.get(task, -1)
        self._held.setdefault(index, deque()).append(
            HeldBlock(header, content, header.skip, self._turn)
        )
        self._turn += 1
        self._ended.discard(index)

    def end(self, task: int) -> None:
        """Record that a task has nothing more to send for now."""
        self._ended.add(self._indices.get(task, -1))

    def due(self) -> Iterator[DuePart]:
        """Yield the parts that can be delivered now: due elements in their order, and
        then all others as they arrived.
        """
        while self._runs:
            index, _, stop = self._runs[0]
            held = self._held.get(index)
            if not held:
                if index not in self._ended:
                    return
                self._runs.popleft()
            elif held[0].next >= stop:
                self._runs.popleft()
            else:
                yield self._dequeue(held, min(stop, held[0].stop))
        rest = sorted(
            (block for held in self._held.values() for block in held), key=lambda block: block.turn
        )
        self._held.clear()
        yield from [(block.header, block.content, block.skip, block.header.stop) for block in rest]

    def _dequeue(self, held: deque[HeldBlock], stop: int) -> DuePart:
        """Return the elements of the first block before number ``stop``."""
        block = held[0]
        part = (block.header, block.content, block.skip, stop - block.header.first)
        block.skip = stop - block.header.first
        if block.next == block.stop:
            held.popleft()
        return part


def can_come_again(
    delivered: Mapping[int, RangeSet], order: Iterable[tuple[int, int, int]]
) -> bool:
    """True if elements will arrive in an order again.

    Each task sends its undelivered elements in the order of their numbers.

    >>> can_come_again({7: RangeSet([(0, 4)])}, [(7, 4, 6), (8, 0, 2), (7, 6, 9)])
    True
    >>> can_come_again({}, [(7, 4, 6)])
    False
    """
    first_missing = {
        task: ranges.missing(0, ranges.ranges[-1][1] + 1)[0][0]
        for task, ranges in delivered.items()
        if ranges
    }
    for task, first, stop in order:
        if first_missing.get(task, 0) != first:
            return False
        first_missing[task] = stop
    return True


class HandedOut:
    """The elements that were handed out, in their order.

    Attributes:
        count: number of elements that were handed out.
        settled: elements per task to which no operation returns.
    """

    def __init__(self) -> None:
        self.count = 0
        self.settled: dict[int, RangeSet] = {}
        self._runs: deque[Run] = deque()
        self._oldest = 0  # the place at which the runs begin

    def count_delivered(self, task: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Count elements that any client handed out, except those to which an operation
        here may return.
        """
        held = RangeSet((first, end) for number, first, end in self._runs if number == task)
        for first, stop in ranges:
            self.of(task).update(held.missing(first, stop))

    def of(self, task: int) -> RangeSet:
        """Return the elements of a task to which no operation returns."""
        return self.settled.setdefault(task, RangeSet())

    def add(self, task: int, first: int, stop: int) -> None:
        """Count the next elements that were handed out."""
        self.count += stop - first
        if self._runs and self._runs[-1][0] == task and self._runs[-1][2] == first:
            self._runs[-1] = (task, self._runs[-1][1], stop)
        else:
            self._runs.append((task, first, stop))

    def settle(self, oldest: int) -> None:
        """Forget the order of the elements before this place, because no operation
        returns to a place before it.
        """
        while self._runs and self._oldest < oldest:
            task, first, stop = self._runs.popleft()
            taken = min(stop - first, oldest - self._oldest)
            self._oldest += taken
            self.of(task).add(first, first + taken)
            if first + taken < stop:
                self._runs.appendleft((task, first + taken, stop))

    def at(self, place: int) -> tuple[dict[int, RangeSet], Runs]:
        """Return what had been handed out of each task at a place, and the runs handed
        out since.
        """
        if place < self._oldest:
            raise FailedPreconditionError(
                f"Place {place} can no longer be restored: no operation was to return "
                f"to a place before {self._oldest}. Restore a later state."
            )
        delivered = {task: ranges.copy() for task, ranges in self.settled.items()}
        left, since = place - self._oldest, []
        for task, first, stop in self._runs:
            middle = min(stop, first + max(0, left))
            left -= stop - first
            delivered.setdefault(task, RangeSet()).add(first, middle)
            if middle < stop:
                since.append((task, middle, stop))
        return delivered, since
