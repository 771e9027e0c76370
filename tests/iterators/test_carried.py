"""Tests of ``zmqdata.iterators.carried``."""

from __future__ import annotations

from collections import namedtuple
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import plain
from zmqdata import Dataset
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import WrongTypeError
from zmqdata.iterators.carried import NotPlainError, RunningState, from_plain, to_plain

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


@pytest.mark.parametrize(
    "states",
    [
        (0, np.int64(1), 2, np.int64(3)),
        (0, 0.5, np.float32(1), 2),
        (0, np.float64(0.5), 1, 2.5),
        (np.int32(0), np.array(1, np.int32)),
        (np.zeros(2), np.zeros((3, 1)), np.float64(1)),
        ("", "longer", np.str_("a"), np.array(["a", "bc"])),
        (False, np.bool_(True)),
        ((0, {"a": None}), (np.int8(1), {"a": "text"}), (2, {"a": 7})),
        (None, (1, 2)),
        ({}, {"a": 1}, {"a": 1, "b": 2}),
        ((), (1,), (1, "b")),
        (np.zeros(0), np.zeros(0), np.ones(2, np.int64), np.zeros(0), np.ones(3, np.int64)),
        ((np.zeros(0), 0), (np.array(["a"]), 1)),
        (np.zeros(0), 0.5),
        (np.zeros(0), None),
        (float("-inf"), np.int64(1), np.int64(2)),
        (Decimal(1), 2),
        ((np.zeros(2), 0), (np.ones(1), np.int8(1)), (np.ones(3), np.int8(2))),
        (RaggedTensor.from_rows([[1]]), RaggedTensor.from_rows([[1, 2], [3]])),
        (np.array(["a"]), np.array(["b"], object), np.array(["c"])),
    ],
)
def test_states_may_follow(states: tuple[Any, ...]) -> None:
    """States keep nesting and dtypes; Python numbers take the dtype beside them, and
    None and objects become anything.
    """
    running = RunningState(states[0], "scan_func")
    for state in states[1:]:
        running.check(state)


def test_a_scan_may_begin_with_an_empty_list() -> None:
    """The list takes the dtype of what the function adds, also after a restore."""
    dataset = Dataset.range(3).scan([], lambda seen, x: ([*seen, x], [*seen, x]))
    iterator = iter(dataset)
    first = next(iterator)
    rest = iter(dataset)
    rest.load_state_dict(iterator.state_dict())
    assert [row.tolist() for row in (first, *rest)] == [[0], [0, 1], [0, 1, 2]]
    assert {row.dtype for row in dataset} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("states", "expected", "found"),
    [
        ((np.int32(1), np.int64(1)), "int32", "int64"),
        ((0, np.float64(1), np.float32(1)), "float64", "float32"),
        ((0, np.int64(1), 0.5), "int64", "float"),
        ((1j, 1.5, np.float64(1)), "complex", "float64"),
        ((np.zeros(2), np.zeros(2, np.float32)), "float64", "float32"),
        ((np.zeros(2), np.zeros(2), np.zeros(2, np.int64)), "float64", "int64"),
        ((0, "text"), "int", "str"),
        ((0, None), "int", "NoneType"),
        ((0, Decimal(1)), "int", "Decimal"),
        ((b"", ""), "bytes", "str"),
        ((False, 1), "bool", "int"),
        (((0, np.int64(2)), (0, 1.5)), "int64", "float"),
        (((0, 0), (1, np.int64(2)), (1, np.int32(2))), "int64", "int32"),
        ((np.zeros(0), np.ones(2, int), np.ones(2)), "int64", "float64"),
        ((np.zeros(0), np.array(["a"]), np.ones(2)), "str", "float64"),
        ((0, np.zeros(0)), "int", "an empty list"),
        (((np.zeros(1),), (np.ones(1),), (np.ones(1, int),)), "float64", "int64"),
        ((RaggedTensor.from_rows([[1]]), np.ones(1)), "ragged int64", "float64"),
    ],
)
def test_states_must_follow(states: tuple[Any, ...], expected: str, found: str) -> None:
    """The refusal shows both dtypes, with tf.data's words."""
    running = RunningState(states[0], "scan_func")
    for state in states[1:-1]:
        running.check(state)
    words = "The element types for the new state must match the initial state. Expected"
    with pytest.raises(WrongTypeError, match=f"{words} {expected}, got {found}\\."):
        running.check(states[-1])
