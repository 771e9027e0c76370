"""Tests of ``zmqdata.dataset.batches``: the methods of ``Dataset`` and how they check
their arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.dataset.batches import Batches
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError
from zmqdata.operations.batch import RaggedBatch
from zmqdata.operations.padding import BucketBySequenceLength, PaddedBatch
from zmqdata.operations.unbatch import MapBatches, Rebatch, Unbatch


def varying(*shape: int | None) -> Dataset:
    """Make arrays whose known shape is the given shape."""
    return Dataset.range(4).map(
        lambda n: np.zeros([n if one is None else one for one in shape]),
        output_spec=TensorSpec(shape, "f8"),
    )


def rags() -> Dataset:
    return Dataset.from_tensors(RaggedTensor([1, 2, 3], [0, 1, 3]))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Dataset.range(1).padded_batch(0), ValueError, "batch_size must be at least 1"),
        (
            lambda: Dataset.range(1).padded_batch(1, drop_remainder=1),
            TypeError,
            "drop_remainder must be a bool",
        ),
        (
            lambda: varying(None).padded_batch(2, [None, None]),
            InvalidArgumentError,
            "one length for each axis",
        ),
        (
            lambda: varying(None).padded_batch(2, {"x": [1]}),
            InvalidArgumentError,
            "padded_shapes must have the nesting",
        ),
        (
            lambda: varying(None).padded_batch(2, None, (1, 2)),
            InvalidArgumentError,
            r"values should be scalars, got \(1, 2\)",
        ),
        (
            lambda: varying(None).padded_batch(2, None, "x"),
            InvalidArgumentError,
            "cannot be represented in dtype float64",
        ),
        (
            lambda: varying(None).padded_batch(2, None, {"x": 1}),
            InvalidArgumentError,
            "padding value {",
        ),
        (
            lambda: varying(None).padded_batch(2, [-2]),
            InvalidArgumentError,
            "lengths of at least 0",
        ),
        (
            lambda: varying(None).enumerate().padded_batch(2, None, (1,)),
            InvalidArgumentError,
            "padding_values must have",
        ),
        (lambda: rags().padded_batch(2), TypeError, "a ragged leaf RaggedTensorSpec.*batch"),
        (lambda: Dataset.range(1).ragged_batch(0), ValueError, "batch_size must be at least 1"),
        (lambda: Dataset.range(1).ragged_batch(1, 1), TypeError, "drop_remainder must be a bool"),
        (
            lambda: Dataset.range(1).ragged_batch(1, row_splits_dtype="int8"),
            ValueError,
            "int64 or int32, got int8",
        ),
        (
            lambda: Dataset.range(1).ragged_batch(1, row_splits_dtype="x"),
            TypeError,
            "row_splits_dtype must be int64 or",
        ),
        (
            lambda: Dataset.range(1).unbatch(),
            InvalidArgumentError,
            r"unbatch\(\) .*some leaves have no axis.*Batch them first",
        ),
        (
            lambda: Dataset.from_tensors(()).unbatch(),
            InvalidArgumentError,
            "some leaves have no axis",
        ),
        (
            lambda: Dataset.from_tensors(([1], [1, 2])).unbatch(),
            InvalidArgumentError,
            "these differ",
        ),
        (
            lambda: Dataset.range(1).rebatch(2),
            InvalidArgumentError,
            r"rebatch\(\) splits arrays",
        ),
        (lambda: Dataset.range(1).batch(1).rebatch(0), ValueError, "batch_size must be at least 1"),
        (lambda: Dataset.range(1).batch(1).rebatch([]), ValueError, "an entry of at least 1, got"),
        (
            lambda: Dataset.range(1).batch(1).rebatch([0, 0]),
            ValueError,
            r"at least 1, got \[0, 0\]",
        ),
        (lambda: Dataset.range(1).batch(1).rebatch("2"), TypeError, "batch_size must be an int"),
        (
            lambda: Dataset.range(1).batch(1).rebatch([1, 1.5]),
            TypeError,
            "batch_size must be an int, got 1.5",
        ),
        (
            lambda: Dataset.range(1).batch(1).rebatch(1, None),
            TypeError,
            "drop_remainder must be a bool",
        ),
        (
            lambda: varying(None).bucket_by_sequence_length(1, [1], [1, 1]),
            TypeError,
            "element_length_func must be",
        ),
        (
            lambda: varying(None).bucket_by_sequence_length(len, 1, [1, 1]),
            TypeError,
            "bucket_boundaries must be a list",
        ),
        (
            lambda: varying(None).bucket_by_sequence_length(len, [1], 1),
            TypeError,
            "bucket_batch_sizes must be a list",
        ),
        (
            lambda: varying(None).bucket_by_sequence_length(len, [], [1]),
            ValueError,
            r"ascending lengths, got \[\]",
        ),
        (
            lambda: varying(None).bucket_by_sequence_length(len, [2, 2], [1] * 3),
            ValueError,
            "ascending",
        ),
        (
            lambda: varying(None).bucket_by_sequence_length(len, [2], [1]),
            ValueError,
            r"\+ 1, got 1 for 1",
        ),
        (
            lambda: varying(None).bucket_by_sequence_length(len, [2], [0, 1]),
            ValueError,
            "at least 1",
        ),
        (
            lambda: varying(None).bucket_by_sequence_length(len, [2], [1, 1], [1, 1]),
            InvalidArgumentError,
            "each axis",
        ),
        (lambda: rags().bucket_by_sequence_length(len, [2], [1, 1]), TypeError, "ragged leaf"),
        (lambda: Dataset.range(1).map_batches(3, 2), TypeError, "map_func must be callable"),
        (lambda: Dataset.range(1).map_batches(len, 0), ValueError, "batch_size must be at least 1"),
        (
            lambda: Dataset.range(1).map_batches(len, 1, 1),
            TypeError,
            "drop_remainder must be a bool",
        ),
    ],
)
def test_bad_arguments_are_refused_at_the_call(
    make: Callable[[], Any], error: type[Exception], text: str
) -> None:
    """The error names what came and what was expected."""
    with pytest.raises(error, match=f"(?s){text}"):
        make()


def test_each_method_makes_its_node() -> None:
    """The node has the arguments of the method and the user's line."""
    made = {
        PaddedBatch: varying(None).padded_batch(2, [5], -1.0, True),
        RaggedBatch: varying(None).ragged_batch(2, True, np.int32),
        Unbatch: varying(None).unbatch(),
        Rebatch: varying(None).rebatch(np.array([2, 3]), True),
        BucketBySequenceLength: varying(None).bucket_by_sequence_length(
            len, (2,), (3, 4), [9], 1.0, True
        ),
        MapBatches: varying(None, 2).map_batches(len, 4, True, output_spec=TensorSpec((), "i8")),
    }
    assert issubclass(Dataset, Batches)
    for kind, dataset in made.items():
        assert type(dataset.node) is kind
        assert dataset.node.site.startswith("test_batches.py:")
    assert made[PaddedBatch].element_spec == TensorSpec((2, 5), "f8")
    assert made[RaggedBatch].element_spec == RaggedTensorSpec((2, None), "f8", 1, "int32")
    assert made[Rebatch].node.batch_sizes == (2, 3)  # type: ignore[attr-defined]
    assert made[BucketBySequenceLength].element_spec == TensorSpec((None, 9), "f8")
    assert made[MapBatches].element_spec == TensorSpec((), "i8")


def test_specs_found_by_running_agree_with_the_elements() -> None:
    """The spec after a function includes no lengths that a trial run found by
    chance.
    """
    dataset = Dataset.range(1, 5).map(np.arange)
    assert dataset.padded_batch(2).element_spec == TensorSpec((None, None), np.int64)
    assert dataset.ragged_batch(2).element_spec == RaggedTensorSpec((None, None), np.int64)
    assert dataset.ragged_batch(2).unbatch().element_spec == TensorSpec((None,), np.int64)
    assert Dataset.range(5).map_batches(lambda x: x / 2, 2).element_spec == TensorSpec(
        (), np.float64
    )
    assert len(Dataset.range(5).map_batches(lambda x: x / 2, 2)) == 5


def test_ragged_elements_pass_through_everything() -> None:
    """Ragged rows can be read from sources, batched, cut and taken apart again."""
    ragged = RaggedTensor.from_rows([np.arange(n) for n in range(6)])
    dataset = Dataset.from_tensor_slices({"r": RaggedTensor(ragged, [0, 1, 3, 6])})
    whole = [row["r"].to_list() for row in dataset]
    assert [row["r"].to_list() for row in dataset.batch(2).rebatch(3).unbatch()] == whole
    assert dataset.batch(2).element_spec == {"r": RaggedTensorSpec((None, None, None), np.int64)}
    assert [len(batch) for batch in dataset.map(lambda d: d["r"]).batch(2)] == [2, 1]
    (copied,) = Dataset.from_tensors(ragged)
    copied.values[...] = 0
    assert ragged.values.sum() > 0


def test_a_generator_may_yield_ragged_tensors() -> None:
    """A signature with ragged specs admits ragged tensors and refuses arrays."""
    spec = RaggedTensorSpec((None, None), np.int64)
    for value, fits in ((RaggedTensor([1], [0, 1]), True), (np.zeros((1, 1), int), False)):
        dataset = Dataset.from_generator(lambda value=value: [value], output_signature=spec)
        if fits:
            assert [one.to_list() for one in dataset] == [[[1]]]
        else:
            with pytest.raises(Exception, match=r"expected RaggedTensorSpec\(shape=\(None, None\)"):
                list(dataset)
