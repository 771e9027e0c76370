"""Tests of ``zmqdata.iterators.tuning``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.elements.ragged import RaggedTensor
from zmqdata.iterators.tuning import BufferSize, TunedSize, Tuner, byte_size


def drive(tuner: Tuner, rate: Callable[[int], float], seconds: float, now: float = 0.0) -> float:
    """Yield elements for some time, at the rate that the number of threads reaches."""
    stop = now + seconds
    while now < stop:
        now += 1 / rate(tuner.size)
        tuner.note(now)
    return now


@pytest.mark.parametrize("best", [1, 2, 3, 5, 8])
def test_it_settles_where_more_threads_bring_nothing(best: int) -> None:
    """If the rate grows up to a number of threads, tuning settles at about that
    number.
    """
    tuner = Tuner(8)
    drive(tuner, lambda size: 1000.0 * min(size, best), 10)
    assert tuner.settled
    assert best <= tuner.size <= best + 2


def test_it_stays_within_its_bound() -> None:
    """Tuning keeps its bound, however much a further thread would gain."""
    tuner = Tuner(3)
    drive(tuner, lambda size: 500.0 * size, 10)
    assert (tuner.size, tuner.settled) == (3, True)
    assert Tuner(1).settled


def test_it_begins_again_when_the_load_changes() -> None:
    """A function that becomes slower gets more threads, and a function that becomes
    faster gets fewer.
    """
    tuner = Tuner(8)
    now = drive(tuner, lambda size: 1000.0 * min(size, 2), 10)
    few = tuner.size
    now = drive(tuner, lambda size: 100.0 * size, 30, now)
    assert tuner.size > few
    many = tuner.size
    drive(tuner, lambda size: 5000.0, 30, now)
    assert tuner.size < many


def test_slow_elements_are_measured_over_more_time() -> None:
    """A period contains several elements, however slow they are."""
    tuner = Tuner(8)
    assert not any(tuner.note(float(second)) for second in range(15))
    assert tuner.note(16.0)


def test_a_buffer_grows_when_it_was_full_and_is_empty() -> None:
    """The size doubles each time that the buffer was full and then is empty, up to a
    bound.
    """
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
    """If the buffer is always full, a larger size is of no use. If it is never full, it
    lacks speed, not room.
    """
    size = TunedSize(2**40)
    for _ in range(100):
        getattr(size, found)()
    assert size.most == 4


@given(st.integers(1, 5000), st.lists(st.integers(0, 3000), min_size=1))
def test_a_buffer_keeps_to_its_bytes(budget: int, lengths: list[int]) -> None:
    """The buffer holds as many elements as fit, measured by the first of every 16, and
    at least one.
    """
    size = TunedSize(budget)
    for number, length in enumerate(lengths):
        size.note(b"x" * length)
        size.found_full()
        size.found_empty()
        if number % 16 == 0:
            assert size.most == 1 or size.most * length <= budget


def test_a_given_size_stays() -> None:
    """Tuning does not change a size that the user gave."""
    size = BufferSize(5)
    size.found_full()
    size.found_empty()
    size.note(b"x" * 10**6)
    assert (size.most, size.low) == (5, 2)


def test_sizes_are_those_of_the_leaves() -> None:
    """Arrays count their bytes, texts their letters, and other objects a small
    constant.
    """
    assert byte_size(({"x": np.zeros(3)}, b"ab", 5)) == 24 + 2 + 32
    texts = np.array(["a" * 1000] * 9, object)
    for element in (texts, RaggedTensor(texts, [0, 9])):
        assert 9000 < byte_size(element) < 10_000
