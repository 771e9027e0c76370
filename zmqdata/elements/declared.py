"""Elements as a declared spec says: each value is cast exactly, or is an error that
names it, its place and the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from zmqdata.elements.casting import cast
from zmqdata.elements.nesting import leaves_of, map_structure, nesting_of, places_of
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.shapes import shape_admits
from zmqdata.elements.specs import DatasetSpec, NoneTensorSpec, TensorSpec
from zmqdata.elements.tensors import as_stackable
from zmqdata.elements.texts import value_text
from zmqdata.elements.unpadded import dtype_in_spec
from zmqdata.elements.untyped import grown
from zmqdata.peeking import has

Conform: TypeAlias = Callable[[Any], Any]
"""Returns a value as a spec says, or raises TypeError or ValueError."""

_TEXTS: dict[str, type] = {"U": str, "S": bytes}


def conformer(spec: Any, mismatch: str) -> Conform:
    """Return a function that makes an element of a value as the spec says: lists and
    scalars become arrays of its dtype. Floats may be rounded, and texts become UTF-8
    where the spec says bytes. Other values must not change.

    Args:
        spec: the declared spec.
        mismatch: text for errors that names the function and its argument.

    >>> conformer({"x": TensorSpec((2,), "float32")}, "odd")({"x": [1, 2]})
    {'x': array([1., 2.], dtype=float32)}
    """
    quick = _conformer_of(spec)

    def conform(value: Any) -> Any:
        try:
            return quick(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{mismatch}: {_located(spec, value, error)}") from None

    return conform


def _located(spec: Any, value: Any, error: Exception) -> str:
    """Return the text of the error of the first leaf that does not conform."""
    try:
        leaves = nesting_of(spec).flatten_up_to(value)
    except (TypeError, ValueError):
        nesting = map_structure(lambda _: "*", spec)
        return f"got {value_text(value)}, expected an element nested as {nesting}"
    for place, leaf_spec, leaf in zip(
        places_of(spec, "element"), leaves_of(spec), leaves, strict=True
    ):
        try:
            _leaf_conformer(leaf_spec)(leaf)
        except (TypeError, ValueError) as found:
            return f"at {place}: {found}"
    return str(error)


def _conformer_of(spec: Any) -> Conform:
    """Return the function for a part of a spec. Dicts and tuples, the usual cases, are
    taken apart here, in a third of the time of a walk by optree. Their subclasses
    become those, as without a spec.
    """
    if isinstance(spec, (TensorSpec, RaggedTensorSpec, NoneTensorSpec, DatasetSpec)):
        return _leaf_conformer(spec)

    def by_walk(value: Any) -> Any:
        return map_structure(lambda leaf_spec, leaf: _leaf_conformer(leaf_spec)(leaf), spec, value)

    if type(spec) is dict:
        parts = {key: _conformer_of(part) for key, part in spec.items()}

        def of_dict(value: Any) -> Any:
            if not isinstance(value, dict) or value.keys() != parts.keys():
                return by_walk(value)
            return {key: conform(value[key]) for key, conform in parts.items()}

        return of_dict
    if type(spec) is tuple:
        items = [_conformer_of(part) for part in spec]

        def of_tuple(value: Any) -> Any:
            named = isinstance(value, tuple) and hasattr(value, "_fields")
            if named or not isinstance(value, tuple) or len(value) != len(items):
                return by_walk(value)
            return tuple([conform(part) for conform, part in zip(items, value, strict=True)])

        return of_tuple
    return by_walk


def _leaf_conformer(spec: Any) -> Conform:
    if isinstance(spec, TensorSpec):
        return _tensor_conformer(spec)
    if isinstance(spec, RaggedTensorSpec):
        return lambda leaf: _as_ragged(spec, leaf)

    def exact(leaf: Any) -> Any:
        fits = leaf is None if isinstance(spec, NoneTensorSpec) else has(leaf, "element_spec")
        if not fits:
            expected = "None" if isinstance(spec, NoneTensorSpec) else "a dataset"
            raise TypeError(f"got {value_text(leaf)}, expected {expected}")
        return leaf

    return exact


def _tensor_conformer(spec: TensorSpec) -> Conform:
    """Return the function for arrays of a spec. It returns those that fit at once."""
    shape, dtype = spec.shape, spec.dtype
    if not shape:
        return _scalar_conformer(spec)
    if None not in shape:

        def of_length(leaf: Any) -> Any:
            fits = type(leaf) is np.ndarray and leaf.shape == shape and leaf.dtype == dtype
            return leaf if fits else _as_array(spec, leaf)

        return of_length
    ndim, is_free = len(shape), shape == (None,) * len(shape)

    def of_any_length(leaf: Any) -> Any:
        fits = type(leaf) is np.ndarray and leaf.ndim == ndim and leaf.dtype == dtype
        return (
            leaf if fits and (is_free or shape_admits(shape, leaf.shape)) else _as_array(spec, leaf)
        )

    return of_any_length


def _scalar_conformer(spec: TensorSpec) -> Conform:
    dtype = spec.dtype
    scalar = dtype.type if dtype.kind in "biufc" and dtype.isnative else None

    def of_scalar(leaf: Any) -> Any:
        kind = type(leaf)
        if kind is scalar:
            return leaf
        if scalar is not None and (kind is int or kind is float):
            return cast(leaf, dtype)[()]
        return _as_array(spec, leaf)

    return of_scalar


def _as_array(spec: TensorSpec, leaf: Any) -> Any:
    kind = spec.dtype.kind
    is_many = isinstance(leaf, (list, np.ndarray))
    if not is_many and not spec.shape:
        if kind == "O":
            return leaf
        if kind in _TEXTS and isinstance(leaf, _TEXTS[kind]):
            return leaf
        if kind == "S" and isinstance(leaf, str):
            return leaf.encode()
    array = cast(leaf if is_many else as_stackable(leaf), spec.dtype)
    if not array.size and spec.shape is not None:
        array = array.reshape(grown(array.shape, len(spec.shape)))
    if not spec.admits(array.shape, array.dtype if kind == "O" else dtype_in_spec(array)):
        found = value_text(leaf)
        found = found if isinstance(leaf, np.ndarray) else f"{found} of shape {array.shape}"
        raise TypeError(f"got {found}, expected {spec}")
    # Scalars of numpy have the byte order of the machine.
    return array[()] if array.ndim == 0 and array.dtype.isnative else array


def _as_ragged(spec: RaggedTensorSpec, leaf: Any) -> Any:
    if not isinstance(leaf, RaggedTensor):
        raise TypeError(f"got {value_text(leaf)}, expected {spec}")
    flat = leaf.flat_values
    if flat.dtype != spec.dtype:
        leaf = leaf.with_flat_values(cast(flat, spec.dtype))
    if not spec.admits(leaf):
        raise TypeError(f"got {RaggedTensorSpec.of(leaf)}, expected {spec}")
    return leaf
