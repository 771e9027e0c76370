"""Structures of elements: nesting, keys, and the kind of each leaf; composition of
elements.

A structure is plain data that travels in the header of a block. The nesting is written
out here rather than taken from optree: the order of dict keys is kept, None is a leaf,
a list is an array, and a treespec can only be pickled. ``flattening`` takes elements
apart. Bytes of leaves belong in ``columns``, frames in ``codec``.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Sequence
from itertools import repeat, starmap
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from zmqdata.blocks import dtypes
from zmqdata.blocks.dtypes import DType, DTypeSpec
from zmqdata.elements.nesting import fits_attrs, instance_of
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import ProtocolError
from zmqdata.peeking import look_up

MAX_DEPTH = 64
MAX_LEAVES = 4096
MAX_NDIM = 30
"""numpy before 2.0 allows 32 axes. A block needs an axis for its elements, and ragged
text another for its characters.
"""

Key: TypeAlias = str | int | bytes | bool | None
Kind: TypeAlias = Literal[
    "array",
    "scalar",
    "np.str",
    "np.bytes",
    "int",
    "float",
    "bool",
    "complex",
    "str",
    "bytes",
    "none",
    "items",
    "object",
]

PYTHON_KINDS: dict[type, Kind] = {
    int: "int",
    float: "float",
    bool: "bool",
    complex: "complex",
    str: "str",
    bytes: "bytes",
    type(None): "none",
    np.str_: "np.str",
    np.bytes_: "np.bytes",
}
_SPLITS = ("<i8", "<i4")
KEY_TYPES = (str, int, bytes, bool, type(None))


class Leaf(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """The place of a value."""

    kind: Kind
    """Kind of the value. "items" is an array of Python's texts and numbers; "object" is
    any value without a kind of its own, pickled.
    """
    dtype: DTypeSpec = ""
    """dtype of a numpy value (text without its width)."""
    ndim: int = 0
    """Number of axes of an array."""


class DictOf(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A dict with certain keys in a certain order."""

    # Of `Key`: msgspec allows no union of str and bytes, so `_check_names` checks it.
    keys: tuple[Any, ...]
    """The keys."""
    children: tuple[Leaf | DictOf | TupleOf | RecordOf | RaggedOf, ...]
    """Structure of each value."""


class TupleOf(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """A plain tuple."""

    children: tuple[Leaf | DictOf | TupleOf | RecordOf | RaggedOf, ...]
    """Structure of each item."""


class RecordOf(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A namedtuple, or an instance of a dataclass or attrs class."""

    form: Literal["namedtuple", "dataclass", "attrs"]
    """Kind of the class."""
    module: str
    """Module of the class."""
    qualname: str
    """Qualified name of the class."""
    fields: tuple[str, ...]
    """Names of the fields."""
    children: tuple[Leaf | DictOf | TupleOf | RecordOf | RaggedOf, ...]
    """Structure of each field."""


class RaggedOf(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """A ragged tensor."""

    children: tuple[Leaf | RaggedOf, Leaf]
    """Its values, which are an array, items or ragged in turn, and its row splits."""


Node: TypeAlias = Leaf | DictOf | TupleOf | RecordOf | RaggedOf


class Structure:
    """The checked structure of a block's elements. Two structures are equal if their
    encodings are.

    Attributes:
        node: the nesting, as sent.
        leaves: the leaves in order, each a column of a block.
        dtypes: dtype of each leaf; None if it has none, or the column determines its
            width.
        encoded: the encoding.
    """

    __slots__ = ("dtypes", "encoded", "leaves", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.leaves = tuple(_checked_leaves(node))
        self.dtypes = tuple(_leaf_dtype(leaf) for leaf in self.leaves)
        self.encoded = msgspec.msgpack.encode(node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __repr__(self) -> str:
        return f"Structure({self.node})"


def leaf_paths(node: Node, path: str = "element") -> Iterator[str]:
    """Yield the paths of an element's leaves from left to right, as Python expressions.
    >>> pair = TupleOf((Leaf("str"), Leaf("none")))
    >>> [*leaf_paths(DictOf(("x", "y"), (Leaf("int"), pair)))]
    ["element['x']", "element['y'][0]", "element['y'][1]"]
    """
    if isinstance(node, Leaf):
        yield path
        return
    if isinstance(node, DictOf):
        steps = [f"[{key!r}]" for key in node.keys]
    elif isinstance(node, RecordOf):
        steps = [f".{name}" for name in node.fields]
    elif isinstance(node, RaggedOf):
        steps = [".values", ".row_splits"]
    else:
        steps = [f"[{number}]" for number in range(len(node.children))]
    for step, child in zip(steps, node.children, strict=True):
        yield from leaf_paths(child, path + step)


def _checked_leaves(root: Node) -> Iterator[Leaf]:
    """Yield the leaves from left to right; raise ProtocolError for a structure that
    `describe_element` never returns.
    """
    pending: list[tuple[Node, int]] = [(root, 0)]
    found = 0
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ProtocolError(f"a structure is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, Leaf):
            found += 1
            if found > MAX_LEAVES:
                raise ProtocolError(f"a structure has more than {MAX_LEAVES} leaves")
            yield node
            continue
        _check_names(node)
        pending.extend((child, depth + 1) for child in reversed(node.children))


def _check_names(node: DictOf | TupleOf | RecordOf | RaggedOf) -> None:
    if isinstance(node, TupleOf):
        return
    if isinstance(node, RaggedOf):
        _check_ragged(node)
        return
    names: tuple[Key, ...] = node.keys if isinstance(node, DictOf) else node.fields
    if any(type(name) not in KEY_TYPES for name in names):
        raise ProtocolError("a dict has a key that is neither str, int, bytes, bool nor None")
    if len(names) != len(node.children) or len(set(names)) != len(names):
        raise ProtocolError(
            f"a {type(node).__name__} has {len(node.children)} children for the names {names[:9]}"
        )


def _check_ragged(node: RaggedOf) -> None:
    values, splits = node.children
    is_array = isinstance(values, Leaf) and values.kind == "array" and values.ndim >= 1
    if isinstance(values, Leaf) and not is_array and values.kind != "items":
        raise ProtocolError(
            f"a ragged tensor claims values of kind {values.kind} with {values.ndim} axes"
        )
    if (splits.kind, splits.ndim) != ("array", 1) or splits.dtype not in _SPLITS:
        raise ProtocolError(
            f"a ragged tensor claims row splits of dtype {splits.dtype!s:.80} with {splits.ndim} "
            "axes"
        )


def _leaf_dtype(leaf: Leaf) -> DType | None:
    if leaf.kind not in ("array", "scalar"):
        return None
    if not 0 <= leaf.ndim <= (MAX_NDIM if leaf.kind == "array" else 0):
        raise ProtocolError(f"a leaf of kind {leaf.kind} claims {leaf.ndim} axes")
    if leaf.kind == "array" and isinstance(leaf.dtype, str) and leaf.dtype in ("<U", ">U", "|S"):
        return None
    return dtypes.rebuild(leaf.dtype)


# ------------------------------------------------------------ putting together


def assemble(node: Node, columns: Iterator[Iterator[object]], count: int) -> Iterator[object]:
    """Compose ``count`` elements of a structure from an iterator per leaf; all loops
    run in C.

    >>> columns = iter([iter([1, 2]), iter([None, None])])
    >>> list(assemble(TupleOf((Leaf("int"), Leaf("none"))), columns, 2))
    [(1, None), (2, None)]
    """
    if isinstance(node, Leaf):
        return next(columns)
    children = [assemble(child, columns, count) for child in node.children]
    rows: Iterator[tuple[object, ...]] = (
        zip(*children, strict=False) if children else repeat((), count)
    )
    if isinstance(node, TupleOf):
        return rows
    if isinstance(node, DictOf):
        return _dicts(node.keys, rows)
    if isinstance(node, RaggedOf):
        return starmap(RaggedTensor.trusted, rows)
    cls = resolve_class(node)
    if cls is None:
        return _dicts(node.fields, rows)
    if node.form == "namedtuple":
        return map(tuple.__new__, repeat(cls), rows)
    return (instance_of(cls, node.fields, row) for row in rows)


def _dicts(keys: Sequence[Key], rows: Iterator[tuple[Any, ...]]) -> Iterator[object]:
    if len(keys) == 2:  # the usual case, in half the time
        one, other = keys
        return ({one: first, other: second} for first, second in rows)
    return map(dict, map(zip, repeat(keys), rows))


def resolve_class(node: RecordOf) -> type | None:
    """Return the class that a record names, if its module is already imported here and
    its fields agree; else None.

    A peer's message never imports a module or runs an attribute hook of a module or
    class.
    """
    found = look_up(node.module, node.qualname)
    return found if isinstance(found, type) and _fits(found, node) else None


def _fits(cls: type, node: RecordOf) -> bool:
    """Return True if an instance with the node's fields can be made and deleted without
    running code of the class.
    """
    try:
        # __del__ would run with values that a peer has set.
        if _has_attribute(cls, "__del__"):
            return False
        # Only a trial shows whether an instance can be made if bases are written in C.
        if node.form == "namedtuple":
            made: object = tuple.__new__(cls, node.fields)
            return _attribute(cls, "_fields") == node.fields and isinstance(made, tuple)
        if node.form == "attrs":
            if not fits_attrs(cls, node.fields):
                return False
        elif tuple(field.name for field in dataclasses.fields(cls)) != node.fields:
            return False
        if any(_has_setter(_attribute(cls, name)) for name in node.fields):
            return False
        return isinstance(instance_of(cls, node.fields, node.fields), cls)
    except Exception:  # a class that cannot be made this way is handed out as a dict
        return False


def _has_attribute(cls: type, name: str) -> bool:
    return any(name in base.__dict__ for base in cls.__mro__)


def _attribute(cls: type, name: str) -> object:
    """Return an attribute as written in the class, without calling any hook."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)


def _has_setter(attribute: object) -> bool:
    return hasattr(type(attribute), "__set__") and not isinstance(
        attribute, types.MemberDescriptorType
    )
