"""Conversion of what users' functions and sources return to elements: lists and tensors
become arrays, at any depth.

``lists`` and ``tensors`` convert a single leaf.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any

from zmqdata.elements.lists import array_of
from zmqdata.elements.nesting import LEAF_TYPES, leaves_of, map_structure, places_of
from zmqdata.elements.tensors import array_of_tensor, is_tensor


def as_element(value: Any, empties: list[Any] | None = None) -> Any:
    """Return the result of a user's function as an element. Subclasses of dict and
    tuple become those. Namedtuples, and the subclasses of dict in ``collections`` that
    tf.nest keeps, stay.

    Args:
        value: what the function returned.
        empties: receives the arrays that were made of empty lists.

    Raises:
        ValueError: a list cannot become an array without a change of its values; the
            text names the place, the values and the remedy.
        TypeError: a tensor cannot become an array.

    >>> as_element({"x": [1, 2], "y": 3})
    {'x': array([1, 2]), 'y': 3}
    """
    if type(value) in LEAF_TYPES:
        return value
    try:
        return _converted(value, [] if empties is None else empties)
    except (TypeError, ValueError) as error:
        raise located(value, _as_leaf, error) from error.__cause__


def _converted(value: Any, empties: list[Any]) -> Any:
    kind = type(value)
    if kind in LEAF_TYPES:
        return value
    if kind is dict:
        return (
            value
            if are_leaves(value.values())
            else {key: _converted(part, empties) for key, part in value.items()}
        )
    if kind is tuple:
        if are_leaves(value):
            return value
        return tuple([_converted(part, empties) for part in value])
    if kind is list:
        return _as_leaf(value, empties)
    if is_tensor(kind):
        return array_of_tensor(value)
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and are_leaves(value):
        return value
    return map_structure(partial(_as_leaf, empties=empties), value)


def are_leaves(parts: Iterable[Any]) -> bool:
    """Return True if all parts of an element have types of leaves, so that none needs
    conversion.

    >>> are_leaves((1, "a")), are_leaves(({},))
    (True, False)
    """
    for part in parts:  # noqa: SIM110 - a loop is several times faster than all() of a generator
        if type(part) not in LEAF_TYPES:
            return False
    return True


def _as_leaf(leaf: Any, empties: list[Any] | None = None) -> Any:
    # Subclasses would be leaves in specs, and structures in batches and on the wire.
    if isinstance(leaf, (dict, tuple)):
        plain = dict(leaf) if isinstance(leaf, dict) else tuple(leaf)
        return _converted(plain, [] if empties is None else empties)
    if not isinstance(leaf, list):
        if is_tensor(type(leaf)):
            return array_of_tensor(leaf)
        _refuse_unread(leaf)
        return leaf
    array = array_of(leaf)
    if empties is not None and not array.size:
        empties.append(array)
    return array


def _refuse_unread(leaf: Any) -> None:
    """Raise an error for an iterator or coroutine of Python's own, whose values are yet
    to come. Objects of other classes, such as open files, may be iterators as well.
    """
    kind = type(leaf)
    if kind.__module__ not in ("builtins", "itertools"):
        return
    if isinstance(leaf, Iterator):
        raise TypeError(
            f"got a {kind.__name__}, an iterator, which can be read only once. Return list(...) "
            "of it to make one array. Use flat_map() with a generator function to make an element "
            "of each value"
        )
    if isinstance(leaf, (Awaitable, AsyncIterator)):
        raise TypeError(
            f"got a {kind.__name__}, which nothing awaits, because functions of a pipeline are "
            "called without an event loop. Use asyncio.run(...) in the function"
        )


def located(value: Any, convert: Callable[[Any], Any], error: Exception) -> Exception:
    """Return the error of the first leaf that cannot be converted, with its place in
    the element.

    Args:
        value: the element.
        convert: converts a leaf, or raises TypeError or ValueError.
        error: the error to return if every leaf can be converted.
    """
    for place, leaf in zip(places_of(value, "element"), leaves_of(value), strict=True):
        try:
            convert(leaf)
        except (TypeError, ValueError) as found:
            place = f"at {place}: " if place != "element" else ""
            return type(found)(f"{place}{found}").with_traceback(None)
    return error
