"""Snapshots: the fewest updates that recreate the dispatcher's state. Their size
depends on what lives, not on its history.

Pure; the journal of the shell decides where and when to write snapshots.

Decision 0013; protocol 1.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from msgspec import convert

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.runs import Incarnation, KnownRun
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.tasks import Iteration, Task


def snapshot(state: DispatcherState) -> list[u.AnyUpdate]:
    """Return updates that, applied in order to an empty state, yield an equal state.

    >>> state = DispatcherState(seed=7)
    >>> [begin] = snapshot(state)
    >>> begin.seed, begin.next_dataset, begin.next_task
    (7, 1000, 4000)
    """
    return list(_updates(state))


def _updates(state: DispatcherState) -> Iterator[u.AnyUpdate]:
    yield from state.workers.values()
    for place, address in state.places.items():
        yield u.PlaceWorkerUpdate(place, address)
    for dataset_id, description in state.datasets.items():
        yield u.RegisterDatasetUpdate(dataset_id, description, dataset_id in state.kept)
    # In the order of their numbers: the last of a name is the newest.
    for _, incarnation in sorted(state.incarnations.items()):
        yield from _of_incarnation(incarnation)
    for run in state.runs.values():
        yield from _of_run(run)
    for iteration in state.iterations.values():
        yield from _of_iteration(iteration)
    for client, left in state.departed.items():
        yield u.CloseClientUpdate(client, left)
    # Last, because the updates above have advanced the numbers.
    yield u.BeginLifeUpdate(
        state.life,
        state.seed,
        state.next_dataset,
        state.next_iteration,
        state.next_task,
        state.next_incarnation,
        state.mark,
    )


def _of_incarnation(one: Incarnation) -> Iterator[u.AnyUpdate]:
    yield u.BeginIncarnationUpdate(one.number, one.job)
    if one.begun or one.shards:
        yield u.RestoreIncarnationUpdate(
            one.number, one.begun.ranges, one.finished.ranges, tuple(sorted(one.shards))
        )


def _of_run(run: KnownRun) -> Iterator[u.AnyUpdate]:
    yield run.reads
    for name, member in run.members.items():
        yield member
        yield from run.passes.get(name, ())


def _of_iteration(iteration: Iteration) -> Iterator[u.AnyUpdate]:
    number = iteration.iteration
    yield u.CreateIterationUpdate(
        number, iteration.incarnation, iteration.repetition, iteration.seed, iteration.num_shards
    )
    for source, cursor in enumerate(iteration.cursors):
        for repetition, names in cursor.names.items():
            yield u.ListFilesUpdate(number, source, repetition, names)
        yield u.RestoreCursorUpdate(
            number, source, cursor.repetition, cursor.next, tuple(cursor.returned)
        )
    for source, spent in enumerate(iteration.spent):
        for repetition, ranges in spent.repetitions.items():
            yield u.RestoreSpentUpdate(number, source, repetition, ranges.ranges)
    for task in iteration.tasks.values():
        yield from _of_task(task)
    yield from updates_of(iteration)
    for client in sorted(iteration.clients):
        yield iteration.openings[client]
    rounds = iteration.rounds
    if rounds is not None:
        views, known = tuple(rounds.views), tuple(sorted(rounds.known))
        yield u.RestoreRoundsUpdate(
            number, tuple(rounds.steps), views, rounds.horizon, known, tuple(rounds.seats)
        )
    if iteration.closed:
        yield u.CloseTaskListUpdate(number)
    if iteration.failure is not None:
        error, text, failure = iteration.failure
        yield u.FailIterationUpdate(number, error, text, failure)
    # Last, because the updates above are counted, too.
    yield convert({"iteration": number} | asdict(iteration.tally), u.RestoreTallyUpdate)


def updates_of(iteration: Iteration) -> Iterator[u.AnyUpdate]:
    """Yield the facts that only a save has."""
    for task in iteration.tasks.values():
        for chunk in task.chunks:
            yield u.CommitChunkUpdate(
                task.task, chunk.attempt, chunk.first, chunk.stop, chunk.size, chunk.spec
            )
    if iteration.saving is not None and iteration.saving.failure:
        yield u.FailSaveUpdate(iteration.iteration, iteration.saving.failure)
    if iteration.saving is not None and iteration.saving.ended:
        yield u.EndSaveUpdate(iteration.iteration)


def _of_task(task: Task) -> Iterator[u.AnyUpdate]:
    number = task.task
    yield u.CreateTaskUpdate(number, task.iteration, task.seed, task.shard, task.index)
    if task.attempt:
        yield u.HostTaskUpdate(number, task.attempt, task.worker)
    for source, own in enumerate(task.cursors):
        yield u.RestoreCursorUpdate(
            task.iteration,
            source=source,
            repetition=own.repetition,
            next=own.next,
            returned=tuple(own.returned),
            task=number,
        )
    for source, ledger in enumerate(task.ledger):
        cuts = task.cuts.get(source, 0)
        if ledger.length or cuts:
            yield u.RestoreLedgerUpdate(number, source, tuple(ledger.entries), cuts, ledger.base)
    if task.decisions.length:
        yield u.DecideUpdate(number, task.decisions.base, tuple(task.decisions.entries))
    for state in task.states:
        yield u.TakeStateUpdate(number, state)
    if task.delivered:
        yield u.DeliverUpdate(number, task.delivered.ranges)
    for client, ranges in task.held.items():
        yield u.HoldUpdate(number, client, ranges.ranges)
    settled = {number for number in task.deaths if number <= task.cleared}
    yield from (task.deaths[number] for number in sorted(settled))
    if task.cleared:
        yield u.ClearSuspectsUpdate(number, task.cleared)
    yield from task.suspicious
    for (node, element), text in task.poisoned.items():
        yield u.PoisonUpdate(number, node, element, text)
    if task.total is not None:
        yield u.EndTaskUpdate(number, task.total, task.rest, task.left_out)
    if task.removed:
        yield u.RemoveTaskUpdate(number)
