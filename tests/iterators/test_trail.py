"""Tests of ``zmqdata.iterators.trail``: which states are noted, and which elements
restoring pulls again.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.base import ElementIterator
from zmqdata.iterators.states import NO_STATE, holds_no_state
from zmqdata.iterators.trail import _MOST_MARKS, Trail


class Letters(ElementIterator):
    """Yield ``"e0"``, ``"e1"``, ..., some of which fail, and count the calls of
    state().
    """

    def __init__(self, stop: int = 1000, failing: frozenset[int] = frozenset()) -> None:
        self.stop = stop
        self.failing = failing
        self.place = 0
        self.asked: list[int] = []

    def __next__(self) -> str:
        if self.place >= self.stop:
            raise StopIteration
        self.place += 1
        if self.place - 1 in self.failing:
            raise ValueError(self.place - 1)
        return f"e{self.place - 1}"

    def state(self) -> int:
        self.asked.append(self.place)
        return self.place

    def restore(self, state: int) -> None:
        self.place = state


class Owner:
    """An owner whose trail calls a method of the owner."""

    def __init__(self) -> None:
        self.trail = Trail(Letters(), 2, self.oldest)

    def oldest(self) -> int:
        return self.trail.pulled


class Held:
    """A trail over letters with the number of the oldest element that is held."""

    def __init__(self, every: int = 4, **source: Any) -> None:
        self.oldest = 0
        self.source = Letters(**source)
        self.trail = Trail(self.source, every, lambda: self.oldest)

    def pull(self, count: int) -> list[Any]:
        return [self.trail.pull() for _ in range(count)]


def pulled_to(number: int, **arguments: Any) -> Held:
    held = Held(**arguments)
    for _ in range(number):
        try:
            held.trail.pull()
        except ValueError:
            continue
    return held


def test_elements_are_numbered_as_they_come() -> None:
    """The trail passes on the elements of its input, and knows the number of the
    next.
    """
    held = Held()
    assert held.pull(3) == ["e0", "e1", "e2"]
    assert held.trail.pulled == 3


def test_a_failing_element_has_a_number_too() -> None:
    """A failure passes through and counts, so that the next element keeps its
    number.
    """
    held = Held(failing=frozenset({1}))
    held.pull(1)
    with pytest.raises(ValueError, match="1"):
        held.trail.pull()
    assert held.trail.pulled == 2
    assert held.pull(1) == ["e2"]


def test_the_end_has_no_number() -> None:
    """The count stays, however often an ended input is asked."""
    held = Held(stop=2)
    held.pull(2)
    for _ in range(3):
        with pytest.raises(StopIteration):
            held.trail.pull()
    assert held.trail.pulled == 2


def test_states_are_noted_every_so_many_pulls() -> None:
    """The input is asked for its state before the first element and then every few, not
    at each pull.
    """
    held = Held(every=4)
    held.pull(10)
    assert held.source.asked == [0, 4, 8]


def test_where_nothing_is_held_the_state_is_that_of_the_input() -> None:
    """No element has to be pulled again then."""
    held = Held()
    assert held.trail.state() == [0, 0, 0]
    held.pull(6)
    held.oldest = 6
    assert held.trail.state() == [6, 6, 6]


@pytest.mark.parametrize(("oldest", "first"), [(0, 0), (3, 0), (4, 4), (7, 4), (8, 8), (9, 8)])
def test_what_is_held_is_pulled_from_the_last_state_before_it(oldest: int, first: int) -> None:
    """A state begins at the newest noted place from which all held elements come
    again.
    """
    held = Held(every=4)
    held.pull(10)
    held.oldest = oldest
    assert held.trail.state() == [first, first, 10]


def test_what_is_wanted_comes_again() -> None:
    """Restoring returns the elements with the wanted numbers, and puts the trail at the
    same place.
    """
    held = Held(every=4)
    held.pull(10)
    held.oldest = 5
    again = Held(every=4)
    assert again.trail.restore(held.trail.state(), {5, 8}) == {5: "e5", 8: "e8"}
    assert again.trail.pulled == 10
    assert again.pull(2) == ["e10", "e11"]


def test_a_restored_trail_can_tell_its_state_again() -> None:
    """States are noted anew while restoring, so that the next state needs no more than
    the first.
    """
    held = Held(every=4)
    held.pull(10)
    held.oldest = 5
    again = Held(every=4)
    again.oldest = 5
    again.trail.restore(held.trail.state(), {5})
    assert again.trail.state() == held.trail.state()


def test_failures_do_not_come_again() -> None:
    """Failures were reported before the state was taken, so restoring skips them."""
    held = pulled_to(6, failing=frozenset({0, 3, 5}))
    again = Held(failing=frozenset({0, 3, 5}))
    assert again.trail.restore(held.trail.state(), {2, 3, 4}) == {2: "e2", 4: "e4"}
    assert again.trail.pulled == 6


def test_a_shorter_input_is_told_from_the_one_of_the_state() -> None:
    """An input that ends before the place of the state is another input, and the error
    names both numbers.
    """
    held = Held()
    held.pull(6)
    with pytest.raises(FailedPreconditionError, match="has 2 elements now and had 6 or more"):
        Held(stop=2).trail.restore(held.trail.state(), {1})


def test_an_element_held_for_long_does_not_pile_up_states() -> None:
    """The number of noted states is limited. Their distance grows, and the first is
    kept as long as it is needed.
    """
    held = Held(every=1, stop=10_000)
    for _ in range(5_000):
        held.trail.pull()
        assert len(held.trail._marks) <= _MOST_MARKS
    assert held.trail.state() == [0, 0, 5_000]
    held.oldest = 4_999
    first, inner, pulled = held.trail.state()
    assert first == inner <= 4_999
    assert pulled == 5_000


def test_what_is_no_longer_held_is_forgotten() -> None:
    """States before the oldest held element are dropped as pulling continues."""
    held = Held(every=1)
    for number in range(500):
        held.oldest = max(0, number - 3)
        held.trail.pull()
        assert len(held.trail._marks) <= 6


@given(
    every=st.integers(1, 9),
    window=st.integers(0, 20),
    pulls=st.integers(0, 300),
    failing=st.frozensets(st.integers(0, 300), max_size=20),
)
def test_any_state_restores_all_that_is_held(
    every: int, window: int, pulls: int, failing: frozenset[int]
) -> None:
    """A new trail finds all held elements, whatever is held, failed or noted, and
    continues with the same element.
    """
    held = pulled_to(pulls, every=every, failing=failing)
    held.oldest = max(0, pulls - window)
    wanted = set(range(held.oldest, pulls))
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(held.trail.state()))
    again = Held(every=every, failing=failing)
    again.oldest = held.oldest
    assert again.trail.restore(saved, wanted) == {
        number: f"e{number}" for number in wanted - failing
    }
    assert again.trail.pulled == pulls
    assert again.source.place == held.source.place
    assert saved[0] <= held.oldest or not wanted


class Stateless(Letters):
    """An input without a state, like an iterator over a distributed dataset."""

    def state(self) -> Any:
        return NO_STATE


def test_without_states_a_trail_still_pulls() -> None:
    """An input without a state can be read, and the trail's state is the missing
    state.
    """
    trail = Trail(Stateless(), 4, lambda: 0)
    assert [trail.pull() for _ in range(9)] == [f"e{number}" for number in range(9)]
    assert holds_no_state(trail.state())


def test_whoever_holds_a_trail_goes_with_his_last_user() -> None:
    """No cycle of references, with files and locks in it, waits for the garbage
    collector.
    """
    owner = Owner()
    assert [owner.trail.pull() for _ in range(3)] == ["e0", "e1", "e2"]
    trail, reference = owner.trail, weakref.ref(owner)
    del owner
    assert reference() is None
    assert [trail.pull() for _ in range(3)] == ["e3", "e4", "e5"]


def test_a_state_can_be_taken_right_behind_a_restored_one() -> None:
    """No mark before a held element may be dropped while it is pulled again, as its
    owner does not know of it yet.
    """
    held = Held(every=2)
    for _ in range(20):
        held.trail.pull()
    held.oldest = 5
    saved = held.trail.state()
    again = Held(every=2)
    again.oldest = 1000  # like an owner that holds nothing
    again.trail.restore(saved, {5, 17})
    again.oldest = 5
    assert again.trail.state()[0] <= 5
    assert again.trail.state()[2] == 20


def test_an_element_that_fails_now_is_told() -> None:
    """Access to an element that succeeded before and fails now raises its error. An
    earlier failure may fail again.
    """
    held = Held(failing=frozenset({1}))
    for _ in range(3):
        with contextlib.suppress(ValueError):
            held.trail.pull()
    again = Held(failing=frozenset({1, 2})).trail.restore(held.trail.state(), {0, 1, 2})
    assert again == {0: "e0"}
    with pytest.raises(
        FailedPreconditionError, match="Element 2 of the input was produced before"
    ) as told:
        again[2]
    assert isinstance(told.value.__cause__, ValueError)
