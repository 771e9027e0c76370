"""The dispatcher's durable knowledge of tasks and iterations. Only
``core.dispatcher.state.state`` changes it.

No code here decides anything, sends anything or knows the time.

Decision 0013; protocol 1.5.
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
    """A committed chunk of a save."""

    attempt: int
    """Attempt that wrote it."""
    first: int
    """Number of its first element."""
    stop: int
    """Number after its last element."""
    size: int
    """Size in bytes."""
    spec: bytes = b""
    """Encoded element spec; empty if it is unknown."""


@dataclass
class Saving:
    """Facts that only an iteration of a save has."""

    specs: dict[bytes, bytes] = field(default_factory=dict)
    """Element specs of its chunks, each once."""
    failure: bytes = b""
    """Encoded failure of the pipeline; empty if none failed."""
    ended: bool = False
    """True if the marker that ends the save is on disk."""


@dataclass
class Tally:
    """Durable counts of an iteration."""

    splits: dict[int, int] = field(default_factory=dict)
    """Splits by task, without those it returned."""
    rehosted: int = 0
    """Splits of tasks that lost their host, counted at each loss."""
    delivered: dict[str, int] = field(default_factory=dict)
    """Elements by the client that reported them first."""
    repeats: dict[str, int] = field(default_factory=dict)
    """Repeated elements that a client received and dropped, by client."""
    given_back: dict[str, int] = field(default_factory=dict)
    """Elements that a client gave back for others, by client."""
    copies: dict[str, int] = field(default_factory=dict)
    """Copies of the input that were begun, by the address of their worker."""

    def hand_out(self, task: int, splits: int) -> None:
        """Count splits that a task was given; a negative number counts returned
        splits.
        """
        self.splits[task] = self.splits.get(task, 0) + splits

    def lose_host(self, task: int) -> None:
        """Count the splits of a task that continues on another worker."""
        self.rehosted += self.splits.get(task, 0)

    def begin_copy(self, address: str) -> None:
        """Count a copy of the input that the worker at an address begins."""
        self.copies[address] = self.copies.get(address, 0) + 1

    def deliver(self, client: str, elements: int) -> None:
        """Count elements that a client was the first to report."""
        if client:
            self.delivered[client] = self.delivered.get(client, 0) + elements


@dataclass
class Task:
    """A logical part of an iteration: its lineage and where it is hosted."""

    task: int
    """Number of the task."""
    iteration: int
    """Number of its iteration."""
    seed: int
    """Its seed."""
    ledger: list[Ledger]
    """Its ledger for each source."""
    attempt: int = 0
    """Number of the present attempt; 0 before the first."""
    worker: str = ""
    """Name of its host; "" if it has none."""
    total: int | None = None
    """Number of its elements or rounds; None until it has ended."""
    removed: bool = False
    """True if it is no longer part of the iteration."""
    delivered: RangeSet = field(default_factory=RangeSet)
    """Numbers of delivered elements or rounds."""
    shard: int | None = None
    """Number of its static shard; None if it has none."""
    held: dict[str, RangeSet] = field(default_factory=dict)
    """Elements that clients had received when it last lost its host, by client."""
    index: int = 0
    """Number of the task within its iteration."""
    chunks: list[SavedChunk] = field(default_factory=list)
    """Committed chunks in order, if it belongs to a save."""
    dropped: int = 0
    """Number of elements dropped in an incomplete last round."""
    left_out: int = 0
    """Number of elements that operations left out."""
    cuts: dict[int, int] = field(default_factory=dict)
    """Number of cuts of each source's ledger in the present attempt."""
    cursors: list[SplitCursor] = field(default_factory=list)
    """Its position in each source, if its splits are fixed from the beginning; else
    empty.
    """
    states: list[TaskState] = field(default_factory=list)
    """States from which it can be continued, oldest first."""
    decisions: Decisions = field(default_factory=Decisions)
    """Decisions of its operations about which elements to leave out."""
    deaths: dict[int, u.CountDeathUpdate] = field(default_factory=dict)
    """Deaths of the processes of its hosts, by attempt."""
    poisoned: dict[Place, str] = field(default_factory=dict)
    """Elements that its nodes leave out because they kill their process, with the
    reason.
    """

    @property
    def settled(self) -> bool:
        """True if every element has reached a training loop, or none is owed any
        more.
        """
        return self.removed or (self.total is not None and self.delivered.covers(0, self.total))


class IterationFailure(NamedTuple):
    """The error that ended an iteration."""

    error: str
    """Class name of the error."""
    text: str
    """Text of the error."""
    failure: bytes
    """Encoded failure of the pipeline; empty if no pipeline failed."""


@dataclass
class Iteration:
    """One pass of a job."""

    iteration: int
    """Number of the iteration."""
    job: JobParameters
    """Parameters of its job."""
    repetition: int
    """Repetition of the job."""
    seed: int
    """Its seed."""
    cursors: list[SplitCursor]
    """Its position in each source, in DYNAMIC mode; else empty."""
    tasks: dict[int, Task] = field(default_factory=dict)
    """All tasks by number, including removed ones."""
    clients: set[str] = field(default_factory=set)
    """Names of the clients that read it now."""
    openings: dict[str, u.OpenClientUpdate] = field(default_factory=dict)
    """Origin of each client: its run, and the workers in its process."""
    shard_readers: dict[int, set[str]] = field(default_factory=dict)
    """Clients beside the workers of each static shard, if only these may read it."""
    incarnation: int = 0
    """Number of the incarnation of its job."""
    num_shards: int = 0
    """Number of shards; 0 if its tasks have none."""
    closed: bool = False
    """True if no task will be added."""
    failure: IterationFailure | None = None
    """The error that ended it; None if it has not failed."""
    running: int = 0
    """Number of live tasks with an unknown total."""
    ended: int = 0
    """Number of live tasks with a known total."""
    saving: Saving | None = None
    """Facts of its save; None if it is not a save."""
    rounds: Rounds | None = None
    """Progress of the numbered consumers, whose rounds number the elements of tasks;
    None without such consumers.
    """
    consumers: dict[int, str] = field(default_factory=dict)
    """The client that reads as each numbered consumer."""
    spent: list[SpentSplits] = field(default_factory=list)
    """Splits that no ledger has any more, by source."""
    tally: Tally = field(default_factory=Tally)
    """Its counts."""
    hosts: Hosts = field(default_factory=Hosts)
    """The hosts of the live tasks."""
    next_index: int = 0
    """Index of the next task."""

    def local_workers(self, client: str) -> tuple[str, ...]:
        """Return the addresses of the workers in a client's process."""
        opening = self.openings.get(client)
        return () if opening is None else opening.local_workers

    def readers_of(self, task: Task) -> set[str]:
        """Return the clients beside the workers of a task's shard."""
        return set() if task.shard is None else self.shard_readers.get(task.shard, set())

    def shares(self, client: str) -> bool:
        """Return True if another client may receive the elements of a client."""
        opening = self.openings.get(client)
        if opening is None or not opening.shards:
            return len(self.clients) > 1
        return any(len(self.shard_readers[shard]) > 1 for shard in opening.shards)

    @property
    def live_tasks(self) -> list[Task]:
        """Tasks that are not removed, in the order of their creation. Ended tasks are
        included.
        """
        return [task for task in self.tasks.values() if not task.removed]

    @property
    def totals(self) -> dict[int, int]:
        """The totals of the tasks that have ended."""
        return {task.task: task.total for task in self.tasks.values() if task.total is not None}

    @property
    def delivered(self) -> int:
        """The number of elements that have reached a training loop, or of rounds that
        all consumers have passed.
        """
        return sum(len(task.delivered) for task in self.tasks.values())

    @property
    def finished(self) -> bool:
        """True if no element is owed to any client, now or later."""
        return self.finished_for("")

    def _tasks_of(self, client: str) -> list[Task]:
        """Return the tasks that a client may read: the shards beside it, if it has
        any.
        """
        opening = self.openings.get(client)
        own = () if opening is None else opening.shards
        return [task for task in self.tasks.values() if not own or task.shard in own]

    def delivered_of(self, client: str) -> int:
        """Return the number of delivered elements of the tasks that a client may
        read.
        """
        return sum(len(task.delivered) for task in self._tasks_of(client))

    def finished_for(self, client: str) -> bool:
        """Return True if no element is owed to a client, now or later."""
        return (
            self.failure is None
            and self.closed
            and all(task.settled for task in self._tasks_of(client))
        )

    def cursor(self, task: Task, source: int) -> SplitCursor:
        """Return the cursor from which a task gets its splits."""
        return (task.cursors or self.cursors)[source]

    @property
    def splits_exhausted(self) -> bool:
        """True if no source has a split left in its current repetition."""
        return all(cursor.exhausted for cursor in self.cursors)
