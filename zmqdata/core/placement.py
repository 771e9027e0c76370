"""Where a task may be hosted and who may read it there: facts of workers, their configured order, target workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zmqdata import messages as m
from zmqdata.core.state import DispatcherState, Iteration, Task
from zmqdata.core.targets import effective_target, may_read, outlives_host

MOST_STREAMS = 3
"""How many streams of saves a worker writes at a time (tf.data's worker_max_concurrent_snapshots)."""


@dataclass
class WorkerFacts:
    """What a worker said of itself, and what it was last heard to do. Not durable.

    ``leases``: size and time of the last range of splits, per task it hosts and source. ``writing``: those of its tasks
    that are saved. ``suspects``: those at which a process died before; ``shunned``: those that were stuck here.
    ``draining``: it will leave and gets no more tasks.
    """

    address: str
    tags: tuple[str, ...]
    python: str
    tasks: set[int] = field(default_factory=set)
    writing: set[int] = field(default_factory=set)
    suspects: set[int] = field(default_factory=set)
    shunned: set[int] = field(default_factory=set)
    reports: dict[int, m.TaskReport] = field(default_factory=dict)
    leases: dict[int, dict[int, tuple[int, float]]] = field(default_factory=dict)
    reported_at: float = 0.0
    rate: float = 0.0
    draining: bool = False

    def drop(self, task: int) -> None:
        """Forgets a task that is not here any more."""
        self.tasks.discard(task)
        self.writing.discard(task)
        self.suspects.discard(task)
        self.leases.pop(task, None)


class Places(Protocol):
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

    Args:
        places: the configured workers, whose order decides who reads which static part.
        colocated: whether clients and workers are deployed in pairs.
        most_streams: how many streams of saves a worker writes at a time.
    """

    def __init__(
        self, places: Places | None = None, colocated: bool = False, most_streams: int = MOST_STREAMS
    ) -> None:
        self.facts: dict[str, WorkerFacts] = {}
        self.places = places or NoPlaces()
        self.colocated = colocated
        self.most_streams = most_streams

    def restore(self, state: DispatcherState) -> None:
        """Takes over the workers of a former dispatcher, with the tasks that they host."""
        for name, worker in state.workers.items():
            self.facts[name] = WorkerFacts(worker.address, worker.tags, worker.python)
        for task in state.tasks.values():
            if task.worker and not task.settled:
                self.take(task.worker, task, state.iterations[task.iteration])

    def take(self, worker: str, task: Task, iteration: Iteration) -> None:
        """Notes that a worker hosts a task."""
        facts = self.facts[worker]
        facts.tasks.add(task.task)
        if iteration.saving is not None:
            facts.writing.add(task.task)
        if task.deaths:
            facts.suspects.add(task.task)

    @property
    def num_shards(self) -> int:
        """The number of static parts of an iteration that begins now."""
        return len(self.places)

    def target(self, iteration: Iteration) -> str:
        """The target workers of an iteration."""
        return effective_target(iteration.job, self.colocated)

    def may_host(self, worker: str, iteration: Iteration) -> bool:
        """Whether there is, or may come, a client that reads from a worker."""
        facts = self.facts[worker]
        local = set().union(*iteration.local_workers.values())
        return may_read(self.target(iteration), facts.address, facts.tags, local)

    def takes_tasks(self, worker: str, iteration: Iteration) -> bool:
        """Whether a worker that may host tasks of an iteration will stay, so that it can be given one."""
        return not self.facts[worker].draining and self.may_host(worker, iteration)

    def has_room(self, worker: str, iteration: Iteration) -> bool:
        """Whether a worker may write one more stream, if the iteration is a save."""
        return iteration.saving is None or len(self.facts[worker].writing) < self.most_streams

    def hosts(self, iteration: Iteration) -> int:
        """How many workers may host tasks of an iteration."""
        return sum(self.takes_tasks(worker, iteration) for worker in self.facts)

    def may_read(self, client: str, worker: str, iteration: Iteration) -> bool:
        """Whether a client reads from a worker."""
        facts = self.facts.get(worker)
        local = iteration.local_workers.get(client, ())
        return facts is None or may_read(self.target(iteration), facts.address, facts.tags, local)

    def is_place_of(self, task: Task, worker: str) -> bool:
        """Whether a worker is the one for a task, or as good as any.

        A job that goes on from a state may have more parts than this cluster has places: they go round.
        """
        if task.shard is None or not len(self.places):
            return task.shard is None
        return self.places.index(self.facts[worker].address) == task.shard % len(self.places)

    def stays(self, task: Task, iteration: Iteration) -> bool:
        """Whether a task must wait for its own worker: the part of the input beside one client is for that client."""
        return task.shard is not None and self.target(iteration) == "LOCAL"

    def share_of(self, worker: str, iteration: Iteration, orphans: Sequence[Task]) -> list[Task]:
        """What a worker should host beside its own of a fixed number of tasks: orphans, then some of other hosts."""
        hosted = self._hosted(iteration)
        share = -(-(len(orphans) + sum(map(len, hosted.values()))) // len(hosted))
        found = list(orphans[: max(0, share - len(hosted[worker]))])
        return found + self._surplus(worker, hosted, found)

    def _surplus(self, worker: str, hosted: dict[str, list[Task]], found: Sequence[Task]) -> list[Task]:
        """What others have too much of. A task that has made all it has costs its host little, and stays there."""
        running = {name: [task for task in tasks if task.total is None] for name, tasks in hosted.items()}
        count = len(running.pop(worker)) + sum(task.total is None for task in found)
        share = -(-(count + sum(map(len, running.values()))) // len(hosted))
        surplus: list[Task] = []
        while running and count < share:
            most = max(running.values(), key=len)
            if len(most) <= count + 1:
                break
            surplus.append(most.pop())
            count += 1
        return surplus

    def spare(self, iteration: Iteration) -> Task | None:
        """A task for a worker that has none: of the one that hosts the most, if it hosts several.

        Neither static parts, which have their own workers, nor streams of saves, which would begin their chunk again.
        """
        if iteration.num_shards or iteration.saving is not None or not outlives_host(iteration.job):
            return None
        hosted = [[task for task in tasks if task.total is None] for tasks in self._hosted(iteration).values()]
        most = max(hosted, key=len, default=[])
        return most[-1] if len(most) > 1 else None

    def _hosted(self, iteration: Iteration) -> dict[str, list[Task]]:
        """The tasks of each worker that may get more."""
        hosted: dict[str, list[Task]] = {name: [] for name in self.facts if self.takes_tasks(name, iteration)}
        for task in iteration.live_tasks:
            if task.worker in hosted:
                hosted[task.worker].append(task)
        return hosted

    def best(self, task: Task, iteration: Iteration) -> str | None:
        """The worker with the fewest tasks among those that may host this one; None when there is none.

        A task at which a process died is kept apart from others, as it may take them along.
        """
        able = [worker for worker in self.facts if self.takes_tasks(worker, iteration)]
        able = [worker for worker in able if self.has_room(worker, iteration)]
        if self.stays(task, iteration):
            able = [worker for worker in able if self.is_place_of(task, worker)]
        return min(able, key=lambda worker: (*self._objections(worker, task), worker), default=None)

    def _objections(self, worker: str, task: Task) -> tuple[bool, bool, int]:
        facts = self.facts[worker]
        endangered = bool(facts.tasks if task.deaths else facts.suspects)
        return task.task in facts.shunned, endangered, len(facts.tasks)
