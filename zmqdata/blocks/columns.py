"""Layout of a leaf's values over a whole block: packing into a flat buffer, and
unpacking.

Two layouts exist. *Fixed*: all values have the same dtype and shape; their bytes follow
each other in C order. *Ragged*: a table of shapes (int64, a row per value) padded to 64
bytes, then the bytes of each value. Text, bytes and integers beyond 64 bits are ragged
rows of bytes; fixed-width text of differing width is ragged rows of characters. A third
layout, for pickled objects, is in ``objects``. Compression and frames do not belong
here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np

from zmqdata.blocks import dtypes
from zmqdata.blocks.compression import ALIGNMENT, Bytes, Room, decode_buffer
from zmqdata.blocks.dtypes import DType
from zmqdata.blocks.gathered import GATHER_FROM, Gathered
from zmqdata.blocks.items import PackedItems, unpacked_items
from zmqdata.blocks.objects import Pickled, pack_objects, unpack_objects
from zmqdata.blocks.structures import PYTHON_KINDS, Leaf
from zmqdata.elements.extensions import is_extension
from zmqdata.errors import ProtocolError

COPY_BELOW = 16 * 1024
"""Smaller arrays are copied out of their block, so that keeping an array does not keep
the block.
"""

Array: TypeAlias = "np.ndarray[Any, DType]"
Values: TypeAlias = Callable[[int], Iterator[object]]
"""Returns a new iterator over the values of a column, from a given number on."""
Sizer: TypeAlias = Callable[[Sequence[Any]], int]
"""Returns the approximate bytes of some values; -1 if a value does not belong in the
column.
"""

_NUMBERS = {"int": "<i8", "float": "<f8", "bool": "|b1", "complex": "<c16"}
_HARMLESS = "biufcmM"
"""Kinds of dtypes for which any bytes are valid values."""
_PYTHON_TYPES: dict[str, Any] = {kind: python_type for python_type, kind in PYTHON_KINDS.items()}


class Column(msgspec.Struct, frozen=True, array_like=True):
    """A column's entry in the header of a block."""

    nbytes: int
    """Size of the buffer before compression."""
    shape: tuple[int, ...] | None
    """Shape of each value; None for the ragged layout."""
    width: int = 0
    """Bytes per item of fixed-width text; 0 for other values."""
    chunks: tuple[int, ...] = ()
    """Sizes of the compressed chunks in the frame; empty if it is the buffer itself."""


class Packed(NamedTuple):
    """A column ready for compression."""

    buffer: memoryview | Gathered
    """The bytes of all values."""
    shape: tuple[int, ...] | None
    """Shape of each value; None for the ragged layout."""
    typesize: int
    """Bytes of an item for the shuffle filter; 0 for text."""
    width: int = 0
    """Bytes per item of fixed-width text."""


# ------------------------------------------------------------------- measuring


def sizer(leaf: Leaf, dtype: DType | None) -> Sizer:
    """Return a function that checks whether values belong in the column of a leaf, and
    returns their size.

    It inspects many values in a few steps, since a loop in Python would take longer
    than making the values.
    """
    if leaf.kind == "array":
        return _flexible_sizer(leaf) if dtype is None else _array_sizer(leaf, dtype)
    if leaf.kind == "scalar":
        return _scalar_sizer(cast("DType", dtype))
    if leaf.kind == "object":  # objects that are not pickled yet need `describe_element`
        return lambda values: sum(map(_NBYTES, values)) if _are(Pickled, values) else -1
    if leaf.kind == "items":  # so do items
        return lambda values: sum(map(len, values)) if _are(PackedItems, values) else -1
    kind = _PYTHON_TYPES[leaf.kind]
    if leaf.kind == "int":
        return lambda values: _size_of_integers(values) if _are(int, values) else -1
    if leaf.kind in ("str", "bytes", "np.str", "np.bytes"):
        return lambda values: sum(map(len, values)) if _are(kind, values) else -1
    width = np.dtype(_NUMBERS[leaf.kind]).itemsize if leaf.kind in _NUMBERS else 0
    return lambda values: width * len(values) if _are(kind, values) else -1


_NBYTES, _DTYPE, _SHAPE = map(attrgetter, ("nbytes", "dtype", "shape"))


def _are(kind: type, values: Sequence[object]) -> bool:
    return set(map(type, values)) == {kind}


def _have(dtype: DType, values: Sequence[Any]) -> bool:
    """Return True if all values have this dtype. Usually they share the dtype
    object.
    """
    first: DType = values[0].dtype
    alike = set(map(id, map(_DTYPE, values))) == {id(first)}
    return first == dtype if alike else all(value.dtype == dtype for value in values)


def _size_of_integers(values: Sequence[int]) -> int:
    if min(values) >= -(2**63) and max(values) < 2**63:
        return 8 * len(values)
    return sum(max(8, value.bit_length() >> 3) for value in values)


def _array_sizer(leaf: Leaf, dtype: DType) -> Sizer:
    ndim, array = leaf.ndim, np.ndarray

    def size(values: Sequence[Any]) -> int:
        if not (_are(array, values) and _have(dtype, values)):
            return -1
        shapes = set(map(_SHAPE, values))
        if any(len(shape) != ndim for shape in shapes):
            return -1
        return values[0].nbytes * len(values) if len(shapes) == 1 else sum(map(_NBYTES, values))

    return size


def _flexible_sizer(leaf: Leaf) -> Sizer:
    ndim, order, array = leaf.ndim, cast("str", leaf.dtype), np.ndarray

    def belongs(value: Any) -> bool:
        dtype = value.dtype
        return (
            type(value) is array
            and value.ndim == ndim
            and dtype.str[:2] == order
            and dtype.itemsize > 0
        )

    return lambda values: (
        sum(map(_NBYTES, values)) if _are(array, values) and all(map(belongs, values)) else -1
    )


def _scalar_sizer(dtype: DType) -> Sizer:
    kind, width = dtype.type, dtype.itemsize
    if dtype.kind in "mMV":  # the type alone does not determine unit or fields
        return lambda values: (
            width * len(values) if _are(kind, values) and _have(dtype, values) else -1
        )
    return lambda values: width * len(values) if _are(kind, values) else -1


# --------------------------------------------------------------------- packing


def pack(leaf: Leaf, dtype: DType | None, values: Sequence[Any], gather: bool = False) -> Packed:
    """Pack all values of a column, each accepted by its `sizer`, into a flat buffer.

    With ``gather``, large values stay where they are.
    """
    if leaf.kind == "array":
        return (
            _pack_flexible(leaf, values) if dtype is None else _pack_arrays(dtype, values, gather)
        )
    if leaf.kind == "scalar":
        return _pack_scalars(cast("DType", dtype), values)
    if leaf.kind in ("str", "np.str"):
        return _pack_rows([str.encode(value, "utf-8", "surrogatepass") for value in values])
    if leaf.kind in ("bytes", "np.bytes", "items"):
        return _pack_rows(values)
    if leaf.kind == "none":
        return Packed(memoryview(b""), (), 0)
    if leaf.kind == "object":
        return Packed(pack_objects(values), None, 0)
    try:
        numbers = np.array(values, _NUMBERS[leaf.kind])
    except OverflowError:
        return _pack_rows(
            [value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True) for value in values]
        )
    return Packed(flat_bytes(numbers), (), numbers.itemsize)


def flat_bytes(array: Array) -> memoryview:
    """Return the bytes of an array in C order, without a copy if it is contiguous."""
    if not array.nbytes:
        return memoryview(b"")
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _pack_scalars(dtype: DType, values: Sequence[Any]) -> Packed:
    # numpy scalars of every kind export their bytes, which is four times faster than
    # making an array of them.
    return Packed(memoryview(b"".join(values)), (), dtype.itemsize)


def _pack_arrays(dtype: DType, values: Sequence[Array], gather: bool = False) -> Packed:
    shape = values[0].shape
    if len(values) == 1:
        return Packed(flat_bytes(values[0]), shape, dtype.itemsize)
    if set(map(_SHAPE, values)) != {shape}:
        return _pack_ragged(dtype.itemsize, [value.shape for value in values], values, gather)
    if gather and values[0].nbytes >= GATHER_FROM:
        return Packed(Gathered([*map(flat_bytes, values)]), shape, dtype.itemsize)
    try:
        return Packed(memoryview(b"".join(values)), shape, dtype.itemsize)
    except (BufferError, ValueError, TypeError):
        # Not contiguous, or a dtype without a buffer interface, such as datetime64.
        return Packed(memoryview(b"".join(map(flat_bytes, values))), shape, dtype.itemsize)


def _pack_flexible(leaf: Leaf, values: Sequence[Array]) -> Packed:
    first = values[0].dtype
    if all(value.dtype == first and value.shape == values[0].shape for value in values):
        packed = _pack_arrays(first, values)
        return Packed(packed.buffer, packed.shape, _unit(leaf).itemsize, first.itemsize)
    unit = _unit(leaf).itemsize
    shapes = [(*value.shape, value.dtype.itemsize // unit) for value in values]
    return _pack_ragged(unit, shapes, values)


def _unit(leaf: Leaf) -> DType:
    return dtypes.units(cast("str", leaf.dtype))


def _pack_ragged(
    typesize: int, shapes: Sequence[tuple[int, ...]], values: Sequence[Array], gather: bool = False
) -> Packed:
    table = _padded(np.array(shapes, "<i8").tobytes())
    if gather and sum([value.nbytes for value in values]) >= GATHER_FROM * len(values):
        return Packed(Gathered([memoryview(table), *map(flat_bytes, values)]), None, typesize)
    return Packed(memoryview(b"".join([table, *map(flat_bytes, values)])), None, typesize)


def _pack_rows(rows: Sequence[bytes]) -> Packed:
    table = _padded(np.array([*map(len, rows)], "<i8").tobytes())
    return Packed(memoryview(b"".join([table, *rows])), None, 0)


def _padded(table: bytes) -> bytes:
    return table + bytes(-len(table) % ALIGNMENT)


# ------------------------------------------------------------------- unpacking


def unpack(
    leaf: Leaf,
    dtype: DType | None,
    column: Column,
    frame: memoryview,
    count: int,
    *,
    lent: bool = False,
    room: Room | None = None,
) -> Values:
    """Unpack the values of a received column.

    Args:
        leaf: the leaf.
        dtype: its dtype; None if the column determines it.
        column: the column's entry in the header.
        frame: the column's frame.
        count: number of values.
        lent: True if the frame may be handed out without a copy, unless a peer that
            goes on writing to it could do harm.
        room: allocates memory for arrays that are not views of the frame.

    Raises:
        ProtocolError: frame and column contradict each other, or the bytes are not
            values of this kind.
    """
    if lent and not (
        leaf.kind == "array" and dtype is not None and _is_harmless(dtype) and not column.chunks
    ):
        frame, lent = memoryview(frame.tobytes()), False
    if leaf.kind == "none":
        if frame.nbytes or column.nbytes:
            raise ProtocolError(f"a column of None came with {frame.nbytes} bytes")
        return lambda skip: repeat(None, count - skip)
    if leaf.kind == "object":
        if column.shape is not None:
            raise ProtocolError(f"a column of objects claims values of shape {column.shape[:9]}")
        objects = unpack_objects(column.nbytes, column.chunks, frame, count)
        return lambda skip: islice(objects, skip, None)
    if column.shape is None:
        return _unpack_ragged(leaf, dtype, column, frame, count, lent, room)
    if leaf.kind == "array":
        whole = dtypes.widen(cast("str", leaf.dtype), column.width) if dtype is None else dtype
        return _unpack_arrays(leaf, whole, column, frame, count, lent, room)
    if column.shape or (leaf.kind not in _NUMBERS and leaf.kind != "scalar"):
        raise ProtocolError(f"a column of {leaf.kind} claims values of shape {column.shape[:9]}")
    return _unpack_scalars(
        leaf, np.dtype(_NUMBERS[leaf.kind]) if dtype is None else dtype, column, frame, count
    )


def _is_harmless(dtype: DType) -> bool:
    return dtype.kind in _HARMLESS or is_extension(dtype)


def _unpack_scalars(
    leaf: Leaf, dtype: DType, column: Column, frame: memoryview, count: int
) -> Values:
    _check_size(column, count * dtype.itemsize)
    array = decode_buffer(frame, column.nbytes, column.chunks, own=False).view(dtype)
    dtypes.check_text(array)
    if leaf.kind != "scalar":
        return lambda skip: iter(array[skip:].tolist())
    if dtype.kind == "V":
        return lambda skip: (scalar.copy() for scalar in array[skip:])
    return lambda skip: iter(array[skip:])


def _check_size(column: Column, nbytes: int) -> None:
    if nbytes != column.nbytes:
        raise ProtocolError(
            f"a column announced {column.nbytes} bytes for values that take {nbytes}"
        )


def _unpack_arrays(
    leaf: Leaf,
    dtype: DType,
    column: Column,
    frame: memoryview,
    count: int,
    lent: bool,
    room: Room | None,
) -> Values:
    shape = cast("tuple[int, ...]", column.shape)
    if len(shape) != leaf.ndim or any(size < 0 for size in shape):
        raise ProtocolError(
            f"a column of arrays with {leaf.ndim} axes claims the shape {shape[:9]}"
        )
    each = math.prod(shape) * dtype.itemsize
    _check_size(column, count * each)
    pinned = each >= COPY_BELOW or count == 1
    buffer = decode_buffer(frame, column.nbytes, column.chunks, own=pinned and not lent, room=room)
    array = _shaped(buffer, dtype, (count, *shape))
    dtypes.check_text(array)
    if not shape:
        cells = array.reshape(count, 1)
        return lambda skip: (cell.copy().reshape(()) for cell in cells[skip:])
    if pinned:
        return lambda skip: iter(array[skip:])
    return lambda skip: map(np.ndarray.copy, array[skip:])


def _shaped(buffer: Bytes, dtype: DType, shape: tuple[int, ...]) -> Array:
    """View a buffer as an array; also for an empty buffer, whose dtype and shape views
    cannot give.
    """
    try:
        return buffer.view(dtype).reshape(shape) if buffer.size else np.empty(shape, dtype)
    except (ValueError, MemoryError, OverflowError) as error:
        raise ProtocolError(
            f"no array of {buffer.size} bytes has the shape {shape[:9]}: {error}"
        ) from None


def _unpack_ragged(
    leaf: Leaf,
    dtype: DType | None,
    column: Column,
    frame: memoryview,
    count: int,
    lent: bool,
    room: Room | None,
) -> Values:
    if leaf.kind == "array":
        item = _unit(leaf) if dtype is None else dtype
        axes = leaf.ndim + (dtype is None)
        own = column.nbytes >= COPY_BELOW and not lent
        buffer = decode_buffer(frame, column.nbytes, column.chunks, own=own, room=room)
        shapes, stops, content = _split_ragged(buffer, count, axes, item.itemsize)
        if dtype is None:
            _check_widths(leaf, shapes[:, -1], item.itemsize)
        items = _shaped(content, item, (content.size // item.itemsize,))
        if dtype is not None:
            dtypes.check_text(items)
        elif item.itemsize == 4:
            dtypes.check_points(items)
        return _ragged_arrays(leaf, items, shapes, stops)
    if leaf.kind not in _FROM_BYTES:
        raise ProtocolError(f"a column of {leaf.kind} cannot be ragged")
    buffer = decode_buffer(frame, column.nbytes, column.chunks, own=False)
    _, stops, content = _split_ragged(buffer, count, 1, 1)
    # The texts of items are read from the frame, since an array of them may be large.
    view = memoryview(content) if leaf.kind == "items" else content.tobytes()
    rows = _rows(leaf, view, stops.tolist())
    return lambda skip: islice(rows, skip, None)


def _split_ragged(
    buffer: Bytes, count: int, axes: int, itemsize: int
) -> tuple[Array, Array, Bytes]:
    """Return the table of shapes, the number of the first item behind each value, and
    the bytes behind the table.
    """
    used = count * axes * 8
    start = used + -used % ALIGNMENT
    if buffer.size < start:
        raise ProtocolError(
            f"a ragged column of {buffer.size} bytes is shorter than its table of {start}"
        )
    # A copy of the table: the lender may still write to lent memory, but the table must
    # not change after the check.
    shapes, content = buffer[:used].copy().view("<i8").reshape(count, axes), buffer[start:]
    items, rest = divmod(content.size, itemsize)
    # In floating point first: the product of a hostile row may exceed 64 bits.
    rough = np.maximum(shapes, 1).prod(axis=1, dtype=np.float64)
    if rest or (shapes < 0).any() or (rough * itemsize >= 2.0**62).any():
        raise ProtocolError("a ragged column has impossible shapes, or ends within an item")
    sizes = shapes.prod(axis=1)
    if sizes.sum(dtype=np.float64) != items:
        raise ProtocolError(
            f"a ragged column holds {items} items, but its shapes take "
            f"{sizes.sum(dtype=np.float64)}"
        )
    return shapes, sizes.cumsum(), content


def _ragged_arrays(leaf: Leaf, items: Array, shapes: Array, stops: Array) -> Values:
    text = leaf.dtype if leaf.dtype in ("<U", ">U", "|S") else None

    def values(skip: int) -> Iterator[object]:
        start = int(stops[skip - 1]) if skip else 0
        for shape, stop in zip(shapes[skip:].tolist(), stops[skip:].tolist(), strict=True):
            piece = items[start:stop]
            start = stop
            array = (piece.copy() if piece.nbytes < COPY_BELOW else piece).reshape(shape)
            yield array if text is None else _text_array(array, text)

    return values


def _check_widths(leaf: Leaf, characters: Array, size: int) -> None:
    for number in (characters.min(), characters.max()):
        dtypes.widen(cast("str", leaf.dtype), int(number) * size)


def _text_array(characters: Array, text: Any) -> Array:
    """View rows of characters as fixed-width text with one axis fewer."""
    dtype = dtypes.widen(text, characters.shape[-1] * characters.dtype.itemsize)
    if not characters.size:
        return np.empty(characters.shape[:-1], dtype)
    return characters.view(dtype).reshape(characters.shape[:-1])


def _rows(leaf: Leaf, content: bytes | memoryview, stops: Sequence[int]) -> list[object]:
    starts = [0, *stops[:-1]]
    rows = [content[start:stop] for start, stop in zip(starts, stops, strict=True)]
    try:
        return [*map(_FROM_BYTES[leaf.kind], rows)]
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a column of text is not UTF-8: {error}") from None


def _text(row: bytes) -> str:
    return row.decode("utf-8", "surrogatepass")


_FROM_BYTES: dict[str, Callable[[Any], object]] = {
    "str": _text,
    "np.str": lambda row: np.str_(_text(row)),
    "bytes": bytes,
    "np.bytes": np.bytes_,
    "int": lambda row: int.from_bytes(row, "little", signed=True),
    "items": unpacked_items,
}
