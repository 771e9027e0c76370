"""Sources of Python objects with a length, of iterables, of elements that an iterator
holds, and of random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from zmqdata.blocks import copied
from zmqdata.elements.conversion import as_element
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    TensorSpec,
    merge_specs,
    spec_of,
    spec_of_alike,
)
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.callsites import call_site
from zmqdata.iterators.context import Context, Name, subgroup
from zmqdata.iterators.draws import shared_seed
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.indexed import IndexedIterator
from zmqdata.iterators.random_access import ANEW, element_at, from_place, name_at, program, refusal
from zmqdata.nodes.base import AT_ITS_PLACE, ByIdentity, Infer, Node, Ordinal, Unary, in_label
from zmqdata.operations.sources import FromGenerator, GeneratorIterator
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Random(Node):
    """Yields random integers below 2**32, without end. A split is an index, so no two
    workers draw the same number.
    """

    seed: int | None = field(
        default=None, metadata=in_label(lambda seed: "" if seed is None else f"seed={seed}")
    )
    """Seed of the user; None: that of the context."""
    rerandomize_each_iteration: bool = False
    """True to draw anew in each repetition."""
    operation: ClassVar[str] = "random"
    cardinality: ClassVar[int] = INFINITE_CARDINALITY
    restoring: ClassVar[str] = AT_ITS_PLACE

    split_source: ClassVar[SplitSource] = IndexSplits(None)

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class FromSource(ByIdentity, Node):
    """Yields ``sequence[i]`` for each i below its length, in order or in a
    permutation.
    """

    sequence: Any = field(repr=False)
    """Object with a length, indexed by integers."""
    shuffle: bool = False
    """True to yield in a permutation."""
    seed: int | None = None
    """Seed of the permutation; None: that of the context."""
    reshuffle_each_iteration: bool = True
    """True to permute anew in each repetition."""
    ordinal: Ordinal = field(default_factory=Ordinal, compare=False, repr=False)
    """Number of its order among those of the program, if it is drawn once."""
    operation: ClassVar[str] = "from_source"
    is_indexed: ClassVar[bool] = True
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def kept_order(self) -> Ordinal | None:
        is_kept = self.shuffle and self.seed is None and not self.reshuffle_each_iteration
        return self.ordinal if is_kept else None

    @property
    def is_lasting(self) -> bool:
        return self.shuffle and not self.reshuffle_each_iteration

    @property
    def argument(self) -> str:
        return type(self.sequence).__name__ + (", shuffle" if self.shuffle else "")

    @property
    def cardinality(self) -> int:
        return len(self.sequence)


@dataclass(frozen=True, kw_only=True, eq=False)
class FromList(FromSource):
    """Yields the elements of a list."""

    elements_spec: Any
    """Spec of the elements, found when the list was checked."""
    operation: ClassVar[str] = "from_list"

    @property
    def argument(self) -> str:
        return f"{len(self.sequence)} elements"

    def spec(self, infer: Infer) -> Any:
        return self.elements_spec


@dataclass(frozen=True)
class Reiterated:
    """Callable that begins anew with an iterable on each call."""

    iterable: Iterable[Any]
    """The iterable."""

    def __call__(self) -> Iterable[Any]:
        return iter(self.iterable)

    @property
    def __name__(self) -> str:
        return type(self.iterable).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class FromIterable(ByIdentity, FromGenerator):
    """Yields the elements of an iterable, each time from its beginning."""

    operation: ClassVar[str] = "from_iterable"
    spec_option: ClassVar[str] = ""

    @property
    def cardinality(self) -> int:
        iterable = self.generator.iterable if isinstance(self.generator, Reiterated) else None
        return len(iterable) if isinstance(iterable, Sized) else UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Elements(ByIdentity, Node):
    """Source of the datasets that window and group_by_window make: elements held by an
    iterator.
    """

    elements: tuple[Any, ...] = field(repr=False, metadata=in_label(lambda held: str(len(held))))
    """The elements."""
    empty_spec: Any = None
    """Spec of the dataset if it has no elements; None: unknown."""
    operation: ClassVar[str] = "elements"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def cardinality(self) -> int:
        return len(self.elements)

    def spec(self, infer: Infer) -> Any:
        if not self.elements:
            return self.empty_spec
        return spec_of_alike(self.elements) or reduce(merge_specs, map(spec_of, self.elements))


# Numbers made at a time; they depend only on the seed and the number of the group.
_GROUP = 1024


@make_iterator.register(Random)
class RandomIterator(IndexedIterator):
    """Yields random integers. Number ``i`` depends only on the seed and ``i``, so
    states and splits are indices.
    """

    def __init__(self, node: Random, context: Context) -> None:
        super().__init__(context, 2**62)
        self._node, self._context = node, context
        self._seed = self._seed_of(context.repetition)
        self._made = -1  # number of the group that was made
        self._numbers: list[np.int64] = []

    def _seed_of(self, repetition: int) -> int:
        node, context = self._node, self._context.repeated(repetition)
        varies = node.rerandomize_each_iteration
        seed = shared_seed(node, node.seed, varies, context)
        is_copy = context.copy and node.seed is not None
        return subgroup(seed, context.copy) if is_copy else seed

    def rewind(self, repetition: int) -> bool:
        seed = self._seed_of(repetition)
        if seed != self._seed:
            self._seed, self._made = seed, -1
        return self._to_beginning(repetition)

    def __next__(self) -> np.int64:
        self._strand.place = self._own_place
        index = self._next
        while index >= self._stop:
            self._advance()
            index = self._next
        group, offset = divmod(index, _GROUP)
        if group != self._made:
            raw = np.random.PCG64([self._seed, group]).random_raw(_GROUP)
            self._numbers, self._made = list((raw >> np.uint64(32)).astype(np.int64)), group
        self._next = index + self._stride
        return self._numbers[offset]


@make_iterator.register(FromSource)
class SequenceIterator(IndexedIterator):
    """Yields ``sequence[i]``, with arrays copied, because the sequence may keep them.
    Splits are ranges of indices.

    With shuffle, a permutation maps positions to indices. It is the same for all tasks
    that read parts of the sequence.
    """

    def __init__(self, node: FromSource, context: Context) -> None:
        count = len(node.sequence)
        super().__init__(context, count)
        self._node, self._context = node, context
        self._owned = Owner(node, context).owned
        self._sequence = node.sequence
        self._site = call_site(node, context)
        self._seed_for = context.seeder(node)
        if node.shuffle:
            self._permute(node, context, count)

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        site = self._site
        while True:
            index = self._next
            while index >= self._stop:
                self._advance()
                index = self._next
            self._next = index + self._stride
            if site is None:
                return self._item(index)
            if index not in site.special or not site.leaves_out(index, self.current_split()):
                return site.call(index, self._item, index)

    def rewind(self, repetition: int) -> bool:
        if self._site is not None:
            return False
        if self._order_of is not None and self._provider is None:
            self._order = self._order_of(repetition)
        return self._to_beginning(repetition)

    def _item(self, index: int) -> Any:
        if self._seed_for is not None:
            self._seed_for(index)
        try:
            place = index if self._order is None else self._order[index]
            return self._owned(self._sequence[place])
        except FAILURES as error:
            # Includes IndexError and StopIteration: the length promised an element.
            raise failure(self._node, error) from error


@make_iterator.register(FromIterable)
class IterableIterator(GeneratorIterator):
    """Runs an iterable once, as one split, with arrays copied. Restoring runs it again
    up to its position.
    """

    def __init__(self, node: FromIterable, context: Context) -> None:
        super().__init__(node, context)
        self._owned = Owner(node, context).owned

    def __next__(self) -> Any:
        value = self._pull()
        try:
            return self._owned(value)
        except FAILURES as error:
            raise failure(self._node, error) from error


class Owner:
    """Makes elements of what a source holds: they share no array with it, and tensors
    and lists are arrays.

    Args:
        node: the source.
        context: its context.

    >>> Owner(FromSource(sequence=[]), Context()).owned(([1, 2], 3))
    (array([1, 2]), 3)
    """

    def __init__(self, node: Node, context: Context) -> None:
        self._maker = ElementMaker(node, context)
        self._empties: list[Any] = []

    def owned(self, value: Any) -> Any:
        """Return an element.

        Raises:
            ValueError: a list cannot become an array without a change of its values.
            TypeError: a tensor cannot become an array.
        """
        if type(value) is np.ndarray:
            return value.copy()
        try:
            element = copied(value, self._converted)
        except (TypeError, ValueError):
            as_element(value)  # raises the error with the place in the whole element
            raise
        if not self._empties and not self._maker.is_open:
            return element
        self._empties.clear()
        return self._maker.retyped(element)

    def _converted(self, part: Any) -> Any:
        return map_structure(_owned_leaf, as_element(part, self._empties))


def _owned_leaf(leaf: Any) -> Any:
    if isinstance(leaf, (RaggedTensor, np.ma.MaskedArray)):
        return leaf.copy()
    return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf


@make_iterator.register(Elements)
class ElementsIterator(IndexedIterator):
    """Yields copies of given elements: a delivered element belongs to its receiver."""

    def __init__(self, node: Elements, context: Context) -> None:
        super().__init__(context, len(node.elements))
        self._elements = node.elements

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        (index,) = self._next_range(1)
        return copied(self._elements[index])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fetched(Elements):
    """Source of some elements of another node, in place of that node."""

    original: Node
    """Node that the elements came from."""

    def spec(self, infer: Infer) -> Any:
        return infer(self.original)


def run_on(node: Unary, elements: list[Any], state: Any = None, number: int = 0) -> Any:
    """Run a node on elements of its input, from ``state`` on, and return result
    ``number``.
    """
    source = _Fetched(elements=tuple(elements), original=node.input, site=node.site)
    iterator = make_iterator(replace(node, inputs=(source,)), Context())
    if state is not None:
        iterator.restore(state)
    return next(islice(iterator, number, None))


@element_at.register
def _(node: FromSource, index: int) -> Any:
    if node.shuffle and node.reshuffle_each_iteration:
        raise refusal(node, index, ANEW)
    return from_place(node, index)


@element_at.register
def _(node: Random, index: int) -> Any:
    if node.seed is None or node.rerandomize_each_iteration:
        raise refusal(
            node,
            index,
            ", as each iteration draws anew: give it a seed, and rerandomize_each_iteration=False",
        )
    return from_place(node, index)


@element_at.register
def _(node: Elements, index: int) -> Any:
    return copied(node.elements[index])


@name_at.register
def _(node: FromSource, index: int) -> Name:
    iterator = make_iterator(node, program.get())
    iterator.restore(index + 1)
    namer = iterator.namer()
    return (namer() if namer is not None else None) or (0, index)
