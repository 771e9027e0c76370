"""Tests of ``zmqdata.dataset.drawing``."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.dataset.drawing import difference, parameter_line, parameter_lines, tree_lines
from zmqdata.elements.specs import TensorSpec
from zmqdata.operations.mapping import Map

Point = namedtuple("Point", ["x"])


def labels(dataset: Dataset) -> list[str]:
    return tree_lines(dataset.node, lambda node: node.operation)


def test_a_chain_is_a_column() -> None:
    """Operations with a single input are drawn below each other, with the last on
    top.
    """
    assert labels(Dataset.range(3).take(2).skip(1)) == ["skip", "└─ take", "└─ range"]


def test_branches_are_indented() -> None:
    """Several inputs are drawn below their node, left to right."""
    one, two = Dataset.range(3).take(2), Dataset.range(4).skip(1)
    assert labels(Dataset.zip(one, two).enumerate()) == [
        "enumerate",
        "└─ zip",
        "   ├─ take",
        "   │  └─ range",
        "   └─ skip",
        "      └─ range",
    ]


def test_what_is_used_twice_is_drawn_once() -> None:
    """A shared part is referred to by its line, so that the text grows with the nodes
    and not with the paths.
    """
    dataset = Dataset.range(3).take(2)
    for _ in range(30):
        dataset = dataset.concatenate(dataset)
    lines = labels(dataset)
    assert len(lines) < 100
    assert sum("as in line" in line for line in lines) == 30


def test_long_pipelines_need_no_recursion() -> None:
    """Thousands of operations can be drawn."""
    dataset = Dataset.range(3)
    for _ in range(3000):
        dataset = dataset.take(2)
    assert len(labels(dataset)) == 3001


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.zeros((2, 3)), "<float64[2, 3]>"),
        ({"a": np.zeros(2), "b": [1, 2]}, "{'a': <float64[2]>, 'b': <list of 2>}"),
        ((1, "x"), "(1, 'x')"),
        (Point(1), "<Point>"),
        (TensorSpec((), "int8"), "TensorSpec(shape=(), dtype=int8)"),
    ],
)
def test_parameters_are_short(value: Any, shown: str) -> None:
    """Arrays show their shape, never their content."""
    mapped = Map(inputs=(Dataset.range(3).node,), function=int, output_spec=value)
    assert parameter_line(mapped).endswith(f"output_spec={shown})")


def test_long_parameters_are_cut() -> None:
    """A long parameter is cut, so that every line stays short."""
    assert len(parameter_line(Dataset.from_tensors("x" * 500).node)) < 120


def test_a_difference_keeps_what_is_equal() -> None:
    """A mark on each line of a difference shows to which of the pipelines it
    belongs.
    """
    one, two = Dataset.range(3).take(2), Dataset.range(3).skip(2)
    text = difference(parameter_lines(one.node), parameter_lines(two.node))
    assert "- take(count=2)" in text
    assert "+ skip(count=2)" in text
    assert "  └─ range(start=0, stop=3" in text
