"""How a client that goes on from a state gets elements again in the order in which they
were handed out the first time.

An operation behind the iterator had taken them and goes back to before them. Blocks
that are not due wait here.

What a client has handed out: of each task, and in which order since the oldest place
that somebody may go back to.

Operations behind an iterator that hold elements back note places, to which they go back
to get those elements again. A place is the number of elements that were handed out
before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from zmqdata.core.ranges import RangeSet
from zmqdata.errors import FailedPreconditionError
from zmqdata.messages import Block

Run = tuple[int, int, int]
"""Task or its index, first and stop: elements that were handed out one after the other.
"""
Runs = list[Run]


@dataclass
class HeldBlock:
    """A block that waits, from its ``skip``-th element on. ``turn``: as which it has
    come.
    """

    header: Block
    content: object
    skip: int
    turn: int

    @property
    def next(self) -> int:
        return self.header.first + self.skip

    @property
    def stop(self) -> int:
        return self.header.first + self.header.count


DuePart = tuple[Block, object, int, int]
"""A block with its content, and from which to before which of its elements it is due.
"""


class Ordering:
    """Blocks that wait for their turn.

    A task sends its elements in the order of their numbers, so what is due of it comes
    before anything else of it. Elements that do not come, because somebody else has
    them, are waited for until the task is known to go on without.

    Args:
        order: the runs in which elements must come first.
        indices: the index of each task, where it is known: before the first block of a
            task it is.
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
        """Takes a block of a task."""
        index = self._indices.get(task, -1)
        self._held.setdefault(index, deque()).append(
            HeldBlock(header, content, header.skip, self._turn)
        )
        self._turn += 1
        self._ended.discard(index)

    def end(self, task: int) -> None:
        """A task has nothing more to send, for now."""
        self._ended.add(self._indices.get(task, -1))

    def due(self) -> Iterator[DuePart]:
        """What can be delivered now: what is due in its order, and behind that
        everything as it has come.
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
                yield self._take(held, min(stop, held[0].stop))
        rest = sorted(
            (block for held in self._held.values() for block in held), key=lambda block: block.turn
        )
        self._held.clear()
        yield from [(block.header, block.content, block.skip, block.header.count) for block in rest]

    def _take(self, held: deque[HeldBlock], stop: int) -> DuePart:
        """The elements of the first of these blocks before number ``stop``."""
        block = held[0]
        part = (block.header, block.content, block.skip, stop - block.header.first)
        block.skip = stop - block.header.first
        if block.next == block.stop:
            held.popleft()
        return part


def can_come_again(
    delivered: Mapping[int, RangeSet], order: Iterable[tuple[int, int, int]]
) -> bool:
    """Whether elements will come in an order again: each task sends what was not
    delivered by its numbers.

    >>> can_come_again({7: RangeSet([(0, 4)])}, [(7, 4, 6), (8, 0, 2), (7, 6, 9)]), can_come_again({}, [(7, 4, 6)])
    (True, False)
    """
    lacking = {
        task: ranges.missing(0, ranges.ranges[-1][1] + 1)[0][0]
        for task, ranges in delivered.items()
        if ranges
    }
    for task, first, stop in order:
        if lacking.get(task, 0) != first:
            return False
        lacking[task] = stop
    return True


class HandedOut:
    """Counts elements that are handed out, in their order.

    Attributes:
        count: how many were handed out.
        settled: per task, those to which nobody goes back.
    """

    def __init__(self) -> None:
        self.count = 0
        self.settled: dict[int, RangeSet] = {}
        self._runs: deque[Run] = deque()
        self._oldest = 0  # the place at which the runs begin

    def others_had(self, task: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Counts what was handed out, by anybody, but for what somebody may go back to
        here.
        """
        held = RangeSet((first, end) for number, first, end in self._runs if number == task)
        for first, stop in ranges:
            self.of(task).update(held.missing(first, stop))

    def of(self, task: int) -> RangeSet:
        """The elements of a task to which nobody goes back."""
        return self.settled.setdefault(task, RangeSet())

    def add(self, task: int, first: int, stop: int) -> None:
        """Counts elements that follow."""
        self.count += stop - first
        if self._runs and self._runs[-1][0] == task and self._runs[-1][2] == first:
            self._runs[-1] = (task, self._runs[-1][1], stop)
        else:
            self._runs.append((task, first, stop))

    def settle(self, oldest: int) -> None:
        """Nobody goes back behind this place."""
        while self._runs and self._oldest < oldest:
            task, first, stop = self._runs.popleft()
            taken = min(stop - first, oldest - self._oldest)
            self._oldest += taken
            self.of(task).add(first, first + taken)
            if first + taken < stop:
                self._runs.appendleft((task, first + taken, stop))

    def at(self, place: int) -> tuple[dict[int, RangeSet], Runs]:
        """What had been handed out of each task at a place, and in which runs the rest
        was since then.
        """
        if place < self._oldest:
            raise FailedPreconditionError(
                f"nobody can go back to place {place}, only to {self._oldest} and later ones"
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
