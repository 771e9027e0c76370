"""Facts about what was handed out, and the places to which somebody may go back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.core.client.handedout import HandedOut
from zmqdata.core.ranges import RangeSet
from zmqdata.errors import FailedPreconditionError


def test_the_rest_follows_a_place_in_its_order() -> None:
    """Runs that follow each other are one."""
    passed = HandedOut()
    passed.others_had(7, ((0, 2),))
    for run in ((7, 2, 4), (7, 4, 5), (8, 0, 3), (7, 5, 6)):
        passed.add(*run)
    assert passed.at(2) == ({7: RangeSet([(0, 4)]), 8: RangeSet()}, [(7, 4, 5), (8, 0, 3), (7, 5, 6)])
    assert passed.at(7) == ({7: RangeSet([(0, 6)]), 8: RangeSet([(0, 3)])}, [])


def test_what_nobody_goes_back_to_is_settled() -> None:
    """Up to the middle of a run; the order of that is forgotten."""
    passed = HandedOut()
    passed.add(7, 0, 4)
    passed.add(8, 0, 4)
    passed.settle(6)
    assert (passed.of(7), passed.of(8)) == (RangeSet([(0, 4)]), RangeSet([(0, 2)]))
    assert passed.at(7)[1] == [(8, 3, 4)]
    passed.settle(3)
    assert passed.of(8) == RangeSet([(0, 2)])


def test_nobody_goes_back_behind_what_is_settled() -> None:
    """The order of that is forgotten, so the place is refused."""
    passed = HandedOut()
    passed.add(7, 0, 4)
    passed.settle(3)
    with pytest.raises(FailedPreconditionError, match="to place 2, only to 3 and later"):
        passed.at(2)


def test_what_others_had_counts_but_for_what_may_come_again() -> None:
    """Of the elements before a number, those to which somebody may go back are not settled."""
    passed = HandedOut()
    passed.add(7, 2, 4)
    passed.others_had(7, [(0, 6)])
    assert passed.of(7) == RangeSet([(0, 2), (4, 6)])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=20), st.data())
def test_every_place_says_what_came_before_it(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whatever is settled meanwhile, the elements before a place and the runs behind it are what was handed out."""
    passed, numbers, story = HandedOut(), [0, 0, 0], []
    oldest = 0
    for task, count in runs:
        passed.add(task, numbers[task], numbers[task] + count)
        story += [(task, numbers[task] + at) for at in range(count)]
        numbers[task] += count
        oldest = data.draw(st.integers(oldest, len(story)))
        passed.settle(oldest)
    place = data.draw(st.integers(oldest, len(story)))
    delivered, order = passed.at(place)
    assert passed.count == len(story)
    found = sorted((task, n) for task, ranges in delivered.items() for one in ranges for n in range(*one))
    assert found == sorted(story[:place])
    assert [(task, n) for task, first, stop in order for n in range(first, stop)] == story[place:]
