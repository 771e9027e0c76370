"""The time that a loop waits for elements, and the time that it takes for them itself.

Decision 0046.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

from msgspec import structs

from zmqdata.measures.sums import RecentLoop, values_of
from zmqdata.measures.trace import TraceRecorder
from zmqdata.messages import LoopMeasures, LoopSums

MEASURED = 16
"""Elements of a fast loop that are measured in a row."""
PASSED = 240
"""Elements of a fast loop that follow without being measured."""
FAST = 20e-6
"""Seconds for an element below which a loop counts as fast: two looks at the clock for
each of its elements would take a hundredth of its time.
"""
LOOP = "loop"
"""Row of a loop in a trace."""
WAIT, STEP, STEPS = "wait for an element", "step", "steps, not measured one by one"
"""Spans of that row."""


class LoopState(Enum):
    """State of a loop."""

    WAITING = auto()
    """It waits for an element."""
    WORKING = auto()
    """It works on an element, or pauses."""
    OVER = auto()
    """It has got all elements, or has left."""


class Observer(Protocol):
    """A reader of the service that knows what its workers do."""

    def situation(self, recent: RecentLoop) -> Any:
        """Return what is known of its loop and of all that feeds it."""


class LoopMeter:
    """Sums the time in which a loop waits for elements.

    Args:
        clock: returns the time in seconds.
        outer: meter of the loop, if operations of its process lie between; None: this
            is the meter of the loop.

    Attributes:
        elements: number of elements that the loop has taken.
        first: seconds from the beginning to the first element; None before that.
        is_distributed: True if the loop reads from the service.
        recorder: records waits and steps as spans; None while nobody looks.

    Example:
        >>> times = iter([0.0, 1.0, 4.0, 6.0, 7.0, 7.0])
        >>> meter = LoopMeter(lambda: next(times))
        >>> for _ in range(2):
        ...     meter.ask()
        ...     meter.give()
        >>> meter.first, meter.sums()
        (4.0, LoopSums(seconds=3.0, waiting=1.0, elements=2.0, late=0.0))
    """

    def __init__(self, clock: Callable[[], float], outer: LoopMeter | None = None) -> None:
        self._outer, self._outer_recent = outer, RecentLoop()
        # A loop over `repeat` has read other passes before.
        self._outer_began = LoopSums() if outer is None else outer.sums()
        # Weak, because the thread of a reader has this meter: an iterator that is
        # dropped ends that thread.
        self._readers: list[tuple[object, weakref.ref[Observer]]] = []
        self.is_distributed = False
        self.recorder: TraceRecorder | None = None
        self.restart(clock)

    def add_reader(self, node: object, reader: Observer) -> None:
        """Add a reader of the service below the loop.

        Args:
            node: its node.
            reader: the reader, which is forgotten when it is dropped.
        """
        self._readers = [one for one in self._readers if one[1]() is not None]
        self._readers.append((node, weakref.ref(reader)))
        self.is_distributed = True

    @property
    def readers(self) -> list[tuple[object, Observer]]:
        """The readers that are left, each with its node."""
        found = [(node, reader()) for node, reader in self._readers]
        return [(node, reader) for node, reader in found if reader is not None]

    def restart(self, clock: Callable[[], float]) -> None:
        """Begin anew with another clock."""
        self.clock = clock
        self.elements = 0
        self.first: float | None = None
        self._began = clock()
        self._asked = self._given = self._began
        self._waiting = self._working = 0.0
        self._doing = LoopState.WAITING

    def ask(self) -> None:
        """Record that the loop asks for an element."""
        now = self.clock()
        self._asked = now
        if self._doing is LoopState.WORKING:
            self._working += now - self._given
            if self.recorder is not None:
                self.recorder.note(0, LOOP, STEP, self._given, now)
        self._doing = LoopState.WAITING

    def give(self, elements: int = 1) -> None:
        """Record that the loop gets what it has asked for.

        Args:
            elements: number of elements that it gets, or has got since it last asked.
        """
        now = self.clock()
        if self.first is None:
            self.first = now - self._began
        elif self._doing is LoopState.WAITING:
            self._waiting += now - self._asked
        self._doing = LoopState.WORKING
        if self.recorder is not None:
            self.recorder.note(0, LOOP, WAIT, self._asked, now)
        self._given = now
        self.elements += elements

    def pass_over(self, elements: int, share: float) -> None:
        """Record elements that the loop got since it last asked, without measuring.

        Args:
            elements: number of these elements.
            share: share of the time in which it waited meanwhile.
        """
        now = self.clock()
        seconds = now - self._given
        self._waiting += seconds * share
        self._working += seconds * (1 - share)
        if self.recorder is not None:
            numbers = {"elements": float(elements), "wait_share": share}
            self.recorder.note(0, LOOP, STEPS, self._given, now, numbers)
        self._given = now
        self.elements += elements

    def end(self) -> None:
        """Record that the loop has got all, or has left. Time no longer counts."""
        if self._doing is LoopState.WAITING and self.first is not None:
            self._waiting += self.clock() - self._asked
        elif self._doing is LoopState.WORKING:
            self._working += self.clock() - self._given
        self._doing = LoopState.OVER

    def cut(self) -> None:
        """Record as a span what the loop is doing now."""
        if self.recorder is not None and self._doing is not LoopState.OVER:
            is_waiting, now = self._doing is LoopState.WAITING, self.clock()
            since = self._asked if is_waiting else self._given
            self.recorder.note(0, LOOP, WAIT if is_waiting else STEP, since, now)

    @property
    def split(self) -> tuple[float, float]:
        """Seconds that it waited so far, and worked."""
        return self._waiting, self._working

    def sums(self, elements: int | None = None, late: float = 0.0) -> LoopSums:
        """Return the sums up to now. May be called from any thread.

        Args:
            elements: number of elements that the loop has taken; None: as counted here.
            late: seconds in which threads of this process did not come to run.
        """
        if self.first is None:
            return LoopSums()
        doing, waiting, working = self._doing, self._waiting, self._working
        if doing is LoopState.WAITING:
            waiting += max(0.0, self.clock() - self._asked)
        elif doing is LoopState.WORKING:
            working += max(0.0, self.clock() - self._given)
        taken = self.elements if elements is None else elements
        return LoopSums(waiting + working, waiting, float(taken), late)

    def measures(
        self, recent: RecentLoop, elements: int | None = None, late: float = 0.0
    ) -> LoopMeasures:
        """Return the measures up to now. May be called from any thread.

        Args:
            recent: turns the sums into recent ones, in a single thread.
            elements: as for ``sums``.
            late: as for ``sums``.
        """
        total = self.sums(elements, late)
        lately = LoopSums(*recent.look(self.clock(), values_of(total)))
        found = LoopMeasures(total, lately, self.first, pace=recent.pace, idle=recent.idle)
        if self._outer is None:
            return found
        now, began = values_of(self._outer.sums()), values_of(self._outer_began)
        outer = [max(0.0, one - other) for one, other in zip(now, began, strict=True)]
        return structs.replace(
            found,
            outer=LoopSums(*self._outer_recent.look(self._outer.clock(), outer)),
            outer_total=LoopSums(*outer),
            pace=self._outer_recent.pace,
            idle=min(found.idle, self._outer_recent.idle),
        )


class MeteredIterator:
    """Measures the waits of a loop for an iterator. Of a fast loop, it measures some
    elements in a row, and not those that follow.

    Args:
        take: returns the next element.
        meter: sums the waits.
    """

    def __init__(self, take: Callable[[], Any], meter: LoopMeter) -> None:
        self._take, self._meter = take, meter
        self._left = 0  # number of elements that are still to be passed over
        self._size = 0  # number of elements that this begun with
        self._measured = 0
        self._share = 0.0
        self._split = (0.0, 0.0)

    def __iter__(self) -> MeteredIterator:
        return self

    def __next__(self) -> Any:
        if not self._left:
            return self._next_measured()
        self._left -= 1
        try:
            return self._take()
        except BaseException as error:
            self._left += 1
            self._settle()
            self._failed(error)
            raise

    def _next_measured(self) -> Any:
        meter = self._meter
        self._settle()
        if not self._measured:
            self._split = meter.split
        meter.ask()
        try:
            element = self._take()
        except BaseException as error:
            self._failed(error)
            raise
        meter.give()
        self._measured += 1
        if self._measured >= MEASURED:
            self._end_measuring()
        return element

    def _settle(self) -> None:
        """Count the elements that were passed over."""
        if self._size:
            self._meter.pass_over(self._size - self._left, self._share)
            self._left = self._size = 0

    def _failed(self, error: BaseException) -> None:
        """End the measurement, or count an error in place of an element."""
        if isinstance(error, StopIteration):
            self._meter.end()
        else:
            self._meter.give()

    def _end_measuring(self) -> None:
        """Pass over some elements if the loop is fast."""
        waited, worked = (
            now - before for now, before in zip(self._meter.split, self._split, strict=True)
        )
        whole = waited + worked
        if 0 < whole < FAST * self._measured:
            self._share, self._size = waited / whole, PASSED
            self._left = PASSED
        self._measured = 0
