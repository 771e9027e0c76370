"""Evidence on a training loop and on all that feeds it, and what follows from it in
numbers. ``verdict`` judges it.

Decision 0046.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zmqdata.measures.sums import added
from zmqdata.messages import (
    ConsumerPace,
    LoopMeasures,
    LoopSums,
    NodeTime,
    OperationStatus,
    TaskSums,
)
from zmqdata.peeking import counted

WAITS = 0.05
"""Share of its time that a loop may wait without being held up by its input."""
LEAST_STEP = 250e-6
"""Seconds of a step below which a loop does nothing of its own."""
COMPUTES = 0.5
"""Share of its time in which a processor works, below which an operation waits."""
PAUSE_STEPS = 10
PAUSE_SECONDS = 1.0
"""Steps of a loop, and seconds, for which a pausing loop has taken nothing."""
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
    cores: int = 0
    """Processors that its worker may use; 0 if unknown."""


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
    unit: str = "elements"
    """Name of what the loop takes: batches or elements."""
    failure: str = ""
    """The error that ended its job; empty if none did."""
    deaths: tuple[str, ...] = ()
    """Ways in which processes ended that ran its tasks, in words, such as ``ended with
    exit code 3``; empty if unknown, as to a client.
    """
    counts: Mapping[str, float] = field(default_factory=dict)
    """Sums that the operations of all tasks and of this process counted, by name."""
    pace: float = 0.0
    """Median of the seconds that the loop takes itself for an element, as
    ``LoopMeasures.pace``; 0 if only the mean is known.
    """

    @property
    def wait_share(self) -> float:
        """Share of its time that the loop waits."""
        return share_of(self.loop.waiting, self.loop.seconds)

    @property
    def one(self) -> str:
        """Name of one of the elements that the loop takes."""
        return counted(1, self.unit).removeprefix("1 ")

    @property
    def step(self) -> float:
        """Seconds that the loop itself takes for an element; 0 if unknown."""
        if self.is_unpaced:
            return 0.0
        if self.pace:
            return self.pace  # the mean would have pauses in it
        working = max(0.0, self.loop.seconds - self.loop.waiting)
        return working / self.loop.elements if self.loop.elements else 0.0

    @property
    def running(self) -> list[TaskEvidence]:
        """The tasks that have not ended; if all have, all of them."""
        return running_tasks(self.tasks)

    @property
    def cores(self) -> int:
        """Number of processors of the machines of its workers; 0 if unknown."""
        return cores_of(self.running)

    @property
    def workers(self) -> int:
        """Number of workers that host a task that has not ended."""
        return len({task.worker for task in self.running})


def unit_of(batch_rows: int | None) -> str:
    """Return the name of elements: ``"batches"`` unless ``batch_rows`` is None."""
    return "elements" if batch_rows is None else "batches"


def running_tasks(tasks: Iterable[TaskEvidence]) -> list[TaskEvidence]:
    """Return the tasks that have not ended; if all have, all of them."""
    listed = list(tasks)
    return [task for task in listed if not task.has_ended] or listed


def cores_of(tasks: Iterable[TaskEvidence]) -> int:
    """Return the number of processors of the machines of tasks; 0 if unknown."""
    hosts = {task.worker.rpartition(":")[0]: task.cores for task in tasks}
    return sum(hosts.values()) if all(hosts.values()) else 0


def lack_cores(tasks: Sequence[TaskEvidence]) -> bool:
    """Return True if tasks use half of the cores of their machines or more, so that
    their threads wait for each other.
    """
    used = sum(
        (node.recent - node.waited_recent) / max(task.recent.seconds, LEAST_STEP)
        for task in tasks
        for node in task.nodes
    )
    return 0 < cores_of(tasks) <= 2 * used


def operations(tasks: Iterable[TaskEvidence]) -> list[OperationStatus]:
    """Return the operations of tasks, from the last one to the sources, and then the
    work of the worker itself.

    A share is the seconds of all tasks in an operation, its inputs left out, divided by
    all seconds that they spent in operations. Tasks that have ended count so far, and
    not lately.

    Example:
        >>> nodes = NodeTime("", "map(f)", 30.0, 3.0), NodeTime("0", "range", 10.0, 1.0)
        >>> found = operations([TaskEvidence("tcp://a:1", TaskSums(), nodes)])
        >>> [(one.node, one.depth, one.share, one.seconds) for one in found]
        [('map(f)', 0, 0.75, 30.0), ('range', 1, 0.25, 10.0)]
    """
    listed = list(tasks)
    times, recent = _times(listed), _times(running_tasks(listed))
    lately = sum(node.recent for nodes in recent.values() for node in nodes)
    so_far = sum(node.total for nodes in times.values() for node in nodes)
    making = sum(task.recent.making for task in running_tasks(listed))
    places, lacks_cores = {place for place, _ in times}, lack_cores(running_tasks(listed))
    found = []
    for (place, label), nodes in sorted(times.items(), key=lambda item: _in_tree(item[0][0])):
        present = recent.get((place, label), [])
        held, most = (sum(node.queue[at] for node in present) for at in (0, 1))
        seconds = sum(node.total for node in nodes)
        seconds_lately = sum(node.recent for node in present)
        waited = sum(node.waited_recent for node in present)
        held_up = sum(node.held_up_recent for node in present)
        found.append(
            OperationStatus(
                place=place,
                depth=_depth(place, places),
                node=label,
                share=round(share_of(seconds_lately, lately), 4),
                share_so_far=round(share_of(seconds, so_far), 4),
                seconds=round(seconds, 3),
                processor_share=round(1 - share_of(waited, seconds_lately), 4),
                lacks_cores=lacks_cores,
                held_up_share=round(share_of(held_up, making), 4),
                threads=max(node.threads for node in nodes),
                queue=(held, most) if most else None,
            )
        )
    return found


def doing_of(one: OperationStatus) -> str:
    """Return in words that an operation waits; empty if it computes.

    Example:
        >>> doing_of(OperationStatus(processor_share=0.03))
        'waits (3 % processor)'
        >>> doing_of(OperationStatus(processor_share=0.3, lacks_cores=True))
        'waits for a core (30 % processor)'
    """
    share, what = one.processor_share, "waits for a core" if one.lacks_cores else "waits"
    return f"{what} ({100 * share:.0f} % processor)" if share < COMPUTES else ""


def dominant(tasks: Iterable[TaskEvidence]) -> OperationStatus | None:
    """Return the operation that keeps its threads busiest, over all tasks; None if none
    was measured lately.

    It limits the rate. The operation of the largest share may have many threads, and be
    fast enough. While one call holds up the others, its other threads count as busy.
    """
    listed = list(tasks)
    busy = _busy(running_tasks(listed))
    worst = max(busy, key=lambda name: busy[name], default=None)
    if worst is None or not busy[worst]:
        return None
    return next(one for one in operations(listed) if (one.place, one.node) == worst)


def _busy(tasks: Iterable[TaskEvidence]) -> dict[tuple[str, str], float]:
    """Return the seconds in which each operation kept its threads busy."""
    return {
        name: sum(max(node.recent / node.threads, node.held_up_recent) for node in nodes)
        for name, nodes in _times(tasks).items()
    }


def gain_without(situation: Situation, one: OperationStatus) -> float:
    """Return how many times as fast tasks would be if an operation took no time: the
    others limit them then. Operations without threads of their own run one at a time.
    """
    times, busy = _times(situation.running), _busy(situation.running)
    others = {name for name in times if name != (one.place, one.node)}
    wide = {name for name in others if any(node.threads > 1 for node in times[name])}
    making = sum(task.recent.making for task in situation.running)
    alone = min(making, sum(busy[name] for name in others - wide))
    rest = max([alone, *(busy[name] for name in wide)])
    return making / rest if rest else math.inf


def _times(tasks: Iterable[TaskEvidence]) -> dict[tuple[str, str], list[NodeTime]]:
    times: dict[tuple[str, str], list[NodeTime]] = defaultdict(list)
    for task in tasks:
        for node in task.nodes:
            times[node.place, node.label].append(node)
    return times


def _in_tree(place: str) -> tuple[bool, tuple[int, ...], str]:
    parts = place.split(".") if place else []
    if all(part.isdecimal() for part in parts):
        return False, tuple(map(int, parts)), ""
    return True, (), place


def _depth(place: str, places: Collection[str]) -> int:
    if place.startswith("+") or not place:
        return 0
    above = {place[:at] for at, letter in enumerate(place) if letter == "."} | {""}
    return len(above.intersection(places))


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
    sums, demand = (
        added([task.recent for task in situation.running], TaskSums()),
        demanded(situation),
    )
    if sums.elements <= 0 or not demand:
        return 0
    need = math.floor((1 - WAITS) * sums.making / sums.elements * demand) + 1
    return need if need <= MOST_WORKERS else 0


def demanded(situation: Situation) -> float:
    """Return the elements per second that all loops would take if they never waited; 0
    if unknown, or if the loop does nothing of its own.
    """
    if situation.step < LEAST_STEP:
        return 0.0
    loop, served = situation.loop, situation.served
    taken = loop.elements
    if served is not None:
        # The reader of this pass is younger than a loop over `repeat`.
        taken = served.elements * (loop.seconds / served.seconds if served.seconds else 0.0)
    working = situation.step * loop.elements
    if not situation.others:
        return (taken / working if working else 0.0) + situation.demand
    # Numbered consumers take equally many: the slowest decides.
    slowest = max(working / taken, *(one.step for one in situation.others)) if taken else 0.0
    return (len(situation.others) + 1) / slowest if slowest else 0.0


def is_paused(loop: LoopMeasures) -> bool:
    """Return True if a loop takes nothing although elements are there. A loop that
    waits for its input does not pause.

    Example:
        >>> is_paused(LoopMeasures(waiting=1, pace=0.5, idle=5.0))
        True
    """
    return loop.waiting > 0 and loop.idle >= max(PAUSE_SECONDS, PAUSE_STEPS * loop.pace)


def wait_share_without(situation: Situation, worker: str) -> float:
    """Return the share of its time that the loop would still wait if a worker left.

    The others could make as many elements as their costs allow.
    """
    costs = costs_by_worker(situation.running)
    possible = sum(1 / cost for other, cost in costs.items() if other != worker and cost > 0)
    demand = demanded(situation)
    if not demand:
        # No step paces the loop: it takes all that comes.
        present = situation.loop.elements / situation.loop.seconds
        return min(1.0, present / possible) if possible else 1.0
    return max(0.0, 1 - possible / demand)


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
