"""Tests of how many elements a pipeline makes before its runner looks around."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.worker.tasks.stride import (
    BYTES,
    GLANCE,
    LONGEST,
    LONGEST_GLANCE,
    PORTION,
    SECONDS,
    Stride,
)


def long_for(seconds: float, size: int) -> int:
    """Return the length to which a stride adapts for elements of the given seconds and
    bytes.
    """
    stride = Stride()
    for _ in range(50):
        stride.end(stride.length, stride.length * seconds, stride.length * size)
    return stride.length


@given(st.floats(1e-9, 10), st.integers(0, 1 << 30))
def test_a_stride_is_short(seconds: float, size: int) -> None:
    """A stride takes at most a millisecond and 2 MiB, unless it has a single
    element.
    """
    length = long_for(seconds, size)
    assert length == 1 or (length * seconds <= SECONDS and length * size <= BYTES)
    assert length <= LONGEST


def test_cheap_elements_are_made_many_at_once() -> None:
    """A stride has the maximum length if an element takes a third of a microsecond."""
    assert long_for(3e-7, 8) == LONGEST


def used_to(size: int) -> Stride:
    """Return a stride that has adapted to elements of the given bytes, each of which
    takes ten microseconds.
    """
    stride = Stride()
    for _ in range(20):
        stride.end(stride.length, stride.length * 1e-5, stride.length * size)
    return stride


@given(st.integers(0, 1 << 22), st.integers(-(1 << 22), 1 << 22))
def test_a_stride_ends_where_its_room_does(size: int, room: int) -> None:
    """The last element of a stride is the element that fills the room, if all elements
    are of the previous size.
    """
    stride = used_to(size)
    length, room = stride.begin(room), max(PORTION, room)
    assert 1 <= length <= stride.length
    assert length == 1 or (length - 1) * size < room
    assert length == stride.length or length * size >= room


@given(
    st.sampled_from([10_000, 150_528, 1 << 20]), st.integers(1, 64 << 20), st.integers(0, 16 << 20)
)
def test_a_stride_ends_when_larger_elements_have_filled_its_room(
    small: int, large: int, room: int
) -> None:
    """A stride ends at the second look, as the previous elements set the distance of
    looks.
    """
    stride, element = used_to(small), np.broadcast_to(np.uint8(0), large)
    length, made = stride.begin(room), 0
    while made < length:
        made += min(stride.glance, length - made)
        if stride.is_over(0.0, made, element):
            break
    if made < length:
        assert made * large >= max(PORTION, room)
    assert stride.glance == 1 or stride.glance * small <= PORTION
    late = max(1, PORTION // small) + stride.glance - 1
    assert made <= late or (made - late) * large < max(PORTION, room)


def test_a_pause_shortens_the_next_strides() -> None:
    """After a single slow element, the runner looks at each of the next elements."""
    stride = Stride()
    stride.length = 512
    stride.end(512, 3.0, 512)
    assert stride.length == 1


def test_a_stride_that_was_cut_short_says_nothing() -> None:
    """A stride that a waiting client cuts short does not change the length of the
    next.
    """
    stride = Stride()
    stride.length = 64
    stride.end(1, 1e-6, 8)
    assert stride.length == 64


@given(st.floats(1e-9, 1e-4), st.integers(0, BYTES), st.floats(0, 1e-3), st.floats(1e-3, 10))
def test_a_stride_ends_soon_after_its_elements_have_become_slow(
    seconds: float, size: int, before: float, slow: float
) -> None:
    """A stride that becomes slow ends within three looks at the clock, whatever its
    earlier pace, and not at its full length.
    """
    stride = Stride()
    for _ in range(20):
        stride.end(stride.length, stride.length * seconds, stride.length * size)
    assert stride.glance == 1 or stride.glance * seconds <= GLANCE
    assert 1 <= stride.glance <= min(stride.length, LONGEST_GLANCE)
    assert stride.begin(BYTES) <= stride.length
    assert not stride.is_over(before, 1, None)
    assert stride.is_over(before + 3 * stride.glance * slow, 2, None)
