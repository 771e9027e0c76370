"""Tasks go to other workers when a client cannot reach theirs and the dispatcher can: a
cable between them is cut.
"""

from __future__ import annotations

from collections.abc import Collection

from zmqdata.core.dispatcher.hosting import Hosting
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.job_rules import outlives_host
from zmqdata.messages import shown_name

HEARD_LATELY = 5.0
"""A worker that has said nothing to us either for so many seconds is busy, or lost, and
not behind a cut cable.
"""


class Detours:
    """Decides which tasks change their host because of what clients say.

    A task goes to each worker once for that reason: where its readers reach none, it
    stays where it came to.

    Args:
        out: takes notes.
        hosting: of the tasks.
    """

    def __init__(self, out: Outbox, hosting: Hosting) -> None:
        self.out = out
        self.hosting = hosting

    def take(
        self, iteration: Iteration, client: str, unreached: Collection[str], now: float
    ) -> None:
        """A client of an iteration has had nothing of the workers at some addresses for
        long.
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
            text = f"client {shown_name(client)} can not reach worker {where}: task {task.task} goes on elsewhere"
            self.out.note("warning", text)
            self.hosting.fence(task)
