"""Tests of ``zmqdata.blocks.arrays``: numpy values in objects, as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from zmqdata.blocks.arrays import (
    make_array,
    make_array_of,
    make_dtype,
    make_structured,
    reduce_numpy,
)
from zmqdata.errors import ProtocolError


def again(value: Any) -> Any:
    """Rebuild a value from its description, at every level."""
    reduced = reduce_numpy(value)
    if reduced is None:
        return [again(item) for item in value] if isinstance(value, (list, tuple)) else value
    maker, parts = reduced[:2]
    return maker(
        *[again(part) if isinstance(part, (np.ndarray, np.dtype, list)) else part for part in parts]
    )


DTYPES: list[Any] = [
    *("?", ">i4", "<f8", "c16", "U3", "S2", "V5", "<M8[25s]", ">m8[D]", object),
    [("a", "<i4"), ("b", ">f8", (2,)), ("t", "<U2")],
    [(("title", "a"), "i4"), ("b", object), ("c", [("d", object, (2,))])],
    {"names": ["a"], "formats": ["i4"], "offsets": [4], "itemsize": 16},
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype((np.record, [("a", "i4")])),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_come_back(dtype: Any) -> None:
    """A dtype keeps titles, offsets and alignment, and so do its arrays and scalars."""
    wanted = np.dtype(dtype)
    found = again(wanted)
    assert (found, found.itemsize, found.isalignedstruct, found.type) == (
        wanted,
        wanted.itemsize,
        wanted.isalignedstruct,
        wanted.type,
    )
    for shape in [(), (3,), (0, 2), (2, 2)]:
        array = np.zeros(shape, wanted)
        assert again(array).dtype == array.dtype
        assert again(array).shape == array.shape
        assert repr(again(array)) == repr(array)


@given(
    npst.arrays(
        npst.scalar_dtypes() | npst.array_dtypes(),
        npst.array_shapes(min_dims=0, min_side=0, max_side=3),
    )
)
def test_arrays_come_back(array: np.ndarray[Any, Any]) -> None:
    """Any array keeps its dtype, shape and bytes."""
    found = again(array)
    assert (found.dtype, found.shape, found.tobytes()) == (
        array.dtype,
        array.shape,
        array.tobytes(),
    )


@given(st.lists(st.none() | st.integers() | st.text() | st.lists(st.integers())))
def test_arrays_of_objects_keep_their_objects(items: list[Any]) -> None:
    """An array of objects holds the very objects, including lists."""
    array = np.empty(len(items), object)
    for number, item in enumerate(items):
        array[number] = item
    assert again(array).tolist() == items


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(1),
        np.datetime64(3, "25s"),
        np.str_("a\0"),
        np.bytes_(b"a\0"),
        np.void(b"ab"),
        np.bool_(True),
    ],
)
def test_scalars_come_back(scalar: Any) -> None:
    """A scalar keeps its type and the NULs that arrays drop."""
    assert type(again(scalar)) is type(scalar)
    assert again(scalar) == scalar


@pytest.mark.parametrize("mask", [[True, False], np.ma.nomask])
def test_masked_arrays_come_back(mask: Any) -> None:
    """A masked array keeps data, mask, even an absent mask, and fill value."""
    found = again(np.ma.masked_array([1, 2], mask, fill_value=7))
    assert repr(found) == repr(np.ma.masked_array([1, 2], mask, fill_value=7))


def test_other_values_are_not_numpys() -> None:
    """Values that do not belong to numpy are left to another description."""
    assert reduce_numpy({1}) is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: make_array(np.dtype("i4"), (2,), b"1234"),
        lambda: make_array(np.dtype("i4"), (-1,), b""),
        lambda: make_array(np.dtype("i4"), (-1, -1), b"1234"),
        lambda: make_array(np.dtype(object), (1,), b"12345678"),
        lambda: make_array(np.dtype([("a", object)]), (1,), b"12345678"),
        lambda: make_array(np.dtype("U1"), (1,), b"\xff\xff\xff\xff"),
        lambda: make_array_of(np.dtype(object), (1 << 40,), [1]),
        lambda: make_structured(np.dtype([("a", object)]), (1 << 40,), [np.zeros(1)]),
    ],
)
def test_sizes_that_cannot_be_are_refused(call: Any) -> None:
    """No array exceeds the bytes received for it, and no bytes become objects or
    characters.
    """
    with pytest.raises(ProtocolError):
        call()


def test_descriptions_of_no_dtype_are_errors() -> None:
    """numpy's constructors reject overlapping objects and items that end too early."""
    for described in [
        "|Q9",
        ("fields", ("a", "b"), ("|O", "<i8"), (0, 4), (None, None), 16, False, False),
    ]:
        with pytest.raises((TypeError, ValueError)):
            make_dtype(described)


def test_views_come_back() -> None:
    """A matrix and a record array keep their class; other subclasses are left to
    others.
    """
    for value in (
        np.zeros((1, 2)).view(np.matrix),
        np.rec.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    ):
        found = again(value)
        assert type(found) is type(value)
        assert found.tolist() == value.tolist()
    assert reduce_numpy(5) is None
