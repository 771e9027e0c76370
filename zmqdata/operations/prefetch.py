"""prefetch, and the thread that fills its buffer."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar

from zmqdata.elements.specs import AUTOTUNE
from zmqdata.errors import CancelledError, DataServiceError, FailedPreconditionError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import CLOSED, is_end
from zmqdata.iterators.context import Context
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.naming import CarriedNames, carrying
from zmqdata.iterators.ownthreads import OwnThreads, QueueFill
from zmqdata.iterators.tuning import RAM_BUDGET, BufferSize, TunedSize
from zmqdata.machine.forks import lost_in_forks
from zmqdata.machine.threads import Background
from zmqdata.nodes.base import IN_LABEL, Unary


@dataclass(frozen=True, kw_only=True)
class Prefetch(Unary):
    """Prepares elements ahead, on a thread."""

    buffer_size: int = field(metadata=IN_LABEL)
    """Most elements ahead; AUTOTUNE lets zmqdata decide, 0 disables prefetching."""
    operation: ClassVar[str] = "prefetch"
    holds_only: ClassVar[bool] = True
    is_one_to_one: ClassVar[bool] = True
    pulls_ahead: ClassVar[bool] = True
    restoring: ClassVar[str] = "pulls up to 32 elements again"


UNTUNED_SIZE = 8
"""Buffer size for AUTOTUNE if the options disable tuning."""
_MARK_EVERY = 32
_LOOK_AFTER = 1.0  # seconds after which a waiting consumer checks that the thread is alive
# Least average duration of a pull, in seconds, for which the thread is woken: a thread
# switch costs as much.
_WORTH = 5e-6
_PULLS = 256  # pulls over which the average is taken
_JOIN_WITHIN = 2.0  # seconds that close() waits for a user function in progress
Entry = tuple[Any, "BaseException | None", Any]
"""An element, or the exception in its place; and for every 32nd entry the input's state
before it, else None.
"""


class _Pump:
    """Thread that pulls from an iterator into a bounded buffer. It holds no reference
    to the iterator that empties it.

    If pulls are so fast that a thread switch costs more, the thread rests and the
    consumer pulls itself.

    Attributes:
        mark: the input's state before an element that was returned, or will be returned
            next.
        since: number of elements returned since ``mark``.
    """

    def __init__(self, source: ElementIterator, size: BufferSize, own_threads: OwnThreads) -> None:
        self._source = source
        self._own_threads = own_threads
        self._next = source.__next__  # bound once, which is faster than next(source)
        self._size = size
        self._buffer: deque[Entry] = deque()
        self._changed = threading.Condition()
        self._turn = threading.Lock()  # held by the thread that pulls
        # A state of the input is due before the element with number ``_due``.
        self._pulled = self._due = 0
        # Time of the last such state, and number of the element behind it.
        self._noted = (
            perf_counter(),
            0,
        )
        self._timing = True  # True while each pull is timed
        self._weighed, self._seconds = 0, 0.0  # timed pulls, and their total time
        self._worth = True  # True while the thread pays off
        self._asked = False  # True to fill the buffer even so
        self._over = False  # True once the input has ended
        self._resting = False  # True while the thread waits for room and work
        self._empty = False  # True while the consumer waits for an element
        self._stopped = False
        self._started = False
        self._starting = threading.Lock()
        self._thread = Background(target=self._run, name="zmqdata-prefetch", daemon=True)
        self.mark: Any = source.state()
        self.since = 0
        lost_in_forks(self)
        own_threads.fill(self)

    @property
    def fill(self) -> QueueFill:
        """Present fill of the buffer."""
        return QueueFill(len(self._buffer), self._size.most)

    def start(self) -> None:
        """Start the thread, unless it was stopped before."""
        with self._starting:
            if not self._stopped:
                self._thread.start()
                self._started = True
                return
        self._source.close()

    def get(self) -> Any:
        """Wait for the next element and return it; raise its failure, or StopIteration
        at the end.
        """
        buffer = self._buffer
        while not buffer:
            if self._worth:
                self._size.found_empty()
            if self._turn.acquire(False):
                try:
                    if not (buffer or self._over or self._stopped):
                        if self._pulled >= self._due:
                            self.mark, self.since = self._note(), 0
                        self._pulled += 1
                        self.since += 1
                        return self._timed_pull() if self._timing else self._next()
                except BaseException as raised:
                    self.since -= is_end(raised)
                    if isinstance(raised, StopIteration):
                        self._end()
                    raise
                finally:
                    self._own_threads.strand.place = None
                    self._turn.release()
            if not buffer:
                self._await_entry()
        element, error, mark = buffer.popleft()
        if self._resting and self._worth and len(buffer) <= self._size.low:
            self._wake()
        if mark is not None:
            self.mark, self.since = mark, 0
        if error is None:
            self.since += 1
            return element
        self.since += not is_end(error)
        raise error

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @property
    def is_ready(self) -> bool:
        """True if ``get`` would not wait. If it would wait, the thread is set to
        work.
        """
        if not self._buffer and self._resting:
            self._asked = True
            self._wake()
        return bool(self._buffer)

    def _await_entry(self) -> None:
        self._own_threads.check()
        arrived = False
        if self._changed.acquire(timeout=_LOOK_AFTER):
            # A thread that a fork lost may hold the lock, hence the timeout.
            try:
                self._empty = True
                arrived = self._changed.wait_for(
                    lambda: bool(self._buffer) or self._stopped, _LOOK_AFTER
                )
                self._empty = False
            finally:
                self._changed.release()
        if self._buffer:
            return
        if self._stopped:
            raise CancelledError(CLOSED)
        if not (arrived or self._thread.is_alive()):
            raise FailedPreconditionError(
                "The thread of this prefetch is gone: the program forked after the iterator was "
                "made. Make a new iterator after the fork"
            )

    # --- pulling, by the thread or the consumer, whichever holds ``_turn``

    def _pull_ahead(self) -> Entry:
        """Pull the next element and return it as an entry of the buffer."""
        mark = None
        try:
            if self._pulled >= self._due:
                mark = self._note()
            self._pulled += 1
            return self._timed_pull() if self._timing else self._next(), None, mark
        except StopIteration as error:
            self._end()
            return None, error, mark
        except BaseException as error:
            # The error belongs to the consumer that takes the element.
            return None, error, mark

    def _timed_pull(self) -> Any:
        begin = perf_counter()
        try:
            return self._next()
        finally:
            self._seconds += perf_counter() - begin

    def _note(self) -> Any:
        """Return the input's state before the next element, and update the measured
        cost of pulls.

        Single pulls are not timed while the total time since the last note, work
        between pulls included, stays below the threshold.
        """
        now, before = (perf_counter(), self._pulled), self._noted
        spent, pulls, self._noted = now[0] - before[0], now[1] - before[1], now
        quick = spent <= pulls * _WORTH
        if self._timing or quick:
            self._weighed += pulls
            self._seconds += 0.0 if self._timing else spent
        self._timing = not quick
        if self._weighed >= _PULLS:
            rested, self._worth = not self._worth, self._seconds > self._weighed * _WORTH
            self._weighed, self._seconds = 0, 0.0
            if self._worth and rested:
                self._wake()
        self._due = self._pulled + _MARK_EVERY
        return self._source.state()

    def _end(self) -> None:
        self._over = True
        self._wake()

    # --- called by the thread

    def _run(self) -> None:
        try:
            with self._own_threads:
                while self._fill():
                    self._await_room()
        finally:
            self._source.close()

    def _fill(self) -> bool:
        """Pull an element; return False if nothing is left to pull."""
        with self._turn:
            if self._stopped or self._over:
                return False
            entry = self._pull_ahead()
            self._own_threads.strand.place = None
            self._buffer.append(entry)
        self._size.note(entry[0])
        if self._empty:
            self._wake()
        return True

    def _await_room(self) -> None:
        if self._is_wanted():
            return
        with self._changed:
            if len(self._buffer) >= self._size.most:
                self._size.found_full()
                self._asked = False
            self._resting = True
            self._changed.wait_for(lambda: self._is_wanted() or self._stopped or self._over)
            self._resting = False

    def _is_wanted(self) -> bool:
        return (self._worth or self._asked) and len(self._buffer) < self._size.most

    def disown(self) -> None:
        """Replace the locks in the child of a fork, which lacks the thread that may
        hold them.
        """
        self._changed, self._starting = threading.Condition(), threading.Lock()
        self._own_threads.disown()

    def stop(self) -> None:
        """Let the thread end after its current element."""
        self._stopped = True
        self._wake()

    def join(self) -> None:
        """Wait for the thread, up to a limit: it ends by itself when the user's
        function returns.
        """
        with self._starting:
            started = self._started
        if started and threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_WITHIN)


@make_iterator.register(Prefetch)
def make_prefetch_iterator(node: Prefetch, context: Context) -> ElementIterator:
    """Return an iterator with a thread; for a buffer size of 0, the input itself."""
    if node.buffer_size == 0:
        return input_iterator(node, context)
    context = context.ahead()
    source = input_iterator(node, context)
    tuning = context.options.autotune
    if node.buffer_size != AUTOTUNE or tuning.enabled is False:
        size = UNTUNED_SIZE if node.buffer_size == AUTOTUNE else node.buffer_size
        return prefetching(source, size, context)
    return prefetching(source, TunedSize(tuning.ram_budget or RAM_BUDGET), context)


def prefetching(
    source: ElementIterator, size: int | BufferSize, context: Context
) -> PrefetchIterator:
    """Return an iterator that reads a source ahead, with the names of elements if a
    later operation asks for them.

    Args:
        source: the iterator.
        size: size of the buffer.
        context: context of the operation, as ``Context.ahead`` returns it.
    """
    carried = carrying(source, context)
    kind = PrefetchIterator if carried is source else NamedPrefetchIterator
    return kind(carried, size, context)


class PrefetchIterator(ElementIterator):
    """Takes from a buffer that a thread fills. The thread starts with the first
    request.

    Its state is a state of the input from before the last element returned, and the
    number of elements returned since.
    """

    def __init__(self, source: ElementIterator, size: int | BufferSize, context: Context) -> None:
        self._source = source
        self._own_threads = context.own_threads
        self._strand, self._own_place = context.reader, context.seen_at
        self._size = BufferSize(size) if isinstance(size, int) else size
        self._pump: _Pump | None = None
        self._ended = False

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        self._strand.place = None
        try:
            element = (self._pump or self._start()).get()
        except StopIteration:
            self._ended = True
            raise
        self._strand.place = self._own_place
        return element

    def _start(self) -> _Pump:
        self._pump = pump = _Pump(self._source, self._size, self._own_threads)
        weakref.finalize(self, pump.stop)
        if self._ended:
            # close() ran meanwhile, and may not have seen the pump.
            pump.stop()
        pump.start()
        return pump

    def start(self) -> None:
        """Start the thread before an element is requested."""
        if self._pump is None and not self._ended:
            self._start()

    def stop(self) -> None:
        """Let the thread end soon, without waiting for it."""
        self._ended = True
        if self._pump is not None:
            self._pump.stop()

    @property
    def is_ready(self) -> bool:
        """True if ``next`` would not wait."""
        return self._ended or (self._pump is not None and self._pump.is_ready)

    def state(self) -> Any:
        if self._pump is None:
            return [self._source.state(), 0, self._ended]
        return [self._pump.mark, self._pump.since, self._ended]

    def restore(self, state: Any) -> None:
        mark, since, self._ended = state
        self._source.restore(mark)
        for _ in range(since):
            if not self._drop():
                break

    def _drop(self) -> bool:
        """Pull and drop the next element; return False at the end."""
        try:
            next(self._source)
        except StopIteration:
            return False
        except Exception as error:
            # The error was raised to the consumer before the state was taken.
            if isinstance(error, DataServiceError) and error.final:
                # For example, the reason why a job could not continue: nothing follows
                # it.
                raise
        return True

    def close(self) -> None:
        self._ended = True
        if self._pump is None:
            self._source.close()
            return
        self._pump.stop()
        self._pump.join()


class NamedPrefetchIterator(CarriedNames, PrefetchIterator):
    """Takes from a buffer that a thread fills, and knows the names of elements."""
