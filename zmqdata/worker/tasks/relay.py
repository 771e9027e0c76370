"""Tasks that are read in turn are made in turn: which of those in one process makes
elements, and for how long.

Their pipelines would otherwise run all at once, and each of them, and the worker's
loop, would wait for all others whenever it needs the interpreter. What a task does in
its turn is the runner's affair.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from zmqdata.core.credit import FEW_BYTES
from zmqdata.messages import TaskDefinition
from zmqdata.worker.tasks.output import BLOCK_BYTES, FEW_ELEMENTS

LONGEST = 0.02
"""Seconds after which another task may go on."""
WORK = 0.01
"""Seconds of work in which that is not worth while: others on the machine may make it
last longer.
"""
MOST_ELEMENTS = 1 << 14


class Runner(Protocol):
    """A task that is carried on by whichever thread has the turn."""

    @property
    def number(self) -> int:
        """Of the element that it makes next."""

    def may_go_on(self) -> bool:
        """Whether it would make anything, or end."""

    def go_on(self) -> bool:
        """Makes elements for a while; True when that was the last time."""


class Relay:
    """One of its tasks at a time goes on: of those that may the one that has made
    least, as it is needed first.

    One thread carries them all on, which costs less than to wake one for each. When it
    gets stuck in a task, or waits there for splits, another takes over: there are as
    many as there are tasks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn: Runner | None = None
        self._ready: dict[
            Runner, threading.Lock | None
        ] = {}  # of one that a thread is in the midst of, its gate
        self._resting: set[Runner] = set()
        self._idle: list[
            threading.Lock
        ] = []  # gates of threads without a task; the last one was busy last
        self._surplus = 0

    def add(self, runner: Runner) -> None:
        """Takes a task in, and has it begin."""
        with self._lock:
            self._ready[runner] = None
        threading.Thread(target=self._carry, name="zmqdata-tasks", daemon=True).start()

    def wake(self, runner: Runner) -> None:
        """It may go on now. From any thread."""
        with self._lock:
            if runner in self._resting and runner.may_go_on():
                self._resting.remove(runner)
                self._ready[runner] = None
                self._stir()

    def leave(self, runner: Runner) -> None:
        """Gives its turn to another. From any thread: who is stuck cannot do it."""
        with self._lock:
            if self._turn is runner:
                self._turn = None
                self._stir()

    @contextmanager
    def away(self, runner: Runner) -> Iterator[None]:
        """While the thread that has the turn waits for something else, others go on."""
        self.leave(runner)
        yield
        gate = _closed()
        with self._lock:
            self._ready[runner] = gate
            self._stir()
        gate.acquire()

    def _carry(self) -> None:
        while (runner := self._await_task()) is not None:
            is_over = runner.go_on()
            with self._lock:
                if self._turn is runner:
                    self._turn = None
                if is_over:
                    self._surplus += 1
                elif runner.may_go_on():
                    self._ready[runner] = None
                else:
                    self._resting.add(runner)

    def _await_task(self) -> Runner | None:
        """The task to go on with, which has the turn then; None when there are threads
        enough without this one.
        """
        while True:
            with self._lock:
                if self._surplus:
                    self._surplus -= 1
                    self._stir()
                    return None
                runner = self._next()
                if runner is not None and self._ready[runner] is None:
                    del self._ready[runner]
                    self._turn = runner
                    return runner
                gate = _closed()
                self._stir()
                self._idle.append(gate)
            gate.acquire()

    def _next(self) -> Runner | None:
        """Who should have the turn, if nobody has it."""
        return (
            None
            if self._turn is not None
            else min(self._ready, key=lambda one: one.number, default=None)
        )

    def _stir(self) -> None:
        """Wakes a thread if there is something to do for it. The lock is held."""
        runner = self._next()
        if runner is None:
            return
        gate = self._ready[runner]
        if gate is not None:
            del self._ready[runner]
            self._turn = runner
            gate.release()
        elif self._idle:
            self._idle.pop().release()


def _closed() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


class Relays:
    """The relays of one worker, by iteration; kept by the runners that take part."""

    def __init__(self) -> None:
        self._relays: weakref.WeakValueDictionary[int, Relay] = weakref.WeakValueDictionary()

    def of(self, definition: TaskDefinition) -> Relay | None:
        """The relay of a task; None for one of those from which clients take what is
        there, not what is next.
        """
        if definition.num_consumers is None:
            return None
        return self._relays.setdefault(definition.iteration, Relay())


class Stint:
    """How far a task goes before it hands over what it has made and gives the next one
    a turn.

    To a multiple of a power of two of elements, which takes less than ``WORK`` and fits
    into a block. So the blocks of tasks that are as fast end at the same numbers, and
    whoever weaves them into one order uses them up together.

    Args:
        work: how many seconds this thread has worked.

    Attributes:
        stop: the number of the element before which it ends.
        until: when it ends in any case.
        few_bytes: what a block of few elements may hold; none holds more.
    """

    def __init__(self, work: Callable[[], float] = time.thread_time) -> None:
        self.stop, self.until = 0, math.inf
        self.few_bytes = FEW_BYTES
        self._work = work
        self._length = 1
        self._first, self._since = 0, 0.0

    def begin(self, number: int, now: float) -> None:
        """Begins with element ``number``."""
        self._first, self._since = number, self._work()
        self.stop = (number // self._length + 1) * self._length
        self.until = now + LONGEST

    def end(self, number: int, size: int, now: float) -> None:
        """Ends before element ``number``, with so many bytes made."""
        length, seconds = self._length, self._work() - self._since
        if (number < self.stop and now >= self.until) or seconds > WORK:
            self._length = max(1, length // 2)
        elif number - self._first == length and 2 * seconds < WORK:
            full = (
                self.few_bytes if 2 * length <= FEW_ELEMENTS else min(BLOCK_BYTES, self.few_bytes)
            )
            if size * (2 * length - 1) < full * length:
                self._length = min(MOST_ELEMENTS, 2 * length)
