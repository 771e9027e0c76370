"""Columns of Arrow: the types that they have as elements, and their values as arrays,
ragged tensors, dicts and rows.

The module needs pyarrow, and is imported where a table is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types
from pyarrow.compute import list_value_length

from zmqdata.elements.casting import cast
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import InvalidArgumentError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Fill: TypeAlias = "str | dict[str, Any] | None"
"""Treatment of nulls in batches: None refuses them, ``"mask"`` adds a column, and a
dict has a value for each column that may have them.
"""
VALID = "_valid"
"""End of the name of the column that tells which values of another are not null."""
_WIDTHS = (
    (types.is_string, types.is_large_string, types.is_string_view),
    (types.is_binary, types.is_large_binary, types.is_binary_view),
)
_WIDEST = (pa.large_string(), pa.large_binary())
_BYTES = (*_WIDTHS[1], types.is_fixed_size_binary)
_LISTS = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
_NUMBERS = frozenset(
    pa.from_numpy_dtype(f"{kind}{width}").id
    for kind, widths in (("u", "1248"), ("i", "1248"), ("f", "48"))
    for width in widths
)
_EXACT_IN_FLOAT = 32
"""Bits of the largest integers that floats hold exactly."""


def _is_list(kind: Any) -> bool:
    return any(test(kind) for test in _LISTS) or types.is_map(kind)


def stored(kind: Any) -> Any:
    """Return the type in which a column is read: values of dictionaries, storage of
    extension types, and plain types instead of views, at every depth.

    >>> stored(pa.dictionary(pa.int8(), pa.string()))
    DataType(string)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return stored(kind.storage_type)
    if types.is_dictionary(kind):
        return stored(kind.value_type)
    if types.is_map(kind):
        pair = [("key", stored(kind.key_type)), ("value", stored(kind.item_type))]
        return pa.list_(pa.struct(pair))
    if types.is_fixed_size_list(kind):
        return pa.list_(stored(kind.value_type), kind.list_size)
    if _is_list(kind):
        large = types.is_large_list(kind) or types.is_large_list_view(kind)
        return (pa.large_list if large else pa.list_)(stored(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, stored(field.type)) for field in kind])
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _WIDEST[types.is_binary_view(kind)]
    return kind


def _types_in(kind: Any) -> Iterator[Any]:
    """Yield a stored type, and the types of its parts at every depth."""
    yield kind
    parts = [field.type for field in kind] if types.is_struct(kind) else []
    if _is_list(kind) or types.is_fixed_size_list(kind):
        parts = [kind.value_type]
    for part in parts:
        yield from _types_in(part)


def check_type(name: str, column: str, kind: Any) -> None:
    """Raise if numpy has no values of a type, or a dict cannot have all fields.

    Args:
        name: name of the table, for errors.
        column: name of the column.
        kind: its type.

    Raises:
        InvalidArgumentError: the type has such a part, at any depth.
    """
    for part in _types_in(stored(kind)):
        fields = [field.name for field in part] if types.is_struct(part) else []
        reason = "two fields of one name, and its values are dicts. Give them different names"
        if types.is_interval(part) or types.is_union(part):
            reason = f"no values in numpy for {part}. Convert it, as to a duration"
        elif len({*fields}) == len(fields):
            continue
        raise InvalidArgumentError(
            f"The column {column!r} of {name}, of type {kind}, has {reason}, or leave it out"
        )


def check_masks(kind: Any) -> None:
    """Raise if masks would replace fields of a struct.

    Args:
        kind: the struct, of stored types.

    Raises:
        InvalidArgumentError: a struct has a field of the name of a mask, at any depth.
    """
    for part in filter(types.is_struct, _types_in(kind)):
        names = {field.name for field in part}
        for name in names:
            if name + VALID in names:
                raise InvalidArgumentError(
                    f'nulls="mask" adds {name + VALID!r} beside {name!r}, and this name is taken. '
                    "Give the column another name, or leave it out"
                )


def in_type(array: Any, kind: Any) -> Any:
    """Return an array in a type that holds the values of its stored type, or in a
    dictionary of such values.

    >>> views = pa.array([[1], [2, 3]], pa.list_view(pa.int8()))
    >>> in_type(views, pa.list_(pa.int16())).to_pylist()
    [[1], [2, 3]]
    """
    found = array.type
    if found == kind:
        return array
    if types.is_dictionary(kind):
        values = in_type(array.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(array.indices, values)
    if types.is_dictionary(found):
        return in_type(array.dictionary, kind).take(array.indices)
    if isinstance(found, pa.BaseExtensionType):
        return in_type(array.storage, kind)
    if types.is_map(found):
        pair = pa.struct([("key", found.key_type), ("value", found.item_type)])
        return in_type(array.cast(pa.list_(pair)), kind)
    if stored(found) == found or types.is_string_view(found) or types.is_binary_view(found):
        return array.cast(kind)
    if types.is_struct(found):
        parts = dict(zip([field.name for field in found], array.flatten(), strict=True))
        columns = [in_type(parts[field.name], field.type) for field in kind]
        return pa.StructArray.from_arrays(columns, fields=[*kind], mask=array.is_null())
    if types.is_fixed_size_list(found):
        size = found.list_size
        inner = array.values.slice(array.offset * size, len(array) * size)
        values = in_type(inner, kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=array.is_null())
    # Arrow's own cast of a list view makes lists that lack their last offset.
    lengths = list_value_length(array).fill_null(0).to_numpy()
    values = in_type(array.flatten(), kind.value_type)
    splits = pa.array(_splits(lengths), pa.int64())
    return pa.LargeListArray.from_arrays(splits, values, mask=array.is_null()).cast(kind)


def widest(kinds: Iterable[Any]) -> Any:
    """Return the type that holds the values of columns of several stored types exactly;
    None if there is none. The order of the types makes no difference.

    >>> widest([pa.int32(), pa.float32()]), widest([pa.int64(), pa.string()])
    (DataType(double), None)
    """
    known = [*dict.fromkeys(kind for kind in kinds if not types.is_null(kind))]
    if len(known) < 2:
        return known[0] if known else pa.null()
    for widths, wide in zip(_WIDTHS, _WIDEST, strict=True):
        if all(any(test(kind) for test in widths) for kind in known):
            return wide
    if all(types.is_integer(kind) or types.is_floating(kind) for kind in known):
        return _widest_number(known)
    if all(map(types.is_struct, known)):
        return _widest_struct(known)
    if all(map(types.is_fixed_size_list, known)):
        value, sizes = widest(k.value_type for k in known), {k.list_size for k in known}
        return None if value is None or len(sizes) > 1 else pa.list_(value, sizes.pop())
    if all(map(_is_list, known)):
        value = widest(kind.value_type for kind in known)
        large = any(map(types.is_large_list, known))
        return None if value is None else (pa.large_list if large else pa.list_)(value)
    return None


def _widest_number(kinds: Sequence[Any]) -> Any:
    whole = [kind for kind in kinds if types.is_integer(kind)]
    # `to_pandas_dtype` needs pandas in some releases of pyarrow.
    numbers = [pa.array([], kind).to_numpy(zero_copy_only=False).dtype for kind in kinds]
    if whole and len(whole) < len(kinds) and max(k.bit_width for k in whole) > _EXACT_IN_FLOAT:
        return None
    found = reduce(np.promote_types, sorted(numbers, key=str))
    # numpy has float64 for int64 beside uint64, which is not exact.
    return None if found.kind == "f" and len(whole) == len(kinds) else pa.from_numpy_dtype(found)


def _widest_struct(kinds: Sequence[Any]) -> Any:
    names = [field.name for field in kinds[0]]
    if any({field.name for field in kind} != set(names) for kind in kinds):
        return None
    fields = {name: widest(kind.field(name).type for kind in kinds) for name in names}
    return None if None in fields.values() else pa.struct([*fields.items()])


def column_of(array: Any, fill: Fill = None, name: str = "") -> dict[str, Any]:
    """Return a column of a batch by its name and, where nulls are masked, a column that
    tells which values are not null.

    Args:
        array: an Arrow array of a stored type.
        fill: treatment of nulls.
        name: name of the column.

    Raises:
        InvalidArgumentError: the column has nulls or decimals.

    >>> column_of(pa.array([1, None]), "mask", "n")
    {'n': array([1, 0]), 'n_valid': array([ True, False])}
    """
    masks = fill == "mask"
    found = {name: _ColumnMaker(name, fill).values(array)}
    if masks:
        found[name + VALID] = _valid(array)
    return found


def _valid(array: Any) -> Array:
    valid: Array = array.is_valid().to_numpy(zero_copy_only=False)
    return valid if valid.flags.writeable else valid.copy()


class _ColumnMaker:
    """Makes values of arrays, and treats the nulls of a column as the user says."""

    def __init__(self, name: str, fill: Fill) -> None:
        self._name, self._masks = name, fill == "mask"
        self._fill = fill.get(name) if isinstance(fill, dict) else None

    def values(self, array: Any, depth: int = 0) -> Any:
        if array.null_count:
            self._check(array, depth)
            present = self.values(array.drop_null(), depth)
            return self._spread(present, _valid(array), array.type)
        if array.type.id in _NUMBERS:  # without the questions below, for speed
            return array.to_numpy().copy()
        if types.is_decimal(array.type):
            raise InvalidArgumentError(
                f"The column {self._name!r} has the type {array.type}, of which numpy has no "
                "arrays. Read rows, without `batch_rows`, in which its values are of "
                "`decimal.Decimal`; or leave the column out"
            )
        if types.is_struct(array.type):
            fields = [field.name for field in array.type]
            parts = zip(fields, array.flatten(), strict=True)
            nested: dict[str, Any] = {}
            for name, part in parts:
                nested[name] = self.values(part)
                if self._masks:
                    nested[name + VALID] = _valid(part)
            return nested
        return _without_nulls(array, lambda inner: self.values(inner, depth + 1))

    def _check(self, array: Any, depth: int) -> None:
        if self._fill is not None and not types.is_struct(array.type):
            return
        if not self._masks:
            raise InvalidArgumentError(
                f"The column {self._name!r} has {array.null_count} nulls in this batch, and a "
                'batch is an array. Pass nulls="mask" for a column '
                f'"{self._name}{VALID}" beside it, or a value as in nulls={{"{self._name}": -1}}; '
                "or read rows, without `batch_rows`, in which a null is None"
            )
        if depth:
            raise InvalidArgumentError(
                f"The column {self._name!r} has nulls within its lists, which no mask of its rows "
                f'can tell. Pass a value as in nulls={{"{self._name}": -1}}, or read rows, without '
                "`batch_rows`"
            )

    def _spread(self, values: Any, valid: Array, kind: Any) -> Any:
        if isinstance(values, dict):
            return {name: self._spread(part, valid, kind) for name, part in values.items()}
        if isinstance(values, RaggedTensor):
            lengths = np.zeros(len(valid), np.int64)
            lengths[valid] = values.row_lengths()
            return RaggedTensor.trusted(values.values, _splits(lengths))
        found = np.zeros((len(valid), *values.shape[1:]), values.dtype)
        if values.dtype != object:
            if self._fill is not None:
                found[...] = cast(self._fill, values.dtype)
        else:
            found[...] = self._text(kind)
        found[valid] = values
        return found

    def _text(self, kind: Any) -> Any:
        """Return the value of nulls among texts, bytes, or nothing but nulls."""
        if types.is_null(kind):
            return self._fill
        texts = bytes if any(test(kind) for test in _BYTES) else str
        if self._fill is not None and not isinstance(self._fill, texts):
            raise InvalidArgumentError(
                f"`nulls` has {self._fill!r} for the column {self._name!r}, whose values are of "
                f"the type {texts.__name__}. Pass a value of that type"
            )
        return texts() if self._fill is None else self._fill


def _without_nulls(array: Any, values_of: Any) -> Any:
    """Return the values of an array without nulls, whose lists hold values that a
    function makes.
    """
    kind = array.type
    if types.is_fixed_size_list(kind):
        inner = values_of(array.flatten())
        if isinstance(inner, np.ndarray):
            return inner.reshape(len(array), kind.list_size, *inner.shape[1:])
        return _in_rows(inner, np.arange(len(array) + 1) * kind.list_size)
    if _is_list(kind):
        splits = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        return _in_rows(values_of(array.flatten()), splits - splits[0])
    if types.is_time(kind):
        number = array.cast(pa.int32() if types.is_time32(kind) else pa.int64())
        return number.to_numpy().astype(f"timedelta64[{kind.unit}]")
    if types.is_null(kind):
        return np.full(len(array), None)
    values = array.to_numpy(zero_copy_only=False)
    return values if values.flags.writeable else values.copy()


def _in_rows(values: Any, splits: Array) -> Any:
    if isinstance(values, dict):
        return {name: _in_rows(part, splits) for name, part in values.items()}
    return RaggedTensor.trusted(values, splits)


def _splits(lengths: Array) -> Array:
    return np.concatenate([[0], np.cumsum(lengths)])


def rows_of(array: Any) -> list[Any]:
    """Return the values of an array of a stored type, with None for nulls.

    >>> rows_of(pa.array([[1, 2], None]))
    [array([1, 2]), None]
    """
    if array.null_count:
        found: list[Any] = [None] * len(array)
        present = rows_of(array.drop_null())
        for index, row in zip(np.flatnonzero(_valid(array)).tolist(), present, strict=True):
            found[index] = row
        return found
    kind = array.type
    if types.is_struct(kind):
        names = [field.name for field in kind]
        if not names:
            return [{} for _ in range(len(array))]
        return dict_rows(names, map(rows_of, array.flatten()))
    if types.is_decimal(kind):
        return list(array.to_pylist())
    if types.is_nested(kind) and len(array) > 1 and _has_nulls(array):
        return _rows_among_nulls(array)
    return _parts(_without_nulls(array, _inner))


def _rows_among_nulls(array: Any) -> list[Any]:
    """Return lists, some of which hold nulls. Each has the type that it has alone."""
    inner = array.flatten()
    is_struct = types.is_struct(inner.type) and not inner.null_count
    if types.is_fixed_size_list(array.type) or (types.is_nested(inner.type) and not is_struct):
        half = len(array) // 2
        return rows_of(array[:half]) + rows_of(array[half:])
    splits = array.offsets.to_numpy().astype(np.int64)
    splits -= splits[0]
    if is_struct:
        parts = [pa.LargeListArray.from_arrays(splits, part) for part in inner.flatten()]
        return dict_rows([field.name for field in inner.type], map(rows_of, parts))
    objects = _inner(inner)
    found = [objects[start:stop].copy() for start, stop in pairwise(splits.tolist())]
    whole = np.diff(_splits(~_valid(inner))[splits]) == 0
    present = rows_of(array.filter(pa.array(whole)))
    for index, row in zip(np.flatnonzero(whole).tolist(), present, strict=True):
        found[index] = row
    return found


def _has_nulls(array: Any) -> bool:
    """Return True if an array has nulls at any depth."""
    if array.null_count or not types.is_nested(array.type):
        return bool(array.null_count)
    inner = array.flatten()
    return any(map(_has_nulls, inner if types.is_struct(array.type) else [inner]))


def dict_rows(names: Sequence[str], columns: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows as dicts, from the values of each column, at least one.

    >>> dict_rows(["a", "b"], [[1, 2], [3, 4]])
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
    """
    found: list[dict[str, Any]] = []
    # Column by column, which takes a third of the time of a dict from each row.
    for name, values in zip(names, columns, strict=True):
        if not found:
            found = [{name: value} for value in values]
            continue
        for row, value in zip(found, values, strict=True):
            row[name] = value
    return found


def column_dict(names: Iterable[str], columns: Iterable[Any], fill: Fill = None) -> dict[str, Any]:
    """Return the columns of a batch as ``column_of`` makes them, as far as they have
    names.
    """
    found: dict[str, Any] = {}
    for name, column in zip(names, columns, strict=False):
        found.update(column_of(column, fill, name))
    return found


def _inner(array: Any) -> Any:
    """Return the values within lists, as an array of objects where some are null."""
    if not array.null_count and types.is_struct(array.type) and array.type.num_fields:
        parts = zip(array.type, array.flatten(), strict=True)
        return {field.name: _inner(part) for field, part in parts}
    if array.null_count or types.is_struct(array.type) or types.is_decimal(array.type):
        found = np.empty(len(array), object)
        for index, row in enumerate(rows_of(array)):
            found[index] = row
        return found
    return _without_nulls(array, _inner)


def _parts(values: Any) -> list[Any]:
    """Return the rows of values, each with memory of its own."""
    if isinstance(values, dict):
        return dict_rows([*values], map(_parts, values.values()))
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values.tolist() if values.dtype == object else list(values)
    return [row.copy() for row in values]
