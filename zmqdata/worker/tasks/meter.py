"""The time that an attempt of a task spends making elements, and waiting for its
readers or for splits.

Decision 0046; protocol 10.1.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum, auto

from zmqdata.measures import Recent, values_of
from zmqdata.messages import NodeTime, TaskMeasures, TaskSums

MOST_NODES = 64
"""Maximum number of nodes in a report; the nodes that took the most time are kept."""


class Doing(Enum):
    """What an attempt does."""

    MAKING = auto()
    """Its pipeline runs."""
    FOR_READERS = auto()
    """It has made all that it may before its readers take some."""
    FOR_TURN = auto()
    """It waits for the turn, which another task of its iteration has."""
    ENDED = auto()
    """It makes nothing any more."""


class Stopwatch:
    """Sums the seconds of what an attempt does. Thread-safe.

    Args:
        now: present time.

    Example:
        >>> watch = Stopwatch(0.0)
        >>> watch.turn(Doing.FOR_READERS, 2.0)
        >>> watch.turn(Doing.MAKING, 5.0)
        >>> watch.times(6.0)
        (6.0, 3.0, 3.0, 0.0)
    """

    def __init__(self, now: float) -> None:
        self._began = self._since = now
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
            self.doing = doing
            if doing is Doing.ENDED and self._ended is None:
                self._ended = now

    def wait_for_split(self, step: int, now: float) -> None:
        """Record that a source begins (1) or ends (-1) to wait for splits."""
        with self._lock:
            self._count(now)
            self._waits += step

    def times(self, now: float) -> tuple[float, float, float, float]:
        """Return the seconds observed, making, for readers, and for splits."""
        with self._lock:
            self._count(now)
            until = now if self._ended is None else self._ended
            return until - self._began, self._making, self._for_readers, self._for_splits

    def _count(self, now: float) -> None:
        seconds, self._since = max(0.0, now - self._since), now
        if self.doing is Doing.FOR_READERS:
            self._for_readers += seconds
        elif self.doing is Doing.MAKING and self._waits:
            self._for_splits += seconds
        elif self.doing is Doing.MAKING:
            self._making += seconds


class NodeTimes:
    """Seconds that threads were seen in the nodes of a pipeline.

    Example:
        >>> times = NodeTimes()
        >>> times.see({("0", "map(f)"): 2}, 0.5)
        >>> times.report(1.0)
        (NodeTime(place='0', label='map(f)', total=1.0, recent=1.0, threads=2),)
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, str], tuple[float, Recent, int]] = {}

    def see(self, seen: Mapping[tuple[str, str], int], seconds: float) -> None:
        """Add seconds for nodes, named by place and label, with the threads in each."""
        for name, threads in seen.items():
            total, recent, most = self._nodes.get(name) or (0.0, Recent(1), 1)
            self._nodes[name] = (total + seconds * threads, recent, max(most, threads))

    def report(self, now: float) -> tuple[NodeTime, ...]:
        """Return the times of all nodes, in the order of their places."""
        found = list(self._nodes.items())  # another thread may add a node
        times = [
            NodeTime(place, label, total, recent.look(now, (total,))[0], threads)
            for (place, label), (total, recent, threads) in found
        ]
        longest = sorted(times, key=lambda one: -one.total)[:MOST_NODES]
        return tuple(sorted(longest, key=lambda one: one.place))


class TaskMeter:
    """The measures of an attempt of a task.

    Args:
        task: number of the task.
        attempt: number of the attempt.
        now: present time.

    Attributes:
        watch: sums what the attempt does.
        nodes: sums the time of its nodes.
    """

    def __init__(self, task: int, attempt: int, now: float) -> None:
        self._key = (task, attempt)
        self._recent = Recent(len(values_of(TaskSums())))
        self.watch = Stopwatch(now)
        self.nodes = NodeTimes()

    def report(
        self, now: float, elements: float, nbytes: float, linked: tuple[float, float] = (0.0, 0.0)
    ) -> TaskMeasures:
        """Return the measures up to now.

        Args:
            now: present time.
            elements: number of elements made so far.
            nbytes: bytes handed over so far.
            linked: share of time in which the busiest link was busy, and its bytes per
                second.
        """
        total = (*self.watch.times(now), elements, nbytes)
        busy, rate = linked
        return TaskMeasures(
            *self._key,
            TaskSums(*total),
            TaskSums(*self._recent.look(now, total)),
            self.nodes.report(now),
            (min(1.0, busy), rate),
        )
