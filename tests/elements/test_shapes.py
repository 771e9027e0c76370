"""Tests of ``zmqdata.elements.shapes``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.elements.shapes import (
    checked_dtype,
    checked_shape,
    dtype_name,
    merged_shape,
    shape_admits,
    without_width,
)


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        (None, None),
        (3, (3,)),
        ([], ()),
        ((None, np.int64(2)), (None, 2)),
        (np.array([4, 5]), (4, 5)),
    ],
)
def test_shapes_are_tuples_of_ints_and_none(given: Any, shape: Any) -> None:
    """A shape can be a number or any sequence of lengths."""
    assert checked_shape(given) == shape


@pytest.mark.parametrize(
    ("given", "kind"),
    [((-1,), ValueError), ((True,), TypeError), (("x",), TypeError), (([1],), TypeError)],
)
def test_what_is_no_length_is_refused(given: Any, kind: type[Exception]) -> None:
    """The error about an invalid length shows it. It is a TypeError unless the length
    is an integer.
    """
    with pytest.raises(kind, match=r"lengths of at least 0, or None .* got"):
        checked_shape(given)


@pytest.mark.parametrize("given", ["", b"", {}, 1.5, object(), int])
def test_what_is_no_sequence_is_no_shape(given: Any) -> None:
    """A text or a dict is rejected as a shape."""
    with pytest.raises(TypeError, match="a shape is a number, a sequence of lengths, or None; got"):
        checked_shape(given)


@pytest.mark.parametrize("given", ["", "x", -1, 1.5, True, object(), (), "a\udc80", [], {}])
def test_what_numpy_does_not_take_is_no_dtype(given: Any) -> None:
    """The error about an invalid dtype shows it, also for records without fields."""
    with pytest.raises(TypeError, match="dtype must"):
        checked_dtype(given)


def test_none_admits_any_length() -> None:
    """None admits any length, and shapes of different ranks do not match."""
    assert shape_admits((None, 2), (7, 2))
    assert not shape_admits((None, 2), (7, 3))
    assert not shape_admits((None,), (7, 3))


def test_merging_keeps_what_is_equal() -> None:
    """Merging gives None for different lengths, and no shape for different ranks."""
    assert merged_shape((2, 3), (2, 4)) == (2, None)
    assert merged_shape((2,), (2, 4)) is None
    assert merged_shape(None, (2,)) is None
    assert merged_shape((2,), None) is None


def test_texts_have_no_width() -> None:
    """Texts of every width share a dtype with its own name, and so does a foreign byte
    order.
    """
    assert without_width(np.dtype("<U7")) == without_width(np.dtype("<U3"))
    assert [dtype_name(without_width(np.dtype(code))) for code in ("U3", "S3", ">i4")] == [
        "str",
        "bytes",
        ">i4",
    ]
    assert dtype_name(np.dtype([("a", "i1")])) == "[('a', 'i1')]"
