"""Operations that count elements: take, skip, take_while, enumerate and
assert_cardinality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import beyond_int64, failure
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.inputs import CountingIterator, UnaryIterator, followed
from zmqdata.iterators.random_access import element_at, name_at, out_of_range
from zmqdata.iterators.results import as_bool
from zmqdata.nodes.base import IN_LABEL, NOTHING_AGAIN, Infer, Unary
from zmqdata.nodes.parts import part_of


@dataclass(frozen=True, kw_only=True)
class Take(Unary):
    """Yields the first elements."""

    count: int = field(metadata=IN_LABEL)
    """Most elements to yield; -1 yields all."""
    operation: ClassVar[str] = "take"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if self.count < 0 or count == UNKNOWN_CARDINALITY:
            return count
        return self.count if count == INFINITE_CARDINALITY else min(count, self.count)

    def part_left(self, count: int) -> range:
        return range(count if self.count < 0 else min(self.count, count))


@dataclass(frozen=True, kw_only=True)
class Skip(Unary):
    """Drops the first elements."""

    count: int = field(metadata=IN_LABEL)
    """Number of elements to drop; -1 drops all."""
    operation: ClassVar[str] = "skip"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        return 0 if self.count < 0 else max(0, count - self.count)

    def part_left(self, count: int) -> range:
        return range(count if self.count < 0 else min(self.count, count), count)


@dataclass(frozen=True, kw_only=True)
class Enumerate(Unary):
    """Yields pairs of a running number and the element."""

    start: int = field(default=0, metadata=IN_LABEL)
    """First number."""
    operation: ClassVar[str] = "enumerate"
    restoring: ClassVar[str] = NOTHING_AGAIN

    def spec(self, infer: Infer) -> Any:
        return (TensorSpec((), np.int64), infer(self.input))


@dataclass(frozen=True, kw_only=True)
class TakeWhile(Unary):
    """Yields the elements before the first element for which a predicate is false."""

    predicate: Callable[..., Any] = field(metadata=IN_LABEL)
    """Takes an element and returns a bool."""
    operation: ClassVar[str] = "take_while"
    cardinality: ClassVar[int] = UNKNOWN_CARDINALITY
    restoring: ClassVar[str] = NOTHING_AGAIN


@dataclass(frozen=True, kw_only=True)
class AssertCardinality(Unary):
    """Yields its input, and fails unless it has ``expected`` elements."""

    expected: int = field(metadata=IN_LABEL)
    """Expected number of elements."""
    operation: ClassVar[str] = "assert_cardinality"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        return self.expected


@make_iterator.register(Take)
@make_iterator.register(Skip)
def _limited(node: Take | Skip, context: Context) -> ElementIterator:
    """Return an iterator of the first or the other elements: of the splits that the
    task gets or, in an order that stays, of the whole, whose splits are then places in
    the part.
    """
    inside = context.into(node)
    if context.in_part:
        return make_iterator(node.input, inside)
    part = None if context.providers is None else part_of(node)
    if part is not None:
        return make_iterator(node.input, inside.changed(first=part.first, in_part=True))
    return TakeIterator(node, context) if isinstance(node, Take) else SkipIterator(node, context)


class LimitIterator(CountingIterator):
    """Base of take and skip, which count the first elements down."""

    _node: Take | Skip

    def __init__(self, node: Take | Skip, context: Context) -> None:
        super().__init__(node, context, node.count)

    def rewind(self, repetition: int) -> bool:
        self._count = self._node.count
        return self._input.rewind(repetition)


class TakeIterator(LimitIterator):
    """Yields the first elements; a negative count never ends it."""

    def __next__(self) -> Any:
        if self._count == 0:
            raise StopIteration
        element = next(self._input)
        self._count -= 1
        return element


class SkipIterator(LimitIterator):
    """Skips the first elements; with a negative count it is empty, and reads
    nothing.
    """

    def __next__(self) -> Any:
        while self._count:
            if self._count < 0:
                raise StopIteration
            next(self._input)
            self._count -= 1
        return next(self._input)


@make_iterator.register(Enumerate)
class EnumerateIterator(CountingIterator):
    """Pairs elements with a running number, counted per iterator."""

    _node: Enumerate

    def __init__(self, node: Enumerate, context: Context) -> None:
        super().__init__(node, context, node.start)

    def __next__(self) -> Any:
        element = next(self._input)
        self._strand.place = self._own_place
        number = self._count
        self._count = number + 1
        try:
            return (np.int64(number), element)
        except OverflowError:
            raise beyond_int64(self._node, number) from None

    def rewind(self, repetition: int) -> bool:
        self._count = self._node.start
        return self._input.rewind(repetition)


class EndingIterator(UnaryIterator):
    """Base of the iterators that may end before their input does."""

    _kept = ("_ended",)
    _ended = False


@make_iterator.register(TakeWhile)
class TakeWhileIterator(EndingIterator):
    """Ends for good at the first element for which the predicate is false."""

    def __init__(self, node: TakeWhile, context: Context) -> None:
        super().__init__(node, context)
        self._predicate = followed(node, context, self._input, node.predicate)

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        element = next(self._input)
        self._strand.place = self._own_place
        try:
            kept = self._predicate(*element) if type(element) is tuple else self._predicate(element)
            if kept is not True and kept is not False:
                kept = as_bool(kept)
        except FAILURES as error:
            raise failure(self._node, error) from error
        if kept:
            return element
        self._ended = True
        raise StopIteration

    def rewind(self, repetition: int) -> bool:
        self._ended = False
        return self._input.rewind(repetition)


@make_iterator.register(AssertCardinality)
class AssertCardinalityIterator(EndingIterator):
    """Counts its input; if the number differs from the expected one, it fails once and
    ends.
    """

    def __init__(self, node: AssertCardinality, context: Context) -> None:
        super().__init__(node, context)
        self._expected = node.expected
        self._count = 0

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        try:
            element = next(self._input)
        except StopIteration:
            self._ended = True
            if self._count != self._expected:
                raise self._refusal(f"only {_elements(self._count)}") from None
            raise
        self._count += 1
        if self._count > self._expected != INFINITE_CARDINALITY:
            self._ended = True
            raise self._refusal(f"at least {_elements(self._count)}")
        return element

    def rewind(self, repetition: int) -> bool:
        self._count, self._ended = 0, False
        return self._input.rewind(repetition)

    def _refusal(self, came: str) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"Input dataset was expected to contain {_elements(self._expected)} but contained "
            f"{came}: {self._node.label}. In a split dataset, each worker sees only a part"
        )

    def state(self) -> Any:
        return [self._count, super().state()]

    def restore(self, state: Any) -> None:
        self._count, inner = state
        super().restore(inner)


def _elements(count: int) -> str:
    if count == INFINITE_CARDINALITY:
        return "an infinite number of elements"
    return "1 element" if count == 1 else f"{count} elements"


@element_at.register
def _(node: AssertCardinality, index: int) -> Any:
    count = node.input.cardinality
    if 0 <= count <= index:
        raise FailedPreconditionError(
            f"{node.label} promises element {index}, and its input has {count} elements: state "
            "the correct number"
        )
    return element_at(node.input, index)


@element_at.register
def _(node: Take, index: int) -> Any:
    if 0 <= node.count <= index:
        raise out_of_range(node, index, node.count)
    return element_at(node.input, index)


@element_at.register
def _(node: Skip, index: int) -> Any:
    return element_at(node.input, node.count + index)


@element_at.register
def _(node: Enumerate, index: int) -> Any:
    try:
        number = np.int64(node.start + index)
    except OverflowError:
        raise beyond_int64(node, node.start + index) from None
    return number, element_at(node.input, index)


@name_at.register
def _(node: Skip, index: int) -> Name:
    return name_at(node.input, node.count + index)
