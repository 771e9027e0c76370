"""Which client was given what of a task, and how much more it may get: streams and
credit of the worker core.

A block is kept until it was handed to the training loop, so that it can be given to
somebody else; of what was handed out, the numbers are kept until the dispatcher has
counted it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.lineage import KnownLineage

MOST_BYTES_OUT = 256 << 20
"""Of one stream, sent and not handed out, whatever its client says. None that keeps to
the protocol has so much.
"""


@dataclass(slots=True)
class Portion:
    """A block that was produced and that some consumer still has to take, from its
    ``skip``-th element on.

    ``lane``: the numbered consumer that it is for, in coordinated jobs.
    """

    first: int
    count: int
    size: int
    meta: bytes = field(repr=False)
    frames: Any = field(repr=False)
    failure: bytes
    skip: int = 0
    lane: int = 0

    @property
    def owed(self) -> int:
        return self.count - self.skip

    def take(self, count: int) -> tuple[int, int]:
        """Leaves out the next elements, ``count`` at most; returns their range."""
        first = self.first + self.skip
        self.skip += min(count, self.owed)
        return first, self.first + self.skip

    def without(self, delivered: RangeSet) -> bool:
        """Leaves out what was delivered at its beginning; False when nothing is
        left.
        """
        gaps = delivered.missing(self.first + self.skip, self.first + self.count)
        if gaps:
            self.skip = gaps[0][0] - self.first
        return bool(gaps)


@dataclass
class Stream:
    """The flow of one task to one client. All counts are from its beginning, in
    elements and bytes.

    ``given`` holds the blocks that were not handed out, ``unreported`` the ranges that
    were, oldest first: the dispatcher has counted only ``reported`` of ``handed_out``
    elements. ``lacking``: the client needs what is not here any more. ``told``: what it
    knows of the task's lineage. ``out``: of the blocks that were not handed out,
    through how many elements and bytes of the stream each goes; ``handed_bytes``: those
    of the others.
    """

    client: str
    given: deque[Portion] = field(default_factory=deque)
    unreported: deque[tuple[int, int]] = field(default_factory=deque)
    sent: int = 0
    sent_bytes: int = 0
    handed_out: int = 0
    reported: int = 0
    granted: int = 0
    granted_bytes: int = 0
    told_end: bool = False
    open: bool = True
    lacking: bool = False
    told: KnownLineage | None = None
    asks: int = 0
    out: deque[tuple[int, int]] = field(default_factory=deque)
    handed_bytes: int = 0

    @property
    def is_asking(self) -> bool:
        """Whether the client knows nothing of the task, or has asked for what others
        may have had of it.
        """
        return self.told is None or self.told.asks < self.asks

    @property
    def idle(self) -> bool:
        """Whether the client has handed out everything that was sent."""
        return self.handed_out >= self.sent

    @property
    def window_bytes(self) -> int:
        """How much the client lets be on its way."""
        return self.granted_bytes - self.handed_bytes

    def has_credit(self, portion: Portion) -> bool:
        """Whether this block may be sent now. With nothing in flight one block may go,
        whatever its size.
        """
        if self.granted <= self.sent:
            return False
        through = self.sent_bytes + portion.size
        granted = min(self.granted_bytes, self.handed_bytes + MOST_BYTES_OUT)
        return (self.sent + portion.owed <= self.granted and through <= granted) or self.idle

    def give(self, portion: Portion) -> None:
        """Counts a block that is sent."""
        self.given.append(portion)
        self._count(portion)

    def _count(self, portion: Portion) -> None:
        self.sent += portion.owed
        self.sent_bytes += portion.size
        self.out.append((self.sent, self.sent_bytes))
        self.told_end = False

    def grant(self, grant: m.StreamGrant) -> None:
        """Takes a grant; lower than the last one changes nothing."""
        self.open = True
        self.granted = max(self.granted, grant.elements)
        self.granted_bytes = max(self.granted_bytes, grant.bytes)
        handed_out = min(max(self.handed_out, grant.handed_out), self.sent)
        self._forget(handed_out - self.handed_out)
        self.handed_out = handed_out
        while self.out and self.out[0][0] <= handed_out:
            self.handed_bytes = self.out.popleft()[1]
        self._count_reported(min(grant.reported, handed_out) - self.reported)

    def _forget(self, count: int) -> None:
        while count:
            portion = self.given[0]
            first, stop = portion.take(count)
            self.unreported.append((first, stop))
            count -= stop - first
            if not portion.owed:
                self.given.popleft()

    def _count_reported(self, count: int) -> None:
        self.reported += max(0, count)
        while count > 0:
            first, stop = self.unreported.popleft()
            taken = min(count, stop - first)
            count -= taken
            if first + taken < stop:
                self.unreported.appendleft((first + taken, stop))

    def take_back(self, delivered: RangeSet) -> list[Portion]:
        """What the client was given and nobody has delivered, in order."""
        portions = [portion for portion in self.given if portion.without(delivered)]
        self.given.clear()
        return portions

    def has_lost(self, delivered: RangeSet) -> bool:
        """Whether elements that were handed out, and forgotten here, were never counted
        as delivered.
        """
        return not all(delivered.covers(first, stop) for first, stop in self.unreported)
