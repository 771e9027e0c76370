"""How many elements a pipeline makes before its runner looks at clock, memory and orders again. Pure arithmetic."""

from __future__ import annotations

LONGEST = 1024
SECONDS = 0.001
BYTES = 256 << 10
GLANCE = SECONDS / 32
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

    def is_over(self, seconds: float) -> bool:
        """Whether a stride that has taken so long has to end before its length."""
        return seconds > OVERDUE

    def end(self, made: int, seconds: float, size: int) -> None:
        """So many elements were made, of so many bytes in all."""
        if seconds > SECONDS or size > BYTES:
            self.length = max(1, int(self.length / max(2.0, seconds / SECONDS, size / BYTES)))
        elif made == self.length and 2 * seconds < SECONDS and 2 * size < BYTES:
            self.length = min(LONGEST, 2 * self.length)
        self.glance = max(1, min(self.length, int(GLANCE * made / max(seconds, GLANCE / LONGEST))))
