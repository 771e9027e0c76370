"""How many elements a pipeline makes before its runner looks at clock, memory and
orders again. No clock is here.
"""

from __future__ import annotations

import math

from zmqdata.blocks import guessed_size

LONGEST = 1024
SECONDS = 0.001
BYTES = 2 << 20
"""As many as a block of small elements has: to look around after each image takes as
long as to make ten of them.
"""
PORTION = 64 << 10
"""Bytes, if elements are like those before, after which one looks how large they are
now. A stride has room for so many at least.
"""
GLANCE = SECONDS / 32
LONGEST_GLANCE = 32
"""Elements: the next ones may be a thousand times as large as those before, which shows
only then.
"""
OVERDUE = 2 * SECONDS


class Stride:
    """A stride doubles while it is short in time and bytes, and is halved when it was
    not.

    What comes next may be larger, or take longer, than all before it. So one looks
    after each ``glance``, which costs nothing to speak of, and a stride ends that takes
    too long, or fills its room.

    Attributes:
        length: how many elements to make.
        glance: after how many of them to ask whether it is over.

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
        """How many elements to make where there is room for so many bytes, if they are
        as large as those before.
        """
        self._room, self._measured = max(PORTION, room), 0
        fit = self.length * self._weight <= self._room
        return self.length if fit else max(1, math.ceil(self._room / self._weight))

    def is_over(self, seconds: float, made: int, last: object) -> bool:
        """Whether it has to end before its length.

        Args:
            seconds: that it has taken.
            made: how many elements there are.
            last: the last one of them.
        """
        if made - self._measured >= self._portion:
            self._room -= (made - self._measured) * guessed_size(last)
            self._measured = made
        return seconds > OVERDUE or self._room <= 0

    def end(self, made: int, seconds: float, size: int) -> None:
        """So many elements were made, of so many bytes in all."""
        if seconds > SECONDS or size > BYTES:
            self.length = max(1, int(self.length / max(2.0, seconds / SECONDS, size / BYTES)))
        elif made == self.length and 2 * seconds < SECONDS and 2 * size < BYTES:
            self.length = min(LONGEST, 2 * self.length)
        self._weight = max(0, size) / max(1, made)
        self._portion = max(1, int(PORTION / max(1, self._weight)))
        shortly = int(GLANCE * made / max(seconds, GLANCE))
        self.glance = max(1, min(self.length, LONGEST_GLANCE, shortly, self._portion))
