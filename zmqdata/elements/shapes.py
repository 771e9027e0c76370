"""Shapes with varying lengths, and dtypes as specs treat them. Only pure functions live
here; specs themselves are in ``specs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from zmqdata.elements.extensions import extension
from zmqdata.errors import MissingDtypeError, WrongTypeError

DType: TypeAlias = "np.dtype[Any]"
_EXTENSION = re.compile(r"bfloat|float[468]_|u?int[124]$|b?complex32$")
"""Beginnings of names of dtypes that only ml_dtypes has."""
Shape = tuple[int | None, ...]


def checked_shape(shape: Any) -> Shape | None:
    """Return a shape as a tuple, with None for a varying length. Return None if even
    the number of axes varies.

    Raises:
        TypeError: the shape is not a sequence, or an entry is not an integer.
        ValueError: an entry is negative.

    >>> checked_shape(3), checked_shape([None, 2]), checked_shape(None)
    ((3,), (None, 2), None)
    """
    if shape is None:
        return None
    axes = (shape,) if isinstance(shape, (int, np.integer)) else shape
    if isinstance(axes, (str, bytes, Mapping)) or not isinstance(axes, Iterable):
        raise TypeError(f"a shape is a number, a sequence of lengths, or None; got {shape!r}")
    return tuple([_axis(length) for length in axes])


def _axis(length: Any) -> int | None:
    if length is None:
        return None
    if isinstance(length, bool) or not isinstance(length, (int, np.integer)):
        raise WrongTypeError(
            "Dimension value must be integer or None: a shape holds lengths of at least 0, or "
            f"None for a varying length; got {length!r} of type {type(length).__name__}"
        )
    if length < 0:
        raise ValueError(
            f"a shape holds lengths of at least 0, or None for a varying length; got {length!r}"
        )
    return int(length)


def shape_admits(wanted: Shape, shape: Shape) -> bool:
    """Return True if a shape matches the wanted shape.

    >>> shape_admits((None, 2), (5, 2)), shape_admits((None, 2), (5, 3))
    (True, False)
    """
    return len(wanted) == len(shape) and all(
        want is None or want == have for want, have in zip(wanted, shape, strict=True)
    )


def merged_shape(first: Shape | None, second: Shape | None) -> Shape | None:
    """Return the narrowest shape that admits both.

    >>> merged_shape((2, 3), (4, 3)), merged_shape((2,), (2, 3))
    ((None, 3), None)
    """
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple([a if a == b else None for a, b in zip(first, second, strict=True)])


def checked_dtype(dtype: Any) -> DType:
    """Return anything that numpy accepts as a dtype as a dtype. Texts of all widths
    have the same dtype.

    Raises:
        TypeError: numpy does not accept it, or it is a record dtype without fields.
        MissingDtypeError: ml_dtypes defines it, and is not installed.

    >>> checked_dtype("float32"), checked_dtype("<U3")
    (dtype('float32'), dtype('<U'))
    """
    try:
        named = extension(dtype) if isinstance(dtype, str) and _EXTENSION.match(dtype) else None
        found: DType = np.dtype(dtype) if named is None else named
    except (TypeError, ValueError) as error:
        if isinstance(error, MissingDtypeError):
            raise
        raise TypeError(
            f"dtype must be a value that numpy accepts as a dtype, got {dtype!r}: {error}"
        ) from None
    if found.names == ():
        raise TypeError(f"dtype must not be a record dtype without fields, got {dtype!r}")
    return without_width(found)


def without_width(dtype: DType) -> DType:
    """Return the dtype; texts of all widths have the same dtype.

    >>> without_width(np.dtype("<U3"))
    dtype('<U')
    """
    return np.dtype(dtype.type) if dtype.kind in "US" else dtype


def dtype_of_items(dtype: DType) -> DType:
    """Return the dtype of single items of an array. Scalars of numpy have the byte
    order of the machine, except for structures.

    >>> dtype_of_items(np.dtype(">i2")) == np.dtype("i2")
    True
    """
    return dtype if dtype.isnative or dtype.kind == "V" else dtype.newbyteorder("=")


def dtype_name(dtype: DType) -> str:
    """Return the name of a dtype in specs and errors.

    >>> dtype_name(np.dtype("<U")), dtype_name(np.dtype("f4"))
    ('str', 'float32')
    """
    if dtype.names or (dtype.kind not in "US" and not dtype.isnative):
        return str(dtype)
    return {"U": "str", "S": "bytes"}.get(dtype.kind, dtype.name)
