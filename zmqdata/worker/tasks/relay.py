"""Tasks that are read in turn also produce in turn. This module decides which task of a
process produces, and for how long.

Otherwise their pipelines would run all at once. Each pipeline, and the worker's loop,
would wait for all others whenever it needs the interpreter. ``worker.tasks.runner``
decides what a task does in its turn.
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
"""Seconds after which a turn ends if another task waits for it."""
LONGEST_ALONE = 0.5
"""Seconds after which a turn ends in any case. Each turn hands over a block for each
consumer. With many consumers, short turns on a busy machine would make it busier.
"""
WORK = 0.01
"""Seconds of work that a turn should take at most. A longer turn may exceed ``LONGEST``
when the machine is busy.
"""
MOST_ELEMENTS = 1 << 14
"""Maximum number of elements in a turn."""


class Runner(Protocol):
    """A task that is run by whichever thread has the turn."""

    @property
    def number(self) -> int:
        """Number of the next element."""

    def may_go_on(self) -> bool:
        """Return True if the task would produce anything, or end."""

    def go_on(self) -> bool:
        """Produce elements for a while. Return True if the task is over."""


class Relay:
    """Runs one of its tasks at a time. Of the tasks that may run, it picks the task
    that has produced least, because its elements are needed first.

    A single thread runs all tasks, which costs less than waking a thread for each. If
    it blocks in a task, or waits there for splits, another thread takes over. The
    number of threads equals the number of tasks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn: Runner | None = None
        # The value is the gate of the thread that has already begun to run the task.
        self._ready: dict[Runner, threading.Lock | None] = {}
        self._resting: set[Runner] = set()
        # Gates of threads without a task; the last was busy most recently.
        self._idle: list[threading.Lock] = []
        self._surplus = 0

    @property
    def is_wanted(self) -> bool:
        """True if a task waits for the turn. Does not need the lock: the task that has
        the turn asks again soon.
        """
        return bool(self._ready)

    def add(self, runner: Runner) -> None:
        """Add a task and start a thread."""
        with self._lock:
            self._ready[runner] = None
        threading.Thread(target=self._carry, name="zmqdata-tasks", daemon=True).start()

    def wake(self, runner: Runner) -> None:
        """Mark a task as able to run. Thread-safe."""
        with self._lock:
            if runner in self._resting and runner.may_go_on():
                self._resting.remove(runner)
                self._ready[runner] = None
                self._stir()

    def leave(self, runner: Runner) -> None:
        """Pass on the turn of a task. Thread-safe, because a task that is stuck cannot
        do it.
        """
        with self._lock:
            if self._turn is runner:
                self._turn = None
                self._stir()

    @contextmanager
    def away(self, runner: Runner) -> Iterator[None]:
        """Let other tasks run while the thread that has the turn waits for something
        else.
        """
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
        """Wait for the turn, and return the task to run. Return None if this thread is
        superfluous.
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
        """Return the task that should have the turn; None if the turn is taken or no
        task is ready.
        """
        return (
            None
            if self._turn is not None
            else min(self._ready, key=lambda one: one.number, default=None)
        )

    def _stir(self) -> None:
        """Wake a thread if it has a task to run. Requires the lock."""
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
    """The relays of a worker by iteration. Only the participating runners keep them
    alive.
    """

    def __init__(self) -> None:
        self._relays: weakref.WeakValueDictionary[int, Relay] = weakref.WeakValueDictionary()

    def of(self, definition: TaskDefinition) -> Relay | None:
        """Return the relay of a task. Return None if clients take whatever is ready
        from any task, instead of reading tasks in turn.
        """
        if definition.job.num_consumers is None:
            return None
        return self._relays.setdefault(definition.iteration, Relay())


class Stint:
    """The length of a task's turn. At its end the task hands over what it has produced.

    A turn ends at a multiple of a power of two of elements. It takes less than ``WORK``
    and fits into a block. Blocks of equally fast tasks then end at the same numbers,
    and a client that merges them in order uses them up together.

    Args:
        work: returns the seconds that this thread has worked.

    Attributes:
        stop: number of the element before which the turn ends.
        began: time at which the turn began.
        few_bytes: maximum size of a block of few elements; no block is larger.
    """

    def __init__(self, work: Callable[[], float] = time.thread_time) -> None:
        self.stop, self.began = 0, math.inf
        self.few_bytes = FEW_BYTES
        self._work = work
        self._length = 1
        self._first, self._since = 0, 0.0

    @property
    def until(self) -> float:
        """Time at which the turn ends if another task waits for it."""
        return self.began + LONGEST

    def begin(self, number: int, now: float) -> None:
        """Begin a turn with element ``number``."""
        self._first, self._since = number, self._work()
        self.stop = (number // self._length + 1) * self._length
        self.began = now

    def is_over(self, number: int, now: float, is_wanted: bool) -> bool:
        """Return True if the turn ends before element ``number``.

        Args:
            number: the next element.
            now: present time.
            is_wanted: True if another task waits for the turn.
        """
        longest = LONGEST if is_wanted else LONGEST_ALONE
        return number >= self.stop or now >= self.began + longest

    def end(self, number: int, size: int, now: float) -> None:
        """End a turn before element ``number``, after producing ``size`` bytes."""
        length, seconds = self._length, self._work() - self._since
        if (number < self.stop and now >= self.until) or seconds > WORK:
            self._length = max(1, length // 2)
        elif number - self._first == length and 2 * seconds < WORK:
            full = (
                self.few_bytes if 2 * length <= FEW_ELEMENTS else min(BLOCK_BYTES, self.few_bytes)
            )
            if size * (2 * length - 1) < full * length:
                self._length = min(MOST_ELEMENTS, 2 * length)
