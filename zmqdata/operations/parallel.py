"""Functions of the user on several threads: map, and an interleave whose datasets are
opened and read ahead.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from zmqdata.elements.specs import AUTOTUNE
from zmqdata.errors import CancelledError
from zmqdata.iterators.base import ElementIterator, InputIterator, make_iterator
from zmqdata.iterators.calling import CLOSED, is_end
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.crew import Crew
from zmqdata.iterators.deciding import Decider
from zmqdata.iterators.guarding import Budget, Outcome, following, guarded_source, skips
from zmqdata.iterators.inputs import dataset_iterator, marked_input
from zmqdata.iterators.naming import CarriedNames, NamingIterator, unnamed
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.iterators.tuning import RAM_BUDGET, Tuner, byte_size
from zmqdata.machine.forks import lost_in_forks
from zmqdata.nodes.base import Node, unless_infinite
from zmqdata.operations.mapping import Collate, GuardedMap
from zmqdata.operations.nested import Interleave, InterleaveIterator, Opened, open_nested
from zmqdata.operations.prefetch import PrefetchIterator, prefetching


@dataclass(frozen=True, kw_only=True)
class OnThreads(Node):
    """Base to put before the node of an operation on several threads."""

    num_parallel_calls: int
    """Number of concurrent calls; AUTOTUNE lets zmqdata decide."""
    deterministic: bool | None = None
    """True to yield in the order of the input, False in the order of completion; None:
    as the options say.
    """
    pulls_ahead: ClassVar[bool] = True

    @property
    def is_deterministic(self) -> bool:
        return self.deterministic is not False


@dataclass(frozen=True, kw_only=True)
class ParallelMap(OnThreads, GuardedMap):
    """Map on several threads."""

    restoring: ClassVar[str] = "pulls up to 32 elements again, and repeats the calls in flight"
    own_state: ClassVar[int] = 32


@dataclass(frozen=True, kw_only=True)
class ParallelCollate(Collate, ParallelMap):
    """``Collate`` on several threads."""


_LOOK_EVERY = 16  # elements after which the size of an element is measured again


class ParallelIterator(ElementIterator):
    """Returns the results of a crew of threads. The threads start with the first
    request.

    Its state is a state of the input from before the oldest element not yet returned,
    and the numbers of the elements returned since. Restoring pulls at most about 32
    elements that it drops, and repeats the calls that were in flight. Taking the state
    never waits.
    """

    def __init__(
        self,
        source: ElementIterator,
        call: Callable[[int, Any], Outcome],
        node: OnThreads,
        context: Context,
        ordered: bool = True,
        decider: Decider | None = None,
    ) -> None:
        self._source, self._call = source, call
        self._decider, self._skips = decider, skips(node)
        self._own_threads = context.own_threads
        self._strand, self._own_place = context.reader, context.seen_at
        self._ordered = ordered
        # The user or other tasks may ask for the order. In a dataset that a function
        # makes, measures name the operation with the function.
        is_asked = node.deterministic is not None or context.owns_splits or bool(context.nest)
        self._may_reorder = isinstance(node, ParallelMap) and not is_asked
        self._cores, self._calls = cores_for(context), node.num_parallel_calls
        tuning = context.options.autotune
        if self._calls == AUTOTUNE and tuning.enabled is False:
            self._calls = self._cores
        elif self._calls != AUTOTUNE:
            self._calls = within_pool(self._calls, context)
        self._most_bytes = tuning.ram_budget or RAM_BUDGET
        self._budget = Budget(node, context)
        # Number of the first element to pull, and the input's state before it.
        self._begin: list[Any] = [
            0,
            None,
        ]
        self._low = 0
        self._done: list[int] = []
        self._crew: Crew | None = None
        self._tuner: Tuner | None = None
        self._ended = False
        self._bytes = 0
        self._taken = 0

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        crew = self._crew or self._start()
        while True:
            self._strand.place = None
            try:
                number, (value, raised) = crew.take()
            except StopIteration:
                if self._ended:
                    raise CancelledError(CLOSED) from None
                self._ended = True
                raise
            self._strand.place = self._own_place
            if self._tuner is not None:
                self._tune(crew, self._tuner, value)
            if self._decider is not None:
                self._decide(self._decider, number, value, raised)
            if raised is None:
                return value
            if isinstance(value, LeftOut):
                self._budget.leave_out(value, raised)
                continue
            if not isinstance(raised, Exception):
                self._ended = True
                crew.stop()
            raise raised

    def _decide(
        self, decider: Decider, number: int, value: Any, raised: BaseException | None
    ) -> None:
        if raised is not None and (is_end(raised) or not isinstance(raised, Exception)):
            return
        if isinstance(value, LeftOut) or (raised is not None and not self._skips):
            decide = decider.leave_out if self._ordered else decider.leave_out_by_itself
            decide(number)
        elif self._ordered:
            decider.keep(number)

    def _start(self) -> Crew:
        if self._begin[1] is None:
            self._begin[1] = self._source.state()
        self._crew = Crew(
            self._source,
            self._call,
            self._ordered,
            self._begin[0],
            self._low,
            self._done,
            self._own_threads,
            self._may_reorder,
        )
        weakref.finalize(self, self._crew.stop)
        if self._ended:
            # close() ran meanwhile, and may not have seen the crew.
            self._crew.stop()
        if self._calls == AUTOTUNE:
            self._tuner = Tuner(self._cores)
        size = self._calls if self._tuner is None else self._tuner.size
        self._crew.resize(size, 2 * size)
        return self._crew

    def _tune(self, crew: Crew, tuner: Tuner, value: Any) -> None:
        self._taken += 1
        if self._taken % _LOOK_EVERY == 1:
            self._bytes = max(byte_size(value), self._bytes * 7 // 8)
        changed = tuner.note(time.perf_counter())
        window = max(1, min(2 * tuner.size, self._most_bytes // max(1, self._bytes)))
        if changed or window != crew.window:
            crew.resize(min(tuner.size, window), window)

    def state(self) -> Any:
        crew = self._crew
        if crew is None:
            inner = self._source.state() if self._begin[1] is None else self._begin[1]
            return [self._begin[0], inner, self._low, self._done, self._budget.spent, self._ended]
        number, inner = crew.mark() if crew.has_mark else self._begin
        return [number, inner, crew.low, sorted(crew.done), self._budget.spent, self._ended]

    def restore(self, state: Any) -> None:
        number, inner, self._low, self._done, self._budget.spent, self._ended = state
        if not 0 <= number <= self._low:
            raise ValueError(
                f"The state is invalid: element {self._low} is not behind element {number}"
            )
        self._source.restore(inner)
        self._begin = [number, inner]

    def close(self) -> None:
        self._ended = True
        if self._crew is None:
            self._source.close()
            return
        self._crew.stop()
        self._crew.join()


class NamedParallelIterator(CarriedNames, ParallelIterator):
    """Returns the results of a crew of threads, and knows their names."""


@make_iterator.register(ParallelMap)
def make_parallel_map(
    node: ParallelMap, context: Context, draw: Callable[[Name, Any], Any] | None = None
) -> ElementIterator:
    """Return an iterator of a map whose function is called on several threads.

    Args:
        node: the map.
        context: context of the map.
        draw: as for ``guarded_source``.
    """
    context = context.ahead()
    guarded = guarded_source(node, context, draw)
    kind = NamedParallelIterator if guarded.named else ParallelIterator
    ordered = keeps_order(node, context)
    return kind(guarded.source, guarded.call, node, context, ordered, guarded.decider)


def cores_for(context: Context) -> int:
    """Return the number of threads that AUTOTUNE may use: the options' cpu_budget, or
    the number of cores.
    """
    return within_pool(context.options.autotune.cpu_budget or os.cpu_count() or 1, context)


def within_pool(calls: int, context: Context) -> int:
    """Return the number of concurrent calls, limited by the options'
    private_threadpool_size.

    >>> from zmqdata.nodes.options import Options
    >>> options = Options([("threading.private_threadpool_size", 3)])
    >>> within_pool(8, Context(options=options))
    3
    """
    size = context.options.threading.private_threadpool_size
    return calls if size is None else min(calls, size or os.cpu_count() or 1)


def keeps_order(node: OnThreads, context: Context) -> bool:
    """Return True if an operation keeps the order: as its own argument says, else the
    options of the pipeline, else True.
    """
    told = context.options.deterministic if node.deterministic is None else node.deterministic
    return told is not False


@dataclass(frozen=True, kw_only=True)
class ParallelInterleave(OnThreads, Interleave):
    """Interleave whose datasets are read ahead on several threads."""

    restoring: ClassVar[str] = (
        "reopens up to 32 datasets, and pulls up to 32 elements of each again"
    )

    @property
    def cardinality(self) -> int:
        # As in tf.data, which knows it for this interleave only.
        return unless_infinite(self.input)


# Elements of a dataset, or a block if that is more, that may be read before they are
# requested.
_AHEAD = 8
_LOOK_AGAIN = 0.001  # seconds between two checks for elements, if the order is free


class _Gated(InputIterator):
    """Limits how many iterators pull at the same time."""

    def __init__(self, source: ElementIterator, gate: threading.Semaphore) -> None:
        self._input, self._gate = source, gate
        lost_in_forks(self)

    def __next__(self) -> Any:
        with self._gate:
            return next(self._input)

    def disown(self) -> None:
        """Replace the semaphore in the child of a fork, where its holders are gone."""
        self._gate = threading.Semaphore()


class _Opening(ParallelIterator):
    """Nested datasets, opened ahead, in the order of the input."""

    def close(self) -> None:
        super().close()
        if self._crew is not None:
            for opened in self._crew.unclaimed():
                if opened is not None:
                    opened.iterator.close()

    def start(self) -> None:
        """Start the threads before a dataset is requested."""
        if self._crew is None and not self._ended:
            self._start()

    @property
    def is_ready(self) -> bool:
        """True if a dataset is open already."""
        return self._crew is not None and self._crew.is_ready


def _opener(
    node: ParallelInterleave,
    context: Context,
    gate: threading.Semaphore,
    restoring: threading.Event,
) -> Callable[..., Outcome]:
    """Return a function that opens a dataset and begins to read it. It holds no
    reference to the iterator, which may be abandoned.

    While ``restoring`` is set the dataset is not read: it may be reopened at its
    position, and each decision in it must be made once.
    """

    def open_ahead(number: int, element: Any) -> Outcome:
        inside = context.ahead()
        try:
            opened = open_nested(node, inside, number, *element)
            opened.iterator = _ahead(node, inside, opened.iterator, gate)
            if not restoring.is_set():
                opened.iterator.start()
            return opened, None
        except BaseException as error:
            return None, error

    return open_ahead


def _ahead(
    node: ParallelInterleave,
    context: Context,
    source: ElementIterator,
    gate: threading.Semaphore,
) -> PrefetchIterator:
    return prefetching(_Gated(source, gate), max(_AHEAD, node.block_length), context)


@make_iterator.register(ParallelInterleave)
class ParallelInterleaveIterator(InterleaveIterator):
    """Reads several nested datasets in turn; each runs ahead on its own thread.

    The order is that of ``InterleaveIterator``; if the order is free, any dataset with
    a ready element is taken. Its state is that of ``InterleaveIterator``, and for each
    dataset the number of elements returned since its own state was noted. Datasets
    opened ahead are not in the state.
    """

    _node: ParallelInterleave

    def __init__(self, node: ParallelInterleave, context: Context) -> None:
        calls = node.num_parallel_calls
        self._own_threads = context.own_threads
        self._restoring = threading.Event()
        self._gate = threading.Semaphore(
            cores_for(context) if calls == AUTOTUNE else within_pool(calls, context)
        )
        super().__init__(node, context)
        self._any_order = not keeps_order(node, context)

    def __next__(self) -> Any:
        self._own_threads.check()
        return super().__next__()

    def _make_source(self) -> ElementIterator:
        node, context = self._node, self._context
        inside = context.ahead()
        opener, decider = _opener(node, context, self._gate, self._restoring), self._decider
        if decider is not None:
            opener = following(node, opener, decider)
        source = marked_input(node, inside)
        named = NamingIterator(source, source.namer() or unnamed)
        self._opening = _Opening(named, opener, node, inside, decider=decider)
        return self._opening

    def _open(self, number: int, element: Any, name: Name | None) -> Opened:
        assert isinstance(element, Opened)
        element.iterator.start()  # type: ignore[attr-defined]  # made by _ahead
        return element

    def restore(self, state: Any) -> None:
        self._restoring.set()
        try:
            super().restore(state)
        finally:
            self._restoring.clear()

    def _reopen(self, number: int, element: Any, name: Name | None, inner: Any) -> Opened:
        element.iterator.close()
        inside = self._context.ahead()
        source = dataset_iterator(element.node, inside.nested(number, element.name, self._node))
        again = _ahead(self._node, inside, source, self._gate)
        again.restore(inner)
        again.start()
        return Opened(number, again, element.node, element.name)

    def _choose_turn(self) -> None:
        """Wait for a slot that has an element or can be filled, and give it the
        turn.
        """
        self._opening.start()
        self._strand.place = None
        pause = threading.Event()
        places = self._places
        while True:
            order = [(self._turn + step) % len(places) for step in range(len(places))]
            waits = False
            for index in order:
                place = places[index]
                if place is None:
                    ready = not self._input_ended and (self._opening.is_ready or not any(places))
                else:
                    ready, waits = place.iterator.is_ready, True  # type: ignore[attr-defined]  # made by _open
                if ready:
                    self._taken = self._taken if index == self._turn else 0
                    self._turn = index
                    return
            if not waits:
                return
            pause.wait(_LOOK_AGAIN)

    def close(self) -> None:
        for place in self._places:
            # Stop all threads first, then wait for each.
            if place is not None:
                place.iterator.stop()  # type: ignore[attr-defined]  # made by _open
        super().close()
