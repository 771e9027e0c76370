"""Checks of what user functions return: one bool, one integer, a pair or a dataset.
Running states are in ``carried``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zmqdata import nodes
from zmqdata.elements.conversion import as_element
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.tensors import as_stackable
from zmqdata.errors import WrongTypeError
from zmqdata.peeking import peek


def as_bool(value: Any) -> bool:
    """Return what a predicate answered, as a bool.

    Raises:
        WrongTypeError: the value is not a single bool.

    >>> as_bool(np.array(True))
    True
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    value = as_stackable(value)
    if isinstance(value, (np.ndarray, np.bool_)) and value.shape == () and value.dtype == np.bool_:
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


def state_and_output(result: Any, made: Callable[[Any], Any] = as_element) -> tuple[Any, Any]:
    """Return the new state and the element that the function of ``scan`` returned.

    Args:
        result: what it returned.
        made: makes the element.

    Raises:
        WrongTypeError: the function returned something else.

    >>> state_and_output((3, [1, 2]))
    (3, array([1, 2]))
    """
    if isinstance(result, (tuple, list)) and len(result) == 2:
        return as_element(result[0]), made(result[1])
    raise WrongTypeError(
        "Invalid `scan_func`: scan_func must return a tuple of the new state and an element, it "
        f"returned {_told(result)}. `scan_func` should return a pair consisting of new state and "
        "the output value"
    )


def nested_node(
    result: Any, node: nodes.Node, again: Callable[[], Any] | None = None
) -> nodes.Node:
    """Return the node of the dataset that a user's function returned. The values that a
    generator function yields are the elements of its dataset.

    Args:
        result: what the function returned.
        node: the operation.
        again: calls the function again, for another pass; None: generators are refused.

    Raises:
        WrongTypeError: the function returned something else.
    """
    inner = peek(result, "node")
    if isinstance(inner, nodes.Node):
        return inner
    if again is not None and isinstance(result, Iterator):
        generator = GeneratedElements(result, again, node)
        return nodes.FromGenerator(generator=generator, site=node.site)
    argument = "reduce_func" if isinstance(node, nodes.GroupByWindow) else "map_func"
    yields = "" if again is None else "yield the elements, "
    raise WrongTypeError(
        f"The function of {node.operation} must return a Dataset, it returned a "
        f"{type(result).__name__}. The `{argument}` argument must return a `Dataset` object: wrap "
        f"the result, for example with Dataset.from_tensor_slices(...), {yields}or use map()"
    )


class GeneratedElements:
    """Function of from_generator for an iterator that a user's function has returned.
    A second pass calls that function again.

    Args:
        first: the iterator.
        again: calls the function again.
        node: the operation that the function belongs to.
    """

    def __init__(self, first: Iterator[Any], again: Callable[[], Any], node: nodes.Node) -> None:
        self._first: Iterator[Any] | None = first
        self._again = again
        self.node = node
        self.__name__ = node.argument

    def __call__(self) -> Any:
        """Return the elements of a pass."""
        first, self._first = self._first, None
        return self._again() if first is None else first


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {dtype_name(value.dtype)}"
    return f"{value!r:.100} of type {type(value).__name__}"
