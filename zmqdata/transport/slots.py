"""Which part of a shared memory is whose: a pure allocator of slots. Bytes, files and
mappings are in ``memory``.
"""

from __future__ import annotations

import mmap
from bisect import insort
from typing import NamedTuple

PAGE = mmap.PAGESIZE
"""Slots begin and end at multiples of it, so that no page belongs to two."""
MOST_SLOTS = 4096


class Taken(NamedTuple):
    """A slot in use: bytes ``start ... stop - 1`` under a number, in a turn that no
    other use of any slot has.
    """

    number: int
    turn: int
    start: int
    stop: int


class Slots:
    """The slots of one memory: the lowest free bytes are given first, since those are
    the warmest.

    Args:
        size: bytes of the memory.
        most: slots that can be in use at the same time.

    Attributes:
        taken: those in use by their numbers.

    >>> slots = Slots(3 * PAGE)
    >>> taken = slots.take(PAGE + 1)
    >>> taken.number, taken.turn, taken.start, taken.stop // PAGE
    (0, 1, 0, 2)
    >>> slots.take(2 * PAGE) is None
    True
    >>> slots.free(taken.number)
    >>> slots.take(3 * PAGE).turn
    2
    """

    def __init__(self, size: int, most: int = MOST_SLOTS) -> None:
        self.taken: dict[int, Taken] = {}
        self._gaps = [(0, size - size % PAGE)] if size >= PAGE else []
        self._numbers = [*reversed(range(most))]
        self._turns = 0

    def take(self, nbytes: int) -> Taken | None:
        """A slot of at least so many bytes; None when there is none."""
        size = max(PAGE, -(-nbytes // PAGE) * PAGE)
        if not self._numbers:
            return None
        for place, (start, stop) in enumerate(self._gaps):
            if stop - start >= size:
                self._gaps[place : place + 1] = (
                    [(start + size, stop)] if stop - start > size else []
                )
                self._turns += 1
                taken = Taken(self._numbers.pop(), self._turns, start, start + size)
                self.taken[taken.number] = taken
                return taken
        return None

    def free(self, number: int) -> None:
        """A slot is not in use any more."""
        taken = self.taken.pop(number)
        self._numbers.append(number)
        insort(self._gaps, (taken.start, taken.stop))
        joined: list[tuple[int, int]] = []
        for start, stop in self._gaps:
            if joined and joined[-1][1] == start:
                start = joined.pop()[0]
            joined.append((start, stop))
        self._gaps = joined

    def end_at(self, size: int) -> None:
        """There is no memory behind so many bytes: what is free of it is never taken,
        what is in use stays so.
        """
        self._gaps = [(start, min(stop, size)) for start, stop in self._gaps if start < size]
