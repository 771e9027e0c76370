"""The orderly shutdown of a worker: it waits, for a limited time, until the dispatcher
has taken back its tasks. It has no clock.

A worker leaves when it is told to, when it has had its maximum number of tasks, or when
its process is recycled because of its memory (``core.worker.memory``).
``core.dispatcher.tasks.hosting`` decides which task moves to which worker. The leaving
worker does not learn it: a task that was taken back may also have ended, or have no
readers.

Decision 0021; protocol 4.8 to 4.10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from zmqdata.core.job_rules import outlives_host
from zmqdata.core.worker import events as e
from zmqdata.core.worker.memory import MemoryWatch
from zmqdata.messages import TaskDefinition

RECYCLE_SECONDS = 1.0
"""Seconds that a worker waits for that if it produces no more and owes no client an
element.
"""


class Draining:
    """Tracks whether a worker is leaving (``begun``), and whether it may end
    (``done``).

    Args:
        do: receives the resulting commands.
        patience: seconds that a worker which leaves of itself waits for the dispatcher
            to take back its tasks.
        max_tasks: number of tasks after which the worker leaves; 0 for no limit.

    Attributes:
        tasks: number of tasks that were started on this worker and have gone.
        worn: True if the worker leaves because it has had enough tasks.
        recycled: True if the worker leaves because of its memory.

    Example:
        >>> draining = Draining(lambda note: None, patience=6.0)
        >>> draining.begin(0.0, 6.0, [])
        True
        >>> draining.check_done(0.0, [])
        >>> draining.done
        True
    """

    def __init__(
        self, do: Callable[[e.WorkerCommand], None], patience: float, max_tasks: int = 0
    ) -> None:
        self.patience = patience
        self.begun = self.done = self.worn = self.recycled = False
        self.tasks = 0
        self._hosted = 0
        self._begun_at = 0.0
        self._max_tasks = max_tasks
        self._until = 0.0
        self._do = do

    @property
    def concerns(self) -> bool:
        """True if the hosted tasks matter: the worker is leaving, or has had enough
        tasks.
        """
        return not self.done and (
            self.begun or (bool(self._max_tasks) and self.tasks >= self._max_tasks)
        )

    def begin(self, now: float, patience: float, tasks: Collection[TaskDefinition]) -> bool:
        """Begin to leave within ``patience`` seconds. Return False if the worker is
        already leaving; the earlier deadline then stays.

        Args:
            now: the time.
            patience: maximum number of seconds until the worker ends.
            tasks: hosted tasks.
        """
        if self.begun:
            return False
        self.begun, self._until = True, now + patience
        self._begun_at, self._hosted = now, sum(outlives_host(task.job) for task in tasks)
        copies = len(tasks) - self._hosted
        ending = f"; {copies} copies of the input (mode OFF) end here" if copies else ""
        self._do(
            e.LogLine("info", f"draining: {self._hosted} tasks go back to the dispatcher{ending}")
        )
        return True

    def consider(self, memory: MemoryWatch, now: float, tasks: Collection[TaskDefinition]) -> bool:
        """Begin to leave, and end production, if the process is to be recycled because
        of its memory. Return True if it begins.

        It does not begin while the worker hosts a copy of the input, which would begin
        anew elsewhere.

        Args:
            memory: memory of the process.
            now: the time.
            tasks: hosted tasks, without copies that have ended and that no client
                reads.
        """
        if self.begun or not memory.is_over:
            return False
        copies = sum(not outlives_host(task.job) for task in tasks)
        notice = memory.notice(now, copies)
        if notice:
            self._do(e.LogLine("warning", notice))
        if copies or not memory.may_recycle(now):
            return False
        self.recycled = self.begin(now, self.patience, tasks)
        self._do(e.FallQuiet())
        return True

    def check_done(
        self, now: float, tasks: Collection[TaskDefinition], owes_elements: bool = True
    ) -> None:
        """Set ``done`` if the worker hosts no task that would continue elsewhere, or
        has waited long enough.

        A worker that has had enough tasks does not begin to leave while it hosts a copy
        of the input, which would begin anew elsewhere.

        Args:
            now: the time.
            tasks: hosted tasks, without copies that have ended and that no client
                reads.
            owes_elements: False if clients have everything that was produced. A worker
                that is recycled then waits only for a moment.
        """
        if (
            self._max_tasks
            and self.tasks >= self._max_tasks
            and not self.begun
            and all(outlives_host(task.job) for task in tasks)
        ):
            self.worn = self.begin(now, self.patience, tasks)
        left = (
            sum(self.worn or self.recycled or outlives_host(task.job) for task in tasks)
            if self.begun and not self.done
            else 0
        )
        until = self._until
        if self.recycled and not owes_elements:
            until = min(until, self._begun_at + RECYCLE_SECONDS)
        if self.begun and not self.done and (not left or now >= until):
            self.done = True
            taken, seconds = max(0, self._hosted - left), now - self._begun_at
            text = f"drained: the dispatcher has taken back {taken} of {self._hosted} tasks"
            self._do(e.LogLine("info", f"{text} in {seconds:.1f} s"))
            if left and self.recycled:
                self._do(
                    e.LogLine("info", f"{left} tasks continue in the process that replaces this")
                )
            elif left:
                self._do(
                    e.LogLine(
                        "warning",
                        f"no other worker has taken {left} tasks of this worker in time; the "
                        "dispatcher keeps them for the next worker",
                    )
                )
