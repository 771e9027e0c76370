"""numpy values within pickled objects: reduced to plain values, and rebuilt by numpy's
public constructors.

numpy's own pickles end in ``__setstate__``, which does not check its input: a changed
byte can crash the process. Values with a column of their own in a block (``columns``)
are not handled here.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from zmqdata.blocks.dtypes import DType, check_text
from zmqdata.elements.extensions import described, rebuilt
from zmqdata.errors import ProtocolError

_VIEWS: dict[str, type[np.ndarray[Any, Any]]] = {"matrix": np.matrix, "recarray": np.recarray}


def reduce_numpy(value: Any) -> Any:
    """Return the reduction of a numpy value, in the form of ``__reduce__``; None for
    other values.
    """
    if isinstance(value, np.dtype):
        return make_dtype, (_described(value),)
    if isinstance(value, np.ma.MaskedArray) and type(value) is np.ma.MaskedArray:
        mask = None if value.mask is np.ma.nomask else np.asarray(value.mask)
        return make_masked, (np.asarray(value.data), mask, np.asarray(value.fill_value))
    if isinstance(value, np.ndarray) and type(value).__reduce__ is np.ndarray.__reduce__:
        return _reduce_array(value)
    if type(value) is np.str_:
        return np.str_, (str.__str__(value),)
    if type(value) is np.bytes_:
        return np.bytes_, (bytes(memoryview(value)),)
    if isinstance(value, np.generic) and type(value) is value.dtype.type:
        return make_scalar, (np.asarray(value),)
    return None


def _reduce_array(value: np.ndarray[Any, Any]) -> Any:
    kind, array = type(value), np.asarray(value)
    if kind is np.recarray:
        array = value.view(np.ndarray)
    if kind is not np.ndarray:
        return (
            make_view,
            (array, _name_of_view(kind) or kind),
            getattr(value, "__dict__", None) or None,
        )
    dtype = array.dtype
    if dtype.kind == "O" or dtype.char == "T":
        return make_array_of, (dtype, array.shape, array.reshape(-1).tolist())
    if dtype.hasobject:
        return make_structured, (dtype, array.shape, [array[name] for name in dtype.names or ()])
    flat = np.ascontiguousarray(array).reshape(-1)
    content = pickle.PickleBuffer(flat.view(np.uint8)) if flat.nbytes else b""
    return make_array, (dtype, array.shape, content)


def _name_of_view(kind: type) -> str | None:
    return next((name for name, known in _VIEWS.items() if known is kind), None)


def _described(dtype: DType) -> Any:
    """Describe a dtype as text or nested tuples."""
    if dtype.subdtype is not None:
        return "repeated", _described(dtype.subdtype[0]), dtype.subdtype[1]
    if dtype.fields is None or dtype.names is None:
        return described(dtype)
    fields = [dtype.fields[name] for name in dtype.names]
    titles = tuple([field[2] if len(field) > 2 else None for field in fields])
    parts = tuple([_described(field[0]) for field in fields])
    places = tuple([int(field[1]) for field in fields])
    return (
        "fields",
        dtype.names,
        parts,
        places,
        titles,
        dtype.itemsize,
        dtype.isalignedstruct,
        dtype.type is np.record,
    )


def make_dtype(form: Any) -> DType:
    """Build a dtype from its description. Called while unpickling."""
    if isinstance(form, str):
        return rebuilt(form)
    if form[0] == "repeated":
        return np.dtype((make_dtype(form[1]), form[2]))
    _, names, parts, places, titles, itemsize, aligned, is_record = form
    layout: Any = {
        "names": [*names],
        "formats": [make_dtype(part) for part in parts],
        "offsets": [*places],
        "itemsize": itemsize,
        **({"titles": [*titles]} if any(title is not None for title in titles) else {}),
    }
    made: DType = np.dtype(layout, align=aligned)
    return np.dtype((np.record, made)) if is_record else made


def make_array(dtype: DType, shape: tuple[int, ...], content: Any) -> np.ndarray[Any, DType]:
    """Build an array from its bytes. Called while unpickling."""
    size = math.prod(shape) * dtype.itemsize
    if memoryview(content).nbytes != size or dtype.hasobject or min(shape, default=0) < 0:
        raise ProtocolError(
            f"no array of {memoryview(content).nbytes} bytes has the shape {shape!s:.80}"
        )
    if not size:
        return np.empty(shape, dtype)
    made = np.frombuffer(content, np.uint8).view(dtype).reshape(shape)
    check_text(made)
    return made


def make_array_of(
    dtype: DType, shape: tuple[int, ...], items: Sequence[object]
) -> np.ndarray[Any, DType]:
    """Build an array of Python objects. Called while unpickling."""
    if math.prod(shape) != len(items):
        raise ProtocolError(f"no array of {len(items)} objects has the shape {shape!s:.80}")
    made = np.empty(len(items), dtype)
    for number, item in enumerate(items):
        made[number] = item
    return made.reshape(shape)


def make_structured(
    dtype: DType, shape: tuple[int, ...], columns: Sequence[np.ndarray[Any, DType]]
) -> np.ndarray[Any, DType]:
    """Build an array of structured items with object fields, from its fields. Called
    while unpickling.
    """
    if sum(column.size for column in columns) < math.prod(shape):
        raise ProtocolError(f"no array of {len(columns)} columns has the shape {shape!s:.80}")
    made = np.empty(shape, dtype)
    for name, column in zip(dtype.names or (), columns, strict=True):
        made[name] = column
    return made


def make_view(array: np.ndarray[Any, DType], kind: Any) -> np.ndarray[Any, DType]:
    """View an array as an instance of a subclass. Called while unpickling."""
    return array.view(_VIEWS.get(kind, kind) if isinstance(kind, str) else kind)


def make_masked(values: Any, mask: Any, fill_value: Any) -> Any:
    """Build a masked array. Called while unpickling."""
    return np.ma.MaskedArray(values, np.ma.nomask if mask is None else mask, fill_value=fill_value)


def make_scalar(array: np.ndarray[Any, DType]) -> object:
    """Return the only item of an array without axes. Called while unpickling."""
    return array.reshape(())[()]


MAKERS = (
    make_array,
    make_array_of,
    make_dtype,
    make_masked,
    make_scalar,
    make_structured,
    make_view,
)
