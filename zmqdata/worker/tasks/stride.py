"""The number of elements that a pipeline produces before its runner checks clock,
memory and commands again. It has no clock.
"""

from __future__ import annotations

import math

from zmqdata.blocks import guessed_size

LONGEST = 1024
"""Maximum number of elements in a stride."""
SECONDS = 0.001
"""Target duration of a stride."""
BYTES = 2 << 20
"""Target size of a stride, the same as of a block of small elements. Checking after
each image would take as long as producing ten of them.
"""
PORTION = 64 << 10
"""Number of bytes, at the expected size of elements, after which their actual size is
checked. Every stride has room for at least this many bytes.
"""
GLANCE = SECONDS / 32
"""Target number of seconds between two checks within a stride."""
LONGEST_GLANCE = 32
"""Maximum number of elements between two checks. The next elements may be a thousand
times larger than earlier ones, which only a check reveals.
"""
OVERDUE = 2 * SECONDS
"""Number of seconds after which a stride ends early."""


class Stride:
    """The adaptive length of strides: doubled while a stride is short in time and
    bytes, and otherwise reduced.

    The next elements may be larger, or take longer, than all before. The runner
    therefore checks after each ``glance``, at negligible cost. A stride that takes too
    long, or fills its room, ends early.

    Attributes:
        length: number of elements to produce.
        glance: number of elements between two checks.

    >>> stride = Stride()
    >>> for _ in range(3):
    ...     stride.end(stride.length, seconds=1e-6, size=8)
    >>> stride.begin(room=1 << 20)
    8
    >>> stride.end(8, seconds=0.02, size=8)
    >>> stride.begin(room=1 << 20)
    1
    """

    def __init__(self) -> None:
        self.length = 1
        self.glance = 1
        self._weight = 0.0
        self._portion = 1
        self._room = self._measured = 0

    def begin(self, room: int) -> int:
        """Return the number of elements to produce when ``room`` bytes are free, if
        they are as large as earlier elements.
        """
        self._room, self._measured = max(PORTION, room), 0
        fit = self.length * self._weight <= self._room
        return self.length if fit else max(1, math.ceil(self._room / self._weight))

    def is_over(self, seconds: float, made: int, last: object) -> bool:
        """Return True if the stride must end early.

        Args:
            seconds: duration of the stride so far.
            made: number of elements produced.
            last: the last element.
        """
        if made - self._measured >= self._portion:
            self._room -= (made - self._measured) * guessed_size(last)
            self._measured = made
        return seconds > OVERDUE or self._room <= 0

    def end(self, made: int, seconds: float, size: int) -> None:
        """Adapt the length to a stride of ``made`` elements and ``size`` bytes."""
        if seconds > SECONDS or size > BYTES:
            self.length = max(1, int(self.length / max(2.0, seconds / SECONDS, size / BYTES)))
        elif made == self.length and 2 * seconds < SECONDS and 2 * size < BYTES:
            self.length = min(LONGEST, 2 * self.length)
        self._weight = max(0, size) / max(1, made)
        self._portion = max(1, int(PORTION / max(1, self._weight)))
        shortly = int(GLANCE * made / max(seconds, GLANCE))
        self.glance = max(1, min(self.length, LONGEST_GLANCE, shortly, self._portion))
