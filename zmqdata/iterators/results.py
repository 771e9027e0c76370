"""Checks of what user functions return: one bool, one integer, a pair, a dataset or an
iterator. Running states are in ``carried``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from types import FunctionType
from typing import Any
from weakref import WeakSet

import numpy as np

from zmqdata.elements.conversion import as_element
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.tensors import as_stackable
from zmqdata.errors import FailedPreconditionError, WrongTypeError
from zmqdata.nodes.base import ByNode, Node
from zmqdata.peeking import peek

_returned: WeakSet[Any] = WeakSet()
_latest = ByNode()
"""The last iterator that a node's function returned, if it cannot be held weakly."""


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
        WrongTypeError: the value is not a single integer of 64 bits.

    >>> as_index(np.int64(7), "key_func")
    7
    """
    if not isinstance(value, (bool, np.bool_)):
        try:
            number = operator.index(value)
        except TypeError:
            pass
        else:
            if -(2**63) <= number < 2**63:
                return number
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


class GeneratedElements:
    """Function of from_generator for a generator that a user's function has returned.
    A second pass calls that function again.

    Args:
        first: the generator.
        again: calls the function again.
        node: the operation that the function belongs to.
    """

    def __init__(self, first: Generator[Any], again: Callable[[], Any], node: Node) -> None:
        self._first: Generator[Any] | None = first
        self._again = again
        self.node = node
        self.__name__ = node.argument

    def __call__(self) -> Any:
        """Return the elements of a pass."""
        first, self._first = self._first, None
        return self._again() if first is None else first


def check_new(made: Any, values: Any, node: Node) -> None:
    """Raise if the values of a pass are those of an iterator that an earlier call
    returned. What ``element_spec`` or an earlier pass has taken of it would be missing
    silently.

    A class of the user may begin anew in an ``__iter__`` that returns the object
    itself, so such objects are accepted.

    Args:
        made: what the function of a node returned.
        values: iterator over it.
        node: the node.

    Raises:
        FailedPreconditionError: an earlier call returned the same iterator.

    >>> from zmqdata.operations.sources import Range
    >>> values = iter([1, 2])
    >>> check_new(values, values, Range(start=0, stop=1))
    """
    has_own_iter = isinstance(getattr(type(made), "__iter__", None), FunctionType)
    if (values is made) is has_own_iter:
        return
    try:
        is_known = values in _returned
        _returned.add(values)
    except Exception:  # most iterators of builtins cannot be held weakly
        is_known = node in _latest and _latest[node] is values
        _latest[node] = values
    if is_known:
        raise FailedPreconditionError(
            f"the function returned the {type(values).__name__} that an earlier call had returned. "
            "`element_spec` or an earlier pass has taken elements of it, which would be missing "
            "now. Make the iterator within the function, so that each call returns a new one, for "
            "example as a generator function with `yield`"
        )


def is_generated(node: Node) -> bool:
    """Return True for the dataset of a generator that a function of flat_map or
    interleave has returned.
    """
    return isinstance(peek(node, "generator"), GeneratedElements)


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {dtype_name(value.dtype)}"
    return f"{value!r:.100} of type {type(value).__name__}"
