"""The dispatcher's durable knowledge of tasks and iterations. Only
``core.dispatcher.state.state`` changes it.

No code here decides anything, sends anything or knows the time.

Decision 0013; protocol 1.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.loads import Hosts
from zmqdata.core.job_rules import outlives_host
from zmqdata.core.ledger import Ledger, SpentSplits, SplitCursor
from zmqdata.core.lineage import MARKS_KEPT, keep_needed
from zmqdata.core.ranges import RangeSet
from zmqdata.core.rounds import LastRounds, Rounds
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
    """Workers that have begun a copy of the input, by their address. A process that is
    started again is another worker.
    """
    records: int = 0
    """Number of facts of the iteration."""
    firm: int = 0
    """Number of facts that no peer can repeat."""
    found: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Both numbers as the next start found them, by the marks of the last starts."""
    last_of_copies: dict[str, str] = field(default_factory=dict)
    """The worker that began a copy last, by address."""

    def end_life(self, mark: int) -> None:
        """Record the numbers of facts found at the start with this mark."""
        self.found[mark] = self.records, self.firm
        if len(self.found) > MARKS_KEPT:
            del self.found[next(iter(self.found))]

    def hand_out(self, task: int, splits: int) -> None:
        """Count splits that a task was given; a negative number counts returned
        splits.
        """
        self.splits[task] = self.splits.get(task, 0) + splits

    def lose_host(self, task: int) -> None:
        """Count the splits of a task that continues on another worker."""
        self.rehosted += self.splits.get(task, 0)

    def begin_copy(self, address: str, worker: str) -> None:
        """Count a worker that begins a copy of the input. A worker that was lost for a
        while and lives counts once.
        """
        if self.last_of_copies.get(address) != worker:
            self.copies[address] = self.copies.get(address, 0) + 1
        self.last_of_copies[address] = worker

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
    """Number of its elements or rounds; None until it has ended. A rest counts as a
    round.
    """
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
    rest: int = 0
    """Number of elements after its last full round."""
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
    cleared: int = 0
    """Attempt up to which its deaths raise no suspicion any more."""
    poisoned: dict[Place, str] = field(default_factory=dict)
    """Elements that its nodes leave out because they kill their process, with the
    reason.
    """

    @property
    def suspicious(self) -> list[u.CountDeathUpdate]:
        """The deaths that make it suspect, in the order of its attempts."""
        return [self.deaths[number] for number in sorted(self.deaths) if number > self.cleared]

    @property
    def full(self) -> int | None:
        """Number of its full rounds; None until it has ended."""
        return None if self.total is None else self.total - (self.rest > 0)

    @property
    def settled(self) -> bool:
        """True if every element has reached a training loop, or none is owed any
        more.
        """
        return self.removed or (self.total is not None and self.delivered.covers(0, self.total))

    def runs(self, worker: str, attempt: int) -> bool:
        """Return True if an attempt on a worker is the present one, and elements are
        still owed.
        """
        return (self.worker, self.attempt) == (worker, attempt) and not self.settled


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
    suspected: set[int] = field(default_factory=set)
    """Tasks that were working when their process died, and that were not made alone
    since.
    """
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
    traceparent: str = field(default="", compare=False)
    """Span of its first client that has one. It is not durable."""
    patience: float = field(default=1.0, compare=False)
    """Factor of the time in which its suspects must be made. It is not durable."""

    def suspects(self, task: Task) -> bool:
        """Return True if a task may only be made alone: it is suspect, or a copy of the
        same input is.
        """
        return task.task in self.suspected if outlives_host(self.job) else bool(self.suspected)

    def local_workers(self, client: str) -> tuple[str, ...]:
        """Return the addresses of the workers in a client's process."""
        opening = self.openings.get(client)
        return () if opening is None else opening.local_workers

    def own_shards(self, client: str) -> tuple[int, ...]:
        """Return the shards beside a client, if it may read no others; else nothing."""
        opening = self.openings.get(client)
        return () if opening is None else opening.shards

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
    def full_rounds(self) -> dict[int, int]:
        """The full rounds of the tasks that have ended."""
        return {task.task: task.full for task in self.tasks.values() if task.full is not None}

    @property
    def rests(self) -> dict[int, int]:
        """The number of elements after the full rounds of the tasks that have any."""
        return {task.task: task.rest for task in self.tasks.values() if task.rest}

    @property
    def last_rounds(self) -> LastRounds | None:
        """The rounds made of the rests of all tasks; None until they are certain."""
        if self.rounds is None or not self.closed:
            return None
        return self.rounds.last(
            self.full_rounds,
            self.rests,
            [task.task for task in self.live_tasks],
            is_fixed=self.job.num_tasks is not None,
        )

    @property
    def end(self) -> int | None:
        """The step behind the last; None until it is known."""
        last = self.last_rounds
        if last is not None and last.count:
            return last.stop
        if self.rounds is None or not self.closed:
            return None
        return self.rounds.end(self.full_rounds, [task.task for task in self.live_tasks])

    @property
    def horizon(self) -> int:
        """The step before which numbered consumers may read; 0 without them."""
        last = self.last_rounds
        if last is not None and last.count:
            return last.stop
        return 0 if self.rounds is None else self.rounds.horizon

    def passed(self, task: Task) -> tuple[int, ...]:
        """Return how many rounds of a task each numbered consumer has passed. A rest
        counts as a round.
        """
        rounds, last = self.rounds, self.last_rounds if task.rest else None
        if rounds is None:
            return ()
        counts = rounds.passed(task.task, task.full)
        if last is None:
            return counts
        return tuple(
            count + last.has_passed(task.task, consumer, step)
            for consumer, (count, step) in enumerate(zip(counts, rounds.steps, strict=True))
        )

    @property
    def dropped(self) -> int:
        """Number of elements that fill no round."""
        last = self.last_rounds
        return 0 if last is None else sum(self.rests.values()) % last.num_consumers

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
        own = self.own_shards(client)
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

    @property
    def numbered(self) -> Rounds:
        """The progress of the numbered consumers, which there must be."""
        assert self.rounds is not None
        return self.rounds

    def pass_steps(self, consumer: int, step: int) -> None:
        """Count the rounds that all consumers have passed as delivered."""
        for number, count in self.numbered.advance(consumer, step).items():
            task = self.tasks[number]
            task.delivered.add(0, count if task.full is None else min(count, task.full))
            self.let_go(task)
        self.settle_rests()

    def settle_rests(self) -> None:
        """Count the rests of all tasks as delivered once every consumer has passed the
        last rounds. Called after each update that ends a task or moves a consumer.
        """
        end = self.end if self.rests and self.last_rounds is not None else None
        if end is None or min(self.numbered.steps) < end:
            return
        for number in self.rests:
            task = self.tasks[number]
            if task.total is not None and not task.settled:
                task.delivered.add(0, task.total)
                self.let_go(task)

    def let_go(self, task: Task) -> None:
        """Forget the facts of a task that are no longer needed. A settled task needs
        nothing for a next host.
        """
        if task.settled:
            task.held, task.states = {}, []
            task.decisions.trim(task.decisions.length)
            for ledger in task.ledger:
                ledger.trim(ledger.length)
        elif task.states:
            keep_needed(task.states, task.ledger, task.decisions, task.delivered, self.job.cache)

    def cursor(self, task: Task, source: int) -> SplitCursor:
        """Return the cursor from which a task gets its splits."""
        return (task.cursors or self.cursors)[source]

    @property
    def splits_exhausted(self) -> bool:
        """True if no source has a split left in its current repetition."""
        return all(cursor.exhausted for cursor in self.cursors)


def count_fact(
    update: u.Update,
    iterations: Mapping[int, Iteration],
    client_iteration: Mapping[str, int],
    tasks: Mapping[int, Task],
) -> None:
    """Count a fact for the iteration that it concerns, if there is one already."""
    task = tasks.get(getattr(update, "task", -1))
    number = getattr(update, "iteration", 0) if task is None else task.iteration
    if isinstance(update, u.CloseClientUpdate):
        number = client_iteration.get(update.client, 0)
    if number in iterations:
        iterations[number].tally.records += 1
        iterations[number].tally.firm += update.is_firm
