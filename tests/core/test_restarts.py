"""Test how a dispatcher core continues from the state of a former core."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.splits import IndexSplits

DIGEST = "d" * 64
LATER = 1000.0
"""The start of the next dispatcher by its own clock."""


class Lives(Transcript):
    """A replaceable dispatcher with clients and workers of a single job, whose
    successor knows its state.
    """

    core: DispatcherCore

    def __init__(
        self, mode: str = "DYNAMIC", addresses: tuple[str, ...] = (), **times: float
    ) -> None:
        self.addresses = addresses
        self.times = DispatcherTimes(**times)
        super().__init__(self._make(1))
        self.feed_all(self.core.resume(0.0))
        description = m.DatasetDescription(
            DIGEST, "print", (IndexSplits(100),), "", None, -2, None, "3.11", "0"
        )
        self.hear("k", m.RegisterDataset("request", "dataset", description, b"pipeline"))
        self.job = m.JobParameters("job", "dataset", mode)

    def _make(self, seed: int) -> DispatcherCore:
        return DispatcherCore(seed, self.times, self.addresses)

    def feed_all(self, commands: list[object]) -> None:
        self.commands = commands

    def reborn(self) -> None:
        facts = snapshot(self.core.state)
        self.core = self._make(2)
        for fact in facts:
            self.core.state.apply(fact)
        self.now = LATER
        self.feed_all(self.core.resume(LATER))

    def join(self, name: str, *reports: m.TaskReport, port: int = 1) -> None:
        self.hear(name, m.RegisterWorker(name, f"tcp://{name[0]}:{port}", (), "3.11", "0", reports))

    def open(self, client: str) -> None:
        self.hear(client, m.OpenIteration(client, self.job, 0))

    def beat(self, worker: str, *reports: m.TaskReport) -> None:
        self.hear(worker, m.WorkerHeartbeat(worker, reports, ()))

    def client_beat(self, client: str, version: int = 0) -> None:
        self.hear(client, m.ClientHeartbeat(client, version, 0, {}))

    def pass_to(self, seconds: float, *alive: str) -> None:
        """Let time pass while the given clients send heartbeats."""
        while self.now < LATER + seconds:
            self.now += 0.25
            for client in alive:
                self.client_beat(client)
            self.feed(e.Tick())

    @property
    def task(self) -> Any:
        return next(iter(self.core.state.tasks.values()))


def test_each_life_is_counted_and_keeps_its_seed() -> None:
    """A restarted dispatcher keeps the seed of the former dispatcher, whatever its own
    seed would be. It numbers new objects beyond all that peers may know, even if the
    journal has lost some.
    """
    lives = Lives()
    seed, number = lives.core.state.seed, lives.core.state.next_task
    lives.reborn()
    assert (lives.core.state.life, lives.core.state.seed) == (2, seed)
    assert lives.core.state.next_task > number + 1_000
    assert "1 datasets" in lives.sent(e.LogLine).text


def test_a_task_goes_on_where_it_is() -> None:
    """The dispatcher recognizes a worker that still hosts a task by its first
    heartbeat, and only answers it.
    """
    lives = Lives()
    lives.join("w")
    lives.open("k")
    lives.reborn()
    lives.beat("w", m.TaskReport(lives.task.task, 1, 5, None))
    assert lives.all_of(e.Send) == [e.Send("w", m.WorkerHeartbeatAnswered("w", True))]
    assert (lives.task.attempt, lives.task.worker) == (1, "w")


def test_clients_are_told_where_tasks_are_before_their_workers_are_back() -> None:
    """The first task list after a restart has all addresses, and a mark of its own."""
    lives = Lives()
    lives.join("w")
    lives.open("k")
    version = lives.sent(m.IterationOpened).task_list.version
    lives.reborn()
    lives.client_beat("k", version)
    task_list = lives.sent(m.ClientHeartbeatAnswered).task_list
    assert [place.address for place in task_list.tasks] == ["tcp://w:1"]
    assert task_list.start == lives.core.out.mark


def test_a_worker_that_does_not_come_back_is_lost() -> None:
    """A task gets another host after the time to wait for its worker, and not
    before.
    """
    lives = Lives()
    lives.join("w")
    lives.join("v")
    lives.open("k")
    lives.reborn()
    lives.beat("v")
    lives.pass_to(9.5, "k")
    assert lives.task.attempt == 1
    lives.pass_to(10.5, "k")
    assert lives.task.attempt == 2
    lives.hear("k", m.HoldingsReported("k", lives.task.task, 2, ()))
    assert lives.task.worker == "v"


def test_a_lost_copy_goes_with_its_worker() -> None:
    """A lost worker's copy in mode OFF ends with it, and the job goes on."""
    lives = Lives("OFF")
    lives.join("w")
    lives.open("k")
    lives.reborn()
    lives.pass_to(11.0, "k")
    assert lives.task.removed


def test_clients_have_one_time_out_to_come_back() -> None:
    """The dispatcher gives no client up before a whole client time-out has passed since
    its restart.
    """
    lives = Lives()
    lives.open("k")
    lives.open("l")
    lives.reborn()
    lives.pass_to(14.5, "l")
    assert set(lives.core.state.client_iteration) == {"k", "l"}
    lives.pass_to(15.5, "l")
    assert set(lives.core.state.client_iteration) == {"l"}


def test_who_has_not_answered_is_asked_again() -> None:
    """A fenced task waits for clients that have not answered, and the dispatcher keeps
    the answers of the others.
    """
    lives = Lives()
    for worker in ("v", "w"):
        lives.join(worker)
    for client in ("k", "l"):
        lives.open(client)
    task = lives.task
    lives.hear("v", m.WorkerStopped(task.worker))
    lives.hear("k", m.HoldingsReported("k", task.task, 2, ((3, 5),)))
    lives.reborn()
    for client in ("k", "l"):
        lives.client_beat(client)
    lives.pass_to(1.0)
    assert {ask.client for ask in lives.all_of(m.RequestHoldings)} <= {"l"}
    lives.hear("l", m.HoldingsReported("l", task.task, 2, ((0, 1),)))
    assert lives.task.worker
    assert lives.task.held["k"].ranges == ((3, 5),)


def test_who_had_left_stays_away() -> None:
    """A late request of a closed client does not open it again after a restart."""
    lives = Lives()
    lives.open("k")
    lives.hear("k", m.CloseIteration("k", 0, {}))
    lives.reborn()
    lives.open("k")
    assert lives.sent(m.RequestRefused).error == "NotFoundError"


def test_a_job_without_clients_is_collected_in_time() -> None:
    """A job without clients at the restart is collected as if its last client had left
    then.
    """
    lives = Lives()
    lives.open("k")
    lives.hear("k", m.CloseIteration("k", 0, {}))
    lives.reborn()
    lives.pass_to(299.0)
    assert lives.core.state.living
    lives.pass_to(302.0)
    assert not lives.core.state.living


def test_workers_keep_their_places() -> None:
    """Workers keep their places in any order of arrival, and an unknown worker waits
    while another may return.
    """
    lives = Lives(addresses=("h:%port%", "h:%port%"))
    for port, name in enumerate(("h-one", "h-two"), 1):
        lives.join(name, port=port)
    lives.reborn()
    lives.join("h-new", port=3)
    assert not lives.all_of(m.RequestRefused)
    lives.join("h-two", port=2)
    assert lives.core.places.index("tcp://h:2") == 1
    lives.pass_to(10.5)
    lives.join("h-new", port=3)
    assert lives.all_of(m.WorkerRegistered)
    assert lives.core.places.index("tcp://h:3") == 0
    assert lives.core.state.places == {0: "tcp://h:3", 1: "tcp://h:2"}


def test_places_that_are_configured_otherwise_now_are_free() -> None:
    """A changed list of addresses counts as it is after the restart."""
    lives = Lives(addresses=("h", "g"))
    lives.join("h-one")
    lives.addresses = ("g",)
    lives.reborn()
    assert lives.core.places.entries == ("g",)


def test_only_the_facts_make_the_state() -> None:
    """All fields of the restored state follow from the committed facts."""
    lives = Lives()
    lives.join("w")
    lives.open("k")
    facts = snapshot(lives.core.state)
    lives.reborn()
    copy = DispatcherCore(3).state
    for fact in (*facts, *(one.update for one in lives.all_of(e.Commit))):
        copy.apply(fact)
    assert vars(copy) == vars(lives.core.state)
    assert isinstance(facts[-1], u.BeginLifeUpdate)


def test_the_wait_for_a_worker_is_the_configured_one() -> None:
    """``worker_timeout`` decides how long a restarted dispatcher waits for its workers,
    within limits.
    """
    for worker_timeout, given_up in ((4.0, 4.0), (20.0, 20.0), (0.1, 3.0)):
        lives = Lives(worker_timeout=worker_timeout)
        lives.join("w")
        lives.open("k")
        lives.reborn()
        lives.pass_to(given_up - 0.5, "k")
        assert "w" in lives.core.state.workers
        lives.pass_to(given_up + 0.5, "k")
        assert "w" not in lives.core.state.workers


def test_a_static_part_waits_for_its_worker_as_configured() -> None:
    """A static part whose worker has not come moves after ``worker_timeout``."""
    lives = Lives("FILE", ("w:%port%", "x:%port%"), worker_timeout=4.0)
    lives.join("x")
    lives.open("k")
    lives.now = LATER
    for seconds, worker in ((0.5, ""), (4.0, ""), (5.5, "x")):
        lives.pass_to(seconds, "k")
        lives.beat("x")
        assert (seconds, lives.task.worker) == (seconds, worker)


def test_a_failure_outlives_the_dispatcher() -> None:
    """A client that joins a job with a failed pipeline gets the failure after each
    restart.
    """
    lives = Lives("OFF")
    lives.join("w")
    lives.open("k")
    task = next(iter(lives.core.state.tasks))
    lives.beat("w", m.TaskReport(task, 1, 0, None, failure=b"no failure"))
    refused = lives.sent(m.RequestRefused)
    lives.hear("k", m.CloseIteration("k", 0, {}))
    for reader in ("l", "n"):
        lives.open(reader)
        assert lives.sent(m.RequestRefused) == structs.replace(refused, request=reader)
        lives.reborn()


def test_a_task_goes_on_from_its_state_in_the_next_life() -> None:
    """A state of the pipeline survives a restart for the task's next host."""
    lives = Lives()
    lives.join("w")
    lives.open("k")
    lives.hear("w", m.RequestSplits("w", lives.task.task, 1, 0, 0, 0))
    state = m.TaskState(3, b"state", (1,))
    lives.hear("w", m.StateTaken("w", lives.task.task, 1, state))
    lives.hear("k", m.ClientHeartbeat("k", 0, 1, {lives.task.task: ((0, 3),)}))
    lives.reborn()
    lives.beat("w", m.TaskReport(lives.task.task, 1, 5, None))
    lives.client_beat("k")
    lives.hear("w", m.WorkerStopped("w"))
    lives.hear("k", m.HoldingsReported("k", lives.task.task, 2, ((0, 4),)))
    lives.join("v")
    definition = lives.all_of(m.HostTask)[0].definition
    assert (definition.states, definition.bases, definition.skip) == ((state,), (1,), ((0, 4),))
