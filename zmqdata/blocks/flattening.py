"""Decomposition of elements: a slow path that inspects an element completely to find
its structure, and fast paths for elements like it.

The definition of a structure, and composition of elements, are in ``structures``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, Literal, TypeAlias

import numpy as np

from zmqdata.blocks import dtypes
from zmqdata.blocks.dtypes import DType
from zmqdata.blocks.items import packed_items
from zmqdata.blocks.objects import pickled
from zmqdata.blocks.structures import (
    KEY_TYPES,
    MAX_DEPTH,
    MAX_LEAVES,
    MAX_NDIM,
    PYTHON_KINDS,
    DictOf,
    Key,
    Leaf,
    Node,
    RaggedOf,
    RecordOf,
    Structure,
    TupleOf,
)
from zmqdata.elements.lists import array_of
from zmqdata.elements.nesting import field_names
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.tensors import as_stackable
from zmqdata.failures.names import plain_name

Columns: TypeAlias = "list[Sequence[Any]]"
Transpose: TypeAlias = Callable[[Sequence[Any]], "Columns | None"]


def describe_element(
    element: object, *, allow_objects: bool = True
) -> tuple[Structure, list[object]]:
    """Return the structure of an element and its leaves, with lists converted to arrays
    and objects pickled.

    Within a dataclass a list stays a list and is an object, since pipelines do not look
    into dataclasses either.

    Args:
        element: any element.
        allow_objects: True if leaves may be objects that must be pickled.

    Raises:
        TypeError: an object cannot be pickled or is not allowed, or the element is too
            large; the text names the place and the remedy.

    >>> describe_element({"x": 1, "y": (2.0, None)})[1]
    [1, 2.0, None]
    """
    description = _Description(allow_objects)
    node = description.node_of(element, "element", 0, False)
    leaves = description.leaves
    if len(leaves) > MAX_LEAVES:
        raise TypeError(
            f"element has {len(leaves)} leaves, at most {MAX_LEAVES} can be sent: stack them into "
            "arrays"
        )
    return Structure(node), leaves


class _Description:
    """A traversal of an element. ``leaves`` holds the leaves found so far, from left to
    right.
    """

    def __init__(self, allow_objects: bool) -> None:
        self.leaves: list[object] = []
        self._allow_objects = allow_objects

    def node_of(self, value: Any, path: str, depth: int, in_dataclass: bool) -> Node:
        """Return the structure of the part of the element at ``path``."""
        if depth > MAX_DEPTH:
            raise TypeError(
                f"element is nested deeper than {MAX_DEPTH} levels, or contains itself: flatten it "
                "in a map()"
            )
        if isinstance(value, dict) and all(map(_is_plain_key, value)):
            parts = [(item, f"{path}[{key!r}]") for key, item in value.items()]
            return DictOf(tuple(value), self._nodes_of(parts, depth, in_dataclass))
        if type(value) is tuple:
            parts = [(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return TupleOf(self._nodes_of(parts, depth, in_dataclass))
        names = _field_names(value)
        if names is not None:
            return self._record_of(value, names, path, depth, in_dataclass)
        flat = _leaf_of_array(value.flat_values) if type(value) is RaggedTensor else None
        if flat is not None:
            return self._ragged_of(value, *flat)
        leaf, plain = self._leaf_of(value, path, in_dataclass)
        self.leaves.append(plain)
        return leaf

    def _nodes_of(
        self, parts: Iterable[tuple[object, str]], depth: int, in_dataclass: bool
    ) -> tuple[Node, ...]:
        return tuple([self.node_of(part, path, depth + 1, in_dataclass) for part, path in parts])

    def _record_of(
        self, value: Any, names: tuple[str, ...], path: str, depth: int, in_dataclass: bool
    ) -> RecordOf:
        cls = type(value)
        form: Literal["namedtuple", "dataclass", "attrs"] = (
            "namedtuple"
            if isinstance(value, tuple)
            else "dataclass"
            if dataclasses.is_dataclass(value)
            else "attrs"
        )
        parts = [(_field(value, name, path), f"{path}.{name}") for name in names]
        children = self._nodes_of(parts, depth, in_dataclass or form == "dataclass")
        return RecordOf(form, plain_name(cls.__module__), cls.__qualname__, names, children)

    def _ragged_of(self, ragged: RaggedTensor, flat: Leaf, plain: object) -> RaggedOf:
        if isinstance(ragged.values, RaggedTensor):
            values: Leaf | RaggedOf = self._ragged_of(ragged.values, flat, plain)
        else:
            values = flat
            self.leaves.append(plain)
        splits, row_splits = _array_leaf(ragged.row_splits)
        self.leaves.append(row_splits)
        return RaggedOf((values, splits))

    def _leaf_of(self, value: Any, path: str, in_dataclass: bool) -> tuple[Leaf, object]:
        kind = PYTHON_KINDS.get(type(value))
        if kind is not None:
            return Leaf(kind), value
        array = value if in_dataclass else _as_array(value)
        if type(array) is np.ndarray or type(array) is np.memmap:
            found = _leaf_of_array(np.asarray(array))
            if found is not None:
                return found
        elif (
            isinstance(array, np.generic)
            and type(array) is array.dtype.type
            and dtypes.is_supported(array.dtype)
        ):
            return Leaf("scalar", dtypes.describe(array.dtype)), array
        return Leaf("object"), self._pickled(value, path)

    def _pickled(self, value: object, path: str) -> object:
        try:
            if not self._allow_objects:
                raise TypeError("files hold no Python objects, because reading them would run code")
            return pickled(value)
        except TypeError as error:
            what = f"of type {type(value).__module__}.{type(value).__qualname__}"
            if isinstance(value, np.ndarray):
                kind = "an array" if type(value) is np.ndarray else type(value).__qualname__
                what = f"{kind} of dtype {value.dtype!r}"
            to = "sent" if self._allow_objects else "stored"
            raise TypeError(
                f"{path} is {what}, which cannot be {to}: {error}. Convert it to a numpy array, "
                "str or bytes in a map()"
            ) from error


def _is_plain_key(key: object) -> bool:
    """Return True if msgpack preserves a key: text without lone surrogates, bytes,
    bool, None, or a 64-bit int.
    """
    if type(key) is str:
        return key.isascii() or not any("\ud800" <= character <= "\udfff" for character in key)
    return type(key) in KEY_TYPES and not (type(key) is int and not -(2**63) <= key < 2**63)


def _field_names(value: object) -> tuple[str, ...] | None:
    """Return the field names of a namedtuple, or of an instance of a dataclass or attrs
    class; None for any other value.
    """
    if isinstance(value, tuple):
        names = getattr(type(value), "_fields", None)
        return tuple(names) if isinstance(names, tuple) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return field_names(type(value))


def _field(value: object, name: str, path: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        raise TypeError(
            f"{path}.{name} is not set, so this {type(value).__name__} cannot be sent: set it"
        ) from None


def _is_plain_array(array: np.ndarray[Any, DType]) -> bool:
    """Return True if an array can be sent as its bytes: few enough axes, and no Python
    objects.
    """
    return array.ndim <= MAX_NDIM and (
        dtypes.is_flexible(array.dtype) or dtypes.is_supported(array.dtype)
    )


def _leaf_of_array(array: np.ndarray[Any, DType]) -> tuple[Leaf, object] | None:
    """Return the leaf of an array and what is sent of it, or None if it is pickled."""
    if _is_plain_array(array):
        return _array_leaf(array)
    items = packed_items(array)
    return None if items is None else (Leaf("items"), items)


def _array_leaf(array: np.ndarray[Any, DType]) -> tuple[Leaf, np.ndarray[Any, DType]]:
    if dtypes.is_flexible(array.dtype):
        if not array.dtype.itemsize:
            array = array.astype(array.dtype.kind + "1")
        return Leaf("array", dtypes.describe_flexible(array.dtype), array.ndim), array
    return Leaf("array", dtypes.describe(array.dtype), array.ndim), array


def _as_array(value: Any) -> object:
    return _array_of_list(value) if type(value) is list else as_stackable(value)


def _array_of_list(value: list[object]) -> object:
    """Return a list of equal numbers or texts as an array; return the list itself if
    numpy would change or pickle something.
    """
    try:
        array = array_of(value)
    except ValueError:
        return value
    return value if array.dtype.hasobject else array


def transposer(node: Node, example: object) -> Transpose:
    """Return a fast function from elements to their leaves by column. It returns None
    if the nesting of an element differs from that of ``example``.

    >>> transposer(TupleOf((Leaf("int"), Leaf("str"))), (1, "a"))([(1, "a"), (2, "b")])
    [(1, 2), ('a', 'b')]
    """
    if isinstance(node, Leaf):
        return lambda elements: [elements]
    level = _opener(node, example)
    if all(isinstance(child, Leaf) for child in node.children):
        return level
    below = [
        transposer(child, values[0])
        for child, values in zip(node.children, level([example]) or (), strict=True)
    ]

    def transpose(elements: Sequence[Any]) -> Columns | None:
        values = level(elements)
        if values is None:
            return None
        leaves: Columns = []
        for go_on, column in zip(below, values, strict=True):
            found = go_on(column)
            if found is None:
                return None
            leaves += found
        return leaves

    return transpose


def _opener(node: DictOf | TupleOf | RecordOf | RaggedOf, example: object) -> Transpose:
    """Return a function from elements to the values on the next level, by column. It
    returns None if keys, arity or class differ.
    """
    if isinstance(node, DictOf):
        return _dict_opener(node.keys)
    cls, arity = {type(example)}, {len(node.children)}
    if isinstance(node, TupleOf) or (isinstance(node, RecordOf) and node.form == "namedtuple"):

        def open_tuples(elements: Sequence[Any]) -> Columns | None:
            fit = set(map(type, elements)) == cls and set(map(len, elements)) == arity
            return [*zip(*elements, strict=True)] if fit else None

        return open_tuples
    fields = ("values", "row_splits") if isinstance(node, RaggedOf) else node.fields

    def open_objects(elements: Sequence[Any]) -> Columns | None:
        if set(map(type, elements)) != cls:
            return None
        try:
            return [[getattr(element, name) for element in elements] for name in fields]
        except AttributeError:
            return None

    return open_objects


def _dict_opener(keys: tuple[Key, ...]) -> Transpose:
    key_types = {tuple(map(type, keys))}
    has_only_texts = all(type(key) is str for key in keys)

    def open_dicts(elements: Sequence[Any]) -> Columns | None:
        kinds = set(map(type, elements))
        if not all(issubclass(kind, dict) for kind in kinds):
            return None
        # A single comparison of all keys in sequence suffices, since no key occurs
        # twice in a dict.
        if [*chain.from_iterable(elements)] != [*keys] * len(elements):
            return None
        # 1 == True, but they are different keys.
        if not has_only_texts and {tuple(map(type, element)) for element in elements} != key_types:
            return None
        if kinds == {dict}:
            return [[*map(dict.__getitem__, elements, repeat(key))] for key in keys]
        return [*zip(*[element.values() for element in elements], strict=True)]

    return open_dicts
