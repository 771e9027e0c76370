"""The credit window of a stream: how much a worker may send ahead of the training loop.

The window starts small, so that clients sharing a job get elements in proportion to
their speed. It doubles whenever the training loop has used up everything. A fast client
therefore soon has enough in flight never to wait for a message.

Decision 0002; protocol 6.4 to 6.6.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

FIRST_ELEMENTS = 8
FIRST_SHARED = 2
"""Initial window, in elements, of a stream whose elements could go to other clients."""
FIRST_BYTES = 1 << 20
MOST_ELEMENTS = 1 << 20
MOST_BYTES = 64 << 20
LEAST_BYTES = 4 << 20
TOTAL_BYTES = 512 << 20
IN_TURN_ELEMENTS = 256
"""Initial window, in elements, of a stream that is read in turn. No other client could
be given its elements, so it is larger than that of other streams.
"""
IN_TURN_BYTES = 256 << 20
"""Total window, in bytes, of all streams that are read in turn. It is below
``TOTAL_BYTES``, because each stream needs only what one round over all streams takes.
"""
FEW_BYTES = LEAST_BYTES
"""Maximum size, in bytes, of a block with few, and therefore large, elements. Each
block costs both ends more than each element does.

This is at most the smallest window. Otherwise a client with many streams would hold
twice the memory it asked for.
"""
FEW_SHARED_BYTES = 8 << 20
"""The same maximum for a block in shared memory. Over sockets, blocks of this size are
slower.
"""
MEMORY_SHARES = 8
"""Number of blocks that the shared memory has room for: blocks being read, blocks in
flight and retained elements.
"""


def few_bytes(window: int, memory: int) -> int:
    """Return the maximum size, in bytes, of a block with few elements, given the size
    of the memory shared with the reader.

    Args:
        window: maximum size of the stream's window, in bytes.
        memory: size of the shared memory in bytes; 0 if there is none.

    The maximum exceeds that for sockets if the window holds two such blocks. It leaves
    room in the memory for other blocks: a block that finds none is sent through
    sockets.

    Example:
        >>> [few_bytes(64 << 20, memory << 20) >> 20 for memory in (0, 128, 16)]
        [4, 8, 2]
        >>> few_bytes(8 << 20, 128 << 20) >> 20
        4
    """
    if not memory:
        return FEW_BYTES
    return min(
        FEW_SHARED_BYTES if window >= 2 * FEW_SHARED_BYTES else FEW_BYTES, memory // MEMORY_SHARES
    )


@dataclass
class BlockEnds:
    """The ends of a stream's blocks, counted from the stream's beginning. Worker and
    client both keep them, so that they charge the same bytes.

    Blocks are charged in full until their last element was handed out.
    """

    handed_bytes: int = 0
    """Number of bytes in blocks that were handed out completely."""
    _handed: int = 0
    _ahead: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, elements: int, size: int) -> None:
        """Add a block, with the numbers of elements and bytes through its end."""
        self._ahead.append((elements, size))

    def hand_out(self, elements: int) -> None:
        """Count the blocks that end within the first ``elements``."""
        while self._ahead and self._ahead[0][0] <= elements:
            self._handed, self.handed_bytes = self._ahead.popleft()

    def cut(self, kept: int) -> int:
        """Remove everything after the first ``kept`` elements, and return the number of
        bytes that are left. A block that is left in part is charged in full.
        """
        ahead = self._ahead
        while ahead and (ahead[-2][0] if len(ahead) > 1 else self._handed) >= kept:
            ahead.pop()
        if not ahead:
            return self.handed_bytes
        size = ahead[-1][1]
        ahead[-1] = (min(kept, ahead[-1][0]), size)
        return size


@dataclass
class CreditWindow:
    """The credit window of a stream. Counts of elements and bytes start at the
    beginning of the stream.
    """

    limit: int | None = None
    """Permanent limit on outstanding elements of a numbered consumer
    (``max_outstanding_requests``); None if only the window limits them.
    """
    elements: int = FIRST_ELEMENTS
    """Size of the window in elements."""
    bytes: int = FIRST_BYTES
    """Size of the window in bytes."""
    ends: BlockEnds = field(default_factory=BlockEnds)
    """The ends of the blocks that were received."""
    handed_out: int = 0
    """Number of elements handed to the training loop."""
    reported: int = 0
    """Number of handed-out elements that the dispatcher has acknowledged."""
    granted_elements: int = 0
    """Highest element count granted to the worker so far."""
    granted_before: int = 0
    """Highest element count before the last grant that raised it."""
    granted_bytes: int = 0
    """Highest byte count granted to the worker so far."""
    granted_handed_out: int = 0
    """Value of ``handed_out`` at the last grant."""
    received: int = 0
    """Number of elements received."""
    received_bytes: int = 0
    """Number of bytes received."""
    largest: int = 0
    """Largest number of elements in a block so far."""
    largest_bytes: int = 0
    """Largest number of bytes in a block so far."""
    breaches: int = 0
    """Number of consecutive blocks that exceeded the grant."""
    recall: int = 0
    """Number of the last request to give elements back; 0 for none."""
    kept: int = 0
    """Number of elements of the stream that were kept when it came."""

    def renewed(self) -> CreditWindow:
        """Return a window of the same size for a new stream, with counts at zero."""
        return CreditWindow(self.limit, self.elements, self.bytes)

    def hand_out(self, elements: int) -> None:
        """Count what the training loop has taken."""
        self.handed_out += elements
        self.ends.hand_out(self.handed_out)

    def give_back(self, recall: int, count: int) -> None:
        """Count the last ``count`` elements received as given back to the worker. All
        grants begin anew.
        """
        self.recall, self.kept = recall, self.received - count
        self.received, self.received_bytes = self.kept, self.ends.cut(self.kept)
        self.ends.hand_out(self.handed_out)
        self.granted_elements = self.granted_before = self.granted_bytes = 0

    def widen(self, streams: int, total: int = TOTAL_BYTES) -> None:
        """Double the window because the training loop waits.

        The window holds at least two blocks, within each stream's share of ``total``.
        With room for a single block, the worker would wait for a message after each
        block. Small elements come in blocks of thousands, so doubling alone would reach
        two blocks too slowly.
        """
        most = max(LEAST_BYTES, min(MOST_BYTES, total // max(1, streams)))
        self.elements = min(2 * max(self.elements, self.largest), MOST_ELEMENTS)
        self.bytes = min(2 * max(self.bytes, self.largest_bytes), most)

    def share(self) -> None:
        """Begin with a small window again, because other clients read, too."""
        self.elements = min(self.elements, FIRST_SHARED)

    @property
    def is_used_up(self) -> bool:
        """True if the worker has sent everything that was granted, but for the last
        grant, which may be on its way.
        """
        return self.received >= self.granted_before

    @property
    def grant(self) -> tuple[int, int]:
        """The element and byte counts up to which the worker may send now."""
        elements = self.elements if self.limit is None else min(self.elements, self.limit)
        return self.handed_out + elements, self.ends.handed_bytes + self.bytes

    @property
    def worth_telling(self) -> bool:
        """True if the grant has grown so much that the worker should learn of it at
        once.
        """
        elements, size = self.grant
        return (elements - self.granted_elements) * 4 >= self.elements or (
            size - self.granted_bytes
        ) * 4 >= self.bytes

    @property
    def is_news(self) -> bool:
        """True if the training loop has taken something since the last grant was
        sent.
        """
        return self.handed_out > self.granted_handed_out

    @property
    def outstanding(self) -> int:
        """Number of elements that the worker may send or has sent, and that were not
        handed out.
        """
        return max(self.granted_elements, self.received) - self.handed_out

    def tell(self, most: int | None = None) -> tuple[int, int]:
        """Return the grant and record it as sent. A grant is never withdrawn: the
        worker keeps to the highest.

        Args:
            most: number of elements by which the grant may grow; None for any number.
        """
        self.granted_handed_out = self.handed_out
        elements, size = self.grant
        if most is not None:
            elements = min(elements, max(self.granted_elements, self.received) + most)
        if elements > self.granted_elements:
            self.granted_before = self.granted_elements or elements
        self.granted_elements, self.granted_bytes = (
            max(self.granted_elements, elements),
            max(self.granted_bytes, size),
        )
        return self.granted_elements, self.granted_bytes

    def admits(self, elements: int, size: int) -> bool:
        """Return True if a block lies within the grant. While nothing of the stream is
        outstanding, a block of any size is admitted.
        """
        if size < 0 or self.received >= self.granted_elements:
            return False
        fits = (
            self.received + elements <= self.granted_elements
            and self.received_bytes + size <= self.granted_bytes
        )
        return fits or self.received <= self.handed_out

    def receive(self, elements: int, size: int) -> None:
        """Count a block that was admitted."""
        self.received += elements
        self.received_bytes += size
        self.ends.add(self.received, self.received_bytes)
        self.largest, self.largest_bytes = (
            max(self.largest, elements),
            max(self.largest_bytes, size),
        )
        self.breaches = 0
