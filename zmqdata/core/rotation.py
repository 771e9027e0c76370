"""Some of many at a time, all of them in turn. What must be said of thousands, and not
at once, is said so.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, islice


class Rotation:
    """Goes round a collection that may change meanwhile.

    Args:
        most: how many are taken at a time.

    Example:
        >>> rotation = Rotation(2)
        >>> [rotation.take("abc") for _ in range(3)]
        [('a', 'b'), ('c', 'a'), ('b', 'c')]
        >>> rotation.take("a")
        ('a',)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = 0

    def take(self, names: Collection[str]) -> tuple[str, ...]:
        """The next ones, all when there are no more than that; each of those that stay
        comes once in a round.
        """
        if len(names) <= self._most:
            return tuple(names)
        first = self._next % len(names)
        self._next = first + self._most
        return tuple(islice(chain(names, names), first, self._next))
