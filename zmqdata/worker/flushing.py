"""The times at which runners hand over an incomplete block because a client waits: at
once, but not too often.

Each block costs both ends as much as about a thousand elements: a millisecond each, if
pipelines keep the cores and the interpreter busy. If elements take a millisecond and
the client waits for each, sending them individually would take a fifth of two cores
from the pipelines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

PAUSE = 0.05
"""Minimum number of seconds between two such blocks of a task. Elements produced
meanwhile travel together. A full block is sent at once.
"""


class Flushed(Protocol):
    """The part of ``TaskRunner`` that this module uses."""

    key: tuple[int, int]
    """Task and attempt."""

    def flush(self) -> None:
        """Hand over what is collected, or otherwise the next element as soon as it is
        produced.
        """


class Flushes:
    """Flushes tasks for clients that wait.

    Args:
        later: schedules a call after a number of seconds.
        clock: returns the time in seconds.

    >>> class Runner:
    ...     key = (1, 1)
    ...     def flush(self): print("flushed")
    >>> waiting, runner = [], Runner()
    >>> flushes = Flushes(lambda seconds, call: waiting.append(call), lambda: 0.0)
    >>> for _ in range(3): flushes.ask(runner)
    flushed
    >>> len(waiting), waiting[0]()
    flushed
    (1, None)
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._later = later
        self._clock = clock
        self._last: dict[tuple[int, int], float] = {}
        self._asked: dict[tuple[int, int], Flushed] = {}

    def ask(self, runner: Flushed) -> None:
        """Flush a task of which a client has nothing in flight, now or after a
        pause.
        """
        if runner.key in self._asked:
            return
        now = self._clock()
        wait = self._last.get(runner.key, now - PAUSE) + PAUSE - now
        if wait <= 0:
            self._last[runner.key] = now
            runner.flush()
        else:
            self._asked[runner.key] = runner
            self._later(wait, lambda: self._flush(runner.key))

    def _flush(self, key: tuple[int, int]) -> None:
        runner = self._asked.pop(key, None)
        if runner is not None:
            self._last[key] = self._clock()
            runner.flush()

    def forget(self, key: tuple[int, int]) -> None:
        """Forget a task that was stopped."""
        self._last.pop(key, None)
        self._asked.pop(key, None)
