"""Holdings: which clients must still report what they have of a task that lost its
host. The next host begins when all have answered.

The answers are durable: ``Task.held``.

Protocol 8.1 to 8.3.
"""

from __future__ import annotations

from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.ranges import RangeSet


class Holdings:
    """Tracks which clients must still answer, by task.

    Attributes:
        waiting: the names of these clients by task number.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, set[str]] = {}

    def ask(self, task: Task, clients: set[str]) -> None:
        """Begin to wait for the answers of these clients."""
        self.waiting[task.task] = set(clients)

    def ask_rest(self, task: Task, clients: set[str]) -> None:
        """Wait for the answers of these clients, except answers that a former
        dispatcher has received.
        """
        missing = clients - task.held.keys()
        if missing:
            self.ask(task, missing)

    def is_open(self, task: Task) -> bool:
        """Return True if answers are missing, so that the task may not have a host."""
        return task.task in self.waiting

    def answer(self, task: Task, client: str) -> bool:
        """Count an answer. Return False if it was not expected."""
        if client not in self.waiting.get(task.task, ()):
            return False
        self.waiting[task.task].discard(client)
        return True

    def close(self, task: Task) -> bool:
        """End the wait if no answer is missing. Return True if it has ended."""
        if self.waiting[task.task]:
            return False
        del self.waiting[task.task]
        return True

    def drop(self, task: Task, client: str) -> None:
        """Stop waiting for the answer of a client."""
        self.waiting.get(task.task, set()).discard(client)

    def only_with(self, client: str, iteration: Iteration) -> set[int]:
        """Return the tasks of which a client holds undelivered elements from a former
        host.
        """
        return {task.task for task in iteration.live_tasks if keeps(task, client)}

    def forget(self, number: int) -> None:
        """Forget a task that owes no elements any more."""
        self.waiting.pop(number, None)

    def taken(self, task: Task) -> RangeSet:
        """Return the elements that need not be sent again: delivered, or held by a
        living client.
        """
        taken = task.delivered.copy()
        for held in task.held.values():
            taken.update(held)
        return taken

    def owes(self, task: Task) -> bool:
        """Return True if a task has elements that no client has."""
        return task.total is None or not self.taken(task).covers(0, task.total)


def keeps(task: Task, client: str) -> bool:
    """Return True if a client holds undelivered elements from a former host."""
    held = task.held.get(client, ())
    return any(not task.delivered.covers(first, stop) for first, stop in held)


def holders_of(task: Task, iteration: Iteration) -> set[str]:
    """Return the clients that must report their holdings of a task before another host
    makes the rest.
    """
    if iteration.rounds is not None:
        # Numbered consumers tell the new host itself what they lack, and their elements
        # can go to no other client.
        return set()
    # A reader of other shards has nothing of the task. It may be dead, and alone there,
    # so that it is not given up.
    if not iteration.shard_readers:
        return iteration.clients
    return {
        client
        for client in iteration.clients
        if not (own := iteration.own_shards(client)) or task.shard in own
    }
