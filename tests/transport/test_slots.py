"""Tests of the allocator of slots."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from zmqdata.transport.slots import PAGE, Slots

PAGES = 20
MOST = 6


class Allocating(RuleBasedStateMachine):
    """An allocator whose slots never overlap, and that fails only without room."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = Slots(PAGES * PAGE + 17, MOST)
        self.end = PAGES
        self.turns: set[int] = set()

    def used(self) -> set[int]:
        return {
            page
            for one in self.slots.taken.values()
            for page in range(one.start // PAGE, one.stop // PAGE)
        }

    def longest_gap(self) -> int:
        longest = run = 0
        for page in range(self.end):
            run = 0 if page in self.used() else run + 1
            longest = max(longest, run)
        return longest

    @rule(nbytes=st.integers(1, 8 * PAGE))
    def take(self, nbytes: int) -> None:
        """Allocate a slot of minimal length and a new turn, or none if no gap fits."""
        count, gap, before = len(self.slots.taken), self.longest_gap(), self.used()
        taken = self.slots.take(nbytes)
        pages = -(-nbytes // PAGE)
        assert (taken is None) == (count == MOST or gap < pages)
        if taken is not None:
            assert (taken.stop - taken.start) == pages * PAGE
            assert taken.start % PAGE == 0
            assert before.isdisjoint(range(taken.start // PAGE, taken.stop // PAGE))
            assert 0 <= taken.number < MOST
            assert taken.turn not in self.turns
            self.turns.add(taken.turn)

    @rule(which=st.integers(0, MOST))
    def free(self, which: int) -> None:
        """Free a slot, so that its pages can be allocated again."""
        numbers = sorted(self.slots.taken)
        if which < len(numbers):
            self.slots.free(numbers[which])

    @rule(pages=st.integers(0, PAGES))
    def end_at(self, pages: int) -> None:
        """Shrink the memory if no page beyond the new end is in use."""
        if not any(page >= pages for page in self.used()):
            self.slots.end_at(pages * PAGE)
            self.end = min(self.end, pages)

    @invariant()
    def slots_are_disjoint(self) -> None:
        """Assert that no page belongs to two slots or lies beyond the end."""
        total = sum(one.stop - one.start for one in self.slots.taken.values())
        assert len(self.used()) * PAGE == total
        assert all(page < self.end for page in self.used())


TestAllocating = Allocating.TestCase


def test_the_lowest_room_is_given_first() -> None:
    """The allocator reuses the lowest free pages first."""
    slots = Slots(10 * PAGE)
    first, second = slots.take(2 * PAGE), slots.take(PAGE)
    assert first is not None
    assert second is not None
    slots.free(first.number)
    again = slots.take(PAGE)
    assert again is not None
    assert (again.start, again.number) == (0, first.number)


def test_less_than_a_page_holds_nothing() -> None:
    """A memory smaller than a page has no slots."""
    assert Slots(PAGE - 1).take(1) is None
