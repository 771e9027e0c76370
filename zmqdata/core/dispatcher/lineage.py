"""What a host is told of a task, so that it goes on where the last one was; and whether
it has made the same again.

Which states and ledger entries that takes is ``core.lineage``'s arithmetic. Who hosts
what is decided in ``core.dispatcher.hosting``.
"""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.job_rules import outlives_host
from zmqdata.core.lineage import is_believable, useful_states, without_holes
from zmqdata.core.ranges import RangeSet


def kin(task: Task, iteration: Iteration) -> list[Task]:
    """The tasks to which comes what comes to this one: itself, or all copies, also
    those that are gone.
    """
    return [task] if outlives_host(iteration.job) else list(iteration.tasks.values())


class StateKeeping:
    """Keeps where tasks can be continued, and what has to be the same then.

    Args:
        out: state and commands.
    """

    def __init__(self, out: Outbox) -> None:
        self.out = out

    def take(self, peer: Peer, message: m.StateTaken, now: float) -> None:
        """Commits a state that the present host of a task has told."""
        task = self.out.state.tasks.get(message.task)
        if (
            task is None
            or (task.worker, task.attempt) != (message.worker, message.attempt)
            or task.settled
        ):
            return
        continues = outlives_host(self.out.state.iterations[task.iteration].job)
        if continues and is_believable(
            message.state, task.states, task.ledger, task.decisions, task.total
        ):
            self.out.commit(u.TakeStateUpdate(task.task, message.state))

    def decide(self, peer: Peer, message: m.ElementsDecided, now: float) -> None:
        """Commits what the operations of a task have decided, for every later attempt;
        the answer waits for that.
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
    task: Task, iteration: Iteration, digest: str, taken: RangeSet, ticket: int = 0
) -> m.TaskDefinition:
    """What a host is told of a task.

    Args:
        task: it.
        iteration: its own.
        digest: that of its packed pipeline.
        taken: the elements that need not be sent again.
        ticket: of those who may read it.
    """
    job = iteration.job
    poisoned, suspects = _deadly(task, iteration)
    taken = without_holes(taken) if job.cache else taken
    states = useful_states(task.states, taken, task.total)
    if task.states and states[:1] != (task.states[0],) and not job.cache:
        # What clients have in hand need not be made now; but they may be asked where it
        # comes from.
        states = (task.states[0], *states)
    bases = tuple(ledger.base for ledger in task.ledger)
    return m.TaskDefinition(
        task=task.task,
        attempt=task.attempt,
        iteration=task.iteration,
        dataset_id=job.dataset_id,
        digest=digest,
        processing_mode=job.processing_mode,
        seed=task.seed,
        compression=job.compression,
        ledger=tuple(ledger.since(base) for ledger, base in zip(task.ledger, bases, strict=True)),
        skip=taken.ranges,
        block_elements=job.block_elements,
        num_shards=iteration.num_shards,
        shard=task.shard or 0,
        num_consumers=job.num_consumers,
        finite=job.finite,
        passed=iteration.rounds.passed(task.task, task.total)
        if iteration.rounds is not None
        else (),
        cache=job.cache,
        by_reference=job.by_reference,
        iteration_seed=iteration.seed,
        repetition=iteration.repetition,
        save_path=job.save.path if job.save is not None else "",
        stream=task.index,
        delivered=task.delivered.beginning,
        bases=bases,
        states=states,
        first_decision=task.decisions.base,
        decisions=tuple(task.decisions.entries),
        poisoned=tuple(sorted(poisoned)),
        suspects=tuple(sorted(suspects - poisoned)),
        task_timeout=job.task_timeout,
        ticket=ticket,
    )


def contradiction(task: Task, iteration: Iteration, taken: RangeSet, total: int) -> str:
    """What is wrong with the end that a task's host has come to; "" when nothing is.

    Args:
        task: it.
        iteration: its own.
        taken: the elements that somebody has.
        total: how many the host says that there are.
    """
    had = max((stop for _, stop in taken.ranges[-1:]), default=0)
    if iteration.rounds is not None:
        had = max([had, *iteration.rounds.passed(task.task, None)])
    what = "rounds" if iteration.rounds is not None else "elements"
    if task.total is not None and total != task.total:
        found = f"came to its end after {task.total} {what} the first time, and after {total} when it was made again"
    elif total < had:
        found = f"ended after {total} {what} when it was made again; {had} were there before"
    else:
        return ""
    return (
        f"task {task.task} of job {iteration.job.name} {found}. What a worker takes along is made "
        "again and must come "
        "out the same: look for a filter or a map that draws unseeded random numbers (use "
        "random_map), reads the clock "
        "or files that change, for deterministic=False, and for packages that differ between "
        "workers. Elements may be missing, or have come twice."
    )


def _deadly(task: Task, iteration: Iteration) -> tuple[set[m.Place], set[m.Place]]:
    """What the nodes of a task leave out, and at what processes died."""
    alike = kin(task, iteration)
    poisoned = {place for one in alike for place in one.poisoned}
    crumbs = [crumb for one in alike for death in one.deaths.values() for crumb in death.crumbs]
    return poisoned, {crumb.place for crumb in crumbs if crumb.node}
