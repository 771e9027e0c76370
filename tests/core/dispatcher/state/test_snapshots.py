"""Test snapshots of the dispatcher's state."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import _APPLY, DispatcherState
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.ledger import MOST_REPETITIONS
from zmqdata.core.lineage import MOST_STATES
from zmqdata.core.rounds import Rounds
from zmqdata.decisions import Decision
from zmqdata.messages import (
    DatasetDescription,
    JobParameters,
    SaveParameters,
    TaskState,
    Work,
)
from zmqdata.splits import FileSplits, IndexSplits, Split

SOURCES = (IndexSplits(40), FileSplits(("*",), False, None))


class History:
    """Draw and apply consecutive updates as a dispatcher makes them.

    Args:
        seed: decides what happens.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = DispatcherState(seed)
        self.updates: list[u.AnyUpdate] = []
        self.made = 0
        self.ways: list[Callable[[], u.AnyUpdate | None]] = [
            self.begin_life,
            self.add_worker,
            self.add_worker,
            self.remove_worker,
            self.place_worker,
            self.register_dataset,
            self.remove_dataset,
            self.create_job,
            self.create_iteration,
            self.create_iteration,
            self.open_client,
            self.open_client,
            self.close_client,
            self.list_files,
            self.close_task_list,
            self.fail_iteration,
            self.remove_job,
            *[self.bind_run, self.run_member, self.read_pass] * 2,
            self.restore_incarnation,
            self.unbind_run,
            *[self.create_task, self.host_task, self.assign_splits, self.deliver, self.hold] * 4,
            self.end_task,
            self.remove_task,
            *[self.create_view, self.extend_horizon, self.pass_steps] * 2,
            self.restore_rounds,
            self.count_repeats,
            self.restore_tally,
            *[self.commit_chunk] * 4,
            self.fail_save,
            self.end_save,
            self.count_death,
            self.count_death,
            self.clear_suspects,
            self.poison,
            self.cut_ledger,
            self.cut_ledger,
            *[self.take_state] * 8,
            *[self.decide] * 2,
            self.restore_ledger,
            self.restore_cursor,
            *[self.restore_spent] * 2,
        ]

    def step(self) -> None:
        update = self.draw.choice(self.ways)()
        if update is not None:
            self.updates.append(update)
            self.state.apply(update)

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}-{self.made}"

    def some(self, found: list[object]) -> object:
        return self.draw.choice(found) if found else None

    def begin_life(self) -> u.AnyUpdate:
        one = self.state
        return u.BeginLifeUpdate(
            one.life + 1,
            one.seed,
            one.next_dataset,
            one.next_iteration,
            one.next_task,
            one.next_incarnation,
            self.draw.randrange(1, 1000),
        )

    def add_worker(self) -> u.AnyUpdate:
        return u.AddWorkerUpdate(self.name("worker"), "tcp://a:1", ("GPU",), "3.11")

    def remove_worker(self) -> u.AnyUpdate | None:
        worker = self.some([*self.state.workers])
        return None if worker is None else u.RemoveWorkerUpdate(str(worker))

    def place_worker(self) -> u.AnyUpdate:
        return u.PlaceWorkerUpdate(self.draw.randrange(3), self.name("tcp://b"))

    def register_dataset(self) -> u.AnyUpdate:
        name = str(self.some([*self.state.datasets, self.name("dataset")]))
        description = DatasetDescription(
            name, "fingerprint", SOURCES, "", b"spec", -2, None, "3.11", "0"
        )
        return u.RegisterDatasetUpdate(name, description, self.draw.random() < 0.5)

    def remove_dataset(self) -> u.AnyUpdate | None:
        used = {one.job.dataset_id for one in self.state.incarnations.values()}
        name = self.some([one for one in self.state.datasets if one not in used])
        return None if name is None else u.RemoveDatasetUpdate(str(name))

    def create_job(self) -> u.AnyUpdate | None:
        dataset = self.some([*self.state.datasets])
        mode = self.draw.choice(["DYNAMIC", "OFF", "DATA"])
        count = self.draw.choice([None, 1, 2])
        save = SaveParameters("/folder", self.name("run")) if self.draw.random() < 0.3 else None
        job = JobParameters(
            self.name("job"), str(dataset), mode, num_consumers=None if save else count, save=save
        )
        if job.num_consumers is not None and self.draw.random() < 0.5:
            job = replace(job, num_tasks=3)
        number = self.state.next_incarnation
        again = self.some([one.number for one in self.state.incarnations.values()])
        if again is not None and self.draw.random() < 0.3:
            known = self.state.incarnations[int(str(again))]
            number, job = known.number, replace(job, name=known.job.name)
            if not known.is_collected:
                return None
        elif self.draw.random() < 0.3:
            job = replace(job, name="shared")
        return None if dataset is None else u.BeginIncarnationUpdate(number, job)

    def bind_run(self) -> u.AnyUpdate | None:
        number = self.incarnation()
        if number is None:
            return None
        name = self.state.incarnations[number].job.name
        return u.RunUpdate(name, f"run {self.draw.randrange(3)}", number, self.draw.randrange(3))

    def unbind_run(self) -> u.AnyUpdate | None:
        if not self.state.runs or self.draw.random() < 0.7:
            return None
        return u.ForgetRunUpdate(*self.draw.choice([*self.state.runs]))

    def run_member(self) -> u.AnyUpdate | None:
        if not self.state.runs:
            return None
        job, run = self.draw.choice([*self.state.runs])
        base, used = self.draw.randrange(3), self.draw.randrange(5)
        process = f"process {self.draw.randrange(2)}"
        return u.MemberUpdate(job, run, str(self.draw.randrange(2)), process, base, used, used)

    def read_pass(self) -> u.AnyUpdate | None:
        known = [(*key, member) for key, one in self.state.runs.items() for member in one.members]
        if not known:
            return None
        number = self.draw.randrange(4)
        return u.PassUpdate(*self.draw.choice(known), number, 7 + number, 0, {0: self.name("p")})

    def restore_incarnation(self) -> u.AnyUpdate | None:
        number = self.incarnation()
        if number is None:
            return None
        known = self.state.incarnations[number]
        begun = ((0, max(known.iterations) + 1),)
        return u.RestoreIncarnationUpdate(number, begun, ((0, 1),), tuple(known.shards))

    def incarnation(self) -> int | None:
        found = self.some([one.number for one in self.state.living])
        return found if isinstance(found, int) else None

    def create_iteration(self) -> u.AnyUpdate | None:
        found = self.some([one.number for one in self.state.incarnations.values()])
        if not isinstance(found, int):
            return None
        known = self.state.incarnations[found]
        if known.job.dataset_id not in self.state.datasets:
            return None
        repetition = max([-1, *known.iterations, *(stop for _, stop in known.begun.ranges)]) + 1
        shards = self.draw.randrange(3)
        return u.CreateIterationUpdate(
            self.state.next_iteration, found, repetition, self.made, shards
        )

    def iteration(self) -> int | None:
        found = self.some([*self.state.iterations])
        return found if isinstance(found, int) else None

    def task(self) -> int | None:
        found = self.some([number for number, task in self.state.tasks.items() if not task.removed])
        return found if isinstance(found, int) else None

    def open_client(self) -> u.AnyUpdate | None:
        iteration = self.iteration()
        if iteration is None:
            return None
        rounds = self.state.iterations[iteration].rounds
        consumer = None if rounds is None else self.draw.randrange(len(rounds.steps))
        if consumer in self.state.iterations[iteration].consumers:
            return None
        shards = (self.draw.randrange(3),) if self.draw.random() < 0.3 else ()
        return u.OpenClientUpdate(
            self.name("client"),
            iteration,
            ("tcp://c:1",),
            consumer,
            "run",
            "0",
            "p",
            "joined",
            shards,
        )

    def close_client(self) -> u.AnyUpdate | None:
        client = self.some([*self.state.client_iteration])
        return None if client is None else u.CloseClientUpdate(str(client))

    def list_files(self) -> u.AnyUpdate | None:
        iteration = self.iteration()
        if iteration is None or not self.state.iterations[iteration].cursors:
            return None
        return u.ListFilesUpdate(iteration, 1, self.draw.randrange(2), ("a", "b", "c"))

    def close_task_list(self) -> u.AnyUpdate | None:
        iteration = self.iteration()
        return None if iteration is None else u.CloseTaskListUpdate(iteration)

    def fail_iteration(self) -> u.AnyUpdate | None:
        iteration = self.iteration()
        return (
            None
            if iteration is None
            else u.FailIterationUpdate(iteration, "DataLossError", "why", b"because")
        )

    def remove_job(self) -> u.AnyUpdate | None:
        found = self.incarnation()
        if found is None or self.draw.random() < 0.7:
            return None
        return u.CollectIncarnationUpdate(found)

    def create_task(self) -> u.AnyUpdate | None:
        iteration = self.iteration()
        shard = self.draw.choice([None, 0, 1])
        return (
            None
            if iteration is None
            else u.CreateTaskUpdate(self.state.next_task, iteration, self.made, shard)
        )

    def host_task(self) -> u.AnyUpdate | None:
        task = self.task()
        if task is None:
            return None
        worker = str(self.draw.choice(["", *self.state.workers]))
        return u.HostTaskUpdate(task, self.state.tasks[task].attempt + (not worker or 1), worker)

    def fed_task(self) -> int | None:
        """Return a task that still gets splits."""
        task = self.task()
        found = self.state.tasks.get(task or 0)
        return task if found is not None and found.ledger and not found.settled else None

    def assign_splits(self) -> u.AnyUpdate | None:
        task = self.fed_task()
        if task is None:
            return None
        source = self.draw.randrange(2)
        cursor = self.state.iterations[self.state.tasks[task].iteration].cursor(
            self.state.tasks[task], source
        )
        repetition = cursor.repetition + self.draw.choice([0, 0, 0, 1])
        return u.AssignSplitsUpdate(
            task, source, cursor.peek(repetition, self.draw.randrange(1, 9))
        )

    def cut_ledger(self) -> u.AnyUpdate | None:
        task = self.fed_task()
        if task is None:
            return None
        source, found = self.draw.randrange(2), self.state.tasks[task]
        if found.cursors:
            return None  # the task continues with its own splits on any host
        ledger = found.ledger[source]
        needed = max([ledger.base, *(state.needs[source] + 1 for state in found.states)])
        entries = self.draw.randint(min(needed, ledger.length), ledger.length)
        last = (
            ledger.entries[entries - ledger.base - 1] if entries > ledger.base else Split(0, 0, 0)
        )
        stop = self.draw.randint(min(last.start + 1, last.stop), last.stop)
        return u.CutLedgerUpdate(task, source, found.cuts.get(source, 0) + 1, entries, stop)

    def take_state(self) -> u.AnyUpdate | None:
        task = self.fed_task()
        if task is None:
            return None
        found = self.state.tasks[task]
        number = found.states[-1].number if found.states else 0
        needs = tuple(self.draw.randint(one.base, one.length) for one in found.ledger)
        decided = self.draw.randint(found.decisions.base, found.decisions.length)
        return u.TakeStateUpdate(
            task, TaskState(number + self.draw.randrange(1, 4), b"state", needs, decided)
        )

    def decide(self) -> u.AnyUpdate | None:
        task = self.fed_task()
        if task is None:
            return None
        known, news = self.state.tasks[task].decisions, []
        if known.entries and self.draw.random() < 0.5:  # the last entry grows
            news = [replace(known.entries[-1], stop=known.entries[-1].stop + 1)]
        place, first = self.draw.choice(["/0", "/1"]), self.draw.randrange(99)
        news.append(Decision(place, first, first + 2, (first,)))
        return u.DecideUpdate(task, known.length + 1 - len(news), tuple(news))

    def restore_ledger(self) -> u.AnyUpdate | None:
        task = self.fed_task()
        if task is None:
            return None
        one = self.state.tasks[task].ledger[0]
        cuts = self.state.tasks[task].cuts.get(0, 0)
        return u.RestoreLedgerUpdate(task, 0, tuple(one.entries), cuts, one.base)

    def restore_cursor(self) -> u.AnyUpdate | None:
        iteration = self.iteration()
        if iteration is None or not self.state.iterations[iteration].cursors:
            return None
        one = self.state.iterations[iteration].cursors[0]
        task = next(
            (task for task in self.state.iterations[iteration].tasks.values() if task.cursors), None
        )
        if task is not None and self.draw.random() < 0.5:
            own = task.cursors[0]
            return u.RestoreCursorUpdate(
                iteration, 0, own.repetition, own.next, tuple(own.returned), task.task
            )
        return u.RestoreCursorUpdate(iteration, 0, one.repetition, one.next, tuple(one.returned))

    def restore_spent(self) -> u.AnyUpdate | None:
        iteration = self.iteration()
        if iteration is None or not self.state.iterations[iteration].spent:
            return None
        first = self.draw.randrange(9)
        return u.RestoreSpentUpdate(
            iteration, self.draw.randrange(2), self.draw.randrange(3), ((first, first + 3),)
        )

    def deliver(self) -> u.AnyUpdate | None:
        task, first = self.task(), self.draw.randrange(20)
        ranges = ((first, first + 5), (first + 7, first + 8))
        return (
            None
            if task is None
            else u.DeliverUpdate(task, ranges, self.draw.choice(["", "client"]))
        )

    def count_repeats(self) -> u.AnyUpdate | None:
        number = self.some([*self.state.iterations])
        assert isinstance(number, int | None)
        return (
            None
            if number is None
            else u.CountClientUpdate(number, "client", self.draw.randrange(1, 9))
        )

    def restore_tally(self) -> u.AnyUpdate | None:
        number = self.some([*self.state.iterations])
        assert isinstance(number, int | None)
        if number is None:
            return None
        tally = self.state.iterations[number].tally
        return u.RestoreTallyUpdate(
            number,
            splits=dict(tally.splits),
            rehosted=tally.rehosted,
            delivered={"client": 7},
            repeats={"client": 2},
            given_back={"client": 1},
            copies=dict(tally.copies),
        )

    def hold(self) -> u.AnyUpdate | None:
        task = self.task()
        if task is None or self.state.tasks[task].settled:
            return None
        client = self.some([*self.state.iterations[self.state.tasks[task].iteration].clients])
        return None if client is None else u.HoldUpdate(task, str(client), ((3, 4), (9, 12)))

    def end_task(self) -> u.AnyUpdate | None:
        task = self.task()
        if task is None or self.state.tasks[task].total is not None:
            return None
        rest = self.draw.randrange(2)
        return u.EndTaskUpdate(task, rest + self.draw.randrange(25), rest)

    def rounds(self) -> tuple[int, Rounds] | None:
        coordinated = [
            (one.iteration, one.rounds) for one in self.state.iterations.values() if one.rounds
        ]
        return self.draw.choice(coordinated) if coordinated else None

    def create_view(self) -> u.AnyUpdate | None:
        found = self.rounds()
        if found is None:
            return None
        live = [task.task for task in self.state.iterations[found[0]].live_tasks]
        tasks = found[1].next_tasks(self.state.iterations[found[0]].full_rounds, live)
        return u.CreateViewUpdate(found[0], tasks) if tasks and not found[1].has(tasks) else None

    def extend_horizon(self) -> u.AnyUpdate | None:
        found = self.rounds()
        return found and u.ExtendHorizonUpdate(
            found[0], found[1].horizon + self.draw.randrange(1, 5)
        )

    def pass_steps(self) -> u.AnyUpdate | None:
        found = self.rounds()
        if found is None or not found[1].views:
            return None
        consumer = self.draw.randrange(len(found[1].steps))
        return u.PassStepsUpdate(
            found[0], consumer, self.draw.randint(found[1].steps[consumer], found[1].horizon)
        )

    def restore_rounds(self) -> u.AnyUpdate | None:
        found = self.rounds()
        if found is None:
            return None
        one = found[1]
        where = (tuple(one.steps), tuple(one.views), one.horizon, tuple(one.known))
        return u.RestoreRoundsUpdate(found[0], *where, tuple(one.seats))

    def saved(self) -> Iteration | None:
        found = self.some([one for one in self.state.iterations.values() if one.saving is not None])
        return found if isinstance(found, Iteration) else None

    def commit_chunk(self) -> u.AnyUpdate | None:
        iteration = self.saved()
        task = None if iteration is None else self.some(list(iteration.tasks.values()))
        if not isinstance(task, Task):
            return None
        first = task.chunks[-1].stop if task.chunks else 0
        spec = self.draw.choice([b"", b"one", b"two"])
        return u.CommitChunkUpdate(
            task.task, task.attempt, first, first + self.draw.randrange(1, 9), 100, spec
        )

    def fail_save(self) -> u.AnyUpdate | None:
        iteration = self.saved()
        return None if iteration is None else u.FailSaveUpdate(iteration.iteration, b"failure")

    def end_save(self) -> u.AnyUpdate | None:
        iteration = self.saved()
        return None if iteration is None else u.EndSaveUpdate(iteration.iteration)

    def count_death(self) -> u.AnyUpdate | None:
        task = self.task()
        if task is None:
            return None
        attempt, element = self.draw.randrange(4), self.draw.randrange(9)
        work = Work(task, attempt, element, "/0", "map(f)", True, (1, 2))
        killed, alone = self.draw.random() < 0.5, self.draw.random() < 0.5
        return u.CountDeathUpdate(task, attempt, "was killed", killed, (work,), alone, alone)

    def clear_suspects(self) -> u.AnyUpdate | None:
        task = self.task()
        deaths = {} if task is None else self.state.tasks[task].deaths
        return u.ClearSuspectsUpdate(task, max(deaths)) if task is not None and deaths else None

    def poison(self) -> u.AnyUpdate | None:
        task = self.task()
        return None if task is None else u.PoisonUpdate(task, "/0", self.draw.randrange(9), "why")

    def remove_task(self) -> u.AnyUpdate | None:
        task = self.task()
        return None if task is None else u.RemoveTaskUpdate(task)


def replayed(updates: list[u.AnyUpdate]) -> DispatcherState:
    state = DispatcherState()
    for update in updates:
        state.apply(update)
    return state


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 400))
def test_a_replayed_snapshot_is_the_state(seed: int, steps: int) -> None:
    """The updates of a snapshot make a state that is equal in every field, after any
    history.
    """
    history = History(seed)
    history.state.apply(history.begin_life())
    for _ in range(steps):
        history.step()
    assert vars(replayed(snapshot(history.state))) == vars(history.state)


def test_the_histories_have_everything_in_them() -> None:
    """The drawn histories contain each kind of update."""
    history = History(1)
    for _ in range(6_000):
        history.step()
    assert {type(update) for update in history.updates} == set(_APPLY)


def test_a_snapshot_has_the_size_of_what_lives() -> None:
    """A snapshot has a handful of updates for a thousand deliveries and ledger entries
    of a single task.
    """
    history = History(2)
    for way in (history.begin_life, history.add_worker, history.register_dataset):
        history.state.apply(way() or history.begin_life())
    dataset = next(iter(history.state.datasets))
    for update in (
        u.BeginIncarnationUpdate(1, JobParameters("job", dataset, "DYNAMIC")),
        u.CreateIterationUpdate(2000, 1, 0, 7),
        u.CreateTaskUpdate(4000, 2000, 8),
    ):
        history.state.apply(update)
    for number in range(1_000):
        history.state.apply(u.HostTaskUpdate(4000, number + 1, ""))
        history.state.apply(u.DeliverUpdate(4000, ((number, number + 1),)))
        history.state.apply(history.assign_splits() or history.begin_life())
        history.state.apply(history.take_state() or history.begin_life())
    assert len(snapshot(history.state)) < 15 + MOST_STATES + 2 * MOST_REPETITIONS


def test_what_is_told_again_late_stays_forgotten() -> None:
    """A repeated report of decisions that no state needs restores none of them."""
    history = History(2)
    for way in (history.begin_life, history.add_worker, history.register_dataset):
        history.state.apply(way() or history.begin_life())
    dataset = next(iter(history.state.datasets))
    decisions = tuple(Decision("/0", number, number + 1) for number in range(5))
    for update in (
        u.BeginIncarnationUpdate(1, JobParameters("job", dataset, "DYNAMIC")),
        u.CreateIterationUpdate(2000, 1, 0, 7),
        u.CreateTaskUpdate(4000, 2000, 8),
        u.DecideUpdate(4000, 0, decisions),
        u.TakeStateUpdate(
            4000,
            TaskState(3, b"state", (0,) * len(history.state.datasets[dataset].sources or ()), 3),
        ),
        u.DeliverUpdate(4000, ((0, 3),)),
        u.DecideUpdate(4000, 1, decisions[1:]),
    ):
        history.state.apply(update)
    known = history.state.tasks[4000].decisions
    assert (known.base, known.length) == (3, 5)
