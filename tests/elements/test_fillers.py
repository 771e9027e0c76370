"""Tests of ``zmqdata.elements.fillers``."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, TensorSpec
from zmqdata.elements.fillers import filler_of
from zmqdata.errors import WrongTypeError


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "i8"),
        (np.int32(1), "i8"),
        (-1, "f4"),
        (0.1, "f4"),
        (float("nan"), "f8"),
        (True, "?"),
        (1, "c8"),
        (None, "O"),
        ("pad", "U"),
        (b"pad", "S"),
        (np.datetime64("NaT"), "M8[s]"),
        (datetime.timedelta(1), "m8[s]"),
        (0, "m8[s]"),
    ],
    ids=str,
)
def test_values_of_the_sort_of_the_leaf_pad_it(value: Any, dtype: str) -> None:
    """A value of the leaf's sort is padded in the dtype of the leaf; floats may be
    rounded.
    """
    assert filler_of(value, np.dtype(dtype)).dtype.kind == np.dtype(dtype).kind


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.0, "i8"),
        (np.float32(1), "i8"),
        (1 + 0j, "f8"),
        (True, "i8"),
        (1, "?"),
        (2**70, "i8"),
        (1e300, "f4"),
        ("1", "i8"),
        (1, "U"),
        (b"a", "U"),
        ("a\0", "U"),
        (None, "i8"),
        ([1], "i8"),
        ([[1], [2, 3]], "i8"),
        (np.zeros(1), "f8"),
        ({1}, "i8"),
        (len, "O"),
        (Dataset.range(1), "i8"),
        (object(), "i8"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_values_of_another_sort_are_refused(value: Any, dtype: str) -> None:
    """The error comes when the pipeline is built if the spec is known, and with its
    spec otherwise.
    """
    with pytest.raises(WrongTypeError, match="Invalid `padding_values`"):
        filler_of(value, np.dtype(dtype))
    if value is None:
        return  # it stands for zeros
    known = Dataset.range(1).map(lambda _: np.empty(1, dtype), output_spec=TensorSpec((1,), dtype))
    with pytest.raises(WrongTypeError, match="Invalid `padding_values`"):
        known.padded_batch(1, padding_values=value)
    unknown = Dataset.range(1).map(lambda _: (np.empty(1, dtype),))
    with pytest.raises(WrongTypeError, match="Invalid `padding_values`"):
        print(unknown.padded_batch(1, padding_values=(value,)).element_spec)


@pytest.mark.parametrize("value", [[1], {1}, len, Dataset.range(1), np.zeros(1)], ids=str)
def test_what_no_leaf_can_have_is_refused_at_the_call(value: Any) -> None:
    """A padding value that is not a single value is refused without a spec."""
    unknown = Dataset.range(1).map(lambda x: np.zeros(x))
    with pytest.raises(WrongTypeError, match="Invalid `padding_values`"):
        unknown.padded_batch(1, padding_values=value)
    with pytest.raises(WrongTypeError, match="Invalid `padding_values`"):
        unknown.bucket_by_sequence_length(len, [2], [1, 1], padding_values=value)
