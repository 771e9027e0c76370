"""Tests of ``zmqdata.blocks.items``."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.blocks import BlockBuilder, decode_block
from zmqdata.blocks.items import packed_items, unpacked_items
from zmqdata.errors import ProtocolError

ITEMS = (
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.binary()
)


def array_of_objects(items: list[Any], *shape: int) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape or (len(items),))


@given(st.lists(st.lists(ITEMS, max_size=3), min_size=1, max_size=3))
def test_items_travel_without_pickle(rows: list[list[Any]]) -> None:
    """Arrays of texts, bytes, numbers and None keep types and values where objects are
    not allowed, also beside arrays of other lengths.
    """
    builder = BlockBuilder(allow_objects=False)
    for row in rows:
        assert builder.add({"x": array_of_objects(row)})
    block = builder.build(None)
    found = [
        element["x"]
        for element in decode_block(block.meta, block.frames, allow_objects=False).elements()
    ]
    assert [array.dtype for array in found] == [np.dtype(object)] * len(rows)
    assert [[(type(x), x) for x in array] for array in found] == [
        [(type(x), x) for x in row] for row in rows
    ]


@pytest.mark.parametrize("shape", [(), (2, 0, 3), (1, 2)])
def test_items_keep_their_shape(shape: tuple[int, ...]) -> None:
    """An array without axes, or without items, has its shape again."""
    array = array_of_objects(["a"] * int(np.prod(shape)), *(shape or (1,))).reshape(shape)
    packed = packed_items(array)
    assert packed is not None
    assert unpacked_items(packed).shape == shape


@given(st.lists(st.text(st.characters(codec=None), max_size=3), min_size=1))
def test_all_texts_travel_without_pickle(texts: list[str]) -> None:
    """Texts keep halves of surrogate pairs and NULs."""
    packed = packed_items(array_of_objects(texts))
    assert packed is not None
    assert unpacked_items(packed).tolist() == texts


def test_texts_are_copied_once() -> None:
    """Reading an array of large texts takes little more memory than the texts."""
    array = array_of_objects(["a" * 1_000_000] * 20 + [b"b" * 1_000_000] * 20)
    builder = BlockBuilder(allow_objects=False)
    assert builder.add(array)
    block = builder.build(None)
    frames = [bytes(frame) for frame in block.frames]
    tracemalloc.start()
    (found,) = decode_block(block.meta, frames, allow_objects=False).elements()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.tolist() == array.tolist()
    assert most < 45_000_000


def test_a_damaged_frame_is_an_error() -> None:
    """No byte of a frame that is cut off or changed in a length is read beyond its
    end.
    """
    builder = BlockBuilder(allow_objects=False)
    assert builder.add(array_of_objects(["ab", "c"]))
    block = builder.build(None)
    frame = bytes(block.frames[0])
    for damaged in (frame[:-1], frame + b"x", frame[:-4] + b"\xbf" + frame[-3:]):
        with pytest.raises(ProtocolError):
            decode_block(block.meta, [damaged], allow_objects=False)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 1 has no such texts")
def test_texts_of_variable_width_travel_without_pickle() -> None:
    """An array of numpy's own texts keeps its dtype."""
    array = np.array(["a", "long"], "T")
    packed = packed_items(array)
    assert packed is not None
    assert unpacked_items(packed).dtype == array.dtype


@pytest.mark.parametrize(
    "items",
    [[1j], [np.str_("a")], [[1]], [2**64], ["\ud800", None], [{}]],
    ids=repr,
)
def test_other_items_are_not_packed(items: list[Any]) -> None:
    """An array is left to pickle if msgpack would change an item of it."""
    assert packed_items(array_of_objects(items)) is None


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(("O", (2,), ["a"])),
        msgspec.msgpack.encode(("O", (-1, -1), ["a"])),
        msgspec.msgpack.encode(("O", (1,) * 31, ["a"])),
        msgspec.msgpack.encode(("O", (1,), [["a"]])),
        msgspec.msgpack.encode(("f8", (1,), ["a"])),
        msgspec.msgpack.encode(("T", (1,), [1])),
        msgspec.msgpack.encode(("O", (1 << 62, 0), [])),
        msgspec.msgpack.encode(("U", (1,), ["a"])),
        msgspec.msgpack.encode(("U", (1,), [b"\xff"])),
        msgspec.msgpack.encode(("O", (1,), [b"ab"]))[:-1],
        msgspec.msgpack.encode(("O", (2,), ["ab"]))[:-3] + b"\xdb\xff\xff\xff\xffab",
        msgspec.msgpack.encode(("O", (1,), []))[:-1] + b"\xdd\xff\xff\xff\xff",
    ],
    ids=repr,
)
def test_hostile_items_are_refused(sent: bytes) -> None:
    """Bytes that contradict themselves do not decode."""
    with pytest.raises(ProtocolError, match="a column of items does not decode"):
        unpacked_items(sent)
