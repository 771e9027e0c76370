"""Tests of the decisions of a task as each process keeps them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqdata.decisions import Decision, Decisions


def whole(count: int, grown: int = 9) -> list[Decision]:
    """Return the decisions of a task, the last of them with the given growth."""
    return [
        Decision("/0", 10 * at, 10 * at + (9 if at < count - 1 else grown)) for at in range(count)
    ]


@given(st.data())
def test_what_two_know_comes_together(data: st.DataObject) -> None:
    """Merging adjoining decisions keeps both parts, and the newer entry wins."""
    count = data.draw(st.integers(1, 8))
    base = data.draw(st.integers(0, count))
    length = data.draw(st.integers(base, count))
    known = Decisions(whole(length, grown=data.draw(st.integers(1, 9)))[base:], base)
    first = data.draw(st.integers(0, count))
    told = whole(count)[first:]
    known.take(first, told)
    assert known.length == count or not told
    if told and first <= length:
        assert known.base == min(base, first)
    assert known.entries[-len(told) :] == told if told else True


def test_what_is_known_better_stays() -> None:
    """A repeated message with less progress does not undo decisions."""
    known = Decisions(whole(3))
    known.take(1, whole(2, grown=2)[1:])
    assert known.entries == whole(3)


def test_what_is_far_behind_is_not_taken_up() -> None:
    """Trimmed decisions stay forgotten behind a gap to the known decisions."""
    known = Decisions(whole(9)[5:], 5)
    known.take(0, whole(2))
    assert (known.base, known.length) == (5, 9)


def test_the_forgotten_keep_their_numbers() -> None:
    """Trimming removes the first decisions, and the rest keep their numbers."""
    known = Decisions(whole(5))
    known.trim(3)
    known.trim(1)
    assert (known.base, known.length, known.since(4)) == (3, 5, tuple(whole(5)[4:]))
