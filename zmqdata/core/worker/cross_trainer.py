"""How a task is dealt that several trainers read in full: each at its own pace, out of
a window of the newest blocks.

The fastest reader has new blocks made. A block that falls out of the window is lost to
those who were slower than it holds; they go on at its beginning. (tf.data's
cross-trainer cache.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.events import Produced
from zmqdata.core.worker.streams import Portion, Stream
from zmqdata.errors import InvalidArgumentError
from zmqdata.failures.codec import encode_failure
from zmqdata.messages import Reader


@dataclass
class Place:
    """Where those with one trainer id are in the window.

    ``next``: number of the next element, None before the first. ``skipped``: elements
    that they were too slow for. ``returned``: blocks that one of them was given and did
    not hand out.
    """

    next: int | None = None
    skipped: int = 0
    returned: deque[Portion] = field(default_factory=deque)


def fitting(event: Produced, size: int, worker: str) -> Produced:
    """What was made, or in place of an element that the whole window could not hold,
    the error that says so.
    """
    if event.size <= size or event.count > 1 or event.failure:
        return event
    text = (
        f"An element of {event.size} bytes is larger than the cross-trainer cache of {size} bytes. "
        "Give workers a "
        "larger cross_trainer_cache_size_bytes"
    )
    failure = encode_failure(InvalidArgumentError(text), event.first, worker)
    # It keeps its size, by which the runner counts what it may make.
    return replace(event, meta=b"", frames=(), failure=failure)


def _kept(portion: Portion) -> int:
    """The bytes that a block takes; an error that stands for a large element does not
    take what that would have.
    """
    return len(portion.failure) or portion.size


class Windowed:
    """Every trainer id gets every block that is in the window when its turn comes.

    Args:
        size: most bytes in the window.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.streams: dict[str, Stream] = {}
        self.blocks: deque[Portion] = deque()
        self.places: dict[str, Place] = {}
        self._of_client: dict[str, str] = {}
        self._held = 0

    @property
    def ahead(self) -> int:
        """Bytes that were made and that nobody has been given."""
        first = max(
            (place.next for place in self.places.values() if place.next is not None), default=0
        )
        total = 0
        for portion in reversed(self.blocks):
            if portion.first + portion.count <= first:
                break
            total += portion.size
        return total

    @property
    def skipped(self) -> dict[str, int]:
        """How many elements each trainer was too slow for."""
        return {
            trainer_id: place.skipped for trainer_id, place in self.places.items() if place.skipped
        }

    def join(self, client: str, reader: Reader) -> Stream:
        stream = self.streams[client] = Stream(client)
        self._of_client[client] = reader.trainer_id
        self.places.setdefault(reader.trainer_id, Place())
        return stream

    def add(self, portion: Portion) -> None:
        self.blocks.append(portion)
        self._held += _kept(portion)
        while self._held > self.size and len(self.blocks) > 1:
            self._held -= _kept(self.blocks.popleft())

    def deal(self, usable: Callable[[Stream], bool]) -> Iterator[tuple[Stream, Portion]]:
        ready = [stream for stream in self.streams.values() if usable(stream)]
        while ready:
            # Streams of one trainer id take turns, by what they have in flight.
            ready.sort(key=lambda one: one.sent - one.handed_out)
            given = [pair for pair in map(self._give_next, ready) if pair is not None]
            yield from given
            ready = [stream for stream, _ in given]

    def _give_next(self, stream: Stream) -> tuple[Stream, Portion] | None:
        place = self.places[self._of_client[stream.client]]
        portion = place.returned[0] if place.returned else self._next_block(place)
        if portion is None or not stream.has_credit(portion):
            return None
        if place.returned:
            place.returned.popleft()
        else:
            place.next = portion.first + portion.count
        stream.give(portion)
        return stream, portion

    def _next_block(self, place: Place) -> Portion | None:
        """The block at a place, as a copy that leaves out what was read of it."""
        if not self.blocks:
            return None
        start = self.blocks[0].first
        if place.next is None:
            place.next = start
        elif place.next < start:
            place.skipped += start - place.next
            place.next = start
        portion = self.blocks[bisect_right(self.blocks, place.next, key=lambda one: one.first) - 1]
        at = place.next - portion.first
        return replace(portion, skip=at) if at < portion.count else None

    def has_all(self, stream: Stream) -> bool:
        place = self.places[self._of_client[stream.client]]
        return not place.returned and self._next_block(place) is None

    def release(self, client: str, delivered: RangeSet) -> bool:
        stream = self.streams.pop(client, None)
        if stream is not None:
            # What others delivered is not what this trainer had.
            self.places[self._of_client.pop(client)].returned.extend(stream.take_back(RangeSet()))
        return True
