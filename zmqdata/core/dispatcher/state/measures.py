"""Measures that workers and clients report: kept per task and client, added up per job,
and judged.

Each report has sums since its reporter began, so the newest replaces the one before:
none is counted twice, however often tasks move. What has ended is added to the totals
of its job. Not durable.

Decision 0046; protocol 11.1.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from zmqdata import messages as m
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.measures.situation import WAITS, Situation, TaskEvidence
from zmqdata.measures.sums import added, counted_together
from zmqdata.measures.verdict import STRAGGLER, Verdict, judge

JOBS_KEPT = 1000
"""Maximum number of jobs whose totals are remembered."""
NODES_KEPT = 1000
"""Maximum number of nodes that the totals of a job tell apart. A notebook that changes
its pipeline again and again has more.
"""

LOOPS_KEPT = 1000
"""Number of training loops of an iteration up to which those that have left are told
apart.
"""

NodeName = tuple[str, str]
"""Place and label of a node."""
OTHERS = ("", "all other operations")
"""Name of the nodes beyond ``NODES_KEPT``."""


@dataclass
class JobTotals:
    """Totals of a job, of all attempts of its tasks as far as they reported."""

    sums: m.TaskSums = field(default_factory=m.TaskSums)
    """Sums of all attempts."""
    nodes: dict[NodeName, float] = field(default_factory=dict)
    """Seconds in each node, over all threads."""
    loop: m.LoopSums = field(default_factory=m.LoopSums)
    """Sums of all training loops."""
    delivered: int = 0
    """Number of elements that reached a training loop."""
    redone: int = 0
    """Number of elements that were made again after a worker was lost."""
    left_out: int = 0
    """Number of elements that operations left out."""
    moved: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes and elements that arrived, by transport and codec."""
    consumers: dict[int | None, m.LoopSums] = field(default_factory=dict)
    """Sums of the training loops of each numbered consumer, and under None of all other
    training loops.
    """
    counts: dict[str, float] = field(default_factory=dict)
    """Sums that operations counted, by name."""
    begun: int = 0
    """Number of training loops that have got their first element."""
    first_seconds: float = 0.0
    """Seconds that these loops waited for it, all together."""

    def add(self, other: JobTotals) -> None:
        """Add what other attempts and loops of the same job did."""
        self.sums = added((self.sums, other.sums), m.TaskSums())
        self.loop = added((self.loop, other.loop), m.LoopSums())
        for name, seconds in other.nodes.items():
            self._add_node(name, seconds)
        for by, (nbytes, elements) in other.moved.items():
            known = self.moved.get(by, (0, 0))
            self.moved[by] = (known[0] + nbytes, known[1] + elements)
        for consumer, sums in other.consumers.items():
            before = self.consumers.get(consumer, m.LoopSums())
            self.consumers[consumer] = added((before, sums), m.LoopSums())
        self.counts = counted_together((self.counts, other.counts))
        self.delivered += other.delivered
        self.redone += other.redone
        self.left_out += other.left_out
        self.begun += other.begun
        self.first_seconds += other.first_seconds

    def add_task(self, measures: m.TaskMeasures) -> None:
        """Add an attempt of a task."""
        self.sums = added((self.sums, measures.total), m.TaskSums())
        self.counts = counted_together((self.counts, measures.counts))
        for node in measures.nodes:
            self._add_node((node.place, node.label), node.total)

    def _add_node(self, name: NodeName, seconds: float) -> None:
        if name not in self.nodes and len(self.nodes) >= NODES_KEPT:
            name = OTHERS
        self.nodes[name] = self.nodes.get(name, 0.0) + seconds

    def add_loop(self, measures: m.LoopMeasures, consumer: int | None = None) -> None:
        """Add a training loop."""
        total = measures.outer_total or measures.total
        self.loop = added((self.loop, total), m.LoopSums())
        before = self.consumers.get(consumer, m.LoopSums())
        self.consumers[consumer] = added((before, total), m.LoopSums())
        if measures.first is not None:
            self.begun += 1
            self.first_seconds += measures.first
        for name, (nbytes, elements) in measures.moved.items():
            known = self.moved.get(name, (0, 0))
            self.moved[name] = (known[0] + nbytes, known[1] + elements)


@dataclass
class _IterationMeasures:
    """The measures of an iteration that is not collected."""

    tasks: dict[tuple[int, int], tuple[str, m.TaskMeasures]] = field(default_factory=dict)
    """Address of the worker, and its newest measures, by task and attempt."""
    loops: dict[str, m.LoopMeasures] = field(default_factory=dict)
    """Newest measures of each training loop that reads or has read it."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Number of the consumer as which each of these loops reads, if it has one."""
    left: JobTotals = field(default_factory=JobTotals)
    """Loops that have left, where so many have come and gone that they are not told
    apart any more.
    """


class Measures:
    """All measures of a dispatcher.

    Args:
        iterations: the iterations by number.

    Attributes:
        lost_workers: number of workers that died or were cut off since the dispatcher
            began.
    """

    def __init__(self, iterations: Mapping[int, Iteration]) -> None:
        self._iterations = iterations
        self.lost_workers = 0
        self._kept: dict[int, _IterationMeasures] = {}
        self._ended: OrderedDict[str, JobTotals] = OrderedDict()

    # --- reports

    def record_tasks(
        self, worker: str, reports: Iterable[m.TaskReport], tasks: Mapping[int, Task]
    ) -> None:
        """Record the measures of a worker's tasks.

        Args:
            worker: address of the worker.
            reports: its reports.
            tasks: the tasks by number.
        """
        for report in reports:
            task, measures = tasks.get(report.task), report.measures
            if task is None or measures is None:
                continue
            known = self._of(task.iteration).tasks
            before = known.get((report.task, report.attempt))
            if before is None or before[1].total.seconds <= measures.total.seconds:
                known[report.task, report.attempt] = worker, measures

    def record_loop(self, iteration: int, client: str, measures: m.LoopMeasures | None) -> None:
        """Record the measures of a training loop."""
        if measures is not None:
            kept = self._of(iteration)
            kept.loops[client] = measures
            found = self._iterations.get(iteration)
            opening = None if found is None else found.openings.get(client)
            if opening is not None and opening.consumer is not None:
                kept.numbers[client] = opening.consumer
            if found is not None and len(kept.loops) > max(LOOPS_KEPT, 2 * len(found.clients)):
                for gone in [one for one in kept.loops if one not in found.clients]:
                    kept.left.add_loop(kept.loops.pop(gone), kept.numbers.pop(gone, None))

    def replace_loop(self, iteration: int, former: str) -> None:
        """Forget the measures of a client that continues under another name: its sums
        go on.
        """
        self._of(iteration).loops.pop(former, None)

    def _of(self, iteration: int) -> _IterationMeasures:
        return self._kept.setdefault(iteration, _IterationMeasures())

    def forget(self, iteration: Iteration) -> None:
        """Add an iteration that is collected to the totals of its job."""
        totals = self._ended.setdefault(iteration.job.name, JobTotals())
        self._ended.move_to_end(iteration.job.name)
        self._add(totals, iteration)
        self._kept.pop(iteration.iteration, None)
        while len(self._ended) > JOBS_KEPT:
            self._ended.popitem(last=False)

    # --- what is known

    def totals(self) -> dict[str, JobTotals]:
        """Return the totals of each job by name, of all its iterations."""
        found = self.ended()
        for iteration in self._iterations.values():
            self._add(found.setdefault(iteration.job.name, JobTotals()), iteration)
        return found

    def ended(self) -> dict[str, JobTotals]:
        """Return the totals of each job by name, of its collected iterations."""
        return {
            name: replace(
                totals,
                nodes=dict(totals.nodes),
                moved=dict(totals.moved),
                consumers=dict(totals.consumers),
            )
            for name, totals in self._ended.items()
        }

    def _add(self, totals: JobTotals, iteration: Iteration) -> None:
        kept = self._kept.get(iteration.iteration, _IterationMeasures())
        made: dict[int, float] = {}
        for (number, _), (_, measures) in kept.tasks.items():
            totals.add_task(measures)
            made[number] = made.get(number, 0.0) + measures.total.elements
        totals.add(kept.left)
        for client, loop in kept.loops.items():
            totals.add_loop(loop, kept.numbers.get(client))
        totals.delivered += elements_delivered(iteration)
        totals.left_out += sum(task.left_out for task in iteration.tasks.values())
        lanes = iteration.job.num_consumers or 1
        for number, count in made.items():
            task = iteration.tasks.get(number)
            if task is not None and task.total is not None and task.attempt > 1:
                totals.redone += max(0, round(count) - task.total * lanes)

    def loop_of(self, iteration: Iteration, client: str) -> m.LoopMeasures | None:
        """Return the newest measures of a training loop; None if it has sent none."""
        return self._of(iteration.iteration).loops.get(client)

    def loops_of(self, iteration: Iteration) -> list[m.LoopMeasures]:
        """Return the newest measures of the training loops that still read."""
        loops = self._of(iteration.iteration).loops
        return [loop for client, loop in loops.items() if client in iteration.clients]

    def of_iteration(self, iteration: Iteration) -> JobTotals:
        """Return the totals of an iteration."""
        totals = JobTotals()
        self._add(totals, iteration)
        return totals

    def tasks_of(self, iteration: Iteration) -> dict[int, tuple[str, m.TaskMeasures]]:
        """Return the address of the worker and the measures of the newest attempt of
        each task.
        """
        newest: dict[int, tuple[int, str, m.TaskMeasures]] = {}
        for (task, attempt), (worker, measures) in self._of(iteration.iteration).tasks.items():
            if task not in newest or newest[task][0] < attempt:
                newest[task] = attempt, worker, measures
        return {task: (worker, measures) for task, (_, worker, measures) in newest.items()}

    def evidence(self, iteration: Iteration) -> tuple[TaskEvidence, ...]:
        """Return what is known of the tasks of an iteration."""
        return tuple(
            TaskEvidence(
                worker=worker,
                recent=measures.recent,
                nodes=measures.nodes,
                linked=measures.linked,
                cores=measures.cores,
                has_ended=number not in iteration.tasks
                or iteration.tasks[number].removed
                or iteration.tasks[number].total is not None,
            )
            for number, (worker, measures) in sorted(self.tasks_of(iteration).items())
        )

    def situations(self, iteration: Iteration, unit: str = "elements") -> dict[str, Situation]:
        """Return what is known of each training loop, by client.

        Args:
            iteration: what the loops read.
            unit: name of its elements. Operations after ``distribute`` make others.
        """
        tasks, loops = self.evidence(iteration), self._of(iteration.iteration).loops
        hosted = len({task.worker for task in iteration.tasks.values() if task.worker})
        deaths = [one.how for task in iteration.tasks.values() for one in task.deaths.values()]
        numbers = {client: number for number, client in iteration.consumers.items()}
        paces = {
            client: _pace(numbers[client], loop)
            for client, loop in loops.items()
            if client in numbers
        }
        living = {client: loop for client, loop in loops.items() if client in iteration.clients}
        demands = {
            client: _demand(loop) for client, loop in living.items() if client not in numbers
        }
        together = sum(demands.values())
        attempts = self._of(iteration.iteration).tasks.values()
        counts = counted_together(measures.counts for _, measures in attempts)
        return {
            client: Situation(
                loop.outer or loop.recent,
                tasks,
                loop.first,
                loop.outer_total or loop.total,
                hosted=hosted,
                deaths=tuple(deaths),
                unit=unit if loop.outer is None else "elements",
                served=None if loop.outer is None else loop.recent,
                consumer=numbers.get(client),
                others=tuple(pace for other, pace in paces.items() if other != client),
                demand=max(0.0, together - demands.get(client, 0.0)),
                pace=loop.pace,
                counts=counts,
            )
            for client, loop in loops.items()
            if client in iteration.clients
        }


def judged_loop(
    situations: Mapping[str, Situation], judge_one: Callable[[Situation], Verdict] = judge
) -> tuple[Situation, Verdict] | None:
    """Return the situation of and the verdict on the training loop that waits most, or
    on one that others hold up. None if there is no loop.

    Args:
        situations: what is known of each loop, by client.
        judge_one: judges a loop.
    """
    if not situations:
        return None
    waiting = most_waiting(situations)
    worst = waiting, judge_one(waiting)
    if worst[1].word == STRAGGLER:
        return worst
    others = ((one, judge_one(one)) for one in situations.values() if one.others)
    return next((one for one in others if one[1].word == STRAGGLER), worst)


def most_waiting(situations: Mapping[str, Situation]) -> Situation:
    """Return the situation of the training loop that waits most, of one or more."""
    return max(situations.values(), key=lambda one: one.wait_share)


def elements_delivered(iteration: Iteration) -> int:
    """Return the number of elements of an iteration that have reached training loops.

    A round that all numbered consumers have passed has an element for each of them. The
    rests of all tasks together fill the last rounds.
    """
    if iteration.rounds is None:
        return iteration.delivered
    tasks, lanes = iteration.tasks.values(), len(iteration.rounds.steps)
    full = sum(
        len(task.delivered) if task.full is None else min(len(task.delivered), task.full)
        for task in tasks
    )
    rest = sum(task.rest for task in tasks if task.rest and task.settled and not task.removed)
    return full * lanes + max(0, rest - iteration.dropped)


def _pace(consumer: int, loop: m.LoopMeasures) -> m.ConsumerPace:
    situation = Situation(loop.recent, pace=loop.pace if loop.outer is None else 0.0)
    return m.ConsumerPace(consumer, situation.step, situation.wait_share >= WAITS)


def _demand(loop: m.LoopMeasures) -> float:
    """Return the elements per second that a loop would take if it never waited."""
    sums = loop.outer or loop.recent
    working = Situation(sums, pace=loop.pace).step * sums.elements
    return loop.recent.elements / working if working > 0 else 0.0
