"""A thread that reads a dataset's iterator ahead of a training loop, and prepares each
element for it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeAlias
from weakref import WeakSet

from zmqdata.dataset.resuming import DatasetIterator
from zmqdata.errors import CancelledError
from zmqdata.iterators.calling import CLOSED, is_end
from zmqdata.machine.threads import Background

State: TypeAlias = "dict[str, Any]"
"""State of a dataset's iterator, as ``state_dict`` returns it."""

JOIN_WITHIN = 2.0
"""Seconds for which ``join`` waits for a function of the user."""
LET_READ = 5.0
"""Seconds for which ``pause`` waits for the element that is being read."""


@dataclass(frozen=True)
class _Fed:
    """An element that was read, or the error in its place."""

    element: Any
    """The prepared element; None beside an error."""
    error: BaseException | None
    """The error; None beside an element."""
    place: Callable[[], State]
    """Returns the state of the source after it."""


class Feed:
    """Reads elements in a thread, prepares them, and holds them in order. The owner
    ends it by ``weakref.finalize``, because the thread keeps a feed alive, but not its
    owner.

    The thread begins with the first call of ``take``. It begins to read an element only
    if there is room for it, so that no more than ``most`` are held, the element being
    read included.

    Args:
        source: the dataset's iterator.
        prepare: makes of an element what ``take`` returns.
        most: limit of elements held. 0: there is no thread, and ``take`` reads.
        settings: returns a context for the thread.

    >>> from zmqdata.dataset import Dataset
    >>> feed = Feed(iter(Dataset.range(3)), float, 2)
    >>> feed.take(), feed.place()["position"]
    (0.0, 1)
    >>> feed.end(); feed.join()
    """

    def __init__(
        self,
        source: DatasetIterator,
        prepare: Callable[[Any], Any],
        most: int,
        settings: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._source = source
        self._prepare = prepare
        self._most = most
        self._settings = settings
        self._held: deque[_Fed] = deque()
        self._changed = threading.Condition()
        self._turn = threading.Lock()  # held by a caller that reads by itself
        self._thread: Background | None = None
        self._is_reading = self._is_paused = self._has_ended = False
        self._is_over = not most  # True once the thread reads no more
        self._process = os.getpid()
        self.place: Callable[[], State] = _noted(source)
        """Returns the state of the source after the last element taken."""
        _feeds.add(self)

    def take(self) -> Any:
        """Wait for the next element and return it, or raise its error.

        Raises:
            CancelledError: another thread has ended this feed.
        """
        fed = self._first() or self._read_here()
        if fed.error is None:
            return fed.element
        try:
            raise fed.error
        finally:
            del fed  # the traceback of its error holds this frame

    def _first(self) -> _Fed | None:
        """Take the first element held. Return None if the thread reads no more."""
        with self._changed:
            if self._thread is None and not (self._is_over or self._has_ended):
                self._thread = Background(target=self._run, name="zmqdata-feed", daemon=True)
                self._thread.start()
            while not self._held:
                if self._has_ended:
                    raise CancelledError(CLOSED)
                if self._is_over:
                    return None
                self._changed.wait()
            fed = self._held.popleft()
            self.place = fed.place
            self._changed.notify_all()
            return fed

    def _read_here(self) -> _Fed:
        with self._turn:
            fed = self._read()
            self.place = fed.place
            return fed

    def _read(self) -> _Fed:
        element: Any = None
        error: BaseException | None = None
        try:
            element = self._prepare(next(self._source))
        except BaseException as raised:
            # The error belongs to the caller that takes the element.
            error = raised
        return _Fed(element, error, _noted(self._source))

    # --- called by the thread

    def _run(self) -> None:
        try:
            with self._settings():
                while self._may_read() and self._hold_next():
                    pass
        finally:
            self._finish()

    def _may_read(self) -> bool:
        """Wait for room; return False if nothing is to be read any more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._has_ended or not (self._is_paused or len(self._held) >= self._most)
            )
            self._is_reading = not self._has_ended
            return self._is_reading

    def _hold_next(self) -> bool:
        """Read an element and hold it; return False if no other follows."""
        fed = self._read()
        with self._changed:
            self._is_reading = False
            if not self._has_ended:
                self._held.append(fed)
            self._changed.notify_all()
        return fed.error is None or not is_end(fed.error)

    def _finish(self) -> None:
        with self._changed:
            self._is_over, self._is_reading = True, False
            self._changed.notify_all()
            has_ended = self._has_ended
        if has_ended and not self._is_paused:
            self._source.close()

    # --- called by the owner

    def pause(self) -> None:
        """Let the thread begin no other element, and wait for the present one.

        A thread that takes longer waits within the source. Loading a state of the
        source ends that.
        """
        with self._changed:
            self._is_paused = True
            self._changed.wait_for(lambda: not self._is_reading, LET_READ)

    def resume(self) -> None:
        """Let the thread read on after ``pause``."""
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    def end(self) -> None:
        """Drop all elements and let the thread end. It closes the source, unless this
        feed is paused: another feed has the source then.
        """
        if self._process != os.getpid():
            return  # a thread of the parent may have held the lock
        with self._changed:
            self._has_ended = True
            self._held.clear()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the thread, up to a limit: a function of the user may still run."""
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(JOIN_WITHIN)

    def leave(self) -> None:
        """End with the program. A thread that is within another library while the
        interpreter ends may make the program abort.
        """
        if self._process == os.getpid():
            self.end()
            self._source.close()
            self.join()


_feeds: WeakSet[Feed] = WeakSet()


@atexit.register
def _leave_all() -> None:
    for feed in list(_feeds):
        feed.leave()


def _noted(source: DatasetIterator) -> Callable[[], State]:
    """Return a function that returns the state of the present position, or raises the
    reason why there is none.
    """
    try:
        return source.bookmark()
    except Exception as error:
        return partial(_raise, error)


def _raise(error: Exception) -> NoReturn:
    raise error
