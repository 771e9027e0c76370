"""How many elements a pipeline makes before its runner looks at clock, memory and orders again. Pure arithmetic."""

from __future__ import annotations

import math

LONGEST = 1024
SECONDS = 0.001
BYTES = 2 << 20
"""As many as a block of small elements has: to look around after each image takes as long as to make ten of them."""
GLANCE = SECONDS / 32
LONGEST_GLANCE = 32
"""Elements: the next ones may be a thousand times as large as those before, which shows only then."""
OVERDUE = 2 * SECONDS


class Stride:
    """A stride doubles while it is short in time and bytes, and is halved when it was not.

    What comes next may be larger, or take longer, than all before it. To fill memory takes time; so a look at the clock
    after each ``glance``, which costs nothing to speak of, ends a stride that has become too long.

    Attributes:
        length: how many elements to make.
        glance: after how many of them to look at the clock.

    >>> stride = Stride()
    >>> for _ in range(3):
    ...     stride.end(stride.length, seconds=1e-6, size=8)
    >>> stride.length
    8
    >>> stride.end(8, seconds=0.02, size=8)
    >>> stride.length
    1
    """

    def __init__(self) -> None:
        self.length = 1
        self.glance = 1
        self._weight = 0.0

    def within(self, room: int) -> int:
        """How many elements to make where so many bytes are left for them, if they are as large as those before."""
        if not self._weight or room >= self.length * self._weight:
            return self.length
        return max(1, math.ceil(room / self._weight))

    def is_over(self, seconds: float) -> bool:
        """Whether a stride that has taken so long has to end before its length."""
        return seconds > OVERDUE

    def end(self, made: int, seconds: float, size: int) -> None:
        """So many elements were made, of so many bytes in all."""
        self._weight = size / max(1, made)
        if seconds > SECONDS or size > BYTES:
            self.length = max(1, int(self.length / max(2.0, seconds / SECONDS, size / BYTES)))
        elif made == self.length and 2 * seconds < SECONDS and 2 * size < BYTES:
            self.length = min(LONGEST, 2 * self.length)
        self.glance = max(1, min(self.length, LONGEST_GLANCE, int(GLANCE * made / max(seconds, GLANCE))))
