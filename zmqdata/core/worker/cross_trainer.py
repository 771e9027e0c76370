"""Dealing of a task that several trainers read in full. Each reads at its own pace from
a window of the newest blocks.

The fastest trainer has new blocks produced. A block that leaves the window is lost to
slower trainers; they continue at the start of the window. This is tf.data's
cross-trainer cache.

Protocol 6.7 and 8.7.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from msgspec import structs

from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker.events import Produced
from zmqdata.core.worker.streams import Portion, Stream, occupied
from zmqdata.errors import InvalidArgumentError
from zmqdata.failures.codec import encode_failure
from zmqdata.messages import Reader


@dataclass
class Place:
    """The position of the clients with one trainer id in the window."""

    next: int | None = None
    """Number of the next element; None before the first."""
    skipped: int = 0
    """Number of elements that the trainer was too slow for."""
    returned: deque[Portion] = field(default_factory=deque)
    """Blocks that a client of this trainer was given and did not hand out."""


def fitting(event: Produced, size: int, worker: str) -> Produced:
    """Return the event, or an error in place of an element that is larger than the
    whole window.
    """
    if event.size <= size or event.count > 1 or event.failure:
        return event
    text = (
        f"An element of {event.size} bytes is larger than the cross-trainer cache of {size} bytes. "
        "Give workers a larger `cross_trainer_cache_size_bytes`."
    )
    failure = encode_failure(InvalidArgumentError(text), event.first, worker)
    # The event keeps its size, because the runner has counted it in what it may make.
    return structs.replace(event, meta=b"", frames=(), failure=failure)


def _kept(portion: Portion) -> int:
    """Return the bytes that a block occupies. An error that stands for a large element
    occupies only its own size.
    """
    return len(portion.failure) or portion.size


class Windowed:
    """Gives every trainer id each block that is in the window when its turn comes.

    Args:
        size: maximum number of bytes in the window.
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
        """Number of bytes that were produced and that no trainer was given."""
        first = max(
            (place.next for place in self.places.values() if place.next is not None), default=0
        )
        total = 0
        for portion in reversed(self.blocks):
            if portion.first + portion.count <= first:
                break
            total += occupied(portion.size)
        return total

    @property
    def skipped(self) -> dict[str, int]:
        """Number of elements that each trainer was too slow for."""
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
            # Among the streams of one trainer id, the stream with the least in flight
            # comes first.
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
        """Return a copy of the block at a position, without the elements that were
        already read.
        """
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
            # Deliveries of other trainers do not count for this trainer.
            self.places[self._of_client.pop(client)].returned.extend(stream.take_back(RangeSet()))
        return True
