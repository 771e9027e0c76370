"""What workers tell a client of the tasks that it reads, for a verdict on its loop.

Decision 0046; protocol 10.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from zmqdata import messages as m
from zmqdata.core.client.tasks import ReadTask
from zmqdata.core.verdict import TaskEvidence


class Evidence:
    """The newest measures of each task that a client reads.

    Attributes:
        others: paces of the other numbered consumers, by number.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[str, m.TaskMeasures]] = {}
        self.others: dict[int, m.ConsumerPace] = {}

    def hear(self, message: m.LinkReported, worker: str) -> None:
        """Record what a worker tells.

        Args:
            message: the report.
            worker: address of the worker.
        """
        for measures in message.tasks:
            known = self._tasks.get(measures.task)
            if known is None or known[1].attempt <= measures.attempt:
                self._tasks[measures.task] = (worker, measures)
        self.others.update({pace.consumer: pace for pace in message.paces})

    def of(self, tasks: Mapping[int, ReadTask]) -> tuple[TaskEvidence, ...]:
        """Return what is known of the tasks of an iteration. May be called from any
        thread.

        Args:
            tasks: the tasks as the client reads them.
        """
        found = []
        for number, (worker, measures) in sorted(self._tasks.copy().items()):
            task = tasks.get(number)
            if task is not None:
                found.append(
                    TaskEvidence(
                        worker=worker,
                        recent=measures.recent,
                        nodes=measures.nodes,
                        linked=measures.linked,
                        has_ended=task.ended,
                    )
                )
        return tuple(found)
