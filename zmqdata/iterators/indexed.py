"""Base of the sources whose splits are indices."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence, Sized
from contextlib import suppress
from itertools import groupby
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np

from zmqdata.errors import DataLossError, PipelineError
from zmqdata.failures.exceptions import text_of
from zmqdata.iterators.base import END, ElementIterator, Steps
from zmqdata.iterators.calling import CALLED_FOR, PassedOver
from zmqdata.iterators.context import Context, Name, Namer, mixed_seed, subgroup
from zmqdata.iterators.deciding import Decider, loss
from zmqdata.iterators.draws import shared_seed
from zmqdata.iterators.permutation import LaterPart, Order, Permutation
from zmqdata.nodes.base import FileRows

_AT_ONCE = 1024
"""Most rows that are decoded together where the elements are rows."""
BYTES_AT_ONCE = 4 << 20
"""Size of rows beyond which fewer are decoded together."""


def suitable_rows(size: int, rows: int) -> int:
    """Return how many rows to make elements of together, given the size of some.

    >>> suitable_rows(10, 10), suitable_rows(10 << 20, 10)
    (1024, 4)
    """
    return max(1, min(_AT_ONCE, BYTES_AT_ONCE * rows // max(size, 1)))


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


class DecodingIterator(PartsIterator):
    """Base of the sources of rows in files, several of which are decoded together. A
    part is a split.
    """

    _is_within = True

    def __init__(self, node: FileRows, context: Context) -> None:
        super().__init__(context, node.split_count)
        self._node = node
        self._rows: Iterator[Any] = iter(())
        self._behind = 0
        self._is_begun = False  # True if the part that was begun last is not finished

    @property
    def _row(self) -> int:
        """Number of what was decoded and yielded, since ``_go_to`` counts anew."""
        return self._behind - length_hint(self._rows)

    def _go_to(self, row: int) -> None:
        self._rows, self._behind = iter(()), row

    def __next__(self) -> Any:
        for row in self._rows:
            return row
        return next(self._more())

    def steps(self) -> Steps:
        return self._steps()  # type: ignore[return-value]  # the type of all generators

    def _steps(self) -> Generator[Any, None, object]:
        try:
            while True:
                yield from self._rows
                yield next(self._more())
        except StopIteration:
            return END

    @abstractmethod
    def _more(self) -> Iterator[Any]:
        """Return an iterator over the next elements, at least one."""

    def _part_number(self) -> int:
        return self._next if self._order is None else self._order[self._next]

    def _reach_part(self) -> None:
        """Begin the next part unless one is begun."""
        if not self._is_begun:
            self._begin_part()
            self._is_begun = True

    def _named(self, error: BaseException, where: str) -> Exception:
        """Return the error of what cannot be read at a place, caused by ``error``."""
        setattr(error, CALLED_FOR, where)  # for a quarantine, too
        failed = self._failure(error, where)
        failed.__cause__ = error
        return failed

    @abstractmethod
    def _failure(self, error: BaseException, where: str) -> Exception:
        """Return the error of what cannot be read at a place."""


class Loaded(NamedTuple):
    """Result of reading a split that a ``DrawingIterator`` opens, or a part of it."""

    rows: Sized
    """The rows that could be read."""
    size: int
    """Their size in bytes."""
    number: int
    """Number of the part, also in the quarantine."""
    where: str
    """Name of the part, for errors."""
    error: BaseException | None = None
    """Error of what could not be read."""
    slot: int = 0
    """Number of the part in its split; ``WHOLE`` if the split could not be opened."""


WHOLE = (1 << 16) - 1
_ROWS = 1 << 26
"""Numbers reserved for the decisions on each part of a split. A part that failed after
some rows is number ``rows`` among them.
"""
_SLOTS = (WHOLE + 1) * _ROWS
"""Numbers reserved for each split. The last is decided after all parts of the split."""


class DrawingIterator(DecodingIterator):
    """Base of the iterators that read splits in a permutation, some of them at a time,
    and yield their rows in another permutation.

    What cannot be read of these splits comes before their rows. The state is that
    before these splits, the numbers of rows and failures, and the length of each part.
    The lengths keep the numbers of rows when a part is read again with another result.

    If a later operation leaves out failures, the parts that failed are decisions of
    the task, at a place below the source. In a replay exactly these parts fail. The
    state then also has the number of splits before the open splits, and the mark that
    was taken before these were opened. Decision 0028.
    """

    def __init__(self, node: Any, context: Context) -> None:
        super().__init__(node, context)
        self._permute(node, context, node.split_count)
        self._place: Any = None  # state before the splits that are open
        self._opened: list[Any] | None = None  # rows of these splits, by part
        self._deciding = context.deciding if context.forgives else None
        self._decider: Decider | None = None
        if self._deciding is not None:
            below = context.changed(path=(*context.path, 0))
            self._decider = Decider(node.label, below.place, self._deciding)
        self._splits: list[int] = []  # the splits that are open
        self._before = 0  # number of splits before these
        self._close_parts()

    def _close_parts(self) -> None:
        self._opened = None
        self._mark: list[Any] | None = None
        # Lengths by numbers of parts; ~length if the failure of the part was raised.
        self._lengths: dict[int, int] = {}
        self._failures: list[tuple[int, Exception]] = []
        self._raised = 0
        self._go_to(0)

    @abstractmethod
    def _loaded(self, splits: Sequence[int]) -> Iterator[Loaded]:
        """Yield the parts of splits."""

    def _rows_ahead(self, most: int, unit: int = 1) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the numbers of the next rows among those that are open; none at their
        end. Raise what could not be read.

        Args:
            most: maximum number of them; 0: as suits single rows.
            unit: number of rows that ``_row`` counts as one.
        """
        if self._opened is None:
            self._begin_part()
            self._open_several()
        if self._failures:
            part, error = self._failures.pop(0)
            self._lengths[part] = min(self._lengths[part], ~self._lengths[part])
            self._raised += 1
            raise error
        most = unit if self._has_gaps else most or self._together
        while (first := self._row * unit) < self._count:
            numbers = self._drawn.many(range(first, min(first + most, self._count)))
            if self._has_gaps:
                owners, rows = self._owners(numbers)
                numbers = numbers[rows < self._present[owners]]
            if len(numbers):
                return numbers
            self._behind += 1
        return np.zeros(0, np.int64)

    def _open_several(self) -> None:
        found, is_first, size = dict[int, Any](), not self._lengths, 0
        if self._deciding is not None:
            self._mark = self._mark or self._deciding.mark()
        self._splits = self._members()
        for part, count in self._followed(self._splits):
            number, error = part.number, part.error
            found[number], size = part.rows, size + part.size
            if is_first:
                self._lengths[number] = count
            # A part that was not found before belongs to a failure.
            known = self._lengths.get(number, -1)
            length = max(known, ~known)
            if known < 0 and count >= length:
                continue
            if error is None and count != length:
                error = DataLossError(
                    f"it has {count} rows, and had {length} when the state was saved. It was "
                    "changed since: start again without the state"
                )
            if error is not None:
                self._failures.append((number, self._named(error, part.where)))
        lengths = [max(length, ~length) for length in self._lengths.values()]
        self._opened = [found.get(number, ()) for number in self._lengths]
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self._present = np.array([*map(len, self._opened)], np.int64)
        self._has_gaps = bool((self._present < lengths).any())
        self._count = sum(lengths)
        self._together = suitable_rows(size, self._count)
        assert self._order is not None
        self._drawn = Permutation(self._count, mixed_seed(self._order.seed, self._part))

    def _followed(self, splits: Sequence[int]) -> Iterator[tuple[Loaded, int]]:
        """Yield the parts of splits and the numbers of their rows, with the failures
        of an earlier attempt.
        """
        for split, parts in groupby(self._loaded(splits), lambda part: part.number % (1 << 32)):
            if self._decider is None:
                yield from ((part, len(part.rows)) for part in parts)
                continue
            first = (self._before + splits.index(split)) * _SLOTS
            loaded = [*parts]
            if self._decider.is_left_out(first + WHOLE * _ROWS):
                loaded = [loaded[0]._replace(rows=(), size=0, number=split, slot=WHOLE)]
            for part in loaded:
                yield self._follow(self._decider, part, first + part.slot * _ROWS)
            self._decider.keep(first + _SLOTS - 1)

    def _follow(self, decider: Decider, part: Loaded, number: int) -> tuple[Loaded, int]:
        """Return a part and the number of its rows as decided before or now.

        Args:
            decider: the decider of the parts.
            part: the part as it was read.
            number: the first number of its decisions.
        """
        known = decider.first_left_out(number, number + _ROWS)
        if known is None and part.error is None:
            return part, len(part.rows)
        error = part.error or PipelineError("it could not be read in an earlier attempt")
        there = min(len(part.rows), _ROWS - 1)
        count = there if known is None else known - number
        if count > there or (known is None and decider.is_decided(number)):
            raise loss(
                f"{self._node.label}: {part.where} could be read in an earlier attempt of this "
                f"task, and cannot be read now: {text_of(error)}. Its rows were drawn together "
                "with others, so it cannot be left out now. Begin anew once it can be read, or "
                "restore an older state"
            ) from error
        decider.leave_out(number + count)
        return part._replace(error=error), count

    def _members(self) -> list[int]:
        """Return the splits to open together, and pass them."""
        self._place = IndexedIterator.state(self)
        found: list[int] = []
        with suppress(StopIteration):
            while len(found) < self._node.open_splits:
                while self._next >= self._stop:
                    self._advance()
                found.append(self._part_number())
                self._next += self._stride
        return found

    def _owners(
        self, numbers: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the places in ``_opened`` of the collections that have rows with these
        numbers, and the numbers of the rows in these.
        """
        owners = np.searchsorted(self._ends, numbers, side="right")
        return owners, numbers - np.concatenate([[0], self._ends])[owners]

    @property
    def in_part(self) -> bool:
        return self._opened is not None

    @property
    def _position(self) -> int:
        return self._row + self._raised

    def current_split(self) -> tuple[int, int] | None:
        return None

    def _end_part(self) -> None:
        self._before += len(self._members() if self._opened is None else self._splits)
        self._close_parts()

    def state(self) -> Any:
        place = IndexedIterator.state(self) if self._opened is None else self._place
        found = [place, self._row, self._raised, [*map(list, self._lengths.items())]]
        if self._deciding is not None:
            found += [self._before, self._mark or self._deciding.mark()]
        return found

    def restore(self, state: Any) -> None:
        position, row, raised, lengths, *decided = state
        IndexedIterator.restore(self, position)
        self._close_parts()
        self._lengths, self._raised = dict(lengths), raised
        self._go_to(row)
        if decided:
            self._before = decided[0]
            self._mark = decided[1] if lengths else None


class FixedIterator(IndexedIterator):
    """Base of the sources whose elements follow from the node alone."""

    def renew(self, context: Context) -> bool:
        self._named_from, self._named_in = context, None
        return self.rewind(context.repetition)

    def rewind(self, repetition: int) -> bool:
        return self._to_beginning(repetition)
