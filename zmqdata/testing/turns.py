"""Turns of real task runners on a simulated clock. User code runs while the clock
stands still.

A pipeline may wait for splits anywhere in its stack. Each task therefore has a thread
of its own, and gives back its turn while it waits. The clock's thread and the threads
of all tasks never run at the same time, so a run is repeatable.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zmqdata.core.worker import events as e
from zmqdata.messages import TaskDefinition
from zmqdata.testing.clock import Clock
from zmqdata.worker.tasks.relay import Relay, Relays, Runner
from zmqdata.worker.tasks.runner import TaskRunner

TURN_SECONDS = 60.0
"""Real seconds that user code may take for one turn."""


class StuckPipeline(RuntimeError):
    """A pipeline waits for an event that simulated time does not bring."""


class TaskTurns(Relay):
    """Gives a real ``TaskRunner`` its turns, each of which takes simulated time.

    Threads that a pipeline starts itself run in real time, during turns. When such a
    thread waits for splits, the clock advances until the splits arrive, and then stands
    still until the turn ends.

    Args:
        clock: the simulated time.
        pace: returns the simulated seconds that an element takes now.
        hear: receives the events of the runner, in the clock's thread.
        turn_seconds: real seconds that user code may take for one turn.
    """

    def __init__(
        self,
        clock: Clock,
        pace: Callable[[], float],
        hear: Callable[[e.WorkerEvent], None],
        turn_seconds: float = TURN_SECONDS,
    ) -> None:
        self.is_over = False
        self._turn_seconds = turn_seconds
        self._clock = clock
        self._pace = pace
        self._hear = hear
        self._talk: queue.SimpleQueue[e.WorkerEvent | SplitsAwaited | TurnEnded] = (
            queue.SimpleQueue()
        )
        self._gate: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._runner: TaskRunner | None = None
        # Number of entries in the ledger of a source when it began to wait for more.
        self._awaited: dict[int, int] = {}
        self._has_turn = self._is_away = self._gave_back = False
        self._is_planned = self._is_halted = False
        self._first = 0
        self._rests_until = 0.0

    # --- called by the runner

    @property
    def is_wanted(self) -> bool:
        return True  # whatever waits for simulated time

    def add(self, runner: Runner) -> None:
        """Accept the runner, and start it."""
        assert isinstance(runner, TaskRunner)
        self._runner = runner
        name = f"zmqdata-task-{runner.key[0]}"
        self._thread = threading.Thread(target=self._carry, name=name, daemon=True)
        self._plan(0.0)

    def wake(self, runner: Runner) -> None:
        """Plan a turn, unless the task has its turn already."""
        if not self._has_turn:
            self._plan(0.0)

    def leave(self, runner: Runner) -> None:
        """Do nothing, because a turn ends in the task's own thread."""

    @contextmanager
    def away(self, runner: Runner) -> Iterator[None]:
        """Cover the time in which a source waits for splits. The clock advances once
        the source has requested them.
        """
        self._is_away = True
        try:
            yield
        finally:
            self._is_away = False
            if self._gave_back:
                self._gate.get()
                self._gave_back = False

    def work(self) -> float:
        """Return the simulated seconds of work that all elements so far have taken."""
        return 0.0 if self._runner is None else self._runner.number * self._pace()

    def post(self, event: e.WorkerEvent) -> None:
        """Receive an event of the runner, from any thread."""
        mine = threading.current_thread() is self._thread
        awaited = None
        if isinstance(event, e.SplitsWanted) and event.waiting:
            awaited = SplitsAwaited(event.source, event.have, mine)
        with self._lock:
            if not self._has_turn:
                self._hear_late(event)
                if awaited is not None:
                    self._note(awaited)
                return
            self._talk.put(event)
            if awaited is not None and (self._is_away or not mine):
                # Only the thread that has the turn may clear what it has noted.
                self._gave_back = self._gave_back or mine
                self._talk.put(awaited)

    def _hear_late(self, event: e.WorkerEvent) -> None:
        """Have the clock deliver an event that comes between two turns."""
        self._clock.after(0.0, lambda: self._hear(event))

    def _note(self, awaited: SplitsAwaited) -> None:
        self._awaited[awaited.source] = awaited.have

    def _lacks(self, source: int, have: int) -> bool:
        """Return True if a source has received nothing since it had ``have`` entries.

        The ledger tells it. Splits that were requested ahead may arrive before the
        clock's thread learns that the source waits.
        """
        assert self._runner is not None
        return self._runner.providers[source].length <= have

    # --- in the thread of the task

    def _carry(self) -> None:
        runner = self._runner
        assert runner is not None
        self._gate.get()
        while not runner.go_on():
            self._talk.put(TurnEnded(False))
            self._gate.get()
        self._talk.put(TurnEnded(True))

    # --- in the thread of the clock

    def fed(self) -> None:
        """Continue the task if no source waits for splits any more."""
        self._plan(0.0)

    def halt(self) -> None:
        """Let a runner that was told to stop come to its end."""
        self._is_halted = True
        self._plan(0.0)

    def finish(self) -> None:
        """Halt the runner, and return when the thread of the task has ended."""
        self._is_halted = True
        if self._thread is None or self._thread.ident is None:
            self.is_over = True
        while not self.is_over:
            self._take_turn()

    def _plan(self, seconds: float) -> None:
        """Schedule the next turn so many seconds from now, but not before the last turn
        has taken its time.
        """
        if not self._is_planned and not self.is_over:
            self._is_planned = True
            rest = 0.0 if self._is_halted else self._rests_until - self._clock.now
            self._clock.after(max(seconds, rest), self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_planned = False
        if not self.is_over:
            self._take_turn()

    def _take_turn(self) -> None:
        """Continue the task, unless one of its sources still waits for splits."""
        runner = self._runner
        assert runner is not None
        with self._lock:
            waits = any(self._lacks(*one) for one in self._awaited.items())
            if waits and not self._is_halted:
                return
            self._awaited.clear()
            had_turn = self._has_turn
            # A turn that was given back goes on, even if nothing more may be produced.
            self._has_turn = had_turn or self._gave_back or runner.may_go_on()
        if not self._has_turn:
            return
        if not had_turn:
            self._first = runner.number
            self._give_turn()
        self._await_turn()

    def _give_turn(self) -> None:
        assert self._thread is not None
        if self._thread.ident is None:
            self._thread.start()
        self._gate.put(None)

    def _await_turn(self) -> None:
        """Handle the task's events until it ends its turn or waits for splits."""
        while True:
            told = self._next_told()
            if isinstance(told, TurnEnded):
                self._end_turn(told)
                return
            if not isinstance(told, SplitsAwaited):
                self._hear(told)
            elif self._is_halted or not self._lacks(told.source, told.have):
                if told.gave_back:
                    self._gate.put(None)  # its wait is over
            else:
                with self._lock:
                    self._note(told)
                    self._has_turn = not told.gave_back
                return

    def _next_told(self) -> e.WorkerEvent | SplitsAwaited | TurnEnded:
        try:
            return self._talk.get(timeout=self._turn_seconds)
        except queue.Empty:
            assert self._runner is not None
            raise StuckPipeline(
                f"The pipeline of task {self._runner.key[0]} has not ended its turn "
                f"within {self._turn_seconds:g} s. One of its functions waits for "
                "something that a simulated world does not bring, such as another "
                "task: the clock stands still while a pipeline runs. Use a "
                "`LocalCluster` for such a pipeline."
            ) from None

    def _end_turn(self, told: TurnEnded) -> None:
        assert self._runner is not None
        with self._lock:
            self._has_turn, self.is_over = False, told.is_last
            while not self._talk.empty():
                late = self._talk.get_nowait()
                if isinstance(late, SplitsAwaited):
                    self._note(late)
                elif not isinstance(late, TurnEnded):
                    self._hear_late(late)
        made = max(1, self._runner.number - self._first)
        self._rests_until = self._clock.now + made * self._pace()
        self._plan(0.0)


class TurnEnded:
    """Message from the thread of a task: its turn has ended.

    Args:
        is_last: whether the task has ended too.
    """

    def __init__(self, is_last: bool) -> None:
        self.is_last = is_last


class SplitsAwaited:
    """Message from a thread of a task: a source waits for splits.

    Args:
        source: index of the source.
        have: number of entries in the ledger of the source.
        gave_back: whether the thread had the turn and has given it back.
    """

    def __init__(self, source: int, have: int, gave_back: bool) -> None:
        self.source = source
        self.have = have
        self.gave_back = gave_back


class GivenTurns(Relays):
    """Replaces the relays of a worker, for a runner that gets its turns from the
    clock.
    """

    def __init__(self, turns: TaskTurns) -> None:
        super().__init__()
        self._turns = turns

    def of(self, definition: TaskDefinition) -> Relay:
        """Return the turns of the runner, for any task."""
        return self._turns
