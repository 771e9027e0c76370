"""Iterators over sources in memory, and over generators. Files are in ``files``."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from operator import length_hint
from typing import Any

import numpy as np

from zmqdata.blocks import copied
from zmqdata.elements.nesting import field_names, instance_of, map_arrays, map_structure, tuple_of
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.shapes import dtype_of_items
from zmqdata.elements.tensors import sort_of
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import (
    END,
    Context,
    ElementIterator,
    Name,
    Namer,
    PassedOver,
    Stackable,
    Steps,
    failure,
    make_iterator,
    subgroup,
)
from zmqdata.iterators.callsites import call_site
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.permutation import LaterPart, Order
from zmqdata.iterators.results import check_new
from zmqdata.nodes.sources import FromGenerator, Range, Tensors, TensorSlices
from zmqdata.peeking import shown


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


AHEAD = 256
"""Numbers that a range makes at once."""


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


@make_iterator.register(Range)
class RangeIterator(FixedIterator, Stackable):
    """Yields the integers of a range. It makes many at a time, which takes half as
    long; the integers in ``_ready`` do not count as read.
    """

    def __init__(self, node: Range, context: Context) -> None:
        self._ready: Iterator[Any] = iter(())
        self._behind = 0  # index behind the last integer in ``_ready``
        super().__init__(context, node.count)
        self._start, self._step = node.start, node.step
        self._kind = np.dtype(node.dtype).type
        self._all: list[Any] = []  # all integers, if they are few and were made before

    @property
    def _next(self) -> int:
        return self._behind - length_hint(self._ready) * self._stride

    @_next.setter
    def _next(self, index: int) -> None:
        self._ready, self._behind = iter(()), index

    def __next__(self) -> Any:
        for value in self._ready:
            return value
        if self._provider is None and self._behind >= self._stop:
            raise StopIteration
        rows = self.next_rows(AHEAD)
        if self._provider is None and len(rows) == self._stop:
            self._all = rows
        self._ready = iter(rows)
        return next(self._ready)

    def steps(self) -> Steps:
        return self._steps()  # type: ignore[return-value]  # the type of all generators

    def _steps(self) -> Generator[Any, None, object]:
        try:
            while True:
                yield from self._ready
                self._ready = iter(self.next_rows(AHEAD))
        except StopIteration:
            return END

    def rewind(self, repetition: int) -> bool:
        if self._all:
            self._ready, self._behind = iter(self._all), len(self._all)
            return True
        return self._to_beginning(repetition)

    def _name(self) -> Name:
        # The same as the base, for which ``_next`` would be computed more slowly.
        place = self._behind - (length_hint(self._ready) + 1) * self._stride
        group = self._named_in
        if group is None:
            group = self._group()
        return group, place if self._order is None else self._order[place]

    def next_stacked(self, count: int) -> tuple[int, Any]:
        self._strand.place = self._own_place
        indices = self._next_range(count)
        start, step = self._start, self._step
        if self._order is not None:
            numbers = start + step * self._order.many(indices)
            return len(indices), numbers.astype(self._kind, copy=False)
        limits = start + indices.start * step, start + indices.stop * step, indices.step * step
        return len(indices), np.arange(*limits, dtype=np.int64).astype(self._kind, copy=False)


@make_iterator.register(Tensors)
class TensorsIterator(FixedIterator):
    """Yields a structure once, as a copy: a delivered element belongs to its
    receiver.
    """

    def __init__(self, node: Tensors, context: Context) -> None:
        super().__init__(context, 1)
        self._tensors = node.tensors

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        while self._next >= self._stop:
            self._advance()
        self._next += self._stride
        return copied(self._tensors)


def _own(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, (np.ndarray, RaggedTensor)) else leaf


@make_iterator.register(TensorSlices)
class TensorSlicesIterator(FixedIterator, Stackable):
    """Yields copies of rows."""

    def __init__(self, node: TensorSlices, context: Context) -> None:
        super().__init__(context, node.cardinality)
        self._tensors = node.tensors
        self._row = _row_getter(node.tensors)

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        index = self._next
        while index >= self._stop:
            self._advance()
            index = self._next
        self._next = index + self._stride
        row, order = self._row, self._order  # Python 3.11 is slow to call attributes
        return row(index if order is None else order[index])

    def next_stacked(self, count: int) -> tuple[int, Any]:
        self._strand.place = self._own_place
        indices = self._next_range(count if self._order_of is None else min(count, AHEAD))
        if self._order is not None:
            return len(indices), _rows_at(self._order.many(indices).tolist(), self._tensors)
        part = slice(indices.start, indices.stop, indices.step)
        return len(indices), map_arrays(lambda array: _copied_rows(array[part]), self._tensors)


def _copied_rows(rows: Any) -> Any:
    """Return a copy of rows; single items get the byte order of their scalars."""
    if rows.ndim > 1 or isinstance(rows, RaggedTensor) or rows.dtype.isnative:
        return rows.copy()
    return rows.astype(dtype_of_items(rows.dtype))


def _rows_at(numbers: list[int], tensors: Any) -> Any:
    """Return copies of rows of a structure of arrays, stacked."""

    def rows(array: Any) -> Any:
        if isinstance(array, RaggedTensor):
            return array.at(numbers)
        found = array[numbers]
        return found if found.dtype.isnative or found.ndim > 1 else _copied_rows(found)

    return map_arrays(rows, tensors)


def _row_getter(tensors: Any) -> Callable[[int], Any]:
    """Return a function from a row number to that row of each array, in the nesting of
    the structure.
    """
    if isinstance(tensors, np.ndarray):
        if tensors.ndim == 1 and tensors.dtype.names is None:
            return tensors.__getitem__
        return lambda index: tensors[index].copy()
    if isinstance(tensors, RaggedTensor):
        return lambda index: tensors[index].copy()
    if isinstance(tensors, dict):
        by_key = [(key, _row_getter(part)) for key, part in tensors.items()]
        return lambda index: {key: row(index) for key, row in by_key}
    if tensors is None:
        return lambda index: None
    names = field_names(type(tensors))
    if names is not None:
        fields = [_row_getter(getattr(tensors, name)) for name in names]
        return lambda index: instance_of(type(tensors), names, [row(index) for row in fields])
    parts = [_row_getter(part) for part in tensors]
    if type(tensors) is tuple:
        return lambda index: tuple([row(index) for row in parts])
    kind = type(tensors)
    return lambda index: tuple_of(kind, [row(index) for row in parts])


@make_iterator.register(FromGenerator)
class GeneratorIterator(PartsIterator):
    """Runs a generator once, as one split. Its state is a count: restoring runs the
    generator again up to it.
    """

    def __init__(self, node: FromGenerator, context: Context) -> None:
        super().__init__(context, 1)
        self._node = node
        self._made = ElementMaker(node, context).element
        self._values: Iterator[Any] | None = None
        self._count = 0
        self._site = call_site(node, context, skippable=False)
        self._seed_for = context.seeder(node)

    def __next__(self) -> Any:
        value = self._pull()
        try:
            element = self._made(value)
            # Copy, since a generator may refill the same array, and elements already
            # yielded must not change.
            return (
                element
                if isinstance(element, (int, float, str, np.generic))
                else map_structure(_own, element)
            )
        except FAILURES as error:
            raise failure(self._node, error) from error

    def _open(self) -> None:
        self._begin_part()
        if self._seed_for is not None:
            self._seed_for(self._next)
        try:
            made: Any = self._node.generator(*self._node.args)
            if not isinstance(made, Iterable) and not hasattr(made, "__getitem__"):
                raise TypeError(
                    f"the generator function must return an iterable, it returned {shown(made)} of "
                    f"type {type(made).__name__}: yield the elements, or return a list of them"
                )
            if sort_of(type(made)) == "frame":
                raise TypeError(
                    f"the generator function returned a {type(made).__name__}, of which a loop "
                    "yields columns: yield its rows, as frame.itertuples() or table.to_pylist() do"
                )
            values = iter(made)
            check_new(made, values, self._node)
            self._values = values
        except FAILURES as error:
            self._end_part()
            raise failure(self._node, error) from error

    def _pull(self) -> Any:
        self._strand.place = self._own_place
        while True:
            if self._values is None:
                self._open()
            assert self._values is not None
            try:
                value = (
                    next(self._values)
                    if self._site is None
                    else self._site.call(self._count, next, self._values)
                )
            except StopIteration:
                self._end_part()
                continue
            except FAILURES as error:
                self._end_part()
                raise failure(self._node, error) from error
            self._count += 1
            return value

    @property
    def in_part(self) -> bool:
        return self._values is not None

    @property
    def _position(self) -> int:
        return self._count

    def _end_part(self) -> None:
        self._values, self._count = None, 0
        self._next += 1

    def state(self) -> Any:
        return [super().state(), self._count]

    def restore(self, state: Any) -> None:
        position, count = state
        super().restore(position)
        for _ in range(count):
            self._pull()

    def rewind(self, repetition: int) -> bool:
        if self._site is not None:
            return False
        self.close()
        self._count = self.begun = 0
        return self._to_beginning(repetition)

    def close(self) -> None:
        values = self._values
        self._values, self._next = None, self._stop
        closer = getattr(values, "close", None)
        # A generator that another thread runs is closed when that thread drops it.
        if callable(closer) and not getattr(values, "gi_running", False):
            closer()
