"""Padding values: single values of the sort that a leaf has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from zmqdata.elements.casting import cast
from zmqdata.elements.lists import family
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.tensors import as_stackable
from zmqdata.errors import WrongTypeError
from zmqdata.peeking import has, shown


def check_filler(value: Any) -> None:
    """Raise an error for a padding value that no leaf can have, whatever its dtype.

    Raises:
        WrongTypeError: it is not a single value.

    >>> check_filler(-1)
    """
    if callable(value) or isinstance(value, (set, frozenset)) or has(value, "element_spec"):
        _refuse(f"a {type(value).__name__} is no value that an array can hold")
    if _has_axes(value):
        _refuse(f"`padding_values` values should be scalars, got {shown(value)}")


def filler_of(value: Any, dtype: np.dtype[Any], place: str = "") -> Any:
    """Return the padding value in the dtype of the leaf. Floats may be rounded, and
    integers may pad floats; no other value changes.

    Raises:
        WrongTypeError: the value is of another sort, would change, or is not a single
            value.

    >>> filler_of(-1, np.dtype("int8")).dtype
    dtype('int8')
    """
    check_filler(value)
    leaf = f", which the leaf at {place} has" if place else ""
    unfit = (
        f"padding value {shown(value)} cannot be represented in dtype {dtype_name(dtype)}{leaf}, "
        f"because it is a {type(value).__name__}"
    )
    try:
        given = np.asarray(as_stackable(value))
        if not _is_alike(given.dtype.kind, dtype.kind):
            _refuse(unfit)
        return cast(value, dtype)
    except (TypeError, ValueError) as error:
        if isinstance(error, WrongTypeError):
            raise
        _refuse(unfit)


_ZEROS = {"text": "", "bytes": b"", "number": 0, "bool": False}


def zero_of(objects: Iterable[Any]) -> Any:
    """Return the padding of an array of Python objects if none is given: the empty text
    beside texts, 0 beside numbers, and None beside any other objects.

    >>> zero_of(["a", "b"]), zero_of(["a", None])
    ('', None)
    """
    families = {*map(family, objects)}
    return _ZEROS.get(families.pop()) if len(families) == 1 else None


def _has_axes(value: Any) -> bool:
    try:
        return np.ndim(as_stackable(value)) > 0
    except (TypeError, ValueError):
        return True  # a list of lists that differ in length


def _is_alike(given: str, wanted: str) -> bool:
    """Return True if a value of one kind of dtype may pad another: no bool pads a
    number, and no float an integer, since both are mistakes more often than not.
    """
    if "b" in (given, wanted):
        return given == wanted or wanted == "O"
    return not (wanted in "iu" and given in "fc") and not (wanted == "f" and given == "c")


def _refuse(reason: str) -> NoReturn:
    raise WrongTypeError(
        f"Invalid `padding_values`. {reason}. Give padding_values a single value of its dtype for "
        "each leaf, or a value that fits all leaves"
    )
