"""Tests of ``zmqdata.iterators.tuning``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.iterators.tuning import BufferSize, TunedSize, Tuner, byte_size


def drive(tuner: Tuner, rate: Callable[[int], float], seconds: float, now: float = 0.0) -> float:
    """Hand out elements at the rate that so many threads reach, for some time."""
    stop = now + seconds
    while now < stop:
        now += 1 / rate(tuner.size)
        tuner.note(now)
    return now


@pytest.mark.parametrize("best", [1, 2, 3, 5, 8])
def test_it_settles_where_more_threads_bring_nothing(best: int) -> None:
    """With a rate that grows up to so many threads, it ends at about that many."""
    tuner = Tuner(8)
    drive(tuner, lambda size: 1000.0 * min(size, best), 10)
    assert tuner.settled
    assert best <= tuner.size <= best + 2


def test_it_stays_within_its_bound() -> None:
    """However much a further thread would bring, the bound is kept."""
    tuner = Tuner(3)
    drive(tuner, lambda size: 500.0 * size, 10)
    assert (tuner.size, tuner.settled) == (3, True)
    assert Tuner(1).settled


def test_it_begins_again_when_the_load_changes() -> None:
    """A function that became slower gets more threads, one that became faster fewer."""
    tuner = Tuner(8)
    now = drive(tuner, lambda size: 1000.0 * min(size, 2), 10)
    few = tuner.size
    now = drive(tuner, lambda size: 100.0 * size, 30, now)
    assert tuner.size > few
    many = tuner.size
    drive(tuner, lambda size: 5000.0, 30, now)
    assert tuner.size < many


def test_slow_elements_are_measured_over_more_time() -> None:
    """A period has some elements in it, however slow they are."""
    tuner = Tuner(8)
    assert not any(tuner.note(float(second)) for second in range(15))
    assert tuner.note(16.0)


def test_a_buffer_grows_when_it_was_full_and_is_empty() -> None:
    """Each time that both happened the size doubles, up to a bound."""
    size = TunedSize(2**40)
    sizes = []
    for _ in range(14):
        size.found_full()
        size.found_empty()
        sizes.append((size.most, size.low))
    assert sizes[:3] == [(8, 4), (16, 8), (32, 16)]
    assert sizes[-1] == sizes[-2] == (4096, 2048)


@pytest.mark.parametrize("found", ["found_full", "found_empty"])
def test_a_buffer_on_one_side_only_stays(found: str) -> None:
    """Always full: larger would be of no use. Never full: what is missing is speed, not
    room.
    """
    size = TunedSize(2**40)
    for _ in range(100):
        getattr(size, found)()
    assert size.most == 4


@given(st.integers(1, 5000), st.lists(st.integers(0, 3000), min_size=1))
def test_a_buffer_keeps_to_its_bytes(budget: int, lengths: list[int]) -> None:
    """As many elements as fit, by the first of every 16; one at least."""
    size = TunedSize(budget)
    for number, length in enumerate(lengths):
        size.note(b"x" * length)
        size.found_full()
        size.found_empty()
        if number % 16 == 0:
            assert size.most == 1 or size.most * length <= budget


def test_a_given_size_stays() -> None:
    """What the user said is not changed by what is found."""
    size = BufferSize(5)
    size.found_full()
    size.found_empty()
    size.note(b"x" * 10**6)
    assert (size.most, size.low) == (5, 2)


def test_sizes_are_those_of_the_leaves() -> None:
    """Arrays count their bytes, texts their letters, other objects a little."""
    assert byte_size(({"x": np.zeros(3)}, b"ab", 5)) == 24 + 2 + 32
