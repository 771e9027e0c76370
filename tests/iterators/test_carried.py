"""Tests of ``zmqdata.iterators.carried``."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import plain
from zmqdata.iterators.carried import NotPlainError, as_index, from_plain, to_plain

Point = namedtuple("Point", ["x", "y"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.integers(-5, 5).map(np.int32),
    # Not the empty text, whose width numpy takes as 0 or as 1, nor a final NUL, which
    # numpy drops.
    st.text(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=3
    ).map(np.str_),
    st.lists(st.integers(0, 9), max_size=4).map(
        lambda values: np.array(values, np.int16).reshape(1, -1)
    ),
    st.lists(st.text("ab", max_size=3), max_size=3).map(lambda values: np.array(values, str)),
    st.just(np.datetime64("2020-01-01T00:00:00")),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    ),
)


@given(VALUES)
def test_values_come_back_equal(value: Any) -> None:
    """Nestings of arrays, numbers and texts survive msgpack with type, dtype and
    shape.
    """
    came = from_plain(msgspec.msgpack.decode(msgspec.msgpack.encode(to_plain(value))))
    assert plain(came) == plain(value)


def test_arrays_that_come_back_can_be_written() -> None:
    """A restored array belongs to its receiver."""
    array = from_plain(to_plain(np.zeros(2)))
    array += 1
    assert array.tolist() == [1, 1]


@pytest.mark.parametrize(
    "value",
    [object(), {1}, 2**63, Point(1, 2), np.array([None]), np.zeros(1, [("a", int)]), (1, object())],
)
def test_other_objects_are_not_plain(value: Any) -> None:
    """An object that could not be restored exactly is refused, so that the caller
    replays instead.
    """
    with pytest.raises(NotPlainError):
        to_plain(value)


@pytest.mark.parametrize("value", [3, np.int8(3), np.array(3)])
def test_integers_of_all_kinds_are_indices(value: Any) -> None:
    """Integers of Python and numpy, and integer arrays without axes, are indices."""
    assert as_index(value, "key_func") == 3


@pytest.mark.parametrize("value", [True, np.bool_(True), 1.0, "1", None, np.array([1, 2])])
def test_nothing_else_is_an_index(value: Any) -> None:
    """The refusal names the function, its result and the remedy."""
    with pytest.raises(TypeError, match=r"key_func must return one integer, it returned .*int\(\)"):
        as_index(value, "key_func")
