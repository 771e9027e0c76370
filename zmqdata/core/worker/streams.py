"""Streams and credit: what each client was given of a task, and how much more it may
get.

A block is kept until the client has delivered it to the training loop, so that another
client can get it. After that, its element numbers are kept until the dispatcher has
acknowledged them.

Decisions 0002 and 0036; protocol 6.4, 6.5, 6.8 and 6.12.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from zmqdata import messages as m
from zmqdata.core.credit import BlockEnds
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.lineage import KnownLineage

MOST_BYTES_OUT = 256 << 20
"""Maximum number of bytes of a stream that are sent and not handed out, whatever its
client grants. A client that follows the protocol never reaches it.
"""

BLOCK_COST = 1 << 10
"""Number of bytes that a block occupies in a worker besides its content, about. Without
it, blocks of one small element would occupy a hundred times their size.
"""
WORTH_ASKING = 0.004
"""Seconds of work that a client must have in hand at least to be asked for some."""
BEGINS_WITHIN = 0.05
"""Seconds within which a loop that waits begins what is sent to it. It would be of no
use to ask for that.
"""
ANSWER_TIME = 1.0
"""Seconds for which other clients wait for what a client may give back."""


def occupied(size: int) -> int:
    """Return the number of bytes that a block of this size occupies in a worker."""
    return size + BLOCK_COST


@dataclass(slots=True)
class Portion:
    """A produced block, of which some consumer still needs the elements from ``skip``
    on.
    """

    first: int
    """Number of the first element."""
    count: int
    """Number of elements."""
    size: int
    """Size of the block in bytes."""
    meta: bytes = field(repr=False)
    """Encoded description of the frames."""
    frames: Any = field(repr=False)
    """The encoded elements."""
    failure: bytes
    """Encoded error that stands for the element; empty if none."""
    skip: int = 0
    """Number of elements at the start that are not needed."""
    lane: int = 0
    """Index of the consumer that the block is for, in coordinated jobs."""
    cut: int = 0
    """Number of elements after which those of other consumers begin; 0 if it is for one
    consumer.
    """
    rest: bool = False
    """True if the element is one after the last full round of its task."""

    @property
    def stop(self) -> int:
        """Number of elements up to which they are needed."""
        return self.cut or self.count

    @property
    def owed(self) -> int:
        return self.stop - self.skip

    def view(self, count: int) -> Portion:
        """Take the next elements, at most ``count``, as a block of the same frames."""
        stop = min(self.skip + count, self.stop)
        view = replace(self, cut=stop % self.count)
        self.skip = stop
        return view

    def dequeue(self, count: int) -> tuple[int, int]:
        """Skip the next elements, at most ``count``, and return their range."""
        first = self.first + self.skip
        self.skip += min(count, self.owed)
        return first, self.first + self.skip

    def without(self, delivered: RangeSet) -> bool:
        """Skip the delivered elements at the start. Return False if nothing is left."""
        gaps = delivered.missing(self.first + self.skip, self.first + self.stop)
        if gaps:
            self.skip = gaps[0][0] - self.first
        return bool(gaps)


@dataclass
class Recall:
    """A request to a client that it gives back elements of a stream."""

    number: int = 0
    """Number of the request among those of the stream; 0 for none."""
    asked: float | None = None
    """Time of the request; None if it was answered."""
    took: float = 0.0
    """Seconds until the last answer."""
    useless_at: tuple[int, int] = (-1, -1)
    """Numbers of elements sent and handed out when the client last had nothing to give
    back.
    """

    def answer(self, now: float, of_useless: Stream | None) -> None:
        """Record that the request was answered.

        Args:
            now: present time.
            of_useless: the stream, if its client had nothing to give back, else None.
        """
        self.took, self.asked = now - (now if self.asked is None else self.asked), None
        if of_useless is not None:
            self.useless_at = (of_useless.sent, of_useless.handed_out)

    def was_useless(self, stream: Stream) -> bool:
        """Return True if nothing has changed since the client had nothing to give."""
        return self.useless_at == (stream.sent, stream.handed_out)

    def is_open(self, now: float) -> bool:
        """Return True if an answer may still come soon."""
        return self.asked is not None and now - self.asked < ANSWER_TIME


@dataclass
class Stream:
    """The flow of a task to a client. Elements and bytes are counted from its
    beginning.
    """

    client: str
    """Id of the client."""
    given: deque[Portion] = field(default_factory=deque)
    """Blocks that were given to the client and not handed out."""
    unreported: deque[tuple[int, int]] = field(default_factory=deque)
    """Ranges of elements that were handed out and not counted by the dispatcher, oldest
    first.
    """
    sent: int = 0
    """Number of elements sent."""
    sent_bytes: int = 0
    """Number of bytes sent."""
    handed_out: int = 0
    """Number of elements that the client has handed out to the training loop."""
    reported: int = 0
    """Number of the elements in ``handed_out`` that the dispatcher has counted."""
    granted: int = 0
    """Number of elements up to which the worker may send."""
    granted_bytes: int = 0
    """Number of bytes up to which the worker may send."""
    sent_left_out: int = 0
    """Number of the task's left-out elements that the client has been told."""
    sent_end: bool = False
    """True if the client was told the end of the task."""
    sent_held: bool = False
    """True if the client was told that nothing is left but what others give back."""
    open: bool = True
    """True if the client reads the stream."""
    has_gap: bool = False
    """True if the client needs elements that the worker no longer has."""
    told: KnownLineage | None = None
    """Lineage of the task as the client knows it; None if it knows nothing."""
    asks: int = 0
    """Number of times that the client has seen others leave."""
    ends: BlockEnds = field(default_factory=BlockEnds)
    """The ends of the blocks that were sent."""
    recall: Recall = field(default_factory=Recall)
    """The last request to give elements back."""
    pace: float = 0.0
    """Seconds that the client's training loop takes for an element; 0 if unknown."""
    waits: bool = False
    """True if its training loop had nothing left at its last grant."""
    turn: int = 0
    """Turn in which it was last given a block, among all streams of the task."""
    begun: int = 0
    """Number of elements that the loop begins as soon as they arrive, because it waits
    for them.
    """
    sent_at: float = -math.inf
    """Time at which the last block was sent."""

    @property
    def is_asking(self) -> bool:
        """True if the client lacks the lineage of the task, or has asked for the
        elements that other clients may have received.
        """
        return self.told is None or self.told.asks < self.asks

    @property
    def idle(self) -> bool:
        """True if the client has handed out everything that was sent."""
        return self.handed_out >= self.sent

    @property
    def window_bytes(self) -> int:
        """Number of bytes that the client allows in flight."""
        return self.granted_bytes - self.ends.handed_bytes

    @property
    def room(self) -> int:
        """Number of elements that may be sent now."""
        return self.granted - self.sent

    def has_credit(self, portion: Portion, least: int | None = None) -> bool:
        """Return True if a block may be sent now. With nothing in flight, it may be
        sent whatever its size.

        Args:
            portion: the block.
            least: number of elements that suffice; None for all of them.
        """
        if self.room <= 0 or self.recall.asked is not None:
            return False
        granted = min(self.granted_bytes, self.ends.handed_bytes + MOST_BYTES_OUT)
        least = portion.owed if least is None else least
        return (least <= self.room and self.sent_bytes + portion.size <= granted) or self.idle

    def give(self, portion: Portion) -> None:
        """Count a block that is sent."""
        if self.is_waiting:
            self.begun = self.sent + 1
        self.given.append(portion)
        self._count(portion)

    def _count(self, portion: Portion) -> None:
        self.sent += portion.owed
        self.sent_bytes += portion.size
        self.ends.add(self.sent, self.sent_bytes)
        self.sent_end = False

    def grant(self, grant: m.StreamGrant, now: float) -> list[Portion]:
        """Apply a grant, and return the elements that the client gives back with it, in
        order. A grant below an earlier one changes nothing.
        """
        self.open = True
        recall = self.recall
        is_answer = recall.asked is not None and grant.recall == recall.number
        if grant.recall != recall.number and (recall.asked is None or grant.recall > recall.number):
            return []  # older than the last answer, or from no client of ours
        returned = self._cut(grant.kept, now) if is_answer else []
        self.granted = max(self.granted, grant.elements)
        self.granted_bytes = max(self.granted_bytes, grant.bytes)
        handed_out = min(max(self.handed_out, grant.handed_out), self.sent)
        self._forget(handed_out - self.handed_out)
        self.handed_out = handed_out
        self.ends.hand_out(handed_out)
        self._count_reported(min(grant.reported, handed_out) - self.reported)
        return returned

    # --- giving back

    def ask_back(self, now: float) -> int:
        """Count a request to give elements back, and return its number. What comes back
        may be sent to this client again, so its end is not reached.
        """
        self.recall.number += 1
        self.recall.asked = now
        self.sent_end = False
        return self.recall.number

    def _cut(self, kept: int, now: float) -> list[Portion]:
        """Remove all elements but the first ``kept`` from the stream, and return them.
        Grants count anew.
        """
        kept = min(max(kept, self.handed_out), self.sent)
        count = self.sent - kept
        returned: deque[Portion] = deque()
        self.recall.answer(now, self if not count else None)
        while count:
            portion = self.given.pop()
            start = max(portion.skip, portion.stop - count)
            count -= portion.stop - start
            returned.appendleft(replace(portion, skip=start))
            if start > portion.skip:
                self.given.append(replace(portion, cut=start))
        self.sent, self.sent_bytes = kept, self.ends.cut(kept)
        self.granted = self.granted_bytes = 0
        return list(returned)

    def in_hand(self, now: float) -> int:
        """Return the number of elements that the client holds and has not begun, as far
        as is known.
        """
        begun = self.begun if now - self.sent_at < BEGINS_WITHIN else 0
        return max(0, self.sent - max(self.handed_out, begun))

    @property
    def load(self) -> int:
        """Number of elements that the client has to hand out or to finish."""
        return self.sent - self.handed_out + (not self.waits)

    @property
    def is_waiting(self) -> bool:
        """True if the client's training loop has nothing left, and may be sent more."""
        return self.waits and self.idle and self.room > 0

    def could_give(self, now: float, pace: float) -> bool:
        """Return True if the client may have elements that are worth asking for.

        Args:
            now: present time.
            pace: seconds that its training loop takes for an element.
        """
        if self.recall.asked is not None or self.recall.was_useless(self):
            return False
        return self.in_hand(now) * pace > max(WORTH_ASKING, 2 * self.recall.took)

    def _forget(self, count: int) -> None:
        while count:
            portion = self.given[0]
            first, stop = portion.dequeue(count)
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
        """Return what the client was given and no client has delivered, in order."""
        portions = [portion for portion in self.given if portion.without(delivered)]
        self.given.clear()
        return portions

    def has_lost(self, delivered: RangeSet) -> bool:
        """Return True if elements that were handed out, and dropped here, were never
        counted as delivered.
        """
        return not all(delivered.covers(first, stop) for first, stop in self.unreported)
