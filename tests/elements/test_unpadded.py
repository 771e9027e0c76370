"""Tests of ``zmqdata.elements.unpadded``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.elements.lists import array_of
from zmqdata.elements.specs import TensorSpec, merge_specs, spec_of, specs_agree
from zmqdata.elements.unpadded import (
    MOST_PADDED,
    array_of_texts,
    dtype_in_spec,
    dtypes_in_spec,
    pad_too_much,
    pads_too_much,
)

LONG = MOST_PADDED // 4


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a"] * 3 + ["b" * (LONG // 4)], False),
        (["a"] * 3 + ["b" * (LONG // 4 + 1)], True),
        ([b"a"] * 15 + [b"b" * (MOST_PADDED // 16)], False),
        ([b"a"] * 15 + [b"b" * (MOST_PADDED // 16 + 1)], True),
        ([b"a" * LONG] * 5, False),
        ([b""] * 7 + [b"a" * LONG], False),
        ([b""] * 8 + [b"a" * LONG], True),
        (["", "a" * LONG], False),
        (["", "", "a" * LONG], True),
        ([""] * 4 + ["ä" * LONG], True),
        ([""] * 3 + ["ä" * LONG], False),
        ([""] * 5 + ["\ud800" * LONG], False),
        ([1, "a" * LONG], False),
        (["a" * LONG, "", 1], False),
        (["a" * LONG, "", b"", b""], False),
    ],
    ids=lambda value: "",
)
def test_the_bounds(texts: list[Any], expected: bool) -> None:
    """Texts do not pad if their array takes more than 16 MB, and more than eight times
    their UTF-8.
    """
    assert pads_too_much(texts) is expected


def test_a_list_of_uneven_texts_is_an_array_of_objects() -> None:
    """A list becomes the array that a batch of its items is."""
    texts = ["", "", np.str_("a" * LONG)]
    for array in (array_of(texts), array_of_texts(texts)):
        assert array.dtype == object
        assert array.tolist() == texts
        assert {type(text) for text in array} == {str}


def test_arrays_of_one_width_are_not_padded() -> None:
    """numpy's arrays of one width are joined as they are, even if they are empty."""
    wide = np.array(["", "", "a" * LONG])
    assert pad_too_much([wide, wide]) is False
    assert pad_too_much([wide, np.array(["a"])]) is True


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array(["a"], object), str),
        (np.array(["a"], object).reshape(()), str),
        (np.array([[b"a"]], object), bytes),
        (np.array(["a", b"a"], object), object),
        (np.array(["a", None], object), object),
        (np.array([np.str_("a")], object), object),
        (np.array([], object), object),
        (np.array(["a"]), str),
        (np.zeros(1), float),
    ],
)
def test_the_dtype_in_specs(array: Any, expected: Any) -> None:
    """Only an array of texts, or of bytes, has their dtype in its spec."""
    assert dtype_in_spec(array) == np.dtype(expected)
    assert spec_of(array) == TensorSpec(array.shape, expected)


def test_an_empty_array_of_objects_fits_texts() -> None:
    """An array without items does not differ from texts."""
    empty = np.array([], object)
    assert dtypes_in_spec([empty, np.array(["a"])]) == {np.dtype(str)}
    assert dtypes_in_spec([empty]) == {np.dtype(object)}


def test_objects_include_texts_in_specs() -> None:
    """Merged with the spec of an array of texts and None, texts are objects."""
    texts, objects = spec_of(np.array(["a"])), spec_of(np.array(["a", None]))
    for pair in ((texts, objects), (objects, texts)):
        assert merge_specs(*pair) == TensorSpec((None,), object)
        assert not specs_agree(*pair)
    with pytest.raises(TypeError, match="dtype"):
        merge_specs(objects, spec_of(np.zeros(2)))
