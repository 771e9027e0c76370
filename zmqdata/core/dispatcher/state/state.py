"""The dispatcher's durable state and the only way to change it:
``DispatcherState.apply(update)``.

No code here decides anything, sends anything or knows the time. Connections are not
part of the state, because they are not durable. A new update also needs its place in
``core.dispatcher.state.snapshots``.

Decision 0013; protocol 1.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import convert, structs

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.runs import PASSES_KEPT, Incarnation, KnownRun
from zmqdata.core.dispatcher.state.tasks import (
    Iteration,
    IterationFailure,
    SavedChunk,
    Saving,
    Tally,
    Task,
    count_fact,
)
from zmqdata.core.job_rules import outlives_host
from zmqdata.core.ledger import Ledger, SpentSplits, SplitCursor, cursor_of
from zmqdata.core.ranges import RangeSet
from zmqdata.core.rounds import Rounds
from zmqdata.messages import DatasetDescription

FIRST_DATASET = 1000
FIRST_ITERATION = 2000
FIRST_TASK = 4000
DEPARTED_KEPT = 10_000
"""Maximum number of departed clients that are remembered."""
MEMBERS_KEPT = 10_000
"""Number of members of a run beyond which the oldest is forgotten."""


class DispatcherState:
    """Workers, datasets, jobs, iterations and tasks, as the updates so far have made
    them.

    Args:
        seed: determines every random choice of the dispatcher.
        base: added to the numbers of datasets and tasks that no update has made yet.

    Attributes:
        departed: the clients that closed last, and the iteration that each read. A late
            request of such a client does not open it again.
        jobs: the incarnations of each job name, oldest first.
        runs: what each run reads, by job name and key of the run.
    """

    def __init__(self, seed: int = 0, base: int = 0) -> None:
        self.life = self.mark = 0
        self.seed = seed
        self.workers: dict[str, u.AddWorkerUpdate] = {}
        self.places: dict[int, str] = {}
        self.departed: dict[str, int | None] = {}
        self.datasets: dict[str, DatasetDescription] = {}
        self.kept: set[str] = set()
        self.incarnations: dict[int, Incarnation] = {}
        # Thousands of incarnations are collected, and kept for the runs that read them.
        self._living: dict[int, Incarnation] = {}
        self.jobs: dict[str, dict[int, Incarnation]] = {}
        self.runs: dict[tuple[str, str], KnownRun] = {}
        self.iterations: dict[int, Iteration] = {}
        self.tasks: dict[int, Task] = {}
        self.client_iteration: dict[str, int] = {}
        self.next_dataset = FIRST_DATASET + base
        self.next_incarnation = 1
        self.next_iteration = FIRST_ITERATION
        self.next_task = FIRST_TASK + base

    def apply(self, update: u.Update) -> None:
        """Apply an update. The same updates in the same order always yield the same
        state.
        """
        count_fact(update, self.iterations, self.client_iteration, self.tasks)
        _APPLY[type(update)](self, update)

    def _begin_life(self, update: u.BeginLifeUpdate) -> None:
        for iteration in self.iterations.values() if self.life else ():
            iteration.tally.end_life(self.mark)
        self.life, self.seed, self.mark = update.life, update.seed, update.mark
        self.next_dataset, self.next_iteration = update.next_dataset, update.next_iteration
        self.next_task = update.next_task
        self.next_incarnation = update.next_incarnation

    def _add_worker(self, update: u.AddWorkerUpdate) -> None:
        self.workers[update.worker] = update

    def _remove_worker(self, update: u.RemoveWorkerUpdate) -> None:
        del self.workers[update.worker]

    def _place_worker(self, update: u.PlaceWorkerUpdate) -> None:
        self.places[update.place] = update.address

    def _register_dataset(self, update: u.RegisterDatasetUpdate) -> None:
        if update.dataset_id not in self.datasets:
            self.next_dataset += 1
        self.datasets[update.dataset_id] = update.description
        if update.kept:
            self.kept.add(update.dataset_id)

    def _remove_dataset(self, update: u.RemoveDatasetUpdate) -> None:
        del self.datasets[update.dataset_id]
        self.kept.discard(update.dataset_id)

    def _begin_incarnation(self, update: u.BeginIncarnationUpdate) -> None:
        known = self.incarnations.get(update.incarnation)
        if known is None:
            incarnation = Incarnation(update.incarnation, update.job)
            self.incarnations[update.incarnation] = incarnation
            self.jobs.setdefault(update.job.name, {})[update.incarnation] = incarnation
            self.next_incarnation = max(self.next_incarnation, update.incarnation + 1)
        else:
            known.job = update.job

    def _run(self, update: u.RunUpdate) -> None:
        self._forget(update.job, update.run)
        self.runs[update.job, update.run] = KnownRun(update)
        self.incarnations[update.incarnation].runs.add(update.run)

    def _forget_run(self, update: u.ForgetRunUpdate) -> None:
        self._forget(update.job, update.run)

    def _forget(self, job: str, key: str) -> None:
        run = self.runs.pop((job, key), None)
        if run is not None:
            incarnation = self.incarnations[run.reads.incarnation]
            incarnation.runs.discard(key)
            self._forget_unread(incarnation)

    def _member(self, update: u.MemberUpdate) -> None:
        run = self.runs[update.job, update.run]
        known = run.members.pop(update.member, None)
        if known is None or known.process != update.process:
            run.passes.pop(update.member, None)
        if len(run.members) >= MEMBERS_KEPT:
            oldest = next(iter(run.members))  # the one that has not read for longest
            del run.members[oldest]
            run.passes.pop(oldest, None)
        run.members[update.member] = update

    def _pass(self, update: u.PassUpdate) -> None:
        passes = self.runs[update.job, update.run].passes.setdefault(update.member, [])
        known = {
            worker: process
            for one in passes
            if one.number == update.number
            for worker, process in one.workers.items()
        }
        passes[:] = [one for one in passes if one.number != update.number][1 - PASSES_KEPT :]
        passes.append(structs.replace(update, workers=known | update.workers))

    def _restore_incarnation(self, update: u.RestoreIncarnationUpdate) -> None:
        known = self.incarnations[update.incarnation]
        known.begun, known.finished = RangeSet(update.begun), RangeSet(update.finished)
        known.shards = set(update.shards)

    def _create_iteration(self, update: u.CreateIterationUpdate) -> None:
        incarnation = self.incarnations[update.incarnation]
        job = incarnation.job
        sources = self.datasets[job.dataset_id].sources or ()
        cursors = (
            [cursor_of(source) for source in sources] if job.processing_mode == "DYNAMIC" else []
        )
        iteration = Iteration(update.iteration, job, update.repetition, update.seed, cursors)
        iteration.incarnation = update.incarnation
        iteration.num_shards = update.num_shards
        iteration.spent = [SpentSplits() for _ in cursors]
        iteration.saving = None if job.save is None else Saving()
        if job.num_consumers is not None:
            iteration.rounds = Rounds(job.num_consumers)
        self.iterations[update.iteration] = iteration
        incarnation.iterations[update.repetition] = iteration
        self._living[incarnation.number] = incarnation
        incarnation.begun.add(update.repetition, update.repetition + 1)
        self.next_iteration = update.iteration + 1

    def _open_client(self, update: u.OpenClientUpdate) -> None:
        iteration = self.iterations[update.iteration]
        iteration.clients.add(update.client)
        iteration.openings[update.client] = update
        self.incarnations[iteration.incarnation].shards.update(update.shards)
        for shard in update.shards:
            iteration.shard_readers.setdefault(shard, set()).add(update.client)
        self.client_iteration[update.client] = update.iteration
        if update.consumer is not None:
            iteration.consumers[update.consumer] = update.client
            self._rounds(update.iteration).seats[update.consumer] = update.client

    def _close_client(self, update: u.CloseClientUpdate) -> None:
        number = self.client_iteration.pop(update.client, update.iteration)
        iteration = None if number is None else self.iterations.get(number)
        if iteration is not None:
            iteration.clients.discard(update.client)
            opening = iteration.openings.pop(update.client, None)
            for shard in () if opening is None else opening.shards:
                iteration.shard_readers[shard].discard(update.client)
                if not iteration.shard_readers[shard]:
                    del iteration.shard_readers[shard]
            for task in iteration.tasks.values():
                task.held.pop(update.client, None)
            for consumer in [
                index for index, client in iteration.consumers.items() if client == update.client
            ]:
                del iteration.consumers[consumer]
        self._depart(update.client, number)

    def _depart(self, client: str, iteration: int | None) -> None:
        self.departed.setdefault(client, iteration)
        if len(self.departed) > DEPARTED_KEPT:
            del self.departed[next(iter(self.departed))]

    def _create_task(self, update: u.CreateTaskUpdate) -> None:
        iteration = self.iterations[update.iteration]
        ledger = [Ledger(spent=spent) for spent in iteration.spent]
        task = Task(update.task, update.iteration, update.seed, ledger, shard=update.shard)
        # A missing index belongs to a task that is unknown to the checkpoints from
        # which this iteration began.
        task.index = iteration.next_index if update.index is None else update.index
        iteration.next_index = max(iteration.next_index, task.index + 1)
        if iteration.job.num_tasks is not None:
            first, step = update.shard or 0, iteration.job.num_tasks
            task.cursors = [
                SplitCursor(one.source, names=one.names, first=first, step=step)
                for one in iteration.cursors
            ]
        iteration.tasks[task.task] = task
        iteration.hosts.place(task.task, "")
        iteration.running += 1
        self.tasks[task.task] = task
        self.next_task = update.task + 1

    def _host_task(self, update: u.HostTaskUpdate) -> None:
        task = self.tasks[update.task]
        if update.attempt != task.attempt:
            task.cuts.clear()
        task.attempt, task.worker = update.attempt, update.worker
        iteration = self.iterations[task.iteration]
        iteration.hosts.place(task.task, update.worker)
        if update.worker in self.workers and not outlives_host(iteration.job):
            iteration.tally.begin_copy(self.workers[update.worker].address, update.worker)
        if not update.worker:
            task.held = {}
            iteration.tally.lose_host(task.task)

    def _assign_splits(self, update: u.AssignSplitsUpdate) -> None:
        task = self.tasks[update.task]
        task.ledger[update.source].entries.append(update.split)
        iteration = self.iterations[task.iteration]
        iteration.tally.hand_out(task.task, update.split.size)
        cursor = iteration.cursor(task, update.source)
        repetition = cursor.repetition
        cursor.advance(update.split)
        if cursor.repetition != repetition and cursor.names:
            places = [
                iteration.cursor(one, update.source).repetition
                for one in iteration.tasks.values()
                if one.total is None and not one.removed
            ]
            cursor.forget_names(min(places, default=cursor.repetition))

    def _cut_ledger(self, update: u.CutLedgerUpdate) -> None:
        task = self.tasks[update.task]
        parts = task.ledger[update.source].parted(update.entries, update.stop)
        assert parts is not None, "checked before it was decided"
        task.ledger[update.source].entries, back = parts
        task.cuts[update.source] = update.cut
        iteration = self.iterations[task.iteration]
        iteration.tally.hand_out(task.task, -sum(split.size for split in back))
        iteration.cursor(task, update.source).take_back(back)

    def _restore_ledger(self, update: u.RestoreLedgerUpdate) -> None:
        task = self.tasks[update.task]
        spent = self.iterations[task.iteration].spent[update.source]
        task.ledger[update.source] = Ledger(list(update.splits), update.base, spent)
        if update.cuts:
            task.cuts[update.source] = update.cuts

    def _restore_cursor(self, update: u.RestoreCursorUpdate) -> None:
        cursors = (
            self.iterations[update.iteration].cursors
            if update.task is None
            else self.tasks[update.task].cursors
        )
        cursors[update.source].restore(update.repetition, update.next, update.returned)

    def _restore_spent(self, update: u.RestoreSpentUpdate) -> None:
        self.iterations[update.iteration].spent[update.source].restore(
            update.repetition, update.ranges
        )

    def _take_state(self, update: u.TakeStateUpdate) -> None:
        task = self.tasks[update.task]
        task.states.append(update.state)
        self._let_go(task)

    def _decide(self, update: u.DecideUpdate) -> None:
        known = self.tasks[update.task].decisions
        forgotten = max(0, known.base - update.first)  # a late repetition of a request
        known.take(update.first + forgotten, update.decisions[forgotten:])

    def _list_files(self, update: u.ListFilesUpdate) -> None:
        self.iterations[update.iteration].cursors[update.source].list(
            update.repetition, update.names, update.more
        )

    def _hold(self, update: u.HoldUpdate) -> None:
        self.tasks[update.task].held[update.client] = RangeSet(update.ranges)

    def _end_task(self, update: u.EndTaskUpdate) -> None:
        task = self.tasks[update.task]
        self._uncount(task)
        task.total, task.rest, task.left_out = update.total, update.rest, update.left_out
        self.iterations[task.iteration].hosts.end(task.task)
        self.iterations[task.iteration].ended += 1
        self._let_go(task)
        self.iterations[task.iteration].settle_rests()

    def _remove_task(self, update: u.RemoveTaskUpdate) -> None:
        task = self.tasks[update.task]
        self._uncount(task)
        self.iterations[task.iteration].hosts.remove(task.task)
        task.removed = True
        self._let_go(task)
        self.iterations[task.iteration].settle_rests()

    def _let_go(self, task: Task) -> None:
        self.iterations[task.iteration].let_go(task)

    def _uncount(self, task: Task) -> None:
        iteration = self.iterations[task.iteration]
        iteration.running -= task.total is None
        iteration.ended -= task.total is not None

    def _deliver(self, update: u.DeliverUpdate) -> None:
        task = self.tasks[update.task]
        task.delivered.update(update.ranges)
        self.iterations[task.iteration].tally.deliver(
            update.client, sum(b - a for a, b in update.ranges)
        )
        self._let_go(task)

    def _count_client(self, update: u.CountClientUpdate) -> None:
        tally = self.iterations[update.iteration].tally
        tally.repeats[update.client] = update.repeats
        tally.given_back[update.client] = update.given_back

    def _restore_tally(self, update: u.RestoreTallyUpdate) -> None:
        self.iterations[update.iteration].tally = convert(structs.asdict(update), Tally)

    def _create_view(self, update: u.CreateViewUpdate) -> None:
        self._rounds(update.iteration).begin(update.tasks)

    def _extend_horizon(self, update: u.ExtendHorizonUpdate) -> None:
        self._rounds(update.iteration).extend(update.horizon)
        self.iterations[update.iteration].settle_rests()

    def _pass_steps(self, update: u.PassStepsUpdate) -> None:
        self.iterations[update.iteration].pass_steps(update.consumer, update.step)

    def _restore_rounds(self, update: u.RestoreRoundsUpdate) -> None:
        rounds = self._rounds(update.iteration)
        rounds.restore(update.steps, update.views, update.horizon, update.known)
        rounds.seats = list(update.seats) or rounds.seats
        self.iterations[update.iteration].settle_rests()

    def _rounds(self, iteration: int) -> Rounds:
        return self.iterations[iteration].numbered

    def _close_task_list(self, update: u.CloseTaskListUpdate) -> None:
        iteration = self.iterations[update.iteration]
        iteration.closed = True
        iteration.settle_rests()

    def _fail_iteration(self, update: u.FailIterationUpdate) -> None:
        self.iterations[update.iteration].failure = IterationFailure(
            update.error, update.text, update.failure
        )

    def _commit_chunk(self, update: u.CommitChunkUpdate) -> None:
        task = self.tasks[update.task]
        specs = self._saving(task.iteration).specs
        # Thousands of chunks have the same few specs, so each spec is stored once.
        spec = specs.setdefault(update.spec, update.spec) if update.spec else b""
        task.chunks.append(SavedChunk(update.attempt, update.first, update.stop, update.size, spec))
        task.delivered.add(update.first, update.stop)
        self._let_go(task)

    def _fail_save(self, update: u.FailSaveUpdate) -> None:
        self._saving(update.iteration).failure = update.failure

    def _end_save(self, update: u.EndSaveUpdate) -> None:
        self._saving(update.iteration).ended = True

    def _saving(self, iteration: int) -> Saving:
        saving = self.iterations[iteration].saving
        assert saving is not None
        return saving

    def _count_death(self, update: u.CountDeathUpdate) -> None:
        task = self.tasks[update.task]
        if update.attempt > task.cleared:
            task.deaths[update.attempt] = update
            self.iterations[task.iteration].suspected.add(task.task)

    def _clear_suspects(self, update: u.ClearSuspectsUpdate) -> None:
        task = self.tasks[update.task]
        task.cleared = update.attempt
        # Deaths of a process that ran other tasks, too, prove nothing later.
        task.deaths = {number: death for number, death in task.deaths.items() if death.alone}
        self.iterations[task.iteration].suspected.discard(task.task)

    def _poison(self, update: u.PoisonUpdate) -> None:
        self.tasks[update.task].poisoned[update.node, update.number] = update.text

    def _collect_incarnation(self, update: u.CollectIncarnationUpdate) -> None:
        incarnation = self.incarnations[update.incarnation]
        for repetition, iteration in incarnation.iterations.items():
            if iteration.finished:
                incarnation.finished.add(repetition, repetition + 1)
            del self.iterations[iteration.iteration]
            for task in iteration.tasks:
                del self.tasks[task]
            for client in sorted(iteration.clients):
                del self.client_iteration[client]
                self._depart(client, iteration.iteration)
        incarnation.iterations.clear()
        self._living.pop(incarnation.number, None)
        # An invented name is known to its own run alone, which may begin anew.
        for run in sorted(incarnation.runs) if incarnation.job.anonymous else ():
            self._forget(incarnation.job.name, run)
        self._forget_unread(incarnation)

    def _forget_unread(self, incarnation: Incarnation) -> None:
        """Forget a collected incarnation that no run reads."""
        name = incarnation.job.name
        is_known = incarnation.number in self.incarnations
        if incarnation.runs or not incarnation.is_collected or not is_known:
            return
        del self.incarnations[incarnation.number]
        del self.jobs[name][incarnation.number]
        if not self.jobs[name]:
            del self.jobs[name]

    def newest_of(self, job: str) -> Incarnation | None:
        """Return the newest incarnation of a job name; None if it is collected or none
        has begun.
        """
        newest = next(reversed(self.jobs.get(job, {}).values()), None)
        return None if newest is None or newest.is_collected else newest

    @property
    def living(self) -> list[Incarnation]:
        """The incarnations that are not collected."""
        return list(self._living.values())


_APPLY: dict[type[u.Update], Callable[[DispatcherState, Any], None]] = {
    u.BeginLifeUpdate: DispatcherState._begin_life,
    u.AddWorkerUpdate: DispatcherState._add_worker,
    u.RemoveWorkerUpdate: DispatcherState._remove_worker,
    u.PlaceWorkerUpdate: DispatcherState._place_worker,
    u.RegisterDatasetUpdate: DispatcherState._register_dataset,
    u.RemoveDatasetUpdate: DispatcherState._remove_dataset,
    u.BeginIncarnationUpdate: DispatcherState._begin_incarnation,
    u.RunUpdate: DispatcherState._run,
    u.ForgetRunUpdate: DispatcherState._forget_run,
    u.MemberUpdate: DispatcherState._member,
    u.PassUpdate: DispatcherState._pass,
    u.RestoreIncarnationUpdate: DispatcherState._restore_incarnation,
    u.CreateIterationUpdate: DispatcherState._create_iteration,
    u.OpenClientUpdate: DispatcherState._open_client,
    u.CloseClientUpdate: DispatcherState._close_client,
    u.CreateTaskUpdate: DispatcherState._create_task,
    u.HostTaskUpdate: DispatcherState._host_task,
    u.AssignSplitsUpdate: DispatcherState._assign_splits,
    u.CutLedgerUpdate: DispatcherState._cut_ledger,
    u.TakeStateUpdate: DispatcherState._take_state,
    u.DecideUpdate: DispatcherState._decide,
    u.RestoreLedgerUpdate: DispatcherState._restore_ledger,
    u.RestoreCursorUpdate: DispatcherState._restore_cursor,
    u.RestoreSpentUpdate: DispatcherState._restore_spent,
    u.ListFilesUpdate: DispatcherState._list_files,
    u.HoldUpdate: DispatcherState._hold,
    u.EndTaskUpdate: DispatcherState._end_task,
    u.RemoveTaskUpdate: DispatcherState._remove_task,
    u.DeliverUpdate: DispatcherState._deliver,
    u.CountClientUpdate: DispatcherState._count_client,
    u.RestoreTallyUpdate: DispatcherState._restore_tally,
    u.CreateViewUpdate: DispatcherState._create_view,
    u.ExtendHorizonUpdate: DispatcherState._extend_horizon,
    u.PassStepsUpdate: DispatcherState._pass_steps,
    u.RestoreRoundsUpdate: DispatcherState._restore_rounds,
    u.CloseTaskListUpdate: DispatcherState._close_task_list,
    u.FailIterationUpdate: DispatcherState._fail_iteration,
    u.CommitChunkUpdate: DispatcherState._commit_chunk,
    u.FailSaveUpdate: DispatcherState._fail_save,
    u.EndSaveUpdate: DispatcherState._end_save,
    u.CountDeathUpdate: DispatcherState._count_death,
    u.ClearSuspectsUpdate: DispatcherState._clear_suspects,
    u.PoisonUpdate: DispatcherState._poison,
    u.CollectIncarnationUpdate: DispatcherState._collect_incarnation,
}
