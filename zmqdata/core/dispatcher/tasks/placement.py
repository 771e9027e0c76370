"""Placement rules: on which workers a task may run and which clients may read it there,
by worker facts, configured order and target workers.

Decision 0021; protocol 4.2, 4.8 and 10.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zmqdata import messages as m
from zmqdata.core.dispatcher.state.loads import Loads
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.job_rules import effective_target, is_for_all, is_static, may_read, outlives_host

MOST_STREAMS = 3
"""Maximum number of save streams that a worker writes at a time (tf.data's
worker_max_concurrent_snapshots).
"""


MOST_SENT_AGAIN = 500
"""Maximum number of tasks that a worker is sent again for one report: half of the
messages that may wait for it.
"""


@dataclass
class WorkerFacts:
    """Facts that a worker reported of itself and of its recent work. Not
    durable.
    """

    address: str
    """Address of the worker."""
    tags: tuple[str, ...]
    """Its tags."""
    python: str
    """Its Python version."""
    process: str = ""
    """Its host and process id, as in ``RegisterWorker``."""
    name: str = ""
    """Name that its user has given it, as in ``RegisterWorker``."""
    tasks: set[int] = field(default_factory=set)
    """Hosted tasks."""
    writing: set[int] = field(default_factory=set)
    """Hosted tasks that belong to a save."""
    shunned: set[int] = field(default_factory=set)
    """Tasks that must not return to this worker, because they were stuck here or
    clients could not reach it.
    """
    unwritable: set[int] = field(default_factory=set)
    """Iterations that save to a path that this worker cannot write."""
    reports: dict[int, m.TaskReport] = field(default_factory=dict)
    """Its last report of each task."""
    missing: set[int] = field(default_factory=set)
    """Tasks that its last report lacked."""
    leases: dict[int, dict[int, tuple[int, float]]] = field(default_factory=dict)
    """Size and time of the last lease of splits, by task and source."""
    inherited: set[int] = field(default_factory=set)
    """Tasks that a former dispatcher had sent it. A report may be older than the last
    message of that dispatcher.
    """
    draining: bool = False
    """True if it will leave and gets no more tasks."""
    memory: m.MemoryUse = field(default_factory=m.MemoryUse)
    """Memory of its process, as it reported it last."""

    @property
    def title(self) -> str:
        """Its address, with its name if it has one."""
        return f"{self.address} ({self.name})" if self.name else self.address

    def record_reports(self, reports: tuple[m.TaskReport, ...]) -> None:
        """Record the worker's reports."""
        self.reports = {report.task: report for report in reports}

    def lost_tasks(self, missing: list[int]) -> list[int]:
        """Return the tasks missing from the worker's report that must be sent again.

        A task that only the latest report lacks is most likely in flight. The number is
        bounded, because a worker that is slow to accept thousands of tasks would be
        sent all of them again and again.

        Example:
            >>> facts = WorkerFacts("tcp://w", (), "")
            >>> facts.lost_tasks([3]), facts.lost_tasks([3, 4]), facts.lost_tasks([4])
            ([], [3], [4])
        """
        known, self.missing = self.missing, set(missing)
        return [task for task in missing if task in known][:MOST_SENT_AGAIN]


class IndexOfWorkers(Protocol):
    """The configured workers in their order."""

    def __len__(self) -> int: ...

    def index(self, address: str) -> int | None:
        """Return the index of the worker at an address; None if it has none."""


class NoPlaces:
    """An empty worker list: any worker may register, and none has an index."""

    def __len__(self) -> int:
        return 0

    def index(self, address: str) -> int | None:
        return None


class Placement:
    """The living workers, and which of them a task may go to.

    Both workers and tasks may number thousands. A question asked at each event
    therefore looks only at the workers and tasks concerned.

    Args:
        places: the configured workers, whose order decides which worker reads which
            static shard.
        colocated: True if clients and workers are deployed in pairs.
        most_streams: maximum number of save streams that a worker writes at a time.

    Attributes:
        reserved: name of the worker that makes suspects alone; "" if none does.
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
        self.reserved = ""
        self._at: dict[str, dict[str, None]] = {}
        self._loads = Loads()
        self._staying = dict.fromkeys(("ANY", "AUTO", "LOCAL"), 0)

    # --- workers come and go

    def add(self, name: str, facts: WorkerFacts) -> None:
        """Add a worker, which hosts nothing yet."""
        self.facts[name] = facts
        self._at.setdefault(facts.address, {})[name] = None
        self._loads.put(name, len(facts.tasks))
        self._count(facts, 1)

    def remove(self, name: str) -> WorkerFacts:
        """Forget a worker. Return what was known of it."""
        facts = self.facts.pop(name)
        self._loads.remove(name)
        if not facts.draining:
            self._count(facts, -1)
        del self._at[facts.address][name]
        if not self._at[facts.address]:
            del self._at[facts.address]
        return facts

    def drain(self, name: str) -> None:
        """Mark a worker that will leave, so that it gets no more tasks."""
        facts = self.facts[name]
        if not facts.draining:
            facts.draining = True
            self._count(facts, -1)

    def _count(self, facts: WorkerFacts, more: int) -> None:
        for target in self._staying:
            self._staying[target] += more * is_for_all(target, facts.tags)

    def is_at(self, address: str) -> bool:
        """Return True if a worker lives at an address."""
        return address in self._at

    def restore(self, state: DispatcherState) -> None:
        """Take over the workers of a former dispatcher, with the tasks that they
        host.
        """
        for name, one in state.workers.items():
            facts = WorkerFacts(one.address, one.tags, one.python, one.process, one.name)
            self.add(name, facts)
        for task in state.tasks.values():
            if task.worker and not task.settled:
                self.assign(task.worker, task, state.iterations[task.iteration])
                self.facts[task.worker].inherited.add(task.task)

    def assign(self, worker: str, task: Task, iteration: Iteration) -> None:
        """Count a task for the worker that hosts it."""
        facts = self.facts[worker]
        facts.tasks.add(task.task)
        self._loads.put(worker, len(facts.tasks))
        if iteration.saving is not None:
            facts.writing.add(task.task)

    def drop(self, worker: str, task: int) -> None:
        """Note that a worker, if it is still known, no longer hosts a task."""
        facts = self.facts.get(worker)
        if facts is None:
            return
        for tasks in (facts.tasks, facts.writing, facts.inherited):
            tasks.discard(task)
        facts.leases.pop(task, None)
        self._loads.put(worker, len(facts.tasks))

    # --- who may

    @property
    def num_shards(self) -> int:
        """The number of static shards of an iteration that begins now."""
        return len(self.places)

    def target(self, iteration: Iteration) -> str:
        """Return the target workers of an iteration."""
        return effective_target(iteration.job, self.colocated)

    def may_host(self, worker: str, iteration: Iteration) -> bool:
        """Return True if a client that reads from a worker exists, or may come."""
        facts, target = self.facts[worker], self.target(iteration)
        return is_for_all(target, facts.tags) or any(
            facts.address in one.local_workers for one in iteration.openings.values()
        )

    def takes_tasks(self, worker: str, iteration: Iteration) -> bool:
        """Return True if a worker may host tasks of an iteration, can write them if
        they are saved, is not about to leave and makes no suspects.
        """
        facts = self.facts[worker]
        is_free = worker != self.reserved and not facts.draining
        able = is_free and iteration.iteration not in facts.unwritable
        return able and self.may_host(worker, iteration)

    def has_room(self, worker: str, iteration: Iteration) -> bool:
        """Return True if a worker may write another stream. Iterations other than saves
        always have room.
        """
        return iteration.saving is None or len(self.facts[worker].writing) < self.most_streams

    def hosts(self, iteration: Iteration) -> int:
        """Return the number of workers that may host tasks of an iteration."""
        target = self.target(iteration)
        beside = {
            name
            for one in iteration.openings.values()
            for at in one.local_workers
            for name in self._at.get(at, ())
        }
        others = [
            self.facts[name] for name in beside if not is_for_all(target, self.facts[name].tags)
        ]
        return self._staying[target] + sum(not facts.draining for facts in others)

    def idle_workers(self, iteration: Iteration) -> m.IdleWorkers | None:
        """Return the numbers of workers if none hosts a task of an iteration; else
        None.
        """
        if iteration.hosts.count:
            return None
        return m.IdleWorkers(len(self.facts), self.hosts(iteration))

    def idle(self, iteration: Iteration) -> list[str]:
        """Return the workers that host nothing of an iteration."""
        return [name for name in self.facts if not iteration.hosts.has(name)]

    def reader(self, client: str, iteration: Iteration) -> Callable[[str], bool]:
        """Return a predicate that tells whether a client reads from a worker."""
        target, local = self.target(iteration), iteration.local_workers(client)

        def reads(worker: str) -> bool:
            facts = self.facts.get(worker)
            return facts is None or may_read(target, facts.address, facts.tags, local)

        return reads

    def is_place_of(self, task: Task, worker: str) -> bool:
        """Return True if a worker is the configured place of a task, or if the task has
        none.

        A job that resumes from a state may have more shards than this cluster has
        places. Shards are then assigned to places in turn.
        """
        return bool(self.parts_of(worker, [task]))

    def has_place_of(self, task: Task) -> bool:
        """Return True if the worker of a shard is there, though suspects keep it from
        the shard.
        """
        return any(
            self.is_place_of(task, name) for name, facts in self.facts.items() if not facts.draining
        )

    def parts_of(self, worker: str, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks whose configured place is this worker."""
        count = len(self.places)
        place = self.places.index(self.facts[worker].address) if count and tasks else None
        return [
            one
            for one in tasks
            if one.shard is None or (place is not None and one.shard % count == place)
        ]

    def shards_beside(
        self, job: m.JobParameters, local_workers: Sequence[str], num_shards: int
    ) -> tuple[int, ...]:
        """Return the static shards that only a client beside these workers may read;
        none if the job divides its input in another way.
        """
        count = len(self.places)
        if not count or not is_static(job) or effective_target(job, self.colocated) != "LOCAL":
            return ()
        places = {self.places.index(address) for address in local_workers}
        return tuple([shard for shard in range(num_shards) if shard % count in places])

    def stays(self, task: Task, iteration: Iteration) -> bool:
        """Return True if a task must wait for its own worker: the shard beside a client
        is for that client.
        """
        return task.shard is not None and self.target(iteration) == "LOCAL"

    # --- who shall

    def share_of(self, worker: str, iteration: Iteration, orphans: Sequence[Task]) -> list[Task]:
        """Return the tasks that a worker should host beside its own of a fixed number
        of tasks: first orphans, then some of other hosts.
        """
        hosted, hosts = self._hosted(iteration), self.hosts(iteration)
        share = -(-(len(orphans) + sum(map(len, hosted.values()))) // hosts)
        found = list(orphans[: max(0, share - len(hosted.get(worker, ())))])
        return found + self._surplus(worker, hosted, found, hosts)

    def _surplus(
        self, worker: str, hosted: dict[str, list[Task]], found: Sequence[Task], hosts: int
    ) -> list[Task]:
        """Return the tasks that other workers host beyond their share. A task that has
        produced everything costs its host little, and stays.
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
        """Return the tasks of each worker that hosts any and may get more."""
        hosted: dict[str, list[Task]] = {}
        for task in iteration.live_tasks:
            if task.worker in self.facts and self.takes_tasks(task.worker, iteration):
                hosted.setdefault(task.worker, []).append(task)
        return hosted

    def spare(self, iteration: Iteration) -> Task | None:
        """Return a task for a worker without any: a task of the worker that hosts the
        most, if it hosts several.

        Static shards are excluded, because they have their own workers. Streams of
        saves are excluded, because they would begin their chunk again.
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

    def best(self, task: Task, iteration: Iteration, former: str = "") -> str | None:
        """Return the worker with the fewest tasks among those that may host this one;
        None if no worker may.

        Args:
            task: the task.
            iteration: its iteration.
            former: name of a worker that keeps what the task would open. It may have
                one task more than another.
        """
        found = None
        for worker in self._loads.lightest():
            if self._is_able(worker, task, iteration):
                if former in self.facts and self._is_able(former, task, iteration):
                    facts, fewest = self.facts[former], len(self.facts[worker].tasks)
                    if len(facts.tasks) <= fewest + 1 and task.task not in facts.shunned:
                        return former
                if task.task not in self.facts[worker].shunned:
                    return worker
                found = found or worker
        return found

    def best_alone(
        self, task: Task | None, iteration: Iteration, copies: Callable[[str], int]
    ) -> str | None:
        """Return the worker that may make a suspect alone and hosts the fewest other
        tasks; None if no worker may.

        Args:
            task: the suspect task; None for a new copy of the input.
            iteration: its iteration.
            copies: returns how many tasks of a worker cannot continue elsewhere.
        """
        reserved, self.reserved = self.reserved, ""
        able = [one for one in self._loads.lightest() if self._is_able(one, task, iteration)]
        self.reserved = reserved

        def cost(worker: str) -> tuple[bool, bool, int, int]:
            facts = self.facts[worker]
            is_shunned = task is not None and task.task in facts.shunned
            return is_shunned, worker != reserved, copies(worker), len(facts.tasks)

        return min(able, key=cost, default=None)

    def _is_able(self, worker: str, task: Task | None, iteration: Iteration) -> bool:
        able = self.takes_tasks(worker, iteration) and self.has_room(worker, iteration)
        if task is None:
            return able and not iteration.hosts.has(worker)
        return able and (not self.stays(task, iteration) or self.is_place_of(task, worker))
