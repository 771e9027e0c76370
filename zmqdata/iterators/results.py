"""Checks of what user functions return: one bool, one integer, a pair or a dataset.
Running states are in ``carried``.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from zmqdata import nodes
from zmqdata.elements.shapes import dtype_name
from zmqdata.errors import WrongTypeError
from zmqdata.iterators.base import as_element


def as_bool(value: Any) -> bool:
    """Return what a predicate answered, as a bool.

    Raises:
        WrongTypeError: the value is not a single bool.

    >>> as_bool(np.array(True))
    True
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype == np.bool_:
        return bool(value)
    raise WrongTypeError(
        f"Invalid `predicate`: a predicate must return one bool, it returned {_told(value)}. "
        "`predicate` must return a `bool` scalar: compare the value with something, or use .all() "
        "or .any()"
    )


def as_index(value: Any, role: str) -> int:
    """Return the integer that a user's function returned.

    Raises:
        WrongTypeError: the value is not a single integer.

    >>> as_index(np.int64(7), "key_func")
    7
    """
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise WrongTypeError(
        f"Invalid `{role}`: {role} must return one integer, it returned {_told(value)}. `{role}` "
        "must return a single `int64` scalar: convert it with int(), or hash the value that it "
        "represents"
    )


def state_and_output(result: Any) -> tuple[Any, Any]:
    """Return the new state and the element that the function of ``scan`` returned.

    Raises:
        WrongTypeError: the function returned something else.

    >>> state_and_output((3, [1, 2]))
    (3, array([1, 2]))
    """
    if isinstance(result, (tuple, list)) and len(result) == 2:
        return as_element(result[0]), as_element(result[1])
    raise WrongTypeError(
        "Invalid `scan_func`: scan_func must return a tuple of the new state and an element, it "
        f"returned {_told(result)}. `scan_func` should return a pair consisting of new state and "
        "the output value"
    )


def nested_node(result: Any, node: nodes.Node) -> nodes.Node:
    """Return the node of the dataset that a user's function returned.

    Raises:
        WrongTypeError: the function returned something else.
    """
    inner = getattr(result, "node", None)
    if isinstance(inner, nodes.Node):
        return inner
    argument = "reduce_func" if isinstance(node, nodes.GroupByWindow) else "map_func"
    raise WrongTypeError(
        f"The function of {node.operation} must return a Dataset, it returned a "
        f"{type(result).__name__}. The `{argument}` argument must return a `Dataset` object: wrap "
        "the result, for example with Dataset.from_tensor_slices(...), or use map()"
    )


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {dtype_name(value.dtype)}"
    return f"{value!r:.100} of type {type(value).__name__}"
