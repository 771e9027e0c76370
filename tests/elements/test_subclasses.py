"""Tests of ``zmqdata.elements.subclasses``: rows of every class make plain batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, RaggedTensor, TensorSpec
from zmqdata.elements.specs import merge_specs, spec_of
from zmqdata.elements.subclasses import plain_array

pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass")


class Tagged(np.ndarray):
    """A subclass without anything of its own."""


@pytest.fixture(params=["memmap", "matrix", "recarray", "tagged", "scalar", "first", "last"])
def rows(request: Any, tmp_path: Path) -> tuple[Any, Any]:
    """Return two rows, of which at least one is of a subclass."""
    mapped = np.memmap(tmp_path / "rows", float, "w+", shape=(2, 3))
    mapped[:] = np.arange(6).reshape(2, 3)
    fields = np.rec.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")])
    made: dict[str, tuple[Any, Any]] = {
        "memmap": (mapped[0], mapped[1]),
        "matrix": (np.matrix([[1.0, 2.0]]), np.matrix([[3.0, 4.0]])),
        "recarray": (fields, fields[::-1]),
        "tagged": (np.zeros(3).view(Tagged), np.ones(3).view(Tagged)),
        "scalar": (mapped[0, :1].reshape(()), mapped[1, :1].reshape(())),
        "first": (mapped[0], np.ones(3)),
        "last": (np.ones(3), mapped[1]),
    }
    return made[request.param]


@pytest.mark.parametrize(
    "batched",
    [
        lambda dataset: dataset.batch(2),
        lambda dataset: dataset.padded_batch(2),
        lambda dataset: dataset.ragged_batch(2),
        lambda dataset: dataset.window(2).flat_map(lambda window: window.batch(2)),
        lambda dataset: dataset.batch(1).rebatch(2),
        lambda dataset: dataset.map(lambda row: {"x": row}).batch(2).map(lambda batch: batch["x"]),
    ],
)
def test_rows_of_every_class_make_a_plain_batch(
    rows: tuple[Any, Any], batched: Callable[[Any], Any]
) -> None:
    """A batch is one plain array of the dtype of its rows, as its spec says."""
    dataset = batched(Dataset.range(2).map(lambda index: rows[index]))
    (batch,) = dataset
    spec = dataset.element_spec
    assert merge_specs(spec, spec_of(batch)) == spec
    flat = batch.flat_values if isinstance(batch, RaggedTensor) else batch
    assert type(flat) is np.ndarray
    for row, expected in zip(batch, rows, strict=True):
        filled = row.to_tensor() if isinstance(row, RaggedTensor) else np.asarray(row)
        assert filled.tolist() == np.asarray(expected).tolist()


def test_the_rows_of_a_matrix_are_rows() -> None:
    """A row of a matrix has one axis, as its spec says, though numpy gives two."""
    dataset = Dataset.range(1).map(lambda _: np.matrix([[1, 2], [3, 4]])).unbatch()
    assert dataset.element_spec == TensorSpec((2,), int)
    assert [row.tolist() for row in dataset] == [[1, 2], [3, 4]]


def test_masks_are_kept_or_refused() -> None:
    """Batches that are joined and taken apart keep their masks; a place that would lose
    a mask names the remedy.
    """
    masked = np.ma.masked_array([[1, 2], [3, 4]], [[False, True], [True, False]])
    source = Dataset.range(2).map(lambda _: masked)
    (joined,) = source.rebatch(4)
    assert joined.tolist() == [[1, None], [None, 4]] * 2
    assert next(iter(source.unbatch())).tolist() == [1, None]
    for refused in (plain_array, lambda array: RaggedTensor(array, [0, 2])):
        with pytest.raises(TypeError, match=r"would lose its mask.*np\.ma\.getmaskarray"):
            refused(masked)
    for batch in (source.batch(2), source.padded_batch(2), source.ragged_batch(2)):
        with pytest.raises(Exception, match=r"a masked array.*array\.filled\(value\)"):
            next(iter(batch))
