"""Dealing: which stream of a task gets which block. Each way of reading a job has its
own.

``core.worker.decider`` sends the blocks that are dealt here. It asks again whenever a
block is produced, or a client grants credit or is released.

Protocol 6.5, 6.8, 8.3 and 9.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.coordinated import RoundRobin
from zmqdata.core.worker.cross_trainer import Windowed
from zmqdata.core.worker.streams import Portion, Stream
from zmqdata.messages import Reader, TaskDefinition

FEW_VIEWS = 4
"""Number of views into which a block may always be cut."""
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
    views, each of which is for one of them.
    """

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.pending: deque[Portion] = deque()
        self._pending_bytes = 0

    @property
    def ahead(self) -> int:
        return self._pending_bytes

    def join(self, client: str, reader: Reader) -> Stream:
        stream = self.streams[client] = Stream(client)
        return stream

    def add(self, portion: Portion) -> None:
        self.pending.append(portion)
        self._pending_bytes += portion.size

    def deal(self, usable: Callable[[Stream], bool]) -> Iterator[tuple[Stream, Portion]]:
        streams = [stream for stream in self.streams.values() if usable(stream)]
        while self.pending:
            portion = self.pending[0]
            least = portion.owed if len(streams) < 2 else _least_of(portion)
            ready = [stream for stream in streams if stream.has_credit(portion, least)]
            if not ready:
                return
            stream = min(ready, key=lambda one: one.sent - one.handed_out)
            view = portion.view(max(least, stream.room))
            if not portion.owed:
                self.pending.popleft()
                self._pending_bytes -= portion.size
            stream.give(view)
            yield stream, view

    def has_all(self, stream: Stream) -> bool:
        return not self.pending

    def release(self, client: str, delivered: RangeSet) -> bool:
        stream = self.streams.pop(client, None)
        if stream is None:
            return True
        complete = not stream.has_lost(delivered)
        for portion in reversed(stream.take_back(delivered)):
            self.pending.appendleft(portion)
            self._pending_bytes += portion.size
        return complete


def _least_of(portion: Portion) -> int:
    """Return the least number of elements in a view of a block. Each view has all
    frames, so a large block is cut into few of them.
    """
    views = max(FEW_VIEWS, VIEWS_BYTES // max(1, portion.size))
    return min(portion.owed, -(-portion.count // views))


def dealing_for(definition: TaskDefinition, cache_bytes: int) -> Dealing:
    """Return the dealing that a task's job asks for, if clients read it.

    Args:
        definition: the task.
        cache_bytes: size of the window, in bytes, if every trainer reads everything.
    """
    if definition.num_consumers is not None:
        # If one consumer reads many tasks in turn, it has little of each in flight.
        sharing = definition.num_shards if definition.num_consumers == 1 else 0
        return RoundRobin(definition.num_consumers, definition.passed, max(1, sharing))
    return Windowed(cache_bytes) if definition.cache else FirstCome()
