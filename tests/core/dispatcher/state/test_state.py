"""Test the dispatcher's durable state."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import updates as u
from zmqdata.core.dispatcher.state.state import _APPLY, DEPARTED_KEPT, DispatcherState
from zmqdata.core.dispatcher.state.tasks import Tally
from zmqdata.messages import DatasetDescription, JobParameters, SaveParameters, TaskState
from zmqdata.splits import FileSplits, IndexSplits, Split

SOURCES = (IndexSplits(4), FileSplits(("*",), False, None))
DESCRIPTION = DatasetDescription("digest", "fingerprint", SOURCES, "", None, -1, None, "3.11", "0")


def job(mode: str = "DYNAMIC", name: str = "job") -> JobParameters:
    return JobParameters(name, "dataset", mode)


def state(*more: u.Update, mode: str = "DYNAMIC") -> DispatcherState:
    begun = DispatcherState()
    first = [
        u.RegisterDatasetUpdate("dataset", DESCRIPTION),
        u.BeginIncarnationUpdate(1, job(mode)),
        u.CreateIterationUpdate(2000, 1, 0, seed=7),
        u.OpenClientUpdate("client", 2000),
        u.CreateTaskUpdate(4000, 2000, seed=8),
        u.HostTaskUpdate(4000, 1, "worker"),
    ]
    for update in [*first, *more]:
        begun.apply(update)
    return begun


def test_every_update_can_be_applied() -> None:
    """Each class of updates can be applied."""
    assert set(_APPLY) == set(u.Update.__subclasses__())


def test_facts_become_state() -> None:
    """The state holds datasets, jobs, iterations, clients, tasks and their hosts as
    they were committed.
    """
    made = state()
    iteration = made.incarnations[1].iterations[0]
    assert iteration is made.iterations[2000]
    assert (made.next_dataset, made.next_iteration, made.next_task) == (1001, 2001, 4001)
    assert (iteration.clients, made.client_iteration) == ({"client"}, {"client": 2000})
    assert [task.worker for task in iteration.live_tasks] == ["worker"]
    assert (iteration.running, iteration.ended) == (1, 0)


def test_a_ledger_grows_with_the_cursor() -> None:
    """An assigned split is in the ledger of its task and is not handed out again."""
    made = state(u.AssignSplitsUpdate(4000, 0, Split(0, 0, 3)))
    assert [one.entries for one in made.tasks[4000].ledger] == [[Split(0, 0, 3)], []]
    assert made.iterations[2000].cursors[0].next == 3
    assert not made.iterations[2000].splits_exhausted


def test_splits_are_exhausted_when_every_source_is() -> None:
    """Listing no files and handing out all indices exhausts both sources."""
    made = state(u.AssignSplitsUpdate(4000, 0, Split(0, 0, 4)), u.ListFilesUpdate(2000, 1, 0, ()))
    assert made.iterations[2000].splits_exhausted


def test_a_task_is_settled_when_all_of_it_is_delivered() -> None:
    """A task is settled by its total and its deliveries, in either order, or by leaving
    the iteration.
    """
    ended, delivered = u.EndTaskUpdate(4000, 5), u.DeliverUpdate(4000, ((0, 5),))
    assert not state(ended).tasks[4000].settled
    assert not state(delivered).tasks[4000].settled
    assert state(ended, delivered).tasks[4000].settled
    assert state(u.RemoveTaskUpdate(4000)).tasks[4000].settled


def test_running_and_ended_tasks_are_counted() -> None:
    """The counts of running and ended tasks follow tasks through their end and their
    removal.
    """
    counts: list[Any] = [
        (one.iterations[2000].running, one.iterations[2000].ended)
        for one in (
            state(u.EndTaskUpdate(4000, 5)),
            state(u.RemoveTaskUpdate(4000)),
            state(u.EndTaskUpdate(4000, 5), u.RemoveTaskUpdate(4000)),
        )
    ]
    assert counts == [(0, 1), (0, 0), (0, 0)]


def test_an_iteration_is_finished_when_nothing_more_is_owed() -> None:
    """An iteration is finished when its list is closed and all of its tasks are
    settled; its deliveries are the sum over all tasks.
    """
    ended, delivered = u.EndTaskUpdate(4000, 5), u.DeliverUpdate(4000, ((0, 2), (2, 5)))
    closed = u.CloseTaskListUpdate(2000)
    found = [state(*updates).iterations[2000] for updates in ((ended, delivered), (ended, closed))]
    assert [(one.delivered, one.finished) for one in found] == [(5, False), (0, False)]
    assert state(ended, delivered, closed).iterations[2000].finished


def test_tasks_without_sharding_have_no_ledger() -> None:
    """A task in mode OFF has no ledger, as it reads its input by itself."""
    assert state(mode="OFF").tasks[4000].ledger == []


def test_a_closed_client_is_forgotten_once() -> None:
    """Closing a client twice, or an unknown client, changes nothing."""
    made = state(u.CloseClientUpdate("client"), u.CloseClientUpdate("client"))
    assert (made.client_iteration, made.iterations[2000].clients) == ({}, set())
    assert made.departed == {"client": 2000}


def test_a_closed_list_stays_closed() -> None:
    """A closed task list stays closed."""
    assert state(u.CloseTaskListUpdate(2000)).iterations[2000].closed


def test_a_dataset_is_registered_kept_and_removed() -> None:
    """A repeated registration changes only how long a dataset is kept, and a removed
    dataset frees its id.
    """
    again = (
        u.RegisterDatasetUpdate("other", DESCRIPTION, False),
        u.RegisterDatasetUpdate("other", DESCRIPTION),
    )
    made = state(*again)
    assert (made.kept, made.next_dataset) == ({"dataset", "other"}, 1002)
    assert state(again[0]).kept == {"dataset"}
    made.apply(u.RemoveDatasetUpdate("other"))
    assert (set(made.datasets), made.kept, made.next_dataset) == ({"dataset"}, {"dataset"}, 1002)


def test_a_removed_job_leaves_nothing() -> None:
    """Removing a job removes its iterations, tasks and clients, and keeps the
    dataset.
    """
    made = state(u.CollectIncarnationUpdate(1))
    assert not any((made.jobs, made.iterations, made.tasks, made.client_iteration))
    assert "dataset" in made.datasets


def test_what_is_held_counts_until_the_task_is_settled_or_fenced_again() -> None:
    """A client's holdings count for a single loss of the host, and end with their
    client or with the settled task.
    """
    hold = u.HoldUpdate(4000, "client", ((0, 5),))
    fence = u.HostTaskUpdate(4000, 2, "")
    assert state(fence, hold).tasks[4000].held["client"].ranges == ((0, 5),)
    for after in (
        u.HostTaskUpdate(4000, 3, ""),
        u.CloseClientUpdate("client"),
        u.RemoveTaskUpdate(4000),
    ):
        assert state(fence, hold, after).tasks[4000].held == {}
    assert (
        state(fence, hold, u.EndTaskUpdate(4000, 5), u.DeliverUpdate(4000, ((0, 5),)))
        .tasks[4000]
        .held
        == {}
    )
    assert state(fence, hold, u.HostTaskUpdate(4000, 2, "worker")).tasks[4000].held != {}


def test_ledgers_and_cursors_can_be_restored() -> None:
    """A snapshot restores a ledger and the position of each source with a single update
    each.
    """
    entries, back = (Split(0, 0, 1), Split(0, 1, 3)), (Split(0, 3, 4),)
    made = state(
        u.RestoreLedgerUpdate(4000, 0, entries, 2), u.RestoreCursorUpdate(2000, 0, 1, 4, back)
    )
    assert (made.tasks[4000].ledger[0].entries, made.tasks[4000].cuts) == (list(entries), {0: 2})
    cursor = made.iterations[2000].cursors[0]
    assert (cursor.repetition, cursor.next, cursor.returned) == (1, 4, list(back))


def test_a_limited_number_of_departed_clients_is_remembered() -> None:
    """The state forgets the oldest departed clients first."""
    made = state(*[u.CloseClientUpdate(str(number)) for number in range(DEPARTED_KEPT + 1)])
    assert len(made.departed) == DEPARTED_KEPT
    assert "0" not in made.departed
    assert "1" in made.departed


def test_workers_and_places_come_and_go() -> None:
    """A worker is known until it is removed, and a place remembers its last address."""
    add, place = (
        u.AddWorkerUpdate("w", "tcp://w:1", ("GPU",), "3.11"),
        u.PlaceWorkerUpdate(0, "tcp://w:1"),
    )
    assert state(add, place).workers == {"w": add}
    made = state(add, place, u.RemoveWorkerUpdate("w"))
    assert (made.workers, made.places) == ({}, {0: "tcp://w:1"})


def test_a_life_brings_seed_and_numbers() -> None:
    """Numbers of a restarted dispatcher continue after the numbers of the dispatcher
    before.
    """
    made = state(u.BeginLifeUpdate(2, 99, 1500, 2500, 4500, 9))
    assert (made.life, made.seed, made.next_dataset, made.next_iteration, made.next_task) == (
        2,
        99,
        1500,
        2500,
        4500,
    )
    assert made.next_incarnation == 9


def coordinated(*more: u.Update) -> DispatcherState:
    """Return a state with two consumers in turn of a single task, of which each has
    passed some steps.
    """
    made = DispatcherState()
    first = [
        u.RegisterDatasetUpdate("dataset", DESCRIPTION),
        u.BeginIncarnationUpdate(1, JobParameters("job", "dataset", "OFF", num_consumers=2)),
        u.CreateIterationUpdate(2000, 1, 0, seed=7),
        u.OpenClientUpdate("k", 2000, consumer=0),
        u.OpenClientUpdate("l", 2000, consumer=1),
        u.CreateTaskUpdate(4000, 2000, seed=8),
        u.CreateViewUpdate(2000, ((4000, 0),)),
        u.ExtendHorizonUpdate(2000, 20),
    ]
    for update in [*first, *more]:
        made.apply(update)
    return made


def test_consumers_have_places() -> None:
    """A consumer's place belongs to its client until the client closes."""
    made = coordinated()
    assert made.iterations[2000].consumers == {0: "k", 1: "l"}
    made.apply(u.CloseClientUpdate("k"))
    assert made.iterations[2000].consumers == {1: "l"}


def test_a_round_is_delivered_when_all_consumers_have_passed_it() -> None:
    """A round counts as delivered when all consumers have passed it, up to the known
    total of its task; restored rounds keep their positions.
    """
    passed = u.PassStepsUpdate(2000, 0, 7), u.PassStepsUpdate(2000, 1, 5)
    assert coordinated(passed[0]).tasks[4000].delivered.ranges == ()
    made = coordinated(*passed)
    assert made.tasks[4000].delivered.ranges == ((0, 5),)
    assert coordinated(u.EndTaskUpdate(4000, 3), *passed).tasks[4000].delivered.ranges == ((0, 3),)
    rounds = made.iterations[2000].rounds
    assert rounds is not None
    assert (rounds.steps, rounds.horizon) == ([7, 5], 20)
    known = tuple(rounds.known)
    assert coordinated(
        u.RestoreRoundsUpdate(2000, (7, 5), tuple(rounds.views), 20, known)
    ).iterations[2000].rounds == (rounds)


def test_the_end_of_a_ledger_can_be_taken_back() -> None:
    """Returned splits are handed out again, and a new attempt counts its cuts from
    zero.
    """
    cut = u.AssignSplitsUpdate(4000, 0, Split(0, 0, 3)), u.CutLedgerUpdate(4000, 0, 1, 1, 2)
    made = state(*cut)
    assert (made.tasks[4000].ledger[0].entries, made.tasks[4000].cuts) == ([Split(0, 0, 2)], {0: 1})
    assert made.iterations[2000].cursors[0].peek(0, 9) == Split(0, 2, 3)
    assert state(*cut, u.HostTaskUpdate(4000, 2, "other")).tasks[4000].cuts == {}


def test_an_iteration_may_fail() -> None:
    """The state keeps the error of a failed iteration and its text for later
    clients.
    """
    made = state(u.FailIterationUpdate(2000, "ValueError", "broken"))
    assert made.iterations[2000].failure == ("ValueError", "broken", b"")


def saved(*more: u.Update) -> DispatcherState:
    """Return a state with a save of a single task."""
    made = DispatcherState()
    first = [
        u.RegisterDatasetUpdate("dataset", DESCRIPTION),
        u.BeginIncarnationUpdate(
            1, JobParameters("job", "dataset", "OFF", save=SaveParameters("/save", "run"))
        ),
        u.CreateIterationUpdate(2000, 1, 0, seed=7),
        u.CreateTaskUpdate(4000, 2000, seed=8),
    ]
    for update in [*first, *more]:
        made.apply(update)
    return made


def test_a_chunk_that_counts_is_delivered() -> None:
    """A committed chunk delivers its elements, and equal specs are stored once."""
    chunks = [u.CommitChunkUpdate(4000, 1, n, n + 5, 100, bytes([7, 7])) for n in (0, 5)]
    made = saved(*chunks, u.CommitChunkUpdate(4000, 1, 10, 12, 9), u.EndTaskUpdate(4000, 12))
    task = made.tasks[4000]
    assert [(chunk.first, chunk.stop, chunk.size, chunk.spec) for chunk in task.chunks] == [
        (0, 5, 100, b"\x07\x07"),
        (5, 10, 100, b"\x07\x07"),
        (10, 12, 9, b""),
    ]
    assert task.chunks[0].spec is task.chunks[1].spec
    assert task.settled


def test_a_save_fails_or_ends() -> None:
    """The state records the failure or the end of a save."""
    saving = (
        saved(u.FailSaveUpdate(2000, b"failure"), u.EndSaveUpdate(2000)).iterations[2000].saving
    )
    assert saving is not None
    assert (saving.failure, saving.ended) == (b"failure", True)
    assert state().iterations[2000].saving is None


def test_the_total_of_an_ended_task_is_known() -> None:
    """The full rounds are those of the ended tasks, and a rest is none of them."""
    assert state().iterations[2000].full_rounds == {}
    assert state(u.EndTaskUpdate(4000, 5)).iterations[2000].full_rounds == {4000: 5}
    ended = state(u.EndTaskUpdate(4000, 5, rest=2)).iterations[2000]
    assert (ended.full_rounds, ended.rests) == ({4000: 4}, {4000: 2})


def ordered(*more: u.Update) -> DispatcherState:
    """Return a state with a promised order of two tasks."""
    made = DispatcherState()
    first = [
        u.RegisterDatasetUpdate("dataset", DESCRIPTION),
        u.BeginIncarnationUpdate(1, JobParameters("job", "dataset", "DYNAMIC", num_tasks=2)),
        u.CreateIterationUpdate(2000, 1, 0, seed=7, num_shards=2),
        u.CreateTaskUpdate(4000, 2000, 8, 0),
        u.CreateTaskUpdate(4001, 2000, 9, 1),
    ]
    for update in [*first, *more]:
        made.apply(update)
    return made


def test_tasks_of_a_promised_order_have_cursors_of_their_own() -> None:
    """Each task of a promised order has its own cursor over its part of the splits,
    which a snapshot keeps.
    """
    made = ordered(u.AssignSplitsUpdate(4001, 0, Split(0, 1, 2, (), 2)))
    assert [(task.cursors[0].first, task.cursors[0].step) for task in made.tasks.values()] == [
        (0, 2),
        (1, 2),
    ]
    assert [task.cursors[0].next for task in made.tasks.values()] == [0, 3]
    assert made.iterations[2000].cursors[0].next == 0
    returned = (Split(1, 0, 1),)
    cursor = (
        ordered(u.RestoreCursorUpdate(2000, 0, 1, 2, returned, task=4000)).tasks[4000].cursors[0]
    )
    assert (cursor.repetition, cursor.next, cursor.returned) == (1, 2, [Split(1, 0, 1)])


def test_file_names_are_kept_for_the_slowest_task() -> None:
    """The file names of a repetition are forgotten when all tasks have passed it."""
    names = [u.ListFilesUpdate(2000, 1, repetition, ("a", "b")) for repetition in (0, 1)]
    one = u.AssignSplitsUpdate(4000, 1, Split(1, 0, 1, ("a",), 2))
    other = u.AssignSplitsUpdate(4001, 1, Split(1, 1, 2, ("b",), 2))
    assert set(ordered(*names, one).iterations[2000].cursors[1].names) == {0, 1}
    assert set(ordered(*names, one, other).iterations[2000].cursors[1].names) == {1}


def test_states_are_kept_as_long_as_they_are_needed() -> None:
    """A task keeps the newest state before its first undelivered element, and no state
    once its end is delivered.
    """
    states = [u.TakeStateUpdate(4000, TaskState(number, b"s", (0, 0))) for number in (2, 4)]
    made = state(*states)
    assert [one.number for one in made.tasks[4000].states] == [2, 4]
    made.apply(u.DeliverUpdate(4000, ((0, 4),)))
    assert [one.number for one in made.tasks[4000].states] == [4]
    made.apply(u.EndTaskUpdate(4000, 4))
    assert made.tasks[4000].states == []


def test_what_was_counted_stays_counted() -> None:
    """The state counts what a client dropped and gave back, and a snapshot keeps all
    counts.
    """
    tally = state(u.CountClientUpdate(2000, "client", 3, 2)).iterations[2000].tally
    assert (tally.repeats, tally.given_back) == ({"client": 3}, {"client": 2})
    restored = (
        state(u.RestoreTallyUpdate(2000, {4000: 2}, 1, {"k": 9}, {"k": 3}, {"k": 4}, {"w": 1}))
        .iterations[2000]
        .tally
    )
    assert restored == Tally({4000: 2}, 1, {"k": 9}, {"k": 3}, {"k": 4}, {"w": 1})


def test_deaths_and_poison_belong_to_their_task() -> None:
    """A death counts once for each attempt, and poison is known by its node and
    number.
    """
    death = u.CountDeathUpdate(4000, 1, "was killed")
    task = state(death, death, u.PoisonUpdate(4000, "/0", 7, "kills")).tasks[4000]
    assert (task.deaths, task.poisoned) == ({1: death}, {("/0", 7): "kills"})


def test_members_of_a_run_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of members of a run, the oldest is forgotten."""
    monkeypatch.setattr("zmqdata.core.dispatcher.state.state.MEMBERS_KEPT", 2)
    made = state(
        u.RunUpdate("job", "run", 1),
        *[u.MemberUpdate("job", "run", name, "process", 0, 0) for name in "xyz"],
    )
    assert [*made.runs["job", "run"].members] == ["y", "z"]
