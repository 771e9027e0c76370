"""Stacking of elements into batches. Padding is in ``operations.padding``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from zmqdata.elements.nesting import LEAF_TYPES, field_names, instance_of, tuple_of
from zmqdata.elements.ragged import RaggedTensor, concatenate, retyped_raggeds
from zmqdata.elements.subclasses import (
    KEEP_MASK,
    holds_named_text,
    is_masked,
    plain_array,
    plain_text,
    python_type,
)
from zmqdata.elements.tensors import as_stackable, is_stackable
from zmqdata.elements.unpadded import array_of_texts, dtypes_in_spec
from zmqdata.elements.untyped import is_untyped, retyped, retyped_alike
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.element_maker import MISSING

Join: TypeAlias = Callable[[Sequence[Any], str, Any], Any]
"""Combines the leaves of several elements. It takes the leaves, their place in the
element, and the guide for the leaf.
"""
_SCALARS: dict[type, Any] = {
    bool: np.bool_,
    int: np.int64,
    float: np.float64,
    complex: np.complex128,
}


def holds_none(batch: Any) -> bool:
    """Return True if a leaf of a batch is None.

    >>> holds_none({"x": (1, None)}), holds_none(np.zeros(1))
    (True, False)
    """
    if isinstance(batch, dict):
        return any(map(holds_none, batch.values()))
    return any(map(holds_none, batch)) if isinstance(batch, tuple) else batch is None


def stack(
    elements: Sequence[Any], place: str = "", join: Join | None = None, guide: Any = None
) -> Any:
    """Stack elements into an array for each leaf, with a row for each element.

    Args:
        elements: at least one, of equal nesting, dtypes and shapes.
        place: position of these leaves in the element, for errors.
        join: combines the leaves of several elements; None: ``stack_leaves``.
        guide: argument of ``join`` for each leaf, in the nesting of the elements; None:
            no argument.

    Raises:
        InvalidArgumentError: the elements are not equal; the text says which element
            differs, how, and what to do.

    >>> stack([{"x": 1, "y": (True,)}, {"x": 2, "y": (False,)}])
    {'x': array([1, 2]), 'y': (array([ True, False]),)}
    """
    first = elements[0]
    if isinstance(first, dict):
        keys = _same_keys(elements, place)
        return {
            key: stack(
                [element[key] for element in elements],
                f"{place}[{key!r}]",
                join,
                guide and guide[key],
            )
            for key in keys
        }
    if isinstance(first, tuple):
        columns = _same_columns(elements, place)
        guides = guide or (None,) * len(columns)
        parts = [stack(part, f"{place}[{i}]", join, guides[i]) for i, part in enumerate(columns)]
        return tuple_of(type(first), parts)
    if first is None:
        return _stack_missing(elements, place)
    if type(first) not in LEAF_TYPES:
        names = field_names(type(first))
        if names is not None:
            return _stack_attrs(elements, place, names, join, guide)
    return stack_leaves(elements, place) if join is None else join(elements, place, guide)


def _stack_missing(elements: Sequence[Any], place: str) -> None:
    """Return None if all values are None."""
    for index, element in enumerate(elements):
        if element is not None:
            came = f"a value of type {type(element).__name__}"
            raise mixed(index, place, came, "None", MISSING)


def _stack_attrs(
    elements: Sequence[Any], place: str, names: tuple[str, ...], join: Join | None, guide: Any
) -> Any:
    kind = type(elements[0])
    for index, element in enumerate(elements):
        if type(element) is not kind:
            came, expected = f"a {type(element).__name__}", f"a {kind.__name__}"
            raise mixed(index, place, came, expected, "Make one structure in a map()")
    parts = [
        stack(
            [getattr(element, name) for element in elements],
            f"{place}.{name}",
            join,
            guide and getattr(guide, name),
        )
        for name in names
    ]
    return instance_of(kind, names, parts)


def stack_leaves(elements: Sequence[Any], place: str) -> Any:
    """Stack values into an array with a row for each value, or ragged tensors into a
    ragged tensor.

    Raises:
        InvalidArgumentError: the values differ in dtype or shape.

    >>> stack_leaves([np.zeros(2), np.ones(2)], "").shape
    (2, 2)
    """
    kind = type(elements[0])
    if issubclass(kind, np.ndarray):
        return _stack_arrays(elements, place)
    if kind is RaggedTensor:
        return _stack_ragged(elements, place)
    if kind is type(None):
        return _stack_missing(elements, place)
    if is_stackable(kind):
        return stack_leaves([*map(as_stackable, elements)], place)
    if len(set(map(type, elements))) != 1 or issubclass(
        kind, (np.datetime64, np.timedelta64, np.void)
    ):
        _check_dtypes(elements, place)
    if issubclass(kind, (str, bytes)):
        named = holds_named_text(elements)
        return array_of_texts([*map(plain_text, elements)] if named else elements)
    return _stack_scalars(elements, kind, place)


def _check_dtypes(elements: Sequence[Any], place: str) -> None:
    """Raise an error unless numpy has a single dtype for the scalars, as for 1 and
    np.int64(1).
    """
    expected = np.asarray(plain_text(elements[0])).dtype
    for index, element in enumerate(elements):
        if element is None:
            expected_type = f"a value of type {type(elements[0]).__name__}"
            raise mixed(index, place, "None", expected_type, MISSING)
        array = np.asarray(plain_text(element))
        both_text = array.dtype.kind in "US" and array.dtype.kind == expected.kind
        if array.shape or (array.dtype != expected and not both_text):
            came = (
                f"a value of type {type(element).__name__}, dtype {array.dtype} "
                f"and shape {array.shape}"
            )
            raise mixed(
                index, place, came, f"dtype {expected} and shape ()", _remedy(array, expected)
            )


def _remedy(array: np.ndarray[Any, Any], expected: np.dtype[Any]) -> str:
    if array.shape:
        return "Return scalars for all elements, or arrays of one shape for all, in a map()"
    return "Convert all elements to one dtype, with np.float32(x) or astype() in a map()"


def _stack_scalars(elements: Sequence[Any], kind: type, place: str) -> Any:
    if issubclass(kind, np.generic):
        # numpy takes a tuple for the fields of a single structure.
        return np.array([*elements], dtype=elements[0].dtype)
    dtype = _SCALARS.get(python_type(kind))
    if dtype is not None:
        try:
            return np.array(elements, dtype=dtype)
        except OverflowError:
            odd = next(
                index for index, value in enumerate(elements) if not -(2**63) <= value < 2**63
            )
            raise mixed(
                odd,
                place,
                f"the int {elements[odd]}",
                "an int of 64 bits",
                "Use np.uint64 or a float",
            ) from None
    objects = np.empty(len(elements), dtype=object)
    objects[:] = elements
    return objects


def _stack_arrays(elements: Sequence[Any], place: str) -> Any:
    first = elements[0]
    shape, dtype = first.shape, first.dtype
    for array in elements:
        if type(array) is not np.ndarray or array.shape != shape or array.dtype is not dtype:
            elements = check_arrays(elements, place, shape)
            dtype = elements[0].dtype
            break
    if dtype.kind in "US":
        rows = elements if shape else [array.reshape(1) for array in elements]
        return concatenate(rows).reshape(len(elements), *shape)
    if shape and dtype.isnative and dtype.kind in "biufcmM":
        return np.concatenate(elements).reshape(len(elements), *shape)
    stacked = np.empty((len(elements), *shape), dtype=dtype)
    for index, array in enumerate(elements):
        stacked[index] = array
    return stacked


def check_arrays(
    elements: Sequence[Any], place: str, shape: tuple[int, ...] | None = None, ragged: int = 0
) -> list[Any]:
    """Return the elements as arrays, if all have the dtype and number of axes of the
    first.

    Args:
        elements: values to check; the first is an array.
        place: position of the values in the element, for errors.
        shape: shape that all must have behind the first ``ragged`` axes; None: any
            shape.
        ragged: number of leading axes that may have any length.

    Raises:
        InvalidArgumentError: an element differs.
    """
    if is_untyped(elements[0]):
        elements = retyped_alike(elements)
        shape = None if shape is None else elements[0].shape
    first, arrays = elements[0], []
    ndim, dtype, inner = first.ndim, first.dtype, None if shape is None else shape[ragged:]
    for index, array in enumerate(elements):
        fits = type(array) is np.ndarray and array.dtype is dtype and array.ndim == ndim
        if fits and (inner is None or array.shape[ragged:] == inner):
            arrays.append(array)
            continue
        if is_masked(array):
            remedy = f"{KEEP_MASK}, in a map()"
            raise mixed(index, place, "a masked array", "an array without a mask", remedy)
        if not isinstance(array, np.ndarray):
            array = as_stackable(array)
        if isinstance(array, (np.ndarray, np.generic)):
            array = plain_array(array)
        if array is None:
            raise mixed(index, place, "None", f"an array of dtype {dtype}", MISSING)
        if is_untyped(array):
            array = retyped(array, dtype, ndim)
        if not isinstance(array, np.ndarray):
            raise mixed(
                index, place, f"a {type(array).__name__}", "an array", "Call np.asarray in a map()"
            )
        if array.ndim != ndim or (inner is not None and array.shape[ragged:] != inner):
            remedy = (
                _SHAPES
                if array.ndim == ndim
                else "Use one number of axes, with reshape() in a map()"
            )
            raise mixed(
                index, place, f"an array of shape {array.shape}", f"shape {first.shape}", remedy
            )
        text = dtype.kind in "US" and array.dtype.kind == dtype.kind
        if array.dtype != dtype and not text and len(dtypes_in_spec([first, array])) > 1:
            raise mixed(
                index,
                place,
                f"an array of dtype {array.dtype}",
                f"dtype {dtype}",
                "Call astype() in a map()",
            )
        arrays.append(array)
    return arrays


_SHAPES = (
    "padded_batch() pads to one shape, ragged_batch() keeps each length, "
    "bucket_by_sequence_length() batches elements of similar length. Or make one shape in a map()"
)


def _stack_ragged(elements: Sequence[Any], place: str) -> RaggedTensor:
    elements = retyped_raggeds(elements)
    first = elements[0]
    kind = _ragged_kind(first)
    for index, ragged in enumerate(elements):
        if ragged is None:
            raise mixed(index, place, "None", "a RaggedTensor", MISSING)
        if type(ragged) is not RaggedTensor:
            remedy = (
                "Use ragged_batch() on the arrays, or make a RaggedTensor for all elements in a "
                "map()"
            )
            raise mixed(index, place, f"a {type(ragged).__name__}", "a RaggedTensor", remedy)
        values = first.flat_values, ragged.flat_values
        is_mixed = ragged.dtype != first.dtype and len(dtypes_in_spec(values)) > 1
        if is_mixed or _ragged_kind(ragged) != kind:
            remedy = "Make one dtype, ragged rank and inner shape in a map()"
            raise mixed(
                index, place, f"a RaggedTensor {_ragged_text(ragged)}", _ragged_text(first), remedy
            )
    return RaggedTensor.from_rows(elements, first.row_splits.dtype)


def _ragged_kind(ragged: RaggedTensor) -> tuple[Any, ...]:
    return (
        ragged.ragged_rank,
        ragged.flat_values.shape[1:],
        ragged.row_splits.dtype,
    )


def _ragged_text(ragged: RaggedTensor) -> str:
    return (
        f"of shape {ragged.shape}, dtype {ragged.dtype} and row_splits of {ragged.row_splits.dtype}"
    )


def _same_keys(elements: Sequence[Any], place: str) -> list[Any]:
    keys = elements[0].keys()
    for index, element in enumerate(elements):
        if not isinstance(element, dict) or element.keys() != keys:
            came = (
                f"the keys {list(element)}"
                if isinstance(element, dict)
                else f"a {type(element).__name__}"
            )
            raise mixed(
                index, place, came, f"the keys {list(keys)}", "Make one structure in a map()"
            )
    return list(keys)


def _same_columns(elements: Sequence[Any], place: str) -> list[Any]:
    kind, length = type(elements[0]), len(elements[0])
    for index, element in enumerate(elements):
        if type(element) is not kind or len(element) != length:
            came = f"a {type(element).__name__}" + (
                f" of {len(element)}" if isinstance(element, tuple) else ""
            )
            raise mixed(
                index,
                place,
                came,
                f"a {kind.__name__} of {length}",
                "Make one structure in a map()",
            )
    return list(zip(*elements, strict=True))


def mixed(index: int, place: str, came: str, expected: str, remedy: str) -> InvalidArgumentError:
    """Return the error for an element that does not match the first element of its
    batch.
    """
    where = f" at {place}" if place else ""
    return InvalidArgumentError(
        f"Cannot batch tensors with different shapes, dtypes or structures: element {index} of the "
        f"batch is {came}"
        f"{where}, expected {expected} as in element 0. Remedy: {remedy}"
    )
