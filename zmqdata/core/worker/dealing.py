"""Dealing: which stream of a task gets which block. Each way of reading a job has its
own.

``core.worker.distribution`` sends the blocks that are dealt here. The decider asks it
again whenever a block is produced, or a client grants credit or is released.

Decisions 0035 and 0036; protocol 6.5, 6.8, 6.12, 7.4, 8.3 and 9.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heapify, heapreplace
from typing import Protocol

from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.coordinated import RoundRobin
from zmqdata.core.worker.cross_trainer import Windowed
from zmqdata.core.worker.streams import Portion, Stream, occupied
from zmqdata.messages import Reader, TaskDefinition

FEW_VIEWS = 4
"""Number of views into which a block may always be cut."""
SMALL = 64 << 10
"""Bytes up to which a block is divided among all clients with nothing in flight."""
VIEWS_BYTES = 4 << 20
"""Bytes that all views of a small block may have together."""


class Dealing(Protocol):
    """Holds the blocks of a task until its clients have handed them out."""

    streams: dict[str, Stream]
    """Streams by client."""

    @property
    def ahead(self) -> int:
        """Number of bytes that were produced and given to no client. They limit
        production.
        """

    def join(self, client: str, reader: Reader) -> Stream:
        """Return a new stream to a client."""

    def add(self, portion: Portion) -> None:
        """Add a block that was produced."""

    def deal(self, usable: Callable[[Stream], bool]) -> Iterator[tuple[Stream, Portion]]:
        """Give blocks to streams that are usable and have credit. Yield each stream
        with the block to send.
        """

    def has_all(self, stream: Stream) -> bool:
        """Return True if a stream was given everything that was produced for it so
        far.
        """

    def release(self, client: str, delivered: RangeSet) -> bool:
        """Remove a client, and give its undelivered blocks to others. Return False if
        some of them are no longer here.

        Args:
            client: id of the client.
            delivered: elements that have reached a training loop.
        """


class FirstCome:
    """Gives each block to a single client: of the clients with credit for it, the
    client with the least in flight.

    Clients that share get no more than they have room for: a larger block is cut into
    views, each of which is for one of them. At the end of the task, clients that hold
    more than their share give elements back to those that wait.

    Args:
        is_limited: True if no client may get more elements than it has granted, not
            even if it has nothing else.

    Attributes:
        pending: blocks that no client was given.
    """

    def __init__(self, is_limited: bool = False) -> None:
        self._is_limited = is_limited
        self.streams: dict[str, Stream] = {}
        self.pending: deque[Portion] = deque()
        self._turn = 0
        self._pending_bytes = 0

    @property
    def ahead(self) -> int:
        return self._pending_bytes

    def join(self, client: str, reader: Reader) -> Stream:
        stream = self.streams[client] = Stream(client)
        return stream

    def add(self, portion: Portion) -> None:
        self.pending.append(portion)
        self._pending_bytes += occupied(portion.size)

    def deal(self, usable: Callable[[Stream], bool]) -> Iterator[tuple[Stream, Portion]]:
        streams = [stream for stream in self.streams.values() if usable(stream)]
        while self.pending:
            portion = self.pending[0]
            least = portion.owed if len(streams) < 2 else _least_of(portion)
            ready = [stream for stream in streams if stream.has_credit(portion, least)]
            if not ready:
                return
            pace = paces(streams)
            # If all wait, the one that has waited longest. Otherwise the first would
            # get everything from a worker that is slower than all loops.
            stream = min(ready, key=lambda one: (one.load * pace[one.client], one.turn))
            self._turn += 1
            stream.turn = self._turn
            room = stream.room
            if portion.size <= SMALL:
                idle = sum(one.idle for one in ready)
                room = min(room, -(-portion.owed // max(1, idle)))
            view = portion.view(room if self._is_limited else max(least, room))
            if not portion.owed:
                self.pending.popleft()
                self._pending_bytes -= occupied(portion.size)
            stream.give(view)
            yield stream, view

    def has_all(self, stream: Stream) -> bool:
        return not self.pending

    # --- the end of a task, when clients give elements back

    def ask_back(
        self, usable: Callable[[Stream], bool], now: float
    ) -> Iterator[tuple[Stream, int]]:
        """Ask clients for elements, if others wait and nothing is left to deal. Yield
        each stream that is asked, with the number of its elements that it keeps.
        """
        streams = [stream for stream in self.streams.values() if usable(stream)]
        if self.pending or len(streams) < 2 or not any(one.is_waiting for one in streams):
            return
        pace = paces(streams)
        held = {one.client: one.in_hand(now) for one in streams}
        busy = {one.client for one in streams if not one.is_waiting}
        share = fair_shares(sum(held.values()), pace, busy)
        for stream in streams:
            client = stream.client
            if held[client] > share[client] and stream.could_give(now, pace[client]):
                stream.ask_back(now)
                yield stream, stream.sent - held[client] + share[client]

    def restore(self, returned: list[Portion]) -> None:
        """Take elements that a client has given back."""
        for portion in reversed(returned):
            self.pending.appendleft(portion)
            self._pending_bytes += occupied(portion.size)

    def may_end(self, stream: Stream, usable: Callable[[Stream], bool], now: float) -> bool:
        """Return True if a client need not wait for elements that others may give
        back.
        """
        streams = [one for one in self.streams.values() if usable(one)]
        others = [one for one in streams if one is not stream]
        if stream.recall.asked is not None or any(one.recall.is_open(now) for one in others):
            return False
        pace = paces(streams)
        # A client that waits would have had others asked already.
        return stream.is_waiting or not any(one.could_give(now, pace[one.client]) for one in others)

    def release(self, client: str, delivered: RangeSet) -> bool:
        stream = self.streams.pop(client, None)
        if stream is None:
            return True
        complete = not stream.has_lost(delivered)
        for portion in reversed(stream.take_back(delivered)):
            self.pending.appendleft(portion)
            self._pending_bytes += occupied(portion.size)
        return complete


def _least_of(portion: Portion) -> int:
    """Return the least number of elements in a view of a block. Each view has all
    frames, so a large block is cut into few of them.
    """
    views = max(FEW_VIEWS, VIEWS_BYTES // max(1, portion.size))
    return min(portion.owed, -(-portion.count // views))


def paces(streams: Sequence[Stream]) -> dict[str, float]:
    """Return the seconds that each client takes for an element. An unknown pace is
    taken for the mean of the others.
    """
    known = [stream.pace for stream in streams if stream.pace]
    mean = sum(known) / len(known) if known else 1.0
    return {stream.client: stream.pace or mean for stream in streams}


def fair_shares(count: int, pace: dict[str, float], busy: Collection[str]) -> dict[str, int]:
    """Divide elements among clients so that all end as early as possible.

    Args:
        count: number of elements.
        pace: seconds that each client takes for an element.
        busy: clients that must first end an element that they have begun.

    Example:
        >>> fair_shares(11, {"fast": 0.1, "slow": 1.0}, busy=["slow"])
        {'fast': 11, 'slow': 0}
        >>> fair_shares(30, {"fast": 0.1, "slow": 1.0}, busy=["slow"])
        {'fast': 29, 'slow': 1}
    """
    speed = sum(1 / seconds for seconds in pace.values())
    # Rounded down, and less for what is begun, so that the rest evens it out.
    share = {client: max(0, int(count / (seconds * speed)) - 1) for client, seconds in pace.items()}
    rest = [
        ((share[client] + 1 + (client in busy)) * seconds, client in busy, client)
        for client, seconds in pace.items()
    ]
    heapify(rest)
    for _ in range(count - sum(share.values())):
        end, is_busy, client = rest[0]
        share[client] += 1
        heapreplace(rest, (end + pace[client], is_busy, client))
    return share


def dealing_for(definition: TaskDefinition, cache_bytes: int) -> Dealing:
    """Return the dealing that a task's job asks for, if clients read it.

    Args:
        definition: the task.
        cache_bytes: size of the window, in bytes, if every trainer reads everything.
    """
    if definition.job.num_consumers is not None:
        # If one consumer reads many tasks in turn, it has little of each in flight.
        sharing = definition.num_shards if definition.job.num_consumers == 1 else 0
        return RoundRobin(definition.job.num_consumers, definition.passed, max(1, sharing))
    if definition.job.cache:
        return Windowed(cache_bytes)
    return FirstCome(is_limited=definition.job.max_outstanding_requests is not None)
