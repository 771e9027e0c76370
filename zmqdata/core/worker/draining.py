"""How a worker leaves in good order: it waits until its tasks have gone elsewhere, but
not for ever. No clock.

It leaves when it is told to, or when it has had as many tasks as it may.

Which of its tasks goes where is decided by the dispatcher
(``core.dispatcher.hosting``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from zmqdata.core.job_rules import outlives_host
from zmqdata.core.worker import events as e
from zmqdata.messages import TaskDefinition

DRAIN_SECONDS = 6.0
"""How long a worker that shall leave waits for others to take its tasks."""


class Draining:
    """Whether a worker is on its way out (``begun``), and whether it may leave
    (``done``).

    Args:
        do: takes what is to be told.
        max_tasks: how many tasks it has before it leaves; 0: any number.

    Attributes:
        tasks: how many were begun here and are here no more.
        worn: whether it leaves because there were enough.

    Example:
        >>> draining = Draining(lambda note: None)
        >>> draining.begin(0.0, 6.0, 0)
        True
        >>> draining.look(0.0, [])
        >>> draining.done
        True
    """

    def __init__(self, do: Callable[[e.WorkerCommand], None], max_tasks: int = 0) -> None:
        self.begun = self.done = self.worn = False
        self.tasks = 0
        self._max_tasks = max_tasks
        self._until = 0.0
        self._do = do

    @property
    def concerns(self) -> bool:
        """Whether it matters what is here: on its way out, or having had enough."""
        return not self.done and (
            self.begun or (bool(self._max_tasks) and self.tasks >= self._max_tasks)
        )

    def begin(self, now: float, patience: float, tasks: int) -> bool:
        """It shall leave within ``patience`` seconds; False when it was told before,
        which counts.

        ``tasks``: how many are here.
        """
        if self.begun:
            return False
        self.begun, self._until = True, now + patience
        self._do(e.LogLine("info", f"draining: {tasks} tasks are handed over"))
        return True

    def look(self, now: float, tasks: Collection[TaskDefinition]) -> None:
        """It may leave when it hosts nothing that would go on elsewhere, or has waited
        for long enough.

        ``tasks``: what is here, but for copies that have ended and that nobody reads.
        Who has had enough tasks does not begin to leave while there is a copy of the
        input, which would begin anew.
        """
        if (
            self._max_tasks
            and self.tasks >= self._max_tasks
            and not self.begun
            and all(map(outlives_host, tasks))
        ):
            self.worn = self.begin(now, DRAIN_SECONDS, len(tasks))
        left = (
            sum(self.worn or outlives_host(task) for task in tasks)
            if self.begun and not self.done
            else 0
        )
        if self.begun and not self.done and (not left or now >= self._until):
            self.done = True
            if left:
                self._do(
                    e.LogLine(
                        "warning",
                        f"nobody has taken {left} tasks in time; they wait for another worker",
                    )
                )
