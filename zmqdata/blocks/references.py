"""Blocks that never leave their process: the elements themselves, with their size for
credit. Nothing is encoded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import map_structure

MAX_ELEMENTS = 4096
MAX_DEPTH = 6
"""So many levels of attributes, and of what is in their lists, count."""
MOST_PARTS = 1_000
"""So many parts of an object are looked at: each element costs the look."""
_UNCHANGEABLE = frozenset({np.dtype(code).type for code in "?bhilqBHILQefdgFDG"}) | frozenset(
    {
        int,
        float,
        bool,
        complex,
        str,
        bytes,
        type(None),
        np.str_,
        np.bytes_,
        np.datetime64,
        np.timedelta64,
    }
)
KEPT_AS_THEY_ARE = _UNCHANGEABLE | {np.ndarray, RaggedTensor}
"""What ``detached`` gives back. Arrays are not copied: to whoever makes an element they
belong no more.
"""


class ReferencedBlock:
    """Elements as they were made; whoever takes them owns them.

    Args:
        elements: the elements.
        nbytes: about their bytes in memory.
        shared: whether several take them; each then gets arrays of its own.

    Attributes:
        count: number of elements.
        nbytes: about their bytes in memory.
        meta: nothing; an encoded block has its header there.
        frames: the block itself, in place of frames.
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
        """The elements in order, without the first ``skip``."""
        elements = iter(self._elements[skip:])
        return map(copied, elements) if self._shared else elements


class ReferenceBuilder:
    """Collects elements for one block, whatever they are. Its interface is that of
    ``BlockBuilder``.

    Args:
        shared: whether several will take them.

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
        """Append an element; False, and nothing is taken, when the block is full."""
        if len(self._elements) >= MAX_ELEMENTS:
            return False
        self.nbytes += guessed_size(element, self._seen)
        self._elements.append(element)
        return True

    def extend(self, elements: Sequence[object], full: int = 1 << 62) -> int:
        """Append the first of these elements; how many are taken is returned. As
        ``BlockBuilder.extend``.
        """
        count = 0
        for element in elements:
            if self.nbytes >= full or not self.add(element):
                break
            count += 1
        return count

    def describe(self, element: object) -> tuple[object]:
        """The element: there is nothing to know about it."""
        return (element,)

    describe_plain = describe

    def add_described(self, described: tuple[object]) -> bool:
        """As `add`."""
        return self.add(*described)

    def build(self, codec: object = None) -> ReferencedBlock:
        """The block of all elements collected; the builder is empty afterwards. Nothing
        is compressed.
        """
        if not self._elements:
            raise ValueError("a block without elements cannot be built: add() one first")
        block = ReferencedBlock(self._elements, self.nbytes, self._shared)
        self._elements, self.nbytes, self._seen = [], 0, set()
        return block


def copied_structure(element: Any) -> Any:
    """A copy of any structure: arrays and ragged tensors are copied, other leaves are
    passed on.
    """
    return map_structure(
        lambda leaf: leaf.copy() if isinstance(leaf, (np.ndarray, RaggedTensor)) else leaf, element
    )


def copied(element: Any, other: Callable[[Any], Any] = copied_structure) -> Any:
    """An element with arrays of its own.

    Args:
        element: the element.
        other: copies what is no array, dict, tuple, number or text.

    >>> kept = {"x": np.zeros(1)}
    >>> copied(kept)["x"] is kept["x"]
    False
    """
    kind = type(element)
    if kind in _UNCHANGEABLE:
        return element
    if kind is np.ndarray:
        return element.copy()
    if kind is dict:
        return {key: copied(part, other) for key, part in element.items()}
    if kind is tuple:
        return tuple([copied(part, other) for part in element])
    return other(element)


def detached(element: Any) -> Any:
    """An element with dicts, lists and tuples of its own: whoever made it may change
    its own for the next one.

    Raises:
        LookupError: there are other things in it, which may change.

    >>> reused = {"x": 1, "y": [2]}
    >>> kept = detached(reused)
    >>> reused["x"] = reused["y"][0] = 3
    >>> kept
    {'x': 1, 'y': [2]}
    """
    kind = type(element)
    if kind in KEPT_AS_THEY_ARE:
        return element
    if kind is dict:
        alone = KEPT_AS_THEY_ARE.issuperset(map(type, element.values()))
        return element.copy() if alone else {key: detached(part) for key, part in element.items()}
    if kind is tuple:
        alone = KEPT_AS_THEY_ARE.issuperset(map(type, element))
        return element if alone else tuple([detached(part) for part in element])
    if kind is list:
        return [detached(part) for part in element]
    if issubclass(kind, tuple) and hasattr(kind, "_make"):
        return kind._make(map(detached, element))
    raise LookupError(kind)


def guessed_size(element: object, seen: set[int] | None = None) -> int:
    """As ``size_of``, of anything: lists that contain themselves, and classes that
    raise when they are looked at.
    """
    try:
        return size_of(element, seen)
    except BaseException:  # the boundary to user code
        return 64


def size_of(element: object, seen: set[int] | None = None) -> int:
    """About the bytes of an element in memory, with what its objects refer to.

    What structures have counts exactly. What is in an object may be what all elements
    share, a vocabulary, say: that counts once, so many levels deep, and no more than so
    many parts of it are looked at, and count.

    Args:
        element: any element.
        seen: the ``id`` of what objects refer to and counted for another element, which
            lives as long; grows.

    >>> size_of({"x": np.zeros(100), "y": (1, None)}) >= 800
    True
    """
    if isinstance(element, np.ndarray):
        return element.nbytes
    if isinstance(element, dict):
        return sum([size_of(part, seen) for part in element.values()])
    if isinstance(element, (tuple, list, set, frozenset)):
        return sum([size_of(part, seen) for part in element])
    if isinstance(element, RaggedTensor):
        return _size_of_ragged(element)
    if type(element) in _UNCHANGEABLE:
        return sys.getsizeof(element, 64)
    return _size_inside(element, set() if seen is None else seen)


def _size_of_ragged(ragged: RaggedTensor) -> int:
    return size_of(ragged.values) + size_of(ragged.row_splits)


def _size_inside(element: object, seen: set[int]) -> int:
    """What an object adds that was not seen, with what it refers to: what is nearer to
    it is looked at first.
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
    nbytes = getattr(part, "nbytes", None)  # arrays, and tensors of other libraries
    return nbytes if isinstance(nbytes, int) else sys.getsizeof(part, 64)


def _parts(part: Any) -> Iterable[Any]:
    """What something refers to, as far as it may be large, or much."""
    if type(part) in KEPT_AS_THEY_ARE or isinstance(part, (type, ModuleType, FunctionType)):
        return ()
    if isinstance(getattr(part, "nbytes", None), int):
        return ()
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, (tuple, list, set, frozenset)):
        return part
    inside: Iterable[Any] = getattr(part, "__dict__", {}).values()
    if is_dataclass(part) and not inside:
        return [getattr(part, field.name) for field in fields(part)]  # of one with slots
    return inside
