"""Tests of ``zmqdata.blocks.raggeds``: ragged tensors in blocks, and false splits."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zmqdata.blocks import CODECS, BlockBuilder, Structure, decode_block
from zmqdata.blocks.raggeds import check_ragged
from zmqdata.blocks.structures import Leaf, RaggedOf, TupleOf
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import ProtocolError

DTYPES = ["<i8", ">f4", "?", "<U3", "S2", "<M8[s]", "c8"]


@st.composite
def raggeds(draw: Any, rank: int, dtype: str, inner: tuple[int, ...], splits: str) -> RaggedTensor:
    """Draw a ragged tensor with any number of rows."""
    lengths = draw(st.lists(st.integers(0, 3), max_size=4))
    made: Any = RaggedTensor.from_row_lengths(
        np.zeros((sum(lengths), *inner), dtype), lengths, splits
    )
    for _ in range(rank - 1):
        cuts = draw(st.lists(st.integers(0, len(made)), max_size=3).map(sorted))
        made = RaggedTensor(made, np.array([0, *cuts, len(made)], splits))
    flat = draw(
        st.lists(st.integers(0, 9), min_size=made.flat_values.size, max_size=made.flat_values.size)
    )
    return made.with_flat_values(np.array(flat, "u1").astype(dtype).reshape(made.flat_values.shape))


ELEMENTS = st.tuples(
    st.integers(1, 3),
    st.sampled_from(DTYPES),
    st.sampled_from([(), (2,), (0,)]),
    st.sampled_from(["int64", "int32"]),
).flatmap(
    lambda kind: st.lists(
        st.tuples(raggeds(*kind), st.integers(-5, 5)).map(
            lambda pair: {"r": pair[0], "n": (pair[1],)}
        ),
        min_size=1,
        max_size=6,
    )
)


@settings(max_examples=150)
@given(ELEMENTS, st.sampled_from([None, *CODECS]), st.integers(0, 3))
def test_any_ragged_tensor_comes_back(elements: list[Any], codec: Any, skip: int) -> None:
    """Ragged tensors of any rank, dtype and inner shape share a block and arrive equal.
    The test covers raw blocks and codecs.
    """
    builder = BlockBuilder()
    assert all(builder.add(element) for element in elements)
    block = builder.build(codec)
    found = list(decode_block(block.meta, block.frames).elements(skip))
    assert len(found) == len(elements[skip:])
    for sent, came in zip(elements[skip:], found, strict=True):
        assert came["r"].equals(sent["r"])
        assert came["r"].dtype == sent["r"].dtype
        assert came["n"] == sent["n"]
        assert came["r"].flat_values.flags.writeable


@pytest.mark.parametrize(
    "other",
    [
        RaggedTensor(np.zeros(1, "f4"), [0, 1]),
        RaggedTensor(np.zeros((1, 2)), [0, 1]),
        RaggedTensor(np.zeros(1), np.array([0, 1], "i4")),
        RaggedTensor(RaggedTensor(np.zeros(1), [0, 1]), [0, 1]),
        np.zeros(1),
        5,
    ],
)
def test_another_kind_needs_another_block(other: Any) -> None:
    """Another dtype, number of axes, dtype of splits or rank needs another block."""
    for first, second in (
        (RaggedTensor(np.zeros(1), [0, 1]), other),
        (other, RaggedTensor(np.zeros(1), [0, 1])),
    ):
        builder = BlockBuilder()
        assert builder.add((first,))
        assert not builder.add((second,))
        assert builder.count == 1


def test_ragged_tensors_of_objects_are_objects() -> None:
    """A ragged tensor of Python objects is a single object, if objects are allowed."""
    ragged = RaggedTensor(np.array([1j, "a"], object), [0, 0, 2])
    builder = BlockBuilder()
    assert builder.add({"x": ragged})
    block = builder.build()
    (found,) = decode_block(block.meta, block.frames).elements()
    assert found["x"].equals(ragged)
    with pytest.raises(
        TypeError, match=r"element\['x'\] is of type zmqdata.elements.ragged.RaggedTensor, which"
    ):
        BlockBuilder(allow_objects=False).add({"x": ragged})


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_ragged_tensors_of_texts_travel_without_pickle(codec: str | None) -> None:
    """A ragged tensor of Python's texts, bytes or None needs no objects, at any rank,
    and fits in a block with others of its structure.
    """
    texts = RaggedTensor(np.array(["a\0", "\ud800", "c" * 9000], object), [0, 1, 3])
    builder = BlockBuilder(allow_objects=False)
    sent = [
        {"x": texts, "y": RaggedTensor(texts, [0, 2])},
        {"x": RaggedTensor(np.array([], object), [0, 0]), "y": RaggedTensor(texts, [0, 0, 2])},
        {
            "x": RaggedTensor(np.array([None, b"b"], object), [0, 2]),
            "y": RaggedTensor(texts, [0, 2]),
        },
    ]
    assert [builder.add(element) for element in sent] == [True] * 3
    block = builder.build(codec)
    found = decode_block(block.meta, block.frames, allow_objects=False).elements()
    for element, expected in zip(found, sent, strict=True):
        assert all(element[key].equals(expected[key]) for key in ("x", "y"))


def test_items_without_an_axis_are_not_ragged() -> None:
    """Row splits cannot divide a single item, whatever a peer says."""
    node = RaggedOf((Leaf("items"), Leaf("array", "<i8", 1)))
    with pytest.raises(ProtocolError, match="row splits that do not divide"):
        check_ragged(node, columns([np.array("a", object)], [[0, 1]]))


def columns(values: list[Any], *splits: Any) -> Any:
    held = [values, *[[np.array(one) for one in column] for column in splits]]
    return iter([lambda skip, column=column: iter(column[skip:]) for column in held])


SPLITS = Leaf("array", "<i8", 1)
FLAT = RaggedOf((Leaf("array", "<i8", 1), SPLITS))


@pytest.mark.parametrize("splits", [[], [1, 2], [0, 1], [0, 3], [0, 2, 1, 2], [-1, 2]])
def test_splits_that_lie_are_refused(splits: list[int]) -> None:
    """Row splits that do not partition the values raise ProtocolError at any depth."""
    lie = np.array(splits, np.int64)
    with pytest.raises(ProtocolError, match="row splits that do not divide its 2 values"):
        check_ragged(TupleOf((Leaf("int"), FLAT)), iter([None, *columns([np.zeros(2)], [lie])]))  # type: ignore[list-item]
    with pytest.raises(ProtocolError, match="do not divide"):
        check_ragged(RaggedOf((FLAT, SPLITS)), columns([np.zeros(2)], [[0, 1, 2]], [lie]))


def test_decoding_refuses_what_lies() -> None:
    """A block with changed splits raises ProtocolError before creating any element."""
    builder = BlockBuilder()
    builder.add(RaggedTensor(np.arange(3), [0, 1, 3]))
    block = builder.build()
    frames = [bytes(frame) for frame in block.frames]
    frames[1] = np.array([0, 5, 3]).tobytes()
    with pytest.raises(ProtocolError, match="row splits"):
        decode_block(block.meta, frames)


@pytest.mark.parametrize(
    "children",
    [
        (Leaf("int"), SPLITS),
        (Leaf("array", "<i8", 0), SPLITS),
        (Leaf("array", "<i8", 1), Leaf("array", "<i8", 2)),
        (Leaf("array", "<i8", 1), Leaf("array", "<f8", 1)),
        (Leaf("array", "<i8", 1), Leaf("int")),
    ],
)
def test_structures_that_lie_are_refused(children: Any) -> None:
    """A ragged structure is rejected if its values have no axis or its splits are
    invalid.
    """
    with pytest.raises(ProtocolError, match="a ragged tensor claims"):
        Structure(RaggedOf(children))


@settings(max_examples=200)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=3), st.integers(0, 2))
def test_changed_bytes_raise_protocol_error_only(place: int, patch: bytes, which: int) -> None:
    """A block with changed bytes decodes or raises ProtocolError."""
    builder = BlockBuilder()
    for length in range(3):
        builder.add(RaggedTensor.from_row_lengths(np.arange(length * 2), [length, length]))
    block = builder.build()
    parts = [bytearray(block.meta), *[bytearray(frame) for frame in block.frames]]
    place %= len(parts[which])
    parts[which][place : place + len(patch)] = patch
    try:
        found = list(decode_block(parts[0], parts[1:]).elements())
    except ProtocolError:
        return
    assert all(repr(element) for element in found)


def test_a_ragged_structure_survives_bytes() -> None:
    """A ragged structure survives encoding as plain data in the header."""
    structure = Structure(RaggedOf((FLAT, SPLITS)))
    node: Any = msgspec.msgpack.decode(structure.encoded, type=RaggedOf)
    assert Structure(node) == structure
