"""Iterators of map and filter in a watched pipeline: like those of ``transforms``, and
they record the number of each element during its call.

They are separate so that an unwatched pipeline pays no overhead. Their state holds the
number and the input's state.
"""

from __future__ import annotations

from typing import Any

from zmqdata import nodes
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import Context, ElementIterator, make_iterator
from zmqdata.iterators.callsites import CallSite
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inputs import followed
from zmqdata.iterators.results import as_bool
from zmqdata.iterators.transforms import CountingIterator, FilterIterator, MapIterator
from zmqdata.iterators.watch import IDLE, Watch


class WatchedIterator(CountingIterator):
    """Base of both iterators. ``_count`` is the number of the next element of the
    input.
    """

    def __init__(self, node: nodes.Unary, context: Context, watch: Watch) -> None:
        super().__init__(node, context, 0)
        self._site = CallSite(node, context, watch)
        self._special = self._site.special
        self._cells, self._at = self._site.slot()

    def _call(self, number: int, element: Any) -> Any:
        """Call the function."""
        raise NotImplementedError

    def _try(self, number: int, element: Any) -> Any:
        with self._site.trying(number):
            made = self._call(number, element)
        self._special = self._site.special
        return made


class WatchedMapIterator(WatchedIterator):
    """Calls a function with each element; a plain tuple is passed as separate
    arguments.
    """

    def __init__(self, node: nodes.Map, context: Context, watch: Watch) -> None:
        super().__init__(node, context, watch)
        self._function = followed(node, context, self._input, node.function)
        maker = ElementMaker(node, context)
        self._made, self._finished = maker.element, maker.finished
        # As in ``MapIterator``.
        self._pull: Any = getattr(self._input, "__next__", None)

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._pull = self._input.__next__

    def __next__(self) -> Any:
        element = self._pull()
        self._strand.place = self._own_place
        number = self._count
        self._count = number + 1
        if number in self._special:
            while self._site.leaves_out(number, self._input.current_split()):
                element, number = next(self._input), self._count
                self._count = number + 1
            return (self._try if number in self._special else self._call)(number, element)
        # A copy of ``_call``, inlined to save the time of a call.
        self._cells[self._at] = number
        try:
            value = self._function(*element) if type(element) is tuple else self._function(element)
            return value if type(value) in self._finished else self._made(value)
        except FAILURES as error:
            raise self._site.failure(self._node, error) from error
        finally:
            self._cells[self._at] = IDLE

    def _call(self, number: int, element: Any) -> Any:
        self._strand.place = self._own_place
        self._cells[self._at] = number
        try:
            return self._made(
                self._function(*element) if type(element) is tuple else self._function(element)
            )
        except FAILURES as error:
            raise self._site.failure(self._node, error) from error
        finally:
            self._cells[self._at] = IDLE


class WatchedFilterIterator(WatchedIterator):
    """Passes on the elements for which a predicate is true."""

    def __init__(self, node: nodes.Filter, context: Context, watch: Watch) -> None:
        super().__init__(node, context, watch)
        self._predicate = followed(node, context, self._input, node.predicate)

    def __next__(self) -> Any:
        for element in self._input:
            number = self._count
            self._count = number + 1
            if number not in self._special:
                kept = self._call(number, element)
            elif self._site.leaves_out(number, self._input.current_split()):
                continue
            else:
                kept = self._try(number, element)
            if kept:
                return element
        raise StopIteration

    def _call(self, number: int, element: Any) -> bool:
        self._strand.place = self._own_place
        self._cells[self._at] = number
        try:
            kept = self._predicate(*element) if type(element) is tuple else self._predicate(element)
            return kept if kept is True or kept is False else as_bool(kept)
        except FAILURES as error:
            raise self._site.failure(self._node, error) from error
        finally:
            self._cells[self._at] = IDLE


@make_iterator.register(nodes.Map)
def _map(node: nodes.Map, context: Context) -> ElementIterator:
    watch = context.watch
    return MapIterator(node, context) if watch is None else WatchedMapIterator(node, context, watch)


@make_iterator.register(nodes.Filter)
def _filter(node: nodes.Filter, context: Context) -> ElementIterator:
    watch = context.watch
    return (
        FilterIterator(node, context)
        if watch is None
        else WatchedFilterIterator(node, context, watch)
    )
