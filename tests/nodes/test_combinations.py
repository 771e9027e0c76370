"""Tests of ``zmqdata.nodes.combinations``: label, cardinality and spec of operations
with several inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.nodes.samples import INT, STR, empty, endless, infer, slices, ten, unknown
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.nodes.base import Node
from zmqdata.nodes.combinations import Concatenate, Zip
from zmqdata.nodes.records import TextLines
from zmqdata.nodes.sources import Range, Tensors


def zipped(*inputs: Node) -> Zip:
    return Zip(inputs=inputs, template=tuple(range(len(inputs))))


def joined(first: Node, second: Node) -> Concatenate:
    return Concatenate(inputs=(first, second))


def test_labels_name_the_operation_alone() -> None:
    """The inputs have labels of their own."""
    assert zipped(ten(), ten()).label == "zip()"
    assert joined(ten(), ten()).label == "concatenate()"


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (zipped(ten(), Range(start=0, stop=3)), 3),
        (zipped(ten(), endless()), 10),
        (zipped(endless(), endless()), INFINITE),
        (zipped(ten(), unknown()), UNKNOWN),
        (zipped(empty(), unknown()), UNKNOWN),
        (zipped(endless(), unknown()), UNKNOWN),
        (joined(ten(), ten()), 20),
        (joined(empty(), empty()), 0),
        (joined(endless(), ten()), INFINITE),
        (joined(unknown(), endless()), INFINITE),
        (joined(ten(), unknown()), UNKNOWN),
    ],
)
def test_cardinalities_follow_from_the_inputs(node: Node, cardinality: int) -> None:
    """A zip has the length of its shortest input, and a concatenation the sum of both.
    Unknown lengths stay unknown.
    """
    assert node.cardinality == cardinality


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (zipped(ten(), slices(1)), (INT, {"x": TensorSpec((2,), np.int8), "y": INT})),
        (
            Zip(inputs=(ten(), TextLines(filenames=())), template={"a": (1, 0)}),
            {"a": (STR, INT)},
        ),
        (Zip(inputs=(ten(),), template=0), INT),
        (joined(ten(), ten()), INT),
        (
            joined(Tensors(tensors=np.zeros((2, 3))), Tensors(tensors=np.zeros((2, 4)))),
            TensorSpec((2, None), np.float64),
        ),
    ],
)
def test_specs_follow_from_the_inputs(node: Node, spec: Any) -> None:
    """A zip nests the specs of its inputs as its template does. A concatenation keeps
    their common spec.
    """
    assert node.spec(infer) == spec


def test_what_does_not_fit_cannot_be_concatenated() -> None:
    """Numbers and texts have no common spec."""
    with pytest.raises(TypeError, match="specs do not fit"):
        joined(ten(), TextLines(filenames=())).spec(infer)
