"""Tests of ``zmqdata.blocks.dtypes``: supported dtypes, and a peer's descriptions."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from zmqdata.blocks import BlockBuilder, decode_block, whole
from zmqdata.blocks.dtypes import (
    MAX_FIELDS,
    MAX_NESTING,
    DTypeSpec,
    Fields,
    Repeated,
    check_text,
    describe,
    describe_flexible,
    is_flexible,
    is_supported,
    rebuild,
    units,
    widen,
)
from zmqdata.errors import ProtocolError

SUPPORTED: list[Any] = [
    *(
        "?",
        "i1",
        "u1",
        "<i2",
        ">i4",
        "<u8",
        "<f2",
        ">f4",
        "<f8",
        "<c8",
        ">c16",
        "<U3",
        ">U2",
        "S5",
        "V7",
    ),
    *("<M8", "<M8[ns]", "<m8[25s]", ">M8[D]", "<m8"),
    np.dtype([("a", "<i4"), ("b", ">f8"), ("ü", "<U2")]),
    np.dtype([("a", "i1"), ("b", "<i8")], align=True),
    np.dtype([("grid", "<f4", (2, 3)), ("inner", [("x", "S2"), ("y", "<M8[s]")])]),
    np.dtype({"names": ["b", "a"], "formats": ["u1", "<i2"], "offsets": [7, 1], "itemsize": 12}),
]

HOSTILE: list[DTypeSpec] = [
    *(
        "O",
        "|O",
        "<O8",
        "i4",
        "float64",
        "<i4,O",
        "",
        "<i3",
        "<U99999999999",
        "|V0",
        "<M8[0s]",
        "<M8[x]",
        "<f4\n",
        "|S0",
    ),
    Repeated("<i4", (2,)),
    Fields((), (), (), 0),
    Fields(("a",), ("O",), (0,), 8),
    Fields(("a", "a"), ("<i4", "<i4"), (0, 4), 8),
    Fields(("a",), ("<i4",), (6,), 8),
    Fields(("a",), ("<i4",), (-1,), 8),
    Fields(("a",), ("<i4", "<i4"), (0,), 8),
    Fields(("a",), ("<i4",), (0,), -8),
    Fields(("a",), ("<i4",), (0,), 1 << 70),
    Fields(("a",), (Repeated("<i4", (-1,)),), (0,), 8),
    Fields(("a",), (Repeated("<i4", (1,) * 20),), (0,), 8),
    Fields(("a",), (Repeated("<i4", (1 << 40, 1 << 40)),), (0,), 8),
]


@pytest.mark.parametrize("dtype", [*map(np.dtype, SUPPORTED)], ids=str)
def test_description_is_exact(dtype: np.dtype[Any]) -> None:
    """A dtype rebuilt from its msgpack description is identical to the last offset."""
    assert is_supported(dtype)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(describe(dtype)), type=DTypeSpec)
    assert rebuild(sent) == dtype


@pytest.mark.parametrize("spec", HOSTILE, ids=str)
def test_what_describes_no_array_is_refused(spec: DTypeSpec) -> None:
    """Objects, names, contradictions and excessive sizes raise ProtocolError."""
    with pytest.raises(ProtocolError):
        rebuild(spec)


def test_nesting_is_limited() -> None:
    """An endlessly nested dtype is rejected before numpy sees it."""
    spec: Fields = Fields(("a",), ("<i4",), (0,), 4)
    for _ in range(20):
        spec = Fields(("a",), (spec,), (0,), 4)
    with pytest.raises(ProtocolError, match="deeper"):
        rebuild(spec)


@pytest.mark.parametrize(
    "dtype", [object, [("a", object)], [("a", object, 2)], [("a", [("b", object)])], "V0", []]
)
def test_dtypes_that_hold_objects_or_nothing_do_not_travel(dtype: Any) -> None:
    """A dtype with Python objects or zero-byte items is rejected, also in a field."""
    assert not is_supported(np.dtype(dtype))


def nested(levels: int) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype("i4")
    for _ in range(levels):
        dtype = np.dtype([("a", dtype)])
    return dtype


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([(f"f{number}", "i1") for number in range(MAX_FIELDS + 1)]),
        np.dtype([("a", "i4", (0,))]),
        nested(MAX_NESTING + 1),
        np.dtype((np.record, [("a", "i4")])),
    ],
    ids=["fields", "empty", "levels", "record"],
)
def test_what_cannot_be_described_travels_as_an_object(dtype: np.dtype[Any]) -> None:
    """A structured dtype beyond a description's limits, or with a class, arrives
    intact. The limits concern its fields and levels.
    """
    assert not is_supported(dtype)
    builder = BlockBuilder()
    builder.add(np.zeros(3, dtype))
    block = builder.build()
    [found] = decode_block(block.meta, [bytes(whole(one)) for one in block.frames]).elements()
    assert found.dtype == dtype
    assert found.dtype.type is dtype.type


def test_as_much_as_a_description_may_have_is_supported() -> None:
    """A dtype with the maximum number of fields or levels is supported."""
    for dtype in (
        nested(MAX_NESTING),
        np.dtype([(f"f{number}", "i1") for number in range(MAX_FIELDS)]),
    ):
        assert is_supported(dtype)
        assert rebuild(describe(dtype)) == dtype


def test_width_of_text_is_told_apart() -> None:
    """Fixed-width text is described without its width, which `widen` restores."""
    assert is_flexible(np.dtype(">U7"))
    assert not is_flexible(np.dtype("i4"))
    assert describe_flexible(np.dtype(">U7")) == ">U"
    assert widen(">U", 28) == np.dtype(">U7")
    assert widen("|S", 7) == np.dtype("S7")
    assert (units(">U"), units("|S")) == (np.dtype(">u4"), np.dtype("u1"))


@pytest.mark.parametrize("width", [0, -4, 3, 1 << 40])
def test_width_must_be_whole_characters(width: int) -> None:
    """A width that is not a positive number of whole characters is rejected."""
    with pytest.raises(ProtocolError):
        widen("<U", width)


@pytest.mark.parametrize(
    "dtype", ["<U1", ">U1", [("n", "i4"), ("t", "<U1")], [("x", [("t", "<U1", 1)])]]
)
def test_numbers_beyond_unicode_are_refused(dtype: Any) -> None:
    """Text with invalid code points is rejected, also in fields; other text is
    accepted.
    """
    array = np.zeros(2, dtype)
    check_text(array)
    raw = np.full(array.nbytes, 0x7F, np.uint8).view(dtype)
    with pytest.raises(ProtocolError, match="not a character"):
        check_text(raw)
