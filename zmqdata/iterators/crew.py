"""Threads that pull from an iterator, one at a time, and process the elements
concurrently.

The crew holds no reference to the iterator that consumes its results, so that an
abandoned iterator can be collected. The treatment of outcomes belongs to ``parallel``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.base import ElementIterator
from zmqdata.iterators.calling import is_end
from zmqdata.iterators.guarding import Outcome
from zmqdata.iterators.ownthreads import OwnThreads, QueueFill
from zmqdata.machine.forks import lost_in_forks
from zmqdata.machine.threads import Background

_MARK_EVERY = 32
_LOOK_AFTER = 1.0  # seconds after which a waiting consumer checks that the threads are alive
_JOIN_WITHIN = 2.0  # seconds that close() waits for user functions in progress
_LAG = 64  # windows that calls may advance past a call that does not return, out of order


class Crew:
    """Calls ``call(number, element)`` for each element of a source, on up to ``size``
    threads.

    A thread starts only when all others are busy, so the number of threads follows the
    work.

    Args:
        source: the input; only the crew may pull from it while it works.
        call: makes an outcome of an element; must not raise.
        ordered: True to return outcomes in the order of the source, False in the order
            of completion.
        start: number of the first element to pull.
        low: elements with lower numbers were returned earlier: they are pulled and
            dropped.
        done: numbers from ``low`` on that were also returned earlier.
        own_threads: what the threads enter, and where they publish what they do.
        may_reorder: True if the user may let outcomes come in the order of completion.
    """

    def __init__(
        self,
        source: ElementIterator,
        call: Callable[[int, Any], Outcome],
        ordered: bool,
        start: int = 0,
        low: int = 0,
        done: Iterable[int] = (),
        own_threads: OwnThreads | None = None,
        may_reorder: bool = False,
    ) -> None:
        self._source, self._call, self._ordered = source, call, ordered
        self._own_threads = own_threads or OwnThreads({})
        self._may_reorder = ordered and may_reorder
        self.size = 0
        self.window = 1
        self.low = low
        self.done = set(done)
        self._pulled = self._due = start
        self._marks: deque[tuple[int, Any]] = deque()
        self._results: dict[int, Outcome] = {}  # by number, if ordered
        self._arrived: deque[tuple[int, Outcome]] = deque()  # in order of arrival, if not ordered
        self._end: int | None = None
        self._stopped = False
        self._full = False  # True while a thread waits for room
        self._waiting = False  # True while the consumer waits for an outcome
        self._turn = threading.Lock()  # held by the thread that pulls
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._hired = False  # True once any thread was started
        self._working = 0
        self._calling: set[int] = set()  # elements that threads are processing
        # While fewer threads than this are busy, no thread checks whether to start
        # another.
        self._enough = 0
        lost_in_forks(self)
        self._own_threads.fill(self)

    @property
    def fill(self) -> QueueFill:
        """Outcomes that are ready, and whether they wait for an earlier one."""
        is_held_up = self._may_reorder and self._full and not self._is_outcome_there()
        return QueueFill(len(self._results) + len(self._arrived), self.window, is_held_up)

    def resize(self, size: int, window: int) -> None:
        """Use up to ``size`` threads, with up to ``window`` elements pulled but not yet
        returned.
        """
        with self._changed:
            self.size, self.window, self._enough = size, window, 0
            if not any(thread.is_alive() for thread in self._threads):
                self._hire()
            self._changed.notify_all()

    def _hire(self) -> None:
        """Start another thread if ``size`` allows; keep the current threads if the
        system has no more.
        """
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        names = {thread.name for thread in self._threads}
        index = next(
            (index for index in range(self.size) if f"zmqdata-map-{index}" not in names), self.size
        )
        self._enough = min(len(self._threads) + 1, self.size)
        if index >= self.size or self._end is not None or self._stopped:
            return
        thread = Background(
            target=self._work, args=(index,), name=f"zmqdata-map-{index}", daemon=True
        )
        self._working += 1
        try:
            thread.start()
        except RuntimeError:
            # The system has no more threads.
            self._working -= 1
            if not self._threads:
                raise
            self._enough = self.size
            return
        self._threads.append(thread)
        self._hired = True

    def disown(self) -> None:
        """Drop the threads and locks in the child of a fork, which does not have the
        threads.
        """
        if self._hired:
            self._changed, self._turn = threading.Condition(), threading.Lock()
            self._threads, self._working, self._stopped = [], 0, True
            self._own_threads.disown()

    # --- called by the threads

    def _work(self, index: int) -> None:
        try:
            with self._own_threads:
                self._serve(index)
        finally:
            with self._changed:
                self._working -= 1
                self._enough = 0
                last = self._working == 0 and (self._stopped or self._end is not None)
                self._changed.notify_all()
            if last:
                self._source.close()

    def _serve(self, index: int) -> None:
        strand, place = self._own_threads.new_strand(), self._own_threads.seen_at
        while (pulled := self._pull(index)) is not None:
            number, element, error = pulled
            self._calling.add(number)
            if self._enough <= len(self._calling) and self._enough < self.size:
                with self._changed:
                    self._hire()
            strand.place = place
            outcome = self._call(number, element) if error is None else (None, error)
            strand.place = None
            self._calling.discard(number)
            self._deliver(number, outcome)
            # A raised error leads to the frames that it passed, among them the
            # consumer's: a thread that waits must not keep an abandoned iterator.
            del pulled, element, error, outcome

    def _pull(self, index: int) -> tuple[int, Any, BaseException | None] | None:
        """Return the next element with its number, or its failure; None to end the
        thread.
        """
        with self._turn:
            while self._await_room(index):
                number = self._pulled
                try:
                    if number >= self._due:
                        self._marks.append((number, self._source.state()))
                        self._due = number + _MARK_EVERY
                    element, error = next(self._source), None
                except StopIteration:
                    self._finish(number)
                    return None
                except BaseException as raised:
                    # The error belongs to the consumer that takes the element.
                    if is_end(raised):
                        # Report it with the next element if the earlier elements were
                        # returned before.
                        return max(number, self.low), None, raised
                    element, error = None, raised
                    self._stopped = self._stopped or not isinstance(raised, Exception)
                finally:
                    self._own_threads.strand.place = None
                self._pulled = number + 1
                if number >= self.low and number not in self.done:
                    return number, element, error
            return None

    def _await_room(self, index: int) -> bool:
        """Wait for room; return True to pull another element."""
        if self._has_room() and not self._is_over(index):
            return True
        with self._changed:
            self._full = True
            self._changed.wait_for(lambda: self._has_room() or self._is_over(index))
            self._full = False
        return not self._is_over(index)

    def _has_room(self) -> bool:
        return self._held() < self.window and self._pulled - self.low < _LAG * self.window

    def _held(self) -> int:
        return self._pulled - self.low - len(self.done)

    def _is_over(self, index: int) -> bool:
        return self._stopped or self._end is not None or index >= self.size

    def _finish(self, number: int) -> None:
        with self._changed:
            self._end = number
            self._changed.notify_all()

    def _deliver(self, number: int, outcome: Outcome) -> None:
        if self._ordered:
            self._results[number] = outcome
            awaited = number == self.low
        else:
            self._arrived.append((number, outcome))
            awaited = True
        if awaited and self._waiting:
            with self._changed:
                self._changed.notify_all()

    # --- called by the consumer

    def take(self) -> tuple[int, Outcome]:
        """Wait for the next outcome, and return it with its number.

        Raises:
            StopIteration: the source has ended.
            FailedPreconditionError: this thread belongs to the crew.
        """
        self._own_threads.check()
        while not self._is_outcome_there():
            self._await_outcome()
        number, outcome = (
            (self.low, self._results.pop(self.low)) if self._ordered else self._arrived.popleft()
        )
        if outcome[1] is None or not is_end(outcome[1]):
            self._count(number)
        if self._full and self._held() <= self.window - 1 - self.window // 4:
            # Waking the threads for each outcome would cost more.
            with self._changed:
                self._changed.notify_all()
        return number, outcome

    def _count(self, number: int) -> None:
        if self._ordered:
            self.low = number + 1
            return
        # Added before ``low`` grows: a thread that reads in between drops any number
        # found in either.
        done = self.done
        done.add(number)
        while self.low in done:
            self.low += 1
            done.discard(self.low - 1)

    def _await_outcome(self) -> None:
        with self._changed:
            self._waiting = True
            arrived = self._changed.wait_for(self._is_ready, _LOOK_AFTER)
            self._waiting = False
        if self._is_outcome_there():
            return
        if self._end is not None and self._held() <= 0:
            raise StopIteration
        # Without a working thread no outcome will come. After a fork, ``_working``
        # still counts threads that the child lacks.
        if self._working == 0 or not (
            arrived or any(thread.is_alive() for thread in self._threads)
        ):
            if self._is_outcome_there():
                # The outcome arrived before the last thread ended.
                return
            raise FailedPreconditionError(
                "The threads of this operation are gone: the iterator was closed, or the program "
                "forked after it was made. Make a new iterator after the fork"
            )

    def _is_outcome_there(self) -> bool:
        return self.low in self._results if self._ordered else bool(self._arrived)

    def _is_ready(self) -> bool:
        ended = self._end is not None and self._held() <= 0
        return self._is_outcome_there() or ended or self._working == 0

    def mark(self) -> tuple[int, Any]:
        """Return a number no higher than that of the oldest element not yet returned,
        and the source's state before that element.
        """
        while len(self._marks) > 1 and self._marks[1][0] <= self.low:
            self._marks.popleft()
        return self._marks[0]

    @property
    def has_mark(self) -> bool:
        """True if a thread has begun to pull."""
        return bool(self._marks)

    def unclaimed(self) -> list[Any]:
        """Return the results that were not taken. Call it only after all threads have
        ended.
        """
        return [
            value
            for value, _ in (*self._results.values(), *(outcome for _, outcome in self._arrived))
        ]

    @property
    def is_ready(self) -> bool:
        """True if ``take`` would not wait."""
        return self._is_outcome_there()

    def stop(self) -> None:
        """Let the threads end after their current calls. The last thread closes the
        source.
        """
        with self._changed:
            unused, self._stopped = not (self._hired or self._stopped), True
            self._changed.notify_all()
        if unused:
            self._source.close()

    def join(self) -> None:
        """Wait for the threads, up to a limit: a thread ends by itself when the user's
        function returns.
        """
        if threading.current_thread() in self._threads:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._working == 0, _JOIN_WITHIN)
        for thread in self._threads:
            thread.join(0.1)
