"""Iterator of an interleave whose datasets are opened and read ahead on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from zmqdata.elements.specs import AUTOTUNE
from zmqdata.iterators.base import Context, ElementIterator, InputIterator, Name, make_iterator
from zmqdata.iterators.forks import lost_in_forks
from zmqdata.iterators.guarding import Outcome, following
from zmqdata.iterators.inputs import dataset_iterator, marked_input
from zmqdata.iterators.naming import NamingIterator, unnamed
from zmqdata.iterators.nested import InterleaveIterator, Opened, open_nested
from zmqdata.iterators.parallel import ParallelIterator, cores_for, keeps_order, within_pool
from zmqdata.iterators.prefetch import PrefetchIterator, prefetching
from zmqdata.nodes.mapping import ParallelInterleave

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
