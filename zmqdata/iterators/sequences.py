"""Iterators over Python objects with a length, over iterables, and over random
numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zmqdata.blocks import copied
from zmqdata.elements.conversion import as_element
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import Context, failure, make_iterator, mixed_seed, subgroup
from zmqdata.iterators.callsites import call_site
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.permutation import Permutation
from zmqdata.iterators.sources import GeneratorIterator, IndexedIterator
from zmqdata.nodes.base import Node
from zmqdata.nodes.sequences import FromIterable, FromSource, Random

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


def shared_seed(node: Node, seed: int | None, varies: bool, context: Context) -> int:
    """Return the seed of a source whose splits are indices into its draws: all tasks of
    an iteration draw the same numbers.

    Args:
        node: the source, or the shuffle that permutes it.
        seed: seed of the user, which has precedence; None: the seed of the context and
            the node's place. What the node draws once follows from the program's.
        varies: True if each repetition draws anew.
        context: context of the node.
    """
    turn = (context.turn,) if varies else ()
    if seed is not None:
        return mixed_seed(seed, *turn)
    if node.kept_order is not None:
        return mixed_seed(context.fixed_seed, *context.kept_place(node))
    base = context.seed if context.shared_seed is None else context.shared_seed
    return mixed_seed(base, *context.path, *turn)


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
            self._shuffle(context)

    def _shuffle(self, context: Context) -> None:
        """Read in a permutation, which depends on that of a global shuffle behind the
        source.
        """
        count, node, then = len(self._sequence), self._node, self._order_of

        def order_of(repetition: int) -> Permutation:
            varies = node.reshuffle_each_iteration
            seed = shared_seed(node, node.seed, varies, context.repeated(repetition))
            return Permutation(
                count, seed if then is None else mixed_seed(seed, then(repetition).seed)
            )

        self._order_of = order_of
        if context.providers is None:
            self._order = order_of(context.repetition)

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
