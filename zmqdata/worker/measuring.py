"""Measures of the tasks of a worker: a thread looks at what their threads publish, and
the worker's loop collects what was measured.

Decision 0046; protocol 11.1.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from zmqdata import messages as m
from zmqdata.core.limits import Rotation
from zmqdata.core.worker import events as e
from zmqdata.machine.threads import Background
from zmqdata.measures.telemetry import RecordedSpan
from zmqdata.measures.trace import SENT, TraceRecorder, block_numbers, link_row
from zmqdata.worker.tasks.meter import AttemptObserver
from zmqdata.worker.tasks.runner import TaskRunner

LEAST_LOOK, MOST_LOOK = 0.02, 0.06
"""Least and most seconds between two looks. They are drawn, because a look after equal
pauses would meet periodic work always at the same point.
"""
IDLE_LOOK = 0.1
"""Seconds between two looks while no task runs."""
REPORT = 0.5
"""Seconds between two reports of a task."""
AT_ONCE = 64
"""Maximum number of tasks that are reported at a tick of the worker."""

Runners = Mapping[tuple[int, int], TaskRunner]


class Measuring:
    """Measures the tasks of a worker.

    Args:
        runners: the tasks, by number and attempt; others may change them.
        linked: returns, for a task, the share of time in which its busiest link was
            busy, and the bytes per second that this link moved.
        otel: True to make spans of OpenTelemetry.

    Attributes:
        runners: the tasks.
        recorder: records spans, by the clock of the tasks.
    """

    def __init__(
        self,
        runners: Runners,
        linked: Callable[[tuple[int, int]], tuple[float, float]],
        otel: bool = False,
    ) -> None:
        self.runners, self._linked, self._otel = runners, linked, otel
        self.recorder = TraceRecorder(time.monotonic, time.time, threading.Lock())
        self._rotation: Rotation[tuple[int, int]] = Rotation(AT_ONCE)
        self._reported: dict[tuple[int, int], float] = {}
        self._closed = threading.Event()
        self._thread = Background(target=self._look_on, name="zmqdata-measuring", daemon=True)
        self._thread.start()

    def _look_on(self) -> None:
        drawn = random.Random()  # noqa: S311 - for a pause, not for a secret
        pause = IDLE_LOOK
        while not self._closed.wait(pause):
            self.look()
            pause = drawn.uniform(LEAST_LOOK, MOST_LOOK) if self.runners else IDLE_LOOK

    def look(self) -> None:
        """Look once at what the tasks at work are doing."""
        for runner in list(self.runners.values()):
            if runner.meter.is_making:
                runner.meter.sample()

    def reports(self, now: float) -> Iterator[e.TaskMeasured]:
        """Yield the measures that are due.

        Args:
            now: present time.
        """
        for key in [key for key in self._reported if key not in self.runners]:
            del self._reported[key]
        due = [key for key in self.runners if now - self._reported.get(key, 0.0) >= REPORT]
        for key in self._rotation.next_items(due):
            self._reported[key] = now
            measures = self.runners[key].meter.report(self._linked(key))
            if measures is not None:
                yield e.TaskMeasured(measures)

    def observer(self, definition: m.TaskDefinition) -> AttemptObserver:
        """Return what listens to an attempt that begins now."""
        if not self._otel:
            return AttemptObserver(self.recorder)
        known = {
            "job": definition.job.name,
            "task": definition.task,
            "attempt": definition.attempt,
            "repetition": definition.repetition,
        }
        span = RecordedSpan(f"zmqdata task of {definition.job.name}", known, definition.traceparent)
        return AttemptObserver(self.recorder, span)

    def note_sent(self, command: e.Push) -> None:
        """Record that a block is sent."""
        header = command.header
        if self.recorder.is_on and isinstance(header, m.Block):
            self.recorder.mark(header.task, link_row(command.link), SENT, block_numbers(header))

    def end_trace(self) -> None:
        """End a trace whose time is over. Must be called several times a second."""
        self.recorder.look(self._cut)

    def _cut(self) -> None:
        """Record as spans what all tasks are doing now."""
        for runner in list(self.runners.values()):
            runner.meter.cut()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(1.0)
