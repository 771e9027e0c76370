"""Threads that share an iterator: a single one at a time runs its operations.

A lock around each element would cost as much as many operations do. A generator is
nearly free, and the interpreter does not resume a generator that is running: it raises
an error in the second thread. Only that thread takes a lock, and waits.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from zmqdata.errors import CancelledError, FailedPreconditionError
from zmqdata.iterators.base import END, Steps, steps_of
from zmqdata.iterators.calling import CLOSED
from zmqdata.iterators.ownthreads import OwnThreads
from zmqdata.machine.forks import lost_in_forks

LONGEST_PAUSE = 0.01
"""Longest pause, in seconds, before another look at a generator that runs."""


_ended: Steps = steps_of(iter(()).__next__)
next(_ended, None)


class Turns:
    """Gives the threads that share an iterator their turns.

    Args:
        steps: returns a generator of the next elements, as ``ElementIterator.steps``
            does. It is called again after an error.
        own_threads: the threads that work for the iterator.

    >>> turns = Turns(lambda: steps_of(iter([5, 6]).__next__))
    >>> take = turns.taker()
    >>> take(), take()
    (5, 6)
    """

    __slots__ = (
        "__weakref__",
        "_is_left",
        "_is_over",
        "_is_shared",
        "_locks",
        "_make_steps",
        "_own_threads",
        "_say",
        "_steps",
    )

    def __init__(self, steps: Callable[[], Steps], own_threads: OwnThreads | None = None) -> None:
        self._make_steps = steps
        self._own_threads = own_threads or OwnThreads({})
        self._steps = steps()
        self._is_over = self._is_shared = self._is_left = False
        self._locks: dict[int, Any] = {}
        self._say: Callable[[Steps], None] = _say_nothing
        lost_in_forks(self)

    def taker(self) -> Callable[[], Any]:
        """Return the function that returns the next element. It is called once, and the
        function does not keep the iterator alive.
        """
        send = self._steps.send

        def take() -> Any:
            try:
                return send(None)
            except StopIteration as end:
                if end.value is END:
                    raise StopIteration from None
            except ValueError as error:
                if not _is_refusal(error):
                    raise
            return self._take_in_turn()

        def say(steps: Steps) -> None:
            nonlocal send
            send = steps.send

        self._say = say
        return take

    def _take_in_turn(self) -> Any:
        """Return the next element after waiting for the other threads."""
        with self._turn():
            while not self._is_over:
                try:
                    element = self._steps.send(None)
                except StopIteration as end:
                    if end.value is END:
                        raise StopIteration from None
                    self._steps = self._make_steps()
                    continue
                except ValueError as error:
                    if not _is_refusal(error):
                        raise
                    self._await_turn()
                    continue
                if not self._is_shared:
                    self._say(self._steps)
                return element
        raise CancelledError(CLOSED)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no thread take an element meanwhile, after waiting for one that does.

        Raises:
            FailedPreconditionError: this thread is taking an element: a function of the
                pipeline or a signal handler has called this.
        """
        with self._turn():
            while not self.is_free():
                self._await_turn()
            yield

    def is_free(self) -> bool:
        """Return True if no thread is taking an element. The next one must then wait
        for the lock.
        """
        try:
            self._steps.close()
        except ValueError as error:
            if not _is_refusal(error):
                raise
            return False
        return True

    def end(self) -> None:
        """Let no thread take another element. A thread that is taking one goes on."""
        self._is_over = True
        self._say(_ended)

    def _turn(self) -> Any:
        """Return the lock of this process. A child of a fork cannot use its parent's,
        which a thread of the parent may have held.
        """
        self._own_threads.check()
        if _is_within(self._steps.gi_frame, sys._getframe()):
            raise FailedPreconditionError(
                "this iterator was used by a function that it was just calling, or by a signal "
                "handler that interrupted it, and it cannot take two elements at the same time in "
                "a thread. Make another iterator for the function, with `iter(dataset)`; let a "
                "signal handler set a flag, and look at the flag between two elements"
            )
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def _await_turn(self) -> None:
        """Wait for a thread that takes an element without the lock. From now on all
        threads take the lock.

        Raises:
            FailedPreconditionError: that thread belongs to the process from which this
                process was forked.
        """
        self._is_shared = True
        self._say(_ended)
        pause = LONGEST_PAUSE / 256
        while self._steps.gi_running and not self._is_over:
            if self._is_left:
                raise FailedPreconditionError(
                    f"process {os.getpid()} was forked while another thread was taking an element "
                    "of this iterator, so the iterator cannot go on here. Make a new one with "
                    "`iter(dataset)` in this process"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def disown(self) -> None:
        """Record in the child of a fork that the generator is left running, if a thread
        ran it that the child lacks. The child has only this thread yet.
        """
        frame = self._steps.gi_frame
        self._is_left = self._steps.gi_running and not _is_within(frame, sys._getframe())


def _say_nothing(steps: Steps) -> None:
    """Stand for an iterator of which nobody takes elements yet."""


def _is_within(frame: FrameType | None, top: FrameType | None) -> bool:
    """Return True if a frame is among those that called ``top``."""
    while top is not None:
        if top is frame:
            return True
        top = top.f_back
    return False


def _is_refusal(error: ValueError) -> bool:
    """Return True if the interpreter raised an error because a generator is running,
    rather than the code in the generator.
    """
    trace = error.__traceback__
    return trace is not None and trace.tb_next is None and "already executing" in str(error)
