"""Test the dispatcher's decider: routing, pipelines, and workers that join, leave or
are lost.
"""

from __future__ import annotations

from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.splits import IndexSplits, Split, SplitSource

TIMES = DispatcherTimes()
DIGEST = "d" * 64
ROWS = IndexSplits(100)


class Cluster(Transcript):
    """A dispatcher with a dataset of a single source. On request it has a worker ``w``
    that hosts a task for client ``k``.
    """

    core: DispatcherCore

    def __init__(
        self,
        source: SplitSource = ROWS,
        busy: bool = True,
        addresses: tuple[str, ...] = (),
        times: DispatcherTimes = TIMES,
    ) -> None:
        super().__init__(DispatcherCore(1, times, addresses))
        description = m.DatasetDescription(
            DIGEST, "print", (source,), "", None, -2, None, "3.11", "0"
        )
        self.hear("k", m.RegisterDataset("request", "dataset", description, b"pipeline"))
        if busy:
            self.join("w")
            self.hear("k", m.OpenIteration("k", m.JobParameters("job", "dataset", "DYNAMIC"), 0))

    @property
    def task(self) -> int:
        return next(iter(self.core.state.tasks))

    def join(self, name: str, *reports: m.TaskReport) -> None:
        self.hear(name, m.RegisterWorker(name, f"tcp://{name}:1", (), "3.11", "0", reports))

    def refuse(self, ask: m.RegisterWorker, *holders: str) -> None:
        """Let a worker ask in vain for a place while the holders of all places are
        alive.
        """
        self.hear(ask.worker, ask)
        assert self.all_of(m.RequestRefused) == []
        self.now += 1.0
        for name in holders:
            self.beat(name)
        self.hear(ask.worker, ask)

    def beat(self, name: str, *reports: m.TaskReport, clients: tuple[str, ...] = ()) -> None:
        self.hear(name, m.WorkerHeartbeat(name, reports, clients))

    def want(
        self, have: int, repetition: int = 0, source: int = 0, attempt: int = 1, worker: str = "w"
    ) -> None:
        self.hear(worker, m.RequestSplits(worker, self.task, attempt, source, repetition, have))

    def splits(self) -> tuple[Split, ...]:
        return self.sent(m.SplitsAssigned).splits


def test_what_is_unknown_is_ignored() -> None:
    """The dispatcher ignores messages that are not meant for a dispatcher."""
    cluster = Cluster(busy=False)
    cluster.hear("x", m.Probe())
    assert cluster.commands == []


def test_clients_hear_that_nobody_continues_their_jobs() -> None:
    """A dispatcher that closes for good tells its clients, and no worker."""
    assert Cluster().core.close() == [e.Send("k", m.DispatcherClosed())]


# --- workers


def test_a_worker_registers_and_is_answered() -> None:
    """The dispatcher knows a worker once it has registered, and a repeated registration
    changes nothing.
    """
    cluster = Cluster(busy=False)
    cluster.join("w")
    assert cluster.sent(m.WorkerRegistered) == m.WorkerRegistered("w")
    assert "is registered" in cluster.sent(e.LogLine).text
    cluster.join("w")
    assert cluster.all_of(e.LogLine) == []
    cluster.beat("w")
    assert cluster.sent(m.WorkerHeartbeatAnswered).known


def test_thousands_of_workers_are_told_to_speak_rarely() -> None:
    """The dispatcher tells many workers different, longer pauses between heartbeats,
    short enough that a restarted dispatcher knows them in time.
    """
    cluster = Cluster(busy=False, times=DispatcherTimes(worker_timeout=9.0, beat_share=0.1))
    told = []
    for number in range(40):
        cluster.join(f"w{number}")
        cluster.beat(f"w{number}")
        told.append(cluster.sent(m.WorkerHeartbeatAnswered).every)
    assert told[:29] == [round(0.1 * (number + 1), 1) for number in range(29)]
    assert 2.9 <= max(told) <= 3.0


def test_an_unknown_worker_is_told_so() -> None:
    """A worker that was given up registers again when its heartbeat is answered."""
    cluster = Cluster(busy=False)
    cluster.beat("w")
    assert not cluster.sent(m.WorkerHeartbeatAnswered).known


def test_only_configured_addresses_may_register() -> None:
    """A worker's host, or host and port, must match the configured addresses, and the
    refusal gives the remedy.
    """
    cluster = Cluster(busy=False, addresses=("w", "v:1", "u:2"))
    cluster.join("w")
    assert cluster.all_of(m.WorkerRegistered)
    cluster.join("v")
    assert cluster.all_of(m.WorkerRegistered)
    cluster.join("u")
    assert "worker's address is not configured" in cluster.sent(m.RequestRefused).text


def test_the_list_of_addresses_is_ordered_and_has_an_end() -> None:
    """Each worker takes an entry of the list; a further worker is refused until another
    is gone, and then gets its place.
    """
    cluster = Cluster(busy=False, addresses=("h", "h:%port%"))
    for port in (1, 2):
        cluster.hear(
            f"w{port}", m.RegisterWorker(f"w{port}", f"tcp://h:{port}", (), "3.11", "0", ())
        )
        assert cluster.all_of(m.WorkerRegistered)
    third = m.RegisterWorker("w3", "tcp://h:3", (), "3.11", "0", ())
    cluster.refuse(third, "w1", "w2")
    assert (
        "other workers are already running at the configured host"
        in cluster.sent(m.RequestRefused).text
    )
    cluster.hear("w1", m.WorkerStopped("w1"))
    cluster.hear("w3", third)
    assert cluster.all_of(m.WorkerRegistered)
    assert cluster.core.places.index("tcp://h:3") == 0


def test_a_successor_at_the_same_address_keeps_the_place() -> None:
    """A successor at the same address keeps the place when its predecessor is found
    dead later.
    """
    cluster = Cluster(busy=False, addresses=("h",))
    for name in ("old", "new"):
        cluster.hear(name, m.RegisterWorker(name, "tcp://h:1", (), "3.11", "0", ()))
    cluster.hear("old", m.WorkerStopped("old"))
    cluster.refuse(m.RegisterWorker("w", "tcp://h:2", (), "3.11", "0", ()), "new")
    assert "already running" in cluster.sent(m.RequestRefused).text


def test_a_successor_waits_until_its_predecessor_is_known_to_be_dead() -> None:
    """A worker restarted at another port may wait for its predecessor's place for some
    time, but not for ever.
    """
    cluster = Cluster(busy=False, addresses=("h",))
    cluster.hear("old", m.RegisterWorker("old", "tcp://h:1", (), "3.11", "0", ()))
    new = m.RegisterWorker("new", "tcp://h:2", (), "3.11", "0", ())
    cluster.hear("new", new)
    assert [type(one) for one in cluster.all_of(m.Message)] == [m.Probe]
    cluster.feed(e.Unreachable("old"))
    cluster.wait(1.25)
    cluster.hear("new", new)
    assert cluster.all_of(m.WorkerRegistered)
    assert cluster.core.places.index("tcp://h:2") == 0
    third = m.RegisterWorker("third", "tcp://h:3", (), "3.11", "0", ())
    cluster.hear("third", third)
    assert cluster.all_of(m.RequestRefused) == []
    cluster.wait(DispatcherTimes().worker_timeout)
    cluster.hear("third", third)
    assert "already running" in cluster.sent(m.RequestRefused).text


def test_a_silent_worker_is_probed_and_a_disconnected_one_given_up() -> None:
    """Silence alone does not end a worker; without a connection it is lost after a
    moment.
    """
    cluster = Cluster()
    cluster.wait(5.0)
    assert cluster.all_of(m.Probe)
    assert len(cluster.core.workers) == 1
    cluster.feed(e.Unreachable("w"))
    cluster.wait(0.75)
    assert len(cluster.core.workers) == 1
    cluster.wait(0.5)
    assert len(cluster.core.workers) == 0
    text = cluster.all_of(e.LogLine)[0].text
    assert text.startswith("worker tcp://w:1 is lost because its connection has ended; other ")


def test_a_pause_of_the_dispatcher_is_nobodys_death() -> None:
    """Time in which the dispatcher itself was suspended counts against no worker."""
    cluster = Cluster()
    cluster.wait(0.25)
    cluster.feed(e.Unreachable("w"))
    cluster.now += 100.0
    cluster.feed(e.Tick())
    assert (len(cluster.core.workers), len(cluster.core.clients)) == (1, 1)


def test_a_worker_that_leaves_is_not_waited_for() -> None:
    """The dispatcher fences the task of a leaving worker at once."""
    cluster = Cluster()
    cluster.hear("w", m.WorkerStopped("w"))
    assert cluster.sent(m.RequestHoldings).attempt == 2
    cluster.hear("w", m.WorkerStopped("w"))
    assert cluster.commands == []


def test_questions_without_an_answer_are_repeated() -> None:
    """The dispatcher repeats its question about held elements until all clients answer,
    and then gives the task a host.
    """
    cluster = Cluster()
    cluster.join("v")
    cluster.hear("w", m.WorkerStopped("w"))
    cluster.wait(2.0)
    assert len(cluster.all_of(m.RequestHoldings)) >= 3
    cluster.hear("k", m.HoldingsReported("k", cluster.task, 2, ((0, 5),)))
    definition = cluster.sent(m.HostTask).definition
    assert (definition.attempt, definition.skip) == (2, ((0, 5),))


def test_a_worker_is_told_of_clients_that_read_no_more() -> None:
    """The dispatcher tells a worker to release clients that it serves and that the
    dispatcher does not know.
    """
    cluster = Cluster()
    cluster.beat("w", m.TaskReport(cluster.task, 1, 0, None), clients=("k", "gone"))
    assert cluster.sent(m.ReleaseClient).client == "gone"


def quiet(*heard: str) -> Cluster:
    """Return a cluster whose only client, of an anonymous job, has vanished while its
    worker hears the given clients.
    """
    cluster = Cluster(busy=False)
    cluster.join("w")
    cluster.hear(
        "k", m.OpenIteration("k", m.JobParameters("job", "dataset", "DYNAMIC", anonymous=True), 0)
    )
    for _ in range(16):
        cluster.wait(1.0)
        cluster.hear(
            "w", m.WorkerHeartbeat("w", (), ("k",), dict.fromkeys(heard, m.ReaderSign(0.0)))
        )
    cluster.wait(0.5)
    assert cluster.all_of(m.Probe)
    for _ in range(70):
        cluster.feed(e.Unreachable("k"))
        cluster.hear(
            "w", m.WorkerHeartbeat("w", (), ("k",), dict.fromkeys(heard, m.ReaderSign(0.0)))
        )
        cluster.wait(1.0)
    return cluster


def test_the_only_client_of_an_anonymous_job_is_given_up_without_a_connection() -> None:
    """The dispatcher probes an absent client, and after a minute gives it up with its
    anonymous job.
    """
    assert quiet().core.state.living == []


def test_a_dispatcher_that_hears_nobody_gives_nobody_up() -> None:
    """A dispatcher that heard no client was cut off, so a client that joins afterwards
    does not take what a silent client holds.
    """
    cluster = Cluster(busy=False)
    cluster.join("w")
    job = m.JobParameters("job", "dataset", "DYNAMIC")
    cluster.hear("k", m.OpenIteration("k", job, 0))
    cluster.wait(40.0)
    cluster.hear("l", m.OpenIteration("l", job, 0))
    assert set(cluster.core.state.client_iteration) == {"k", "l"}
    for _ in range(18):
        cluster.wait(1.0)
        cluster.hear("l", m.ClientHeartbeat("l", 0, 0, {}))
    assert set(cluster.core.state.client_iteration) == {"l"}


def test_a_dead_client_keeps_no_job_where_workers_speak_rarely() -> None:
    """Time between two rare heartbeats of workers does not count as time in which the
    dispatcher was cut off.
    """
    cluster = Cluster(busy=False, times=DispatcherTimes(client_timeout=2.0, gc_timeout=5.0))
    cluster.join("w")
    cluster.hear("k", m.OpenIteration("k", m.JobParameters("job", "dataset", "OFF"), 0))
    for _ in range(9):
        cluster.wait(1.2)
        cluster.hear("w", m.WorkerHeartbeat("w", (), ()))
    assert not cluster.core.state.living


def test_a_client_that_reads_from_a_worker_is_not_gone() -> None:
    """The dispatcher keeps a lost client while a worker reports that it hears the
    client.
    """
    assert {one.job.name for one in quiet("k", "unknown").core.state.living} == {"job"}


def test_pipelines_are_sent_by_the_shell() -> None:
    """The dispatcher names the stored pipeline for the shell to send, or says that it
    has none.
    """
    cluster = Cluster()
    cluster.hear("w", m.RequestPipeline("w", "dataset"))
    assert cluster.commands == [e.SendPipeline("w", "dataset", DIGEST)]
    cluster.hear("w", m.RequestPipeline("w", "other"))
    assert "not found" in cluster.sent(m.PipelineSent).reason


def test_a_pipeline_leaves_when_nobody_has_read_it_for_long() -> None:
    """A dataset registered for a reader is removed some time after that reader's
    job.
    """
    cluster = Cluster(busy=False)
    description = cluster.core.state.datasets["dataset"]
    mine = m.DatasetDescription(
        "e" * 64, "print", description.sources, "", None, -2, None, "3.11", "0"
    )
    cluster.hear("k", m.RegisterDataset("request", None, mine, b"pipeline"))
    name = cluster.sent(m.DatasetRegistered).dataset_id
    cluster.hear("k", m.OpenIteration("k", m.JobParameters("job", name, "OFF", anonymous=True), 0))
    cluster.wait(10.0)
    cluster.hear("k", m.CloseIteration("k", 0, {}))
    cluster.wait(299.0)
    assert cluster.all_of(e.DropPipeline) == []
    cluster.wait(2.0)
    assert cluster.sent(e.DropPipeline) == e.DropPipeline("e" * 64)
    assert set(cluster.core.state.datasets) == {"dataset"}


# --- leaving workers


def test_a_worker_is_told_to_leave_by_its_name_its_address_or_its_host() -> None:
    """The dispatcher tells the named workers to leave at once and in each answer, and
    returns their names.
    """
    for name in ("w", "tcp://w:1", "w:1"):
        cluster = Cluster()
        cluster.hear("x", m.DrainWorker("request", name))
        assert cluster.sent(m.DrainStarted) == m.DrainStarted("request", ("tcp://w:1",))
        assert cluster.sent(m.WorkerHeartbeatAnswered).draining
        cluster.beat("w", m.TaskReport(cluster.task, 1, 0, None))
        assert cluster.sent(m.WorkerHeartbeatAnswered).draining


def test_an_unknown_worker_can_not_leave() -> None:
    """The refusal for an unknown worker names the known workers."""
    cluster = Cluster()
    cluster.hear("x", m.DrainWorker("request", "v"))
    assert (
        "No worker 'v' is registered; the registered workers are tcp://w:1"
        in cluster.sent(m.RequestRefused).text
    )


def test_what_a_leaving_worker_has_goes_to_the_next_one_that_comes() -> None:
    """A lone leaving worker keeps its task; after another worker has come its next
    heartbeat moves the task.
    """
    cluster = Cluster()
    task = m.TaskReport(cluster.task, 1, 0, None)
    cluster.hear("w", m.WorkerHeartbeat("w", (task,), (), draining=True))
    assert not cluster.all_of(m.DropTask)
    cluster.join("v")
    cluster.hear("w", m.WorkerHeartbeat("w", (task,), (), draining=True))
    assert cluster.sent(m.DropTask).task == cluster.task
    cluster.hear("k", m.HoldingsReported("k", cluster.task, 2, ()))
    assert cluster.core.state.tasks[cluster.task].worker == "v"


def test_a_core_goes_on_with_what_another_has_left() -> None:
    """A restarted dispatcher expects its workers and clients back, and does not answer
    unknown peers until then.
    """
    cluster = Cluster(busy=False, addresses=("w:1",))
    cluster.core.resume(0.0)
    cluster.join("w")
    cluster.hear("k", m.OpenIteration("k", m.JobParameters("job", "dataset", "DYNAMIC"), 0))
    facts = snapshot(cluster.core.state)
    cluster.core = DispatcherCore(2, DispatcherTimes(), ("w:1",))
    for fact in facts:
        cluster.core.state.apply(fact)
    cluster.commands = cluster.core.resume(cluster.now)
    assert "1 workers and 1 clients are expected back" in cluster.sent(e.LogLine).text
    cluster.join("x")
    assert cluster.commands == []
    cluster.join("w", m.TaskReport(cluster.task, 1, 0, None))
    cluster.want(0)
    assert cluster.splits()[0].start == 0
