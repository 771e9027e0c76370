"""Threads that pull from one iterator, one at a time, and call a function with what
came, all at a time.

The crew knows nothing of the iterator that empties it, so that a forgotten one can be
collected. What is done with outcomes belongs to ``parallel``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.base import ElementIterator, is_end
from zmqdata.iterators.forks import lost_in_forks
from zmqdata.iterators.guarding import Outcome
from zmqdata.threads import Background

_MARK_EVERY = 32
_LOOK_AFTER = 1.0  # seconds after which a waiting consumer looks whether the threads still live
_JOIN_WITHIN = 2.0  # seconds that close() waits for user functions that are running
_LAG = 64  # windows that calls may go on past one that does not return, out of order


class Crew:
    """Calls ``call(number, element)`` for each element of a source, on up to ``size``
    threads.

    A thread is started when all others are busy, so that there are no more than there
    is work for.

    Args:
        source: nothing else may pull from it while the crew works.
        call: makes an outcome of an element; raises nothing.
        ordered: hand outcomes out in the order of the source; else as they come.
        start: the number of the first element to be pulled.
        low: elements with lower numbers were handed out before: they are pulled and
            dropped.
        done: so were these.
    """

    def __init__(
        self,
        source: ElementIterator,
        call: Callable[[int, Any], Outcome],
        ordered: bool,
        start: int = 0,
        low: int = 0,
        done: Iterable[int] = (),
    ) -> None:
        self._source, self._call, self._ordered = source, call, ordered
        self.size = 0
        self.window = 1
        self.low = low
        self.done = set(done)
        self._pulled = self._due = start
        self._marks: deque[tuple[int, Any]] = deque()
        self._results: dict[int, Outcome] = {}  # by number, of an ordered crew
        self._arrived: deque[tuple[int, Outcome]] = deque()  # as they came, of another
        self._end: int | None = None
        self._stopped = False
        self._full = False  # a thread waits for room
        self._waiting = False  # the consumer waits for an outcome
        self._turn = threading.Lock()  # whoever has it pulls
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._hired = False  # ever
        self._working = 0
        self._calling: set[int] = set()  # the elements that threads are busy with
        # While fewer threads than these are busy, nobody looks whether to start one.
        self._enough = 0
        lost_in_forks(self)

    def resize(self, size: int, window: int) -> None:
        """Work on up to ``size`` threads, with up to ``window`` elements pulled and not
        handed out.
        """
        with self._changed:
            self.size, self.window, self._enough = size, window, 0
            if not any(thread.is_alive() for thread in self._threads):
                self._hire()
            self._changed.notify_all()

    def _hire(self) -> None:
        """Start one more thread if there may be one; as many as the system allows if
        those are fewer.
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
        except RuntimeError:  # the system has no more
            self._working -= 1
            if not self._threads:
                raise
            self._enough = self.size
            return
        self._threads.append(thread)
        self._hired = True

    def disown(self) -> None:
        """After a fork, in the child, where the threads are not."""
        if self._hired:
            self._changed, self._turn = threading.Condition(), threading.Lock()
            self._threads, self._working, self._stopped = [], 0, True

    # --- in the threads

    def _work(self, index: int) -> None:
        try:
            while (pulled := self._pull(index)) is not None:
                number, element, error = pulled
                self._calling.add(number)
                if self._enough <= len(self._calling) and self._enough < self.size:
                    with self._changed:
                        self._hire()
                outcome = self._call(number, element) if error is None else (None, error)
                self._calling.discard(number)
                self._deliver(number, outcome)
        finally:
            with self._changed:
                self._working -= 1
                self._enough = 0
                last = self._working == 0 and (self._stopped or self._end is not None)
                self._changed.notify_all()
            if last:
                self._source.close()

    def _pull(self, index: int) -> tuple[int, Any, BaseException | None] | None:
        """The next element, its number, or its failure; None to end the thread."""
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
                except BaseException as raised:  # it belongs to whoever takes the element
                    if is_end(
                        raised
                    ):  # to whoever takes the next one, if those up to here were handed out before
                        return max(number, self.low), None, raised
                    element, error = None, raised
                    self._stopped = self._stopped or not isinstance(raised, Exception)
                self._pulled = number + 1
                if number >= self.low and number not in self.done:
                    return number, element, error
            return None

    def _await_room(self, index: int) -> bool:
        """Whether to pull one more."""
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

    # --- for the consumer

    def take(self) -> tuple[int, Outcome]:
        """The next outcome, with its number; waits for it.

        Raises:
            StopIteration: there is none.
        """
        while not self._is_outcome_there():
            self._await_outcome()
        number, outcome = (
            (self.low, self._results.pop(self.low)) if self._ordered else self._arrived.popleft()
        )
        if outcome[1] is None or not is_end(outcome[1]):
            self._count(number)
        if (
            self._full and self._held() <= self.window - 1 - self.window // 4
        ):  # waking for each would cost more
            with self._changed:
                self._changed.notify_all()
        return number, outcome

    def _count(self, number: int) -> None:
        if self._ordered:
            self.low = number + 1
            return
        # Added before low grows: the threads may look in between, and drop what is in
        # either
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
        # Where nobody works, nothing will come. After a fork somebody seems to, and is
        # not there.
        if self._working == 0 or not (
            arrived or any(thread.is_alive() for thread in self._threads)
        ):
            if self._is_outcome_there():  # it came before the last one left
                return
            raise FailedPreconditionError(
                "the threads of this operation are gone: the iterator was closed, or the program "
                "forked after it was "
                "made. Make a new iterator, after the fork"
            )

    def _is_outcome_there(self) -> bool:
        return self.low in self._results if self._ordered else bool(self._arrived)

    def _is_ready(self) -> bool:
        ended = self._end is not None and self._held() <= 0
        return self._is_outcome_there() or ended or self._working == 0

    def mark(self) -> tuple[int, Any]:
        """A number up to that of the oldest element not handed out, and the source's
        state before it.
        """
        while len(self._marks) > 1 and self._marks[1][0] <= self.low:
            self._marks.popleft()
        return self._marks[0]

    @property
    def has_mark(self) -> bool:
        """Whether a thread has begun to pull."""
        return bool(self._marks)

    def unclaimed(self) -> list[Any]:
        """What was made and not handed out; nothing may work any more."""
        return [
            value
            for value, _ in (*self._results.values(), *(outcome for _, outcome in self._arrived))
        ]

    @property
    def is_ready(self) -> bool:
        """Whether ``take`` would not wait."""
        return self._is_outcome_there()

    def stop(self) -> None:
        """Let the threads end after the calls that they are in. The last one closes the
        source.
        """
        with self._changed:
            unused, self._stopped = not (self._hired or self._stopped), True
            self._changed.notify_all()
        if unused:
            self._source.close()

    def join(self) -> None:
        """Wait for the threads, but not for ever: they end by themselves when the
        user's function returns.
        """
        if threading.current_thread() in self._threads:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._working == 0, _JOIN_WITHIN)
        for thread in self._threads:
            thread.join(0.1)
