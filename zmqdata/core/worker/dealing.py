"""Which of a task's streams gets which block. A way of dealing for each way of reading
a job.

What is dealt here is sent by the worker core, which asks again whenever something was
made, granted or released.
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


class Dealing(Protocol):
    """Holds what a task has made until its clients have handed it out. ``streams`` are
    by client.
    """

    streams: dict[str, Stream]

    @property
    def ahead(self) -> int:
        """Bytes that were made and given to nobody; they bound production."""

    def join(self, client: str, reader: Reader) -> Stream:
        """A new stream to a client."""

    def add(self, portion: Portion) -> None:
        """Takes a block that was made."""

    def deal(self, usable: Callable[[Stream], bool]) -> Iterator[tuple[Stream, Portion]]:
        """Gives blocks to streams that can be used and have credit; each pair is to be
        sent.
        """

    def has_all(self, stream: Stream) -> bool:
        """Whether a stream was given everything made so far that is for it."""

    def release(self, client: str, delivered: RangeSet) -> bool:
        """Forgets a client and gives to others what it was given in vain; False when
        some of that is not here any more.

        ``delivered``: what has reached a training loop.
        """


class FirstCome:
    """Each block goes to one client, the one with least in flight that has credit for
    it.
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
            ready = [stream for stream in streams if stream.has_credit(self.pending[0])]
            if not ready:
                return
            stream, portion = (
                min(ready, key=lambda one: one.sent - one.handed_out),
                self.pending.popleft(),
            )
            self._pending_bytes -= portion.size
            stream.give(portion)
            yield stream, portion

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


def dealing_for(definition: TaskDefinition, cache_bytes: int) -> Dealing:
    """The way of dealing that a task's job asks for, if clients read it.

    Args:
        definition: the task.
        cache_bytes: size of the window where every trainer reads all.
    """
    if definition.num_consumers is not None:
        # Where one consumer reads many tasks in turn it has not much of each on its
        # way.
        sharing = definition.num_shards if definition.num_consumers == 1 else 0
        return RoundRobin(definition.num_consumers, definition.passed, max(1, sharing))
    return Windowed(cache_bytes) if definition.cache else FirstCome()
