"""Specs: dtype and shape of each leaf of an element, in the element's nesting; and
specs as bytes.

This module holds immutable descriptions and pure functions over them. Running a
pipeline to find its spec belongs to ``iterators``, and encoding elements belongs to
``blocks``.

A spec is a ``TensorSpec``, ``RaggedTensorSpec``, ``DatasetSpec`` or ``NoneTensorSpec``,
or a nesting of specs (see ``nesting``) in which a list is also a structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np
import optree

from zmqdata.elements.extensions import described, rebuilt
from zmqdata.elements.lists import array_of
from zmqdata.elements.nesting import (
    LEAF_TYPES,
    field_names,
    fits_attrs,
    instance_of,
    leaves_of,
    map_structure,
)
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.shapes import (
    Shape,
    checked_dtype,
    checked_shape,
    dtype_name,
    dtype_of_items,
    merged_shape,
    shape_admits,
    without_width,
)
from zmqdata.elements.subclasses import python_type
from zmqdata.elements.tensors import as_stackable
from zmqdata.elements.unpadded import dtype_in_spec
from zmqdata.elements.untyped import grown, is_untyped, is_untyped_spec, retyped
from zmqdata.errors import ProtocolError
from zmqdata.peeking import has, look_up

AUTOTUNE = -1
"""Let zmqdata choose a number, for example the size of a buffer."""
INFINITE_CARDINALITY = -1
"""The cardinality of an infinite dataset."""
UNKNOWN_CARDINALITY = -2
"""The cardinality of a dataset whose length is only known by running it."""

_MAX_DEPTH = 64


@dataclass(frozen=True, init=False)
class TensorSpec:
    """Shape and dtype of a leaf of an element.

    Texts have no width here: every ``<U..`` is ``str`` and every ``S..`` is ``bytes``.
    So are arrays of Python's texts, or bytes, alone.

    Args:
        shape: length of each axis, None for a varying length; ``shape=None`` if even
            the number of axes varies.
        dtype: anything that numpy accepts as a dtype.

    >>> TensorSpec((None, 28), "uint8")
    TensorSpec(shape=(None, 28), dtype=uint8)

    Equivalent of ``tf.TensorSpec``, with numpy's dtypes.
    """

    shape: Shape | None
    dtype: np.dtype[Any]

    def __init__(self, shape: Any, dtype: Any = np.float32) -> None:
        object.__setattr__(self, "shape", checked_shape(shape))
        object.__setattr__(self, "dtype", checked_dtype(dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={dtype_name(self.dtype)})"

    def admits(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Return True if an array of this shape and dtype matches the spec.

        >>> TensorSpec((None, 2), "int64").admits((5, 2), np.dtype("int64"))
        True
        """
        if without_width(dtype) != self.dtype:
            return False
        return self.shape is None or shape_admits(self.shape, shape)


class ObjectSpec:
    """Base of the specs of leaves that are single objects of Python."""

    @property
    def shape(self) -> Shape:
        """The shape of a single object: ``()``."""
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of a single object, and of the array into which ``batch`` puts
        several: object.
        """
        return np.dtype(object)


@dataclass(frozen=True)
class DatasetSpec(ObjectSpec):
    """The spec of a dataset that is a leaf of an element, as ``window`` creates them.

    Args:
        element_spec: the spec of the elements of that dataset.

    Raises:
        TypeError: ``element_spec`` is not a spec.

    >>> DatasetSpec(TensorSpec((), "int64"))
    DatasetSpec(TensorSpec(shape=(), dtype=int64))

    Equivalent of ``tf.data.DatasetSpec``.
    """

    element_spec: Any

    def __post_init__(self) -> None:
        check_spec("element_spec", self.element_spec)

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec})"


@dataclass(frozen=True)
class NoneTensorSpec(ObjectSpec):
    """The spec of a leaf that is always None.

    >>> spec_of((1, None))
    (TensorSpec(shape=(), dtype=int64), NoneTensorSpec())

    Equivalent of ``tf.NoneTensorSpec``: ``batch`` and ``unbatch`` leave None as it is.
    """


ANY_OBJECT = TensorSpec((), object)
"""Spec of a Python object, which may be None, a text or a number."""
_PYTHON_SPECS = {
    bool: TensorSpec((), np.bool_),
    int: TensorSpec((), np.int64),
    float: TensorSpec((), np.float64),
    complex: TensorSpec((), np.complex128),
    str: TensorSpec((), np.str_),
    bytes: TensorSpec((), np.bytes_),
}

Spec: TypeAlias = "TensorSpec | RaggedTensorSpec | DatasetSpec | NoneTensorSpec"
"""Spec of a leaf."""


def check_spec(name: str, value: object) -> None:
    """Raise if a value is not a nesting of specs.

    Raises:
        TypeError: a leaf is not a spec; the error names the argument, the leaf and the
            expected type.

    >>> check_spec("spec", {"x": TensorSpec((), "int64")})
    """
    for leaf in leaves_of(value):
        if not isinstance(leaf, (TensorSpec, RaggedTensorSpec, DatasetSpec, NoneTensorSpec)):
            raise TypeError(
                f"{name} must be TensorSpec(shape, dtype) for each leaf, in the nesting of the "
                "elements (dicts and "
                f"tuples, no lists); got {leaf!r} of type {type(leaf).__name__}"
            )


def spec_of(element: Any) -> Any:
    """Return the spec of a single element, with its actual shapes.

    >>> spec_of({"x": np.zeros((2, 3), np.float32)})
    {'x': TensorSpec(shape=(2, 3), dtype=float32)}
    >>> spec_of(7)
    TensorSpec(shape=(), dtype=int64)
    """
    return map_structure(_leaf_spec, element)


def spec_of_alike(elements: Sequence[Any]) -> Any:
    """Return the narrowest spec that admits all of several elements, in a fraction of
    the time that ``spec_of`` takes for each of them. Return None if their nesting or
    types differ, or if a type is neither built in nor numpy's.

    >>> spec_of_alike([("a", 1), ("b", 2)])
    (TensorSpec(shape=(), dtype=str), TensorSpec(shape=(), dtype=int64))
    >>> spec_of_alike([1, 2.5]) is None
    True
    """
    with suppress(LookupError, TypeError, ValueError):
        return _column_spec(elements, _MAX_DEPTH)
    return None


def _column_spec(column: Sequence[Any], depth: int) -> Any:
    """Return the spec of the parts at one place of all elements. Raise LookupError,
    TypeError or ValueError if only a look at each of them can tell.
    """
    (kind,) = set(map(type, column))
    first = column[0]
    if depth and kind in (dict, tuple):
        (_,) = set(map(len, column))
        keys = first if kind is dict else range(len(first))
        parts = [_column_spec([*map(itemgetter(key), column)], depth - 1) for key in keys]
        return dict(zip(first, parts, strict=True)) if kind is dict else tuple(parts)
    if kind not in LEAF_TYPES or kind is RaggedTensor:
        raise TypeError(f"each {kind.__name__} has a spec of its own")
    models = [min(column), max(column)] if kind is int else [first]
    if issubclass(kind, (np.ndarray, np.generic)):
        # One of each layout, in the order of the elements.
        models = [*dict(zip(map(_LAYOUT, column), column, strict=True)).values()]
        if any(is_untyped(model) or model.dtype == object for model in models):
            raise TypeError("the spec of an array of no dtype depends on the others")
    return reduce(merge_specs, map(_leaf_spec, models))


_LAYOUT = attrgetter("shape", "dtype")


def _leaf_spec(leaf: Any) -> Spec:
    if leaf is None:
        return NoneTensorSpec()
    if isinstance(leaf, RaggedTensor):
        return RaggedTensorSpec.of(leaf)
    if isinstance(leaf, (np.ndarray, np.generic)):
        return TensorSpec(leaf.shape, dtype_in_spec(np.asarray(leaf)))
    if isinstance(leaf, list):
        return _leaf_spec(array_of(leaf))
    stackable = as_stackable(leaf)
    if stackable is not leaf:
        return _leaf_spec(stackable)
    if has(type(leaf), "element_spec"):
        return DatasetSpec(leaf.element_spec)
    if isinstance(leaf, int) and not -(2**63) <= leaf < 2**63:
        return ANY_OBJECT
    # A member of an enumeration of texts or numbers is a text or number in a batch.
    return _PYTHON_SPECS.get(python_type(type(leaf)), ANY_OBJECT)


def merge_specs(first: Any, second: Any) -> Any:
    """Return the narrowest spec that admits the elements of both.

    Raises:
        TypeError: the specs differ in nesting or dtype; the text shows both.

    >>> merge_specs(TensorSpec((2, 3), "int8"), TensorSpec((4, 3), "int8"))
    TensorSpec(shape=(None, 3), dtype=int8)
    """
    if first == second:
        return first
    try:
        return map_structure(_merge_leaves, first, second, in_lists=True)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"specs do not fit together: {first} and {second} ({error}); make nesting "
            "and dtypes equal with map()"
        ) from None


def retyped_by_spec(leaf: Any, spec: Any) -> Any:
    """Return a leaf without values, whose dtype is unknown, with dtype and number of
    axes of a spec; other leaves are returned as they are.

    >>> retyped_by_spec(np.asarray([]), TensorSpec((None,), "int8"))
    array([], dtype=int8)
    """
    if isinstance(leaf, RaggedTensor):
        flat = leaf.flat_values
        return leaf.with_flat_values(flat.astype(spec.dtype)) if is_untyped(flat) else leaf
    if not is_untyped(leaf) or is_untyped_spec(spec.dtype, spec.shape):
        return leaf
    return retyped(leaf, spec.dtype, leaf.ndim if spec.shape is None else len(spec.shape))


def merge_joined_specs(specs: Iterable[Any], cardinalities: Callable[[], list[int]]) -> Any:
    """Return the narrowest spec that admits the elements of all of several datasets.
    The rows of an empty list say nothing of their dtype and shape.

    Args:
        specs: their specs.
        cardinalities: returns their cardinalities; called only if specs differ.

    Raises:
        TypeError: specs differ in nesting or dtype; the text shows both.

    >>> rows_of_an_empty_list, ints = TensorSpec((), "float64"), TensorSpec((), "int8")
    >>> merge_joined_specs([rows_of_an_empty_list, ints], lambda: [0, 2])
    TensorSpec(shape=(), dtype=int8)
    """
    specs = [*specs]
    try:
        return reduce(merge_specs, specs)
    except TypeError:
        counts = cardinalities()
        if all(counts):
            raise
    pairs = [*zip(specs, counts, strict=True)]
    models = [spec for spec, count in pairs if count] or [pairs[0][0]]
    merged = models[0]
    for spec, count in pairs:
        if not count:
            with suppress(TypeError, ValueError):
                spec = map_structure(_row_of_none, spec, merged, in_lists=True)
        merged = merge_specs(merged, spec)
    return merged


def _row_of_none(spec: Any, model: Any) -> Any:
    is_untyped_row = isinstance(spec, TensorSpec) and spec == TensorSpec((), np.float64)
    return model if is_untyped_row else spec


def specs_agree(one: Any, other: Any) -> bool:
    """Return True if both specs describe the same elements, one perhaps more precisely:
    they have the same nesting and dtypes, and no axis has two different lengths.

    Object is a dtype of its own here. It does not stand for numbers or texts.

    >>> specs_agree(TensorSpec((None, 3), "int8"), TensorSpec((2, None), "int8"))
    True
    >>> specs_agree(TensorSpec((2,), "int8"), TensorSpec((3,), "int8"))
    False
    >>> specs_agree(TensorSpec((), "int8"), TensorSpec((), object))
    False
    """
    try:
        merge_specs(one, other)
        return all(
            leaves_of(map_structure(_leaves_agree, one, other, in_lists=True), in_lists=True)
        )
    except (TypeError, ValueError):
        return False


def _leaves_agree(one: Any, other: Any) -> bool:
    if isinstance(one, DatasetSpec):
        return specs_agree(one.element_spec, other.element_spec)
    has_untyped = any(is_untyped_spec(spec.dtype, spec.shape) for spec in (one, other))
    if one.dtype.hasobject != other.dtype.hasobject and not has_untyped:
        return False
    if one.shape is None or other.shape is None:
        return True
    pairs = zip(one.shape, other.shape, strict=False)
    return len(one.shape) == len(other.shape) and all(a == b or None in (a, b) for a, b in pairs)


def _merge_leaves(first: Any, second: Any) -> Spec:
    if isinstance(first, DatasetSpec) and isinstance(second, DatasetSpec):
        return DatasetSpec(merge_specs(first.element_spec, second.element_spec))
    if isinstance(first, NoneTensorSpec) and first == second:
        return first
    if ANY_OBJECT in (first, second) and first.shape == second.shape:
        other = second if first == ANY_OBJECT else first
        if isinstance(other, (TensorSpec, NoneTensorSpec)):
            return ANY_OBJECT
    if type(first) is not type(second):
        raise TypeError(f"{first} in the place of {second}")
    if isinstance(first, TensorSpec):
        first, second = _typed_specs(first, second)
    dtype = first.dtype
    if dtype != second.dtype:
        # Beside None, for example, texts are objects.
        if {dtype.kind, second.dtype.kind} not in ({"O", "U"}, {"O", "S"}):
            raise TypeError(f"dtype {dtype_name(dtype)} and dtype {dtype_name(second.dtype)}")
        dtype = np.dtype(object)
    shape = merged_shape(first.shape, second.shape)
    if isinstance(first, TensorSpec):
        return TensorSpec(shape, dtype)
    if (first.ragged_rank, first.row_splits_dtype) != (second.ragged_rank, second.row_splits_dtype):
        raise TypeError(f"{first} in the place of {second}")
    return RaggedTensorSpec(shape, dtype, first.ragged_rank, first.row_splits_dtype)


def _typed_specs(first: TensorSpec, second: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """Return two specs of which one that says nothing of its dtype, since it is that of
    an empty list, has the dtype and number of axes of the other.
    """
    if is_untyped_spec(first.dtype, first.shape):
        return _like(first, second), second
    if is_untyped_spec(second.dtype, second.shape):
        return first, _like(second, first)
    return first, second


def _like(untyped: TensorSpec, other: TensorSpec) -> TensorSpec:
    shape = untyped.shape
    if shape is not None and other.shape is not None:
        shape = grown(shape, len(other.shape))
    return TensorSpec(shape, other.dtype)


def replace_shape(
    spec: RaggedTensorSpec, shape: Shape | None, more_ragged: int = 0
) -> RaggedTensorSpec:
    """Return the spec of ragged tensors with another shape and ragged rank."""
    return RaggedTensorSpec(
        shape, spec.dtype, spec.ragged_rank + more_ragged, spec.row_splits_dtype
    )


def with_leading_axis(spec: Any, length: int | None) -> Any:
    """Return the spec of a batch of ``length`` (None: varying) elements of this spec.

    >>> with_leading_axis((TensorSpec((2,), "int8"),), None)
    (TensorSpec(shape=(None, 2), dtype=int8),)
    """
    return map_structure(lambda leaf: _stacked_leaf(leaf, length), spec)


def _stacked_leaf(leaf: Any, length: int | None) -> Spec:
    if isinstance(leaf, NoneTensorSpec):
        return leaf
    shape = None if leaf.shape is None else (length, *leaf.shape)
    if isinstance(leaf, RaggedTensorSpec):
        return replace_shape(leaf, shape, 1)
    return TensorSpec(shape, leaf.dtype)


def without_leading_axis(spec: Any) -> Any:
    """Return the spec of a row of stacked elements; the inverse of
    ``with_leading_axis``.

    >>> without_leading_axis(RaggedTensorSpec((2, None), "int8"))
    TensorSpec(shape=(None,), dtype=int8)
    """
    return map_structure(_row_leaf, spec)


def _row_leaf(leaf: Any) -> Spec:
    if isinstance(leaf, NoneTensorSpec):
        return leaf
    shape = None if leaf.shape is None else leaf.shape[1:]
    if isinstance(leaf, RaggedTensorSpec) and leaf.ragged_rank > 1:
        return replace_shape(leaf, shape, -1)
    return TensorSpec(shape, leaf.dtype if shape else dtype_of_items(leaf.dtype))


def with_leading_length(spec: Any, length: int | None) -> Any:
    """Return the spec of stacked elements of this spec, with ``length`` rows (None:
    varying).

    >>> with_leading_length(TensorSpec((3, 2), "int8"), None)
    TensorSpec(shape=(None, 2), dtype=int8)
    """

    def leaf_spec(leaf: Any) -> Spec:
        if isinstance(leaf, NoneTensorSpec):
            return leaf
        shape = None if leaf.shape is None else (length, *leaf.shape[1:])
        return (
            replace_shape(leaf, shape)
            if isinstance(leaf, RaggedTensorSpec)
            else TensorSpec(shape, leaf.dtype)
        )

    return map_structure(leaf_spec, spec)


def leading_length(spec: Any) -> int | None:
    """Return the number of rows in stacked elements of this spec, or None if it varies.

    >>> leading_length({"x": TensorSpec((None, 2)), "y": TensorSpec((4,))})
    4
    """
    leaves = leaves_of(spec, in_lists=True)
    lengths = [leaf.shape[0] for leaf in leaves if leaf.shape and leaf.shape[0] is not None]
    return lengths[0] if lengths else None


# --- specs as bytes


class _Leaf(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    dtype: Any
    shape: tuple[int | None, ...] | None


class _Dataset(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    element: _Leaf | _None | _Ragged | _Dataset | _Dict | _Sequence | _Record


class _None(msgspec.Struct, frozen=True, array_like=True, tag="z"):
    pass


class _Dict(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    keys: tuple[Any, ...]
    children: tuple[_Leaf | _None | _Ragged | _Dataset | _Dict | _Sequence | _Record, ...]


class _Sequence(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    is_list: bool
    children: tuple[_Leaf | _None | _Ragged | _Dataset | _Dict | _Sequence | _Record, ...]


class _Record(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    module: str
    qualname: str
    fields: tuple[str, ...]
    children: tuple[_Leaf | _None | _Ragged | _Dataset | _Dict | _Sequence | _Record, ...]


class _Ragged(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    dtype: Any
    shape: tuple[int | None, ...] | None
    ragged_rank: int
    row_splits_dtype: str


_Node = _Leaf | _None | _Ragged | _Dataset | _Dict | _Sequence | _Record
_decoder = msgspec.msgpack.Decoder(_Node)


def encode_spec(spec: Any) -> bytes:
    """Encode a spec as bytes for ``decode_spec`` in any process.

    Raises:
        TypeError: a leaf is not a spec.

    >>> decode_spec(encode_spec({"x": TensorSpec((None,), "int8")}))
    {'x': TensorSpec(shape=(None,), dtype=int8)}
    """
    return msgspec.msgpack.encode(_describe(spec))


def _describe(spec: Any) -> _Node:
    if isinstance(spec, TensorSpec):
        return _Leaf(_describe_dtype(spec.dtype), spec.shape)
    if isinstance(spec, RaggedTensorSpec):
        return _Ragged(
            _describe_dtype(spec.dtype), spec.shape, spec.ragged_rank, spec.row_splits_dtype.name
        )
    if isinstance(spec, DatasetSpec):
        return _Dataset(_describe(spec.element_spec))
    if isinstance(spec, NoneTensorSpec):
        return _None()
    if isinstance(spec, dict):
        return _Dict(tuple(spec), tuple(map(_describe, spec.values())))
    if optree.is_namedtuple(spec):
        kind = type(spec)
        return _Record(
            kind.__module__, kind.__qualname__, tuple(kind._fields), tuple(map(_describe, spec))
        )
    names = field_names(type(spec))
    if names is not None:
        kind = type(spec)
        children = tuple([_describe(getattr(spec, name)) for name in names])
        return _Record(kind.__module__, kind.__qualname__, names, children)
    if isinstance(spec, (tuple, list)):
        return _Sequence(isinstance(spec, list), tuple(map(_describe, spec)))
    raise TypeError(
        "a spec is a TensorSpec, a RaggedTensorSpec, or a dict, tuple, list, namedtuple or attrs "
        "instance of "
        f"specs; got {spec!r}"
    )


def _describe_dtype(dtype: np.dtype[Any]) -> Any:
    if dtype.subdtype is not None:
        return [_describe_dtype(dtype.subdtype[0]), list(dtype.subdtype[1])]
    if dtype.names is None or dtype.fields is None:
        return described(dtype)
    fields = [
        [name, _describe_dtype(part), *place]
        for name, (part, *place) in [(name, dtype.fields[name]) for name in dtype.names]
    ]
    return {"fields": fields, "size": dtype.itemsize}


def decode_spec(encoded: bytes) -> Any:
    """Decode the bytes from ``encode_spec``. A namedtuple or attrs instance becomes a
    dict if this process has not imported its class.

    Raises:
        ProtocolError: the bytes are not a spec.
    """
    try:
        return _rebuild(_decoder.decode(encoded), 0)
    except ProtocolError:
        raise
    except Exception as error:  # msgspec and numpy raise various errors for untrusted bytes
        raise ProtocolError(f"these bytes are not a spec of an element: {error}") from None


def _rebuild(node: _Node, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ProtocolError(f"a spec is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(node, _Leaf):
        return TensorSpec(node.shape, _rebuild_dtype(node.dtype, 0))
    if isinstance(node, _Ragged):
        return RaggedTensorSpec(
            node.shape, _rebuild_dtype(node.dtype, 0), node.ragged_rank, node.row_splits_dtype
        )
    if isinstance(node, _Dataset):
        return DatasetSpec(_rebuild(node.element, depth + 1))
    if isinstance(node, _None):
        return NoneTensorSpec()
    children = [_rebuild(child, depth + 1) for child in node.children]
    if isinstance(node, _Sequence):
        return children if node.is_list else tuple(children)
    keys = node.keys if isinstance(node, _Dict) else node.fields
    if len(set(keys)) != len(children):
        raise ProtocolError(
            f"a spec has {len(children)} children for {len(set(keys))} different keys"
        )
    kind = _imported_class(node) if isinstance(node, _Record) else None
    if kind is None:
        return dict(zip(keys, children, strict=True))
    is_tuple = issubclass(kind, tuple)
    return tuple.__new__(kind, children) if is_tuple else instance_of(kind, keys, children)


def _rebuild_dtype(form: Any, depth: int) -> np.dtype[Any]:
    if depth > _MAX_DEPTH:
        raise ProtocolError(f"a dtype is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(form, str):
        return rebuilt(form)
    if isinstance(form, list):
        base, shape = form
        return np.dtype((_rebuild_dtype(base, depth + 1), tuple(shape)))
    fields = form["fields"]
    titles = [place[1] if len(place) > 1 else None for _, _, *place in fields]
    layout: Any = {
        "names": [name for name, *_ in fields],
        "formats": [_rebuild_dtype(part, depth + 1) for _, part, *_ in fields],
        "offsets": [offset for _, _, offset, *_ in fields],
        "itemsize": form["size"],
    }
    made: np.dtype[Any] = np.dtype(layout | {"titles": titles} if any(titles) else layout)
    return made


def _imported_class(node: _Record) -> Any:
    """Return the namedtuple or attrs class if this process has already imported its
    module; a peer never triggers an import.
    """
    found = look_up(node.module, node.qualname)
    if optree.is_namedtuple_class(found):
        return found if found._fields == node.fields else None
    return found if fits_attrs(found, node.fields) else None
