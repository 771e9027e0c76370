"""Evidence on a training loop and on all that feeds it, and what follows from it in
numbers. ``verdict`` judges it.

Decision 0046.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from zmqdata.measures.sums import added
from zmqdata.messages import ConsumerPace, LoopSums, NodeTime, TaskSums

WAITS = 0.05
"""Share of its time that a loop may wait without being held up by its input."""
LEAST_STEP = 250e-6
"""Seconds of a step below which a loop does nothing of its own."""
MOST_WORKERS = 1000
"""Number of workers beyond which no number is advised."""


@dataclass(frozen=True)
class TaskEvidence:
    """Evidence on a task."""

    worker: str
    """Address of its worker."""
    recent: TaskSums
    """Sums of the last seconds."""
    nodes: tuple[NodeTime, ...] = ()
    """The nodes of its pipeline."""
    linked: tuple[float, float] = (0.0, 0.0)
    """Share of the time in which its busiest link had bytes in flight, and the bytes
    per second that this link moved.
    """
    has_ended: bool = False
    """True if it makes nothing any more."""


@dataclass(frozen=True)
class Situation:
    """Evidence on a training loop and on all that feeds it."""

    loop: LoopSums
    """Sums of the loop in the last seconds."""
    tasks: tuple[TaskEvidence, ...] = ()
    """The tasks that it reads."""
    first: float | None = None
    """Seconds from the beginning to its first element; None if unknown."""
    total: LoopSums = field(default_factory=LoopSums)
    """Sums of the loop since its iterator began."""
    served: LoopSums | None = None
    """Sums of the reader of the service in the last seconds, if operations of this
    process lie between it and the loop; otherwise None.
    """
    consumer: int | None = None
    """Number of the consumer; None if it has none."""
    others: tuple[ConsumerPace, ...] = ()
    """The other numbered consumers."""
    limit: int | None = None
    """Most elements in flight that the user allows; None if there is no such limit."""
    demand: float = 0.0
    """Demand of the other clients of the job that have no numbers, in elements per
    second.
    """
    local: tuple[str, ...] = ()
    """Labels of the operations of this process that lie between the service and the
    loop; empty if there are none, or if they are unknown, as to a dispatcher.
    """
    is_ahead: bool = False
    """True if one of them pulls elements ahead, as ``prefetch`` does."""
    is_here: bool = False
    """True if the pipeline runs in the training process, as `placement` decided."""
    hosted: int | None = None
    """Number of workers that host its tasks or have ended them, also those of which
    nothing was heard; None if unknown.
    """
    is_unpaced: bool = False
    """True if elements are only counted, as in a profile: no step paces the loop."""

    @property
    def wait_share(self) -> float:
        """Share of its time that the loop waits."""
        return share_of(self.loop.waiting, self.loop.seconds)

    @property
    def step(self) -> float:
        """Seconds that the loop itself takes for an element; 0 if unknown."""
        if self.is_unpaced:
            return 0.0
        working = max(0.0, self.loop.seconds - self.loop.waiting)
        return working / self.loop.elements if self.loop.elements else 0.0

    @property
    def running(self) -> list[TaskEvidence]:
        """The tasks that have not ended; if all have, all of them."""
        return [task for task in self.tasks if not task.has_ended] or list(self.tasks)

    @property
    def workers(self) -> int:
        """Number of workers that host a task that has not ended."""
        return len({task.worker for task in self.running})


def dominant(tasks: Iterable[TaskEvidence]) -> tuple[NodeTime | None, float]:
    """Return the node that keeps its threads busiest, over all tasks, and the share of
    their time that it takes.
    """
    times: dict[tuple[str, str], list[NodeTime]] = defaultdict(list)
    making = 0.0
    for task in tasks:
        making += task.recent.making
        for node in task.nodes:
            times[node.place, node.label].append(node)
    if not times or making <= 0:
        return None, 0.0
    shares = {name: sum(one.recent / one.threads for one in found) for name, found in times.items()}
    worst = max(shares, key=lambda name: shares[name])
    return times[worst][0], min(1.0, shares[worst] / making)


def costs_by_worker(tasks: Iterable[TaskEvidence]) -> dict[str, float]:
    """Return the seconds that each worker takes to make an element, of the workers that
    have made any.
    """
    sums: dict[str, list[TaskSums]] = defaultdict(list)
    for task in tasks:
        sums[task.worker].append(task.recent)
    whole = {worker: added(found, TaskSums()) for worker, found in sums.items()}
    return {
        worker: one.making / one.elements for worker, one in whole.items() if one.elements > 0.1
    }


def needed_workers(situation: Situation) -> int:
    """Return the least number of workers with which the loop would wait less than
    ``WAITS`` of its time; 0 if unknown, or if the loop does nothing of its own.

    A step lasts as long as the loop itself, or as long as the workers together take for
    what all loops take meanwhile, whichever is longer. One step may take several
    elements from the workers, or a part of one, if operations lie between.
    """
    sums = added([task.recent for task in situation.running], TaskSums())
    if sums.elements <= 0 or situation.step < LEAST_STEP:
        return 0
    loop, served = situation.loop, situation.served
    taken = loop.elements
    if served is not None:
        # The reader of this pass is younger than a loop over `repeat`.
        taken = served.elements * (loop.seconds / served.seconds if served.seconds else 0.0)
    working = loop.seconds - loop.waiting
    cost, demand = sums.making / sums.elements, taken / working + situation.demand
    if situation.others:
        # Numbered consumers take equally many: the slowest decides.
        slowest = max(working / taken, *(one.step for one in situation.others)) if taken else 0.0
        demand = (len(situation.others) + 1) / slowest if slowest else 0.0
    need = math.floor((1 - WAITS) * cost * demand) + 1
    return need if need <= MOST_WORKERS else 0


def median(values: Iterable[float]) -> float:
    """Return the median, of an even number of values the lower of both in the middle.
    The module ``statistics`` would take longer to import than all modules of measures.

    Example:
        >>> median([3.0, 1.0, 2.0, 9.0])
        2.0
    """
    found = sorted(values)
    return found[(len(found) - 1) // 2]


def share_of(part: float, whole: float) -> float:
    """Return a part of a whole as a number from 0 to 1; 0 if there is no whole.

    Example:
        >>> share_of(1.0, 4.0), share_of(1.0, 0.0)
        (0.25, 0.0)
    """
    return min(1.0, part / whole) if whole > 0 else 0.0
