"""What an element looks like: its nesting, its keys, and the kind of each leaf; taking elements apart and together.

A structure is plain data that travels in the header of a block. The nesting is written out here rather than taken
from optree: the order of dict keys is kept, None is a leaf, a list is an array, and a treespec can only be pickled.
Bytes of leaves do not belong here (``columns``), nor does anything that knows of frames (``codec``).
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat, starmap
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from zmqdata.blocks import dtypes
from zmqdata.blocks.dtypes import DType, DTypeSpec
from zmqdata.errors import ProtocolError
from zmqdata.ragged import RaggedTensor
from zmqdata.shippednames import plain_name

MAX_DEPTH = 64
MAX_LEAVES = 4096
MAX_NDIM = 30
"""numpy before 2.0 knows 32 axes; a block needs one for its elements, ragged text one for its characters."""

Key: TypeAlias = str | int | bytes | bool | None
Flatten: TypeAlias = Callable[[object], "Sequence[object] | None"]
Kind: TypeAlias = Literal[
    "array", "scalar", "np.str", "np.bytes", "int", "float", "bool", "complex", "str", "bytes", "none"
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
_KEY_TYPES = (str, int, bytes, bool, type(None))


class Leaf(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """A place for one value: its kind, and for numpy values the dtype (text without its width) and number of axes."""

    kind: Kind
    dtype: DTypeSpec = ""
    ndim: int = 0


class DictOf(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """A dict with these keys, in this order."""

    keys: tuple[Any, ...]  # of `Key`: msgspec takes no union of str and bytes, so `_check_names` looks
    children: tuple[Leaf | DictOf | TupleOf | RecordOf | RaggedOf, ...]


class TupleOf(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """A plain tuple."""

    children: tuple[Leaf | DictOf | TupleOf | RecordOf | RaggedOf, ...]


class RecordOf(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A namedtuple or an instance of a dataclass, by the name of its class and its fields."""

    form: Literal["namedtuple", "dataclass"]
    module: str
    qualname: str
    fields: tuple[str, ...]
    children: tuple[Leaf | DictOf | TupleOf | RecordOf | RaggedOf, ...]


class RaggedOf(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """A ragged tensor: its values, which are an array or ragged in turn, and its row splits."""

    children: tuple[Leaf | RaggedOf, Leaf]


Node: TypeAlias = Leaf | DictOf | TupleOf | RecordOf | RaggedOf


class Structure:
    """The checked structure of the elements of one block; two are equal when their encodings are.

    Attributes:
        node: the nesting, as it travels.
        leaves: the leaves in order, one column of a block each.
        dtypes: for each leaf its dtype, or None where the leaf has none or its width is told by the column.
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


def _checked_leaves(root: Node) -> Iterator[Leaf]:
    """The leaves from left to right; refuses what `describe_element` would never make."""
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
    if any(type(name) not in _KEY_TYPES for name in names):
        raise ProtocolError("a dict has a key that is neither str, int, bytes, bool nor None")
    if len(names) != len(node.children) or len(set(names)) != len(names):
        raise ProtocolError(f"a {type(node).__name__} has {len(node.children)} children for the names {names[:9]}")


def _check_ragged(node: RaggedOf) -> None:
    values, splits = node.children
    if isinstance(values, Leaf) and (values.kind != "array" or values.ndim < 1):
        raise ProtocolError(f"a ragged tensor claims values of kind {values.kind} with {values.ndim} axes")
    if (splits.kind, splits.ndim) != ("array", 1) or splits.dtype not in _SPLITS:
        raise ProtocolError(f"a ragged tensor claims row splits of dtype {splits.dtype!s:.80} with {splits.ndim} axes")


def _leaf_dtype(leaf: Leaf) -> DType | None:
    if leaf.kind not in ("array", "scalar"):
        return None
    if not 0 <= leaf.ndim <= (MAX_NDIM if leaf.kind == "array" else 0):
        raise ProtocolError(f"a leaf of kind {leaf.kind} claims {leaf.ndim} axes")
    if leaf.kind == "array" and isinstance(leaf.dtype, str) and leaf.dtype in ("<U", ">U", "|S"):
        return None
    return dtypes.rebuild(leaf.dtype)


# ---------------------------------------------------------------- taking apart


def describe_element(element: object) -> tuple[Structure, list[object]]:
    """The structure of an element and its leaves, lists made arrays.

    Raises:
        TypeError: a leaf or key is of a kind that does not travel; the text names its place and the remedy.

    >>> describe_element({"x": 1, "y": (2.0, None)})[1]
    [1, 2.0, None]
    """
    leaves: list[object] = []
    node = _describe(element, "element", 0, leaves)
    if len(leaves) > MAX_LEAVES:
        raise TypeError(f"element has {len(leaves)} leaves, at most {MAX_LEAVES} may travel: stack them into arrays")
    try:
        return Structure(node), leaves
    except UnicodeEncodeError as error:
        raise TypeError(f"a key or field name of element cannot be written as UTF-8 ({error}): rename it") from None


def _describe(value: Any, path: str, depth: int, leaves: list[object]) -> Node:
    if depth > MAX_DEPTH:
        raise TypeError(f"element is nested deeper than {MAX_DEPTH} levels, or contains itself: flatten it in a map()")
    if isinstance(value, dict):
        keys = tuple(_checked_key(key, path) for key in value)
        parts = [_describe(item, f"{path}[{key!r}]", depth + 1, leaves) for key, item in value.items()]
        return DictOf(keys, tuple(parts))
    if type(value) is tuple:
        return TupleOf(tuple(_describe(item, f"{path}[{i}]", depth + 1, leaves) for i, item in enumerate(value)))
    names = _field_names(value)
    if names is not None:
        cls = type(value)
        form: Literal["namedtuple", "dataclass"] = "namedtuple" if isinstance(value, tuple) else "dataclass"
        parts = [_describe(_field(value, name, path), f"{path}.{name}", depth + 1, leaves) for name in names]
        return RecordOf(form, plain_name(cls.__module__), cls.__qualname__, names, tuple(parts))
    if type(value) is RaggedTensor:
        return _describe_ragged(value, path, depth, leaves)
    leaf, plain = _describe_leaf(value, path)
    leaves.append(plain)
    return leaf


def _describe_ragged(ragged: RaggedTensor, path: str, depth: int, leaves: list[object]) -> RaggedOf:
    values = _describe(ragged.values, f"{path}.values", depth + 1, leaves)
    splits = _describe(ragged.row_splits, f"{path}.row_splits", depth + 1, leaves)
    assert isinstance(values, (Leaf, RaggedOf))
    assert isinstance(splits, Leaf)
    return RaggedOf((values, splits))


def _checked_key(key: object, path: str) -> Key:
    if type(key) not in _KEY_TYPES or (isinstance(key, int) and not -(2**63) <= key < 2**63):
        raise TypeError(
            f"{path} has the key {key!r} of type {type(key).__name__}: keys that travel are str, bytes, bool, None and "
            "int of 64 bits. Rename it in a map()"
        )
    return key  # type: ignore[return-value]


def _field_names(value: object) -> tuple[str, ...] | None:
    """The fields of a namedtuple or dataclass instance; None for anything else."""
    if isinstance(value, tuple):
        names = getattr(type(value), "_fields", None)
        return tuple(names) if isinstance(names, tuple) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return None


def _field(value: object, name: str, path: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        raise TypeError(f"{path}.{name} is not set, so this {type(value).__name__} cannot travel: set it") from None


def _describe_leaf(value: Any, path: str) -> tuple[Leaf, object]:
    kind = PYTHON_KINDS.get(type(value))
    if kind is not None:
        return Leaf(kind), value
    if isinstance(value, list):
        value = _array_of_list(value, path)
    if type(value) is np.ndarray or type(value) is np.memmap:
        return _describe_array(np.asarray(value), path)
    if isinstance(value, np.generic) and type(value) is value.dtype.type and dtypes.is_supported(value.dtype):
        return Leaf("scalar", dtypes.describe(value.dtype)), value
    raise _unsupported(path, f"of type {type(value).__module__}.{type(value).__qualname__}")


def _describe_array(array: np.ndarray[Any, DType], path: str) -> tuple[Leaf, object]:
    if array.ndim > MAX_NDIM:
        raise TypeError(f"{path} is an array with {array.ndim} axes, at most {MAX_NDIM} may travel: reshape it")
    if dtypes.is_flexible(array.dtype):
        if not array.dtype.itemsize:
            array = array.astype(array.dtype.kind + "1")
        return Leaf("array", dtypes.describe_flexible(array.dtype), array.ndim), array
    if not dtypes.is_supported(array.dtype):
        raise _unsupported(path, f"an array of dtype {array.dtype!r}")
    return Leaf("array", dtypes.describe(array.dtype), array.ndim), array


def _array_of_list(value: list[object], path: str) -> np.ndarray[Any, DType]:
    """A list of equal numbers or texts as numpy sees it; TypeError where numpy would guess or lose something."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise _unsupported(path, "a list whose items differ in shape") from None
    # numpy turns [1, "a"] into text and cuts NULs off the end of bytes: only what comes back equal is the same list.
    if array.dtype.hasobject or (dtypes.is_flexible(array.dtype) and array.tolist() != value):
        raise _unsupported(path, "a list that is not one array of numbers or of text")
    return array


def _unsupported(path: str, what: str) -> TypeError:
    return TypeError(
        f"{path} is {what}, which does not travel: leaves are numpy arrays and scalars without Python objects, int, "
        "float, bool, complex, str, bytes and None; objects over the wire are not supported in this version. Convert "
        "it to a numpy array, str or bytes in a map()"
    )


def flattener(node: Node, example: object) -> Flatten:
    """A fast function from an element to its leaves, or to None when its nesting is not that of ``example``."""
    if isinstance(node, Leaf):
        return lambda element: (element,)
    if isinstance(node, TupleOf) and all(isinstance(child, Leaf) for child in node.children):
        arity = len(node.children)
        return lambda element: element if type(element) is tuple and len(element) == arity else None
    parts = _opener(node, example)
    if all(isinstance(child, Leaf) for child in node.children):
        return parts
    inner = [flattener(*pair) for pair in zip(node.children, parts(example) or (), strict=True)]

    def flatten(element: object) -> Sequence[object] | None:
        values = parts(element)
        if values is None:
            return None
        leaves: list[object] = []
        for flatten_child, value in zip(inner, values, strict=True):
            found = flatten_child(value)
            if found is None:
                return None
            leaves.extend(found)
        return leaves

    return flatten


def _opener(node: DictOf | TupleOf | RecordOf | RaggedOf, example: object) -> Flatten:
    """A function from an element to the values one level below, or None when keys, arity or class differ."""
    if isinstance(node, DictOf):
        return _dict_opener(node.keys)
    if isinstance(node, RaggedOf):
        return lambda element: (element.values, element.row_splits) if type(element) is RaggedTensor else None
    cls = type(example)
    if isinstance(node, TupleOf) or node.form == "namedtuple":
        arity = len(node.children)
        return lambda element: element if type(element) is cls and len(element) == arity else None  # type: ignore[arg-type,return-value]
    fields = node.fields

    def open_dataclass(element: object) -> Sequence[object] | None:
        if type(element) is not cls:
            return None
        try:
            return [getattr(element, name) for name in fields]
        except AttributeError:
            return None

    return open_dataclass


def _dict_opener(keys: tuple[Key, ...]) -> Flatten:
    if all(type(key) is str for key in keys):
        return lambda element: tuple(element.values()) if isinstance(element, dict) and tuple(element) == keys else None
    key_types = [type(key) for key in keys]  # 1 == True, but they are not the same key

    def open_dict(element: object) -> Sequence[object] | None:
        if isinstance(element, dict) and tuple(element) == keys and [type(key) for key in element] == key_types:
            return tuple(element.values())
        return None

    return open_dict


# ------------------------------------------------------------ putting together


def assemble(node: Node, columns: Iterator[Iterator[object]], count: int) -> Iterator[object]:
    """``count`` elements of this structure out of one iterator per leaf; all the looping is done in C.

    >>> list(assemble(TupleOf((Leaf("int"), Leaf("none"))), iter([iter([1, 2]), iter([None, None])]), 2))
    [(1, None), (2, None)]
    """
    if isinstance(node, Leaf):
        return next(columns)
    children = [assemble(child, columns, count) for child in node.children]
    rows: Iterator[tuple[object, ...]] = zip(*children, strict=False) if children else repeat((), count)
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
    return (_instance(cls, node.fields, row) for row in rows)


def _dicts(keys: Sequence[Key], rows: Iterator[tuple[object, ...]]) -> Iterator[object]:
    return map(dict, map(zip, repeat(keys), rows))


def _instance(cls: type, fields: Sequence[str], values: Sequence[object]) -> object:
    """An instance with these fields set; no code of the class runs, so a peer cannot make us run any."""
    instance: object = object.__new__(cls)
    for name, value in zip(fields, values, strict=True):
        object.__setattr__(instance, name, value)
    return instance


def resolve_class(node: RecordOf) -> type | None:
    """The class that a record names, if its module is imported here already and its fields agree; else None.

    Nothing is imported, and no attribute hook of a module or class runs, on a peer's word.
    """
    found: object = sys.modules.get(node.module)
    if not isinstance(found, types.ModuleType):
        return None
    for name in node.qualname.split("."):
        try:
            found = object.__getattribute__(found, "__dict__").get(name)
        except AttributeError:
            return None
    return found if isinstance(found, type) and _fits(found, node) else None


def _fits(cls: type, node: RecordOf) -> bool:
    """Whether an instance of the class with the node's fields can be made without running code of the class."""
    try:
        if node.form == "namedtuple":
            made: object = tuple.__new__(cls, node.fields)
            return _attribute(cls, "_fields") == node.fields and isinstance(made, tuple)
        if tuple(field.name for field in dataclasses.fields(cls)) != node.fields:
            return False
        if any(_has_setter(_attribute(cls, name)) for name in node.fields):
            return False
        return isinstance(_instance(cls, node.fields, node.fields), cls)
    except Exception:  # a class that cannot be made this way, for whatever reason, is handed out as a dict
        return False


def _attribute(cls: type, name: str) -> object:
    """The attribute as written in the class, without calling any hook."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)


def _has_setter(attribute: object) -> bool:
    return hasattr(type(attribute), "__set__") and not isinstance(attribute, types.MemberDescriptorType)
