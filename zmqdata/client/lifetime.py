"""The end of iterators that no code closes: dropped half-way, left at the end of the
program, or lost in a fork.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import multiprocessing.util
import os
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from zmqdata.transport.loop import Loop

log = logging.getLogger(__name__)

GOODBYE = 3.0
"""Seconds to wait for the goodbye of an iterator that is closed."""
LAST_WORDS = 2.5
"""Seconds that the end of a program waits for the goodbyes of all its iterators
together. Only a goodbye that must be heard keeps the program for longer
(``Goodbye.must_be_heard``).
"""
LOOKS = 0.1
"""Seconds between two looks at whether a dispatcher can still answer."""
WAITS = " The program waits for the answer, for `dispatcher_timeout` but at most 5 minutes."
"""End of the warning that the end of a program waits for a goodbye."""
INTERRUPTED = "An interrupt has ended the wait for the answer of a dispatcher"


class ThreadOwner(Protocol):
    """The owner of an iterator's thread."""

    loop: Loop
    """Runs the thread."""

    def ask_to_close(self) -> None:
        """Say goodbye in the background."""

    def is_hopeless(self) -> bool:
        """Return True if no dispatcher is there to answer the goodbye."""

    def lost(self) -> tuple[str, bool]:
        """Return what is lost without an answer, an empty text if nothing is, and
        whether the end of the program waits until the goodbye is over.
        """


class Leaving(Protocol):
    """An iterator with a thread."""

    def leave(self) -> bool:
        """End the iterator, and let it say goodbye in the background. Return False if
        it has ended before.
        """

    def after_fork(self) -> None:
        """Forget, in a child of a fork, what belongs to the parent."""


alive: weakref.WeakSet[Leaving] = weakref.WeakSet()
abandoned: dict[Loop, ThreadOwner] = {}
before_goodbyes: list[Callable[[], None]] = []
after_goodbyes: list[Callable[[], None]] = []
"""Called at the end of the program, before and after its iterators say goodbye."""
after_reading: list[Callable[[], None]] = []
"""Called when an iterator has ended or was closed, and before it raises what a function
of the pipeline has raised.
"""
_closes_at_exit = 0  # the child process of multiprocessing that runs _close_all at its end


def begin(iterator: Leaving) -> None:
    """Close an iterator at the end of this process, if it still reads then."""
    global _closes_at_exit
    alive.add(iterator)
    # A child process of multiprocessing does not run what atexit has. Without a goodbye
    # other readers would wait for it until it counts as dead.
    if multiprocessing.parent_process() is not None and _closes_at_exit != os.getpid():
        _closes_at_exit = os.getpid()
        multiprocessing.util.Finalize(None, _close_all, exitpriority=10)


def call(hooks: list[Callable[[], None]]) -> None:
    """Call functions, all of them although one fails."""
    for hook in hooks:
        try:
            hook()
        except Exception:
            log.exception("%r failed at the end of an iterator or of the program", hook)


def abandon(shell: ThreadOwner, pid: int) -> None:
    """Let an iterator say goodbye that was dropped half-way.

    Does not wait, because the garbage collector may call it anywhere.
    """
    if os.getpid() == pid and shell.loop.thread.is_alive():
        # The process may be about to end, as after Ctrl-C. It then waits until the
        # goodbye is said.
        abandoned[shell.loop] = shell
        shell.ask_to_close()


def _close_all() -> None:
    call(before_goodbyes)
    try:
        _say_goodbyes()
    except KeyboardInterrupt:
        log.warning(INTERRUPTED)
    call(after_goodbyes)


def end_before_others() -> None:
    """Say all goodbyes at the end of the program before the exit handlers that are
    registered now.
    """
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _say_goodbyes() -> None:
    ends = time.monotonic() + LAST_WORDS
    for iterator in list(alive):
        iterator.leave()
    waiting, patient = abandoned.copy(), list[Loop]()
    while waiting:
        next(iter(waiting)).join(LOOKS)
        is_late = time.monotonic() >= ends
        for loop, owner in list(waiting.items()):
            if loop.join(0.0):
                del waiting[loop]
            elif is_late or owner.is_hopeless():
                del waiting[loop]
                lost, must_be_heard = owner.lost()
                if must_be_heard:
                    patient.append(loop)
                if lost:
                    log.warning("%s%s", lost, WAITS if must_be_heard else "")
    for loop in patient:
        loop.join()


def _disown_all() -> None:
    abandoned.clear()
    for iterator in list(alive):
        iterator.after_fork()


end_before_others()
os.register_at_fork(after_in_child=_disown_all)
