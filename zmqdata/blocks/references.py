"""Blocks that never leave their process: they hold the elements themselves, with their
size for credit. Nothing is encoded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from zmqdata.elements.nesting import LEAF_TYPES, SCALAR_TYPES, map_structure
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.unpadded import size_of_texts
from zmqdata.peeking import peek

MAX_ELEMENTS = 4096
"""Limit of elements in a block."""
MAX_DEPTH = 6
"""Levels of attributes, and of their lists, that are inspected for the size of an
object.
"""
MOST_PARTS = 1_000
"""Limit of an object's parts that are inspected, since the inspection is done for each
element.
"""


class ReferencedBlock:
    """Elements as they were made. They belong to the receiver.

    Args:
        elements: the elements.
        nbytes: approximate size of the elements in memory.
        shared: True if several receivers take them; each then gets copies of the
            arrays.

    Attributes:
        count: number of elements.
        nbytes: approximate size of the elements in memory.
        meta: empty; the header in an encoded block.
        frames: the block itself.
    """

    def __init__(self, elements: list[Any], nbytes: int, shared: bool = False) -> None:
        self.count = len(elements)
        self.nbytes = nbytes
        self.meta = b""
        self._elements = elements
        self._shared = shared

    @property
    def frames(self) -> ReferencedBlock:
        return self

    def elements(self, skip: int = 0) -> Iterator[Any]:
        """Return the elements in order, without the first ``skip``."""
        elements = iter(self._elements[skip:])
        return map(copied, elements) if self._shared else elements


class ReferenceBuilder:
    """Collects elements of any kind into a block. Its interface is that of
    ``BlockBuilder``.

    Args:
        shared: True if several receivers will take the elements.

    >>> builder = ReferenceBuilder()
    >>> [builder.add(element) for element in ({"x": 1}, object)]
    [True, True]
    >>> list(builder.build().elements())
    [{'x': 1}, <class 'object'>]
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.nbytes = 0
        self._shared = shared
        self._elements: list[Any] = []
        self._seen: set[int] = set()

    @property
    def count(self) -> int:
        """Number of elements collected."""
        return len(self._elements)

    def add(self, element: object, *, describe: bool = True) -> bool:
        """Append an element; return False without taking it if the block is full."""
        if len(self._elements) >= MAX_ELEMENTS:
            return False
        self.nbytes += guessed_size(element, self._seen)
        self._elements.append(element)
        return True

    def extend(self, elements: Sequence[object], full: int = 1 << 62) -> int:
        """Append leading elements and return their number, as ``BlockBuilder.extend``
        does.
        """
        count = 0
        for element in elements:
            if self.nbytes >= full or not self.add(element):
                break
            count += 1
        return count

    def describe(self, element: object) -> tuple[object]:
        """Return the element in a tuple; it needs no description."""
        return (element,)

    describe_plain = describe

    def add_described(self, described: tuple[object]) -> bool:
        """Append an element, as `add` does."""
        return self.add(*described)

    def build(self, codec: object = None) -> ReferencedBlock:
        """Return the block of all collected elements, uncompressed. The builder is
        empty afterwards.
        """
        if not self._elements:
            raise ValueError("a block without elements cannot be built: add() one first")
        block = ReferencedBlock(self._elements, self.nbytes, self._shared)
        self._elements, self.nbytes, self._seen = [], 0, set()
        return block


def copied_structure(element: Any) -> Any:
    """Copy any structure: arrays and ragged tensors are copied, other leaves are
    shared.
    """
    return map_structure(
        lambda leaf: leaf.copy() if isinstance(leaf, (np.ndarray, RaggedTensor)) else leaf, element
    )


def copied(element: Any, other: Callable[[Any], Any] = copied_structure) -> Any:
    """Return an element with copies of its arrays.

    Args:
        element: the element.
        other: copies values other than arrays, dicts, tuples, numbers and text.

    >>> kept = {"x": np.zeros(1)}
    >>> copied(kept)["x"] is kept["x"]
    False
    """
    kind = type(element)
    if kind in SCALAR_TYPES:
        return element
    if kind is np.ndarray:
        return element.copy()
    if kind is dict:
        return {key: copied(part, other) for key, part in element.items()}
    if kind is tuple:
        return tuple([copied(part, other) for part in element])
    return other(element)


def detached(element: Any) -> Any:
    """Return an element with copies of its dicts, lists and tuples, so that its maker
    may reuse the originals.

    Raises:
        LookupError: the element holds other mutable values.

    >>> reused = {"x": 1, "y": [2]}
    >>> kept = detached(reused)
    >>> reused["x"] = reused["y"][0] = 3
    >>> kept
    {'x': 1, 'y': [2]}
    """
    kind = type(element)
    if kind in LEAF_TYPES:
        return element
    if kind is dict:
        alone = LEAF_TYPES.issuperset(map(type, element.values()))
        return element.copy() if alone else {key: detached(part) for key, part in element.items()}
    if kind is tuple:
        alone = LEAF_TYPES.issuperset(map(type, element))
        return element if alone else tuple([detached(part) for part in element])
    if kind is list:
        return [detached(part) for part in element]
    if issubclass(kind, tuple) and hasattr(kind, "_make"):
        return kind._make(map(detached, element))
    raise LookupError(kind)


def guessed_size(element: object, seen: set[int] | None = None) -> int:
    """Return the size of any value, as ``size_of``, and a default for lists that
    contain themselves and classes that raise.
    """
    try:
        return size_of(element, seen)
    except BaseException:  # the boundary to user code
        return 64


def size_of(element: object, seen: set[int] | None = None) -> int:
    """Return the approximate size of an element in memory, with what its objects refer
    to.

    Arrays and other parts of structures count exactly. An object may refer to values
    that all elements share, such as a vocabulary: they count once. Only a limited
    number of levels and parts is inspected and counted.

    Args:
        element: any element.
        seen: ids of the values already counted for other elements, which live as long;
            updated.

    >>> size_of({"x": np.zeros(100), "y": (1, None)}) >= 800
    True
    """
    if isinstance(element, np.ndarray):
        return element.nbytes + size_of_texts(element)
    if isinstance(element, dict):
        return sum([size_of(part, seen) for part in element.values()])
    if isinstance(element, (tuple, list, set, frozenset)):
        return sum([size_of(part, seen) for part in element])
    if isinstance(element, RaggedTensor):
        return _size_of_ragged(element)
    if type(element) in SCALAR_TYPES:
        return sys.getsizeof(element, 64)
    return _size_inside(element, set() if seen is None else seen)


def _size_of_ragged(ragged: RaggedTensor) -> int:
    return size_of(ragged.values) + size_of(ragged.row_splits)


def _size_inside(element: object, seen: set[int]) -> int:
    """Return the size of an object and of what it refers to, without values already
    seen; breadth first.
    """
    size, looked = 0, 0
    level: list[Any] = [element]
    for _ in range(MAX_DEPTH):
        inside: list[Any] = []
        for part in level:
            if id(part) not in seen:
                seen.add(id(part))
                size += _size_of_part(part)
                inside += islice(_parts(part), MOST_PARTS - looked - len(inside))
        looked += len(inside)
        level = inside
    return size


def _size_of_part(part: Any) -> int:
    if isinstance(part, RaggedTensor):
        return _size_of_ragged(part)
    nbytes = peek(part, "nbytes")  # arrays, and tensors of other libraries
    return nbytes if isinstance(nbytes, int) else sys.getsizeof(part, 64)


def _parts(part: Any) -> Iterable[Any]:
    """Return the values that an object refers to, if they may be large or many."""
    if type(part) in LEAF_TYPES or isinstance(part, (type, ModuleType, FunctionType)):
        return ()
    if isinstance(peek(part, "nbytes"), int):
        return ()
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, (tuple, list, set, frozenset)):
        return part
    inside: Iterable[Any] = peek(part, "__dict__", {}).values()
    if is_dataclass(part) and not inside:
        return [getattr(part, field.name) for field in fields(part)]  # a dataclass with slots
    return inside
