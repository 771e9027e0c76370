"""What clients hold of tasks that changed their host, and who has still to say so before the next host begins."""

from __future__ import annotations

from zmqdata.core.ranges import RangeSet
from zmqdata.core.state import Task


class Holdings:
    """By task: who has still to answer (``waiting``), and what each client said it has (``held``)."""

    def __init__(self) -> None:
        self.waiting: dict[int, set[str]] = {}
        self.held: dict[int, dict[str, RangeSet]] = {}

    def ask(self, task: Task, clients: set[str]) -> None:
        """Begins to wait for the answers of these clients."""
        self.held[task.task] = {}
        self.waiting[task.task] = set(clients)

    def is_open(self, task: Task) -> bool:
        """Whether answers are missing, so that the task may not have a host."""
        return task.task in self.waiting

    def answer(self, task: Task, client: str, ranges: RangeSet) -> bool:
        """Takes an answer; False when it was not waited for."""
        if client not in self.waiting.get(task.task, ()):
            return False
        self.waiting[task.task].discard(client)
        self.held[task.task][client] = ranges
        return True

    def close(self, task: Task) -> bool:
        """Ends the wait if nobody is missing; says whether it has."""
        if self.waiting[task.task]:
            return False
        del self.waiting[task.task]
        return True

    def drop(self, task: Task, client: str) -> RangeSet | None:
        """Expects nothing more of a client; returns what it had said it has."""
        self.waiting.get(task.task, set()).discard(client)
        return self.held.get(task.task, {}).pop(client, None)

    def forget(self, number: int) -> None:
        """Nothing of a task is owed to anybody any more."""
        self.held.pop(number, None)
        self.waiting.pop(number, None)

    def taken(self, task: Task) -> RangeSet:
        """The elements that need not be sent again: delivered, or held by a living client."""
        taken = task.delivered.copy()
        for held in self.held.get(task.task, {}).values():
            taken.update(held)
        return taken

    def owes(self, task: Task) -> bool:
        """Whether a task has elements that nobody has."""
        return task.total is None or not self.taken(task).covers(0, task.total)
