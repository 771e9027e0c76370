"""Measurement at run time of the thread counts and buffer sizes of AUTOTUNE. The caller
passes the time in.

The threads themselves belong to ``crew`` and ``prefetch``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zmqdata.elements.nesting import leaves_of
from zmqdata.elements.unpadded import size_of_texts
from zmqdata.peeking import peek

RAM_BUDGET = 1 << 29
"""Bytes that an operation with AUTOTUNE may hold in elements that are ready and not yet
returned.
"""

_PERIOD = 0.2  # seconds over which a rate is measured
_LEAST = 16  # least number of elements in such a period
_WORTH = 1.05  # least factor that another thread must gain
_CHANGED = 0.3  # relative change of the rate that starts a new measurement
_PATIENCE = 3  # periods that the change must last

_FIRST = 4  # initial size of a buffer, in elements
_LARGEST = 4096  # largest size of a buffer, in elements
_LOOK_EVERY = 16  # elements after which the size of an element is measured again


class Tuner:
    """Hill climber for a number of threads: adds threads while the rate rises, then
    stays; begins again when the load changes.

    Args:
        most: largest number of threads.

    >>> tuner = Tuner(4)
    >>> tuner.size
    1
    """

    def __init__(self, most: int) -> None:
        self.size = 1
        self.settled = most == 1
        self._most = most
        self._best = (0.0, 1)
        self._elements = 0
        self._since: float | None = None
        self._strange = 0

    def note(self, now: float) -> bool:
        """Record that an element was returned; return True if ``size`` changed."""
        self._elements += 1
        if self._since is None:
            self._since = now
        if now - self._since < _PERIOD or self._elements < _LEAST:
            return False
        rate = self._elements / (now - self._since)
        self._elements, self._since = 0, now
        before = self.size
        if self.settled:
            self._watch(rate)
        else:
            self._climb(rate)
        return self.size != before

    def _climb(self, rate: float) -> None:
        best, size = self._best
        if rate < best * _WORTH:
            self.size, self.settled = size, True
            return
        self._best = (rate, self.size)
        if self.size == self._most:
            self.settled = True
        self.size = min(self._most, max(self.size + 1, self.size * 3 // 2))

    def _watch(self, rate: float) -> None:
        best, _ = self._best
        self._strange = self._strange + 1 if abs(rate - best) > _CHANGED * best else 0
        if self._strange >= _PATIENCE:
            self._strange, self.settled = 0, self._most == 1
            self.size = max(1, self.size // 2)
            self._best = (0.0, self.size)


class BufferSize:
    """Fixed size of a prefetch buffer, in elements.

    Attributes:
        most: number of buffered elements at which pulling pauses.
        low: number of buffered elements at or below which pulling resumes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.low = most // 2

    def note(self, element: Any) -> None:
        """Record that an element was put into the buffer."""

    def found_full(self) -> None:
        """Record that pulling pauses."""

    def found_empty(self) -> None:
        """Record that the consumer waits."""


class TunedSize(BufferSize):
    """Buffer size that doubles when the consumer finds a buffer empty that was full
    before.

    A buffer that was never full would not be fuller if it were larger. A buffer that is
    never empty is large enough.

    Args:
        most_bytes: largest size of the buffered elements, in bytes.

    >>> size = TunedSize(most_bytes=1000)
    >>> size.found_full(); size.found_empty(); size.most
    8
    >>> size.note(b"x" * 300); size.most
    3
    """

    def __init__(self, most_bytes: int) -> None:
        super().__init__(_FIRST)
        self._most_bytes = most_bytes
        self._wanted = _FIRST
        self._was_full = False
        self._noted = 0
        self._bytes = 1  # size of an element

    def note(self, element: Any) -> None:
        self._noted += 1
        if self._noted % _LOOK_EVERY == 1:
            self._bytes = max(1, byte_size(element), self._bytes * 7 // 8)
            self._bound()

    def found_full(self) -> None:
        self._was_full = True

    def found_empty(self) -> None:
        if self._was_full:
            self._was_full = False
            self._wanted = min(2 * self.most, _LARGEST)
            self._bound()

    def _bound(self) -> None:
        self.most = max(1, min(self._wanted, self._most_bytes // self._bytes))
        self.low = self.most // 2


def byte_size(element: Any) -> int:
    """Estimate the size of an element in bytes.

    >>> import numpy as np
    >>> byte_size({"x": np.zeros(10), "y": "abc"})
    83
    """
    size = 0
    for leaf in element.values() if type(element) is dict else (element,):
        if type(leaf) is not np.ndarray or leaf.dtype.kind not in "biufc":
            return sum(map(_leaf_size, leaves_of(element, in_lists=True)))
        size += leaf.nbytes
    return size


def _leaf_size(leaf: Any) -> int:
    size = peek(leaf, "nbytes")
    if size is None:
        size = len(leaf) if isinstance(leaf, (str, bytes)) else 32
    return int(size) + size_of_texts(peek(leaf, "flat_values", leaf))
