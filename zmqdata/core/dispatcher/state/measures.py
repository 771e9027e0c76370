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
from zmqdata.measures.sums import added
from zmqdata.measures.verdict import STRAGGLER, Situation, TaskEvidence, Verdict, judge

JOBS_KEPT = 1000
"""Maximum number of jobs whose totals are remembered."""

NodeName = tuple[str, str]
"""Place and label of a node."""


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
    skipped: int = 0
    """Number of elements that operations left out."""
    moved: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes and elements that arrived, by transport and codec."""

    def add_task(self, measures: m.TaskMeasures) -> None:
        """Add an attempt of a task."""
        self.sums = added((self.sums, measures.total), m.TaskSums())
        for node in measures.nodes:
            name = (node.place, node.label)
            self.nodes[name] = self.nodes.get(name, 0.0) + node.total

    def add_loop(self, measures: m.LoopMeasures) -> None:
        """Add a training loop."""
        self.loop = added((self.loop, measures.total), m.LoopSums())
        for name, (nbytes, elements) in measures.moved.items():
            before = self.moved.get(name, (0, 0))
            self.moved[name] = (before[0] + nbytes, before[1] + elements)


@dataclass
class _IterationMeasures:
    """The measures of an iteration that is not collected."""

    tasks: dict[tuple[int, int], tuple[str, m.TaskMeasures]] = field(default_factory=dict)
    """Address of the worker, and its newest measures, by task and attempt."""
    loops: dict[str, m.LoopMeasures] = field(default_factory=dict)
    """Newest measures of each training loop that reads or has read it."""


class Measures:
    """All measures of a dispatcher.

    Args:
        iterations: the iterations by number.
    """

    def __init__(self, iterations: Mapping[int, Iteration]) -> None:
        self._iterations = iterations
        self._kept: dict[int, _IterationMeasures] = {}
        self._ended: OrderedDict[str, JobTotals] = OrderedDict()

    # --- reports

    def take_tasks(
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

    def take_loop(self, iteration: int, client: str, measures: m.LoopMeasures | None) -> None:
        """Record the measures of a training loop."""
        if measures is not None:
            self._of(iteration).loops[client] = measures

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
        found = {
            name: replace(totals, nodes=dict(totals.nodes), moved=dict(totals.moved))
            for name, totals in self._ended.items()
        }
        for iteration in self._iterations.values():
            self._add(found.setdefault(iteration.job.name, JobTotals()), iteration)
        return found

    def _add(self, totals: JobTotals, iteration: Iteration) -> None:
        kept = self._kept.get(iteration.iteration, _IterationMeasures())
        made: dict[int, float] = {}
        for (number, _), (_, measures) in kept.tasks.items():
            totals.add_task(measures)
            made[number] = made.get(number, 0.0) + measures.total.elements
        for loop in kept.loops.values():
            totals.add_loop(loop)
        totals.delivered += iteration.delivered
        totals.skipped += sum(task.left_out for task in iteration.tasks.values())
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
                has_ended=number not in iteration.tasks
                or iteration.tasks[number].removed
                or iteration.tasks[number].total is not None,
            )
            for number, (worker, measures) in sorted(self.tasks_of(iteration).items())
        )

    def situations(self, iteration: Iteration) -> dict[str, Situation]:
        """Return what is known of each training loop, by client."""
        tasks, loops = self.evidence(iteration), self._of(iteration.iteration).loops
        numbers = {client: number for number, client in iteration.consumers.items()}
        paces = {
            client: _pace(numbers[client], loop)
            for client, loop in loops.items()
            if client in numbers
        }
        return {
            client: Situation(
                loop.recent,
                tasks,
                loop.first,
                loop.total,
                consumer=numbers.get(client),
                others=tuple(pace for other, pace in paces.items() if other != client),
            )
            for client, loop in loops.items()
            if client in iteration.clients or len(loops) == 1
        }

    def verdict(
        self, iteration: Iteration, judge_one: Callable[[Situation], Verdict] = judge
    ) -> Verdict | None:
        """Return the verdict on the training loop that waits most. None if no loop has
        sent measures.

        Args:
            iteration: the iteration.
            judge_one: judges a loop.
        """
        situations = self.situations(iteration)
        if not situations:
            return None
        worst = judge_one(max(situations.values(), key=lambda one: one.wait_share))
        if worst.word == STRAGGLER:
            return worst
        others = (judge_one(one) for one in situations.values() if one.others)
        return next((one for one in others if one.word == STRAGGLER), worst)


def _pace(consumer: int, loop: m.LoopMeasures) -> m.ConsumerPace:
    situation = Situation(loop.recent)
    return m.ConsumerPace(consumer, situation.step, situation.wait_share >= 0.05)
