"""Pure allocator of the slots of a shared memory. Bytes, files and mappings live in
``memory``.
"""

from __future__ import annotations

import mmap
from bisect import insort
from typing import NamedTuple

PAGE = mmap.PAGESIZE
"""Slots begin and end at multiples of the page size, so that no two slots share a
page.
"""
MOST_SLOTS = 4096
"""Limit of slots in use at the same time; the table of turns has room for this many."""


class Taken(NamedTuple):
    """A slot in use: the bytes ``start ... stop - 1``."""

    number: int
    """Number of the slot; a freed number is used again."""
    turn: int
    """Number of this use; no other use of any slot has the same."""
    start: int
    """Offset of the first byte."""
    stop: int
    """Offset behind the last byte."""


class Slots:
    """First-fit allocator of the slots of a memory.

    The lowest free bytes are given first, since the processor's caches most likely hold
    them.

    Args:
        size: bytes of the memory.
        most: limit of slots in use at the same time.

    Attributes:
        taken: the slots in use, by number.

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
        """Allocate a slot of at least ``nbytes``; return None if no gap or number is
        free.
        """
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
        """Free a slot and merge its bytes with the neighbouring gaps."""
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
        """Limit the memory to its first ``size`` bytes.

        Free bytes behind that are never allocated; slots in use stay valid.
        """
        self._gaps = [(start, min(stop, size)) for start, stop in self._gaps if start < size]
