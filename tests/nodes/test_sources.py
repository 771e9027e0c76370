"""Tests of ``zmqdata.nodes.sources``: label, cardinality, spec and splits of each
source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.nodes.samples import INT, STR, empty, infer, parse, slices, ten
from zmqdata import nodes
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import DatasetSpec, TensorSpec
from zmqdata.nodes import Node, Range
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
        (nodes.Tensors(tensors=1), "from_tensors()"),
        (nodes.TensorSlices(tensors=np.zeros(1)), "from_tensor_slices()"),
        (nodes.FromGenerator(generator=parse), "from_generator(parse)"),
        (nodes.ListFiles(patterns=("/a",), shuffle=True), "list_files('/a')"),
        (nodes.ListFiles(patterns=("/a", "/b"), shuffle=True), "list_files('/a', ...)"),
        (nodes.TextLines(filenames=("/a",)), "TextLineDataset('/a')"),
        (nodes.TextLines(filenames=("/a", "/b")), "TextLineDataset('/a', ...)"),
        (nodes.TextLines(filenames=()), "TextLineDataset()"),
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
        (nodes.Tensors(tensors=1), 1),
        (slices(4), 4),
        (slices(0), 0),
        (nodes.FromGenerator(generator=parse), UNKNOWN),
        (nodes.TextLines(filenames=("/a",)), UNKNOWN),
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
        (nodes.Tensors(tensors={"a": np.zeros(3)}), {"a": TensorSpec((3,), np.float64)}),
        (nodes.Tensors(tensors=(1, Dataset.range(2))), (INT, DatasetSpec(INT))),
        (nodes.TensorSlices(tensors=datasets(2, 3)), DatasetSpec(INT)),
        (nodes.TensorSlices(tensors=datasets(2, "a")), TensorSpec((), object)),
        (slices(4), {"x": TensorSpec((2,), np.int8), "y": INT}),
        (nodes.FromGenerator(generator=parse), None),
        (nodes.FromGenerator(generator=parse, output_signature=STR), STR),
        (nodes.ListFiles(patterns=(), shuffle=True), STR),
        (nodes.TextLines(filenames=()), STR),
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
        (nodes.Tensors(tensors=np.zeros(9)), IndexSplits(1)),
        (nodes.FromGenerator(generator=parse), IndexSplits(1)),
        (nodes.TextLines(filenames=("/a", "/b")), IndexSplits(2)),
        (nodes.ListFiles(patterns=("/a/*",), shuffle=True, seed=3), FileSplits(("/a/*",), True, 3)),
    ],
)
def test_what_is_indivisible_is_one_split(node: Node, splits: SplitSource) -> None:
    """Rows and numbers are split by index, and lines by file. A single worker reads a
    tensor or a generator.
    """
    assert node.split_source == splits


def test_arrays_are_not_printed() -> None:
    """The representation of a source stays short, however large its content is."""
    assert repr(nodes.Tensors(tensors=np.arange(3))) == "Tensors(inputs=())"
    assert repr(slices(100)) == "TensorSlices(inputs=())"


def test_files_are_counted_anew_each_time(tmp_path: Path) -> None:
    """The number of files is the current number, so that a file that appears later
    counts.
    """
    node = nodes.ListFiles(patterns=(f"{tmp_path}/*.txt",), shuffle=True)
    assert node.cardinality == 0
    (tmp_path / "a.txt").touch()
    assert node.cardinality == 1


@pytest.mark.parametrize("kind", [nodes.Tensors, nodes.TensorSlices])
def test_nodes_with_arrays_are_equal_to_themselves_only(kind: type[nodes.Node]) -> None:
    """Two nodes over arrays are never equal, and can be members of a set."""
    one, other = kind(tensors=np.zeros(2)), kind(tensors=np.ones(2))  # type: ignore[call-arg]
    assert one == one
    assert one != other
    assert len({one, other}) == 2
