"""Tests of ``zmqdata.nodes.grouping``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import DatasetSpec, TensorSpec
from zmqdata.errors import UnimplementedError
from zmqdata.nodes.base import Node
from zmqdata.nodes.grouping import Elements, GroupByReducer, GroupByWindow, Reducer, Window
from zmqdata.nodes.parts import split_sources
from zmqdata.nodes.selections import Scan
from zmqdata.nodes.sources import Range
from zmqdata.nodes.transforms import Repeat
from zmqdata.splits import IndexSplits

TEN = Range(start=0, stop=10)
REDUCER = Reducer(int, max, int)


def parse(x: Any) -> Any:
    return x


def infer(node: Node) -> Any:
    return node.spec(infer)


def window(source: Node, size: int, shift: int, stride: int = 1, drop: bool = False) -> Window:
    return Window(
        inputs=(source,), size=size, shift=shift, stride=stride, drop_remainder=drop, wrap=parse
    )


@pytest.mark.parametrize(
    ("node", "label", "cardinality"),
    [
        (window(TEN, 3, 3), "window(3)", 4),
        (window(TEN, 3, 3, drop=True), "window(3)", 3),
        (window(TEN, 3, 1, 2, drop=True), "window(3)", 6),
        (window(TEN, 20, 1, drop=True), "window(20)", 0),
        (window(Repeat(inputs=(TEN,), count=-1), 3, 3), "window(3)", INFINITE),
        (
            GroupByWindow(
                inputs=(TEN,), key_function=parse, function=max, window_size=2, wrap=parse
            ),
            "group_by_window(parse, max)",
            UNKNOWN,
        ),
        (
            GroupByReducer(inputs=(TEN,), key_function=parse, reducer=REDUCER),
            "group_by_reducer(parse)",
            UNKNOWN,
        ),
    ],
)
def test_labels_and_cardinalities(node: Node, label: str, cardinality: int) -> None:
    """Errors use the label of the node, its cardinality is as listed, and its input is
    split.
    """
    assert node.label == label
    assert node.cardinality == cardinality
    assert split_sources(node) == [IndexSplits(10)]


def test_specs() -> None:
    """Windows are datasets with the spec of their input, and functions require a trial
    run.
    """
    assert infer(window(TEN, 3, 3)) == DatasetSpec(TensorSpec((), np.int64))
    assert (
        infer(
            GroupByWindow(
                inputs=(TEN,), key_function=parse, function=max, window_size=2, wrap=parse
            )
        )
        is None
    )
    assert infer(GroupByReducer(inputs=(TEN,), key_function=parse, reducer=REDUCER)) is None


def test_held_elements_are_a_source_that_is_not_split() -> None:
    """The number and spec of held elements are known. Splitting them is an error that
    names them.
    """
    node = Elements(elements=(np.zeros(1), np.zeros(2)))
    assert (node.cardinality, node.label) == (2, "elements(2)")
    assert infer(node) == TensorSpec((None,), np.float64)
    assert infer(Elements(elements=())) is None
    with pytest.raises(
        UnimplementedError, match="Cannot create split providers for dataset of type Elements"
    ):
        split_sources(node)


def test_nodes_that_hold_arrays_are_equal_to_themselves_only() -> None:
    """Two nodes with elements, or with a first state, are never equal."""
    pairs = [Elements(elements=(np.zeros(2),)) for _ in range(2)]
    scans = [Scan(inputs=(TEN,), initial_state=np.zeros(2), function=parse) for _ in range(2)]
    for one, other in (pairs, scans):
        assert one == one
        assert one != other
        assert len({one, other}) == 2


@pytest.mark.parametrize("functions", [(1, max, int), (int, 1, int), (int, max, None)])
def test_a_reducer_needs_three_functions(functions: Any) -> None:
    """The error names the missing function."""
    with pytest.raises(TypeError, match=r"_func must be callable, got"):
        Reducer(*functions)
