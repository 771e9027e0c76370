"""Tests of ``zmqdata.iterators.element_maker``: the dtype of empty lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

from zmqdata.dataset import Dataset
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import TensorSpec

LINES = ["", "", "1 2", "3"]
ROWS: list[list[int]] = [[], [], [1, 2], [3]]


def tokens(line: str) -> list[int]:
    return [int(token) for token in line.split()]


def record(line: str) -> dict[str, Any]:
    return {"ids": tokens(line), "pair": (line.split(), [tokens(line)])}


def dtypes(dataset: Dataset) -> list[str]:
    """Return the dtypes of all leaves of each element."""
    return [
        " ".join(leaf.dtype.name.rstrip("0123456789") for leaf in optree.tree_leaves(element))
        for element in dataset
    ]


def lines() -> Dataset:
    return Dataset.from_list(LINES)


@pytest.mark.parametrize(
    "make",
    [
        lambda: lines().map(tokens),
        lambda: lines().map(tokens, num_parallel_calls=2),
        lambda: lines().map(tokens, on_error="skip"),
        lambda: lines().random_map(lambda line, rng: tokens(line)),
        lambda: lines().scan(0, lambda state, line: (state, tokens(line))),
        lambda: lines().map(tokens).cache().shuffle(4),
        lambda: Dataset.from_list(ROWS),
        lambda: Dataset.from_source(ROWS),
        lambda: Dataset.from_iterable(ROWS),
        lambda: Dataset.from_generator(lambda: iter(ROWS)),
        lambda: lines().flat_map(lambda line: (tokens(part) for part in [line])),
    ],
)
def test_empty_lists_have_the_dtype_of_the_others(make: Callable[[], Dataset]) -> None:
    """Elements, batches and the spec have one dtype, whichever element comes first."""
    dataset = make()
    assert set(dtypes(dataset)) == {"int"}
    for batches in (dataset.padded_batch(2), dataset.ragged_batch(2)):
        found = [getattr(batch, "flat_values", batch).dtype for batch in batches]
        assert found == [np.dtype(int)] * 2
    assert dataset.element_spec == TensorSpec((None,), int)
    assert dataset.padded_batch(2).element_spec == TensorSpec((None, None), int)


def test_empty_lists_within_structures() -> None:
    """Each leaf has its own dtype, also of texts and of lists in lists."""
    dataset = lines().map(record)
    assert set(dtypes(dataset)) == {"int str int"}
    assert set(dtypes(dataset.padded_batch(2))) == {"int str int"}
    assert dataset.element_spec["pair"][0] == TensorSpec((None,), str)


def test_an_empty_list_of_lists_has_their_number_of_axes() -> None:
    """A document without sentences is padded to the shape of the others."""
    dataset = Dataset.from_list(["", "1 2;3 4"]).map(
        lambda line: [tokens(part) for part in line.split(";")] if line else []
    )
    assert [element.shape for element in dataset] == [(0, 0), (2, 2)]
    (batch,) = dataset.padded_batch(2, padded_shapes=[None, 3])
    assert batch.tolist() == [[[0] * 3] * 2, [[1, 2, 0], [3, 4, 0]]]


def test_a_declared_spec_gives_the_dtype() -> None:
    """A declared spec is enough: no function is run to find the dtype."""
    called = []

    def note(line: str) -> list[int]:
        called.append(line)
        return tokens(line)

    spec = TensorSpec((None,), "int64")
    dataset = lines().map(note, output_spec=spec)
    assert dtypes(dataset) == ["int"] * 4
    assert called == LINES
    signed = Dataset.from_generator(lambda: iter([[], np.asarray([])]), output_signature=spec)
    assert dtypes(signed) == ["int"] * 2
    deep = TensorSpec((None, None), "int8")
    (nested,) = Dataset.from_generator(lambda: iter([[]]), output_signature=deep)
    assert (nested.shape, nested.dtype) == ((0, 0), np.dtype("int8"))


def test_lists_that_are_always_empty_stay_float64() -> None:
    """Without any other element numpy's default stays, and the search for one ends."""
    count = []

    def empty(number: Any) -> list[int]:
        count.append(number)
        return []

    dataset = Dataset.counter().map(empty).padded_batch(2).take(2)
    assert dtypes(dataset) == ["float"] * 2
    assert len(count) < 300


def test_arrays_without_values_follow_the_others_in_batches() -> None:
    """`np.array([])` beside arrays of another dtype, and a batch of nothing else."""
    dataset = lines().map(lambda line: np.array(tokens(line)))
    assert dtypes(dataset.padded_batch(2)) == ["int"] * 2
    assert dtypes(dataset.padded_batch(4)) == ["int"]
    assert dtypes(dataset.bucket_by_sequence_length(len, [1, 5], [2, 2, 2])) == ["int"] * 2
    (ragged,) = dataset.ragged_batch(4)
    assert ragged.to_list() == ROWS
    assert ragged.dtype == np.dtype(int)
    joined = dataset.padded_batch(1, padded_shapes=[2]).rebatch(4)
    assert dtypes(joined) == ["int"]


def test_a_failing_element_tells_no_dtype() -> None:
    """An element for which the function fails does not hide the dtype of the others."""

    def fail(line: str) -> list[int]:
        if line == "1 2":
            raise ValueError("never")
        return tokens(line)

    for dataset in (lines().map(fail, on_error="skip"), lines().map(fail).ignore_errors()):
        assert dtypes(dataset.padded_batch(2)) == ["int"] * 2


def test_states_and_random_access_give_the_same_dtype() -> None:
    """A restored iterator, and `at`, know the dtype without the elements before."""
    dataset = lines().map(tokens)
    first = iter(dataset)
    next(first)
    second = iter(dataset)
    second.load_state_dict(first.state_dict())
    assert next(second).dtype == np.dtype(int)
    assert dataset.at(0).dtype == np.dtype(int)


def test_nested_datasets_without_elements_tell_no_spec() -> None:
    """The spec of flat_map is that of the first dataset that has elements."""
    dataset = lines().flat_map(lambda line: Dataset.from_tensor_slices(tokens(line)))
    assert dataset.element_spec == TensorSpec((), int)
    assert [int(number) for number in dataset] == [1, 2, 3]


def test_ragged_tensors_without_values() -> None:
    """A ragged tensor of empty rows joins those of another dtype."""
    dataset = Dataset.from_list(["", "1"]).map(
        lambda line: RaggedTensor.from_rows([tokens(line), []])
    )
    (batch,) = dataset.batch(2)
    assert batch.dtype == np.dtype(int)
    assert batch.to_list() == [[[], []], [[1], []]]
