"""Placing of documents in bins, by their lengths; and the reopening of restored bins.

Everything here is a function of lengths and numbers. ``operations.packing`` pulls the
documents, and fills rows.

Decision 0058.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import add, ge, sub
from typing import Any

from zmqdata.errors import FailedPreconditionError

Sizes = tuple[int, ...]
"""A number of tokens for each leaf."""


@dataclass(slots=True)
class Segment:
    """Document that is being placed, or the part of it that is in a bin."""

    number: int
    """Number of the document's element."""
    starts: Sizes
    """Place of its first token in the document, for each leaf."""
    stops: Sizes
    """Place behind its last token."""
    content: Any = None
    """Whatever the caller packs."""


@dataclass(slots=True)
class OpenBin:
    """Bin that is being filled."""

    room: Sizes
    """Places left, for each leaf."""
    segments: list[Segment] = field(default_factory=list)
    """Its contents, in order."""


class Packer:
    """Places documents in open bins.

    A document goes into the oldest bin with room for it. If none has room and all bins
    are open, the oldest comes out first. A bin that is full in any of its leaves, or
    has the most segments, comes out at once. Only a bin that is full holds a part of a
    document without its end.

    Args:
        lengths: length of a row, for each leaf.
        bins: number of open bins at most.
        max_sequences: number of segments of a bin at most.
        concat: True to cut documents to the room that is left; with a single bin.

    Attributes:
        open_bins: the open bins, oldest first.

    >>> packer, rows = Packer((8,), 2), []
    >>> for number, size in enumerate([5, 6, 3, 4]):
    ...     rows += packer.place(Segment(number, (0,), (size,)))
    >>> rows += packer.open_bins
    >>> [[part.number for part in row.segments] for row in rows]
    [[0, 2], [1], [3]]
    """

    def __init__(
        self, lengths: Sizes, bins: int, max_sequences: int | None = None, concat: bool = False
    ) -> None:
        self._lengths, self._bins, self._concat = lengths, bins, concat
        self._max_sequences = max_sequences or sum(lengths)
        self._is_single = len(lengths) == 1
        self.open_bins: list[OpenBin] = []
        self._rooms: list[int] = []  # of the first leaf, which decides in most cases

    def place(self, document: Segment) -> Iterator[OpenBin]:
        """Place a document, and yield the bins that come out meanwhile.

        Between two bins, ``starts`` of the document is the place from which on it is
        not placed yet.
        """
        while document.starts != document.stops:
            limits = self.open_bins[0].room if self._concat and self.open_bins else self._lengths
            rest = difference(document.stops, document.starts)
            sizes = tuple(map(min, rest, limits))
            number = self._first_with_room(sizes)
            if number < 0 and len(self.open_bins) == self._bins:
                yield self.take(0)
                continue
            if number < 0:
                number = self.open()
            starts = document.starts
            document.starts = stops = tuple(map(add, starts, sizes))
            self.put(number, Segment(document.number, starts, stops, document.content))
            found = self.open_bins[number]
            if not all(found.room) or len(found.segments) == self._max_sequences:
                yield self.take(number)

    def open(self) -> int:
        """Open a bin and return its number."""
        self.open_bins.append(OpenBin(self._lengths))
        self._rooms.append(self._lengths[0])
        return len(self.open_bins) - 1

    def put(self, number: int, segment: Segment) -> None:
        """Put a segment into a bin.

        Raises:
            FailedPreconditionError: the bin has no room for it.
        """
        found, sizes = self.open_bins[number], sizes_of(segment)
        room = difference(found.room, sizes)
        if min(room) < 0:
            raise changed(segment, f"has {sizes} tokens, and its row has room for {found.room}")
        found.segments.append(segment)
        found.room = room
        self._rooms[number] = room[0]

    def reopen(self, segments: list[Segment]) -> None:
        """Open a bin with the segments that an open bin had.

        Raises:
            FailedPreconditionError: they are too long, or fill the bin: the documents
                have other lengths now.
        """
        number = self.open()
        for segment in segments:
            self.put(number, segment)
        if not all(self.open_bins[number].room):
            raise changed(segments[-1], "fills its row, which was not full")

    def clear(self) -> int:
        """Remove all bins, and return the number of their segments."""
        count = sum(len(found.segments) for found in self.open_bins)
        self.open_bins.clear()
        self._rooms.clear()
        return count

    def take(self, number: int) -> OpenBin:
        """Remove a bin and return it."""
        del self._rooms[number]
        return self.open_bins.pop(number)

    def _first_with_room(self, sizes: Sizes) -> int:
        least, is_single = sizes[0], self._is_single
        for number, room in enumerate(self._rooms):
            if room >= least and (is_single or all(map(ge, self.open_bins[number].room, sizes))):
                return number
        return -1


def difference(first: Sizes, second: Sizes) -> Sizes:
    return tuple(map(sub, first, second))


def sizes_of(segment: Segment) -> Sizes:
    """Return the number of tokens of a segment, for each leaf.

    Raises:
        FailedPreconditionError: it has none: its document is shorter than it was.
    """
    sizes = difference(segment.stops, segment.starts)
    if min(sizes) < 0 or not any(sizes):
        raise changed(segment, f"has {segment.stops} tokens, of which {segment.starts} are packed")
    return sizes


def changed(segment: Segment, how: str) -> FailedPreconditionError:
    """Return the error for a document that is not the one that a state tells of."""
    return FailedPreconditionError(
        f"Element {segment.number} of the input was in an open row when the state was taken, and "
        f"now {how}: restore on the same input only"
    )
