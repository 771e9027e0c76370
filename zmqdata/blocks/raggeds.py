"""Validation of received ragged tensors: row splits must divide the values. Their
nesting is in ``structures``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zmqdata.blocks.columns import Values
from zmqdata.blocks.dtypes import DType
from zmqdata.blocks.structures import Leaf, Node, RaggedOf
from zmqdata.errors import ProtocolError


def check_ragged(node: Node, columns: Iterator[Values]) -> None:
    """Raise an error for ragged tensors whose row splits do not divide their values.

    Args:
        node: structure of the elements.
        columns: for each leaf, a function that returns its values from a given number
            on.

    Raises:
        ProtocolError: row splits and values contradict each other.
    """
    if isinstance(node, Leaf):
        next(columns)
        return
    if not isinstance(node, RaggedOf):
        for child in node.children:
            check_ragged(child, columns)
        return
    below: list[Any] = []
    while isinstance(node, RaggedOf):
        below.append(node)
        node = node.children[0]
    values: list[Any] = [*next(columns)(0)]
    # No row splits divide an array of items without an axis.
    lengths = [len(value) if value.ndim else -1 for value in values]
    for _ in below:
        splits: list[Any] = [*next(columns)(0)]
        for length, one in zip(lengths, splits, strict=True):
            _check_row_splits(length, one)
        lengths = [len(one) - 1 for one in splits]


def _check_row_splits(length: int, splits: np.ndarray[Any, DType]) -> None:
    if (
        not len(splits)
        or splits[0] != 0
        or splits[-1] != length
        or (splits[1:] < splits[:-1]).any()
    ):
        raise ProtocolError(
            f"a ragged tensor has row splits that do not divide its {length} values: {splits!s:.80}"
        )
