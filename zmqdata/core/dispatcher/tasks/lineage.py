"""The lineage by which a task's next host continues where its predecessor was, and the
check that both produce the same elements.

``core.lineage`` selects the states and ledger entries. ``tasks.hosting`` chooses the
host. A person who runs a task again elsewhere gets its lineage, too.

Decisions 0015 and 0028; protocol 3.18 and 8.4 to 8.6.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice

from msgspec.structs import replace

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.job_rules import outlives_host
from zmqdata.core.lineage import is_believable, useful_states, without_holes
from zmqdata.core.ranges import RangeSet

RECENT = 2
"""Number of elements before those in progress at a death that are suspect, too. A
process that has crashed may run on while the system writes its core, and a thread that
a function began may crash after it.
"""
WIDER = 16
"""Factor by which this number grows when a process dies alone and at no suspect."""
MOST_RECENT = 1 << 13
"""Maximum of this number."""
MOST_REPLAYS = 1_000
"""Maximum number of remembered tasks of collected iterations."""
MOST_REPLAY_BYTES = 64 << 20
"""Maximum size of their states and ledgers."""
ENTRY_BYTES = 100
"""Approximate size of an entry of a ledger."""


def kin(task: Task, iteration: Iteration) -> list[Task]:
    """Return the tasks that process the same elements as this one: the task alone, or
    all copies, including removed ones.
    """
    return [task] if outlives_host(iteration.job) else list(iteration.tasks.values())


class StateKeeping:
    """Keeps the states from which tasks can be continued, and the decisions that later
    attempts must repeat.

    Args:
        out: state and commands.
    """

    def __init__(self, out: Outbox) -> None:
        self.out = out

    def commit(self, peer: Peer, message: m.StateTaken, now: float) -> None:
        """Commit a state that the present host of a task reports."""
        task = self.out.state.tasks.get(message.task)
        if task is None or not task.runs(message.worker, message.attempt):
            return
        continues = outlives_host(self.out.state.iterations[task.iteration].job)
        if continues and is_believable(
            message.state, task.states, task.ledger, task.decisions, task.total
        ):
            self.out.commit(u.TakeStateUpdate(task.task, message.state))

    def decide(self, peer: Peer, message: m.ElementsDecided, now: float) -> None:
        """Commit what the operations of a task have decided, for every later attempt.
        The answer follows the commit.
        """
        task = self.out.state.tasks.get(message.task)
        if task is None or (task.worker, task.attempt) != (message.worker, message.attempt):
            return
        if not task.settled:
            self.out.commit(u.DecideUpdate(task.task, message.first, message.decisions))
        self.out.send(
            peer, m.DecisionsKept(task.task, task.attempt, message.report, task.decisions.base)
        )


def definition_of(
    task: Task,
    iteration: Iteration,
    dataset: m.DatasetDescription,
    taken: RangeSet,
    ticket: int = 0,
) -> m.TaskDefinition:
    """Return the definition of a task for its host.

    Args:
        task: the task.
        iteration: its iteration.
        dataset: the dataset that it reads.
        taken: the elements that need not be sent again.
        ticket: ticket of the clients that may read it.
    """
    job = iteration.job
    poisoned, suspects = _deadly(task, iteration)
    taken = without_holes(taken) if job.cache else taken
    states = useful_states(task.states, taken, task.total)
    if task.states and states[:1] != (task.states[0],) and not job.cache:
        # The elements that clients hold need not be made now, but clients may ask for
        # their lineage.
        states = (task.states[0], *states)
    bases = tuple(ledger.base for ledger in task.ledger)
    return m.TaskDefinition(
        task=task.task,
        attempt=task.attempt,
        iteration=task.iteration,
        job=job,
        digest=dataset.digest,
        seed=task.seed,
        ledger=tuple(ledger.since(base) for ledger, base in zip(task.ledger, bases, strict=True)),
        skip=taken.ranges,
        num_shards=iteration.num_shards,
        shard=task.shard or 0,
        passed=iteration.passed(task),
        iteration_seed=iteration.seed,
        fixed_seed=dataset.fixed_seed,
        repetition=iteration.repetition,
        stream=task.index,
        delivered=task.delivered.beginning,
        bases=bases,
        states=states,
        first_decision=task.decisions.base,
        decisions=tuple(task.decisions.entries),
        poisoned=tuple(sorted(poisoned)),
        suspects=tuple(sorted(suspects)),
        traceparent=iteration.traceparent,
        ticket=ticket,
    )


def contradiction(
    task: Task, iteration: Iteration, taken: RangeSet, total: int, rest: int = 0
) -> str:
    """Return why the end that a task's host has reached contradicts earlier attempts;
    "" if it does not.

    Args:
        task: the task.
        iteration: its iteration.
        taken: the elements that were delivered or are held by clients.
        total: the number of elements, or of rounds, according to the host.
        rest: the number of elements after the last full round, according to the host.
    """
    had = max((stop for _, stop in taken.ranges[-1:]), default=0)
    if iteration.rounds is not None:
        had = max([had, *iteration.rounds.passed(task.task, None)])
    what = "rounds" if iteration.rounds is not None else "elements"
    if task.total is not None and (total, rest) != (task.total, task.rest):
        found = (
            f"ended after {_length(task.total, task.rest, what)} the first time, and after "
            f"{_length(total, rest, what)} when it was made again"
        )
    elif total < had:
        found = f"ended after {total} {what} when it was made again; clients already had {had}"
    else:
        return ""
    return (
        f"task {task.task} of job {iteration.job.name} {found}. The elements of a "
        "lost worker are made again and must come out the same. Look for a filter or "
        "a map that draws unseeded random numbers (use random_map), reads the clock "
        "or changing files, for deterministic=False, and for packages that differ "
        "between workers. Elements may be missing or may have been delivered twice."
    )


def _length(total: int, rest: int, what: str) -> str:
    return f"{total - 1} {what} and {rest} elements" if rest else f"{total} {what}"


def _deadly(task: Task, iteration: Iteration) -> tuple[set[m.Place], set[m.Place]]:
    """Return the elements that the nodes of a task leave out, and the elements that
    they must make alone.
    """
    poisoned = {place for one in kin(task, iteration) for place in one.poisoned}
    suspects = Suspicion.of(task, iteration).suspects - poisoned
    return poisoned, {place for place in suspects if place[0]}


@dataclass
class Suspicion:
    """Elements that may have killed the processes of a task since it was cleared."""

    suspects: set[m.Place] = field(default_factory=set)
    """The elements that may have caused the last death."""
    proven: list[tuple[m.Place, u.CountDeathUpdate]] = field(default_factory=list)
    """The deaths with a certain cause, each with its element."""

    @classmethod
    def of(cls, task: Task, iteration: Iteration) -> Suspicion:
        """Return the suspicion of a task and of the other copies of the same input."""
        found, last, width = cls(), set[m.Place](), RECENT
        for death in [death for one in kin(task, iteration) for death in one.suspicious]:
            places = {work.place for work in death.in_progress}
            if death.proof:
                found.proven += [(place, death) for place in places]
            is_miss = death.alone and not death.proof
            width = min(width * WIDER, MOST_RECENT) if is_miss else RECENT
            last = places or last
            found.suspects = {
                (node, number)
                for node, stop in last
                for number in (range(max(0, stop - width), stop + 1) if node else [stop])
            }
        return found


@dataclass(frozen=True)
class ReplayableTask:
    """A task with everything that running it again elsewhere takes."""

    job: str
    """Name of its job."""
    definition: m.TaskDefinition
    """Its lineage, with every known state and without the ticket."""
    dataset: m.DatasetDescription
    """The dataset that it reads."""

    @property
    def nbytes(self) -> int:
        """Approximate size of its states and ledgers."""
        entries = sum(len(one) for one in self.definition.ledger)
        return entries * ENTRY_BYTES + sum(len(one.content) for one in self.definition.states)


class Replays:
    """Finds the tasks that a person may run again elsewhere: those of living
    iterations, and for a while those that a collected iteration left unfinished.

    A training script that ends with the error of an element closes its iteration, whose
    anonymous job is collected at once. Nothing here is durable.

    Args:
        out: the state.
    """

    def __init__(self, out: Outbox) -> None:
        self.out = out
        self._kept: OrderedDict[int, ReplayableTask] = OrderedDict()
        self._kept_bytes = 0

    def keep(self, iteration: Iteration) -> None:
        """Remember the unfinished tasks of an iteration that is being collected. The
        newest replace the oldest.
        """
        unfinished = (one for one in iteration.tasks.values() if one.removed or not one.settled)
        for task in islice(unfinished, MOST_REPLAYS):
            found = self._described(task, iteration)
            if found is not None:
                self._kept[task.task] = found
                self._kept_bytes += found.nbytes
        while len(self._kept) > MOST_REPLAYS or self._kept_bytes > MOST_REPLAY_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.nbytes

    def find(self, number: int) -> ReplayableTask | None:
        """Return a task; None if it is not known, or no longer."""
        task = self.out.state.tasks.get(number)
        if task is None:
            return self._kept.get(number)
        return self._described(task, self.out.state.iterations[task.iteration])

    def _described(self, task: Task, iteration: Iteration) -> ReplayableTask | None:
        dataset = self.out.state.datasets.get(iteration.job.dataset_id)
        if dataset is None:
            return None
        definition = definition_of(task, iteration, dataset, task.delivered)
        whole = replace(definition, states=tuple(task.states))
        return ReplayableTask(iteration.job.name, whole, dataset)
