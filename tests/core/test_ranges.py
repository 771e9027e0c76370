"""Test sets of element numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqdata.core.ranges import RangeSet

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)))


def members(ranges: list[tuple[int, int]]) -> set[int]:
    return {n for first, stop in ranges for n in range(first, stop)}


@given(pairs)
def test_equals_a_plain_set(ranges: list[tuple[int, int]]) -> None:
    """A range set has exactly the members of the added ranges, in any order and
    overlap.
    """
    found = RangeSet(ranges)
    expected = members(ranges)
    assert members(list(found)) == expected
    assert len(found) == len(expected)
    assert bool(found) == bool(expected)
    assert all((n in found) == (n in expected) for n in range(41))


@given(pairs)
def test_normal_form(ranges: list[tuple[int, int]]) -> None:
    """Ranges are sorted and never touch, so equal sets compare equal."""
    found = RangeSet(ranges)
    assert all(
        left[1] < right[0] for left, right in zip(found.ranges, found.ranges[1:], strict=False)
    )
    assert found == found.copy() == RangeSet((n, n + 1) for n in members(ranges))
    assert found != "something else"


@given(pairs, st.integers(0, 40), st.integers(0, 40))
def test_missing_is_the_complement(ranges: list[tuple[int, int]], first: int, stop: int) -> None:
    """The missing ranges of an interval are the interval without the members."""
    found = RangeSet(ranges)
    gaps = found.missing(first, stop)
    assert members(gaps) == set(range(first, stop)) - members(ranges)
    assert found.covers(first, stop) == (not gaps)


def test_repr_shows_the_ranges() -> None:
    """The text of a range set names its ranges."""
    assert repr(RangeSet([(2, 4), (0, 1)])) == "RangeSet([(0, 1), (2, 4)])"


@given(pairs, st.integers(0, 40), st.integers(0, 40))
def test_removing_is_the_difference(ranges: list[tuple[int, int]], first: int, stop: int) -> None:
    """Removing an interval leaves exactly the members outside of it."""
    found = RangeSet(ranges)
    found.remove(first, stop)
    assert found == RangeSet((n, n + 1) for n in members(ranges) - set(range(first, stop)))
