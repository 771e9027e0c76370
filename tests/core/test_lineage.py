"""Test which states and ledger entries of a task are kept and sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.core.ledger import Ledger
from zmqdata.core.lineage import (
    MOST_KEPT_BYTES,
    MOST_STATE_BYTES,
    MOST_STATES,
    is_believable,
    keep_needed,
    useful_states,
    without_holes,
)
from zmqdata.core.ranges import RangeSet
from zmqdata.decisions import Decision, Decisions
from zmqdata.messages import TaskState
from zmqdata.splits import Split


def states(*numbers: int, size: int = 1) -> list[TaskState]:
    """Return states that each need the entry of their number."""
    return [TaskState(number, b"x" * size, (number,)) for number in numbers]


def numbers_of(found: object) -> list[int]:
    return [state.number for state in found]  # type: ignore[attr-defined]  # states, in a list or a tuple


def ledger(length: int = 100) -> Ledger:
    return Ledger([Split(0, number, number + 1) for number in range(length)])


def kept(
    found: list[TaskState], *delivered: tuple[int, int], is_cache: bool = False
) -> tuple[list[int], int]:
    """Return the numbers of the kept states and of the first kept entry."""
    one = ledger()
    keep_needed(found, [one], Decisions(), RangeSet(delivered), is_cache)
    assert one.length == 100
    return numbers_of(found), one.base


def test_a_state_goes_when_all_before_the_next_one_is_delivered() -> None:
    """The newest state is always kept, and ledger entries that no state needs are
    dropped.
    """
    assert kept(states(10, 20, 30)) == ([10, 20, 30], 0)
    assert kept(states(10, 20, 30), (0, 10)) == ([10, 20, 30], 10)
    assert kept(states(10, 20, 30), (0, 25)) == ([20, 30], 20)
    assert kept(states(10, 20, 30), (0, 99)) == ([30], 30)


def test_a_hole_keeps_the_state_before_it() -> None:
    """A gap in the deliveries keeps the state before it, and drops states between that
    state and the newest states.
    """
    assert kept(states(10, 20, 30, 40), (0, 15), (16, 45)) == ([10, 40], 10)


def test_the_beginning_is_needed_until_all_before_the_first_state_is_delivered() -> None:
    """All entries stay until everything before the first state is delivered, even if
    each state needs later entries.
    """
    assert kept(states(10, 20), (1, 30)) == ([20], 0)


def test_a_hole_in_a_shared_cache_is_nobodys_loss() -> None:
    """All elements of a shared cache up to the last delivered element are over."""
    assert kept(states(10, 20, 30), (5, 7), (24, 25), is_cache=True) == ([20, 30], 20)
    assert without_holes(RangeSet()) == RangeSet()


def test_too_many_states_are_thinned_out() -> None:
    """Beyond a bound the states are thinned out, except the first and the newest."""
    many = states(*range(1, 1000))
    found, _ = kept(many)
    assert len(found) <= MOST_STATES
    assert (found[0], found[-2:]) == (1, [998, 999])
    large = states(*range(1, 13), size=MOST_STATE_BYTES)
    kept(large)
    assert sum(len(state.content) for state in large[:-2]) <= MOST_KEPT_BYTES


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9))),
    st.sets(st.integers(1, 50), min_size=1, max_size=MOST_STATES),
)
def test_what_is_kept_is_enough_for_every_gap(
    delivered: list[tuple[int, int]], places: set[int]
) -> None:
    """Each gap keeps its best state, or the beginning, with its entries, and thinning
    again changes nothing.
    """
    had = RangeSet((first, first + count) for first, count in delivered)
    all_states, one = states(*sorted(places)), ledger()
    found = list(all_states)
    keep_needed(found, [one], Decisions(), had, False)
    gaps = [0] * (0 not in had) + [stop for _, stop in had]
    best = {max((place for place in places if place <= gap), default=0) for gap in gaps}
    assert (
        set(numbers_of(useful_states(all_states, had, None)))
        == best - {0}
        == set(numbers_of(found)) & best
    )
    assert one.base <= min(best)
    again = list(found)
    keep_needed(again, [one], Decisions(), had, False)
    assert again == found


def test_decisions_go_with_the_states_that_need_them() -> None:
    """Decisions that the oldest state does not need are dropped once everything before
    that state is delivered.
    """
    decisions = Decisions([Decision("/0", number, number + 1) for number in range(9)])
    found = [TaskState(10, b"x", (0,), 3), TaskState(20, b"x", (0,), 7)]
    keep_needed(found, [ledger()], decisions, RangeSet([(0, 5)]), False)
    assert decisions.base == 0
    keep_needed(found, [ledger()], decisions, RangeSet([(0, 12)]), False)
    assert (decisions.base, decisions.length, decisions.entries[0].first) == (3, 9, 3)
    keep_needed(found, [ledger()], decisions, RangeSet([(0, 20)]), False)
    assert decisions.base == 7


@pytest.mark.parametrize(
    ("taken", "total", "useful"),
    [
        ([], None, []),
        ([(0, 9)], None, []),
        ([(0, 10)], None, [10]),
        ([(0, 15), (16, 45)], None, [10, 40]),
        ([(0, 15), (16, 45)], 45, [10]),
        ([(5, 45)], None, [40]),
    ],
)
def test_a_host_gets_the_newest_state_before_each_gap(
    taken: list[tuple[int, int]], total: int | None, useful: list[int]
) -> None:
    """A host begins at the first state and skips to the others, and makes nothing
    behind the end.
    """
    assert numbers_of(useful_states(states(10, 20, 30, 40), RangeSet(taken), total)) == useful


@pytest.mark.parametrize(
    ("state", "total", "believed"),
    [
        (TaskState(11, b"", (60,), 2), None, True),
        (TaskState(11, b"", (100,), 5), 11, True),
        (TaskState(10, b"", (60,), 2), None, False),
        (TaskState(12, b"", (60,), 2), 11, False),
        (TaskState(11, b"", (101,), 2), None, False),
        (TaskState(11, b"", (49,), 2), None, False),
        (TaskState(11, b"", (), 2), None, False),
        (TaskState(11, b"", (60,), 1), None, False),
        (TaskState(11, b"", (60,), 6), None, False),
        (TaskState(11, b"x" * (MOST_STATE_BYTES + 1), (60,), 2), None, False),
    ],
)
def test_a_state_must_fit_what_is_known(
    state: TaskState, total: int | None, believed: bool
) -> None:
    """A state must lie behind the known states, need known entries and decisions, and
    have a bounded size.
    """
    one = ledger()
    one.trim(50)
    assert (
        is_believable(
            state, states(10), [one], Decisions([Decision("/0", 0, 9)] * 3, base=2), total
        )
        is believed
    )
