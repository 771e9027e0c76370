"""Description of numpy dtypes as plain data, and reconstruction from a peer's
description.

It covers only dtypes whose items are plain bytes, without Python objects.
``structures`` records the kind of a leaf (array, scalar, Python number), ``columns``
the layout of its bytes.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import msgspec
import numpy as np

from zmqdata.elements.extensions import described, is_extension, is_name, rebuilt
from zmqdata.errors import ProtocolError

DType: TypeAlias = "np.dtype[Any]"

MAX_FIELDS = 1024
MAX_NESTING = 8
MAX_ITEMSIZE = (1 << 31) - 1

_UNITS = r"(\[([1-9]\d{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
_PLAIN = re.compile(rf"[<>|]([biufcSUV]\d{{1,10}}|[mM]8{_UNITS})")
_FLEXIBLE = "US"
_CHARACTER = {"U": 4, "S": 1}


class Fields(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    """A structured dtype."""

    names: tuple[str, ...]
    """Names of the fields."""
    types: tuple[str | Fields | Repeated, ...]
    """Type of each field."""
    offsets: tuple[int, ...]
    """Offset of each field in an item."""
    itemsize: int
    """Bytes of an item."""


class Repeated(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A field that is an array of fixed shape."""

    item: str | Fields
    """Type of its items."""
    shape: tuple[int, ...]
    """Shape of the array."""


DTypeSpec: TypeAlias = str | Fields | Repeated


def is_supported(dtype: DType) -> bool:
    """Return True if items of a dtype can be sent as bytes: every numpy knows it, or
    `ml_dtypes` does, and `rebuild` accepts it.

    Items have at least a byte, except empty text. They have no titles and no classes of
    their own (``np.record``), and the fields are limited in number and nesting.
    """
    return (dtype.itemsize > 0 or is_flexible(dtype)) and _is_plain(dtype, 0)


def _is_plain(dtype: DType, nesting: int) -> bool:
    if nesting > MAX_NESTING:
        return False
    if dtype.fields:
        found = dtype.fields.values()
        fits = dtype.type is np.void and len(found) <= MAX_FIELDS
        return fits and all(len(field) == 2 and _is_plain(field[0], nesting + 1) for field in found)
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        return len(shape) <= MAX_NESTING and _is_plain(item, nesting + 1)
    if is_extension(dtype):
        return True
    if dtype.kind == "V":
        return dtype.type is np.void and dtype.itemsize > 0
    return dtype.kind in "biufcmMSU" and bool(_PLAIN.fullmatch(dtype.str))


def is_flexible(dtype: DType) -> bool:
    """Return True for fixed-width text, whose width may differ between elements."""
    return dtype.kind in _FLEXIBLE


def describe(dtype: DType) -> DTypeSpec:
    """Return the plain description of a supported dtype, exact in byte order, units,
    offsets and padding.
    >>> describe(np.dtype(">i4"))
    '>i4'
    """
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        return Repeated(describe(item), shape)  # type: ignore[arg-type]  # a tuple of ints
    if dtype.fields is None:
        return described(dtype)
    places = [dtype.fields[name] for name in dtype.names or ()]
    return Fields(
        tuple(dtype.names or ()),
        tuple(describe(place[0]) for place in places),
        tuple(place[1] for place in places),
        dtype.itemsize,
    )


def describe_flexible(dtype: DType) -> str:
    """Return byte order and kind of fixed-width text, without the width: ``"<U"``,
    ``"|S"``.
    """
    return dtype.str[:2]


def widen(flexible: str, width: int) -> DType:
    """Return the dtype of fixed-width text with items of ``width`` bytes: the inverse
    of `describe_flexible`.
    """
    size = _CHARACTER[flexible[1]]
    if width <= 0 or width % size or width > MAX_ITEMSIZE:
        raise ProtocolError(f"a text column of kind {flexible!r} claims items of {width} bytes")
    return np.dtype(f"{flexible}{width // size}")


def units(flexible: str) -> DType:
    """Return the dtype of the characters of fixed-width text, as numbers."""
    return np.dtype(flexible[0] + "u4") if flexible[1] == "U" else np.dtype("u1")


def rebuild(spec: DTypeSpec) -> DType:
    """Return the dtype that a peer's description stands for.

    Raises:
        ProtocolError: `describe` never returns such a description.
    """
    dtype = _rebuild(spec, 0)
    if dtype.subdtype is not None or not 0 < dtype.itemsize <= MAX_ITEMSIZE:
        raise ProtocolError(f"dtype {str(spec)[:80]} cannot be that of an array")
    return dtype


def _rebuild(spec: DTypeSpec, nesting: int) -> DType:
    if nesting > MAX_NESTING:
        raise ProtocolError(f"a dtype is nested deeper than {MAX_NESTING} levels")
    try:
        if isinstance(spec, str):
            return _rebuild_plain(spec)
        if isinstance(spec, Repeated):
            return _rebuild_repeated(spec, nesting)
        return _rebuild_fields(spec, nesting)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, ProtocolError):
            raise
        raise ProtocolError(f"dtype {str(spec)[:80]} does not exist: {error}") from None


def _rebuild_plain(spec: str) -> DType:
    if not (_PLAIN.fullmatch(spec) or is_name(spec)):
        raise ProtocolError(f"dtype {spec[:80]!r} is not among those that may be sent")
    return rebuilt(spec)


def _rebuild_repeated(spec: Repeated, nesting: int) -> DType:
    if len(spec.shape) > MAX_NESTING or any(size < 0 for size in spec.shape):
        raise ProtocolError(f"a field of a dtype claims the shape {spec.shape[:9]}")
    return np.dtype((_rebuild(spec.item, nesting + 1), spec.shape))


def _rebuild_fields(spec: Fields, nesting: int) -> DType:
    if (
        not len(spec.names) == len(spec.types) == len(spec.offsets) <= MAX_FIELDS
        or spec.itemsize < 0
    ):
        raise ProtocolError(
            f"a structured dtype has {len(spec.names)} names, {len(spec.types)} types"
        )
    return np.dtype(
        {
            "names": list(spec.names),
            "formats": [_rebuild(item, nesting + 1) for item in spec.types],
            "offsets": list(spec.offsets),
            "itemsize": spec.itemsize,
        }
    )


def check_text(array: np.ndarray[Any, DType]) -> None:
    """Raise `ProtocolError` if fixed-width text, alone or in fields, holds numbers that
    are not characters.

    numpy would raise ``ValueError`` much later, when the receiver reads the item.
    """
    dtype = array.dtype
    for name in dtype.names or ():
        check_text(array[name])
    if dtype.kind == "U" and array.size and dtype.itemsize:
        check_points(np.ascontiguousarray(array).reshape(-1).view(units(dtype.str[:2])))


def check_points(points: np.ndarray[Any, DType]) -> None:
    """Raise `ProtocolError` if a number exceeds the last character of Unicode."""
    if points.size and points.max() > 0x10FFFF:
        raise ProtocolError(
            f"fixed-width text holds {int(points.max()):#x}, which is not a character"
        )
