"""What the dispatcher knows of a task and of an iteration. Only
``core.dispatcher.state.state`` changes it.

Part of the durable state: nothing here decides anything, sends anything or knows the
time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.loads import Hosts
from zmqdata.core.ledger import Ledger, SpentSplits, SplitCursor
from zmqdata.core.ranges import RangeSet
from zmqdata.core.rounds import Rounds
from zmqdata.decisions import Decisions
from zmqdata.messages import JobParameters, Place, TaskState


@dataclass(frozen=True)
class SavedChunk:
    """A chunk that counts: the attempt that wrote it, its elements
    ``first ... stop - 1``, its bytes, their spec.
    """

    attempt: int
    first: int
    stop: int
    size: int
    spec: bytes = b""


@dataclass
class Saving:
    """What is particular to an iteration that is saved.

    ``specs``: those of its chunks, each once. ``failure``: what a pipeline failed with.
    ``ended``: the marker that ends it is on the disk.
    """

    specs: dict[bytes, bytes] = field(default_factory=dict)
    failure: bytes = b""
    ended: bool = False


@dataclass
class Tally:
    """Counts of one iteration, durable as everything else is.

    ``splits``: by task, how many it was given and did not give back; ``rehosted``: how
    many of them a task had when it lost its host, each time. ``delivered``: by client,
    the elements that it reported first; ``repeats``: by client, those that came to it
    again, and that it dropped.
    """

    splits: dict[int, int] = field(default_factory=dict)
    rehosted: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)

    def hand_out(self, task: int, splits: int) -> None:
        """Counts splits that a task was given; below zero, what came back."""
        self.splits[task] = self.splits.get(task, 0) + splits

    def lose_host(self, task: int) -> None:
        """Counts the splits of a task that goes on elsewhere."""
        self.rehosted += self.splits.get(task, 0)

    def deliver(self, client: str, elements: int) -> None:
        """Counts what a client has reported, before anybody else."""
        if client:
            self.delivered[client] = self.delivered.get(client, 0) + elements


@dataclass
class Task:
    """One logical part of an iteration: its lineage and where it is hosted.

    ``held``: what clients had received, as they said when it last lost its host.
    ``index`` numbers the tasks of an iteration. ``chunks``: what counts of a task that
    is saved, in order. ``cuts``: how often the end of a source's ledger was taken back
    from the present attempt. ``cursors``: where it stands in each source, if which
    splits it gets was settled in the beginning. ``states``: where it can be continued,
    oldest first. ``decisions``: which elements its operations have left out, and which
    not. ``deaths``: by attempt, how the processes of its hosts ended; ``poisoned``:
    what its nodes leave out as it kills, and why.
    """

    task: int
    iteration: int
    seed: int
    ledger: list[Ledger]
    attempt: int = 0
    worker: str = ""
    total: int | None = None
    removed: bool = False
    delivered: RangeSet = field(default_factory=RangeSet)
    shard: int | None = None
    held: dict[str, RangeSet] = field(default_factory=dict)
    index: int = 0
    chunks: list[SavedChunk] = field(default_factory=list)
    dropped: int = 0
    left_out: int = 0
    cuts: dict[int, int] = field(default_factory=dict)
    cursors: list[SplitCursor] = field(default_factory=list)
    states: list[TaskState] = field(default_factory=list)
    decisions: Decisions = field(default_factory=Decisions)
    deaths: dict[int, u.CountDeathUpdate] = field(default_factory=dict)
    poisoned: dict[Place, str] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether every element of it has reached a training loop, or none is owed any
        more.
        """
        return self.removed or (self.total is not None and self.delivered.covers(0, self.total))


class IterationFailure(NamedTuple):
    """The error that keeps an iteration from going on."""

    error: str
    """Name of the class of the error."""
    text: str
    failure: bytes
    """The failure of a pipeline, encoded; empty if no pipeline is at fault."""


@dataclass
class Iteration:
    """One pass of a job. ``clients`` are those that read it now; ``closed``: it gets no
    further task.

    ``local_workers`` are, per client, the addresses of workers in its process.
    ``failure``: the error that keeps it from going on, its text, and what is known of a
    pipeline that is at fault. ``saving``: it has no clients, its elements are saved.
    ``running`` and ``ended`` count the live tasks whose total is not, and is, known.
    ``hosts``: where the live tasks are. ``spent``: per source, the splits that no
    ledger has any more. A coordinated job has ``rounds``, which number the elements of
    its tasks, and ``consumers``: who reads as each.
    """

    iteration: int
    job: JobParameters
    repetition: int
    seed: int
    cursors: list[SplitCursor]
    tasks: dict[int, Task] = field(default_factory=dict)
    clients: set[str] = field(default_factory=set)
    local_workers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    num_shards: int = 0
    closed: bool = False
    failure: IterationFailure | None = None
    running: int = 0
    ended: int = 0
    saving: Saving | None = None
    rounds: Rounds | None = None
    consumers: dict[int, str] = field(default_factory=dict)
    spent: list[SpentSplits] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    hosts: Hosts = field(default_factory=Hosts)
    next_index: int = 0

    @property
    def live_tasks(self) -> list[Task]:
        """Tasks that are still part of it, ended ones included, in the order of their
        creation.
        """
        return [task for task in self.tasks.values() if not task.removed]

    @property
    def totals(self) -> dict[int, int]:
        """The totals of the tasks that have come to their end."""
        return {task.task: task.total for task in self.tasks.values() if task.total is not None}

    @property
    def delivered(self) -> int:
        """How many elements have reached a training loop, or rounds all of them."""
        return sum(len(task.delivered) for task in self.tasks.values())

    @property
    def finished(self) -> bool:
        """Whether no element is owed to anybody, now or later."""
        return (
            self.failure is None
            and self.closed
            and all(task.settled for task in self.tasks.values())
        )

    def cursor(self, task: Task, source: int) -> SplitCursor:
        """Where the splits of a task come from."""
        return (task.cursors or self.cursors)[source]

    @property
    def splits_exhausted(self) -> bool:
        """Whether no source has a split left in its current repetition."""
        return all(cursor.exhausted for cursor in self.cursors)
