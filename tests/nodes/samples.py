"""Nodes that the tests of this package share, and the spec of a node without running
anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zmqdata.elements.specs import TensorSpec
from zmqdata.nodes.base import Node
from zmqdata.operations.mapping import Filter
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sources import Range, TensorSlices

INT = TensorSpec((), np.int64)
STR = TensorSpec((), np.str_)


def parse(x: Any) -> Any:
    return x


def ten() -> Range:
    return Range(start=0, stop=10)


def unknown() -> Node:
    return Filter(inputs=(ten(),), predicate=parse)


def endless() -> Node:
    return Repeat(inputs=(ten(),), count=-1)


def empty() -> Node:
    return Range(start=0, stop=0)


def slices(rows: int) -> Node:
    return TensorSlices(tensors={"x": np.zeros((rows, 2), np.int8), "y": np.arange(rows)})


def infer(node: Node) -> Any:
    return node.spec(infer)
