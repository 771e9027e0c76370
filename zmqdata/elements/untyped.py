"""Arrays without values, and without a dtype of their own.

An empty list says nothing about its dtype, and numpy makes float64 of it. So an empty
array of float64 is *untyped* here. Beside others it takes their dtype and their number
of axes: no value can change by that, because it has none (decision 0041).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_DEFAULT = np.dtype(np.float64)


def is_untyped(leaf: Any) -> bool:
    """Return True for an array without values whose dtype is the one that numpy gives
    to an empty list.

    >>> is_untyped(np.asarray([])), is_untyped(np.zeros(0, int))
    (True, False)
    """
    return isinstance(leaf, np.ndarray) and not leaf.size and leaf.dtype == _DEFAULT


def holds_untyped(element: Any) -> bool:
    """Return True if a leaf of an element, or the values of a ragged tensor in it, are
    untyped.

    >>> holds_untyped({"x": (np.zeros(0), 1)}), holds_untyped({"x": 1})
    (True, False)
    """
    kind = type(element)
    if kind is np.ndarray:
        return not element.size and element.dtype == _DEFAULT
    if kind is dict:
        return any(map(holds_untyped, element.values()))
    if isinstance(element, tuple):
        return any(map(holds_untyped, element))
    return is_untyped(getattr(element, "flat_values", None))


def is_untyped_spec(dtype: Any, shape: tuple[int | None, ...] | None) -> bool:
    """Return True if dtype and shape are those of untyped arrays."""
    return shape is not None and 0 in shape and dtype == _DEFAULT


def retyped(leaf: Any, dtype: Any, ndim: int) -> Any:
    """Return an untyped array with a dtype, and with at least ``ndim`` axes.

    >>> retyped(np.zeros((2, 0)), np.dtype("int8"), 3)
    array([], shape=(2, 0, 0), dtype=int8)
    """
    return np.empty(grown(leaf.shape, ndim), dtype)


def grown(shape: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Return the shape of a list with an empty level, such as ``[[], []]``, with at
    least ``ndim`` axes: below an empty level anything may lie.
    """
    return (*shape, *[0] * (ndim - len(shape))) if shape[-1:] == (0,) else shape


def retyped_alike(leaves: Sequence[Any]) -> Sequence[Any]:
    """Return leaves in which untyped ones have the dtype and number of axes of the
    first typed one.

    >>> [leaf.dtype.name for leaf in retyped_alike([np.zeros(0), np.zeros(1, np.int8)])]
    ['int8', 'int8']
    """
    for model in leaves:
        if isinstance(model, np.ndarray) and not is_untyped(model):
            return [
                retyped(leaf, model.dtype, model.ndim) if is_untyped(leaf) else leaf
                for leaf in leaves
            ]
    return leaves
