"""Tests of ``zmqdata.nodes.sources``: label, cardinality, spec and splits of each
source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.nodes.samples import INT, STR, empty, infer, parse, slices, ten
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import DatasetSpec, TensorSpec
from zmqdata.nodes.base import Node
from zmqdata.nodes.records import TextLines
from zmqdata.nodes.sources import FromGenerator, ListFiles, Range, Tensors, TensorSlices
from zmqdata.splits import FileSplits, IndexSplits, SplitSource


def datasets(*contents: Any) -> Any:
    """Return an array of datasets of one element each."""
    rows = np.empty(len(contents), object)
    rows[:] = [Dataset.from_tensors(content) for content in contents]
    return rows


@pytest.mark.parametrize(
    ("node", "label"),
    [
        (ten(), "range(10)"),
        (Range(start=2, stop=9, step=3), "range(2, 9, 3)"),
        (Range(start=0, stop=9, step=3), "range(0, 9, 3)"),
        (Tensors(tensors=1), "from_tensors()"),
        (TensorSlices(tensors=np.zeros(1)), "from_tensor_slices()"),
        (FromGenerator(generator=parse), "from_generator(parse)"),
        (ListFiles(patterns=("/a",), shuffle=True), "list_files('/a')"),
        (ListFiles(patterns=("/a", "/b"), shuffle=True), "list_files('/a', ...)"),
        (TextLines(filenames=("/a",)), "TextLineDataset('/a')"),
        (TextLines(filenames=("/a", "/b")), "TextLineDataset('/a', ...)"),
        (TextLines(filenames=()), "TextLineDataset()"),
    ],
)
def test_labels_say_where_elements_come_from(node: Node, label: str) -> None:
    """A label is the method of Dataset and its main argument, or the first of many
    files.
    """
    assert node.label == label


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (ten(), 10),
        (Range(start=5, stop=0, step=-2), 3),
        (Range(start=5, stop=0), 0),
        (empty(), 0),
        (Tensors(tensors=1), 1),
        (slices(4), 4),
        (slices(0), 0),
        (FromGenerator(generator=parse), UNKNOWN),
        (TextLines(filenames=("/a",)), UNKNOWN),
    ],
)
def test_cardinalities_are_known_where_nothing_has_to_be_read(node: Node, cardinality: int) -> None:
    """Numbers and arrays can be counted, while elements of a generator or a file
    cannot.
    """
    assert node.cardinality == cardinality


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (ten(), INT),
        (Range(start=0, stop=1, dtype="int8"), TensorSpec((), np.int8)),
        (Tensors(tensors={"a": np.zeros(3)}), {"a": TensorSpec((3,), np.float64)}),
        (Tensors(tensors=(1, Dataset.range(2))), (INT, DatasetSpec(INT))),
        (TensorSlices(tensors=datasets(2, 3)), DatasetSpec(INT)),
        (TensorSlices(tensors=datasets(2, "a")), TensorSpec((), object)),
        (slices(4), {"x": TensorSpec((2,), np.int8), "y": INT}),
        (FromGenerator(generator=parse), None),
        (FromGenerator(generator=parse, output_signature=STR), STR),
        (ListFiles(patterns=(), shuffle=True), STR),
        (TextLines(filenames=()), STR),
    ],
)
def test_specs_follow_from_the_arguments(node: Node, spec: Any) -> None:
    """Only a generator without a signature has to run before its spec is known."""
    assert node.spec(infer) == spec


@pytest.mark.parametrize(
    ("node", "splits"),
    [
        (Range(start=5, stop=0, step=-2), IndexSplits(3)),
        (slices(4), IndexSplits(4)),
        (Tensors(tensors=np.zeros(9)), IndexSplits(1)),
        (FromGenerator(generator=parse), IndexSplits(1)),
        (TextLines(filenames=("/a", "/b")), IndexSplits(2)),
        (ListFiles(patterns=("/a/*",), shuffle=True, seed=3), FileSplits(("/a/*",), True, 3)),
    ],
)
def test_what_is_indivisible_is_one_split(node: Node, splits: SplitSource) -> None:
    """Rows and numbers are split by index, and lines by file. A single worker reads a
    tensor or a generator.
    """
    assert node.split_source == splits


def test_arrays_are_not_printed() -> None:
    """The representation of a source stays short, however large its content is."""
    assert repr(Tensors(tensors=np.arange(3))) == "Tensors(inputs=())"
    assert repr(slices(100)) == "TensorSlices(inputs=())"


def test_files_are_counted_anew_each_time(tmp_path: Path) -> None:
    """The number of files is the current number, so that a file that appears later
    counts.
    """
    node = ListFiles(patterns=(f"{tmp_path}/*.txt",), shuffle=True)
    assert node.cardinality == 0
    (tmp_path / "a.txt").touch()
    assert node.cardinality == 1


@pytest.mark.parametrize("kind", [Tensors, TensorSlices])
def test_nodes_with_arrays_are_equal_to_themselves_only(kind: type[Node]) -> None:
    """Two nodes over arrays are never equal, and can be members of a set."""
    one, other = kind(tensors=np.zeros(2)), kind(tensors=np.ones(2))  # type: ignore[call-arg]
    assert one == one
    assert one != other
    assert len({one, other}) == 2
