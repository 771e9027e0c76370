"""Test the worker's decider."""

from __future__ import annotations

from typing import Any

from tests.definitions import changed, define
from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata.core.credit import FEW_BYTES, FEW_SHARED_BYTES
from zmqdata.core.worker import events as e
from zmqdata.core.worker.decider import DROPPED_KEPT, WorkerCore
from zmqdata.core.worker.heartbeats import Heartbeats
from zmqdata.core.worker.pipelines import PIPELINES_KEPT
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.core.worker.streams import occupied
from zmqdata.core.worker.tasks import LAST_WORDS, UNREAD_ELEMENTS
from zmqdata.decisions import LEFT_OUT_KEPT
from zmqdata.splits import Split

D = e.DISPATCHER


def definition(
    task: int = 1, attempt: int = 1, dataset: str = "dataset", ledger: int = 0
) -> m.TaskDefinition:
    entries = tuple(Split(0, n, n + 1) for n in range(ledger))
    return define(task, attempt, 7, dataset, f"of {dataset}", "DYNAMIC", 9, None, (entries,), ())


class Host(Transcript):
    """A registered worker core with task 1 started, unless a test asks otherwise."""

    core: WorkerCore

    def __init__(self, hosting: bool = True, buffer_bytes: int = 100, max_tasks: int = 0) -> None:
        super().__init__(
            WorkerCore(
                WorkerProfile("w", "tcp://w", buffer_bytes=buffer_bytes, max_tasks=max_tasks)
            )
        )
        if hosting:
            self.hear(D, m.WorkerRegistered("w"))
            self.host()
            self.hear(D, m.PipelineSent("dataset", "of dataset", b"pipeline"))

    def host(self, *args: Any, **kwargs: Any) -> None:
        self.hear(D, m.HostTask(definition(*args, **kwargs)))

    def link(self, client: str = "k", name: str = "k-1") -> None:
        self.hear(client, m.OpenLink(client, name, "", 0, "", ("tcp",)))
        self.feed(e.LinkBound(name, f"tcp://{name}", "secret"))

    def grant(
        self,
        elements: int,
        size: int = 1000,
        handed_out: int = 0,
        attempt: int = 1,
        client: str = "k",
    ) -> None:
        stream = m.StreamGrant(1, attempt, elements, size, handed_out)
        self.hear(client, m.Grant(f"{client}-1", 0, (stream,)))

    def loop(
        self, client: str, elements: int, recall: int = 0, kept: int = 0, waits: bool = False
    ) -> None:
        stream = m.StreamGrant(1, 1, elements, 1000, 0, recall=recall, kept=kept)
        self.hear(client, m.Grant(f"{client}-1", 0, (stream,), pace=0.1, waits=waits))

    def make(self, first: int, count: int = 1, size: int = 10, attempt: int = 1) -> None:
        self.feed(e.Produced(1, attempt, first, count, size, b"meta", "frames"))

    def pushed(self) -> list[tuple[str, Any]]:
        """Return the pushed messages, except lineage."""
        return [(push.link, getattr(push.header, "first", "end")) for push in self.messages()]

    def messages(self) -> list[e.Push]:
        return [push for push in self.all_of(e.Push) if not isinstance(push.header, m.Lineage)]


# --- the dispatcher


def test_a_worker_registers_until_it_is_registered() -> None:
    """The worker registers once a second until the dispatcher answers, then sends
    heartbeats.
    """
    host = Host(hosting=False)
    host.wait(2.0)
    assert len(host.all_of(m.RegisterWorker)) == 2
    host.hear(D, m.WorkerRegistered("w"))
    assert "registered" in host.sent(e.LogLine).text
    host.hear(D, m.WorkerRegistered("w"))
    assert host.commands == []
    host.wait(1.0)
    assert host.sent(m.WorkerHeartbeat) == m.WorkerHeartbeat("w", (), ())


def test_a_forgotten_worker_registers_again_with_its_tasks() -> None:
    """A worker that a dispatcher does not know registers again and lists its tasks."""
    host = Host()
    host.hear(D, m.WorkerHeartbeatAnswered("w", True))
    assert host.commands == []
    host.hear(D, m.WorkerHeartbeatAnswered("w", False))
    assert [report.task for report in host.sent(m.RegisterWorker).tasks] == [1]
    host.hear(D, m.WorkerHeartbeatAnswered("w", False))
    assert host.commands == []


def test_a_worker_speaks_as_rarely_as_it_is_told() -> None:
    """The worker sends heartbeats as rarely as the dispatcher asks, never more often
    than configured. Without a request it follows its configuration.
    """
    host = Host()
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, every=3.0))
    host.wait(7.0)
    assert [beat.every for beat in host.all_of(m.WorkerHeartbeat)] == [3.0, 3.0]
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, every=0.1))
    host.wait(3.0)
    assert {beat.every for beat in host.all_of(m.WorkerHeartbeat)[-2:]} == {1.0}


def test_a_new_connection_is_spoken_on_at_once() -> None:
    """The worker sends a heartbeat as soon as a connection opens, as the dispatcher
    waits only briefly for a worker that it could not reach.
    """
    host = Host()
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, every=3.0))
    host.wait(0.5)
    assert host.all_of(m.WorkerHeartbeat) == []
    host.feed(e.Connected())
    assert host.sent(m.WorkerHeartbeat).every == 3.0
    stranger = Host(hosting=False)
    stranger.commands.clear()
    stranger.feed(e.Connected())
    assert stranger.commands == []


def test_a_worker_that_shall_speak_rarely_does_not_take_its_dispatcher_for_gone() -> None:
    """A worker that heartbeats rarely still heartbeats at least three times within its
    dispatcher time-out, as the dispatcher only answers heartbeats.
    """
    host = Host()
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, every=1e9))
    host.wait(1300.0)
    assert host.sent(m.WorkerHeartbeat).every == host.core.profile.dispatcher_timeout / 3


def test_a_refused_worker_ends() -> None:
    """The worker ends with the dispatcher's reason for a refusal, and ignores a refusal
    of another worker.
    """
    host = Host(hosting=False)
    host.hear(D, m.RequestRefused("other", "FailedPreconditionError", "text"))
    assert host.commands == []
    host.hear(D, m.RequestRefused("w", "FailedPreconditionError", "text"))
    assert host.commands == [e.Finish("FailedPreconditionError", "text")]


def test_of_many_tasks_that_end_at_once_one_heartbeat_tells() -> None:
    """The worker reports each of a few ended tasks with its own heartbeat, and hundreds
    of them with the next tick.
    """
    for count, at_once in ((3, 3), (200, 0)):
        host = Host()
        for number in range(2, count + 1):
            host.host(number)
        host.feed(e.Connected())  # so the worker sends a heartbeat
        told = []
        for number in range(1, count + 1):
            host.feed(e.Exhausted(number, 1, 0))
            told += host.all_of(m.WorkerHeartbeat)
        assert len(told) == at_once
        host.wait(0.5)
        told += host.all_of(m.WorkerHeartbeat)
        assert len(told) == (at_once or 1)
        assert all(report.total == 0 for report in told[-1].tasks)


def test_a_worker_without_a_dispatcher_ends() -> None:
    """The worker ends when the dispatcher is silent beyond the time-out; any message of
    the dispatcher restarts the wait.
    """
    host = Host(hosting=False)
    host.core.heartbeats = Heartbeats(1.0, 10.0)
    host.wait(9.0)
    host.hear(D, m.Probe())
    host.wait(9.0)
    assert host.all_of(e.Finish) == []
    host.wait(2.0)
    assert host.sent(e.Finish).error == "UnavailableError"


def test_a_task_that_cannot_run_is_told_until_it_is_taken_away() -> None:
    """A task that cannot run has no end, so its readers wait for the error and do not
    take the task for empty.
    """
    host = Host()
    host.link()
    host.grant(10)
    host.feed(e.TaskFailed(1, 1, b"why"))
    assert [report.failure for report in host.sent(m.WorkerHeartbeat).tasks] == [b"why"]
    host.wait(1.0)
    assert [(report.failure, report.total) for report in host.sent(m.WorkerHeartbeat).tasks] == [
        (b"why", None)
    ]
    assert host.pushed() == []
    host.feed(e.TaskFailed(1, 9, b"why"))
    assert host.commands == []


def test_where_a_task_is_goes_to_a_dispatcher_that_listens() -> None:
    """The worker sends a new state once and at once, and queues nothing for a silent
    dispatcher.
    """
    host, state = Host(), m.TaskState(3, b"state", (1,))
    host.feed(e.StateNoted(1, 1, state))
    assert host.commands == [e.Send(D, m.StateTaken("w", 1, 1, state))]
    host.feed(e.StateNoted(1, 9, state))
    assert host.commands == []
    host.wait(3.5)
    host.feed(e.StateNoted(1, 1, state))
    assert host.commands == []


def test_a_task_goes_on_behind_the_entries_that_are_gone() -> None:
    """Entries of a ledger keep their numbers, so the worker asks for the entry behind
    the removed ones.
    """
    host = Host()
    host.hear(D, m.HostTask(changed(definition(attempt=2, ledger=3), bases=(40,))))
    host.feed(e.SplitsWanted(1, 2, 0, 0, 43))
    assert host.sent(m.RequestSplits).have == 43


def test_what_is_unknown_is_ignored() -> None:
    """The worker ignores messages that are not meant for a worker."""
    host = Host()
    host.hear(D, m.Probe())
    host.make(0, attempt=9)
    host.feed(e.Exhausted(9, 1, 5))
    host.feed(e.SplitsWanted(9, 1, 0, 0, 0))
    assert host.commands == []


def test_a_heartbeat_names_who_reads() -> None:
    """A heartbeat names each client while it has a link, and lists clients that asked
    lately as readers, with the age of their request.
    """
    host = Host()
    host.link()
    host.hear("k", m.Grant("k-1", 0, (), sent=7.0))
    host.wait(4.0)
    beat = host.all_of(m.WorkerHeartbeat)[-1]
    assert (beat.clients, beat.readers) == (("k",), {"k": m.ReaderSign(3.25)})
    host.wait(2.0)
    beat = host.all_of(m.WorkerHeartbeat)[-1]
    assert (beat.clients, beat.readers) == (("k",), {})


# --- tasks


def test_a_task_starts_with_its_pipeline() -> None:
    """The worker asks for a pipeline until it comes, less often each time, and keeps it
    for the next task of its dataset.
    """
    host = Host(hosting=False)
    host.host()
    assert host.sent(m.RequestPipeline).dataset_id == "dataset"
    host.wait(14.0)
    assert len(host.all_of(m.RequestPipeline)) == 3
    host.hear(D, m.PipelineSent("other", "of other", b"pipeline"))
    assert not host.all_of(e.StartTask)
    host.hear(D, m.PipelineSent("dataset", "of dataset", b"pipeline"))
    assert host.sent(e.StartTask) == e.StartTask(definition(), b"pipeline")
    assert host.sent(e.AllowProduction).size == 100
    host.host(task=2)
    assert host.sent(e.StartTask).pipeline == b"pipeline"


def test_a_missing_pipeline_is_told_to_the_runner() -> None:
    """The runner raises the reason for a missing pipeline at the consumer."""
    host = Host(hosting=False)
    host.host()
    host.hear(D, m.PipelineSent("dataset", "", b"", "it is gone"))
    assert host.sent(e.StartTask).reason == "it is gone"


def test_few_unused_pipelines_are_kept() -> None:
    """The worker keeps the newest unused pipelines and all pipelines in use."""
    host = Host()
    for number in range(10):
        host.hear(D, m.PipelineSent("x", str(number), b"pipeline"))
    assert len(host.core.pipelines.stock) == PIPELINES_KEPT + 1
    assert {"of dataset", "9"} <= host.core.pipelines.stock.keys()


def test_files_are_looked_at_for_the_dispatcher() -> None:
    """The shell looks at the files, and the worker answers what it found."""
    host = Host()
    maps = (m.MappedFile("/data/train.bin", 0, 9, "5" * 64),)
    host.hear(D, m.CheckMaps("request", maps))
    assert host.sent(e.CheckFiles) == e.CheckFiles("request", maps)
    host.feed(e.FilesChecked("request", "it is not here"))
    assert host.sent(m.MapsChecked) == m.MapsChecked("w", "request", "it is not here")


def test_a_newer_attempt_replaces_an_older_one() -> None:
    """The worker ignores an older or equal attempt of a task that it hosts."""
    host = Host()
    host.host()
    assert host.commands == []
    host.host(attempt=2)
    assert host.commands[0] == e.StopTask(1, 1)
    assert host.sent(e.StartTask).definition.attempt == 2
    host.host(attempt=1)
    assert host.commands == []


def test_a_dropped_task_is_not_taken_again() -> None:
    """Late messages about a dropped attempt start nothing; a newer attempt starts."""
    host = Host()
    host.hear(D, m.DropTask(1, 0))
    assert host.commands == []
    host.hear(D, m.DropTask(1, 1))
    assert host.commands == [e.StopTask(1, 1)]
    host.host()
    assert host.commands == []
    for task in range(100, 100 + DROPPED_KEPT):
        host.hear(D, m.DropTask(task, 1))
    assert len(host.core._dropped) == DROPPED_KEPT
    host.host(attempt=2)
    assert host.sent(e.StartTask)


def test_the_end_of_a_task_is_reported_at_once() -> None:
    """The worker reports the end of a task without waiting for the next heartbeat, and
    a repeated end changes nothing.
    """
    host = Host()
    host.make(0)
    host.feed(e.Exhausted(1, 1, 1))
    assert host.sent(m.WorkerHeartbeat).tasks == (m.TaskReport(1, 1, 1, 1),)
    host.feed(e.Exhausted(1, 1, 1))
    assert host.commands == []


def test_idle_time_is_reported() -> None:
    """The worker reports how long a task has produced no elements."""
    host = Host()
    host.wait(3.0)
    assert host.all_of(m.WorkerHeartbeat)[-1].tasks[0].idle >= 2.0


# --- splits


def test_splits_are_asked_for_until_they_come() -> None:
    """The worker has a single request per source in flight and repeats it every second
    until the next splits arrive.
    """
    host = Host()
    host.feed(e.SplitsWanted(1, 1, 0, 0, 0))
    ask = m.RequestSplits("w", 1, 1, 0, 0, 0)
    assert host.sent(m.RequestSplits) == ask
    host.feed(e.SplitsWanted(1, 1, 0, 0, 0))
    assert host.commands == []
    host.wait(1.0)
    assert host.all_of(m.RequestSplits) == [ask]
    host.hear(D, m.SplitsAssigned(1, 1, 0, 0, (Split(0, 0, 5),)))
    assert host.sent(e.FeedSplits).splits == (Split(0, 0, 5),)
    host.wait(1.0)
    assert host.all_of(m.RequestSplits) == []


def test_splits_that_are_known_are_not_fed_twice() -> None:
    """The worker feeds only the new splits of a repeated or overlapping answer, and
    none of an answer with a gap.
    """
    host = Host()
    one, two = Split(0, 0, 5), Split(0, 5, 9)
    host.hear(D, m.SplitsAssigned(1, 1, 0, 0, (one,)))
    host.hear(D, m.SplitsAssigned(1, 1, 0, 0, (one,)))
    assert host.commands == []
    host.hear(D, m.SplitsAssigned(1, 1, 0, 5, (two,)))
    assert host.commands == []
    host.hear(D, m.SplitsAssigned(1, 1, 3, 0, (two,)))
    assert host.commands == []
    host.hear(D, m.SplitsAssigned(1, 1, 0, 0, (one, two)))
    assert host.sent(e.FeedSplits).splits == (two,)
    host.feed(e.SplitsWanted(1, 1, 0, 0, 1))
    assert host.commands == []


def test_a_task_continues_its_ledger() -> None:
    """Splits in the definition of a task count as fed."""
    host = Host()
    host.host(attempt=2, ledger=3)
    host.hear(D, m.SplitsAssigned(1, 2, 0, 2, (Split(0, 2, 3), Split(0, 3, 4))))
    assert host.sent(e.FeedSplits).splits == (Split(0, 3, 4),)


def test_who_waits_is_heard_before_who_will() -> None:
    """The request of a waiting source replaces a request ahead of time, and is sent at
    once.
    """
    host = Host()
    host.feed(e.SplitsWanted(1, 1, 0, 0, 0, waiting=False, pace=0.5))
    assert host.sent(m.RequestSplits) == m.RequestSplits("w", 1, 1, 0, 0, 0, 0, False, 0.5)
    host.feed(e.SplitsWanted(1, 1, 0, 0, 0, waiting=True, pace=0.5))
    assert host.sent(m.RequestSplits).waiting


def test_an_ended_task_asks_for_nothing() -> None:
    """The worker stops repeating a request for splits ahead of time when its task
    ends.
    """
    host = Host()
    host.feed(e.SplitsWanted(1, 1, 0, 0, 0, waiting=False))
    host.feed(e.Exhausted(1, 1, 3))
    host.wait(3.0)
    assert host.all_of(m.RequestSplits) == []


def test_the_end_of_a_ledger_is_given_back() -> None:
    """The runner decides which entries it keeps. The worker repeats its answer to a
    repeated question, and later entries need the new cut number.
    """
    host = Host()
    host.hear(D, m.SplitsAssigned(1, 1, 0, 0, (Split(0, 0, 9),)))
    host.feed(e.SplitsWanted(1, 1, 0, 0, 1, waiting=False))
    host.hear(D, m.TakeBackSplits(1, 1, 0, 1))
    assert host.commands == [e.ReturnSplits(1, 1, 0)]
    host.feed(e.LedgerCut(1, 1, 0, 1, 4, True))
    returned = m.SplitsReturned("w", 1, 1, 0, 1, 1, 4)
    assert host.sent(m.SplitsReturned) == returned
    assert host.sent(m.RequestSplits).cut == 1
    host.hear(D, m.TakeBackSplits(1, 1, 0, 1))
    assert host.all_of(m.SplitsReturned) == [returned]
    assert host.all_of(e.ReturnSplits) == []
    host.hear(D, m.SplitsAssigned(1, 1, 0, 1, (Split(0, 9, 12),)))
    assert host.commands == []
    host.hear(D, m.SplitsAssigned(1, 1, 0, 1, (Split(0, 4, 5),), 1))
    assert host.sent(e.FeedSplits).splits == (Split(0, 4, 5),)


def test_nothing_is_given_back_that_does_not_exist() -> None:
    """A cut keeps its number when all entries are started or nothing runs yet, and the
    worker does not answer for unknown tasks.
    """
    host = Host()
    host.hear(D, m.TakeBackSplits(1, 1, 0, 1))
    host.feed(e.LedgerCut(1, 1, 0, 0, 0, False))
    assert host.sent(m.SplitsReturned) == m.SplitsReturned("w", 1, 1, 0, 0, 0, 0)
    for unknown in (
        m.TakeBackSplits(2, 1, 0, 1),
        m.TakeBackSplits(1, 1, 5, 1),
        m.TakeBackSplits(1, 1, 0, 7),
    ):
        host.hear(D, unknown)
        assert host.commands == []
    host.feed(e.LedgerCut(2, 1, 0, 0, 0, True))
    assert host.commands == []
    host.hear(D, m.HostTask(definition(task=3, dataset="other", ledger=2)))
    host.hear(D, m.TakeBackSplits(3, 1, 0, 1))
    assert host.sent(m.SplitsReturned) == m.SplitsReturned("w", 3, 1, 0, 0, 2, 0)


# --- distribution


def test_blocks_go_to_who_has_credit() -> None:
    """Blocks wait in the worker for a grant, and a sent block frees room for more."""
    host = Host()
    host.make(0, size=60)
    assert host.commands == []
    host.link()
    host.grant(8)
    assert host.pushed() == [("k-1", 0)]
    assert host.sent(e.AllowProduction).size == 100 + occupied(60)
    assert host.sent(m.LinkReported).sent == 2, "lineage, and a block"


def test_without_a_reader_a_task_makes_next_to_nothing() -> None:
    """A task makes a few elements before its first client comes, and a few more when
    its client has left for any reason.
    """
    host = Host()
    assert host.core.tasks[1].unread == UNREAD_ELEMENTS
    host.link()
    host.grant(8)
    assert host.sent(e.AllowProduction) == e.AllowProduction(1, 1, 100, None, FEW_BYTES)
    host.make(0, count=50)
    host.hear("k", m.CloseLink("k-1"))
    assert host.sent(e.AllowProduction).elements == 50 + UNREAD_ELEMENTS
    host.make(50, count=8)
    host.hear(D, m.ReleaseClient("k", {}))
    assert [one.elements for one in host.all_of(e.AllowProduction) if one.elements != 58] == []
    host.link("l", "l-1")
    host.grant(8, client="l")
    assert host.sent(e.AllowProduction).elements is None


def test_blocks_of_large_elements_are_larger_in_memory_that_is_shared() -> None:
    """The worker makes larger blocks if all readers share its memory and their window
    holds two such blocks, as sockets are slower.
    """
    host = Host()
    host.hear("k", m.OpenLink("k", "k-1", "", 0, "", ("tcp", "shm")))
    host.feed(
        e.LinkBound("k-1", "tcp://k-1", "secret", memory=m.Memory(1, 2, 3, 1 << 30, b"token"))
    )
    host.grant(8, size=2 * FEW_SHARED_BYTES)
    assert host.sent(e.AllowProduction).few_bytes == FEW_BYTES
    wide = m.StreamGrant(1, 1, 16, 2 * FEW_SHARED_BYTES, 0)
    host.hear("k", m.Grant("k-1", 0, (wide,), shares=True))
    assert host.sent(e.AllowProduction).few_bytes == FEW_SHARED_BYTES
    host.link("l", "l-1")
    host.grant(8, client="l", size=2 * FEW_SHARED_BYTES)
    assert host.sent(e.AllowProduction).few_bytes == FEW_BYTES


def test_blocks_leave_memory_that_is_shared_to_others() -> None:
    """A task takes at most an eighth of the shared memory, and sends blocks that find
    no room there through sockets.
    """
    host = Host()
    host.hear("k", m.OpenLink("k", "k-1", "", 0, "", ("tcp", "shm")))
    host.feed(
        e.LinkBound("k-1", "tcp://k-1", "secret", memory=m.Memory(1, 2, 3, 4 << 20, b"token"))
    )
    wide = m.StreamGrant(1, 1, 16, 2 * FEW_SHARED_BYTES, 0)
    host.hear("k", m.Grant("k-1", 0, (wide,), shares=True))
    assert host.sent(e.AllowProduction).few_bytes == 512 << 10


def test_a_new_host_makes_again_what_clients_have_before_one_reads() -> None:
    """A new host without a reader makes all elements that clients have, and a few more.
    In a coordinated read the slowest consumer decides.
    """
    host = Host(hosting=False)
    host.hear(D, m.HostTask(changed(definition(), skip=((0, 70), (80, 90)))))
    host.hear(D, m.HostTask(changed(definition(task=2), num_consumers=2, passed=(30, 20))))
    host.hear(D, m.HostTask(changed(definition(task=3), save_path="/saves/one")))
    host.hear(D, m.PipelineSent("dataset", "of dataset", b"pipeline"))
    limits = [one.elements for one in host.all_of(e.AllowProduction)]
    assert limits == [90 + UNREAD_ELEMENTS, 20 + UNREAD_ELEMENTS, None]


def test_the_client_with_least_in_flight_comes_first() -> None:
    """Two clients with equal credit get equal shares."""
    host = Host()
    host.link()
    host.link("l", "l-1")
    host.grant(8)
    host.grant(8, client="l")
    for first in range(4):
        host.make(first)
        assert host.pushed() == [("kl"[first % 2] + "-1", first)]


def test_a_waiting_client_makes_the_runner_hand_over() -> None:
    """A client with nothing in flight makes the worker flush its runner once, also
    before the runner has started.
    """
    host = Host()
    host.link()
    host.grant(8)
    assert host.all_of(e.FlushTask) == [e.FlushTask(1, 1)]
    host.grant(8)
    assert host.all_of(e.FlushTask) == []
    late = Host(hosting=False)
    late.host()
    late.link()
    late.grant(8)
    assert late.all_of(e.FlushTask) == []
    late.hear(D, m.PipelineSent("dataset", "of dataset", b"pipeline"))
    assert late.all_of(e.FlushTask) == [e.FlushTask(1, 1)]


def test_grants_that_come_before_their_task_are_kept() -> None:
    """The worker keeps a grant that arrives before its task."""
    host = Host()
    host.link()
    host.grant(8, attempt=2)
    host.host(attempt=2)
    host.make(0, attempt=2)
    assert host.pushed() == [("k-1", 0)]


def test_every_client_is_told_the_end() -> None:
    """The worker tells each client the end once, after the last block, and also tells a
    client that joins later.
    """
    host = Host()
    host.link()
    host.grant(8)
    host.make(0)
    host.feed(e.Exhausted(1, 1, 1))
    assert host.pushed() == [("k-1", "end")]
    host.grant(8, handed_out=1)
    assert host.pushed() == []
    host.link("l", "l-1")
    host.grant(8, client="l")
    assert host.pushed() == [("l-1", "end")]


def test_what_a_gone_client_was_given_goes_to_others() -> None:
    """The worker delivers the unreported blocks of a gone client to others in order,
    without delivered elements, and then repeats the end.
    """
    host = Host()
    host.link()
    host.grant(8)
    host.make(0, count=4)
    host.make(4)
    host.link("l", "l-1")
    host.hear(D, m.ReleaseClient("k", {1: ((0, 2),)}))
    host.grant(8, client="l")
    assert [(push.header.first, push.header.skip) for push in host.messages()] == [(0, 2), (4, 0)]
    host.hear(D, m.ReleaseClient("stranger", {}))
    assert host.commands == []


def test_nothing_is_given_again_of_a_task_that_is_not_owed_any_more() -> None:
    """The worker delivers nothing again of a task that the dispatcher does not name, as
    the dispatcher knows that all of it was delivered.
    """
    host = Host()
    host.link()
    host.grant(8)
    host.make(0, count=4)
    host.grant(8, handed_out=1)
    host.link("l", "l-1")
    host.hear(D, m.ReleaseClient("k", {}))
    host.grant(8, client="l")
    assert host.messages() == []
    assert not host.core.tasks[1].incomplete


def test_what_cannot_be_given_again_is_reported() -> None:
    """The worker reports a task as incomplete when a client dies between taking
    elements and reporting them.
    """
    host = Host()
    host.link()
    host.grant(8)
    host.make(0, count=4)
    host.grant(8, handed_out=3)
    host.hear(D, m.ReleaseClient("k", {1: ((0, 1),)}))
    assert host.sent(m.WorkerHeartbeat).tasks[0].incomplete


def test_a_closed_link_gets_nothing_more() -> None:
    """The worker sends nothing over a closed link, and its client may return with a new
    link and a grant.
    """
    host = Host()
    host.link()
    host.grant(8)
    host.hear("k", m.CloseLink("k-1"))
    assert host.sent(e.UnbindLink).link == "k-1"
    host.hear("k", m.CloseLink("k-1"))
    assert host.commands == []
    host.make(0)
    assert host.pushed() == []
    host.link("k", "k-2")
    host.hear("k", m.Grant("k-2", 0, (m.StreamGrant(1, 1, 8, 1000, 0),)))
    assert host.pushed() == [("k-2", 0)]


def test_closing_touches_only_the_streams_of_its_client() -> None:
    """Other clients of a task read on when a client closes its streams, and a link
    without streams closes as well.
    """
    host = Host()
    host.link()
    host.link("l", "l-1")
    host.grant(8)
    host.hear("l", m.CloseLink("l-1"))
    host.make(0)
    assert host.pushed() == [("k-1", 0)]


def test_a_new_link_goes_on_where_the_old_one_broke() -> None:
    """The worker resends unseen blocks on a new link, and then sends the blocks made
    without a link.
    """
    host = Host()
    host.link()
    host.grant(8)
    host.make(0)
    host.hear("k", m.OpenLink("k", "k-2", "k-1", 0, "", ("tcp",)))
    host.make(1)
    assert host.pushed() == []
    host.feed(e.LinkBound("k-2", "tcp://k-2", "secret"))
    assert host.pushed() == [("k-2", 0), ("k-2", 1)]


def test_a_link_that_cannot_be_bound_changes_nothing() -> None:
    """The worker refuses the client of a link that it cannot bind, and the task
    waits.
    """
    host = Host()
    host.hear("k", m.OpenLink("k", "k-1", "", 0, "", ("tcp",)))
    host.feed(e.LinkBound("k-1", "", "", "no port"))
    assert host.sent(m.LinkRefused).text == "no port"


def test_a_grant_on_an_unknown_link_is_refused() -> None:
    """The worker refuses a grant on an unknown link, so the client opens another
    link.
    """
    host = Host()
    host.grant(8)
    assert host.sent(m.LinkRefused).error == "NotFoundError"


# --- what the audit asks a worker


def test_a_worker_knows_what_it_owes() -> None:
    """A worker owes elements while a reading client waits for them or has not seen
    them, and owes nothing of an unread task.
    """
    host = Host()
    host.make(0)
    assert not host.core.owes_elements
    host.link()
    host.grant(0)
    assert host.core.owes_elements, "no credit yet"
    host.grant(8)
    assert host.core.owes_elements, "sent and not seen"
    host.hear("k", m.Grant("k-1", 2, (m.StreamGrant(1, 1, 8, 1000, 1),)))
    assert not host.core.owes_elements


def test_a_worker_knows_what_it_was_rid_of() -> None:
    """The worker remembers the number of each task that the dispatcher removed."""
    host = Host()
    assert list(host.core.dropped) == []
    host.hear(D, m.DropTask(1, 1))
    assert list(host.core.dropped) == [1]


# --- coordinated reads


def test_elements_that_nobody_waits_for_do_not_hold_up_others() -> None:
    """A consumer that has read to the end elsewhere fills no buffer, also before the
    end of the task, when buffers matter.
    """
    host = Host(hosting=False, buffer_bytes=20)
    host.hear(D, m.HostTask(changed(definition(), num_consumers=2, passed=(0, 0))))
    host.hear(D, m.PipelineSent("dataset", "of dataset", b"pipeline"))
    host.hear("k", m.OpenLink("k", "k-1", "", 0, "", ("tcp",), m.Reader(0)))
    host.feed(e.LinkBound("k-1", "tcp://k-1", "secret"))
    host.grant(10)
    for lane in (0, 1):
        host.feed(e.Produced(1, 1, 0, 2, 20, b"meta", "frames", lane=lane))
    assert host.all_of(e.AllowProduction) == []
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, {1: (0, 2), 9: (1, 1)}))
    assert host.sent(e.AllowProduction).size == 20 + 2 * occupied(20)
    host.feed(e.Produced(1, 1, 2, 1, 20, b"meta", "frames", lane=1))
    host.feed(e.Exhausted(1, 1, 3))
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, {1: (0, 3)}))
    host.hear("l", m.OpenLink("l", "l-1", "", 0, "", ("tcp",), m.Reader(1)))
    host.feed(e.LinkBound("l-1", "tcp://l-1", "secret"))
    host.hear("l", m.Grant("l-1", 0, (m.StreamGrant(1, 1, 10, 1000, 0, 0, 2),)))
    assert host.pushed() == [("l-1", 2), ("l-1", "end")]


# --- leaving


def test_a_worker_that_is_told_to_leave_says_so_until_its_tasks_are_gone() -> None:
    """A leaving worker tells the dispatcher at once and in each heartbeat, and may end
    when it holds nothing more.
    """
    host = Host()
    host.feed(e.DrainRequested(6.0))
    assert host.sent(m.WorkerHeartbeat).draining
    host.feed(e.DrainRequested(6.0))
    assert host.commands == []
    host.wait(1.0)
    assert host.sent(m.WorkerHeartbeat).draining
    assert not host.core.draining.done
    host.hear(D, m.DropTask(1, 1))
    assert host.core.draining.done


def test_a_worker_whose_tasks_nobody_takes_leaves_all_the_same() -> None:
    """A leaving worker works on until its time limit, and then reports the tasks that
    it leaves behind.
    """
    host = Host()
    host.feed(e.DrainRequested(6.0))
    host.host(attempt=2)
    assert host.core.tasks[1].definition.attempt == 2
    host.wait(6.0)
    assert host.core.draining.done
    said = [line.text for line in host.all_of(e.LogLine)]
    assert "no other worker has taken 1 tasks of this worker in time" in said[-1]
    host.wait(1.0)
    assert not host.all_of(e.LogLine)


def test_a_task_tells_late_clients_what_it_left_out_although_it_is_dropped() -> None:
    """A task that is over and has left out elements is served for two seconds after the
    dispatcher wants it dropped, and then goes. A fenced one goes at once.
    """
    for is_over in (True, False):
        host = Host()
        host.host()
        element = m.LeftOutElement(0, "/0", 0, "map(f)", "ValueError: no")
        host.feed(e.Quarantined(1, 1, element))
        if is_over:
            host.feed(e.Exhausted(1, 1, 0, 1))
        host.hear(D, m.DropTask(1, 1))
        assert (1 in host.core.tasks) == is_over
        if is_over:
            host.link("k")
            host.grant(9)
            told = [push.header for push in host.messages()]
            assert [type(header) for header in told] == [m.ElementsLeftOut, m.EndOfTask]
            host.wait(LAST_WORDS)
            host.hear(D, m.DropTask(1, 1))
            assert 1 not in host.core.tasks


def test_clients_hear_what_was_left_out_before_the_next_block() -> None:
    """Each client of a task is told once which elements the pipeline has left out,
    before its next block, also a client that comes late: the newest of very many.
    """
    host = Host()
    one, other = (m.LeftOutElement(0, "/0", n, "map(f)", "ValueError", None, "...") for n in (0, 2))

    def told() -> list[tuple[str, Any]]:
        return [
            (push.link, getattr(push.header, "elements", type(push.header).__name__))
            for push in host.messages()
        ]

    host.link("k")
    host.grant(9)
    host.feed(e.Quarantined(1, 1, one))
    assert told() == []
    host.make(0)
    assert told() == [("k-1", (one,)), ("k-1", "Block")]
    host.make(1)
    assert told() == [("k-1", "Block")]
    host.feed(e.Quarantined(1, 1, other))
    host.link("late", "late-1")
    host.grant(9, client="late")
    host.make(2)
    assert told() == [("late-1", (one, other)), ("late-1", "Block")]
    many = [m.LeftOutElement(0, "/0", n, "map(f)", "ValueError") for n in range(2 * LEFT_OUT_KEPT)]
    for element in many:
        host.feed(e.Quarantined(1, 1, element))
    host.make(3)
    newest = tuple(many[-LEFT_OUT_KEPT:])
    assert [news for _, news in told()] == [newest, "Block"]


def test_a_worker_says_that_no_dispatcher_answers() -> None:
    """A worker names the address at which no dispatcher answers, and the setting of how
    long it tries; a registered one says that its tasks continue.
    """
    profile = WorkerProfile("w", "tcp://w", "tcp://nowhere:5050", dispatcher_timeout=3600.0)
    for registered, said in ((False, "No dispatcher has answered"), (True, "continues its tasks")):
        host = Transcript(WorkerCore(profile))
        if registered:
            host.hear(D, m.WorkerRegistered("w"))
        host.wait(1.0)
        host.wait(3.5)
        text = host.sent(e.LogLine).text
        assert said in text
        assert "tcp://nowhere:5050" in text
        assert "3600 s (`--death-timeout`, in code `dispatcher_timeout_ms`)" in text


def test_a_worker_that_lost_its_connection_says_so_within_five_seconds() -> None:
    """A worker that lost its connection says so within five seconds and then every
    minute, although the dispatcher wants rare heartbeats, and says when it is back.
    """
    host = Host()
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, every=20.0))
    host.feed(e.Disconnected())
    said = []
    for second in range(1, 130):
        host.wait(1.0)
        said += [second for line in host.all_of(e.LogLine) if line.level == "warning"]
    assert said == [3, 63, 123]
    host.hear(D, m.WorkerHeartbeatAnswered("w", True))
    assert "answers after 129 s" in host.sent(e.LogLine).text


def test_the_dispatcher_can_tell_a_worker_to_leave() -> None:
    """The dispatcher's answer tells a worker to leave, and a worker without tasks
    leaves at once.
    """
    host = Host()
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, draining=True))
    assert host.sent(m.WorkerHeartbeat).draining
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, draining=True))
    assert host.commands == []
    idle = Host(hosting=False)
    idle.hear(D, m.WorkerHeartbeatAnswered("w", True, draining=True))
    assert idle.core.draining.done


def test_deaths_before_are_told_until_somebody_knows() -> None:
    """The successor of a dead process reports the death with each registration until
    the first answer.
    """
    death = m.Death("v", "was killed by SIGSEGV", False, ((1, 1),), (m.Work(1, 1, 7),))
    worker = Transcript(WorkerCore(WorkerProfile("w", "tcp://w", deaths=(death,))))
    for _ in range(2):
        worker.wait(1.0)
        assert worker.sent(m.RegisterWorker).deaths == (death,)
    worker.hear(D, m.WorkerRegistered("w"))
    worker.hear(D, m.WorkerHeartbeatAnswered("w", known=False))
    assert worker.sent(m.RegisterWorker).deaths == ()


def test_the_dispatcher_hears_what_a_task_is_at() -> None:
    """The worker reports a long call of a task while the call lasts, and never a call
    of another attempt.
    """
    host, work = Host(), m.Work(1, 1, 7, "/0", "map(f)")
    host.feed(e.Busy(1, 1, 3.5, work))
    host.feed(e.Busy(1, 2, 9.0, work))
    host.wait(1.0)
    [report] = host.sent(m.WorkerHeartbeat).tasks
    assert (report.busy, report.work) == (3.5, work)
    host.feed(e.Busy(1, 1, 0.0))
    host.wait(1.0)
    [report] = host.sent(m.WorkerHeartbeat).tasks
    assert (report.busy, report.work) == (0.0, None)


# --- lineage


def lineages(host: Host) -> list[m.Lineage]:
    return [push.header for push in host.all_of(e.Push) if isinstance(push.header, m.Lineage)]


def assigned(count: int) -> m.SplitsAssigned:
    return m.SplitsAssigned(
        1, 1, 0, 0, tuple(Split(0, number, number + 1) for number in range(count)), 0
    )


def test_a_client_is_told_what_its_blocks_depend_on() -> None:
    """The worker sends a client the whole lineage before the first block and only
    changes afterwards, also before the end.
    """
    host = Host(hosting=False)
    host.hear(D, m.WorkerRegistered("w"))
    host.host(ledger=0)
    host.hear(D, assigned(3))
    host.link()
    host.grant(20)
    host.feed(e.SplitsStarted(1, 1, ((1, 0),)))
    assert not host.all_of(e.Push)
    host.make(0)
    assert [type(push.header) for push in host.all_of(e.Push)] == [m.Lineage, m.Block]
    assert lineages(host)[0].ledger == ((Split(0, 0, 1),),)
    assert lineages(host)[0].origin == m.Origin(0, 9, None, 0, 0)
    host.make(1)
    assert not lineages(host)
    host.feed(e.SplitsStarted(1, 1, ((2, 0),)))
    host.feed(e.StateNoted(1, 1, m.TaskState(2, b"here", (1,))))
    host.make(2)
    assert lineages(host)[0].ledger == ((Split(0, 1, 2),),)
    assert lineages(host)[0].states == (m.TaskState(2, b"here", (1,)),)
    host.feed(e.SplitsStarted(1, 1, ((3, 0),)))
    host.feed(e.SplitsStarted(1, 2, ((9, 9),)))
    host.feed(e.Exhausted(1, 1, 3))
    assert [type(push.header) for push in host.all_of(e.Push)] == [m.Lineage, m.EndOfTask]
    assert lineages(host)[0].ledger == ((Split(0, 2, 3),),)


def test_a_client_that_comes_late_is_told_everything() -> None:
    """The worker sends a late client the lineage that other clients have, as it may
    know of their elements from the dispatcher.
    """
    host = Host(hosting=False)
    host.hear(D, m.WorkerRegistered("w"))
    host.host(ledger=0)
    host.hear(D, assigned(3))
    host.link()
    host.grant(1)
    host.feed(e.SplitsStarted(1, 1, ((2, 0),)))
    host.make(0)
    host.link("l", "l-1")
    host.grant(8, client="l")
    assert lineages(host)[0].ledger == ((Split(0, 0, 1), Split(0, 1, 2)),)
    host.make(1)
    assert not lineages(host)


def test_all_that_came_with_a_task_is_told() -> None:
    """The worker tells all entries that came with a task, as an earlier host may have
    started them and cannot give them back.
    """
    host = Host(hosting=False)
    host.hear(D, m.WorkerRegistered("w"))
    host.host(ledger=3)
    host.link()
    host.grant(1)
    host.make(0)
    assert [split.start for split in lineages(host)[0].ledger[0]] == [0, 1, 2]


def test_those_who_share_a_cache_are_told_nothing() -> None:
    """Clients of a shared cache get no lineage, as missed elements are never made again
    and so have no state.
    """
    host = Host(hosting=False)
    host.hear(D, m.WorkerRegistered("w"))
    host.hear(D, m.HostTask(changed(definition(ledger=1), cache=True)))
    host.link()
    host.grant(8)
    host.make(0)
    assert [type(push.header) for push in host.all_of(e.Push)] == [m.Block]


def test_a_worker_leaves_after_its_tasks() -> None:
    """A worker that is to leave after some tasks counts each started task that has
    gone, finished or moved.
    """
    host = Host(max_tasks=2)
    host.host(2, dataset="never sent")
    for task in (2, 1):
        host.hear(D, m.DropTask(task, 1))
    assert not host.core.draining.begun
    host.host()
    host.host(attempt=2)  # the same task comes back and counts again
    host.hear(D, m.PipelineSent("dataset", "of dataset", b"pipeline"))
    host.hear(D, m.DropTask(1, 2))
    assert host.core.draining.worn
    assert host.core.draining.done


def test_a_copy_that_nobody_reads_to_its_end_keeps_no_worker() -> None:
    """An unread copy keeps no worker, as its job may wait long for later readers and
    another copy serves them as well.
    """
    host = Host(hosting=False, max_tasks=1)
    host.hear(D, m.WorkerRegistered("w"))
    host.hear(D, m.HostTask(changed(definition(), processing_mode="OFF")))
    host.host(2)
    host.hear(D, m.PipelineSent("dataset", "of dataset", b"pipeline"))
    host.link()
    host.grant(1)
    host.make(0, count=2)
    host.hear(D, m.DropTask(2, 1))
    host.feed(e.Exhausted(1, 1, 2))
    assert not host.core.draining.begun
    host.hear("k", m.CloseLink("k-1"))
    assert host.core.draining.worn
    assert host.core.draining.done


# --- tickets


def test_elements_are_for_those_who_show_the_ticket() -> None:
    """The worker answers a client without the ticket as if the task did not exist, as
    the dispatcher does not know that client.
    """
    host = Host(hosting=False)
    host.hear(D, m.WorkerRegistered("w"))
    host.hear(D, m.HostTask(changed(definition(), ticket=77)))
    host.hear(D, m.PipelineSent("dataset", "of dataset", b"pipeline"))
    for client, ticket in (("thief", 0), ("guest", 78), ("k", 77)):
        host.hear(client, m.OpenLink(client, f"{client}-1", "", 0, "", ("tcp",), ticket=ticket))
        host.feed(e.LinkBound(f"{client}-1", "tcp://x", "secret"))
        host.grant(10, client=client)
    host.make(0)
    assert host.pushed() == [("k-1", 0)]
    assert set(host.core.tasks[1].dealing.streams) == {"k"}


def test_a_link_that_is_not_read_is_closed() -> None:
    """The worker sends nothing more over a link whose queue is too long, and the client
    may open another link.
    """
    host = Host()
    host.link()
    host.grant(10)
    host.feed(e.LinkBroken("k-1", "it takes nothing"))
    assert host.sent(e.UnbindLink).link == "k-1"
    host.make(0)
    assert host.pushed() == []


# --- the end of a task that clients share


def shared(*, waits: bool = False) -> Host:
    """Return a worker that has given client ``k`` four elements, while ``l`` has
    none.
    """
    host = Host()
    host.link()
    host.grant(8)
    host.make(0, count=4)
    host.link("l", "l-1")
    host.commands.clear()
    host.loop("l", elements=8, waits=waits)
    host.feed(e.Exhausted(1, 1, 4))
    return host


def test_elements_go_from_a_client_that_holds_them_to_one_that_waits() -> None:
    """At the end of a task the worker asks a client for elements that another could
    hand out earlier, and sends them to that one.
    """
    host = shared(waits=True)
    ask, *ends = host.messages()
    assert [(end.link, end.header.held) for end in ends] == [("k-1", True), ("l-1", True)]
    assert (ask.link, ask.header) == ("k-1", m.TakeBackElements(ask.header.number, 1, 1, 1, 1))
    host.loop("k", elements=9, recall=1, kept=1)
    [block] = [one for one in host.messages() if one.link == "l-1"]
    header = block.header
    assert (header.skip, header.stop, header.recall) == (1, 4, 0)


def test_a_client_is_told_the_end_when_it_waits_in_vain() -> None:
    """The end is held back while others could give elements, and for a second while one
    is asked.
    """
    host = shared()
    told = {one.link: one.header.held for one in host.messages()}
    assert told == {"k-1": False, "l-1": True}, "no client has elements for the first"
    host.loop("l", elements=8, waits=True)
    ask, end = host.messages()
    assert isinstance(ask.header, m.TakeBackElements)
    assert (end.link, end.header.held) == ("k-1", True), "it may get some of them again"
    host.wait(0.9)
    assert [one for one in host.messages() if one.link == "l-1"] == []
    host.wait(0.2)
    assert [(one.link, one.header.held) for one in host.messages()] == [("l-1", False)]
