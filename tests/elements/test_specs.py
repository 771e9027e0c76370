"""Tests of ``zmqdata.elements.specs``."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elements.attrs_classes import Marked
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.specs import (
    DatasetSpec,
    NoneTensorSpec,
    TensorSpec,
    decode_spec,
    encode_spec,
    leading_length,
    merge_specs,
    spec_of,
    spec_of_alike,
    specs_agree,
    with_leading_axis,
    with_leading_length,
    without_leading_axis,
)
from zmqdata.errors import ProtocolError

Point = namedtuple("Point", ["x", "y"])
INT = TensorSpec((), np.int64)

leaves = st.builds(
    TensorSpec,
    st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3).map(tuple),
    st.sampled_from(
        [
            "int8",
            "float32",
            "bool",
            "U",
            "S",
            "O",
            "M8[ns]",
            ">i4",
            "i4,f8",
            [("a", "i1", (2,)), ("b", "U3")],
        ]
    ),
)
ragged_leaves = st.builds(
    lambda shape, rank, dtype, splits: RaggedTensorSpec(
        None if shape is None else (None,) * (rank + 1) + tuple(shape), dtype, rank, splits
    ),
    st.none() | st.lists(st.none() | st.integers(0, 9), max_size=2),
    st.integers(1, 3),
    st.sampled_from(["int8", "U", ">i4", "i4,f8"]),
    st.sampled_from(["int32", "int64"]),
)
specs = st.recursive(
    leaves | ragged_leaves | st.just(NoneTensorSpec()),
    lambda inner: st.one_of(
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.tuples(inner, inner).map(lambda pair: Point(*pair)),
        st.tuples(inner, inner).map(lambda pair: Marked(*pair)),
    ),
    max_leaves=6,
)


@given(specs)
def test_any_spec_survives_bytes(spec: Any) -> None:
    """Decoding restores an equal spec, including namedtuples and structured dtypes."""
    decoded = decode_spec(encode_spec(spec))
    assert decoded == spec
    assert repr(decoded) == repr(spec)


@given(st.binary(max_size=40) | specs.map(encode_spec).map(lambda encoded: encoded[:-1] + b"\xc1"))
def test_rubbish_raises_protocol_error_only(encoded: bytes) -> None:
    """Bytes that encode no spec raise ProtocolError and no other error."""
    try:
        decode_spec(encoded)
    except ProtocolError:
        return
    assert encode_spec(decode_spec(encoded))


@pytest.mark.parametrize(
    "wrong",
    [
        ["l", "no dtype", []],
        ["l", "<i8", [-1]],
        ["l", {"fields": [], "size": 1}, []],
        ["d", ["a", "a"], [["l", "<i8", []], ["l", "<i8", []]]],
        ["d", [], [["l", "<i8", []]]],
        ["x"],
    ],
)
def test_wrong_descriptions_raise_protocol_error(wrong: Any) -> None:
    """Well-formed msgpack that describes no spec is rejected as well."""
    with pytest.raises(ProtocolError):
        decode_spec(msgspec.msgpack.encode(wrong))


def test_deep_nesting_is_refused() -> None:
    """A peer cannot exhaust the stack with nested specs or dtypes."""
    spec: Any = INT
    for _ in range(70):
        spec = (spec,)
    with pytest.raises(ProtocolError, match="deeper"):
        decode_spec(encode_spec(spec))
    dtype: Any = "<i8"
    for _ in range(70):
        dtype = [dtype, [1]]
    with pytest.raises(ProtocolError, match="deeper"):
        decode_spec(msgspec.msgpack.encode(["l", dtype, []]))


@pytest.mark.parametrize("kind", [Point, Marked])
def test_unknown_records_become_dicts(kind: Any) -> None:
    """An unknown namedtuple or attrs class becomes a dict, as a peer cannot trigger an
    import.
    """
    encoded = encode_spec(kind(INT, INT))
    assert decode_spec(encoded) == kind(INT, INT)
    name = kind.__name__.encode()
    assert decode_spec(encoded.replace(name, name[::-1])) == {"x": INT, "y": INT}


def test_none_has_a_spec_of_its_own() -> None:
    """A leaf of None stays None in and out of batches. It fits another None, or any
    object.
    """
    spec = spec_of({"x": None, "y": 1})
    assert spec == {"x": NoneTensorSpec(), "y": INT}
    batched = with_leading_axis(spec, 4)
    assert batched == {"x": NoneTensorSpec(), "y": TensorSpec((4,), np.int64)}
    assert without_leading_axis(batched) == spec == merge_specs(spec, spec)
    assert with_leading_length(batched, 5)["x"] == NoneTensorSpec()
    assert leading_length(batched) == 4
    assert specs_agree(spec, spec)
    anything = TensorSpec((), object)
    assert merge_specs(NoneTensorSpec(), anything) == anything
    assert merge_specs(anything, NoneTensorSpec()) == anything
    for other in (INT, TensorSpec((None,), object), DatasetSpec(INT)):
        assert not specs_agree(NoneTensorSpec(), other)
        assert not specs_agree(other, NoneTensorSpec())


def test_only_specs_are_encoded() -> None:
    """Encoding a value other than a spec raises a TypeError that shows it."""
    with pytest.raises(TypeError, match="got 7"):
        encode_spec({"x": 7})


def test_python_leaves_have_numpys_dtypes() -> None:
    """Python's scalar types have numpy's dtypes, and any other type is object."""
    spec = spec_of((1, 2.0, True, 1j, "a", b"b", {1}))
    dtypes = [np.int64, np.float64, np.bool_, np.complex128, np.str_, np.bytes_, object]
    assert spec == tuple(TensorSpec((), dtype) for dtype in dtypes)


@pytest.mark.parametrize(
    ("elements", "spec"),
    [
        ([("a", 1), ("b", 2)], (TensorSpec((), "U"), INT)),
        ([{"x": (1,), "y": None}, {"y": None, "x": (2,)}], {"x": (INT,), "y": NoneTensorSpec()}),
        ([np.zeros(2), np.zeros(3)], TensorSpec((None,), "f8")),
        ([1, 2**63], TensorSpec((), object)),
        ([1, -(2**63) - 1], TensorSpec((), object)),
        ([-(2**63), 2**63 - 1], INT),
        ([(), ()], ()),
        ([np.datetime64(1, "s")] * 2, TensorSpec((), "M8[s]")),
        ([1, True], None),
        ([(1,), (1, 2)], None),
        ([{"x": 1}, {"y": 1}], None),
        ([Point(1, 2), Point(3, 4)], None),
        ([np.datetime64(1, "s"), np.datetime64(1, "ns")], None),
        ([np.zeros(0), np.zeros(1, "i8")], None),
        ([np.array(None), np.array(None)], None),
        ([[1], [2]], None),
        ([RaggedTensor.from_rows([[1]])] * 2, None),
        ([], None),
    ],
)
def test_elements_of_equal_types_are_described_together(elements: list[Any], spec: Any) -> None:
    """Elements of equal nesting and types have a spec for all. None means that each has
    to be described.
    """
    assert spec_of_alike(elements) == spec


def test_deep_elements_are_described_one_by_one() -> None:
    """Elements of more than 64 levels have no spec for all."""
    nested: Any = 1
    for _ in range(64):
        nested = (nested,)
    assert spec_of_alike([nested, nested]) == spec_of(nested)
    assert spec_of_alike([(nested,), (nested,)]) is None


def test_a_list_is_an_array() -> None:
    """A list in an element has the spec of the array that numpy makes of it."""
    assert spec_of({"x": [[1, 2]]}) == {"x": TensorSpec((1, 2), np.int64)}


def test_texts_have_no_width() -> None:
    """Texts of different widths have equal specs, which admit any width."""
    spec = spec_of(np.array(["abc"]))
    assert spec == spec_of(np.array(["z"])) == TensorSpec((1,), str)
    assert spec.admits((1,), np.dtype("<U9"))
    assert repr(spec) == "TensorSpec(shape=(1,), dtype=str)"


@pytest.mark.parametrize(
    ("shape", "dtype", "admitted"),
    [
        ((5, 2), "int8", True),
        ((5, 3), "int8", False),
        ((5,), "int8", False),
        ((5, 2), "int16", False),
    ],
)
def test_admits_compares_shape_and_dtype(
    shape: tuple[int, ...], dtype: str, admitted: bool
) -> None:
    """None in a shape admits any length; other lengths and the dtype must be equal."""
    assert TensorSpec((None, 2), "int8").admits(shape, np.dtype(dtype)) is admitted


def test_unknown_rank_admits_any_shape() -> None:
    """A spec without a shape admits arrays with any number of axes."""
    assert TensorSpec(None, "int8").admits((1, 2, 3), np.dtype("int8"))


@pytest.mark.parametrize("shape", [(-1,), ("a",), (True,), (1.5,)])
def test_wrong_shapes_are_refused(shape: Any) -> None:
    """Lengths are integers of at least 0, or None."""
    with pytest.raises(ValueError, match="lengths"):
        TensorSpec(shape, "int8")


def test_a_single_length_is_a_shape() -> None:
    """An integer is the shape of a vector, and the default dtype is tf.TensorSpec's."""
    assert TensorSpec(3) == TensorSpec((3,), np.float32)


def test_merging_keeps_what_is_common() -> None:
    """Merging turns different lengths into None, and different ranks into an unknown
    shape.
    """
    first = {"x": TensorSpec((2, 3), "int8"), "y": TensorSpec((1,), "int8")}
    second = {"x": TensorSpec((4, 3), "int8"), "y": TensorSpec((), "int8")}
    assert merge_specs(first, second) == {
        "x": TensorSpec((None, 3), "int8"),
        "y": TensorSpec(None, "int8"),
    }


@pytest.mark.parametrize(
    "other", [TensorSpec((), "int8"), (INT,), {"x": INT, "y": INT}, {"y": INT}]
)
def test_merging_different_elements_is_an_error(other: Any) -> None:
    """Merging different dtypes or nestings raises a TypeError with the remedy."""
    for pair in (
        ({"x": INT}, other if isinstance(other, dict) else {"x": other}),
        (other, {"x": INT}),
    ):
        with pytest.raises(TypeError, match="map"):
            merge_specs(*pair)


def test_batches_have_one_more_axis() -> None:
    """Adding and removing the leading axis are inverse, also for an unknown shape."""
    spec = (TensorSpec((2,), "int8"), TensorSpec(None, "int8"))
    assert with_leading_axis(spec, 4) == (TensorSpec((4, 2), "int8"), TensorSpec(None, "int8"))
    assert without_leading_axis(with_leading_axis(spec, None)) == spec


def test_structures_keep_their_kind() -> None:
    """Mapping keeps the order of dicts and the class of namedtuples. It treats None and
    lists as leaves.
    """
    structure = {"b": Point(1, None), "a": ([1, 2],)}
    mapped = map_structure(lambda leaf: [leaf], structure)
    assert mapped == {"b": Point([1], [None]), "a": ([[1, 2]],)}
    assert list(mapped) == ["b", "a"]


def test_ragged_leaves_have_specs() -> None:
    """A ragged tensor is a single leaf. Batching adds a ragged axis, and each row has
    an axis less, down to arrays.
    """
    spec = spec_of({"r": RaggedTensor(np.zeros((3, 2)), [0, 1, 3])})["r"]
    assert spec == RaggedTensorSpec((2, None, 2), "f8", 1)
    stacked = with_leading_axis(spec, None)
    assert stacked == RaggedTensorSpec((None, 2, None, 2), "f8", 2)
    assert without_leading_axis(stacked) == spec
    assert without_leading_axis(spec) == TensorSpec((None, 2), "f8")
    assert with_leading_length(spec, None) == RaggedTensorSpec((None, None, 2), "f8", 1)


def test_ragged_specs_merge() -> None:
    """Merging ragged specs turns different lengths into None. It rejects a different
    ragged rank, dtype of splits or kind of leaf.
    """
    one = RaggedTensorSpec((2, None, 3), "f8", 1)
    assert merge_specs(one, RaggedTensorSpec((4, None, 3), "f8", 1)) == RaggedTensorSpec(
        (None, None, 3), "f8", 1
    )
    others = [
        RaggedTensorSpec((2, None, 3), "f8", 2),
        RaggedTensorSpec((2, None, 3), "f8", 1, "int32"),
    ]
    for other in (*others, TensorSpec((2, None, 3), "f8")):
        with pytest.raises(TypeError, match="in the place of"):
            merge_specs(one, other)


def test_the_leading_length_is_the_one_that_is_known() -> None:
    """The leading length is that of the first leaf that knows it, or None."""
    assert leading_length((TensorSpec((None,)), TensorSpec((5, 1)))) == 5
    assert leading_length((TensorSpec((None,)), TensorSpec(()), TensorSpec(None))) is None
    assert with_leading_length(TensorSpec(None), 3) == TensorSpec(None)


def test_datasets_in_elements_have_a_spec() -> None:
    """A DatasetSpec can be encoded and merged, and batching treats it as an object."""
    inner = DatasetSpec({"x": TensorSpec((2,), "int8")})
    spec = (inner, TensorSpec((), "int8"))
    assert decode_spec(encode_spec(spec)) == spec
    assert merge_specs(inner, DatasetSpec({"x": TensorSpec((3,), "int8")})).element_spec == {
        "x": TensorSpec((None,), "int8")
    }
    for pair in ((inner, TensorSpec((), object)), (TensorSpec((), object), inner)):
        with pytest.raises(TypeError, match="in the place of"):
            merge_specs(*pair)
    assert with_leading_axis(inner, 3) == TensorSpec((3,), object)


def test_a_leaf_with_an_element_spec_is_a_dataset() -> None:
    """A leaf with an element_spec is described by that spec."""

    class Anything:
        element_spec = TensorSpec((), "int8")

    assert spec_of((Anything(),)) == (DatasetSpec(TensorSpec((), "int8")),)


I8 = TensorSpec((2, None), "int8")


@pytest.mark.parametrize(
    ("other", "agrees"),
    [
        (TensorSpec((2, 5), "int8"), True),
        (TensorSpec(None, "int8"), True),
        (TensorSpec((3, 5), "int8"), False),
        (TensorSpec((2,), "int8"), False),
        (TensorSpec((2, 5), "int16"), False),
        ({"a": I8}, False),
        (DatasetSpec(I8), False),
        (RaggedTensorSpec((2, None), "int8"), False),
        (TensorSpec((2, 5), object), False),
        (TensorSpec((2, 5), str), False),
    ],
)
def test_specs_agree_where_an_element_can_look_like_both(other: Any, agrees: bool) -> None:
    """Specs agree if nestings, kinds, dtypes and known lengths do, also in windows."""
    assert specs_agree(I8, other) is agrees
    assert specs_agree(other, I8) is agrees
    assert specs_agree({"x": (I8, I8)}, {"x": (I8, other)}) is agrees
    assert specs_agree(DatasetSpec(I8), DatasetSpec(other)) is agrees
    assert not specs_agree({"x": I8}, {"y": I8})


@pytest.mark.parametrize("spec", [INT, TensorSpec((), str), DatasetSpec(INT)])
def test_an_object_is_no_number_text_or_dataset(spec: Any) -> None:
    """A spec of Python objects agrees with that of None, and with no other kind."""
    anything = TensorSpec((), object)
    assert not specs_agree(anything, spec)
    assert not specs_agree({"x": spec}, {"x": anything})
    assert specs_agree(anything, anything)
    assert specs_agree(anything, NoneTensorSpec())
    assert specs_agree(TensorSpec(None, object), anything)


@pytest.mark.parametrize(
    "bad", [5, None, "int64", TensorSpec, [TensorSpec((), "int8")], {"x": np.int8}]
)
def test_a_dataset_s_spec_is_made_of_specs(bad: Any) -> None:
    """An invalid element spec is rejected when it is given, not when it is used."""
    with pytest.raises(
        TypeError, match=r"element_spec must be TensorSpec\(shape, dtype\) for each leaf.* of type"
    ):
        DatasetSpec(bad)
    for good in ((), {"x": DatasetSpec(TensorSpec((), "int8"))}):
        assert DatasetSpec(good).element_spec == good
