"""What clients are told of the tasks of their iteration: where each is hosted, and
whether there will be more.

A list names every task, and goes to every client: of large iterations that is much, and
while workers come and go it changes all the time. So only so much is said at a time,
what has changed meanwhile comes with the next round, and all clients with the same view
get the same list, which the shell then encodes once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.dispatcher.holdings import Holdings
from zmqdata.core.dispatcher.liveness import Roster
from zmqdata.core.dispatcher.placement import Placement
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task

MOST_AT_ONCE = 100_000
"""So many places in task lists are told in one turn, in messages to however many
clients.
"""
PER_SECOND = 500_000
"""And so many in a second, about 30 MB: the rest of time is for what others have to
say.
"""
MAKING = 4
"""A place in a new list costs as much as so many in one that is told again."""


@dataclass
class ListStanding:
    """The round of an iteration's newest version.

    ``waiting``: the clients that still have to be told; ``lists``: by what a client has
    beside it; ``until``: so long the last of what was told may be on its way.
    """

    waiting: dict[str, None]
    lists: dict[tuple[str, ...], m.TaskList] = field(default_factory=dict)
    until: float = 0.0


class TaskLists:
    """The task lists of all iterations, with their versions.

    Args:
        out: state and commands.
        clients: the living clients.
        placement: which clients may read from which worker.
        holdings: which tasks have no host because clients are being asked what they
            have.

    Attributes:
        plan: what the numbered consumers of an iteration are told beside; None for
            other iterations.
    """

    def __init__(
        self, out: Outbox, clients: Roster, placement: Placement, holdings: Holdings
    ) -> None:
        self.out = out
        self.clients = clients
        self.placement = placement
        self.holdings = holdings
        self.versions: dict[int, int] = {}
        self.plan: Callable[[Iteration], m.Plan | None] = lambda iteration: None
        self._changed: set[int] = set()
        self._unfinished: set[int] = set()
        self._tellings: dict[int, ListStanding] = {}
        self._allowance = float(MOST_AT_ONCE)
        self._allowed = 0.0

    def task_list(self, iteration: Iteration, client: str) -> m.TaskList:
        """Where the tasks are that still owe elements to somebody, as far as a client
        may read them.
        """
        reads = self.placement.reader(client, iteration)
        places = tuple(
            [
                m.TaskPlace(task.task, task.attempt, task.worker, self._address(task), task.index)
                for task in iteration.live_tasks
                if not task.settled and (reads(task.worker) if task.worker else self._waits(task))
            ]
        )
        readers = (
            tuple(sorted(map(m.shown_name, iteration.clients))) if iteration.rounds is None else ()
        )
        version, left_out = self.version(iteration.iteration), _left_out(iteration)
        ticket = self.out.ticket(iteration.iteration)
        return m.TaskList(
            version, places, iteration.closed, self.plan(iteration), readers, left_out, ticket
        )

    def version(self, iteration: int) -> int:
        """The version of an iteration's task list. Each life of the dispatcher begins
        above all former ones.
        """
        return self.versions.get(iteration, self.out.state.life << 32)

    def _waits(self, task: Task) -> bool:
        return self.holdings.is_open(task) or self.holdings.owes(task)

    def _address(self, task: Task) -> str:
        facts = self.placement.facts.get(task.worker)
        return "" if facts is None else facts.address

    def tell(self, iteration: Iteration) -> None:
        """Has the task list pushed to every client of an iteration at the end of this
        turn.
        """
        self._changed.add(iteration.iteration)

    def latest(self, iteration: Iteration, client: str) -> m.TaskList:
        """What a client that joins is told, or has to hear again."""
        if iteration.iteration in self._tellings:
            self._tellings[iteration.iteration].waiting.pop(client, None)
        return self.task_list(iteration, client)

    def news(
        self, iteration: Iteration, client: str, version: int, now: float
    ) -> m.TaskList | None:
        """What a client that speaks just now is told; None if it has the newest
        version, or will have it soon.
        """
        if version == self.version(iteration.iteration):
            return None
        telling = self._tellings.get(iteration.iteration)
        if telling is None:
            return self.task_list(iteration, client)
        if client not in telling.waiting and now < telling.until:
            return None
        telling.waiting.pop(client, None)
        return self._list_of(telling, iteration, client)

    def push(self, now: float) -> None:
        """Pushes the task lists that changed, each once, as far as that is not too much
        for now.
        """
        if not self._changed and not self._unfinished:
            return
        self._allowance = min(MOST_AT_ONCE, self._allowance + (now - self._allowed) * PER_SECOND)
        self._allowed = now
        for number in sorted((self._changed | self._unfinished) & self.out.state.iterations.keys()):
            self._push_one(self.out.state.iterations[number], now)
        self._changed &= self.out.state.iterations.keys()

    def _push_one(self, iteration: Iteration, now: float) -> None:
        number = iteration.iteration
        while self._allowance > 0 and (number in self._unfinished or number in self._changed):
            if number not in self._unfinished:
                self._changed.discard(number)
                self._unfinished.add(number)
                self.versions[number] = self.version(number) + 1
                self._tellings[number] = ListStanding(dict.fromkeys(sorted(iteration.clients)))
            telling = self._tellings[number]
            while telling.waiting and self._allowance > 0:
                client = next(iter(telling.waiting))
                del telling.waiting[client]
                self._tell_one(telling, iteration, client, now)
            if not telling.waiting:
                self._unfinished.discard(number)

    def _tell_one(
        self, telling: ListStanding, iteration: Iteration, client: str, now: float
    ) -> None:
        peer = self.clients.peer(client)
        if peer is not None and client in iteration.clients:
            task_list = self._list_of(telling, iteration, client)
            size = len(task_list.tasks) + len(task_list.readers)
            self._allowance -= size
            telling.until = now + size * len(iteration.clients) / PER_SECOND
            self.out.send(peer, m.TasksChanged(client, task_list))

    def _list_of(self, telling: ListStanding, iteration: Iteration, client: str) -> m.TaskList:
        beside = iteration.local_workers.get(client, ())
        if beside not in telling.lists:
            telling.lists[beside] = self.task_list(iteration, client)
            self._allowance -= MAKING * len(iteration.tasks)
        return telling.lists[beside]

    def forget(self, iteration: int) -> None:
        """Drops what is remembered of an iteration that is collected."""
        self.versions.pop(iteration, None)
        self._tellings.pop(iteration, None)
        self._unfinished.discard(iteration)


def _left_out(iteration: Iteration) -> tuple[m.LeftOutElement, ...]:
    if iteration.job.on_poison != "skip":
        return ()
    found = []
    for task in iteration.tasks.values():
        for place, text in task.poisoned.items():
            crumbs = (crumb for death in task.deaths.values() for crumb in death.crumbs)
            crumb = next(
                (crumb for crumb in crumbs if crumb.place == place), m.Crumb(task.task, 0, place[1])
            )
            found.append(m.LeftOutElement(task.task, crumb.number, crumb.label, text, crumb.split))
    return tuple(found)
