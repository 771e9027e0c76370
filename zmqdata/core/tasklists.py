"""What clients are told of the tasks of their iteration: where each is hosted, and whether there will be more."""

from __future__ import annotations

from collections.abc import Callable

from zmqdata import messages as m
from zmqdata.core.holdings import Holdings
from zmqdata.core.liveness import Roster
from zmqdata.core.outbox import Outbox
from zmqdata.core.placement import Placement
from zmqdata.core.state import Iteration, Task


class TaskLists:
    """The task lists of all iterations, with their versions.

    Args:
        out: state and commands.
        clients: the living clients.
        placement: which clients may read from which worker.
        holdings: which tasks have no host because clients are being asked what they have.

    Attributes:
        plan: what the numbered consumers of an iteration are told beside; None for other iterations.
    """

    def __init__(self, out: Outbox, clients: Roster, placement: Placement, holdings: Holdings) -> None:
        self.out = out
        self.clients = clients
        self.placement = placement
        self.holdings = holdings
        self.versions: dict[int, int] = {}
        self.plan: Callable[[Iteration], m.Plan | None] = lambda iteration: None
        self._changed: set[int] = set()

    def task_list(self, iteration: Iteration, client: str) -> m.TaskList:
        """Where the tasks are that still owe elements to somebody, as far as a client may read them."""
        reads = self.placement.may_read
        places = tuple(
            m.TaskPlace(task.task, task.attempt, task.worker, self._address(task), task.index)
            for task in iteration.live_tasks
            if not task.settled and (reads(client, task.worker, iteration) if task.worker else self._waits(task))
        )
        readers = tuple(sorted(iteration.clients)) if iteration.rounds is None else ()
        return m.TaskList(self.version(iteration.iteration), places, iteration.closed, self.plan(iteration), readers)

    def version(self, iteration: int) -> int:
        """The version of an iteration's task list. Each life of the dispatcher begins above all former ones."""
        return self.versions.get(iteration, self.out.state.life << 32)

    def _waits(self, task: Task) -> bool:
        return self.holdings.is_open(task) or self.holdings.owes(task)

    def _address(self, task: Task) -> str:
        facts = self.placement.facts.get(task.worker)
        return "" if facts is None else facts.address

    def tell(self, iteration: Iteration) -> None:
        """Has the task list pushed to every client of an iteration at the end of this turn."""
        self._changed.add(iteration.iteration)

    def push(self) -> None:
        """Pushes the task lists that changed in this turn, each once."""
        for number in sorted(self._changed & self.out.state.iterations.keys()):
            self.versions[number] = self.version(number) + 1
            iteration = self.out.state.iterations[number]
            for client in sorted(iteration.clients):
                task_list = self.task_list(iteration, client)
                self.out.send(self.clients.peer(client), m.TasksChanged(client, task_list))
        self._changed.clear()

    def forget(self, iteration: int) -> None:
        """Drops what is remembered of an iteration that is collected."""
        self.versions.pop(iteration, None)
