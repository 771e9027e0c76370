"""Lists as arrays of the same values.

numpy turns ``[1, "a"]`` into text and ``[1, 2**63 + 1]`` into floats, and cuts the NUL
off ``b"a\\0"``. Every list that becomes an array passes through ``array_of``, where no
value changes.
"""

from __future__ import annotations

from collections import UserList, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NoReturn, TypeAlias

import msgspec
import numpy as np

from zmqdata.elements import dates
from zmqdata.elements.dates import Item
from zmqdata.elements.extensions import is_extension
from zmqdata.elements.subclasses import KEEP_MASK, holds_named_text, is_masked, plain_text
from zmqdata.elements.tensors import as_stackable, is_tensor
from zmqdata.elements.texts import dtype_text, value_text
from zmqdata.elements.unpadded import pads_too_much, unpadded
from zmqdata.elements.untyped import is_untyped

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_EXACT = 2**53
"""All integers up to this one are exact in float64."""
_REMEDY = (
    "Convert the items to one type, make np.array(..., dtype=object) to keep each value, or a "
    "tuple if they are separate parts of an element"
)


def array_of(values: Sequence[Any]) -> Array:
    """Return a list as an array of the same values.

    Integers beside floats become floats if that is exact, and dates beside others have
    the finest unit of all if that is exact. Values that no dtype of numpy's holds, such
    as None and texts that end with NUL, stay objects. So do texts of very different
    lengths, as in ``unpadded``.

    Raises:
        ValueError: numpy would change a value, or the items differ in shape; the text
            names the values and the remedy.

    >>> array_of([1, 2.5])
    array([1. , 2.5])
    """
    if len(values) and pads_too_much(values):
        return unpadded(values)
    try:
        array = np.asarray(values)
    except Exception as error:
        array = _without_numpy(values, error)
    kind = array.dtype.kind
    if kind == "O":
        # numpy reads tensors by other protocols than DLPack.
        if _holds_tensors(values):
            return array_of(_without_tensors(values))
        return array if dates.KINDS.isdisjoint(map(type, array.flat)) else _dated(values, array)
    if not array.size or _is_plain(values, array, kind):
        return array
    if array.ndim > 1 and _holds(values, lambda kind: issubclass(kind, _OPENED)):
        return array_of(_plain(values))
    items = [*_items(values, array.ndim)]
    if holds_named_text(item for _, item in items):
        return array_of(_plain(values))
    _check_unchanged(items, array)
    if kind in "US" and any(map(_ends_with_nul, items)):
        return np.array(values, dtype=object)
    return array


def _without_numpy(values: Any, error: Exception) -> Array:
    """Return a list as an array after its tensors were converted, since numpy cannot
    convert all of them; raise an error if there is none.
    """
    try:
        holds_tensors = _holds_tensors(values)
    except RecursionError:
        raise ValueError("a list that contains itself cannot become an array") from None
    if holds_tensors:
        return array_of(_without_tensors(values))
    items = [*_items(values, _depth(values), opens=False)]
    if holds_named_text(item for _, item in items):
        return array_of(_plain(values))
    _refuse_mixture(items, "have no dtype for both")
    if isinstance(error, OverflowError):
        dates.refuse_overflow(items)
    if isinstance(error, ValueError):
        raise ValueError(
            f"a list whose items differ in shape cannot become an array ({error}): return "
            "RaggedTensor.from_rows(...), or pad the items; return a tuple if they are separate "
            "parts of an element"
        ) from None
    raise ValueError(
        f"a list cannot become an array ({type(error).__name__}: {error}). {_REMEDY}"
    ) from error


def _holds_tensors(values: Sequence[Any]) -> bool:
    return _holds(values, is_tensor)


def _holds(values: Sequence[Any], wanted: Callable[[type], bool]) -> bool:
    """Return True if an item of a wanted type is in a list, or in lists within it."""
    kinds = set(map(type, values))
    if any(map(wanted, kinds)):
        return True
    if not any(issubclass(kind, (list, tuple)) for kind in kinds):
        return False
    return any(_holds(row, wanted) for row in values if isinstance(row, (list, tuple)))


def _without_tensors(values: Any) -> Any:
    if isinstance(values, (list, tuple)):
        return [*map(_without_tensors, values)]
    return as_stackable(values)


def _dated(values: Any, array: Array) -> Array:
    """Return an array of objects with dates of numpy among them as an array of dates,
    if nothing else is among them.
    """
    if {family(item) for item in array.flat} - {"date", "duration"}:
        return array
    items = [*_items(values, array.ndim)]
    _refuse_mixture(items, "keep objects of both")
    try:
        made = np.asarray([*map(dates.as_numpy_date, array.flat)])
    except OverflowError:
        dates.refuse_overflow(items)
        raise
    if made.dtype.kind == "O":
        dates.refuse_units(items)
    dates.check_units([(place, dates.as_numpy_date(item)) for place, item in items], made.dtype)
    return made.reshape(array.shape)


_OPENED = (deque, UserList)
"""Sequences whose items numpy reads as those of lists, and may change."""


def _plain(values: Any) -> Any:
    """Return a list in which sequences are lists, and texts of subclasses are plain."""
    if isinstance(values, (list, tuple, *_OPENED)):
        return [*map(_plain, values)]
    return plain_text(values)


def _depth(values: Any) -> int:
    """Return the number of levels of a list along its first items."""
    depth = 0
    while isinstance(values, (list, tuple)):
        depth, values = depth + 1, values[0] if values else None
    return depth


# --------------------------------------------------------------- the quick check

_FEW = 16


def _is_plain(values: Any, array: Array, kind: str) -> bool:
    """Return True if all items have one type, and the array holds them exactly.

    It takes a quarter of numpy's time for Python's numbers and texts. A set of the
    types of all items would take all of it.
    """
    if array.ndim == 1 and len(values) <= _FEW:
        return _is_alike(values, kind)
    if kind == "U":
        return _is_plain_text(values, array.ndim)
    wanted = _WANTED.get((kind, array.ndim))
    if wanted is not None:
        try:
            msgspec.convert(values, wanted)
            # msgspec takes integers for floats. They are exact if they are small.
            if kind != "f" or -_EXACT < array.min() <= array.max() < _EXACT:
                return True
        except msgspec.ValidationError:
            pass
    return _is_alike(_flat(values, array.ndim), kind)


_WANTED: dict[tuple[str, int], Any] = {
    ("b", 1): list[bool],
    ("b", 2): list[list[bool]],
    ("b", 3): list[list[list[bool]]],
    ("i", 1): list[int],
    ("i", 2): list[list[int]],
    ("i", 3): list[list[list[int]]],
    ("f", 1): list[float],
    ("f", 2): list[list[float]],
    ("f", 3): list[list[list[float]]],
}


def _is_plain_text(values: Any, ndim: int) -> bool:
    values = _flat(values, ndim)
    try:
        return "\0" not in "".join(values) and not holds_named_text(values)
    except TypeError:
        return False


def _flat(values: Any, ndim: int) -> Any:
    while ndim > 1 and {list, tuple}.issuperset(map(type, values)):
        values, ndim = [*chain.from_iterable(values)], ndim - 1
    return values


_ALIKE = frozenset({np.dtype(code).type for code in "?bhilqBHILQefdgFDG"}) | {
    bool,
    float,
    complex,
}


def _is_alike(items: Any, made: str) -> bool:
    """Return True if all items have one type, of which numpy changes no value: numbers,
    texts without NUL, or arrays of one dtype.
    """
    kinds = set(map(type, items))
    if len(kinds) != 1:
        return False
    (kind,) = kinds
    if kind is int:
        return made != "f"
    if kind in _ALIKE:
        return True
    if kind is bytes:
        return b"\0" not in b"".join(items)
    if kind is str:
        return "\0" not in "".join(items)
    return kind in _DESCRIBED and len(set(map(_DTYPE, items))) == 1


_DTYPE = attrgetter("dtype")
_DESCRIBED = dates.KINDS | {np.ndarray, np.void}
"""Types whose dtype says more than the type."""


# -------------------------------------------------------------- the whole check


def _items(values: Iterable[Any], ndim: int, place: str = "", opens: bool = True) -> Iterator[Item]:
    """Yield the items of a list with ``ndim`` levels. Other sequences than lists and
    tuples are arrays, as numpy has it, unless ``opens`` is false.
    """
    for index, item in enumerate(values):
        where = f"{place}[{index}]"
        if isinstance(item, (list, tuple)) and ndim > 1:
            yield from _items(item, ndim - 1, where, opens)
        elif ndim > 1 and opens and not isinstance(item, (np.ndarray, np.generic)):
            yield where, np.asarray(as_stackable(item))
        else:
            yield where, item


def _check_unchanged(items: list[Item], array: Array) -> None:
    """Raise an error if an array does not hold the items that it was made of."""
    dtype = array.dtype
    _refuse_masks(items)
    _refuse_mixture(items, f"make {dtype_text(dtype)} of both")
    if dtype.kind in "US":
        _check_texts(items, array)
    elif dtype.kind in "fc" or is_extension(dtype):
        _check_integers(items, dtype)
    elif dtype.kind in "mM":
        dates.check_units(items, dtype)
    elif dtype.kind == "V":
        _refuse_fields(items)


_FAMILIES = dict.fromkeys("iufc", "number") | {
    "b": "bool",
    "U": "text",
    "T": "text",
    "S": "bytes",
    "M": "date",
    "m": "duration",
    "V": "structure",
    "O": "object",
}
_PYTHON_FAMILIES: tuple[tuple[Any, str], ...] = (
    (bool, "bool"),
    ((int, float, complex), "number"),
    (str, "text"),
    ((bytes, bytearray), "bytes"),
)


def family(value: Any) -> str:
    """Return the sort of a value or array. Values of two sorts have no dtype that keeps
    both as they are.

    >>> family(1), family(True), family(np.zeros(1, "m8[s]"))
    ('number', 'bool', 'duration')
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return "number" if is_extension(value.dtype) else _FAMILIES[value.dtype.kind]
    for kinds, name in _PYTHON_FAMILIES:
        if isinstance(value, kinds):
            return name
    if hasattr(value, "toordinal"):  # Python's own dates, which a core must not import
        return "date"
    return "duration" if hasattr(value, "total_seconds") else "object"


def _refuse_mixture(items: list[Item], outcome: str) -> None:
    found: dict[str, Item] = {}
    for item in items:
        if not is_untyped(item[1]):
            found.setdefault(family(item[1]), item)
    if len(found) > 1:
        (one_place, one), (other_place, other), *_ = found.values()
        raise ValueError(
            f"a list with {value_text(one)} at {one_place} and {value_text(other)} at "
            f"{other_place} cannot become an array, because numpy would {outcome}. {_REMEDY}"
        )


def _refuse_masks(items: list[Item]) -> None:
    for place, item in items:
        if is_masked(item):
            raise ValueError(
                f"a list with a masked array at {place} cannot become an array, because numpy "
                f"would drop the mask. {KEEP_MASK}"
            )


def _refuse_fields(items: list[Item]) -> None:
    """Raise an error for structures of different fields, which numpy would convert."""
    (first_place, first), *others = [(place, np.asarray(item)) for place, item in items]
    for place, other in others:
        if other.dtype != first.dtype:
            raise ValueError(
                f"a list with fields of dtype {first.dtype} at {first_place} and of dtype "
                f"{other.dtype} at {place} cannot become an array, because numpy would convert "
                "them. Convert the items to one dtype, with astype()"
            )


def _check_texts(items: list[Item], array: Array) -> None:
    if array.size != len(items):
        return  # it was made of arrays, which hold texts already
    for item, kept in zip(items, array.reshape(-1).tolist(), strict=True):
        if item[1] != kept and not _ends_with_nul(item):
            _refuse_change(*item, kept)


def _ends_with_nul(item: Item) -> bool:
    """Return True for a text from which numpy would cut the end."""
    return isinstance(item[1], (str, bytes)) and item[1][-1:] in ("\0", b"\0")


def _check_integers(items: list[Item], dtype: np.dtype[Any]) -> None:
    """Raise an error for integers without any float beside them, and for integers that
    are not exact as floats.
    """
    integers = [(place, item) for place, item in items if _is_integer(item)]
    for place, item in integers:
        if len(integers) == len(items) or not is_exact(item, dtype):
            raise ValueError(
                f"a list with {value_text(item)} at {place} cannot become an array, because numpy "
                f"would make {dtype_text(dtype)} of its integers. Make np.array(..., "
                "dtype=np.uint64) or dtype=object to keep them, or convert all items to float"
            )


def _is_integer(item: Any) -> bool:
    if isinstance(item, (np.ndarray, np.generic)):
        return item.dtype.kind in "iu"
    return isinstance(item, int)


def is_exact(integers: Any, dtype: np.dtype[Any]) -> bool:
    """Return True if an integer, or each of an array of them, has an equal float of the
    dtype.

    >>> double = np.dtype(float)
    >>> is_exact(2**53, double), is_exact(np.array([2**53 + 1]), double)
    (True, False)
    """
    numbers = np.asarray(integers).reshape(-1).tolist()
    if is_extension(dtype):  # a float8 holds few integers, and none beyond its range
        with np.errstate(all="ignore"):
            return all(complex(dtype.type(number)) == number for number in numbers)
    made: Any = np.longdouble if dtype.char in "gG" else float
    return all(abs(number) <= _EXACT or int(made(number)) == number for number in numbers)


def _refuse_change(place: str, item: Any, kept: Any) -> NoReturn:
    raise ValueError(
        f"a list with {value_text(item)} at {place} cannot become an array, because numpy would "
        f"make {kept!r} of it. {_REMEDY}"
    )
