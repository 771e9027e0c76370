"""Tests of ``zmqdata.blocks.codec`` with columns: round trips and rejected garbage."""

from __future__ import annotations

import dataclasses
import enum
import gc
import sys
import weakref
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.counts import how_many
from tests.elements.attrs_classes import Slotted
from zmqdata.blocks import (
    CODECS,
    MAX_ELEMENTS,
    BlockBuilder,
    BlockMeta,
    Compression,
    EncodedBlock,
    ReferenceBuilder,
    Structure,
    compression,
    decode_block,
    uncompressed,
)
from zmqdata.blocks.codec import MAX_ELEMENT_BYTES
from zmqdata.blocks.columns import COPY_BELOW, Column
from zmqdata.blocks.structures import DictOf, Leaf, Node, TupleOf
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import ObjectsRefusedError, ProtocolError


class Pair(NamedTuple):
    """A namedtuple that the receiver knows."""

    first: Any
    second: Any


@dataclasses.dataclass
class Example:
    """A dataclass that the receiver knows."""

    image: Any
    label: Any = 3


class Colour(enum.Enum):
    """A user's own class."""

    RED = 1
    GREEN = 2


sys.modules.setdefault(__name__, sys.modules[Example.__module__])


def encode(*elements: Any, codec: Any = None) -> EncodedBlock:
    """Return a block of elements that share a structure."""
    builder = BlockBuilder()
    for element in elements:
        assert builder.add(element)
    return builder.build(codec)


def receive(block: EncodedBlock, **arguments: Any) -> list[Any]:
    """Return the elements of a block whose frames arrived at unaligned addresses."""
    frames = [memoryview(b"?" + bytes(frame))[1:] for frame in block.frames]
    return [*decode_block(block.meta, frames, **arguments).elements()]


def same(left: Any, right: Any) -> bool:
    """Return True for equal type, dtype, shape and value, with NaN equal to itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return [*left] == [*right] and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        return same(vars(left), vars(right))
    if isinstance(left, Slotted):
        return same(left._a, right._a)
    if isinstance(left, set):
        return bool(left == right)
    if isinstance(left, RaggedTensor):
        return same((left.values, left.row_splits), (right.values, right.row_splits))
    if isinstance(left, np.ndarray) and left.dtype.hasobject:
        return (
            bool(left.dtype == right.dtype)
            and left.shape == right.shape
            and same(left.tolist(), right.tolist())
        )
    if isinstance(left, (np.ndarray, np.void)):
        return (
            bool(left.dtype == right.dtype)
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    if isinstance(left, np.generic):
        return left.dtype == right.dtype and bool(left == right or left != left)
    return repr(left) == repr(right)


def check(*elements: Any) -> None:
    """Assert that elements survive a round trip raw and with each codec. Repeating them
    makes columns large enough to be compressed.
    """
    for codec in (None, *CODECS, Compression("AUTO")):
        for repetitions in (1, 180):
            sent = elements * repetitions
            assert all(map(same, receive(encode(*sent, codec=codec)), sent))


DTYPES: list[Any] = [
    *(
        "?",
        "i1",
        "u2",
        "<i4",
        ">i8",
        "f2",
        ">f4",
        "f8",
        "g",
        "c8",
        ">c16",
        "<U3",
        ">U2",
        "S4",
        "V5",
    ),
    *("<M8[ns]", ">M8[D]", "<m8[25s]", "<M8"),
    [("a", "<i4"), ("b", ">f8", (2,)), ("t", "<U2"), ("when", "<M8[s]")],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)], ids=str)
def test_arrays_of_any_dtype_and_shape(dtype: Any, shape: tuple[int, ...]) -> None:
    """Arrays of every kind keep their dtype and shape."""
    array = np.zeros(shape, dtype)
    array[...] = (
        np.ones((), np.uint8).astype(dtype) if array.dtype.kind not in "V" else np.zeros((), dtype)
    )
    check(array)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ragged_arrays_of_any_dtype(dtype: Any) -> None:
    """Arrays of the same dtype and different shapes share a block."""
    check(
        np.zeros((2, 3), dtype),
        np.zeros((0, 5), dtype),
        np.zeros((1, 1), dtype),
        np.zeros((4, 0), dtype),
    )


@pytest.mark.parametrize(
    "dtype", [item for item in DTYPES if item not in (">i8", ">f4", ">c16", ">M8[D]")], ids=str
)
def test_numpy_scalars_stay_scalars(dtype: Any) -> None:
    """A numpy scalar arrives as a scalar, not as an array without axes."""
    check(np.zeros(1, dtype)[0])


@pytest.mark.parametrize(
    "values",
    [
        (0, -1, 2**63 - 1, -(2**63)),
        (2**63, -(2**63) - 1, 0, -1, 255, 256, 10**300),
        (0.0, -0.0, float("nan"), float("inf"), 1e-320),
        (True, False),
        (1j, complex("nan"), -0.0 + 1j),
        ("", "a", "ü€😀", "\0", "\ud800", "long" * 999),
        (b"", b"\0", b"a\0\0", bytes(range(256))),
        (None, None),
        (np.str_(""), np.str_("ü\0")),
        (np.bytes_(b""), np.bytes_(b"a\0")),
        (np.datetime64("NaT", "s"), np.datetime64("2020-01-01", "s")),
        (np.float32("nan"), np.float32(1)),
        (np.longdouble("1.1"),),
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_scalars_keep_type_and_value(values: tuple[Any, ...]) -> None:
    """Scalars of Python and numpy keep type and value, also at their extremes."""
    check(*values)


def test_text_arrays_of_differing_width_share_a_block() -> None:
    """Fixed-width texts keep their width and share a block with other widths."""
    check(np.array(["a", "bcd"]), np.array(["xy"]), np.array([], "<U7"), np.array(["", "", ""]))
    check(np.array([b"a", b"bcd"]), np.array([b"xy"]))
    check(np.array([["a", "bcd"]], ">U3"), np.array([["xyz", "bcdef"]], ">U5"))
    check(np.array("scalar"), np.array("s"))


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24)[::2].reshape(3, 4)[:, ::-1],
        np.broadcast_to(np.int16(3), (4, 5)),
        np.arange(8).astype("M8[s]").reshape(2, 4).T,
    ],
    ids=["fortran", "strided", "broadcast", "transposed"],
)
def test_any_memory_order_arrives_in_c_order(array: np.ndarray[Any, Any]) -> None:
    """Non-contiguous arrays are sent by value and arrive contiguous."""
    for sent in ((array,), (array, array), (array, array[:1])):
        found = receive(encode(*sent))
        assert all(np.array_equal(left, right) for left, right in zip(found, sent, strict=True))
        assert all(item.flags.c_contiguous for item in found)


def in_any_order(array: np.ndarray[Any, Any], how: int) -> np.ndarray[Any, Any]:
    """Return the same values in C order, in Fortran order, or with gaps in between."""
    if how == 0 or not array.ndim:
        return array
    return np.asfortranarray(array) if how == 1 else np.repeat(array, 2, axis=0)[::2]


DTYPE = st.one_of(
    npst.scalar_dtypes(),
    npst.unicode_string_dtypes(),
    npst.byte_string_dtypes(),
    npst.array_dtypes(),
)
SHAPE = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
ARRAYS = st.builds(in_any_order, npst.arrays(DTYPE, SHAPE), st.integers(0, 2))
OBJECTS = st.one_of(
    st.sets(st.integers()),
    st.decimals(allow_nan=False),
    st.datetimes(),
    st.sampled_from(Colour),
    st.lists(st.one_of(st.integers(), st.text()), min_size=1).map(
        lambda items: np.array([None, *items], object)
    ),
    st.dictionaries(st.floats(allow_nan=False), st.text(), min_size=1, max_size=3),
    st.just(np.ma.masked_array([1, 2], [True, False])),
    st.just([1, "a"]),
)
RAGGED = st.lists(st.lists(st.integers(-9, 9), max_size=3), min_size=1, max_size=3).map(
    lambda rows: RaggedTensor(
        np.array([x for row in rows for x in row], "<i4"),
        np.cumsum([0, *map(len, rows)]).astype("<i8"),
    )
)
LEAVES = st.one_of(
    ARRAYS,
    OBJECTS,
    RAGGED,
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).map(np.str_),
    st.binary().map(np.bytes_),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.complex_numbers(),
    st.text(st.characters(codec=None, exclude_categories=())),
    st.binary(),
    st.none(),
    npst.scalar_dtypes().flatmap(lambda dtype: npst.arrays(dtype, 1)).map(lambda array: array[0]),
)
ELEMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.builds(Pair, inner, inner),
        st.builds(Example, inner, inner | st.lists(st.integers())),
        st.builds(Slotted, inner),
        st.dictionaries(
            st.one_of(st.text("abü"), st.integers(-5, 5), st.binary(max_size=2)), inner, max_size=4
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=how_many(50, 150), deadline=None)
@given(
    elements=st.lists(ELEMENTS, min_size=1, max_size=4),
    repetitions=st.sampled_from([1, 40]),
    codec=st.sampled_from([None, *CODECS, "AUTO"]),
    max_chunk=st.sampled_from([1 << 30, 777]),
)
def test_any_elements_go_through_blocks(
    elements: list[Any], repetitions: int, codec: Any, max_chunk: int
) -> None:
    """Random elements, divided into blocks by structure, arrive in order and
    unchanged.
    """
    builder, found = BlockBuilder(), []
    sent = [element for element in elements for _ in range(repetitions)]
    for element in sent:
        if not builder.add(element):
            found += receive(builder.build(codec, max_chunk=max_chunk))
            assert builder.add(element)
    found += receive(builder.build(codec, max_chunk=max_chunk))
    assert len(found) == len(sent)
    assert all(map(same, found, sent))


@settings(max_examples=how_many(40, 100), deadline=None)
@given(
    elements=st.lists(ELEMENTS, min_size=2, max_size=3),
    order=st.lists(st.integers(0, 2), min_size=1, max_size=30),
)
def test_structures_may_change_at_every_element(elements: list[Any], order: list[int]) -> None:
    """Elements of several structures in any mixture arrive in order and unchanged."""
    builder, found = BlockBuilder(), []
    sent = [elements[number % len(elements)] for number in order]
    for element in sent:
        if not builder.add(element, describe=False):
            described = builder.describe(element)
            if not builder.add_described(described):
                found += receive(builder.build())
                assert builder.add_described(described)
    found += receive(builder.build())
    assert len(found) == len(sent)
    assert all(map(same, found, sent))


@settings(max_examples=how_many(40, 100), deadline=None)
@given(
    elements=st.lists(ELEMENTS, min_size=1, max_size=3),
    order=st.lists(st.integers(0, 2), min_size=1, max_size=60).map(sorted),
    full=st.sampled_from([1, 50, 500, 1 << 40]),
)
def test_many_are_taken_as_one_by_one(elements: list[Any], order: list[int], full: int) -> None:
    """Adding many elements at once gives the same block as adding them individually."""
    sent = [elements[number % len(elements)] for number in order]
    together, single = BlockBuilder(), BlockBuilder()
    while sent:
        first = together.describe(sent[0])
        assert together.add_described(first)
        assert single.add_described(first)
        taken = together.extend(sent[1:], full) if together.nbytes < full else 0
        for element in sent[1 : 1 + taken]:
            assert single.nbytes < full
            assert single.extend([element]) == 1
        assert (together.count, together.nbytes) == (single.count, single.nbytes)
        if single.nbytes < full and taken + 1 < len(sent):
            assert single.extend([sent[taken + 1]]) == 0
        assert [*map(repr, receive(together.build()))] == [*map(repr, receive(single.build()))]
        del sent[: 1 + taken]


def test_builders_of_references_take_what_is_described_too() -> None:
    """A caller may describe and then add elements with either kind of builder."""
    builder = ReferenceBuilder()
    assert builder.add(1, describe=False)
    assert builder.add_described(builder.describe(len))
    assert [*builder.build().elements()] == [1, len]


def test_references_that_several_take_have_arrays_of_their_own() -> None:
    """Each consumer of a shared element gets its own arrays and may write to them."""
    builder = ReferenceBuilder(shared=True)
    builder.add({"x": np.zeros(2), "y": (np.ones(1), RaggedTensor(np.zeros(2), np.array([0, 2])))})
    block = builder.build()
    [taken] = block.elements()
    taken["x"][:] = taken["y"][0][:] = taken["y"][1].values[:] = 7
    [found] = block.elements()
    assert [*found["x"], *found["y"][0], *found["y"][1].values] == [0, 0, 1, 0, 0]


def test_objects_must_be_allowed() -> None:
    """A receiver without ``allow_objects`` rejects only blocks with object leaves."""
    block = encode((1, {2}))
    assert receive(block) == [(1, {2})]
    with pytest.raises(
        ObjectsRefusedError, match=r"element\[1\] is a Python object.*allow_objects=False"
    ):
        receive(block, allow_objects=False)
    assert receive(encode((1, "x")), allow_objects=False) == [(1, "x")]


def test_objects_belong_to_the_sender_again_once_added() -> None:
    """An object is pickled when it is added, so later changes are not sent."""
    builder, changing = BlockBuilder(), {1}
    assert builder.add(changing)
    changing.add(2)
    assert builder.add(changing)
    assert receive(builder.build()) == [{1}, {1, 2}]


def test_objects_count_before_and_after_they_are_packed() -> None:
    """A builder estimates the bytes of its objects, and the block gives the exact
    number.
    """
    builder = BlockBuilder()
    builder.add([1, "a" * 1000])
    assert 1000 < builder.nbytes < 1100
    block = builder.build()
    assert 1000 < block.nbytes < 1200
    assert block.nbytes == block.wire_nbytes


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (1, 1.0),
        (1, True),
        ("a", b"a"),
        (np.int64(1), np.int32(1)),
        (np.int64(1), 1),
        (np.datetime64(1, "s"), np.datetime64(1, "D")),
        (np.zeros(2), np.zeros(2, "f4")),
        (np.zeros(2, ">i4"), np.zeros(2, "<i4")),
        (np.zeros(2), np.zeros((2, 1))),
        (np.array(["a"]), np.array([b"a"])),
        (np.array(["a"]), np.array([["a"]])),
        ({"a": 1}, {"a": 1, "b": 2}),
        ((1, 2), (1, "b")),
    ],
)
def test_other_structure_needs_a_new_block(first: Any, other: Any) -> None:
    """A block rejects another structure, and the next block accepts it."""
    builder = BlockBuilder()
    assert builder.add(first)
    nbytes = builder.nbytes
    assert not builder.add(other)
    assert (builder.count, builder.nbytes) == (1, nbytes)
    assert same(receive(builder.build())[0], first)
    assert builder.add(other)
    assert same(receive(builder.build())[0], other)


def test_lists_and_arrays_share_a_block() -> None:
    """A list shares a block with arrays, as the array that numpy makes of it."""
    found = receive(encode({"x": [1, 2]}, {"x": np.array([3, 4])}, {"x": [5]}))
    assert [element["x"].tolist() for element in found] == [[1, 2], [3, 4], [5]]


def test_unsupported_element_leaves_the_block_as_it_was() -> None:
    """A TypeError within a block keeps the elements collected before."""
    builder = BlockBuilder()
    builder.add({"x": 1})
    with pytest.raises(TypeError, match=r"element\['x'\] is of type builtins.function"):
        builder.add({"x": lambda: 1})
    builder.add({"x": 2})
    assert receive(builder.build()) == [{"x": 1}, {"x": 2}]


def test_counts_and_sizes_are_known_while_filling() -> None:
    """The builder reports elements and bytes, and starts from zero after a build."""
    builder = BlockBuilder()
    for _ in range(3):
        builder.add(
            (
                np.zeros((28, 28), np.uint8),
                np.int64(1),
                "abc",
                7,
                None,
                True,
                2**100,
                np.array(["ab"]),
            )
        )
    assert (builder.count, builder.nbytes) == (3, 3 * (784 + 8 + 3 + 8 + 0 + 1 + 12 + 8))
    block = builder.build()
    assert (block.count, builder.count, builder.nbytes) == (3, 0, 0)
    assert block.wire_nbytes == sum(len(bytes(frame)) for frame in block.frames)
    decoded = decode_block(block.meta, block.frames)
    assert (len(decoded), decoded.count, decoded.nbytes) == (3, 3, block.nbytes)


def test_block_is_full_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of elements without bytes is full at a maximum number of elements."""
    monkeypatch.setattr("zmqdata.blocks.codec.MAX_ELEMENTS", 2)
    builder = BlockBuilder()
    assert [builder.add(None), builder.add(None), builder.add(None)] == [True, True, False]


def test_empty_block_cannot_be_built() -> None:
    """Building without elements is an error, also right after a build."""
    builder = BlockBuilder()
    with pytest.raises(ValueError, match="without elements"):
        builder.build()
    builder.add(1)
    builder.build()
    with pytest.raises(ValueError, match="without elements"):
        builder.build()


def test_unknown_codec_is_refused_without_losing_the_block() -> None:
    """An unknown codec raises a ValueError and keeps the elements."""
    builder = BlockBuilder()
    builder.add(1)
    with pytest.raises(ValueError, match="Invalid `compression`"):
        builder.build("gzip")
    assert receive(builder.build()) == [1]


def test_structure_is_told_once() -> None:
    """A header without a structure is shorter and refers to the structure sent before.
    The builder keeps a single structure object.
    """
    builder = BlockBuilder()
    builder.add({"x": 1})
    first = builder.build()
    builder.add({"x": 2})
    second = builder.build()
    assert first.structure is second.structure
    brief = second.encode_meta(announce=False)
    assert len(brief) < len(second.meta)
    known = decode_block(first.meta, first.frames).structure
    decoded = decode_block(brief, second.frames, known)
    assert decoded.structure is known
    assert [*decoded.elements()] == [{"x": 2}]
    with pytest.raises(ProtocolError, match="none was announced"):
        decode_block(brief, second.frames)


@pytest.mark.parametrize("skip", [-1, 0, 1, 3, 9])
def test_elements_may_be_skipped(skip: int) -> None:
    """Iteration starts behind the elements that the receiver already has."""
    row: list[Any] = [
        (
            i,
            str(i),
            None,
            np.int8(i),
            np.full(2, i),
            np.full(i, i),
            np.full((), i),
            2.0**i,
            np.array(["x" * i]),
        )
        for i in range(4)
    ]
    block = encode(*row)
    decoded = decode_block(block.meta, block.frames)
    assert all(map(same, decoded.elements(skip), row[max(skip, 0) :]))
    assert len([*decoded.elements(skip)]) == len(row[max(skip, 0) :])
    empty = encode((), ())
    assert [*decode_block(empty.meta, empty.frames).elements(1)] == [()]


@pytest.mark.parametrize("size", [8, COPY_BELOW // 8 - 1, COPY_BELOW // 8])
@pytest.mark.parametrize("shapes", [[0], [0, 0], [0, 1]], ids=["one", "stacked", "ragged"])
@pytest.mark.parametrize("codec", [None, "lz4"])
def test_arrays_belong_to_the_receiver(size: int, shapes: list[int], codec: str | None) -> None:
    """Arrays are writable, aligned for their dtype, and share no byte with frames or
    others.
    """
    block = encode(*(np.zeros(size + extra) for extra in shapes), codec=codec)
    before = [bytes(frame) for frame in block.frames]
    found = receive(block)
    for number, array in enumerate(found):
        assert array.flags.writeable
        assert array.flags.aligned
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(found))
    assert [bytes(frame) for frame in block.frames] == before


def test_keeping_a_small_array_does_not_keep_its_block() -> None:
    """Small arrays own their memory; large arrays are views aligned to 64 bytes.
    Keeping a small array does not keep its block.
    """
    small = receive(encode(*[np.zeros(100)] * 5))
    assert all(array.base is None for array in small)
    large = receive(encode(*[np.zeros(COPY_BELOW)] * 5))
    assert large[0].base is large[1].base is not None
    assert large[0].ctypes.data % 64 == 0


def test_one_large_array_travels_from_where_it_lies() -> None:
    """A contiguous array is encoded without a copy, and released with its block."""
    array = np.zeros(COPY_BELOW)
    block = encode(array)
    assert np.shares_memory(np.frombuffer(block.frames[0], np.uint8), array)
    watched = weakref.ref(array)
    del array, block
    gc.collect()
    assert watched() is None


# --------------------------------------------------------------------- hostile


def message(leaf: Node, column: Column, frame: bytes, count: int = 1) -> tuple[bytes, list[bytes]]:
    """Return a block as a hostile peer may write it."""
    return msgspec.msgpack.encode(BlockMeta(count, (column,), leaf)), [frame]


INTS = Leaf("array", "<i4", 1)
TEXTS = Leaf("array", "<U", 1)


def table(*numbers: int) -> bytes:
    """Return the table of shapes at the start of a ragged column."""
    raw = np.array(numbers, "<i8").tobytes()
    return raw + bytes(-len(raw) % 64)


@pytest.mark.parametrize(
    ("leaf", "column", "frame", "count"),
    [
        (INTS, Column(4, (1,)), b"123", 1),
        (INTS, Column(3, (1,)), b"123", 1),
        (INTS, Column(-4, (-1,)), b"", 1),
        (INTS, Column(0, (-1,)), b"", 1),
        (INTS, Column(4, (1, 1)), b"1234", 1),
        (INTS, Column(4, (1,)), b"1234", 0),
        (INTS, Column(4, (1,)), b"1234", -1),
        (INTS, Column(0, (0,)), b"", MAX_ELEMENTS + 1),
        (INTS, Column(1 << 62, (1 << 60,)), b"", 1),
        (INTS, Column(1 << 40, (1 << 38,), 0, (16,)), bytes(16), 1),
        (Leaf("array", "<i4", 2), Column(0, (0, 1 << 62)), b"", 1),
        (Leaf("array", "<i4", 3), Column(16, (1 << 32, 1 << 31, 2)), bytes(16), 1),
        (INTS, Column(0, None), b"", 1),
        (INTS, Column(64, None), table(1), 1),
        (INTS, Column(66, None), table(0) + b"12", 1),
        (INTS, Column(68, None), table(-1) + b"1234", 1),
        (INTS, Column(68, None), table(2, -1) + b"1234", 2),
        (INTS, Column(68, None), table(1 << 62) + b"1234", 1),
        (Leaf("array", "<i4", 2), Column(68, None), table(1 << 33, 1 << 31) + b"1234", 1),
        (TEXTS, Column(4, (1,), 0), b"abcd", 1),
        (TEXTS, Column(4, (1,), 3), b"abcd", 1),
        (TEXTS, Column(4, (1,), 4), b"\xff\xff\xff\xff", 1),
        (TEXTS, Column(68, None), table(1, 1) + b"\xff\xff\xff\xff", 1),
        (TEXTS, Column(64, None), table(3, 0), 1),
        (TEXTS, Column(64, None), table(0, 1 << 40), 1),
        (Leaf("str"), Column(66, None), table(2) + b"\xff\xff", 1),
        (Leaf("str"), Column(2, ()), b"ab", 1),
        (Leaf("object"), Column(0, ()), b"", 1),
        (Leaf("object"), Column(0, None), b"", 1),
        (Leaf("object"), Column(1 << 40, None), b"", 1),
        (Leaf("object"), Column(64, None), table(1 << 62, 0), 1),
        (Leaf("none"), Column(1, ()), b"1", 1),
        (Leaf("none"), Column(1, None), b"", 1),
        (Leaf("int"), Column(8, (1,)), bytes(8), 1),
        (Leaf("float"), Column(64, None), table(0), 1),
        (Leaf("scalar", "<i4"), Column(68, None), table(1) + bytes(4), 1),
        (Leaf("scalar", "<i4"), Column(5, ()), bytes(5), 1),
        (Leaf("scalar", "<U1"), Column(4, ()), b"\xff\xff\xff\xff", 1),
        (TupleOf((Leaf("int"), Leaf("int"))), Column(8, ()), bytes(8), 1),
        (DictOf(("a", "b"), (Leaf("int"),)), Column(8, ()), bytes(8), 1),
    ],
)
def test_contradictions_are_refused(leaf: Node, column: Column, frame: bytes, count: int) -> None:
    """Invalid sizes, shapes, counts and texts raise ProtocolError before any
    allocation.
    """
    with pytest.raises(ProtocolError):
        decode_block(*message(leaf, column, frame, count))


def test_announced_size_is_limited() -> None:
    """A consistent block is rejected if it announces more bytes than allowed."""
    block = encode(np.zeros(1000))
    assert decode_block(block.meta, block.frames, max_bytes=8000).nbytes == 8000
    with pytest.raises(ProtocolError, match="at most 7999"):
        decode_block(block.meta, block.frames, max_bytes=7999)


@pytest.mark.parametrize("frames", [[], [bytes(8), bytes(8)]])
def test_number_of_frames_must_fit(frames: list[bytes]) -> None:
    """A block must have a single frame for each leaf."""
    with pytest.raises(ProtocolError, match="frames for 1 leaves"):
        decode_block(encode(1).meta, frames)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_headers_are_refused(depth: int) -> None:
    """A header nested deeper than any element does not exhaust the stack."""
    leaf = msgspec.msgpack.encode(Leaf("int"))
    meta = b"\x93\x01\x90" + b"\x92\xa1t\x91" * depth + leaf
    with pytest.raises(ProtocolError):
        decode_block(meta, [])


@given(st.binary(max_size=200))
def test_garbage_is_no_header(garbage: bytes) -> None:
    """Random bytes are rejected as a header."""
    with pytest.raises(ProtocolError):
        decode_block(garbage, [b""])


SAMPLES = [
    encode({"x": 1, "y": (2.0, "text")}, {"x": 2, "y": (3.0, "more")}),
    encode(np.zeros((3, 2)), np.zeros((1, 2))),
    encode(np.array(["a", "bc"]), np.array(["def"])),
    encode(*[np.zeros(2, DTYPES[-1])] * 30, codec="zstd"),
    encode(*[(2**70, np.int8(1), None, b"b", np.datetime64(1, "s"))] * 100, codec="lz4"),
    encode(*[np.arange(i, dtype=np.int16) for i in range(100)], codec="blosclz"),
    encode(*[{"a": {1, "x"}, "b": Pair(Colour.RED, Example([1, "a"]))}] * 3),
    encode(*[np.array([None, "text", 2**70, np.arange(3)], object)] * 30, codec="zstd"),
]


def mutated(data: st.DataObject, raw: bytes) -> bytes:
    """Return the bytes with some of them changed, removed, inserted or repeated."""
    changed = bytearray(raw)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(changed)))
        stop = min(len(changed), place + data.draw(st.integers(0, 8)))
        changed[place:stop] = data.draw(
            st.one_of(st.binary(max_size=9), st.just(b"\xff" * (stop - place)))
        )
    return bytes(changed)


@settings(max_examples=how_many(150, 400), deadline=None)
@given(st.data())
def test_mutations_decode_or_are_refused(data: st.DataObject) -> None:
    """A damaged block yields its number of elements or raises ProtocolError."""
    block = data.draw(st.sampled_from(SAMPLES))
    meta = mutated(data, block.meta)
    frames = [mutated(data, bytes(frame)) for frame in block.frames]
    structure = data.draw(st.sampled_from([None, *(sample.structure for sample in SAMPLES)]))
    try:
        decoded = decode_block(meta, frames, structure, max_bytes=1 << 24)
    except ProtocolError:
        return
    assert isinstance(decoded.structure, Structure)
    elements = decoded.elements()
    assert sum(1 for _ in elements) == decoded.count


def test_what_is_too_large_to_be_sent_is_an_error() -> None:
    """An element above 4 GB is rejected with its size and the limit; the block stays
    usable.
    """
    large = np.broadcast_to(np.zeros(1, np.uint8), (MAX_ELEMENT_BYTES // 2 + 1,))
    builder = BlockBuilder()
    assert builder.add({"a": large[:3], "b": large[:3]})
    both = {"a": large, "b": large}
    assert builder.extend([both]) == 0
    assert builder.describe_plain(both) is None
    with pytest.raises(ValueError, match=r"4\.000 GB is too large to be sent: the limit is 4 GB"):
        builder.add(both)
    assert builder.count == 1


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_a_block_is_decompressed_for_a_peer_without_blosc(
    codec: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer without blosc gets a decompressed block with the same elements. A raw
    block is passed on unchanged.
    """
    elements = [{"x": np.full(2_000, i), "y": f"{i}", "z": b"z" * 5_000} for i in range(3)]
    block = encode(*elements, codec=codec)
    meta, frames = uncompressed(block.meta, block.frames)
    if codec is None:
        assert frames is block.frames
    monkeypatch.setattr(compression, "blosc", None)
    found = list(decode_block(meta, frames).elements())
    np.testing.assert_equal(found, elements)
