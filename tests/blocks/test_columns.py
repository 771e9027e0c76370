"""Tests of ``zmqdata.blocks.columns``: shared columns, their layout and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from zmqdata.blocks.columns import COPY_BELOW, Column, Packed, flat_bytes, pack, sizer, unpack
from zmqdata.blocks.dtypes import describe
from zmqdata.blocks.structures import Leaf, Structure
from zmqdata.errors import ProtocolError

INTS = Leaf("array", "<i4", 1)
TEXTS = Leaf("array", "<U", 1)
BYTES = Leaf("array", "|S", 1)
MATRICES = Leaf("array", "<i4", 2)
STRUCTURED = [("a", "<i4"), ("t", "<U2")]


def dtype_of(leaf: Leaf) -> Any:
    return Structure(leaf).dtypes[0]


def packed(leaf: Leaf, *values: Any) -> Packed:
    """Return a column of values that belong into it."""
    size = sizer(leaf, dtype_of(leaf))
    assert size(values) >= 0
    assert all(size([value]) >= 0 for value in values)
    return pack(leaf, dtype_of(leaf), values)


def unpacked(leaf: Leaf, column: Column, frame: bytes, count: int = 1, skip: int = 0) -> list[Any]:
    return [*unpack(leaf, dtype_of(leaf), column, memoryview(frame), count)(skip)]


def there_and_back(leaf: Leaf, *values: Any, skip: int = 0) -> list[Any]:
    """Return the values of a column after a round trip of its bytes."""
    sent = packed(leaf, *values)
    column = Column(sent.buffer.nbytes, sent.shape, sent.width)
    return unpacked(leaf, column, bytes(sent.buffer), len(values), skip)


def table(*numbers: int) -> bytes:
    """Return the table of shapes at the start of a ragged column."""
    raw = np.array(numbers, "<i8").tobytes()
    return raw + bytes(-len(raw) % 64)


# ------------------------------------------------------------------- measuring


@pytest.mark.parametrize(
    ("leaf", "value", "size"),
    [
        (INTS, np.zeros(3, "<i4"), 12),
        (TEXTS, np.array(["ab", "c"]), 16),
        (Leaf("scalar", "<f8"), np.float64(1), 8),
        (Leaf("scalar", "<M8[s]"), np.datetime64(1, "s"), 8),
        (Leaf("int"), -1, 8),
        (Leaf("int"), 2**800, 100),
        (Leaf("float"), 1.5, 8),
        (Leaf("bool"), True, 1),
        (Leaf("complex"), 1j, 16),
        (Leaf("none"), None, 0),
        (Leaf("str"), "abc", 3),
        (Leaf("bytes"), b"abc", 3),
        (Leaf("np.str"), np.str_("abc"), 3),
        (Leaf("np.bytes"), np.bytes_(b"abc"), 3),
    ],
    ids=repr,
)
def test_sizes_are_known_without_packing(leaf: Leaf, value: Any, size: int) -> None:
    """The size that a value adds to its block is known before packing."""
    assert sizer(leaf, dtype_of(leaf))([value, value]) == 2 * size


@pytest.mark.parametrize(
    ("leaf", "others"),
    [
        (
            INTS,
            [
                [1],
                np.zeros(1, ">i4"),
                np.zeros(1, "<i8"),
                np.zeros((1, 1), "<i4"),
                np.ma.zeros(1, "<i4"),
            ],
        ),
        (
            TEXTS,
            [
                np.array([b"a"]),
                np.array(["a"], ">U1"),
                np.array([["a"]]),
                np.zeros(1, [("a", "<U0")])["a"],
                "a",
            ],
        ),
        (Leaf("scalar", "<f8"), [1.0, np.float32(1), np.zeros((), "<f8")]),
        (Leaf("scalar", "<M8[s]"), [np.datetime64(1, "D"), np.timedelta64(1, "s")]),
        (Leaf("int"), [True, 1.0, np.int64(1)]),
        (Leaf("float"), [1, np.float64(1)]),
        (Leaf("none"), [0, ""]),
        (Leaf("str"), [b"a", np.str_("a")]),
        (Leaf("np.bytes"), [b"a", np.str_("a")]),
    ],
    ids=repr,
)
def test_what_would_arrive_as_something_else_does_not_belong(leaf: Leaf, others: list[Any]) -> None:
    """Another type, dtype, byte order, unit or rank needs a column of its own."""
    assert [sizer(leaf, dtype_of(leaf))([other]) for other in others] == [-1] * len(others)


# --------------------------------------------------------------------- layouts


def test_equal_shapes_lie_one_behind_the_other() -> None:
    """The fixed layout consists of the values' bytes in C order."""
    one, other = np.arange(6, dtype="<i4").reshape(2, 3), np.arange(6, dtype="<i4").reshape(3, 2).T
    column = packed(MATRICES, one, other)
    assert (column.shape, column.typesize, column.width) == ((2, 3), 4, 0)
    assert bytes(column.buffer) == one.tobytes() + other.tobytes()


def test_different_shapes_lie_behind_a_table() -> None:
    """The ragged layout begins with all shapes, padded to 64 bytes."""
    column = packed(MATRICES, np.ones((1, 2), "<i4"), np.ones((0, 5), "<i4"))
    assert (column.shape, column.typesize) == (None, 4)
    assert bytes(column.buffer) == table(1, 2, 0, 5) + np.ones(2, "<i4").tobytes()


def test_text_lies_behind_a_table_of_lengths() -> None:
    """Text is stored as rows of UTF-8 behind their lengths, and is not shuffled."""
    column = packed(Leaf("str"), "ü", "", "ab")
    assert (column.shape, column.typesize) == (None, 0)
    assert bytes(column.buffer) == table(2, 0, 2) + "üab".encode()


def test_numbers_are_as_wide_as_they_must_be() -> None:
    """Integers take 8 bytes each if all of them fit, and rows of bytes otherwise."""
    assert bytes(packed(Leaf("int"), 1, -1).buffer) == np.array([1, -1], "<i8").tobytes()
    assert bytes(packed(Leaf("int"), 1, 2**63).buffer) == table(1, 9) + b"\x01" + (2**63).to_bytes(
        9, "little"
    )


def test_text_of_one_width_keeps_it_in_the_column() -> None:
    """Text of equal width is a fixed column with that width; other text is ragged."""
    assert packed(TEXTS, np.array(["ab"]), np.array(["c"], "<U2"))[1:] == ((1,), 4, 8)
    ragged = packed(BYTES, np.array([b"ab"]), np.array([b"c"]))
    assert (ragged.shape, ragged.width) == (None, 0)
    assert bytes(ragged.buffer) == table(1, 2, 1, 1) + b"abc"


def test_nothing_takes_no_bytes() -> None:
    """None takes no bytes beyond the block's count, and an empty array only its
    shape.
    """
    for column, shape in [
        (packed(Leaf("none"), None, None), ()),
        (packed(INTS, np.zeros(0, "<i4")), (0,)),
    ]:
        assert (column.buffer.nbytes, column.shape) == (0, shape)


def test_a_contiguous_array_is_not_copied() -> None:
    """A contiguous array is sent without a copy, and another order is copied."""
    array = np.arange(6, dtype="<i4")
    assert np.shares_memory(np.frombuffer(packed(INTS, array).buffer, np.uint8), array)
    assert bytes(flat_bytes(array[::2])) == array[::2].tobytes()
    assert not np.shares_memory(np.frombuffer(flat_bytes(array[::2]), np.uint8), array)


# ------------------------------------------------------------------- round trips


@pytest.mark.parametrize(
    ("leaf", "values"),
    [
        (INTS, [np.arange(3, dtype="<i4"), np.arange(3, dtype="<i4")]),
        (INTS, [np.arange(3, dtype="<i4"), np.arange(5, dtype="<i4"), np.zeros(0, "<i4")]),
        (INTS, [np.arange(COPY_BELOW, dtype="<i4"), np.arange(3, dtype="<i4")]),
        (INTS, [np.arange(9, dtype="<i4")[::3]] * 2),
        (Leaf("array", "<i4", 0), [np.array(7, "<i4"), np.array(8, "<i4")]),
        (Leaf("array", "<M8[s]", 1), [np.arange(2).astype("<M8[s]")] * 2),
        (TEXTS, [np.array(["a", "bcd"]), np.array(["ü"]), np.array([], "<U2")]),
        (TEXTS, [np.array(["ab"]), np.array(["cd"])]),
        (BYTES, [np.array([b"a", b"bcd"]), np.array([b"xy"])]),
        (Leaf("array", ">U", 0), [np.array("ab", ">U2"), np.array("c", ">U1")]),
        (Leaf("scalar", "<f8"), [np.float64("nan"), np.float64(-0.0)]),
        (Leaf("scalar", "|V3"), [np.void(b"abc"), np.void(b"def")]),
        (Leaf("int"), [0, -1, 2**63 - 1]),
        (Leaf("int"), [0, -1, 255, -256, 2**63, -(2**100)]),
        (Leaf("float"), [0.5, float("inf")]),
        (Leaf("bool"), [True, False]),
        (Leaf("complex"), [1j, 0j]),
        (Leaf("none"), [None, None]),
        (Leaf("str"), ["", "ü\0", "\ud800"]),
        (Leaf("bytes"), [b"", b"a\0"]),
        (Leaf("np.str"), [np.str_("ü"), np.str_("")]),
        (Leaf("np.bytes"), [np.bytes_(b"a\0"), np.bytes_(b"")]),
    ],
    ids=repr,
)
def test_values_come_back_as_they_were(leaf: Leaf, values: list[Any]) -> None:
    """Values keep type, dtype, shape and content from any position in a column."""
    for skip in range(len(values) + 1):
        found = there_and_back(leaf, *values, skip=skip)
        assert len(found) == len(values) - skip
        for came, sent in zip(found, values[skip:], strict=True):
            assert type(came) is type(sent)
            assert getattr(came, "dtype", None) == getattr(sent, "dtype", None)
            assert np.shape(came) == np.shape(sent)
            assert repr(came) == repr(sent)


@given(
    st.lists(
        npst.arrays("<i4", npst.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=4)),
        min_size=1,
    )
)
def test_arrays_of_any_shapes_share_a_column(arrays: list[Any]) -> None:
    """Arrays of any shapes share a column, also with empty arrays between them."""
    for came, sent in zip(there_and_back(MATRICES, *arrays), arrays, strict=True):
        assert came.shape == sent.shape
        assert came.tobytes() == sent.tobytes()


@given(st.lists(st.integers(), min_size=1))
def test_integers_of_any_size_share_a_column(numbers: list[int]) -> None:
    """An integer beyond 64 bits leaves the other integers of its column exact."""
    assert there_and_back(Leaf("int"), *numbers) == numbers


def test_empty_values_of_structured_dtypes_keep_their_dtype() -> None:
    """Empty arrays of structured dtypes keep their dtype."""
    leaf = Leaf("array", describe(np.dtype(STRUCTURED)), 1)
    empty = there_and_back(leaf, np.zeros(0, STRUCTURED), np.zeros(0, STRUCTURED))
    assert [array.dtype for array in empty] == [np.dtype(STRUCTURED)] * 2


def test_values_can_be_read_several_times() -> None:
    """A column can be read repeatedly, each time from a given position."""
    columns: list[tuple[Leaf, list[Any]]] = [
        (Leaf("str"), ["a", "b"]),
        (Leaf("int"), [1, 2]),
        (Leaf("none"), [None] * 2),
    ]
    for leaf, values in columns:
        sent = packed(leaf, *values)
        column = Column(sent.buffer.nbytes, sent.shape, sent.width)
        read = unpack(leaf, dtype_of(leaf), column, memoryview(bytes(sent.buffer)), 2)
        assert ([*read(0)], [*read(1)], [*read(0)]) == (values, values[1:], values)


def test_small_arrays_own_their_memory() -> None:
    """A small array owns its memory, and a large array is a writable view. Keeping a
    small array does not keep its block.
    """
    small = there_and_back(INTS, *[np.zeros(9, "<i4")] * 2)
    large = there_and_back(INTS, *[np.zeros(COPY_BELOW, "<i4")] * 2)
    assert all(array.base is None for array in small)
    assert large[0].base is large[1].base is not None
    assert all(array.flags.writeable for array in small + large)


# --------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("leaf", "column", "frame", "count", "text"),
    [
        (Leaf("none"), Column(1, ()), b"1", 1, "None came with 1 bytes"),
        (Leaf("none"), Column(1, ()), b"", 1, "None came with 0 bytes"),
        (Leaf("int"), Column(8, (1,)), bytes(8), 1, r"int claims values of shape \(1,\)"),
        (Leaf("str"), Column(2, ()), b"ab", 1, "str claims values of shape"),
        (Leaf("int"), Column(8, ()), bytes(8), 2, "announced 8 bytes for values that take 16"),
        (Leaf("scalar", "<U1"), Column(4, ()), b"\xff\xff\xff\xff", 1, "not a character"),
        (INTS, Column(4, (1, 1)), bytes(4), 1, "arrays with 1 axes claims the shape"),
        (INTS, Column(0, (-1,)), b"", 1, "claims the shape"),
        (INTS, Column(3, (1,)), bytes(3), 1, "announced 3 bytes for values that take 4"),
        (INTS, Column(4, (1,)), bytes(3), 1, "frame of 3 bytes was announced with 4"),
        (MATRICES, Column(0, (0, 1 << 62)), b"", 1, "no array of 0 bytes has the shape"),
        (TEXTS, Column(4, (1,), 0), bytes(4), 1, "claims items of 0 bytes"),
        (TEXTS, Column(4, (1,), 3), bytes(4), 1, "claims items of 3 bytes"),
        (TEXTS, Column(4, (1,), 4), b"\xff\xff\xff\xff", 1, "not a character"),
        (INTS, Column(8, None), bytes(8), 1, "shorter than its table of 64"),
        (INTS, Column(66, None), table(0) + b"12", 1, "ends within an item"),
        (INTS, Column(68, None), table(-1) + bytes(4), 1, "impossible shapes"),
        (INTS, Column(68, None), table(1 << 62) + bytes(4), 1, "impossible shapes"),
        (
            MATRICES,
            Column(68, None),
            table(1 << 33, 1 << 31) + bytes(4),
            1,
            "impossible shapes",
        ),
        (INTS, Column(68, None), table(2) + bytes(4), 1, "holds 1 items, but its shapes take 2"),
        (TEXTS, Column(64, None), table(3, 0), 1, "claims items of 0 bytes"),
        (TEXTS, Column(64, None), table(0, 1 << 40), 1, "claims items of"),
        (TEXTS, Column(68, None), table(1, 1) + b"\xff\xff\xff\xff", 1, "not a character"),
        (Leaf("float"), Column(64, None), table(0), 1, "float cannot be ragged"),
        (
            Leaf("scalar", "<i4"),
            Column(68, None),
            table(1) + bytes(4),
            1,
            "scalar cannot be ragged",
        ),
        (Leaf("str"), Column(66, None), table(2) + b"\xff\xff", 1, "not UTF-8"),
    ],
)
def test_contradictions_are_told(
    leaf: Leaf, column: Column, frame: bytes, count: int, text: str
) -> None:
    """Invalid sizes, shapes, widths and texts are rejected with the claimed and actual
    values.
    """
    with pytest.raises(ProtocolError, match=text):
        unpacked(leaf, column, frame, count)


def test_damaged_text_within_structured_items_is_refused() -> None:
    """Damaged text inside ragged structured items is rejected as in a fixed column."""
    leaf = Leaf("array", describe(np.dtype(STRUCTURED)), 1)
    frame = table(1, 0) + bytes(4) + b"\xff" * 8
    with pytest.raises(ProtocolError, match="not a character"):
        unpacked(leaf, Column(len(frame), None), frame, 2)


@given(
    st.sampled_from(
        [INTS, TEXTS, MATRICES, Leaf("int"), Leaf("str"), Leaf("bytes"), Leaf("scalar", "<f8")]
    ),
    st.none() | st.lists(st.integers(-2, 9) | st.just(2**40), max_size=3).map(tuple),
    st.integers(-1, 9),
    st.lists(st.integers(-1, 9), max_size=8).map(lambda numbers: table(*numbers))
    | st.binary(max_size=80),
    st.integers(1, 4),
)
def test_any_column_is_read_or_refused(
    leaf: Leaf, shape: Any, width: int, frame: bytes, count: int
) -> None:
    """A column yields the announced number of values or raises ProtocolError."""
    try:
        found = unpacked(leaf, Column(len(frame), shape, width), frame, count)
    except ProtocolError:
        return
    assert len(found) == count
