"""Tests of ``zmqdata.iterators.raggeds``: ragged batches against lists of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, plain
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import TensorSpec
from zmqdata.iterators import Context, make_iterator
from zmqdata.nodes.base import Node
from zmqdata.nodes.batches import RaggedBatch
from zmqdata.nodes.sources import TensorSlices
from zmqdata.nodes.transforms import Map


def mapped(lengths: list[int], function: Any, spec: Any = None) -> Node:
    source = TensorSlices(tensors=np.array(lengths, np.int64))
    return Map(inputs=(source,), function=function, output_spec=spec)


def ragged(node: Node, size: int, drop: bool = False, dtype: str = "int64") -> Node:
    return RaggedBatch(inputs=(node,), batch_size=size, drop_remainder=drop, row_splits_dtype=dtype)


@given(st.lists(st.integers(0, 5), max_size=10), st.integers(1, 4), st.booleans())
def test_rows_keep_their_lengths(lengths: list[int], size: int, drop: bool) -> None:
    """Ragged batches hold the elements unchanged, and continue exactly from any
    step.
    """
    batches = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    wanted = [
        RaggedTensor.from_rows([np.arange(n) for n in part])
        for part in batches
        if len(part) == size or not drop
    ]
    assert check_restore(ragged(mapped(lengths, np.arange), size, drop)) == [*map(plain, wanted)]


def test_only_what_may_vary_is_ragged() -> None:
    """A known spec stacks leaves of fixed shape and ragged leaves as ``batch`` does."""
    spec = (
        TensorSpec((None, 2), np.float64),
        TensorSpec((2,), np.float64),
        TensorSpec((), np.int64),
    )
    node = mapped([1, 2], lambda n: (np.zeros((n, 2)), np.zeros(2), n), spec)
    (batch,) = make_iterator(ragged(node, 2, dtype="int32"), Context())
    assert batch[0].shape == (2, None, 2)
    assert batch[0].row_splits.dtype == np.int32
    assert (batch[1].shape, batch[2].tolist()) == ((2, 2), [1, 2])
    (again,) = make_iterator(ragged(ragged(node, 1), 2), Context())
    assert again[0].shape == (2, None, None, 2)


def test_nothing_known_is_all_ragged() -> None:
    """After a function every axis of an array may vary, and numbers are stacked."""
    node = mapped([1, 2], lambda n: {"a": np.zeros((n, n)), "n": int(n)})
    (batch,) = make_iterator(ragged(node, 2), Context())
    assert batch["a"].ragged_rank == 2
    assert batch["n"].tolist() == [1, 2]


def test_rows_in_memory_stay_dense() -> None:
    """Rows of a source have a known shape, and are taken together."""
    rows = TensorSlices(tensors=np.arange(6).reshape(3, 2))
    assert check_restore(ragged(rows, 2)) == [
        plain(np.array([[0, 1], [2, 3]])),
        plain(np.array([[4, 5]])),
    ]
    lists = TensorSlices(tensors=RaggedTensor([1, 2, 3], [0, 1, 3]))
    assert check_restore(ragged(lists, 2)) == [plain(RaggedTensor([1, 2, 3], [0, 1, 3]))]


def test_axes_that_are_not_ragged_must_be_equal() -> None:
    """Another inner shape or dtype is a failure that names the differing element."""
    spec = TensorSpec((None, None), np.float64)
    fine = ragged(mapped([1, 2], lambda n: np.zeros((n, n)), spec), 2)
    assert check_restore(fine)[0][0] == "RaggedTensor"
    inner = ragged(mapped([1, 2], lambda n: np.zeros((1, n)), TensorSpec((None, 1), np.float64)), 2)
    assert "shape (1, 2), expected TensorSpec(shape=(None, 1)" in check_restore(inner)[0][2]
    dtypes = ragged(mapped([1, 2], lambda n: np.zeros(1, f"f{4 * n}")), 2)
    assert "dtype float64, expected dtype float32" in check_restore(dtypes)[0][2]
