"""Orders of the elements of a source: a permutation in constant memory, and a part of
an order.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, Protocol

import numpy as np

_TOGETHER = 1024
"""Number of places that are permuted together."""
_ROUNDS = 8
"""Rounds of the network."""


class Order(Protocol):
    """An order of numbers."""

    @property
    def seed(self) -> int:
        """Seed of the order."""

    def __getitem__(self, place: int) -> int: ...

    def many(self, places: range) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers at several places."""


class LaterPart:
    """The places of an order from one of them on.

    >>> LaterPart(Permutation(9, seed=1), 2)[3] == Permutation(9, seed=1)[5]
    True
    """

    def __init__(self, order: Order, first: int) -> None:
        self.seed, self._order, self._first = order.seed, order, first

    def __getitem__(self, place: int) -> int:
        return self._order[self._first + place]

    def many(self, places: range) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers at several places."""
        first = self._first
        return self._order.many(range(places.start + first, places.stop + first, places.step))


class Permutation:
    """Permutation of ``range(count)`` that follows from a seed, in constant memory.

    A Feistel network permutes the smallest square that holds the range. A number that
    falls outside of the range goes through the network again until it falls inside.

    Attributes:
        seed: the seed.

    >>> order = Permutation(5, seed=1)
    >>> sorted(order[place] for place in range(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, count: int, seed: int) -> None:
        self.seed = seed
        self._count = count
        self._side = np.uint64(isqrt(max(count - 1, 0)) + 1)
        keys = np.random.PCG64(seed).random_raw(_ROUNDS)
        self._keys = [np.uint64(key) for key in keys.tolist()]
        self._first = -1
        self._group: list[int] = []

    def __getitem__(self, place: int) -> int:
        if place >= self._count:
            raise IndexError(place)
        first = place - place % _TOGETHER
        if first != self._first:
            self._group = self._permuted(
                np.arange(first, min(first + _TOGETHER, self._count), dtype=np.uint64)
            ).tolist()
            self._first = first
        return self._group[place - first]

    def many(self, places: range) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers at several places.

        >>> order = Permutation(5, seed=1)
        >>> order.many(range(1, 4, 2)).tolist() == [order[1], order[3]]
        True
        """
        found = self._permuted(np.arange(places.start, places.stop, places.step, dtype=np.uint64))
        return found.astype(np.int64)

    def _permuted(
        self, places: np.ndarray[Any, np.dtype[np.uint64]]
    ) -> np.ndarray[Any, np.dtype[np.uint64]]:
        found = self._through(places)
        while True:
            outside = np.flatnonzero(found >= self._count)
            if not len(outside):
                return found
            found[outside] = self._through(found[outside])

    def _through(
        self, numbers: np.ndarray[Any, np.dtype[np.uint64]]
    ) -> np.ndarray[Any, np.dtype[np.uint64]]:
        side, half = self._side, np.uint64(32)
        left, right = numbers // side, numbers % side
        for key in self._keys:
            mixed = (right + key) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> half
            mixed *= np.uint64(0xD6E8FEB86659FD93)
            mixed >>= half
            # the added number is below ``side``, because ``side`` < 2**32
            left += mixed * side >> half
            left -= side * (left >= side)
            left, right = right, left
        return left * side + right
