"""What a client has handed out: of each task, and in which order since the oldest place that somebody may go back to.

Operations behind an iterator that hold elements back note places, to which they go back to get those elements again.
A place is the number of elements that were handed out before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from zmqdata.core.ranges import RangeSet
from zmqdata.errors import FailedPreconditionError

Run = tuple[int, int, int]
"""Task, first and stop: elements that were handed out one after the other."""
Runs = list[Run]


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
        """Counts what was handed out, by anybody, but for what somebody may go back to here."""
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
        """What had been handed out of each task at a place, and in which runs the rest was since then."""
        if place < self._oldest:
            raise FailedPreconditionError(f"nobody can go back to place {place}, only to {self._oldest} and later ones")
        delivered = {task: ranges.copy() for task, ranges in self.settled.items()}
        left, since = place - self._oldest, []
        for task, first, stop in self._runs:
            middle = min(stop, first + max(0, left))
            left -= stop - first
            delivered.setdefault(task, RangeSet()).add(first, middle)
            if middle < stop:
                since.append((task, middle, stop))
        return delivered, since
