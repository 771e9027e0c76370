"""Evidence for a verdict on a training loop: what workers tell of the tasks it reads.

Decision 0046; protocol 11.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from zmqdata import messages as m
from zmqdata.core.client.tasks import ReadTask
from zmqdata.measures.situation import Situation, TaskEvidence
from zmqdata.measures.sums import counted_together


class Evidence:
    """The newest measures of each task that a client reads, and the paces of the other
    numbered consumers.

    Args:
        consumer: number of the client's consumer; None if it has none.
    """

    def __init__(self, consumer: int | None) -> None:
        self._consumer = consumer
        self._tasks: dict[int, tuple[str, m.TaskMeasures]] = {}
        self._others: dict[int, m.ConsumerPace] = {}
        self._demand = 0.0
        self._counts: dict[tuple[int, int], Mapping[str, float]] = {}  # by task and attempt

    def hear(self, message: m.LinkReported, worker: str) -> None:
        """Record a worker's report.

        Args:
            message: the report.
            worker: address of the worker.
        """
        for measures in message.tasks:
            self._counts[measures.task, measures.attempt] = measures.counts
            known = self._tasks.get(measures.task)
            if known is None or known[1].attempt <= measures.attempt:
                self._tasks[measures.task] = (worker, measures)
        for pace in message.paces:
            self._others[pace.consumer] = pace
        self._demand = message.demand

    def end(self, message: m.EndOfTask) -> None:
        """Record the end of a task."""
        self._counts[message.task, message.attempt] = message.counts

    def situation(
        self, loop: m.LoopMeasures, tasks: Mapping[int, ReadTask], limit: int | None
    ) -> Situation:
        """Return what is known of the loop and of all that feeds it. May be called from
        any thread.

        Args:
            loop: measures of the loop.
            tasks: the tasks as the client reads them.
            limit: most elements in flight that the user allows; None if there is no
                such limit.
        """
        return Situation(
            loop.recent,
            self._evidence(tasks),
            loop.first,
            loop.total,
            consumer=self._consumer,
            hosted=len({task.place.address for task in tasks.values()}),
            others=tuple(self._others.copy().values()),
            limit=limit,
            demand=self._demand,
            counts=counted_together(self._counts.copy().values()),
            pace=loop.pace,
        )

    def _evidence(self, tasks: Mapping[int, ReadTask]) -> tuple[TaskEvidence, ...]:
        known = sorted(self._tasks.copy().items())
        return tuple(
            TaskEvidence(
                worker=worker,
                recent=measures.recent,
                nodes=measures.nodes,
                linked=measures.linked,
                cores=measures.cores,
                has_ended=tasks[number].ended,
            )
            for number, (worker, measures) in known
            if number in tasks
        )
