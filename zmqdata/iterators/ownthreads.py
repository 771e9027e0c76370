"""Threads that work for an iterator, and what they publish: the operation that each is
in. None of them may wait for the iterator's elements: it would wait for itself.

Decision 0046.
"""

from __future__ import annotations

import weakref
from copy import copy
from types import TracebackType
from typing import NamedTuple, Protocol

from zmqdata.errors import FailedPreconditionError
from zmqdata.machine.threads import this_thread

Place = tuple[int, ...]
"""Position of an operation in a pipeline; its inputs, and the datasets that its
function makes, have longer ones that begin with it.
"""


class Strand:
    """A part of an iterator that at most one thread runs at a time. Whoever runs it
    publishes the operation that it is in, and any thread may read that.

    Attributes:
        place: the operation; None while no thread is in the strand, or the thread waits
            for another strand.

    >>> strand = Strand()
    >>> strand.place = (0, 1)
    """

    __slots__ = ("__weakref__", "place")

    def __init__(self) -> None:
        self.place: Place | None = None


class QueueFill(NamedTuple):
    """Fill of a queue of elements behind an operation that runs ahead."""

    ready: int
    """Number of elements that are ready."""
    most: int
    """Maximum number of them."""
    is_held_up: bool = False
    """True if threads are idle because all of these elements follow a call that has not
    returned, and only the order keeps them from being taken.
    """


class Queue(Protocol):
    """A queue of elements behind an operation that runs ahead."""

    @property
    def fill(self) -> QueueFill:
        """Its present fill."""


class OwnThreads:
    """The threads that work for an operation of an iterator. A thread enters while it
    works.

    Args:
        places: for each thread of the iterator, the operation that it works for.
        place: the operation.

    Attributes:
        strand: the strand of the operation's input.
        seen_at: the place that the threads publish while they call its function.

    >>> own_threads = OwnThreads({}, (0,))
    >>> with own_threads:
    ...     own_threads.at((0, 0), Strand(), (0, 0)).check()  # its input may be awaited
    """

    def __init__(self, places: dict[int, Place], place: Place = ()) -> None:
        self._places, self._place = places, place
        self._queues: dict[Place, weakref.ref[Queue]] = {}
        self._strands = weakref.WeakValueDictionary[int, Strand]()
        self.strand, self.seen_at = Strand(), place

    def at(self, place: Place, strand: Strand, seen_at: Place) -> OwnThreads:
        """Return the threads of another operation of the same iterator."""
        others = copy(self)
        others._place, others.strand, others.seen_at = place, strand, seen_at
        return others

    def new_strand(self) -> Strand:
        """Return a further strand of the iterator."""
        strand = Strand()
        self._strands[id(strand)] = strand
        return strand

    def strands(self) -> list[Strand]:
        """Return all strands besides that of the reader. May be called from any
        thread.
        """
        strands = [strand() for strand in self._strands.valuerefs()]
        return [strand for strand in strands if strand is not None]

    def fill(self, queue: Queue) -> None:
        """Record the queue behind the operation, as long as it lives."""
        self._queues[self._place] = weakref.ref(queue)

    def fills(self) -> dict[Place, QueueFill]:
        """Return the fill of the queue behind each operation that runs ahead. May be
        called from any thread.
        """
        queues = [(place, queue()) for place, queue in self._queues.copy().items()]
        return {place: queue.fill for place, queue in queues if queue is not None}

    def __enter__(self) -> None:
        self._places[this_thread()] = self._place

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._places.pop(this_thread(), None)

    def disown(self) -> None:
        """Forget the other threads in the child of a fork, which lacks them: a thread
        of the child may get the number of one.
        """
        mine = self._places.get(this_thread())
        self._places.clear()
        if mine is not None:
            self._places[this_thread()] = mine

    def check(self) -> None:
        """Raise if this thread works for the operation, or for one that it needs.

        Raises:
            FailedPreconditionError: a function of the pipeline has asked for an element
                of its own iterator.
        """
        works_for = self._places.get(this_thread())
        if works_for is not None and works_for[: len(self._place)] == self._place:
            raise FailedPreconditionError(
                "a function of this pipeline has asked its own iterator for an element, in a "
                "thread that works for this iterator. Make another iterator for the function, "
                "with `iter(dataset)`"
            )
