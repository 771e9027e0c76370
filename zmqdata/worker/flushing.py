"""When runners hand over a block that is not full, because a client waits: at once, but
not again and again.

Each block costs both ends as much as some thousand elements do, a millisecond each
where pipelines keep the cores and the interpreter busy. Where elements take a
millisecond and the client waits for each, to send them one by one would take a fifth of
two cores from the pipelines that make them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

PAUSE = 0.05
"""Seconds between two such blocks of a task. What is made meanwhile goes together; a
full block goes at once.
"""


class Flushed(Protocol):
    """What ``TaskRunner`` is to this module."""

    key: tuple[int, int]

    def flush(self) -> None:
        """Hands over what there is, or else the next element as soon as it is made."""


class Flushes:
    """Flushes tasks for the clients that wait.

    Args:
        later: has a call made after so many seconds.
        clock: the time in seconds.

    >>> class Runner:
    ...     key = (1, 1)
    ...     def flush(self): print("flushed")
    >>> flushes, waiting, runner = Flushes(lambda seconds, call: waiting.append(call), lambda: 0.0), [], Runner()
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
        """A client has nothing of a task in flight."""
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
        """A task has been stopped."""
        self._last.pop(key, None)
        self._asked.pop(key, None)
