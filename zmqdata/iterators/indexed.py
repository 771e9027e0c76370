"""Base of the sources whose splits are indices."""

from __future__ import annotations

import operator
from abc import abstractmethod
from typing import Any

from zmqdata.iterators.base import ElementIterator
from zmqdata.iterators.calling import PassedOver
from zmqdata.iterators.context import Context, Name, Namer, mixed_seed, subgroup
from zmqdata.iterators.draws import shared_seed
from zmqdata.iterators.permutation import LaterPart, Order, Permutation


def place(state: Any) -> int:
    """Return the index that a state of a source holds: the number of indices before it.

    Raises:
        TypeError, ValueError: the state is not such an index.

    >>> place(3)
    3
    """
    if (number := operator.index(state)) < 0:
        raise ValueError(f"The state of a source must not be negative, got {number}")
    return number


class IndexedIterator(ElementIterator):
    """Base of the sources whose splits are indices: all of them, or the ranges that a
    provider assigns.

    A subclass reads ``_next`` while it is below ``_stop``, and otherwise calls
    ``_advance``. Consecutive indices differ by ``_stride``. With ``_order``, an index
    is the place of an element in that order.
    """

    _is_within = False  # True if ``_next`` is being read, False if it comes next
    # Values of a new iterator, which is made for each element of some pipelines.
    _ledger: Any = 0  # the provider's state before the current range
    _first = _next = 0
    _stride = 1
    _names: tuple[str, ...] = ()
    _order: Order | None = None
    _named_in: int | None = None  # group of names; None: not computed yet

    def __init__(self, context: Context, count: int) -> None:
        self._publish_in(context)
        self._provider = None if context.providers is None else context.provider()
        self._stop = count if self._provider is None else 0
        self._repetition = self._expected = context.repetition
        self._named_from = context
        self._order_of = context.order
        self._first_place = context.first

    def _permute(self, node: Any, context: Context, count: int) -> None:
        """Read in a permutation, which depends on that of a global shuffle behind the
        source, and is the same for all tasks that read parts of the source.
        """
        then = self._order_of

        def order_of(repetition: int) -> Permutation:
            varies = node.reshuffle_each_iteration
            seed = shared_seed(node, node.seed, varies, context.repeated(repetition))
            return Permutation(
                count, seed if then is None else mixed_seed(seed, then(repetition).seed)
            )

        self._order_of = order_of
        if context.providers is None:
            self._order = order_of(context.repetition)

    def _advance(self) -> None:
        """Go to the next range of indices, or raise StopIteration. Only a provider has
        more than one range.
        """
        if self._provider is None:
            raise StopIteration
        ledger = self._provider.state()
        split = self._provider.next_split()
        if split is None:
            raise StopIteration
        if self._order_of is not None and (
            self._order is None or split.repetition != self._repetition
        ):
            # Of the split's repetition, not the context's: under zip and repeat, tasks
            # may count their own differently.
            order = self._order_of(split.repetition)
            self._order = order if not self._first_place else LaterPart(order, self._first_place)
        self._ledger, self._names, self._repetition = ledger, split.names, split.repetition
        self._named_in = None
        self._first = self._next = split.start
        self._stop, self._stride = split.stop, split.step

    def state(self) -> Any:
        if self._provider is None:
            return self._next
        if self._next >= self._stop:
            return [self._provider.state(), 0]
        return [self._ledger, (self._next - self._first) // self._stride]

    def restore(self, state: Any) -> None:
        if self._provider is None:
            # Validate here, since an operation above may skip every failure of an
            # element.
            self._next = place(state)
            return
        ledger, offset = state
        self._provider.restore(ledger)
        self._first = self._next = self._stop = 0
        if offset:
            self._advance()
            while offset > (size := len(range(self._next, self._stop, self._stride))):
                # Ranges may arrive in other pieces than before.
                offset -= size
                self._advance()
            self._next += offset * self._stride

    def current_split(self) -> tuple[int, int] | None:
        if self._provider is None:
            return None
        if self._stride == 1:
            return self._first, self._stop
        last = self._next if self._is_within else self._next - self._stride
        return last, last + 1

    def _to_beginning(self, repetition: int) -> bool:
        """Rewind a source that holds nothing but its place."""
        self._next = 0
        self._repetition = self._expected = repetition
        self._named_in = None
        if self._provider is not None:
            self._stop, self._order = 0, None
        return True

    def namer(self) -> Namer | None:
        return None if self._is_within else self._name

    def _name(self) -> Name:
        place = self._next - self._stride
        group = self._named_in
        if group is None:
            group = self._group()
        return group, place if self._order is None else self._order[place]

    def _group(self) -> int:
        """Return the group of the names in the current range."""
        if self._named_in is None:
            self._named_in = self._new_group()
        return self._named_in

    def _new_group(self) -> int:
        group = self._named_from.group
        # Under zip and repeat, tasks may count repetitions differently; the split's
        # repetition then keeps the names apart.
        if self._repetition != self._expected:
            group = subgroup(group, self._repetition)
        return group

    def _name_of(self, index: int) -> str:
        """Return the name of a split of the current range."""
        return self._names[(index - self._first) // self._stride]

    def _next_range(self, count: int) -> range:
        """Return up to ``count`` of the next indices, and mark them as read."""
        while self._next >= self._stop:
            self._advance()
        indices = range(self._next, self._stop, self._stride)[:count]
        self._next = indices.stop
        return indices


class PartsIterator(IndexedIterator):
    """Base of the sources that read parts, such as files, in order. A failure may end a
    part.

    The names of elements are positions in parts. A subclass calls ``_begin_part`` when
    it goes on to the next part.
    """

    _passed_over = -1  # the part to skip
    _part = 0  # number of the part that was begun last, also after its end

    @property
    @abstractmethod
    def in_part(self) -> bool:
        """True if the part that was begun last is not finished."""

    @abstractmethod
    def _end_part(self) -> None:
        """Go to the end of the part, from any position in it."""

    def _begin_part(self) -> None:
        while self._next >= self._stop:
            self._advance()
        self.begun += 1
        self._part, self._named_in = self._part_number(), None
        if self.begun == self._passed_over:
            self._end_part()
            raise PassedOver

    def namer(self) -> Namer | None:
        return self._name

    @property
    @abstractmethod
    def _position(self) -> int:
        """Position behind the last element in its part."""

    def _name(self) -> Name:
        return self._group(), self._position

    def _new_group(self) -> int:
        return subgroup(super()._new_group(), self._part)

    def _part_number(self) -> int:
        """Return the number of the part that begins, in the whole source."""
        return self._next

    def pass_part(self, ahead: int) -> None:
        if not ahead:
            self._end_part()
            raise PassedOver
        self._passed_over = self.begun + ahead
        next(self)


class FixedIterator(IndexedIterator):
    """Base of the sources whose elements follow from the node alone."""

    def renew(self, context: Context) -> bool:
        self._named_from, self._named_in = context, None
        return self.rewind(context.repetition)

    def rewind(self, repetition: int) -> bool:
        return self._to_beginning(repetition)
