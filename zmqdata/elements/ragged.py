"""``RaggedTensor``, rows of different lengths in a single array, and
``RaggedTensorSpec``, which describes such leaves.

This module holds values and pure functions that need only numpy. Batching elements into
ragged tensors belongs to ``iterators``, and encoding them belongs to ``blocks``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from zmqdata.elements.casting import cast
from zmqdata.elements.fillers import zero_of
from zmqdata.elements.lists import array_of
from zmqdata.elements.shapes import (
    DType,
    Shape,
    checked_dtype,
    checked_shape,
    dtype_name,
    shape_admits,
)
from zmqdata.elements.subclasses import is_masked, plain_array
from zmqdata.elements.tensors import as_stackable
from zmqdata.elements.unpadded import dtype_in_spec, dtypes_in_spec, pad_too_much
from zmqdata.elements.untyped import is_untyped, retyped_alike

Array: TypeAlias = "np.ndarray[Any, DType]"

_SPLIT_DTYPES = (np.dtype(np.int64), np.dtype(np.int32))
_SHOWN = 200  # values, in a repr


class RaggedTensor:
    """Rows of different lengths: their concatenated values, and the offsets at which
    rows begin and end.

    Row ``i`` is ``values[row_splits[i]:row_splits[i + 1]]``. If the values are ragged
    in turn, so are the rows.

    Args:
        values: an array with at least one axis, or a ``RaggedTensor``.
        row_splits: int64 or int32, of shape ``[rows + 1]``, non-decreasing from 0 to
            ``len(values)``.

    Raises:
        TypeError: values or row_splits have another type.
        ValueError: row_splits do not partition the values.

    >>> ragged = RaggedTensor(np.array([1, 2, 3]), np.array([0, 1, 1, 3]))
    >>> ragged
    RaggedTensor([[1], [], [2, 3]], dtype=int64)
    >>> ragged[2], ragged.shape, len(ragged)
    (array([2, 3]), (3, None), 3)

    Equivalent of ``tf.RaggedTensor``, which is created with ``from_row_splits``. Every
    axis that may be ragged counts as ragged.
    """

    __slots__ = ("row_splits", "values")

    values: Array | RaggedTensor
    row_splits: Array

    def __init__(self, values: Any, row_splits: Any) -> None:
        self.values = values if isinstance(values, RaggedTensor) else array_of_rows(values)
        self.row_splits = np.asarray(row_splits) if len(row_splits) else np.zeros(0, np.int64)
        check_splits(self.values, self.row_splits)

    @classmethod
    def trusted(cls, values: Array | RaggedTensor, row_splits: Array) -> RaggedTensor:
        """Assemble a ragged tensor from parts that were checked before, without
        checking them again.
        """
        made = object.__new__(cls)
        made.values, made.row_splits = values, row_splits
        return made

    @classmethod
    def from_row_lengths(
        cls, values: Any, row_lengths: Any, row_splits_dtype: Any = np.int64
    ) -> RaggedTensor:
        """Divide values into rows of these lengths.

        >>> RaggedTensor.from_row_lengths([1, 2, 3], [2, 0, 1]).to_list()
        [[1, 2], [], [3]]

        Equivalent of ``tf.RaggedTensor.from_row_lengths``.
        """
        return cls(values, splits_of(row_lengths, splits_dtype(row_splits_dtype)))

    @classmethod
    def from_rows(
        cls, rows: Sequence[Any], row_splits_dtype: Any = np.int64, ragged_rank: int | None = None
    ) -> RaggedTensor:
        """Stack rows.

        Args:
            rows: at least one row; arrays of the same dtype and number of axes, or
                ragged tensors of the same ragged rank.
            row_splits_dtype: int64 or int32.
            ragged_rank: number of leading axes of the arrays whose lengths may differ;
                None means 1. The other axes must be equal.

        >>> RaggedTensor.from_rows([np.array([1, 2]), np.array([3])]).to_list()
        [[1, 2], [3]]
        >>> rows = [np.zeros((1, 2)), np.zeros((2, 1))]
        >>> RaggedTensor.from_rows(rows, ragged_rank=2).to_list()
        [[[0.0, 0.0]], [[0.0], [0.0]]]

        tf.data has no such function; ``tf.ragged.stack`` does this for tensors.
        """
        if not len(rows):
            raise ValueError(
                "from_rows() got no rows, and the dtype follows from the rows: pass at least one "
                "row"
            )
        dtype = splits_dtype(row_splits_dtype)
        if all(type(row) is RaggedTensor for row in rows):
            rows = retyped_raggeds(rows)
            return cls.trusted(concatenate(rows), splits_of([len(row) for row in rows], dtype))
        arrays: Sequence[Any] = [
            row if type(row) is np.ndarray else array_of_rows(row) for row in rows
        ]
        if not all(array.size for array in arrays):
            arrays = retyped_alike(arrays)
        _check_rows(arrays, 1 if ragged_rank is None else ragged_rank)
        return _ragged_rows(arrays, 1 if ragged_rank is None else ragged_rank, dtype)

    @property
    def ragged_rank(self) -> int:
        """Number of ragged axes after the first axis."""
        return 1 + (self.values.ragged_rank if isinstance(self.values, RaggedTensor) else 0)

    @property
    def flat_values(self) -> Array:
        """The values below all ragged axes, as a single array."""
        values = self.values
        while isinstance(values, RaggedTensor):
            values = values.values
        return values

    @property
    def dtype(self) -> DType:
        """The dtype of the flat values."""
        return self.flat_values.dtype

    @property
    def shape(self) -> Shape:
        """The length of each axis, None for ragged axes."""
        return (len(self), *(None,) * self.ragged_rank, *self.flat_values.shape[1:])

    @property
    def ndim(self) -> int:
        """The number of axes, including ragged axes."""
        return self.ragged_rank + self.flat_values.ndim

    @property
    def nbytes(self) -> int:
        """The number of bytes of values and splits."""
        return int(self.values.nbytes + self.row_splits.nbytes)

    def row_lengths(self) -> Array:
        """Return the length of each row.

        >>> RaggedTensor([1, 2, 3], [0, 1, 3]).row_lengths()
        array([1, 2])
        """
        return np.diff(self.row_splits)

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, index: Any) -> Any:
        """Return a row by its number, or several rows by a slice. Both are views of the
        values, as with numpy.
        """
        if isinstance(index, slice):
            return self._rows(*index.indices(len(self)))
        if isinstance(index, (bool, np.bool_)) or not isinstance(index, (int, np.integer)):
            raise TypeError(
                f"a ragged tensor is indexed with an int or a slice of rows, got {index!r}: index "
                "the rows"
            )
        number = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= number < len(self):
            raise IndexError(f"row {index} of a ragged tensor with {len(self)} rows")
        return self.values[int(self.row_splits[number]) : int(self.row_splits[number + 1])]

    def _rows(self, start: int, stop: int, step: int) -> RaggedTensor:
        if step == 1:
            splits = self.row_splits[start : max(start, stop) + 1]
            first, last = int(splits[0]), int(splits[-1])
            return RaggedTensor.trusted(self.values[first:last], splits - splits[0])
        return self.at(range(start, stop, step))

    def at(self, numbers: Iterable[int]) -> RaggedTensor:
        """Return the rows of these numbers, as a copy.

        >>> RaggedTensor.from_rows([[1], [2, 3]]).at([1, 0]).to_list()
        [[2, 3], [1]]
        """
        rows = [self[number] for number in numbers]
        if not rows:
            return self._rows(0, 0, 1)
        return RaggedTensor.trusted(
            concatenate(rows), splits_of([len(row) for row in rows], self.row_splits.dtype)
        )

    def __iter__(self) -> Iterator[Any]:
        splits, values = self.row_splits.tolist(), self.values
        return (values[start:stop] for start, stop in pairwise(splits))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "a ragged tensor is not an array: to_tensor() pads its rows, and flat_values holds all "
            "its values"
        )

    def to_list(self) -> list[Any]:
        """Return the rows as nested lists.

        >>> RaggedTensor([1, 2], [0, 0, 2]).to_list()
        [[], [1, 2]]
        """
        return [row.to_list() if isinstance(row, RaggedTensor) else row.tolist() for row in self]

    def to_tensor(self, default_value: Any = None) -> Array:
        """Return an array in which each row is padded to the length of the longest row.

        Args:
            default_value: the padding; None means 0, the empty text, or None beside
                Python objects.

        Raises:
            ValueError: the values' dtype cannot represent the padding.

        >>> RaggedTensor([1, 2, 3], [0, 1, 3]).to_tensor(-1)
        array([[ 1, -1],
               [ 2,  3]])

        Equivalent of ``tf.RaggedTensor.to_tensor``.
        """
        values = (
            self.values.to_tensor(default_value)
            if isinstance(self.values, RaggedTensor)
            else self.values
        )
        lengths = self.row_lengths()
        longest = int(lengths.max()) if len(lengths) else 0
        dtype = values.dtype
        filler = None if default_value is None else cast(default_value, dtype)
        if filler is not None and dtype.kind in "US":
            dtype = np.result_type(dtype, filler.dtype)  # wide enough for both
        if filler is None and dtype.kind == "O":
            filler = np.array(zero_of(values.flat), dtype)
        padded = np.zeros((len(self), longest, *values.shape[1:]), dtype)
        if filler is not None:
            padded[...] = filler
        padded[np.arange(longest) < lengths[:, None]] = values
        return padded

    def with_flat_values(self, flat_values: Any) -> RaggedTensor:
        """Return the same rows with other values, for example the result of a function
        of ``flat_values``.

        >>> ragged = RaggedTensor([1, 2], [0, 0, 2])
        >>> ragged.with_flat_values(ragged.flat_values * 10).to_list()
        [[], [10, 20]]

        Equivalent of ``tf.RaggedTensor.with_flat_values``.
        """
        inner = self.values
        return RaggedTensor(
            inner.with_flat_values(flat_values) if isinstance(inner, RaggedTensor) else flat_values,
            self.row_splits,
        )

    def copy(self) -> RaggedTensor:
        """Return an equal ragged tensor that shares no memory with this one."""
        return RaggedTensor.trusted(self.values.copy(), self.row_splits.copy())

    def equals(self, other: object) -> bool:
        """Return True if the other is ragged in the same way and has the same rows and
        dtypes. NaN equals NaN.

        >>> ragged = RaggedTensor([1], [0, 1])
        >>> ragged.equals(RaggedTensor([1], [0, 1])), ragged.equals(1)
        (True, False)
        """
        if not isinstance(other, RaggedTensor) or self.row_splits.dtype != other.row_splits.dtype:
            return False
        if not np.array_equal(self.row_splits, other.row_splits):
            return False
        mine, its = self.values, other.values
        if isinstance(mine, RaggedTensor) or isinstance(its, RaggedTensor):
            return isinstance(mine, RaggedTensor) and mine.equals(its)
        return mine.dtype == its.dtype and np.array_equal(
            mine, its, equal_nan=mine.dtype.kind in "fc"
        )

    def __repr__(self) -> str:
        if self.flat_values.size + len(self) > _SHOWN:
            return f"<RaggedTensor of shape {self.shape}, dtype={dtype_name(self.dtype)}>"
        return f"RaggedTensor({self.to_list()}, dtype={dtype_name(self.dtype)})"


def array_of_rows(values: Any) -> Array:
    """Return a list or tensor of values as an array."""
    if isinstance(values, (list, tuple)):
        return array_of(values)
    return plain_array(as_stackable(values))


def retyped_raggeds(raggeds: Sequence[Any]) -> Sequence[Any]:
    """Return ragged tensors in which those without values have the dtype of the
    others.

    >>> rows = [RaggedTensor.from_rows([[]]), RaggedTensor.from_rows([[1]])]
    >>> [ragged.dtype.name for ragged in retyped_raggeds(rows)]
    ['int64', 'int64']
    """
    values = [getattr(ragged, "flat_values", None) for ragged in raggeds]
    if not any(map(is_untyped, values)):
        return raggeds
    pairs = zip(raggeds, retyped_alike(values), values, strict=True)
    return [
        ragged if flat is before else ragged.with_flat_values(flat)
        for ragged, flat, before in pairs
    ]


def check_splits(values: Any, splits: Array) -> None:
    """Raise if splits do not partition these values.

    Raises:
        TypeError: the values or splits have a type that a ragged tensor cannot have.
        ValueError: the splits are not non-decreasing from 0 to the number of values.
    """
    if values.ndim < 1:
        raise TypeError(
            f"values of a ragged tensor need an axis to divide, got the scalar {values!r}"
        )
    if splits.dtype not in _SPLIT_DTYPES or splits.ndim != 1:
        raise TypeError(
            f"row_splits must be int64 or int32 with one axis, got {splits.dtype} of shape "
            f"{splits.shape}"
        )
    if (
        not len(splits)
        or splits[0] != 0
        or splits[-1] != len(values)
        or (splits[1:] < splits[:-1]).any()
    ):
        raise ValueError(
            f"row_splits must go from 0 to the number of values ({len(values)}) without falling, "
            f"got {splits}; pass lengths of rows to from_row_lengths() instead"
        )


def splits_dtype(dtype: Any) -> DType:
    """Return the dtype of row splits after checking it.

    >>> splits_dtype("int32")
    dtype('int32')
    """
    found: DType = np.dtype(dtype)
    if found not in _SPLIT_DTYPES:
        raise ValueError(f"row_splits_dtype must be int64 or int32, got {found}")
    return found


def splits_of(row_lengths: Any, dtype: DType) -> Array:
    """Return the row splits for rows of these lengths.

    >>> splits_of([2, 0, 1], np.dtype("int64"))
    array([0, 2, 2, 3])
    """
    splits = np.zeros(len(row_lengths) + 1, dtype)
    np.cumsum(row_lengths, out=splits[1:])
    return splits


def concatenate(parts: Sequence[Any]) -> Any:
    """Concatenate arrays of the same dtype, or ragged tensors of the same ragged rank,
    along the first axis.

    >>> first, second = RaggedTensor([1], [0, 1]), RaggedTensor([2, 3], [0, 0, 2])
    >>> concatenate([first, second]).to_list()
    [[1], [], [2, 3]]
    """
    first = parts[0]
    if isinstance(first, RaggedTensor):
        if any(not isinstance(part, RaggedTensor) for part in parts):
            raise TypeError(
                "ragged tensors cannot be concatenated with arrays: make all of them ragged, or "
                "pad them with to_tensor()"
            )
        lengths = np.concatenate([part.row_lengths() for part in parts])
        return RaggedTensor.trusted(
            concatenate([part.values for part in parts]), splits_of(lengths, first.row_splits.dtype)
        )
    if first.dtype.kind in "US" or (first.dtype.isnative and first.dtype.names is None):
        pads = first.dtype.kind in "US" and pad_too_much(parts)
        made = np.concatenate(parts, dtype=object if pads else None)
        if is_masked(made):  # numpy's own function forgets the masks
            joined: Any = np.ma
            return joined.concatenate(parts)
        return made
    # Otherwise numpy returns native byte order, and fields without padding.
    return np.concatenate(parts, dtype=first.dtype)


def _check_rows(arrays: Sequence[Array], ragged_rank: int) -> None:
    first = arrays[0]
    if not 1 <= ragged_rank <= first.ndim:
        raise ValueError(
            f"ragged_rank must be between 1 and the number of axes, got {ragged_rank} for "
            f"{first.ndim} axes"
        )
    ndim, inner = first.ndim, first.shape[ragged_rank:]
    for index, array in enumerate(arrays):
        if array.ndim != ndim or array.shape[ragged_rank:] != inner:
            raise ValueError(
                f"row {index} has shape {array.shape} and row 0 has {first.shape}: only ragged "
                "axes may differ"
            )
        if array.dtype != first.dtype and len(dtypes_in_spec([first, array])) > 1:
            raise TypeError(
                f"row {index} has dtype {array.dtype} and row 0 has {first.dtype}: use astype()"
            )


def _ragged_rows(arrays: Sequence[Array], ragged_rank: int, dtype: DType) -> RaggedTensor:
    """Stack rows that were checked before."""
    lengths = [len(array) for array in arrays]
    if ragged_rank == 1:
        return RaggedTensor.trusted(concatenate(arrays), splits_of(lengths, dtype))
    return RaggedTensor.trusted(_joined(arrays, ragged_rank - 1, dtype), splits_of(lengths, dtype))


def _joined(arrays: Sequence[Array], ragged_rank: int, dtype: DType) -> RaggedTensor:
    """Concatenate the rows of all arrays: the values below another ragged axis."""
    inner = np.repeat([array.shape[1] for array in arrays], [len(array) for array in arrays])
    flat = [array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]) for array in arrays]
    below = concatenate(flat) if ragged_rank == 1 else _joined(flat, ragged_rank - 1, dtype)
    return RaggedTensor.trusted(below, splits_of(inner, dtype))


@dataclass(frozen=True, init=False)
class RaggedTensorSpec:
    """Shape, dtype and ragged axes of a leaf that is a ``RaggedTensor``.

    Args:
        shape: length of each axis, None for ragged axes and axes of varying length;
            ``shape=None`` if even the number of axes varies.
        dtype: dtype of the flat values.
        ragged_rank: number of ragged axes after the first axis; None means all.
        row_splits_dtype: int64 or int32.

    >>> spec = RaggedTensorSpec((None, None, 3), "float32", ragged_rank=1)
    >>> spec.shape, spec.dtype, spec.row_splits_dtype
    ((None, None, 3), dtype('float32'), dtype('int64'))

    Equivalent of ``tf.RaggedTensorSpec``; instead of a ragged rank of 0, use
    ``TensorSpec``.
    """

    shape: Shape | None
    dtype: DType
    ragged_rank: int
    row_splits_dtype: DType

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = np.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: Any = np.int64,
    ) -> None:
        wanted = checked_shape(shape)
        if ragged_rank is None:
            if wanted is None:
                raise ValueError(
                    "a RaggedTensorSpec needs ragged_rank if the number of axes is unknown"
                )
            ragged_rank = len(wanted) - 1
        if isinstance(ragged_rank, bool) or not isinstance(ragged_rank, (int, np.integer)):
            raise TypeError(f"ragged_rank must be int or None, got {ragged_rank!r}")
        if ragged_rank < 1 or (wanted is not None and ragged_rank >= len(wanted)):
            axes = "unknown" if wanted is None else len(wanted)
            raise ValueError(
                f"ragged_rank must be at least 1 and less than the number of axes ({axes}), got "
                f"{ragged_rank}"
            )
        object.__setattr__(self, "shape", wanted)
        object.__setattr__(self, "dtype", checked_dtype(dtype))
        object.__setattr__(self, "ragged_rank", int(ragged_rank))
        object.__setattr__(self, "row_splits_dtype", splits_dtype(row_splits_dtype))

    def __repr__(self) -> str:
        return (
            f"RaggedTensorSpec(shape={self.shape}, dtype={dtype_name(self.dtype)}, "
            f"ragged_rank={self.ragged_rank}, "
            f"row_splits_dtype={dtype_name(self.row_splits_dtype)})"
        )

    @classmethod
    def of(cls, ragged: RaggedTensor) -> RaggedTensorSpec:
        """Return the spec of a ragged tensor.

        >>> RaggedTensorSpec.of(RaggedTensor([1], [0, 0, 1])).shape
        (2, None)
        """
        dtype = dtype_in_spec(ragged.flat_values)
        return cls(ragged.shape, dtype, ragged.ragged_rank, ragged.row_splits.dtype)

    def admits(self, ragged: RaggedTensor) -> bool:
        """Return True if a ragged tensor matches this spec. A length given for a ragged
        axis must hold for each row.

        >>> RaggedTensorSpec((None, None), "int64").admits(RaggedTensor([1], [0, 1]))
        True
        """
        if ragged.ragged_rank != self.ragged_rank:
            return False
        if self.dtype not in (ragged.dtype, dtype_in_spec(ragged.flat_values)):
            return False
        if ragged.row_splits.dtype != self.row_splits_dtype:
            return False
        return self.shape is None or shape_admits(self.shape, _lengths(ragged, self.shape))


def _lengths(ragged: RaggedTensor, wanted: Shape) -> Shape:
    """Return the shape. A ragged axis has the wanted length if all rows have it, else
    None.
    """
    lengths: list[int | None] = [len(ragged)]
    level: Any = ragged
    while isinstance(level, RaggedTensor):
        found = set(level.row_lengths().tolist())
        want = wanted[len(lengths)] if len(lengths) < len(wanted) else None
        lengths.append(want if found <= {want} else None)
        level = level.values
    return (*lengths, *level.shape[1:])
