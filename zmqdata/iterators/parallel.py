"""Iterators that call a user's function on several threads: map, and the base that
interleave shares.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import Any

from zmqdata.elements.specs import AUTOTUNE
from zmqdata.errors import CancelledError
from zmqdata.iterators.base import CLOSED, Context, ElementIterator, Name, is_end, make_iterator
from zmqdata.iterators.crew import Crew
from zmqdata.iterators.deciding import Decider
from zmqdata.iterators.guarding import Budget, Outcome, guarded_source, skips
from zmqdata.iterators.naming import CarriedNames
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.iterators.tuning import RAM_BUDGET, Tuner, byte_size
from zmqdata.nodes.mapping import ParallelInterleave, ParallelMap

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
        node: ParallelMap | ParallelInterleave,
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


def keeps_order(node: ParallelMap | ParallelInterleave, context: Context) -> bool:
    """Return True if an operation keeps the order: as its own argument says, else the
    options of the pipeline, else True.
    """
    told = context.options.deterministic if node.deterministic is None else node.deterministic
    return told is not False
