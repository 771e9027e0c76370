"""Values of subclasses as plain values: arrays, numbers and texts.

A function may return such an array, and the next function gets it unchanged. Batches,
ragged tensors and slices hold plain arrays, as their specs say. A mask would get lost
there, so a masked array is an error.

A member of an enumeration may be a number or a text, too. numpy takes ``str(item)`` for
its text, which may be another text.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np

KEEP_MASK = (
    "Use `array.data` and `np.ma.getmaskarray(array)` as two arrays, or replace the masked "
    "values with `array.filled(value)`"
)


_PYTHON_TYPES = (bool, int, float, complex, str, bytes)
_PLAIN_TEXTS = frozenset({str, bytes, np.str_, np.bytes_})


def python_type(kind: type) -> type:
    """Return the type of Python's numbers and texts that a class derives from, or the
    class itself.

    >>> python_type(type("Level", (int,), {})), python_type(dict)
    (<class 'int'>, <class 'dict'>)
    """
    if not issubclass(kind, np.generic):
        for base in _PYTHON_TYPES:
            if issubclass(kind, base):
                return base
    return kind


_IMMUTABLE = (*_PYTHON_TYPES, frozenset, Decimal, Fraction)


def immutable_base(kind: type) -> Any:
    """Return the class of Python's numbers, texts and frozen sets that a class derives
    from, or None.

    >>> immutable_base(type("Level", (float,), {})), immutable_base(list)
    (<class 'float'>, None)
    """
    return next((base for base in _IMMUTABLE if issubclass(kind, base)), None)


def made_by_base(value: Any, maker: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the arguments with which the ``__new__`` of its base makes a value of a
    class with a ``__new__`` of its own, which may change the value again. Return None
    if the class says itself how pickle makes its values, or has no such ``__new__``.

    Args:
        value: the value.
        maker: function by which pickle would make it.
        arguments: its arguments.

    >>> class Twice(float):
    ...     def __new__(cls, half):
    ...         return super().__new__(cls, 2 * half)
    >>> made_by_base(Twice(1.5), *Twice(1.5).__reduce_ex__(5)[:2])
    (3.0,)
    """
    kind, base = type(value), immutable_base(type(value))
    if base is None or kind.__new__ is base.__new__:
        return None
    if any(getattr(kind, name) is not getattr(base, name) for name in _OF_PICKLE):
        return None
    if maker is copyreg.__newobj__:  # type: ignore[attr-defined]  # not public
        is_own = getattr(kind, "__getnewargs__", None) is not getattr(base, "__getnewargs__", None)
        return None if is_own or not hasattr(base, "__getnewargs__") else base.__getnewargs__(value)
    return arguments if maker is kind else None


_OF_PICKLE = ("__reduce__", "__reduce_ex__")


def holds_named_text(values: Iterable[Any]) -> bool:
    """Return True if a text or bytes of a subclass is among the values.

    >>> holds_named_text(["a", b"b", 1])
    False
    """
    # Runs of one type cost half as much as a set of all types.
    kinds = {kind for kind, _ in groupby(values, type)} - _PLAIN_TEXTS
    return any(issubclass(kind, (str, bytes)) for kind in kinds)


def plain_text(value: Any) -> Any:
    """Return a text of a subclass as its content, and any other value as it is.

    >>> plain_text(type("Word", (str,), {"__str__": lambda self: "?"})("a"))
    'a'
    """
    if type(value) in _PLAIN_TEXTS or not isinstance(value, (str, bytes)):
        return value
    return str.__str__(value) if isinstance(value, str) else b"".join([value])


def is_masked(value: Any) -> bool:
    """Return True for a masked array, also if no value of it is masked."""
    return isinstance(value, np.ma.MaskedArray)


def plain_array(value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an array, which shares its memory, or a scalar as a plain array.

    Raises:
        TypeError: it is a masked array; the text says how to keep the mask.

    >>> type(plain_array(np.recarray(2, "i4"))).__name__
    'ndarray'
    """
    if type(value) is np.ndarray:
        return value
    if is_masked(value):
        raise TypeError(f"a masked array would lose its mask. {KEEP_MASK}")
    return np.asarray(value)
