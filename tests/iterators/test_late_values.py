"""Tests of values that arrive late in a dataset: they fit its spec, or are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, TensorSpec
from zmqdata.elements.specs import ANY_OBJECT, NoneTensorSpec, merge_specs, spec_of
from zmqdata.iterators.inference import MOST_ELEMENTS

FOUR = Dataset.range(4)
EMPTY = Dataset.from_tensor_slices([])
LATE = 150
INT = TensorSpec((), "int64")


def batches(dataset: Dataset) -> list[Dataset]:
    return [dataset.batch(2), dataset.padded_batch(2), dataset.ragged_batch(2)]


@pytest.mark.parametrize("is_none", [lambda x: x >= 2, lambda x: x < 2])
def test_a_batch_of_none_beside_batches_of_values_is_an_error(
    is_none: Callable[[Any], bool],
) -> None:
    """The error names the place and the spec, whichever comes first, also after a
    restore.
    """
    mixed = FOUR.map(lambda x: {"x": x, "y": None if is_none(x) else np.float32(x)})
    for dataset in batches(mixed):
        iterator = iter(dataset)
        next(iterator)
        state = iterator.state_dict()
        with pytest.raises(Exception, match=r"All values at element\['y'\] of a batch are .*None"):
            next(iterator)
        if not is_none(0):
            again = iter(dataset)
            again.load_state_dict(state)
            with pytest.raises(Exception, match=r"All values at element\['y'\]"):
                next(again)


def test_a_leaf_that_is_always_none_stays_none() -> None:
    """Batches of it are None, as their spec says."""
    for dataset in batches(FOUR.map(lambda x: (x, None))):
        assert [batch[1] for batch in dataset] == [None, None]
        assert dataset.element_spec[1] == NoneTensorSpec()
    objects = Dataset.from_source([{1}, None, None, None]).batch(1)
    with pytest.raises(Exception, match="filter"):
        list(Dataset.from_source([1, None]).batch(1))
    assert next(iter(objects)).tolist() == [{1}]


def late(number: Any) -> list[int]:
    return [] if number < LATE else [1, 2]


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(200).map(late),
        Dataset.range(200).map(late, num_parallel_calls=2),
        Dataset.from_source([late(x) for x in range(200)]),
        Dataset.from_iterable([late(x) for x in range(200)]),
        Dataset.from_generator(lambda: map(late, range(200))),
        Dataset.range(200).map(lambda x: {"a": {"b": late(x)}}),
    ],
)
def test_a_dtype_that_comes_too_late_is_an_error(dataset: Dataset) -> None:
    """A list that was empty in all elements that were looked at, and is not later, is
    an error that says how to state the dtype.
    """
    words = rf"the list at element.* was empty in the first {MOST_ELEMENTS} elements.*output_spec="
    with pytest.raises(Exception, match=words):
        list(dataset.batch(50))


def test_a_late_dtype_that_is_known_or_float64_is_none() -> None:
    """A declared dtype, all elements of a list, and floats need no further elements."""
    declared = Dataset.range(200).map(late, output_spec=TensorSpec((None,), "int64"))
    listed = Dataset.from_list([late(x) for x in range(200)])
    floats = Dataset.range(200).map(lambda x: [float(x) for x in late(x)])
    for dataset, dtype in ((declared, int), (listed, int), (floats, float)):
        assert {batch.dtype for batch in dataset.ragged_batch(50)} == {np.dtype(dtype)}


@pytest.mark.parametrize(
    ("joined", "dtype"),
    [
        (lambda: EMPTY.concatenate(Dataset.from_tensor_slices([1])), "int64"),
        (lambda: Dataset.from_tensor_slices(["a"]).concatenate(EMPTY), "str"),
        (lambda: EMPTY.concatenate(Dataset.from_tensor_slices([[1, 2]])), "int64"),
        (lambda: EMPTY.concatenate(FOUR.map(float)), "float64"),
        (lambda: Dataset.sample_from_datasets([EMPTY, EMPTY, FOUR]), "int64"),
        (lambda: Dataset.choose_from_datasets([FOUR, EMPTY], Dataset.range(1)), "int64"),
    ],
)
def test_an_empty_list_as_a_source_joins_any_other(
    joined: Callable[[], Dataset], dtype: str
) -> None:
    """The rows of an empty list have no dtype, so those of the others count."""
    dataset = joined()
    (found,) = {np.asarray(element).dtype for element in dataset}
    assert dataset.element_spec.dtype == TensorSpec((), found).dtype == TensorSpec((), dtype).dtype


def test_an_empty_array_with_a_dtype_joins_its_like_alone() -> None:
    """An array of int32 without rows is no empty list."""
    with pytest.raises(TypeError, match="dtype int32"):
        Dataset.from_tensor_slices(np.zeros(0, "int32")).concatenate(FOUR)


def test_specs_of_large_integers_and_of_objects() -> None:
    """An integer of more than 63 bits is an object, and an object may be anything."""
    assert FOUR.map(lambda x: (2**70, 2**63, -(2**63))).element_spec == (
        ANY_OBJECT,
        ANY_OBJECT,
        INT,
    )
    texts = Dataset.from_tensor_slices(np.array(["a", None, 1], object))
    assert texts.element_spec == ANY_OBJECT
    assert texts.concatenate(Dataset.from_tensor_slices(["b"])).element_spec == ANY_OBJECT


@pytest.mark.parametrize(
    "make",
    [
        lambda array: Dataset.from_tensor_slices(array),
        lambda array: Dataset.from_tensor_slices(array).batch(2),
        lambda array: Dataset.from_tensor_slices(array).shuffle(2).batch(2),
        lambda array: Dataset.from_tensors(array).unbatch(),
        lambda array: Dataset.from_tensors(array).unbatch().batch(2),
        lambda array: Dataset.from_tensors(array).repeat(2).batch(2),
        lambda array: Dataset.from_tensors(array).map(lambda rows: [rows, rows]),
        lambda array: Dataset.from_list([array, array]).padded_batch(2),
        lambda array: Dataset.from_list([array, array]).ragged_batch(2).unbatch(),
    ],
)
@pytest.mark.parametrize(
    "array",
    [
        np.arange(3, dtype=">i4"),
        np.arange(6, dtype=">f8").reshape(3, 2),
        np.array(["2026", "2027"], ">M8[D]"),
        np.array(["a", "bc"], ">U2"),
        np.ones(2, [("a", ">i4"), ("b", "f2")]),
        np.arange(6)[::-2],
        np.broadcast_to(np.float16(1), (2, 2)),
        np.asfortranarray(np.ones((2, 3), "g")),
        np.array([1j, 2]),
    ],
    ids=lambda array: str(array.dtype),
)
def test_specs_have_the_byte_order_of_what_arrives(
    make: Callable[[Any], Dataset], array: Any
) -> None:
    """Scalars of numpy have the byte order of the machine, and so have their batches;
    layouts of memory make no difference.
    """
    dataset = make(array)
    for element in dataset:
        assert merge_specs(dataset.element_spec, spec_of(element)) == dataset.element_spec
