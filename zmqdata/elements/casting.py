"""Values in the dtype that the user has declared for them."""

from __future__ import annotations

from decimal import Decimal
from numbers import Number
from typing import Any, TypeAlias

import numpy as np

from zmqdata.elements.dates import as_numpy_date
from zmqdata.elements.extensions import is_extension
from zmqdata.elements.lists import array_of, family, is_exact
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.subclasses import plain_array, plain_text
from zmqdata.elements.tensors import as_stackable
from zmqdata.elements.texts import value_text
from zmqdata.elements.unpadded import dtype_in_spec
from zmqdata.elements.untyped import is_untyped

DType: TypeAlias = "np.dtype[Any]"
Array: TypeAlias = "np.ndarray[Any, DType]"

_TAKEN = {
    "bool": ("number",),
    "number": ("bool",),
    "date": ("text", "object"),
    "bytes": ("text",),
    "duration": ("number", "object"),
}
"""Sorts of values that may be given for another sort, if that keeps their value."""
_SAFE = 60_000.0
"""Floats below it are in the range of each dtype of numpy's."""


def cast(value: Any, dtype: DType) -> Array:
    """Return a value, or a list of values, as an array of a declared dtype.

    Floats may be rounded, a date may be given as text, and a text becomes bytes of
    UTF-8. No other value changes.

    Raises:
        ValueError: a value would change; the text names it.

    >>> cast([1, 2], np.dtype("float32"))
    array([1., 2.], dtype=float32)
    >>> cast(1.5, np.dtype("int64"))
    Traceback (most recent call last):
        ...
    ValueError: the float 1.5 cannot be represented in dtype int64
    """
    kind = type(value)
    if (kind is float and dtype.kind == "f" and -_SAFE < value < _SAFE) or (
        kind is int and dtype.kind == "i" and value.bit_length() < 8 * dtype.itemsize
    ):
        return np.asarray(value, dtype)  # the usual case, in a tenth of the time
    if dtype.kind == "O":
        return np.asarray(value, dtype)
    if dtype.kind == "V" and not is_extension(dtype):
        return _cast_structure(value, dtype)
    value = plain_text(value)
    given = array_of(value) if isinstance(value, list) else plain_array(as_stackable(value))
    is_open = is_untyped(given) or (given.dtype.kind == "O" and not given.size)
    if given.dtype == dtype or is_open:
        return given.astype(dtype, copy=False)
    made = None if isinstance(value, (str, bytes)) and given[()] != value else _made(given, dtype)
    if made is None:
        raise _unfit(value, dtype)
    return made


def _unfit(value: Any, dtype: DType) -> ValueError:
    return ValueError(f"{value_text(value)} cannot be represented in dtype {dtype_name(dtype)}")


def _cast_structure(value: Any, dtype: DType) -> Array:
    """Return structures, which are tuples or arrays with the same fields, or raw bytes
    as an array of a dtype.
    """
    if isinstance(value, list):
        rows = [_cast_structure(item, dtype) for item in value]
        return np.stack(rows) if rows else np.empty(0, dtype)
    if getattr(value, "dtype", None) == dtype:
        return plain_array(value)
    names = dtype.names
    if names is None:
        given = plain_array(value)
        if given.dtype.itemsize != dtype.itemsize or given.dtype.kind not in "SV":
            raise _unfit(value, dtype)
        return given.view(dtype) if given.dtype.names is None else given.astype(dtype)
    if isinstance(value, tuple) and len(value) == len(names):
        made: Array = np.empty((), dtype)
        fields = dict(zip(names, value, strict=True))
    elif isinstance(value, (np.ndarray, np.void)) and value.dtype.names == names:
        made, fields = np.empty(value.shape, dtype), {name: value[name] for name in names}
    else:
        raise _unfit(value, dtype)
    for name, part in fields.items():
        field = dtype[name].base
        found = cast(part, field)
        is_cut = found.dtype.kind == "O" or found.dtype.itemsize > field.itemsize
        if field.kind in "US" and is_cut:
            raise _unfit(part, dtype)
        made[name] = found
    return made


def _made(given: Array, dtype: DType) -> Array | None:
    """Return an array in another dtype, or None if a value would change."""
    if given.dtype.kind == "O" and dtype.kind in "US":
        given = array_of(given.reshape(-1).tolist()).reshape(given.shape)  # as pandas gives texts
    have, wanted = family(np.empty(0, dtype_in_spec(given))), family(np.empty(0, dtype))
    if dtype.kind in "US" and have == wanted:
        return given
    if have == "object" and wanted == "number":
        if not all(isinstance(one, (Number, Decimal)) for one in given.flat):
            return None
    elif have not in (wanted, *_TAKEN.get(wanted, ())):
        return None
    try:
        with np.errstate(all="ignore"):
            if dtype.kind == "S" and have == "text" and given.size:
                texts = [text.encode() for text in given.reshape(-1).tolist()]
                return array_of(texts).reshape(given.shape)
            if dtype.kind in "mM" and have in ("text", "object"):
                given = _dates_of(given, dtype)
            if given.dtype.kind == "c" != dtype.kind:
                if given.imag.any():
                    return None
                given = given.real
            made = given.astype(dtype)
            return made if _is_same(given, made, have) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _dates_of(given: Array, dtype: DType) -> Array:
    """Return texts, or dates and durations of Python, in a unit that keeps them; None
    is a missing date.
    """
    missing, of_text = np.array("NaT", dtype)[()], np.datetime64
    items = [
        missing if item is None else of_text(item) if isinstance(item, str) else as_numpy_date(item)
        for item in given.reshape(-1).tolist()
    ]
    return array_of(items).reshape(given.shape)


def _is_same(given: Array, made: Array, have: str) -> bool:
    if have == "object" and given.dtype.kind == "O":
        pairs = zip(given.flat, made.flat, strict=True)
        return all(int(after) == one for one, after in pairs if isinstance(one, int)) and (
            made.dtype.kind not in "iu" or bool((made == given).all())
        )
    if _rounds(given.dtype) and _rounds(made.dtype):
        return bool((np.isfinite(made) | ~np.isfinite(given)).all())
    if given.dtype.kind in "iu" and made.dtype.kind in "fc" and not is_exact(given, made.dtype):
        return False
    same = (made == given) & (_real(made, given).astype(given.dtype) == given)
    return bool((same | np.isnat(given) if given.dtype.kind in "mM" else same).all())


def _real(made: Array, given: Array) -> Array:
    """Return the real part of complex numbers that were made of others."""
    return made.real if made.dtype.kind == "c" and given.dtype.kind != "c" else made


def _rounds(dtype: DType) -> bool:
    return dtype.kind in "fc" or (is_extension(dtype) and "float" in dtype.name)
