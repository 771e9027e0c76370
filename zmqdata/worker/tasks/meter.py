"""The time that an attempt of a task spends making elements, and waiting for its
readers or for splits.

Decision 0046; protocol 11.1.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from zmqdata.iterators.ownthreads import QueueFill
from zmqdata.machine.threads import available_cores
from zmqdata.measures.sums import OperationCounts, Recent, task_sums, values_of
from zmqdata.measures.telemetry import NO_SPAN, OpenSpan
from zmqdata.measures.trace import TraceRecorder
from zmqdata.messages import NodeTime, TaskMeasures, TaskSums
from zmqdata.worker.tasks.sampling import NodeSampler

MOST_NODES = 64
"""Maximum number of nodes in a report; the nodes that took the most time are kept."""


class Doing(Enum):
    """The state of an attempt."""

    MAKING = auto()
    """Its pipeline runs."""
    FOR_READERS = auto()
    """It has made all that it may before its readers take some."""
    FOR_TURN = auto()
    """It waits for the turn, which another task of its iteration has."""
    ENDED = auto()
    """It makes nothing any more."""


NAMES = {
    Doing.MAKING: "making elements",
    Doing.FOR_READERS: "waiting for readers (credit)",
    Doing.FOR_TURN: "waiting for its turn",
}
"""Names of what an attempt does, in a trace."""
FOR_SPLITS = "waiting for splits"


def tell_nobody(name: str, since: float, until: float) -> None:
    """Ignore a stretch of time."""


class Stopwatch:
    """Sums the seconds of what an attempt does. Thread-safe.

    Args:
        now: present time.
        tell: called at the end of a stretch of time, with what the attempt did, the
            beginning and the end.

    Example:
        >>> watch = Stopwatch(0.0)
        >>> watch.turn(Doing.FOR_READERS, 2.0)
        >>> watch.turn(Doing.MAKING, 5.0)
        >>> watch.times(6.0)
        (6.0, 3.0, 3.0, 0.0)
    """

    def __init__(self, now: float, tell: Callable[[str, float, float], None] = tell_nobody) -> None:
        self._began = self._since = self._changed = now
        self._tell = tell
        self._ended: float | None = None
        self.doing = Doing.MAKING
        self._waits = 0
        self._making = self._for_readers = self._for_splits = 0.0
        self._lock = threading.Lock()

    @property
    def is_making(self) -> bool:
        """True if the pipeline runs and no source waits for splits."""
        return self.doing is Doing.MAKING and not self._waits

    def turn(self, doing: Doing, now: float) -> None:
        """Record that the attempt does something else from now on."""
        with self._lock:
            self._count(now)
            self._end_stretch(now)
            self.doing = doing
            if doing is Doing.ENDED and self._ended is None:
                self._ended = now

    def wait_for_split(self, step: int, now: float) -> None:
        """Record that a source begins (1) or ends (-1) to wait for splits."""
        with self._lock:
            self._count(now)
            self._end_stretch(now)
            self._waits += step

    def cut(self, now: float) -> None:
        """Tell what the attempt is doing now."""
        with self._lock:
            self._end_stretch(now)

    def times(self, now: float) -> tuple[float, float, float, float]:
        """Return the seconds observed, making, for readers, and for splits."""
        with self._lock:
            self._count(now)
            until = now if self._ended is None else self._ended
            return until - self._began, self._making, self._for_readers, self._for_splits

    def _end_stretch(self, now: float) -> None:
        since, self._changed = self._changed, now
        if self.doing is Doing.MAKING and self._waits:
            self._tell(FOR_SPLITS, since, now)
        elif self.doing in NAMES:
            self._tell(NAMES[self.doing], since, now)

    def _count(self, now: float) -> None:
        seconds, self._since = max(0.0, now - self._since), now
        if self.doing is Doing.FOR_READERS:
            self._for_readers += seconds
        elif self.doing is Doing.MAKING and self._waits:
            self._for_splits += seconds
        elif self.doing is Doing.MAKING:
            self._making += seconds


@dataclass
class _NodeSums:
    """Seconds of a node since the attempt began."""

    total: float = 0.0
    """Seconds over all threads."""
    waited: float = 0.0
    """Those in which no processor worked."""
    held_up: float = 0.0
    """Seconds in which finished results waited for a call that had not returned."""
    threads: int = 1
    """Most threads in it at a time."""
    recent: Recent = field(default_factory=lambda: Recent(3))
    """The same seconds, in which the last ones count most."""


class NodeTimes:
    """Seconds that threads were seen in the nodes of a pipeline.

    Example:
        >>> times = NodeTimes()
        >>> times.see({("0", "map(f)"): 2}, 0.5, processor=0.25)
        >>> [(one.total, one.waited_recent) for one in times.report(1.0)]
        [(1.0, 0.75)]
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, str], _NodeSums] = {}
        self._queues: dict[tuple[str, str], QueueFill] = {}

    def see(
        self, seen: Mapping[tuple[str, str], int], seconds: float, processor: float = 0.0
    ) -> None:
        """Add seconds for nodes.

        Args:
            seen: number of threads in each node, by place and label.
            seconds: seconds that each of these threads has spent.
            processor: seconds that processors have worked meanwhile for all of them.
                They are divided equally, so that a node that is seen when nothing
                computes is known to wait.
        """
        present = sum(seen.values())
        each = min(seconds, processor / present) if present else 0.0
        for name, threads in seen.items():
            node = self._nodes.setdefault(name, _NodeSums())
            node.total += seconds * threads
            node.waited += (seconds - each) * threads
            node.threads = max(node.threads, threads)

    def note_queues(self, queues: Mapping[tuple[str, str], QueueFill], seconds: float) -> None:
        """Record the fill of the queues behind nodes, and add seconds for those that
        are held up.

        Args:
            queues: the fills, by place and label.
            seconds: seconds since the fills before.
        """
        self._queues = dict(queues)
        for name, fill in queues.items():
            self._nodes.setdefault(name, _NodeSums()).held_up += seconds * fill.is_held_up

    def report(self, now: float) -> tuple[NodeTime, ...]:
        """Return the times of all nodes, in the order of their places."""
        found = list(self._nodes.items())  # another thread may add a node
        times = []
        for (place, label), one in found:
            lately, waited, held_up = one.recent.look(now, (one.total, one.waited, one.held_up))
            queue = self._queues.get((place, label), QueueFill(0, 0))[:2]
            times.append(
                NodeTime(place, label, one.total, lately, one.threads, queue, waited, held_up)
            )
        longest = sorted(times, key=lambda one: -one.total)[:MOST_NODES]
        return tuple(sorted(longest, key=lambda one: one.place))


class OutputCounts(Protocol):
    """Counts of an attempt's output."""

    @property
    def made(self) -> int:
        """Number of elements."""

    @property
    def moved(self) -> int:
        """Bytes of blocks handed over."""


@dataclass(frozen=True)
class AttemptObserver:
    """The listeners to what an attempt does."""

    recorder: TraceRecorder | None = None
    """Records spans, by the clock of the attempt."""
    span: OpenSpan = NO_SPAN
    """A span of OpenTelemetry that ends with the attempt."""


UNOBSERVED = AttemptObserver()
"""Stands for no listener."""


class TaskMeter:
    """The measures of an attempt of a task. It measures nothing before ``begin``.

    Args:
        key: number of the task, and of the attempt.
        clock: returns the time in seconds.
        progress: says what the attempt has made.
        observer: listens to what the attempt does.
        processor: returns the seconds that processors have worked for this process.
    """

    def __init__(
        self,
        key: tuple[int, int],
        clock: Callable[[], float],
        progress: OutputCounts,
        observer: AttemptObserver = UNOBSERVED,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._key, self._clock, self._progress = key, clock, progress
        self._recorder, self._span = observer.recorder, observer.span
        self._recent = Recent(len(values_of(TaskSums())))
        self._nodes = NodeTimes()
        self._watch: Stopwatch | None = None
        self._sampler: NodeSampler | None = None
        self._counts = OperationCounts()
        self._processor = processor
        self._sampled = self._worked = 0.0
        self._cores = available_cores()

    # --- from the threads of the pipeline

    def begin(self, sampler: NodeSampler, counts: OperationCounts) -> None:
        """Begin to measure, because the pipeline is open."""
        self._sampler, self._counts = sampler, counts
        self._watch = Stopwatch(self._clock(), self._record)
        self._worked = self._processor()

    def turn(self, doing: Doing) -> None:
        """Record that the attempt does something else from now on."""
        if self._watch is not None:
            self._watch.turn(doing, self._clock())

    @contextmanager
    def waiting_for_split(self) -> Iterator[None]:
        """Return the context in which a source waits for splits."""
        watch = self._watch
        if watch is None:
            yield
            return
        watch.wait_for_split(1, self._clock())
        try:
            yield
        finally:
            watch.wait_for_split(-1, self._clock())

    def fail(self, error: BaseException) -> None:
        """Record the error with which the attempt ends."""
        self._span.fail(error)

    def end(self) -> None:
        """Record that the attempt has ended, with or without an error."""
        self.turn(Doing.ENDED)
        found, self._sampler = self.report(), None  # which holds the pipeline
        total = TaskSums() if found is None else found.total
        self._span.end(
            {
                "elements": int(total.elements),
                "bytes": int(total.nbytes),
                "making_seconds": total.making,
                "waiting_for_readers_seconds": total.for_readers,
                "waiting_for_splits_seconds": total.for_splits,
            }
        )

    def _record(self, name: str, since: float, until: float) -> None:
        recorder = self._recorder
        if recorder is not None and recorder.is_on:
            recorder.note(self._key[0], "", name, since, until, merges=True)

    # --- from other threads

    def cut(self) -> None:
        """Record as a span what the attempt is doing now."""
        if self._watch is not None:
            self._watch.cut(self._clock())

    @property
    def is_making(self) -> bool:
        """True if the pipeline runs: it waits neither for readers nor for splits."""
        return self._watch is not None and self._watch.is_making

    def sample(self) -> None:
        """Record which nodes the threads of the pipeline work in."""
        watch, sampler = self._watch, self._sampler
        if watch is None or sampler is None:
            return
        now = self._clock()
        making = watch.times(now)[1]
        seconds, self._sampled = making - self._sampled, making
        worked = self._processor()
        processor, self._worked = worked - self._worked, worked
        if seconds > 0 and watch.is_making:
            self._nodes.note_queues(sampler.queues(), seconds)
            seen = sampler.look()
            self._nodes.see(seen, seconds, processor)
            recorder = self._recorder
            if recorder is not None and recorder.is_on:
                for place, label in seen:
                    row = f"{place} {label}".lstrip()
                    recorder.note(self._key[0], row, label, now - seconds, now, merges=True)

    def report(self, linked: tuple[float, float] = (0.0, 0.0)) -> TaskMeasures | None:
        """Return the measures up to now; None if the pipeline is not open yet.

        Args:
            linked: share of time in which the busiest link to the readers was busy, and
                its bytes per second.
        """
        if self._watch is None:
            return None
        now = self._clock()
        counts = float(self._progress.made), float(self._progress.moved)
        total = (*self._watch.times(now), *counts)
        recent = task_sums(self._recent.look(now, total))
        return TaskMeasures(
            *self._key,
            total=task_sums(total),
            recent=recent,
            nodes=self._nodes.report(now),
            linked=linked,
            cores=self._cores,
            counts=self._counts.copy(),
        )
