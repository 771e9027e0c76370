"""How much a client lets each of its streams send ahead: a window that opens as long as
the training loop waits.

Small at first, so that clients which share a job get their parts in the measure of
their speed; doubled each time the training loop has used up everything, so that a fast
one soon has enough in flight to never wait for a message.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_ELEMENTS = 8
FIRST_BYTES = 1 << 20
MOST_ELEMENTS = 1 << 20
MOST_BYTES = 64 << 20
LEAST_BYTES = 4 << 20
TOTAL_BYTES = 512 << 20
IN_TURN_ELEMENTS = 1 << 14
"""At first, of a stream that is read in turn: nobody else could be given its elements.
"""
IN_TURN_BYTES = 256 << 20
"""Of all streams that are read in turn: less than of others, as each has to have only
what one round of all takes.
"""
FEW_BYTES = LEAST_BYTES
"""Most bytes of a block of few elements, so large ones: each block costs both ends more
than each element does.

No more than the smallest window, or a client of many streams would hold twice what it
asked for.
"""
FEW_SHARED_BYTES = 8 << 20
"""The same in memory that is shared with who reads. Over sockets such blocks are
slower.
"""
MEMORY_SHARES = 8
"""Blocks that memory should have a place for: some are read, some on their way, and
some elements are kept.
"""


def few_bytes(window: int, memory: int) -> int:
    """How many bytes a block of few elements holds, in so much memory that is shared
    with who reads; 0: in none.

    More than over sockets if the window is for two of them, and no more than leaves
    memory for others: a block that finds no place in it goes through sockets.

    Example:
        >>> [few_bytes(64 << 20, memory << 20) >> 20 for memory in (0, 128, 16)], few_bytes(8 << 20, 128 << 20) >> 20
        ([4, 8, 2], 4)
    """
    if not memory:
        return FEW_BYTES
    return min(
        FEW_SHARED_BYTES if window >= 2 * FEW_SHARED_BYTES else FEW_BYTES, memory // MEMORY_SHARES
    )


@dataclass
class CreditWindow:
    """The window of one stream. Counts are from the beginning of the stream, in
    elements and bytes.

    ``limit`` bounds elements for good (``max_outstanding_requests``); None: only the
    window does. ``reported``: so many of the elements handed out the dispatcher has
    counted. ``largest`` and ``largest_bytes``: of a block, at most so far.
    ``breaches``: blocks in a row that were not granted.
    """

    limit: int | None = None
    elements: int = FIRST_ELEMENTS
    bytes: int = FIRST_BYTES
    handed_out: int = 0
    handed_bytes: int = 0
    reported: int = 0
    told_elements: int = 0
    told_bytes: int = 0
    told_handed_out: int = 0
    received: int = 0
    received_bytes: int = 0
    largest: int = 0
    largest_bytes: int = 0
    breaches: int = 0

    def renewed(self) -> CreditWindow:
        """A window as wide for a new stream, which counts from its own beginning."""
        return CreditWindow(self.limit, self.elements, self.bytes)

    def hand_out(self, elements: int, size: int) -> None:
        """Counts what the training loop has taken."""
        self.handed_out += elements
        self.handed_bytes += size

    def widen(self, streams: int, total: int = TOTAL_BYTES) -> None:
        """The training loop waits: let more be on its way, within the client's share of
        ``total`` for each stream.

        For two blocks at least, within it: who may have one at a time waits for a
        message behind each, and elements of some bytes come by thousands before the
        window has been doubled to hold two blocks of them.
        """
        most = max(LEAST_BYTES, min(MOST_BYTES, total // max(1, streams)))
        self.elements = min(2 * max(self.elements, self.largest), MOST_ELEMENTS)
        self.bytes = min(2 * max(self.bytes, self.largest_bytes), most)

    @property
    def grant(self) -> tuple[int, int]:
        """Through how many elements and bytes the stream may send now."""
        elements = self.elements if self.limit is None else min(self.elements, self.limit)
        return self.handed_out + elements, self.handed_bytes + self.bytes

    @property
    def worth_telling(self) -> bool:
        """Whether the grant has moved by so much that the worker should know at
        once.
        """
        elements, size = self.grant
        return (elements - self.told_elements) * 4 >= self.elements or (
            size - self.told_bytes
        ) * 4 >= self.bytes

    @property
    def is_news(self) -> bool:
        """Whether something was taken since the worker was told how much."""
        return self.handed_out > self.told_handed_out

    def tell(self) -> tuple[int, int]:
        """The grant, noted as told. What was told is never taken back: the worker keeps
        to the highest.
        """
        self.told_handed_out = self.handed_out
        elements, size = self.grant
        self.told_elements, self.told_bytes = (
            max(self.told_elements, elements),
            max(self.told_bytes, size),
        )
        return self.told_elements, self.told_bytes

    def admits(self, elements: int, size: int) -> bool:
        """Whether a block lies within what was told. One of any size may come while
        nothing of the stream waits.
        """
        if size < 0 or self.received >= self.told_elements:
            return False
        fits = (
            self.received + elements <= self.told_elements
            and self.received_bytes + size <= self.told_bytes
        )
        return fits or self.received <= self.handed_out

    def receive(self, elements: int, size: int) -> None:
        """Counts a block that was admitted."""
        self.received += elements
        self.received_bytes += size
        self.largest, self.largest_bytes = (
            max(self.largest, elements),
            max(self.largest_bytes, size),
        )
        self.breaches = 0
