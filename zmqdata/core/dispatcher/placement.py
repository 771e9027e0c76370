"""Where a task may be hosted and who may read it there: facts of workers, their
configured order, target workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zmqdata import messages as m
from zmqdata.core.dispatcher.state.loads import Loads
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.job_rules import effective_target, is_for_all, may_read, outlives_host

MOST_STREAMS = 3
"""How many streams of saves a worker writes at a time (tf.data's
worker_max_concurrent_snapshots).
"""


MOST_SENT_AGAIN = 500
"""Tasks that a worker is sent once more for one of its reports: half of the messages
that may wait for it.
"""


@dataclass
class WorkerFacts:
    """What a worker said of itself, and what it was last heard to do. Not durable.

    ``leases``: size and time of the last range of splits, per task it hosts and source.
    ``writing``: those of its tasks that are saved. ``missing``: those that its last
    report lacked. ``suspects``: those at which a process died before; ``shunned``:
    those that were stuck here. ``draining``: it will leave and gets no more tasks.
    """

    address: str
    tags: tuple[str, ...]
    python: str
    tasks: set[int] = field(default_factory=set)
    writing: set[int] = field(default_factory=set)
    suspects: set[int] = field(default_factory=set)
    shunned: set[int] = field(default_factory=set)
    reports: dict[int, m.TaskReport] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    leases: dict[int, dict[int, tuple[int, float]]] = field(default_factory=dict)
    reported_at: float = 0.0
    rate: float = 0.0
    draining: bool = False

    def take(self, reports: tuple[m.TaskReport, ...], now: float) -> None:
        """Notes what it reports, and how many elements it has made in a second."""
        made = sum(
            report.produced - self.reports[report.task].produced
            if report.task in self.reports
            else report.produced
            for report in reports
        )
        seconds = now - self.reported_at
        if seconds >= 0.5:
            self.rate = max(0.0, made / seconds)
            self.reported_at = now
        self.reports = {report.task: report for report in reports}

    def lost(self, missing: list[int]) -> list[int]:
        """Which of the tasks that its report lacks have to be sent again.

        What the report before did not lack, too, is most likely on its way. And of
        thousands some at a time: a worker that is slow to take them would have them
        sent over and over.

        Example:
            >>> facts = WorkerFacts("tcp://w", (), "")
            >>> facts.lost([3]), facts.lost([3, 4]), facts.lost([4])
            ([], [3], [4])
        """
        known, self.missing = self.missing, set(missing)
        return [task for task in missing if task in known][:MOST_SENT_AGAIN]


class IndexOfWorkers(Protocol):
    """The configured workers in their order."""

    def __len__(self) -> int: ...

    def index(self, address: str) -> int | None:
        """The place of the worker at an address; None when it has none."""


class NoPlaces:
    """Nothing is configured: any worker may come, and none has a place."""

    def __len__(self) -> int:
        return 0

    def index(self, address: str) -> int | None:
        return None


class Placement:
    """The living workers, and which of them a task may go to.

    There may be thousands of them, and as many tasks: what is asked at each event looks
    at none but those it is about.

    Args:
        places: the configured workers, whose order decides who reads which static part.
        colocated: whether clients and workers are deployed in pairs.
        most_streams: how many streams of saves a worker writes at a time.
    """

    def __init__(
        self,
        places: IndexOfWorkers | None = None,
        colocated: bool = False,
        most_streams: int = MOST_STREAMS,
    ) -> None:
        self.facts: dict[str, WorkerFacts] = {}
        self.places = places or NoPlaces()
        self.colocated = colocated
        self.most_streams = most_streams
        self._at: dict[str, dict[str, None]] = {}
        self._loads = Loads()
        self._staying = dict.fromkeys(("ANY", "AUTO", "LOCAL"), 0)

    # --- workers come and go

    def add(self, name: str, facts: WorkerFacts) -> None:
        """Takes in a worker, which hosts nothing yet."""
        self.facts[name] = facts
        self._at.setdefault(facts.address, {})[name] = None
        self._loads.put(name, len(facts.tasks))
        self._count(facts, 1)

    def remove(self, name: str) -> WorkerFacts:
        """Forgets a worker; returns what was known of it."""
        facts = self.facts.pop(name)
        self._loads.remove(name)
        if not facts.draining:
            self._count(facts, -1)
        del self._at[facts.address][name]
        if not self._at[facts.address]:
            del self._at[facts.address]
        return facts

    def drain(self, name: str) -> None:
        """Gives a worker that will leave no more tasks."""
        facts = self.facts[name]
        if not facts.draining:
            facts.draining = True
            self._count(facts, -1)

    def _count(self, facts: WorkerFacts, more: int) -> None:
        for target in self._staying:
            self._staying[target] += more * is_for_all(target, facts.tags)

    def is_at(self, address: str) -> bool:
        """Whether there is a worker at an address."""
        return address in self._at

    def restore(self, state: DispatcherState) -> None:
        """Takes over the workers of a former dispatcher, with the tasks that they
        host.
        """
        for name, worker in state.workers.items():
            self.add(name, WorkerFacts(worker.address, worker.tags, worker.python))
        for task in state.tasks.values():
            if task.worker and not task.settled:
                self.take(task.worker, task, state.iterations[task.iteration])

    def take(self, worker: str, task: Task, iteration: Iteration) -> None:
        """Notes that a worker hosts a task."""
        facts = self.facts[worker]
        facts.tasks.add(task.task)
        self._loads.put(worker, len(facts.tasks))
        if iteration.saving is not None:
            facts.writing.add(task.task)
        if task.deaths:
            facts.suspects.add(task.task)

    def drop(self, worker: str, task: int) -> None:
        """Notes that a worker, if it is still known, does not host a task any more."""
        facts = self.facts.get(worker)
        if facts is None:
            return
        for tasks in (facts.tasks, facts.writing, facts.suspects):
            tasks.discard(task)
        facts.leases.pop(task, None)
        self._loads.put(worker, len(facts.tasks))

    # --- who may

    @property
    def num_shards(self) -> int:
        """The number of static parts of an iteration that begins now."""
        return len(self.places)

    def target(self, iteration: Iteration) -> str:
        """The target workers of an iteration."""
        return effective_target(iteration.job, self.colocated)

    def may_host(self, worker: str, iteration: Iteration) -> bool:
        """Whether there is, or may come, a client that reads from a worker."""
        facts, target = self.facts[worker], self.target(iteration)
        return is_for_all(target, facts.tags) or any(
            facts.address in own for own in iteration.local_workers.values()
        )

    def takes_tasks(self, worker: str, iteration: Iteration) -> bool:
        """Whether a worker that may host tasks of an iteration will stay, so that it
        can be given one.
        """
        return not self.facts[worker].draining and self.may_host(worker, iteration)

    def has_room(self, worker: str, iteration: Iteration) -> bool:
        """Whether a worker may write one more stream, if the iteration is a save."""
        return iteration.saving is None or len(self.facts[worker].writing) < self.most_streams

    def hosts(self, iteration: Iteration) -> int:
        """How many workers may host tasks of an iteration."""
        target = self.target(iteration)
        beside = {
            name
            for own in iteration.local_workers.values()
            for at in own
            for name in self._at.get(at, ())
        }
        others = [
            self.facts[name] for name in beside if not is_for_all(target, self.facts[name].tags)
        ]
        return self._staying[target] + sum(not facts.draining for facts in others)

    def idle(self, iteration: Iteration) -> list[str]:
        """The workers that host nothing of an iteration."""
        return [name for name in self.facts if not iteration.hosts.has(name)]

    def reader(self, client: str, iteration: Iteration) -> Callable[[str], bool]:
        """What says whether a client reads from a worker."""
        target, local = self.target(iteration), iteration.local_workers.get(client, ())

        def reads(worker: str) -> bool:
            facts = self.facts.get(worker)
            return facts is None or may_read(target, facts.address, facts.tags, local)

        return reads

    def is_place_of(self, task: Task, worker: str) -> bool:
        """Whether a worker is the one for a task, or as good as any.

        A job that goes on from a state may have more parts than this cluster has
        places: they go round.
        """
        return bool(self.parts_of(worker, [task]))

    def parts_of(self, worker: str, tasks: Sequence[Task]) -> list[Task]:
        """Those of some tasks of which a worker is the place."""
        count = len(self.places)
        place = self.places.index(self.facts[worker].address) if count and tasks else None
        return [
            one
            for one in tasks
            if one.shard is None or (place is not None and one.shard % count == place)
        ]

    def stays(self, task: Task, iteration: Iteration) -> bool:
        """Whether a task must wait for its own worker: the part of the input beside one
        client is for that client.
        """
        return task.shard is not None and self.target(iteration) == "LOCAL"

    # --- who shall

    def share_of(self, worker: str, iteration: Iteration, orphans: Sequence[Task]) -> list[Task]:
        """What a worker should host beside its own of a fixed number of tasks: orphans,
        then some of other hosts.
        """
        hosted, hosts = self._hosted(iteration), self.hosts(iteration)
        share = -(-(len(orphans) + sum(map(len, hosted.values()))) // hosts)
        found = list(orphans[: max(0, share - len(hosted.get(worker, ())))])
        return found + self._surplus(worker, hosted, found, hosts)

    def _surplus(
        self, worker: str, hosted: dict[str, list[Task]], found: Sequence[Task], hosts: int
    ) -> list[Task]:
        """What others have too much of. A task that has made all it has costs its host
        little, and stays there.
        """
        running = {
            name: [task for task in tasks if task.total is None] for name, tasks in hosted.items()
        }
        count = len(running.pop(worker, ())) + sum(task.total is None for task in found)
        share = -(-(count + sum(map(len, running.values()))) // hosts)
        surplus: list[Task] = []
        while running and count < share:
            most = max(running.values(), key=len)
            if len(most) <= count + 1:
                break
            surplus.append(most.pop())
            count += 1
        return surplus

    def _hosted(self, iteration: Iteration) -> dict[str, list[Task]]:
        """The tasks of each worker that has any, and may get more."""
        hosted: dict[str, list[Task]] = {}
        for task in iteration.live_tasks:
            if task.worker in self.facts and self.takes_tasks(task.worker, iteration):
                hosted.setdefault(task.worker, []).append(task)
        return hosted

    def spare(self, iteration: Iteration) -> Task | None:
        """A task for a worker that has none: of the one that hosts the most, if it
        hosts several.

        Neither static parts, which have their own workers, nor streams of saves, which
        would begin their chunk again.
        """
        if iteration.num_shards or iteration.saving is not None or not outlives_host(iteration.job):
            return None
        for name in (
            iteration.hosts.running.heaviest() if iteration.hosts.running.most() > 1 else ()
        ):
            if name in self.facts and self.takes_tasks(name, iteration):
                running = iteration.hosts.running_of(name)
                return iteration.tasks[running[-1]] if len(running) > 1 else None
        return None

    def best(self, task: Task, iteration: Iteration) -> str | None:
        """The worker with the fewest tasks among those that may host this one; None
        when there is none.

        A task at which a process died is kept apart from others, as it may take them
        along.
        """
        found, least = None, (True, True)
        for worker in self._loads.lightest():
            if not self._is_able(worker, task, iteration):
                continue
            objections = self._objections(worker, task)
            if objections == (False, False):
                return worker
            if found is None or objections < least:
                found, least = worker, objections
        return found

    def _is_able(self, worker: str, task: Task, iteration: Iteration) -> bool:
        able = self.takes_tasks(worker, iteration) and self.has_room(worker, iteration)
        return able and (not self.stays(task, iteration) or self.is_place_of(task, worker))

    def _objections(self, worker: str, task: Task) -> tuple[bool, bool]:
        facts = self.facts[worker]
        return task.task in facts.shunned, bool(facts.tasks if task.deaths else facts.suspects)
