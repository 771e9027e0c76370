"""Who has still to say what it has of a task that lost its host, before the next host
begins.

What they have said is durable: ``Task.held``.
"""

from __future__ import annotations

from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.ranges import RangeSet


class Holdings:
    """By task: who has still to answer (``waiting``)."""

    def __init__(self) -> None:
        self.waiting: dict[int, set[str]] = {}

    def ask(self, task: Task, clients: set[str]) -> None:
        """Begins to wait for the answers of these clients."""
        self.waiting[task.task] = set(clients)

    def ask_rest(self, task: Task, clients: set[str]) -> None:
        """Waits for those of these clients that have not answered a former
        dispatcher.
        """
        missing = clients - task.held.keys()
        if missing:
            self.ask(task, missing)

    def is_open(self, task: Task) -> bool:
        """Whether answers are missing, so that the task may not have a host."""
        return task.task in self.waiting

    def answer(self, task: Task, client: str) -> bool:
        """Counts an answer; False when it was not waited for."""
        if client not in self.waiting.get(task.task, ()):
            return False
        self.waiting[task.task].discard(client)
        return True

    def close(self, task: Task) -> bool:
        """Ends the wait if nobody is missing; says whether it has."""
        if self.waiting[task.task]:
            return False
        del self.waiting[task.task]
        return True

    def drop(self, task: Task, client: str) -> None:
        """Expects nothing more of a client."""
        self.waiting.get(task.task, set()).discard(client)

    def only_with(self, client: str, iteration: Iteration) -> set[int]:
        """The tasks of which a client has something, from a former host, that was not
        delivered.
        """
        return {
            task.task
            for task in iteration.live_tasks
            if any(
                not task.delivered.covers(first, stop) for first, stop in task.held.get(client, ())
            )
        }

    def forget(self, number: int) -> None:
        """Nothing of a task is owed to anybody any more."""
        self.waiting.pop(number, None)

    def taken(self, task: Task) -> RangeSet:
        """The elements that need not be sent again: delivered, or held by a living
        client.
        """
        taken = task.delivered.copy()
        for held in task.held.values():
            taken.update(held)
        return taken

    def owes(self, task: Task) -> bool:
        """Whether a task has elements that nobody has."""
        return task.total is None or not self.taken(task).covers(0, task.total)
