"""Tests of ``zmqdata.elements.untyped``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import TensorSpec, merge_specs
from zmqdata.elements.untyped import is_untyped, retyped_alike


@pytest.mark.parametrize(
    ("leaf", "answer"),
    [
        (np.asarray([]), True),
        (np.asarray([[], []]), True),
        (np.zeros((0, 3)), True),
        (np.zeros(0, np.float32), False),
        (np.zeros(1), False),
        (0.0, False),
    ],
)
def test_what_is_untyped(leaf: Any, answer: bool) -> None:
    """Only an empty array of the dtype that numpy gives to an empty list is untyped."""
    assert is_untyped(leaf) is answer


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(0,), (2,)], [(0,), (2,)]),
        ([(2,), (0,)], [(2,), (0,)]),
        ([(0,), (2, 3)], [(0, 0), (2, 3)]),
        ([(2, 0), (2, 1, 3)], [(2, 0, 0), (2, 1, 3)]),
        ([(0, 3), (1,)], [(0, 3), (1,)]),
    ],
)
def test_untyped_arrays_follow_the_others(shapes: list[Any], expected: list[Any]) -> None:
    """They take dtype and number of axes, and keep the lengths that they have."""
    arrays = [np.zeros(shape, None if 0 in shape else "i4") for shape in shapes]
    found = retyped_alike(arrays)
    assert [array.shape for array in found] == expected
    assert {array.dtype.name for array in found} == {"int32"}


def test_untyped_rows_of_ragged_tensors() -> None:
    """Rows and ragged tensors without values take the dtype of the others."""
    ragged = RaggedTensor.from_rows([[], [1, 2], []])
    assert (ragged.to_list(), ragged.dtype) == ([[], [1, 2], []], np.dtype(int))
    stacked = RaggedTensor.from_rows([RaggedTensor.from_rows([[], []]), ragged])
    assert stacked.dtype == np.dtype(int)
    assert RaggedTensor.from_rows([["a"], []]).dtype.kind == "U"


def test_specs_of_empty_lists_follow_the_others() -> None:
    """A spec of an empty list joins a spec of any dtype and number of axes."""
    empty = TensorSpec((0,), np.float64)
    assert merge_specs(empty, TensorSpec((3,), "int8")) == TensorSpec((None,), "int8")
    assert merge_specs(TensorSpec((2, 3), str), empty) == TensorSpec((None, None), str)
    assert merge_specs(empty, empty) == empty
    with pytest.raises(TypeError, match="dtype"):
        merge_specs(TensorSpec((1,), np.float64), TensorSpec((3,), "int8"))
