"""map and filter in the thread of the reader, plain, guarded, and recorded for a
worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from zmqdata.elements.conversion import as_element
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, spec_of
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import call, failure, is_end
from zmqdata.iterators.callsites import CallSite, watched
from zmqdata.iterators.context import Context
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.guarding import (
    Budget,
    following,
    guarded_call,
    guarding_decider,
    poisoned,
    seeded,
)
from zmqdata.iterators.inference import spec_by_running, spec_of_elements
from zmqdata.iterators.inputs import (
    CountingIterator,
    UnaryIterator,
    followed,
    input_iterator,
    marked_input,
)
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.iterators.random_access import element_at, refusal
from zmqdata.iterators.results import as_bool
from zmqdata.iterators.watch import IDLE, Watch
from zmqdata.nodes.base import IN_LABEL, NOTHING_AGAIN, Applying, Infer, Unary, function_name
from zmqdata.peeking import peek


@dataclass(frozen=True, kw_only=True)
class Map(Applying):
    """Calls a function with each element."""

    output_spec: Any = None
    """Spec of the results; None: inferred."""
    operation: ClassVar[str] = "map"
    spec_option: ClassVar[str] = "output_spec"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def is_one_to_one(self) -> bool:
        return True

    @property
    def batch_rows(self) -> int | None:
        return rows_made(self.function, self.input.batch_rows)


ROWS_MADE = "zmqdata_batch_rows"
"""Attribute of a function that makes batches: their number of rows, 0 if it varies."""


def rows_made(function: Callable[..., Any], otherwise: int | None) -> int | None:
    """Return ``Node.batch_rows`` for the results of a function."""
    rows = peek(function, ROWS_MADE)
    return rows if isinstance(rows, int) else otherwise


@dataclass(frozen=True, kw_only=True)
class Filter(Unary):
    """Yields the elements for which a predicate is true."""

    predicate: Callable[..., Any] = field(metadata=IN_LABEL)
    """Takes an element and returns a bool."""
    operation: ClassVar[str] = "filter"
    cardinality: ClassVar[int] = UNKNOWN_CARDINALITY
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True)
class MarkingMap(Map):
    """Map by a function of ours, whose results match the spec without a cast."""

    spec_option: ClassVar[str] = ""

    def spec(self, infer: Infer) -> Any:
        return self.output_spec


@dataclass(frozen=True, kw_only=True)
class GuardedMap(Map):
    """Map that retries, or leaves elements out, when its function fails."""

    on_error: str = "raise"
    """``"raise"``, ``"skip"`` or ``"retry"``."""
    retries: int = 0
    """Most retries for an element."""
    max_errors: int | None = None
    """Most elements that may be left out; None: any number."""
    numbered: ClassVar[str] = ""
    """Word for what its function is called for, which errors put before the number, as
    in "batch 3"; "" if errors state no number.
    """
    own_state: ClassVar[int] = 8

    @property
    def is_one_to_one(self) -> bool:
        return self.on_error != "skip"

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if self.is_one_to_one or count in (0, INFINITE_CARDINALITY):
            return count
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class Collate(GuardedMap):
    """Calls a function with each list of elements that ``ListBatch`` yields. It is a
    guarded map because guarded maps number their elements, and its errors name a batch.
    """

    operation: ClassVar[str] = "batch"
    numbered: ClassVar[str] = "batch"

    @property
    def argument(self) -> str:
        return f"collate_fn={function_name(self.function)}"


class MapIterator(UnaryIterator):
    """Calls a function with each element; a plain tuple is passed as separate
    arguments.
    """

    def __init__(self, node: Map, context: Context) -> None:
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

    def __init__(self, node: Filter, context: Context) -> None:
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


class WatchedIterator(CountingIterator):
    """Base of both iterators. ``_count`` is the number of the next element of the
    input.
    """

    def __init__(self, node: Unary, context: Context, watch: Watch) -> None:
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

    def __init__(self, node: Map, context: Context, watch: Watch) -> None:
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

    def __init__(self, node: Filter, context: Context, watch: Watch) -> None:
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


@make_iterator.register(Map)
def _map(node: Map, context: Context) -> ElementIterator:
    watch = context.watch
    return MapIterator(node, context) if watch is None else WatchedMapIterator(node, context, watch)


@make_iterator.register(Filter)
def _filter(node: Filter, context: Context) -> ElementIterator:
    watch = context.watch
    return (
        FilterIterator(node, context)
        if watch is None
        else WatchedFilterIterator(node, context, watch)
    )


@spec_by_running.register
def _(node: Map, past_failures: bool) -> Any:
    def of_window(windows: Any) -> Any:
        return spec_of(as_element(call(node.function, windows)))

    return spec_of_elements(node, past_failures, of_window)


@make_iterator.register(GuardedMap)
class GuardedMapIterator(UnaryIterator):
    """Map in the consumer's thread that may leave elements out. Its state has two
    counters besides its input's state.
    """

    def __init__(
        self,
        node: GuardedMap,
        context: Context,
        invoke: Callable[[int, Any], Any] | None = None,
    ) -> None:
        self._node = node
        self._publish_in(context)
        self._decider = guarding_decider(node, context)
        call_user = guarded_call(node, context, invoke)
        self._call = watched(node, context, seeded(node, context, call_user))
        if self._decider is None:
            self._input = input_iterator(node, context)
        else:
            self._input = marked_input(node, context)
            self._call = following(node, self._call, self._decider, poisoned(context))
        self._budget = Budget(node, context)
        self._number = 0

    def __next__(self) -> Any:
        while True:
            number, decider = self._number, self._decider
            try:
                element = next(self._input)
            except Exception as error:
                if not is_end(error):
                    # The failure is delivered in place of the element, so the elements
                    # behind it keep their numbers.
                    self._number = number + 1
                    if decider is not None:
                        decider.keep(number)
                raise
            self._number = number + 1
            self._strand.place = self._own_place
            value, raised = self._call(number, element)
            if raised is None:
                if decider is not None:
                    decider.keep(number)
                return value
            if decider is not None and isinstance(raised, Exception) and not is_end(raised):
                decider.leave_out(number)
            if not isinstance(value, LeftOut):
                raise raised
            self._budget.leave_out(replace(value, split=self._input.current_split()), raised)

    def state(self) -> Any:
        return [self._number, self._budget.spent, self._input.state()]

    def restore(self, state: Any) -> None:
        self._number, self._budget.spent, inner = state
        self._input.restore(inner)


@element_at.register
def _(node: Map, index: int) -> Any:
    element = element_at(node.input, index)
    try:
        return ElementMaker(node, Context()).element(call(node.function, element))
    except FAILURES as error:
        raise failure(node, error) from error


@element_at.register
def _(node: GuardedMap, index: int) -> Any:
    if node.on_error == "skip":
        raise refusal(node, index)
    return called_for(node, index)


def called_for(
    node: GuardedMap, index: int, invoke: Callable[[int, Any], Any] | None = None
) -> Any:
    value, raised = guarded_call(node, Context(), invoke)(index, element_at(node.input, index))
    if raised is not None:
        raise raised
    return value
