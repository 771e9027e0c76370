"""Tests of ``zmqdata.elements.ragged`` against nested lists, and of its specs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec, concatenate

ROWS = st.lists(st.lists(st.integers(-9, 9), max_size=4), min_size=1, max_size=6)
DEEP = st.lists(ROWS, min_size=1, max_size=4)


def ragged(rows: list[list[int]]) -> RaggedTensor:
    return RaggedTensor.from_rows([np.array(row, np.int64) for row in rows])


def deep(rows: list[list[list[int]]]) -> RaggedTensor:
    return RaggedTensor.from_rows([ragged(row) for row in rows])


@given(ROWS, st.integers(-8, 8), st.integers(-8, 8), st.sampled_from([1, 2, -1, -2]))
def test_rows_are_those_of_a_list_of_lists(
    rows: list[list[int]], start: int, stop: int, step: int
) -> None:
    """A ragged tensor has length, rows, slices and row lengths of its nested list."""
    made = ragged(rows)
    assert (len(made), made.shape, made.ndim) == (len(rows), (len(rows), None), 2)
    assert made.to_list() == rows == [row.tolist() for row in made]
    assert made.row_lengths().tolist() == [*map(len, rows)]
    assert made[start:stop:step].to_list() == rows[start:stop:step]
    assert made[-1].tolist() == rows[-1]


@given(DEEP)
def test_ragged_rows_may_be_ragged_again(rows: list[list[list[int]]]) -> None:
    """Two ragged axes nest, and each row is a ragged tensor."""
    made = deep(rows)
    assert made.to_list() == rows
    assert (made.ragged_rank, made.shape) == (2, (len(rows), None, None))
    assert made[::-1].to_list() == rows[::-1]
    assert isinstance(made[0], RaggedTensor)
    assert (
        made.nbytes
        == made.flat_values.nbytes + made.row_splits.nbytes + made.values.row_splits.nbytes
    )  # type: ignore[union-attr]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4))
def test_arrays_may_be_ragged_in_several_axes(shapes: list[tuple[int, int]]) -> None:
    """Arrays of shapes (a, b) make a ragged tensor with the same rows in both axes."""
    arrays = [np.arange(a * b * 2).reshape(a, b, 2) for a, b in shapes]
    made = RaggedTensor.from_rows(arrays, "int32", ragged_rank=2)
    assert made.to_list() == [array.tolist() for array in arrays]
    assert made.shape == (len(arrays), None, None, 2)
    assert made.row_splits.dtype == np.int32
    whole = RaggedTensor.from_rows(arrays, ragged_rank=3)
    assert whole.to_list() == made.to_list()
    assert whole.ragged_rank == 3


@given(ROWS)
def test_padding_fills_rows_to_the_longest(rows: list[list[int]]) -> None:
    """to_tensor pads each row with the default value."""
    longest = max(map(len, rows))
    assert ragged(rows).to_tensor(77).tolist() == [
        row + [77] * (longest - len(row)) for row in rows
    ]


def test_padding_reaches_all_ragged_axes() -> None:
    """to_tensor pads inner rows too, and texts with the empty text."""
    assert deep([[[1], [2, 3]], [[4]]]).to_tensor().tolist() == [[[1, 0], [2, 3]], [[4, 0], [0, 0]]]
    assert RaggedTensor(["a", "b"], [0, 2, 2]).to_tensor().tolist() == [["a", "b"], ["", ""]]
    assert RaggedTensor(np.zeros(0), [0]).to_tensor().shape == (0, 0)


def test_equal_means_rows_and_dtypes() -> None:
    """equals compares dtypes of values and splits, ragged axes and rows; NaN equals
    NaN.
    """
    made = ragged([[1], [2, 3]])
    assert made.equals(made.copy())
    assert RaggedTensor([np.nan], [0, 1]).equals(RaggedTensor([np.nan], [0, 1]))
    assert deep([[[1]]]).equals(deep([[[1]]]))
    others = [
        ragged([[1, 2], [3]]),
        ragged([[1], [2, 4]]),
        RaggedTensor(made.values, made.row_splits.astype("i4")),
        RaggedTensor(np.array([1.0, 2, 3]), made.row_splits),
        RaggedTensor(RaggedTensor([1], [0, 1, 1, 1]), [0, 1, 3]),
        made.to_list(),
    ]
    assert not any(made.equals(other) for other in others)
    assert not RaggedTensor(RaggedTensor([1], [0, 1, 1, 1]), [0, 1, 3]).equals(made)


def test_a_copy_has_memory_of_its_own() -> None:
    """Writing to a copy leaves the original alone, and pickled tensors are equal."""
    made = ragged([[1], [2, 3]])
    made.copy().values[...] = 0  # type: ignore[index]
    assert made.to_list() == [[1], [2, 3]]
    assert pickle.loads(pickle.dumps(made)).equals(made)


def test_flat_values_can_be_replaced() -> None:
    """with_flat_values keeps the rows at any depth."""
    made = deep([[[1], [2, 3]], [[]]])
    assert made.with_flat_values(made.flat_values * 10).to_list() == [[[10], [20, 30]], [[]]]


def test_lengths_and_empty_tensors() -> None:
    """Row lengths become splits; a tensor without rows has a single split."""
    assert RaggedTensor.from_row_lengths(np.arange(3), [0, 3], "int32").to_list() == [[], [0, 1, 2]]
    assert RaggedTensor.from_row_lengths([], []).to_list() == []
    assert ragged([[1]])[5:2].to_list() == []


def test_a_large_one_is_not_written_out() -> None:
    """The repr of a small tensor shows its rows, and of a large tensor its shape."""
    assert repr(ragged([[1], []])) == "RaggedTensor([[1], []], dtype=int64)"
    assert repr(ragged([[1] * 300])) == "<RaggedTensor of shape (1, None), dtype=int64>"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: RaggedTensor(5, [0, 1]), TypeError, "need an axis"),
        (
            lambda: RaggedTensor([1], [0.0, 1.0]),
            TypeError,
            "int64 or int32 with one axis, got float64",
        ),
        (lambda: RaggedTensor([1], [[0, 1]]), TypeError, "with one axis"),
        (lambda: RaggedTensor([1], []), ValueError, "from 0 to the number of values"),
        (lambda: RaggedTensor([1, 2], [1, 2]), ValueError, "from 0"),
        (lambda: RaggedTensor([1, 2], [0, 1]), ValueError, r"number of values \(2\)"),
        (lambda: RaggedTensor([1, 2], [0, 2, 1, 2]), ValueError, "without falling"),
        (
            lambda: RaggedTensor.from_row_lengths([1], [1], "int8"),
            ValueError,
            "row_splits_dtype must be",
        ),
        (lambda: RaggedTensor.from_rows([]), ValueError, "got no rows"),
        (
            lambda: RaggedTensor.from_rows([np.zeros(1)], ragged_rank=2),
            ValueError,
            "ragged_rank must be",
        ),
        (
            lambda: RaggedTensor.from_rows([np.zeros((1, 2)), np.zeros((1, 3))]),
            ValueError,
            "row 1 has shape",
        ),
        (
            lambda: RaggedTensor.from_rows([np.zeros(1), np.zeros(1, "f4")]),
            TypeError,
            "row 1 has dtype float32",
        ),
        (lambda: ragged([[1]])["x"], TypeError, "an int or a slice of rows, got 'x'"),
        (lambda: ragged([[1]])[True], TypeError, "got True"),
        (lambda: ragged([[1]])[1], IndexError, "row 1 of a ragged tensor with 1 rows"),
        (lambda: ragged([[1]])[-2], IndexError, "row -2"),
        (lambda: np.asarray(ragged([[1]])), TypeError, "to_tensor"),
        (lambda: concatenate([ragged([[1]]), np.zeros(1)]), TypeError, "make all of them ragged"),
        (lambda: RaggedTensorSpec(None), ValueError, "needs ragged_rank"),
        (lambda: RaggedTensorSpec((None,)), ValueError, "less than the number of axes"),
        (lambda: RaggedTensorSpec((None, 2), ragged_rank=2), ValueError, r"axes \(2\), got 2"),
        (lambda: RaggedTensorSpec(None, ragged_rank=0), ValueError, r"axes \(unknown\)"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type[Exception], text: str) -> None:
    """The error about an invalid ragged tensor has the given and expected value."""
    with pytest.raises(error, match=text):
        make()


def test_joining_keeps_byte_order() -> None:
    """Joining keeps a foreign byte order, and widens texts."""
    assert concatenate([np.zeros(1, ">i4"), np.zeros(2, ">i4")]).dtype == np.dtype(">i4")
    assert concatenate([np.array(["a"]), np.array(["bcd"])]).tolist() == ["a", "bcd"]


@given(DEEP)
def test_a_spec_admits_what_it_was_made_of(rows: list[list[list[int]]]) -> None:
    """The spec of a ragged tensor admits it, also with more lengths of None."""
    made = deep(rows)
    spec = RaggedTensorSpec.of(made)
    assert spec.admits(made)
    assert RaggedTensorSpec((None, None, None), "int64").admits(made)
    assert RaggedTensorSpec(None, "int64", 2).admits(made)
    assert hash(spec) == hash(RaggedTensorSpec.of(made.copy()))


def test_a_spec_admits_nothing_else() -> None:
    """A spec rejects another dtype, ragged rank, dtype of splits or length. In ragged
    axes it checks the length of each row.
    """
    made = RaggedTensor(np.zeros((4, 3), np.int64), [0, 2, 4])
    assert RaggedTensorSpec((2, None, 3), "int64", 1).admits(made)
    assert RaggedTensorSpec((2, 2, 3), "int64", 1).admits(made)
    assert not RaggedTensorSpec((2, 1, 3), "int64", 1).admits(made)
    assert not RaggedTensorSpec((2, None, 4), "int64", 1).admits(made)
    assert not RaggedTensorSpec((2, None), "int64", 1).admits(made)
    assert not RaggedTensorSpec((2, None, 3), "int8", 1).admits(made)
    assert not RaggedTensorSpec((2, None, 3), "int64", 2).admits(made)
    assert not RaggedTensorSpec((2, None, 3), "int64", 1, "int32").admits(made)


def test_a_spec_shows_all_that_it_says() -> None:
    """The repr of a spec is the call that creates it."""
    spec = RaggedTensorSpec((None, None), "U", row_splits_dtype="int32")
    assert (
        repr(spec)
        == "RaggedTensorSpec(shape=(None, None), dtype=str, ragged_rank=1, row_splits_dtype=int32)"
    )


@pytest.mark.parametrize("bad", [1.5, True, "1", [1], float("nan")])
def test_a_ragged_rank_is_a_whole_number(bad: Any) -> None:
    """A ragged rank that is not an integer is rejected with the argument's name."""
    with pytest.raises(TypeError, match="ragged_rank must be int or None"):
        RaggedTensorSpec((None, None), "int64", ragged_rank=bad)


@pytest.mark.parametrize(
    ("rows", "padding"), [([[1], [2, 3]], 0.5), ([[1], [2, 3]], "a"), ([["a"], ["b", "c"]], 1)]
)
def test_padding_that_the_dtype_cannot_represent_is_an_error(rows: Any, padding: Any) -> None:
    """Padding is not rounded or turned into text."""
    with pytest.raises(ValueError, match="cannot be represented in dtype"):
        RaggedTensor.from_rows(rows).to_tensor(padding)


def test_text_padding_is_not_cut() -> None:
    """Padding that is longer than all texts makes the array wider."""
    ragged = RaggedTensor.from_rows([["a"], ["b", "c"]])
    assert ragged.to_tensor("long").tolist() == [["a", "long"], ["b", "c"]]
