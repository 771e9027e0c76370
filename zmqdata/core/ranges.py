"""Sets of element numbers (delivered, held, to be skipped), kept as sorted, disjoint,
half-open ranges.

See the page on the design.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """A mutable set of non-negative integers that is cheap if its members form few
    runs.

    Args:
        ranges: pairs ``(first, stop)`` in any order; empty ones are ignored.

    Example:
        >>> numbers = RangeSet([(0, 3), (5, 6)])
        >>> numbers.add(3, 5)
        >>> numbers.ranges
        ((0, 6),)
    """

    __slots__ = ("_firsts", "_stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []
        self.update(ranges)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The members as sorted, disjoint, non-adjacent ranges."""
        return tuple(zip(self._firsts, self._stops, strict=True))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.ranges)

    def __len__(self) -> int:
        return sum(self._stops) - sum(self._firsts)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self.ranges == other.ranges

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RangeSet({list(self.ranges)})"

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._stops[at]

    def add(self, first: int, stop: int) -> None:
        """Add ``first <= n < stop``, and join adjacent ranges."""
        if first >= stop:
            return
        low = bisect_left(self._stops, first)
        high = bisect_right(self._firsts, stop)
        if low < high:
            first = min(first, self._firsts[low])
            stop = max(stop, self._stops[high - 1])
        self._firsts[low:high] = [first]
        self._stops[low:high] = [stop]

    def remove(self, first: int, stop: int) -> None:
        """Remove ``first <= n < stop``.

        Example:
            >>> numbers = RangeSet([(0, 9)])
            >>> numbers.remove(3, 5)
            >>> numbers.ranges
            ((0, 3), (5, 9))
        """
        if first >= stop:
            return
        low = bisect_right(self._stops, first)
        high = bisect_left(self._firsts, stop)
        if low >= high:
            return
        pieces = [(self._firsts[low], first), (stop, self._stops[high - 1])]
        left = [(begin, end) for begin, end in pieces if begin < end]
        self._firsts[low:high] = [begin for begin, _ in left]
        self._stops[low:high] = [end for _, end in left]

    def update(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add all of ``ranges``."""
        for first, stop in ranges:
            self.add(first, stop)

    def copy(self) -> RangeSet:
        """Return an independent copy."""
        return RangeSet(self)

    def missing(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return the runs in ``first <= n < stop`` that are not members, in order."""
        gaps = []
        for at in range(bisect_right(self._stops, first), len(self._firsts)):
            if self._firsts[at] >= stop:
                break
            if first < self._firsts[at]:
                gaps.append((first, self._firsts[at]))
            first = max(first, self._stops[at])
        if first < stop:
            gaps.append((first, stop))
        return gaps

    @property
    def beginning(self) -> int:
        """The number of members from 0 on without a gap."""
        return self.ranges[0][1] if 0 in self else 0

    def covers(self, first: int, stop: int) -> bool:
        """Return True if every ``first <= n < stop`` is a member."""
        at = bisect_right(self._firsts, first) - 1  # adjacent ranges are one
        return first >= stop or (at >= 0 and stop <= self._stops[at])
