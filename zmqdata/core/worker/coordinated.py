"""How a task of a coordinated job deals what it makes: round by round, one element to
each numbered consumer.

Each consumer has a lane. What is in it is kept until its client has reported it, so
that a successor can go on where the dispatcher knows that the one before it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile

from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.streams import Portion, Stream

KEPT_BYTES = 32 << 20
"""What was handed out and not reported yet. More than that is forgotten, and made again
if needed.
"""


class Lane:
    """What a task has made for one consumer, from round ``low`` on, and the clients
    that want it.

    Only the first of them is given anything: one that comes later takes over when that
    one is released. The first ``given`` of the ``portions`` were given to it, up to the
    round ``next``. ``ahead``: the bytes of the others.

    Args:
        low: the first round that somebody may need.
        most_kept: bytes of what was handed out to keep until it is reported.
    """

    def __init__(self, low: int, most_kept: int) -> None:
        self.low = self.next = self.floor = low
        self.most_kept = most_kept
        self.portions: deque[Portion] = deque()
        self.given = 0
        self.ahead = 0
        self.streams: list[LaneStream] = []

    def add(self, portion: Portion) -> None:
        """Takes the next block that was made, if anybody may need it."""
        if _stop(portion) > self.low:
            self.portions.append(portion)
            self.ahead += portion.size

    def begin(self) -> None:
        """Whoever is first now gets everything from what it lacks on."""
        self.ahead = sum(portion.size for portion in self.portions)
        self.given = 0
        if self.streams:
            stream = self.streams[0]
            self.next = max(stream.first, self.floor)
            stream.lacking = self.next < self.low

    def give(self) -> Iterator[Portion]:
        """The blocks that the first client can be sent now."""
        stream = self.streams[0]
        while self.given < len(self.portions) and not stream.lacking:
            portion = self.portions[self.given]
            rest = replace(portion, skip=max(0, self.next - portion.first))
            if rest.owed > 0 and not stream.has_credit(rest):
                return
            self.given += 1
            self.ahead -= portion.size
            if rest.owed > 0:
                self.next = _stop(portion)
                stream.give(rest)
                yield rest

    def leave(self, stream: LaneStream) -> None:
        """A client is gone; what it was given and did not report waits for the next
        one.
        """
        first = self.streams[0] is stream
        self.streams.remove(stream)
        if first:
            self.begin()

    def skip(self, unwanted: int) -> None:
        """Makes no room for the first rounds, which nobody waits for; not if somebody
        reads here after all.
        """
        if self.streams or unwanted <= self.low:
            return
        self.low = unwanted
        while self.portions and _stop(self.portions[0]) <= unwanted:
            self.portions.popleft()
        self.begin()

    def forget(self, handed_out: int, reported: int) -> None:
        """Drops the rounds below ``reported``, and those below ``handed_out`` that are
        too many to keep.
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
    """The flow of one task to one client that is a numbered consumer. Its elements are
    rounds, from ``first`` on.
    """

    lane: Lane = field(default_factory=lambda: Lane(0, 0))
    first: int = 0
    met: bool = False

    def grant(self, grant: m.StreamGrant) -> None:
        if not self.met:
            self.met, self.first = True, grant.first
            if self.lane.streams[0] is self:
                self.lane.begin()
        super().grant(grant)

    def give(self, portion: Portion) -> None:
        self._count(portion)

    def _forget(self, count: int) -> None:
        """Nothing yet: what was handed out is kept until it is reported."""

    def _count_reported(self, count: int) -> None:
        self.reported += max(0, count)
        if self.lane.streams[0] is self:
            self.lane.forget(self.first + self.handed_out, self.first + self.reported)


class RoundRobin:
    """Each client gets the elements of one consumer: those in the lane of its number.

    Args:
        num_consumers: how many consumers there are.
        passed: the rounds that each of them has behind it; empty for none.
        sharing: how many tasks share the memory for what is not reported yet.
    """

    def __init__(self, num_consumers: int, passed: tuple[int, ...] = (), sharing: int = 1) -> None:
        self.streams: dict[str, Stream] = {}
        kept = KEPT_BYTES // (num_consumers * sharing)
        self.lanes = [Lane(low, kept) for low in passed or (0,) * num_consumers]

    @property
    def ahead(self) -> int:
        return sum(lane.ahead for lane in self.lanes)

    def join(self, client: str, reader: m.Reader) -> Stream:
        index = reader.consumer_index
        # Whoever is no consumer of this job has a lane into which nothing comes.
        lane = (
            self.lanes[index] if index is not None and 0 <= index < len(self.lanes) else Lane(0, 0)
        )
        stream = LaneStream(client, lane=lane)
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
        return lane.streams[0] is stream and not stream.lacking and lane.given == len(lane.portions)

    def skip(self, unwanted: tuple[int, ...]) -> None:
        """Makes no room for what nobody waits for: so many rounds of each consumer, as
        the dispatcher knows.
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
