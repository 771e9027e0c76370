"""Moves of tasks to other workers when a client cannot reach their worker but the
dispatcher can, for example because a cable is cut.

Protocol 8.13.
"""

from __future__ import annotations

from collections.abc import Collection

from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.core.job_rules import outlives_host
from zmqdata.messages import shown_name

HEARD_LATELY = 5.0
"""Seconds. A worker that has been silent towards the dispatcher, too, for this long is
busy or lost, not behind a cut cable.
"""


class Detours:
    """Decides which tasks change their host because clients cannot reach it.

    For this reason a task moves to each worker at most once. If its readers can reach
    no worker, it stays where it is.

    Args:
        out: receives log lines.
        hosting: moves the tasks.
    """

    def __init__(self, out: Outbox, hosting: Hosting) -> None:
        self.out = out
        self.hosting = hosting

    def move_tasks(
        self, iteration: Iteration, client: str, unreached: Collection[str], now: float
    ) -> None:
        """Move the tasks of workers from which a client of an iteration has long
        received nothing.

        Args:
            iteration: the iteration.
            client: the client.
            unreached: addresses of these workers.
            now: the time.
        """
        if not unreached or iteration.failure is not None or not outlives_host(iteration.job):
            return
        missed = {name for name in self.hosting.facts if self._is_missed(name, unreached, now)}
        tasks = [task for task in iteration.live_tasks if not task.settled]
        for name in missed:
            self.hosting.facts[name].shunned |= {task.task for task in tasks}
        for task in tasks:
            if task.worker in missed:
                self._lead_round(iteration, client, task)

    def _is_missed(self, name: str, unreached: Collection[str], now: float) -> bool:
        member = self.hosting.workers.members.get(name)
        is_heard = member is not None and now - member.heard < HEARD_LATELY
        return is_heard and self.hosting.facts[name].address in unreached

    def _lead_round(self, iteration: Iteration, client: str, task: Task) -> None:
        facts = self.hosting.facts
        best = self.hosting.placement.best(task, iteration)
        if best is not None and task.task not in facts[best].shunned:
            where = facts[task.worker].address
            text = (
                f"client {shown_name(client)} cannot reach worker {where}: task "
                f"{task.task} moves to another worker"
            )
            self.out.note("warning", text, iteration)
            self.hosting.fence(task)
