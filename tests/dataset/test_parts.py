"""Tests of ``zmqdata.dataset.parts``."""

from __future__ import annotations

import pytest

from zmqdata.dataset import Dataset
from zmqdata.dataset.parts import DatasetMethods
from zmqdata.dataset.sources import Sources
from zmqdata.dataset.transforms import Transformations
from zmqdata.nodes.base import Node


class Labels(Sources[str], Transformations[str]):
    """A surface whose datasets are texts."""

    _node = Dataset.range(3).node

    @classmethod
    def _wrap(cls, node: Node) -> str:
        return node.label.split(" at ")[0]


def test_another_surface_says_what_it_makes() -> None:
    """A class that inherits the methods wraps each node, which has the user's line."""
    assert Labels.range(2, 9) == "range(2, 9, 1)"
    assert Labels().batch(2) == "batch(2)"
    assert "test_parts.py:" in Dataset.range(3).batch(2).node.site


def test_a_part_alone_makes_nothing() -> None:
    """A mixin can neither wrap nodes nor iterate, and its error says so."""
    with pytest.raises(
        NotImplementedError, match=r"Sources is a mixin of a dataset, .* range\(3\)"
    ):
        Sources.range(3)
    with pytest.raises(
        NotImplementedError,
        match="DatasetMethods is a mixin of a dataset, and only the dataset itself can be iterated",
    ):
        iter(DatasetMethods())
