"""Test the dispatcher's plan for numbered consumers."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from msgspec import structs

from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.splits import IndexSplits

DIGEST = hashlib.sha256(b"pipeline").hexdigest()
DESCRIPTION = m.DatasetDescription(
    DIGEST, "print", (IndexSplits(10),), "", None, -1, None, "3.11", "0"
)
JOB = m.JobParameters("job", "dataset", "OFF", num_consumers=2, consumer_timeout=60.0)


class Desk(Transcript):
    """A dispatcher core with a dataset and workers, and clients that read as
    consumers.
    """

    core: DispatcherCore

    def __init__(self, workers: int = 2, times: DispatcherTimes | None = None, **job: Any) -> None:
        super().__init__(DispatcherCore(1, times or DispatcherTimes()))
        self.job = structs.replace(JOB, **job)
        self.hear("somebody", m.RegisterDataset("request", "dataset", DESCRIPTION, b"pipeline"))
        for number in range(workers):
            self.add_worker(f"w{number}")

    def add_worker(self, name: str) -> None:
        self.hear(name, m.RegisterWorker(name, name, (), "3.11", "0", ()))

    def open(self, client: str, consumer: int) -> None:
        self.hear(client, m.OpenIteration(client, self.job, 0, m.Reader(consumer)))

    def beat(self, client: str, steps: int = 0, near: int = 0) -> None:
        question = self.asked.get(client)
        self.hear(client, m.ClientHeartbeat(client, -1, 0, {}, steps, near, question=question))

    def ends(self, worker: str, task: int, total: int, attempt: int = 1) -> None:
        self.hear(
            worker, m.WorkerHeartbeat(worker, (m.TaskReport(task, attempt, total, total),), ())
        )

    @property
    def iteration(self) -> Iteration:
        return self.core.state.iterations[2000]

    @property
    def tasks(self) -> list[int]:
        return list(self.iteration.tasks)

    @property
    def plan(self) -> m.Plan:
        found = self.core.jobs.coordination.plan(self.iteration)
        assert found is not None
        return found


def started(workers: int = 2, **job: Any) -> Desk:
    """Return a desk on which both consumers have begun."""
    desk = Desk(workers, **job)
    desk.open("k", 0)
    desk.open("l", 1)
    return desk


def test_consumers_begin_when_all_are_there() -> None:
    """The first view has all existing tasks, and until it comes the dispatcher tells
    all consumers which are missing.
    """
    desk = Desk()
    desk.open("k", 0)
    assert desk.sent(m.IterationOpened).task_list.plan == m.Plan((), 0, {}, (1,))
    desk.open("l", 1)
    plan = desk.sent(m.IterationOpened).task_list.plan
    indices = tuple((task, index) for index, task in enumerate(desk.tasks))
    assert plan == m.Plan(
        (m.View(0, tuple((task, 0) for task in desk.tasks)),), 4, {}, indices=indices
    )
    assert {message.client: message.task_list.plan for message in desk.all_of(m.TasksChanged)}[
        "k"
    ] == plan


def test_consumers_begin_with_the_first_worker() -> None:
    """Consumers begin with the first worker, as they have no task without it."""
    desk = started(workers=0)
    assert desk.plan.views == ()
    desk.add_worker("w")
    desk.wait(1.0)
    assert [view.first_step for view in desk.plan.views] == [0]


def test_the_horizon_moves_when_somebody_is_near() -> None:
    """The horizon moves twice as far each time while steps are fast, and a repeated
    request does not move it.
    """
    desk = started()
    horizons = [desk.plan.horizon]
    for _ in range(3):
        desk.beat("k", near=horizons[-1])
        desk.beat("l", near=horizons[-1])
        horizons.append(desk.plan.horizon)
    assert horizons == [4, 12, 28, 60]
    assert len(desk.plan.views) == 1


def test_a_new_task_takes_its_turn_at_the_horizon() -> None:
    """A worker that joins gets a task, which takes turns from the first step that no
    consumer may have reached.
    """
    desk = started(workers=1)
    desk.add_worker("late")
    assert len(desk.plan.views) == 1
    desk.beat("k", steps=2, near=4)
    first, second = desk.tasks
    assert desk.plan.views == (m.View(0, ((first, 0),)), m.View(4, ((first, 4), (second, 0))))


def test_a_task_that_has_ended_leaves_at_the_horizon() -> None:
    """Consumers are told the total of an ended task at once, skip its steps until the
    horizon, and read only the other tasks behind it.
    """
    desk = started(finite="drop")
    first, second = desk.tasks
    desk.ends("w0", first, 1)
    assert desk.plan.full == {first: 1}
    desk.beat("k", near=4)
    assert desk.plan.views[-1] == m.View(4, ((second, 2),))
    assert desk.plan.end is None
    desk.ends("w1", second, 7)
    assert desk.plan.end == 9
    desk.beat("k", steps=9)
    desk.beat("k", near=desk.plan.horizon)
    desk.beat("l", steps=9)
    assert all(task.settled for task in desk.iteration.tasks.values())
    assert desk.iteration.finished


def test_nothing_moves_at_the_end() -> None:
    """No consumer gets more steps when all tasks have ended before the horizon."""
    desk = started(finite="drop")
    for worker, task in zip(("w0", "w1"), desk.tasks, strict=True):
        desk.ends(worker, task, 1)
    assert desk.plan.end == 2
    desk.beat("k", near=4)
    assert desk.plan.horizon == 4
    desk.beat("k", steps=2)
    desk.hear("k", m.CloseIteration("k", 0, {}, 2))
    assert desk.plan.missing == ()


def test_who_comes_for_a_lost_worker_begins_no_other_copy() -> None:
    """The replacement of a lost worker begins no other copy, so that copies are read
    once for each original worker.
    """
    desk = started(finite="drop")
    first, second = desk.tasks
    desk.ends("w0", first, 5)
    desk.hear("w1", m.WorkerStopped("w1"))
    desk.add_worker("w2")
    assert desk.tasks == [first, second]
    desk.add_worker("w3")
    assert len(desk.tasks) == 3


def test_a_lost_task_goes_on_elsewhere_at_once() -> None:
    """A lost task moves without asking consumers: they tell the new host their
    position, and it makes what some consumer has not reported.
    """
    desk = started()
    desk.beat("k", steps=4)
    desk.beat("l", steps=2)
    desk.hear("w0", m.WorkerStopped("w0"))
    definition = desk.sent(m.HostTask).definition
    assert (definition.task, definition.attempt, definition.skip) == (desk.tasks[0], 2, ((0, 1),))
    assert (definition.job.num_consumers, definition.passed) == (2, (2, 1))
    assert desk.all_of(m.RequestHoldings) == []


def test_what_nobody_may_have_read_is_not_believed() -> None:
    """The dispatcher ignores steps beyond the horizon and reports of ranges."""
    desk = started()
    desk.beat("k", steps=5)
    assert desk.iteration.rounds is not None
    assert desk.iteration.rounds.steps == [0, 0]
    desk.hear("k", m.ClientHeartbeat("k", -1, 0, {desk.tasks[0]: ((0, 3),)}))
    assert not desk.iteration.tasks[desk.tasks[0]].delivered


# --- the holder of a place


def test_a_living_consumer_keeps_its_place() -> None:
    """The dispatcher refuses another client as soon as the holder of the place has
    answered, and names the holder's step.
    """
    desk = started()
    desk.beat("l", steps=3)
    desk.now += 1.0
    desk.open("m", 1)
    assert desk.sent(e.Send) == e.Send("l", m.Probe(desk.asked["l"]))
    desk.now += 0.5
    desk.beat("l", steps=3)
    desk.now += 0.5
    desk.open("m", 1)
    refusal = desk.sent(m.RequestRefused)
    assert refusal.error == "FailedPreconditionError"
    assert "current round has already reached 3" in refusal.text


def test_forgiven_silence_is_no_sign_of_a_consumer() -> None:
    """Forgiven silence does not refuse the new client of a place, as only a message of
    the holder does.
    """
    desk = started()
    desk.beat("l", steps=3)
    desk.now += 1.0
    desk.open("m", 1)
    desk.now += 100.0
    desk.beat("k")
    desk.open("m", 1)
    assert desk.all_of(m.RequestRefused) == []


def test_a_consumer_without_a_connection_gives_way() -> None:
    """The successor of a consumer without a connection begins behind the reported
    steps, and the workers forget the consumer.
    """
    desk = started()
    desk.beat("l", steps=3)
    desk.open("m", 1)
    desk.feed(e.Unreachable("l"))
    desk.now += 1.0
    desk.open("m", 1)
    assert desk.all_of(m.IterationOpened) == []
    desk.now += 1.0
    desk.open("m", 1)
    assert desk.sent(m.IterationOpened).step == 3
    assert {message.client for message in desk.all_of(m.ReleaseClient)} == {"l"}
    desk.beat("l")
    assert desk.sent(m.RequestRefused).error == "NotFoundError"


def test_a_consumer_that_was_silent_for_too_long_gives_way() -> None:
    """The only client of a job keeps its place through silence until another client
    wants it.
    """
    desk = Desk(num_consumers=1)
    desk.open("k", 0)
    for _ in range(20):
        desk.wait(1.0)
        desk.hear("w0", m.WorkerHeartbeat("w0", (), ()))
    desk.open("m", 0)
    desk.wait(1.5)
    desk.open("m", 0)
    assert desk.sent(m.IterationOpened).client == "m"


def test_a_consumer_that_comes_back_with_the_dispatcher_keeps_its_place() -> None:
    """A consumer without a connection keeps its place if it speaks within 1.5 s of the
    request of another client.
    """
    desk = started()
    desk.feed(e.Unreachable("l"))
    desk.now += 5.0
    desk.open("m", 1)
    desk.now += 1.0
    desk.beat("l")
    desk.now += 1.0
    desk.open("m", 1)
    assert desk.all_of(m.IterationOpened) == []
    assert desk.sent(m.RequestRefused).error == "FailedPreconditionError"


def test_an_only_consumer_that_workers_hear_keeps_its_place() -> None:
    """A consumer that workers hear keeps its place although the dispatcher does not
    hear it. Its successor is admitted once the workers do not hear it.
    """
    desk = Desk(num_consumers=1)
    desk.open("k", 0)
    desk.hear("k", m.ClientHeartbeat("k", -1, 0, {}, alone=True))
    refusals = 0
    for _ in range(20):
        desk.wait(1.0)
        desk.hear(
            "w0", m.WorkerHeartbeat("w0", (), (), {"k": m.ReaderSign(0.5, desk.asked.get("k"))})
        )
        desk.open("m", 0)
        assert desk.all_of(m.IterationOpened) == []
        refusals += len(desk.all_of(m.RequestRefused))
    assert refusals
    for _ in range(4):
        desk.wait(1.0)
        desk.hear("w0", m.WorkerHeartbeat("w0", (), ()))
        desk.open("m", 0)
    assert desk.sent(m.IterationOpened).client == "m"


def test_a_place_that_was_left_is_free() -> None:
    """A consumer that says goodbye leaves its place with its last report."""
    desk = started()
    desk.hear("l", m.CloseIteration("l", 0, {}, 2))
    assert desk.plan.missing == (1,)
    desk.beat("k", near=4)
    assert desk.plan.horizon == 4
    desk.open("m", 1)
    assert desk.sent(m.IterationOpened).step == 2
    assert desk.plan.missing == ()


# --- waiting


def test_those_who_wait_are_not_kept_waiting_for_ever() -> None:
    """After ``consumer_timeout`` all consumers, also later ones, get the same error
    with the number of consumers that came.
    """
    desk = Desk()
    desk.open("k", 0)
    for _ in range(59):
        desk.wait(1.0)
        desk.beat("k")
    assert desk.iteration.failure is None
    desk.wait(2.0)
    refusal = desk.sent(m.RequestRefused)
    assert (refusal.request, refusal.error) == ("k", "UnavailableError")
    assert "1 of 2 consumers are present; for 60 s" in refusal.text
    assert "consumer 1, which has not come" in refusal.text
    desk.open("l", 1)
    assert desk.sent(m.RequestRefused).text == refusal.text
    desk.beat("k", steps=1, near=4)
    assert desk.plan.horizon == 0


def test_silence_between_two_heartbeats_is_waiting_too() -> None:
    """A ``client_timeout`` shorter than a heartbeat does not restart the consumers'
    wait with each heartbeat.
    """
    desk = Desk(times=DispatcherTimes(client_timeout=0.3), consumer_timeout=10.0)
    desk.open("k", 0)
    for _ in range(11):
        desk.wait(1.0)
        assert desk.core.jobs.absent == {"k"} or desk.iteration.failure is not None
        desk.beat("k")
    assert "for 10 s (consumer_timeout)" in desk.sent(m.RequestRefused).text


def test_the_dead_wait_for_nobody() -> None:
    """An iteration of silent consumers does not fail, as it may be resumed."""
    desk = Desk()
    desk.open("k", 0)
    desk.wait(200.0)
    assert desk.iteration.failure is None


def test_who_can_read_to_the_end_waits_for_nobody() -> None:
    """A lost goodbye of a consumer does not end the iteration for others that have yet
    to take their last steps.
    """
    desk = started(workers=1, finite="drop")
    desk.ends("w0", desk.tasks[0], 4)
    desk.hear("l", m.CloseIteration("l", 0, {}, 1))
    assert desk.plan.missing == (1,)
    for _ in range(100):
        desk.wait(1.0)
        desk.beat("k", steps=3)
    assert desk.iteration.failure is None
    assert desk.core.jobs.coordination._missing_since == {}


def test_workers_are_told_what_nobody_waits_for() -> None:
    """A worker learns how much a consumer without a client has passed, and that all is
    unwanted once the others can read to the end.
    """
    desk = started(workers=1, finite="drop")
    task = desk.tasks[0]
    desk.beat("k", steps=2)
    assert unwanted(desk) == {}
    desk.hear("l", m.CloseIteration("l", 0, {}, 1))
    assert unwanted(desk) == {task: (2, 1)}
    desk.ends("w0", task, 5)
    assert (desk.plan.horizon, desk.plan.end) == (4, 5)
    assert unwanted(desk) == {task: (2, 1)}
    desk.open("m", 1)
    assert unwanted(desk) == {}
    desk.beat("k", steps=2, near=4)
    desk.hear("m", m.CloseIteration("m", 0, {}, 1))
    assert unwanted(desk) == {task: (2, 5)}


def unwanted(desk: Desk) -> dict[int, tuple[int, ...]]:
    """Return what the answer to the worker's next heartbeat calls unwanted."""
    reports = (m.TaskReport(desk.tasks[0], 1, 0, None),)
    desk.hear("w0", m.WorkerHeartbeat("w0", reports, ()))
    return desk.sent(m.WorkerHeartbeatAnswered).unwanted


def test_time_counts_only_while_somebody_waits() -> None:
    """A job whose consumers all closed may be started again later."""
    desk = started()
    for client in ("k", "l"):
        desk.hear(client, m.CloseIteration(client, 0, {}, 0))
    desk.wait(100.0)
    desk.open("m", 0)
    desk.wait(1.0)
    desk.open("n", 1)
    assert desk.iteration.failure is None
    assert desk.plan.missing == ()


def test_nothing_is_remembered_of_jobs_that_are_gone() -> None:
    """The dispatcher forgets the plan of an iteration with its job."""
    desk = started()
    for client in ("k", "l"):
        desk.hear(client, m.CloseIteration(client, 0, {}, 0))
    desk.wait(310.0)
    coordination = desk.core.jobs.coordination
    assert not desk.core.state.iterations
    assert not coordination._moved
    assert not coordination._missing_since


@pytest.mark.parametrize(
    ("changes", "consumer", "error", "text"),
    [
        ({}, None, "InvalidArgumentError", "has consumers 0 to 1, got consumer_index=None"),
        ({}, 2, "InvalidArgumentError", "got consumer_index=2"),
        ({"num_consumers": 0}, 0, "InvalidArgumentError", "num_consumers=0"),
        ({"num_consumers": None}, 0, "InvalidArgumentError", "Pass num_consumers too"),
        (
            {"num_consumers": None, "finite": "drop"},
            None,
            "InvalidArgumentError",
            "Pass num_consumers too",
        ),
        ({"finite": "keep"}, 0, "InvalidArgumentError", "'drop' or 'pad', got 'keep'"),
        (
            {"target_workers": "LOCAL"},
            0,
            "InvalidArgumentError",
            "Coordinated reads require non-local workers",
        ),
        ({"cache": True}, 0, "InvalidArgumentError", "does not support coordinated reads"),
    ],
)
def test_what_is_no_consumer_is_refused(
    changes: Any, consumer: int | None, error: str, text: str
) -> None:
    """The dispatcher checks the requests of any client for consumers that do not
    exist.
    """
    desk = Desk(**changes)
    desk.hear("k", m.OpenIteration("k", desk.job, 0, m.Reader(consumer)))
    refusal = desk.sent(m.RequestRefused)
    assert refusal.error == error
    assert text in refusal.text


def test_finite_input_is_refused_without_a_rule() -> None:
    """A dataset of known finite cardinality needs ``finite``."""
    desk = Desk()
    finite = structs.replace(DESCRIPTION, cardinality=100)
    desk.hear("somebody", m.RegisterDataset("request", "finite", finite, b"pipeline"))
    desk.job = structs.replace(desk.job, dataset_id="finite")
    desk.open("k", 0)
    refusal = desk.sent(m.RequestRefused)
    assert refusal.error == "FailedPreconditionError"
    assert (
        "Round robin reads require that the input dataset has infinite cardinality" in refusal.text
    )
    assert "but the dataset has cardinality 100" in refusal.text
    desk.job = structs.replace(desk.job, finite="pad")
    desk.open("k", 0)
    assert desk.sent(m.IterationOpened).step == 0


def given_up() -> Desk:
    """Return a desk on which silent consumer 1 was given up with three reported steps,
    while consumer 0 reads on.
    """
    desk = Desk(times=DispatcherTimes(client_timeout=10.0))
    desk.open("k", 0)
    desk.open("l", 1)
    desk.beat("l", steps=3)
    for _ in range(12):
        desk.wait(1.0)
        desk.beat("k")
    assert desk.plan.missing == (1,)
    desk.beat("l")
    assert desk.sent(m.RequestRefused).given_up
    return desk


def come_back(desk: Desk) -> None:
    desk.hear("l", m.OpenIteration("l.1", desk.job, 0, m.Reader(1), (), 2000, step=5, former="l"))


def test_who_had_a_seat_is_kept_in_snapshots() -> None:
    """A snapshot keeps the last client of each consumer, also of a consumer without a
    client.
    """
    desk, state = given_up(), DispatcherState()
    for update in snapshot(desk.core.state):
        state.apply(update)
    rounds = state.iterations[2000].rounds
    assert rounds is not None
    assert rounds.seats == ["k", "l"]


def test_a_consumer_that_comes_back_gets_its_seat() -> None:
    """A consumer that returns to a place without a new reader goes on."""
    desk = given_up()
    come_back(desk)
    assert desk.sent(m.IterationOpened).step == 3
    assert desk.plan.missing == ()


@pytest.mark.parametrize("there", [True, False])
def test_a_consumer_that_was_replaced_is_told_so(there: bool) -> None:
    """A consumer that another client has replaced is told so, even if that client has
    gone as well.
    """
    desk = given_up()
    desk.open("n", 1)
    desk.beat("n", steps=4)
    if not there:
        desk.hear("n", m.CloseIteration("n", 0, {}, 4, 0))
    desk.commands.clear()
    come_back(desk)
    refused = desk.sent(m.RequestRefused)
    assert refused.error == "FailedPreconditionError"
    assert (
        "Consumer 1 of job job was silent for longer than client_timeout and has been replaced"
        in refused.text
    )
    assert "has already reached 4" in refused.text


@pytest.mark.parametrize("replaced", [True, False])
def test_the_last_report_of_a_consumer_that_was_given_up_counts(replaced: bool) -> None:
    """A last report that arrives after its consumer was given up counts, and its
    successor continues behind it, unless another client has read in its place.
    """
    desk = given_up()
    if replaced:
        desk.open("n", 1)
        desk.hear("n", m.CloseIteration("n", 0, {}, 3))
    desk.hear("l", m.CloseIteration("l", 1, {}, 4, at_end=True))
    assert desk.sent(m.IterationClosed).client == "l"
    desk.open("o", 1)
    assert desk.sent(m.IterationOpened).step == (3 if replaced else 4)
