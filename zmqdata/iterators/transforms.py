"""Iterators with an input and at most a counter: map, filter, take, skip, enumerate.

Map and filter are registered in ``callsites``, which has their variants for workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import (
    Context,
    ElementIterator,
    InputIterator,
    beyond_int64,
    failure,
    make_iterator,
)
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inputs import followed, input_iterator
from zmqdata.iterators.results import as_bool
from zmqdata.nodes import transforms
from zmqdata.nodes.parts import part_of


class UnaryIterator(InputIterator):
    """Base of the iterators of operations with an input."""

    def __init__(self, node: transforms.Unary, context: Context) -> None:
        self._node: transforms.Unary = node
        self._publish_in(context)
        self._input = input_iterator(node, context)


class MapIterator(UnaryIterator):
    """Calls a function with each element; a plain tuple is passed as separate
    arguments.
    """

    def __init__(self, node: transforms.Map, context: Context) -> None:
        super().__init__(node, context)
        self._function = followed(node, context, self._input, node.function)
        maker = ElementMaker(node, context)
        self._made, self._finished = maker.element, maker.finished
        # Looked up once, rather than for each element. An iterator that is about to be
        # restored may have none yet.
        self._pull: Any = getattr(self._input, "__next__", None)

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._pull = self._input.__next__

    def __next__(self) -> Any:
        pull, function = self._pull, self._function  # Python 3.11 is slow to call attributes
        element = pull()
        try:
            value = function(*element) if type(element) is tuple else function(element)
            return value if type(value) in self._finished else self._made(value)
        except FAILURES as error:
            raise failure(self._node, error) from error

    def rewind(self, repetition: int) -> bool:
        return self._input.rewind(repetition)


class FilterIterator(UnaryIterator):
    """Passes on the elements for which a predicate is true."""

    def __init__(self, node: transforms.Filter, context: Context) -> None:
        super().__init__(node, context)
        self._predicate = followed(node, context, self._input, node.predicate)

    def __next__(self) -> Any:
        predicate = self._predicate  # Python 3.11 is slow to call attributes
        for element in self._input:
            try:
                kept = predicate(*element) if type(element) is tuple else predicate(element)
                if kept is not True and kept is not False:
                    kept = as_bool(kept)
            except FAILURES as error:
                raise failure(self._node, error) from error
            if kept:
                return element
        raise StopIteration

    def rewind(self, repetition: int) -> bool:
        return self._input.rewind(repetition)


class CountingIterator(UnaryIterator):
    """Base of the iterators that count elements."""

    _kept = ("_count",)

    def __init__(self, node: transforms.Unary, context: Context, count: int) -> None:
        super().__init__(node, context)
        self._count = count


@make_iterator.register(transforms.Take)
@make_iterator.register(transforms.Skip)
def _limited(node: transforms.Take | transforms.Skip, context: Context) -> ElementIterator:
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
    return (
        TakeIterator(node, context)
        if isinstance(node, transforms.Take)
        else SkipIterator(node, context)
    )


class LimitIterator(CountingIterator):
    """Base of take and skip, which count the first elements down."""

    _node: transforms.Take | transforms.Skip

    def __init__(self, node: transforms.Take | transforms.Skip, context: Context) -> None:
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


@make_iterator.register(transforms.Enumerate)
class EnumerateIterator(CountingIterator):
    """Pairs elements with a running number, counted per iterator."""

    _node: transforms.Enumerate

    def __init__(self, node: transforms.Enumerate, context: Context) -> None:
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
