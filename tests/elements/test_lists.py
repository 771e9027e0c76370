"""Tests of ``zmqdata.elements.lists``."""

from __future__ import annotations

import datetime
from collections import UserList, deque
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import Dataset
from zmqdata.elements.lists import array_of

DAY = np.timedelta64(1, "D")
NUMBERS = (
    st.integers(-(2**65), 2**65)
    | st.integers(2**53 - 2, 2**53 + 2)
    | st.floats(allow_nan=False)
    | st.booleans()
)
LEAVES = (
    NUMBERS
    | st.sampled_from(["", "a", "b\0", "\0"])
    | st.sampled_from([b"", b"a", b"b\0"])
    | st.none()
    | st.sampled_from([np.int8(3), np.uint64(2**63 + 1), np.float32(0.5), np.bool_(True)])
)


class Colour(str, Enum):
    """A text whose `str` is another text."""

    RED = "red"


class Level(IntEnum):
    """An integer with a name."""

    LOW = 1


class Code(bytes, Enum):
    """Bytes with a name."""

    OK = b"200"


class Rate(float):
    """A float of a class of its own."""


class Word(str):
    """A text whose `str` is another text of the same length."""

    def __str__(self) -> str:
        return self[::-1]


def same(one: Any, other: Any) -> bool:
    """Return True if both are equal, and of one sort: a bool, a number, a text..."""
    sorts = [
        "bool"
        if isinstance(x, (bool, np.bool_))
        else "number"
        if not isinstance(x, (str, bytes)) and x is not None
        else type(x).__name__
        for x in (one, other)
    ]
    return bool(one == other) and sorts[0].removesuffix("_") == sorts[1].removesuffix("_")


def check(values: list[Any]) -> None:
    """Require an array of the same values, or an error."""
    try:
        array = array_of(values)
    except ValueError:
        return
    flat = list(values)
    for _ in range(array.ndim - 1):
        flat = [item for row in flat for item in row]
    found = array.reshape(-1).tolist()
    assert len(found) == len(flat)
    assert all(map(same, found, flat)), (values, array)


@given(st.lists(LEAVES, min_size=1, max_size=5))
def test_lists_become_arrays_of_the_same_values(values: list[Any]) -> None:
    """An array holds values equal to those of its list, and of the same sort, or there
    is an error.
    """
    check(values)


@given(
    st.lists(NUMBERS | st.sampled_from(["a", "b\0"]), min_size=2, max_size=2),
    st.integers(0, 40),
    st.booleans(),
)
def test_long_and_nested_lists_are_checked_as_short_ones(
    odd: list[Any], more: int, nested: bool
) -> None:
    """The quick checks of long and nested lists let nothing pass that the full check
    refuses.
    """
    values = [odd[0]] * more + odd
    check([values, values] if nested else values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, "a"], "the int 1 at [0] and the str 'a' at [1]"),
        ([[1, 2], [3, "a"]], "the int 1 at [0][0] and the str 'a' at [1][1]"),
        ([(1, "a"), (2, "b")], "the int 1 at [0][0] and the str 'a' at [0][1]"),
        ([True, 2], "the bool True at [0] and the int 2 at [1]"),
        ([1] * 50 + [False], "the int 1 at [0] and the bool False at [50]"),
        ([b"a", "b"], "the bytes b'a' at [0] and the str 'b' at [1]"),
        ([b"a", 1], "the bytes b'a' at [0] and the int 1 at [1]"),
        ([1, 2**63 + 1], "the int 1 at [0] cannot"),
        ([-1, 2**63], "would make values of dtype float64 of its integers"),
        ([np.uint64(1), 2], "dtype=np.uint64"),
        ([2**53 + 1, 0.5], "the int 9007199254740993 at [0]"),
        ([[0.5], [2**53 + 1]], "the int 9007199254740993 at [1][0]"),
        ([2**53 + 1, 2j], "the int 9007199254740993 at [0]"),
        ([np.array([2**53 + 1]), np.array([0.5])], "dtype int64 and shape (1,) at [0]"),
        ([np.ones(1, bool), np.ones(1, int)], "dtype bool and shape (1,) at [0]"),
        ([np.array(["a"]), np.array([1])], "would make texts of both"),
        ([range(2), ["a", "b"]], "dtype int64 and shape (2,) at [0]"),
        ([DAY, 5], "the timedelta64[D] 1 days at [0] and the int 5 at [1]"),
        ([np.datetime64("2020"), DAY], "the datetime64[Y] 2020 at [0]"),
        ([Colour.RED, 1], "the str 'red' at [0] and the int 1 at [1]"),
        ([np.ma.masked_array([1], [True])] * 2, "would drop the mask"),
        ([np.zeros((), "i4,f8")[()], np.zeros((), "i8,f8")[()]], "at [0] and of dtype"),
        (["ab", ["c"]], "the str 'ab' at [0] and the list ['c'] at [1]"),
        ([[1, 2], [3]], "RaggedTensor.from_rows"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_numpy_would_change_is_an_error(values: list[Any], text: str) -> None:
    """The error names the places and the values that have no common dtype."""
    with pytest.raises(ValueError, match="cannot become an array") as raised:
        array_of(values)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2.5], "float64"),
        ([2**53, 0.5], "float64"),
        ([2**60, 0.5], "float64"),
        ([2**63], "uint64"),
        ([2**64], "object"),
        ([1, None], "object"),
        ([1, Fraction(1, 2)], "object"),
        ([datetime.date(2020, 1, 1)], "object"),
        ([np.int8(-1), np.uint8(200)], "int16"),
        ([np.float32(0.1), 0.1], "float64"),
        ([Level.LOW], "int64"),
        ([[Colour.RED], ["b"]], "<U3"),
        ([np.datetime64("2020"), np.datetime64("2020-01-01T00:00:01")], "datetime64[s]"),
        ([b"a\0", b"b"], "object"),
        ([["a\0"], ["b"]], "object"),
        ([np.array([]), np.array([], int)], "float64"),
        ([{"a": 1}, {"a": 2}], "object"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_numpy_keeps_is_an_array(values: list[Any], dtype: str) -> None:
    """Values that a dtype holds exactly have that dtype, and others stay objects."""
    array = array_of(values)
    assert array.dtype == dtype
    if dtype == "object":
        assert array.tolist() == values


def test_a_list_that_contains_itself_is_an_error() -> None:
    """An endless nesting ends."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        array_of(endless)


@pytest.mark.parametrize("count", [1, 16, 17, 40])
@pytest.mark.parametrize(
    ("member", "value", "dtype"),
    [
        (Colour.RED, "red", "str"),
        (Word("ab"), "ab", "str"),
        (Code.OK, b"200", "bytes"),
        (Level.LOW, 1, "int64"),
        (Rate(0.5), 0.5, "float64"),
    ],
    ids=["enum of texts", "text", "enum of bytes", "enum of ints", "float"],
)
def test_members_of_subclasses_are_their_values(
    member: Any, value: Any, dtype: str, count: int
) -> None:
    """Lists of any length, nested lists, batches and specs hold the value of a member
    of a subclass, not its name.
    """
    rows = [[member] * count] * 2
    assert [array_of(row).tolist() for row in (rows[0], rows)] == [[value] * count, rows]
    assert type(array_of(rows).tolist()[0][0]) is type(value)
    batched = Dataset.range(count).map(lambda _: (member, [member] * count)).batch(count)
    (batch,) = batched
    assert [leaf.tolist() for leaf in batch] == [[value] * count, [[value] * count] * count]
    assert [leaf.dtype for leaf in batched.element_spec] == [np.dtype(dtype)] * 2
    assert [leaf.dtype.kind for leaf in batch] == [np.dtype(dtype).kind] * 2


@pytest.mark.parametrize("kind", [deque, UserList])
def test_sequences_in_lists_are_lists(kind: Any) -> None:
    """Their items are checked, and kept, as those of lists are."""
    assert array_of([kind([Colour.RED, "a"])]).tolist() == [["red", "a"]]
    assert array_of([kind(["a\0", "b"])] * 2).tolist() == [["a\0", "b"]] * 2
    assert array_of([kind([1, 2])]).dtype == np.int64
    with pytest.raises(ValueError, match=r"the int 1 at \[0\]\[0\] and the str 'a'"):
        array_of([kind([1, "a"])])


def test_a_fold_takes_members_of_subclasses_for_their_values() -> None:
    """States of a fold may be members of enumerations beside plain values."""
    pairs = (0, b""), (Level.LOW, Code.OK)
    assert Dataset.range(2).reduce(pairs[0], lambda *_: pairs[1]) == (1, b"200")
