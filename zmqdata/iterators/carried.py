"""Conversion of the running states of user functions to plain values for iterator
states, and of their results to integers.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


class NotPlainError(Exception):
    """A value has no plain form."""


def to_plain(value: Any) -> Any:
    """Return a nesting of arrays, numbers and texts as lists, from which ``from_plain``
    restores it.

    Raises:
        NotPlainError: the value contains another object, or a container other than
            dicts and tuples.

    >>> from_plain(to_plain({"x": (np.arange(2), 7)}))
    {'x': (array([0, 1]), 7)}
    """
    kind = type(value)
    if (
        value is None
        or kind in (bool, float, str, bytes)
        or (kind is int and -(2**63) <= value < 2**63)
    ):
        return ["v", value]
    if kind is np.ndarray or isinstance(value, np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject or array.dtype.names:
            raise NotPlainError(f"an array of dtype {array.dtype}")
        return [
            "a" if kind is np.ndarray else "s",
            array.dtype.str,
            list(array.shape),
            array.tobytes(),
        ]
    if kind is tuple:
        return ["t", [to_plain(part) for part in value]]
    if kind is dict:
        return ["d", [[to_plain(key), to_plain(part)] for key, part in value.items()]]
    raise NotPlainError(f"a {kind.__name__}")


def from_plain(plain: Any) -> Any:
    """Return the value that ``to_plain`` converted."""
    mark, *parts = plain
    if mark == "v":
        return parts[0]
    if mark == "t":
        return tuple([from_plain(part) for part in parts[0]])
    if mark == "d":
        return {from_plain(key): from_plain(part) for key, part in parts[0]}
    dtype, shape, content = parts
    array = np.zeros(shape, dtype)
    if content:
        array = np.ndarray(tuple(shape), dtype, buffer=content).copy()
    return array if mark == "a" else array[()]


def as_index(value: Any, role: str) -> int:
    """Return the integer that a user's function returned.

    Raises:
        TypeError: the value is not an integer.

    >>> as_index(np.int64(7), "key_func")
    7
    """
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(
        f"{role} must return one integer, it returned {value!r} of type {type(value).__name__}: "
        "convert it with int(), or hash the value that it represents"
    )
