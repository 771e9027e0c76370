"""What becomes of iterators that nobody closes: dropped half-way, left at the end of
the program, or lost in a fork.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from zmqdata.transport.loop import Loop

GOODBYE = 3.0
"""Seconds to wait for a goodbye."""
LAST_WORDS = 15.0
"""Seconds that the end of a program waits for a dispatcher that is away, to report what
was read last.
"""


class ThreadOwner(Protocol):
    """What runs the thread of an iterator."""

    loop: Loop

    def ask_to_close(self) -> None:
        """Says goodbye in the background."""


class Closable(Protocol):
    """An iterator with a thread."""

    def close(self) -> None:
        """Ends it, and waits for its goodbye."""

    def after_fork(self) -> None:
        """Forgets, in a child of fork, what is the parent's."""


alive: weakref.WeakSet[Closable] = weakref.WeakSet()
abandoned: set[Loop] = set()


def abandon(shell: ThreadOwner, pid: int) -> None:
    """The iterator was dropped half-way. Not waited for: this runs wherever the garbage
    collector does.
    """
    if os.getpid() == pid and shell.loop.thread.is_alive():
        # The process may be about to end, as after Ctrl-C; the goodbye must have been
        # said by then.
        abandoned.add(shell.loop)
        shell.ask_to_close()


def _close_all() -> None:
    for iterator in list(alive):
        iterator.close()
    for loop in abandoned.copy():
        loop.join(LAST_WORDS)


def _disown_all() -> None:
    abandoned.clear()
    for iterator in list(alive):
        iterator.after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_disown_all)
