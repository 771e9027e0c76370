"""The task lists sent to clients: where each task of their iteration is hosted, and
whether further tasks may come.

A list names every task and goes to every client. For large iterations that is much
data, and it changes all the time while workers come and go. The dispatcher therefore
sends a bounded amount at a time, and later changes wait for the next round. All clients
with the same view get the same list, which the shell encodes once.

Decision 0023; protocol 3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.holdings import Holdings
from zmqdata.core.dispatcher.tasks.placement import Placement
from zmqdata.core.job_rules import outlives_host

Reach = tuple[tuple[int, ...], tuple[str, ...]]
"""The shards beside a client, and the addresses of its local workers."""
MOST_AT_ONCE = 100_000
"""Maximum number of task places sent in one turn, over all clients."""
PER_SECOND = 500_000
"""Maximum number of task places sent per second, about 30 MB. The rest of the time is
for other messages.
"""
MAKING = 4
"""A place in a new list costs as much as this many places in a list that is sent
again.
"""


@dataclass
class ListStanding:
    """The state of sending an iteration's newest task list."""

    waiting: dict[str, None]
    """Clients that still have to be sent the list."""
    lists: dict[Reach, m.TaskList] = field(default_factory=dict)
    """Lists made so far, by the reach of the client."""
    until: float = 0.0
    """Time until which the last message may be in flight."""


class TaskLists:
    """The task lists of all iterations, with their versions.

    Args:
        out: state and commands.
        clients: the living clients.
        placement: which clients may read from which worker.
        holdings: which tasks have no host because clients are being asked for their
            holdings.

    Attributes:
        plan: returns the plan for the numbered consumers of an iteration; None for
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
        """Return the places of the tasks that still owe elements and that a client may
        read, and the other tasks that it may come to read.
        """
        reads, concerns = self.readable(iteration, client), self.concerning(iteration, client)
        owed = [task for task in iteration.live_tasks if not task.settled and concerns(task)]
        listed = [task for task in owed if (reads(task) if task.worker else self.waits(task))]
        places = tuple(
            [
                m.TaskPlace(task.task, task.attempt, task.worker, self._address(task), task.index)
                for task in listed
            ]
        )
        readers = (
            tuple(sorted(map(m.shown_name, iteration.clients))) if iteration.rounds is None else ()
        )
        return m.TaskList(
            self.version(iteration.iteration),
            places,
            iteration.closed,
            self.plan(iteration),
            readers,
            _left_out(iteration),
            {task.task: task.left_out for task in iteration.live_tasks if task.left_out},
            self.out.ticket(iteration.iteration),
            tuple(sorted({task.task for task in owed} - {task.task for task in listed})),
            self.out.counts_of(iteration),
        )

    def readable(self, iteration: Iteration, client: str) -> Callable[[Task], bool]:
        """Return a predicate that tells whether a client may read a task where it is
        hosted. A task without a host may be read wherever it is hosted next.
        """
        reads = self.placement.reader(client, iteration)
        own = iteration.own_shards(client)
        return lambda task: (
            (not own or task.shard in own) and (not task.worker or reads(task.worker))
        )

    def concerning(self, iteration: Iteration, client: str) -> Callable[[Task], bool]:
        """Return a predicate that tells whether a client may read a task where it is
        hosted, or where it is hosted next if its worker is lost.
        """
        if not outlives_host(iteration.job):
            return self.readable(iteration, client)
        own = iteration.own_shards(client)
        return lambda task: not own or task.shard in own

    def reach(self, iteration: Iteration, client: str) -> Reach:
        """Return the facts that decide which tasks a client may read. Clients with
        equal facts may read the same tasks.
        """
        return iteration.own_shards(client), iteration.local_workers(client)

    def version(self, iteration: int) -> int:
        """Return the version of an iteration's task list, which only grows while the
        dispatcher runs.
        """
        return self.versions.get(iteration, 0)

    def waits(self, task: Task) -> bool:
        """Return True if a task without a host will get one, as far as is known."""
        return self.holdings.is_open(task) or self.holdings.owes(task)

    def _address(self, task: Task) -> str:
        facts = self.placement.facts.get(task.worker)
        return "" if facts is None else facts.address

    def tell(self, iteration: Iteration) -> None:
        """Push the task list to every client of an iteration at the end of this
        turn.
        """
        self._changed.add(iteration.iteration)

    def latest(self, iteration: Iteration, client: str) -> m.TaskList:
        """Return the task list for a client that joins or must hear it again."""
        if iteration.iteration in self._tellings:
            self._tellings[iteration.iteration].waiting.pop(client, None)
        return self.task_list(iteration, client)

    def news(self, iteration: Iteration, beat: m.ClientHeartbeat, now: float) -> m.TaskList | None:
        """Return the task list for a client that speaks now; None if the client has the
        newest list or will get it soon.
        """
        client, newest = beat.client, (self.out.mark, self.version(iteration.iteration))
        if (beat.task_mark, beat.task_version) == newest:
            return None
        telling = self._tellings.get(iteration.iteration)
        if telling is None:
            return self.task_list(iteration, client)
        if client not in telling.waiting and now < telling.until:
            return None
        telling.waiting.pop(client, None)
        return self._list_of(telling, iteration, client)

    def push(self, now: float) -> None:
        """Push the task lists that changed, each once, within the allowance."""
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
            size = len(task_list.tasks) + len(task_list.readers) + len(task_list.left_out_of)
            self._allowance -= size
            telling.until = now + size * len(iteration.clients) / PER_SECOND
            self.out.send(peer, m.TasksChanged(client, task_list))

    def _list_of(self, telling: ListStanding, iteration: Iteration, client: str) -> m.TaskList:
        reach = self.reach(iteration, client)
        if reach not in telling.lists:
            telling.lists[reach] = self.task_list(iteration, client)
            self._allowance -= MAKING * len(iteration.tasks)
        return telling.lists[reach]

    def forget(self, iteration: int) -> None:
        """Forget an iteration that is collected."""
        self.versions.pop(iteration, None)
        self._tellings.pop(iteration, None)
        self._unfinished.discard(iteration)


def _left_out(iteration: Iteration) -> tuple[m.LeftOutElement, ...]:
    if iteration.job.on_poison != "skip":
        return ()
    found = []
    for task in iteration.tasks.values():
        for place, text in task.poisoned.items():
            known = (one for death in task.deaths.values() for one in death.in_progress)
            unknown = m.Work(task.task, 0, place[1])
            work = next((one for one in known if one.place == place), unknown)
            node, number = place
            found.append(m.LeftOutElement(task.index, node, number, work.label, text, work.split))
    return tuple(found)
