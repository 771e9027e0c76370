"""Dealing of a task of a coordinated job: round by round, one element to each numbered
consumer.

Each consumer has a lane. A lane keeps its elements until its client has reported them.
A successor can then continue where, as far as the dispatcher knows, its predecessor
was.

Decisions 0011 and 0045; protocol 9.2, 9.3 and 9.8 to 9.11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile

from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.streams import Portion, Stream, occupied

KEPT_BYTES = 32 << 20
"""Maximum number of bytes that were handed out and not reported. Anything beyond is
dropped, and produced again if needed.
"""


class Lane:
    """The elements that a task has produced for a consumer, and the clients that want
    them.

    Only the first client is given blocks. A later client takes over when the first is
    released.

    Args:
        low: the first round that a client may need.
        most_kept: maximum number of bytes of blocks that were handed out and not
            reported.

    Attributes:
        portions: the blocks.
        given: number of ``portions`` that the first client was given.
        next: round up to which it was given them.
        ahead: number of bytes in the other portions.
        streams: the clients in order of arrival.
    """

    def __init__(self, low: int, most_kept: int) -> None:
        self.low = self.next = self.floor = low
        self.most_kept = most_kept
        self.portions: deque[Portion] = deque()
        self.given = 0
        self.ahead = 0
        self.streams: list[LaneStream] = []

    def add(self, portion: Portion) -> None:
        """Add the next block, if any client may need it."""
        if _stop(portion) > self.low:
            self.portions.append(portion)
            self.ahead += occupied(portion.size)

    def begin(self) -> None:
        """Resend everything from the first missing round of the first client."""
        self.ahead = sum(occupied(portion.size) for portion in self.portions)
        self.given = 0
        if self.streams:
            stream = self.streams[0]
            self.next = max(stream.first, self.floor)
            stream.has_gap = self.next < self.low

    def give(self) -> Iterator[Portion]:
        """Yield the blocks that can be sent to the first client now."""
        stream = self.streams[0]
        while self.given < len(self.portions) and not stream.has_gap:
            portion = self.portions[self.given]
            rest = replace(portion, skip=max(0, self.next - portion.first))
            if rest.owed > 0 and not stream.has_credit(rest):
                return
            self.given += 1
            self.ahead -= occupied(portion.size)
            if rest.owed > 0:
                self.next = _stop(portion)
                stream.give(rest)
                yield rest

    def leave(self, stream: LaneStream) -> None:
        """Remove a client. Blocks that it was given and did not report wait for the
        next client.
        """
        first = self.streams[0] is stream
        self.streams.remove(stream)
        if first:
            self.begin()

    def skip(self, unwanted: int) -> None:
        """Reserve no room for the first rounds, which no client waits for. Do nothing
        if a client reads here after all.
        """
        if self.streams or unwanted <= self.low:
            return
        self.low = unwanted
        while self.portions and _stop(self.portions[0]) <= unwanted:
            self.portions.popleft()
        self.begin()

    def forget(self, handed_out: int, reported: int) -> None:
        """Drop the rounds below ``reported``, and the rounds below ``handed_out`` that
        exceed the limit of kept bytes.
        """
        spent = takewhile(lambda portion: _stop(portion) <= handed_out, self.portions)
        kept = sum(portion.size for portion in spent if _stop(portion) > reported)
        while self.given:
            portion = self.portions[0]
            if _stop(portion) > handed_out or (
                _stop(portion) > reported and kept <= self.most_kept
            ):
                return
            if _stop(portion) > reported:
                kept -= portion.size
            self.portions.popleft()
            self.given -= 1
            self.low = _stop(portion)


@dataclass
class LaneStream(Stream):
    """The flow of a task to a client that is a numbered consumer. Its elements are
    rounds.
    """

    lane: Lane = field(default_factory=lambda: Lane(0, 0))
    """Lane of the consumer."""
    first: int = 0
    """First round of the stream."""
    met: bool = False
    """True once the client has sent a grant."""
    consumer: int | None = None
    """Number of the consumer; None if it is none of this job."""

    def grant(self, grant: m.StreamGrant, now: float) -> list[Portion]:
        if not self.met:
            self.met, self.first = True, grant.first
            if self.lane.streams[0] is self:
                self.lane.begin()
        return super().grant(grant, now)

    def give(self, portion: Portion) -> None:
        self._count(portion)

    def _forget(self, count: int) -> None:
        """Keep the elements that were handed out until they are reported."""

    def _count_reported(self, count: int) -> None:
        self.reported += max(0, count)
        if self.lane.streams[0] is self:
            self.lane.forget(self.first + self.handed_out, self.first + self.reported)


class RoundRobin:
    """Gives each client the elements in the lane of its consumer index.

    Args:
        num_consumers: number of consumers.
        passed: number of rounds that each consumer has passed; empty for none.
        sharing: number of tasks that share the memory for unreported elements.

    Attributes:
        rest: the elements after the last full round, until the dispatcher says which
            consumers get them.
    """

    def __init__(self, num_consumers: int, passed: tuple[int, ...] = (), sharing: int = 1) -> None:
        self.streams: dict[str, Stream] = {}
        kept = KEPT_BYTES // (num_consumers * sharing)
        self.lanes = [Lane(low, kept) for low in passed or (0,) * num_consumers]
        self.rest: tuple[Portion, ...] = ()

    @property
    def ahead(self) -> int:
        return sum(lane.ahead for lane in self.lanes)

    def join(self, client: str, reader: m.Reader) -> Stream:
        index = reader.consumer_index
        consumer = index if index is not None and 0 <= index < len(self.lanes) else None
        # A client that is not a consumer of this job gets a lane that stays empty.
        lane = Lane(0, 0) if consumer is None else self.lanes[consumer]
        stream = LaneStream(client, lane=lane, consumer=consumer)
        lane.streams.append(stream)
        self.streams[client] = stream
        return stream

    def add(self, portion: Portion) -> None:
        self.lanes[portion.lane].add(portion)

    def deal(self, usable: Callable[[Stream], bool]) -> Iterator[tuple[Stream, Portion]]:
        for lane in self.lanes:
            if lane.streams and usable(lane.streams[0]):
                for portion in lane.give():
                    yield lane.streams[0], portion

    def has_all(self, stream: Stream) -> bool:
        assert isinstance(stream, LaneStream)
        lane = stream.lane
        return lane.streams[0] is stream and not stream.has_gap and lane.given == len(lane.portions)

    def deal_rest(self, consumer: int, count: int) -> None:
        """Give the first elements of the rest to a consumer and those after it, and
        drop the others. Idempotent.
        """
        for at, portion in enumerate(self.rest[:count], consumer):
            portion.lane, portion.rest = at % len(self.lanes), True
            self.add(portion)
        self.rest = ()

    def skip(self, unwanted: tuple[int, ...]) -> None:
        """Reserve no room for the first rounds of each consumer that, as the dispatcher
        knows, no client waits for.
        """
        for lane, count in zip(self.lanes, unwanted, strict=False):
            lane.skip(count)

    def release(self, client: str, delivered: RangeSet) -> bool:
        stream = self.streams.pop(client, None)
        if isinstance(stream, LaneStream):
            stream.lane.leave(stream)
        return True


def _stop(portion: Portion) -> int:
    return portion.first + portion.count
