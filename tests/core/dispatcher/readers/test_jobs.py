"""Test jobs and the clients that read them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.readers.jobs import Jobs
from zmqdata.core.dispatcher.state import state
from zmqdata.core.dispatcher.state.outbox import Outbox, derived
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.splits import IndexSplits, Split

DESCRIPTION = m.DatasetDescription(
    "digest", "print", (IndexSplits(10),), "", None, 10, None, "3.11", "0"
)
JOB = m.JobParameters("job", "dataset", "DYNAMIC")
TIMEOUT, GC, GONE = 15.0, 300.0, 60.0
Delivered = dict[int, m.Ranges]


class Desk:
    """Jobs of a dispatcher with a registered dataset, and its decisions since the last
    check.
    """

    def __init__(self, gc_timeout: float = GC, collects_dynamic: bool = True) -> None:
        self.out = Outbox(1)
        self.clients = Roster()
        hosting = Hosting(self.out, Roster(), self.clients)
        self.jobs = Jobs(self.out, hosting, self.clients, gc_timeout, GONE, collects_dynamic)
        self.register("dataset")
        self.done()

    def done(self) -> list[Any]:
        self.jobs.hosting.lists.push(0.0)
        return [one.message if isinstance(one, e.Send) else one for one in self.out.drain()]

    def only(self, kind: type[Any]) -> Any:
        (found,) = (one for one in self.done() if isinstance(one, kind))
        return found

    def register(self, name: str, **changes: Any) -> None:
        self.out.commit(u.RegisterDatasetUpdate(name, structs.replace(DESCRIPTION, **changes)))

    def open(
        self, client: str, job: m.JobParameters = JOB, repetition: int = 0, now: float = 0.0
    ) -> None:
        self.jobs.open(client, m.OpenIteration(client, job, repetition), now)

    def beat(
        self, client: str, delivered: Delivered | None = None, now: float = 0.0, version: int = 0
    ) -> None:
        self.jobs.heartbeat(client, m.ClientHeartbeat(client, version, 1, delivered or {}), now)

    def go_on(self, client: str, since: float, until: float) -> None:
        """Let time pass while a client sends heartbeats."""
        for seconds in range(int(since), int(until) + 1):
            self.beat(client, now=float(seconds))

    def close(self, client: str, delivered: Delivered | None = None, now: float = 0.0) -> None:
        self.jobs.close(client, m.CloseIteration(client, 1, delivered or {}), now)

    def task(self) -> int:
        number = self.out.state.next_task
        self.out.commit(u.CreateTaskUpdate(number, 2000, 1))
        self.done()
        return number


# --- waiting


def test_a_client_that_waits_hears_of_the_workers() -> None:
    """The answer to a heartbeat says how many workers are registered while none hosts a
    task.
    """
    desk = Desk()
    desk.open("k")
    desk.beat("k")
    assert desk.only(m.ClientHeartbeatAnswered).idle == m.IdleWorkers(0, 0)


# --- opening


class Unwalked(dict[Any, Any]):
    """A dictionary that must not be searched."""

    def values(self) -> Any:
        raise AssertionError("every incarnation is looked at")

    items = __iter__ = values


def test_opening_a_job_looks_at_no_job_that_was_collected() -> None:
    """A job opens, and its readers leave, without a look at what other runs read
    before.
    """
    desk = Desk(gc_timeout=0.0)
    state = desk.out.state
    for name in ("first", "second"):
        desk.open(name, structs.replace(JOB, name=name))
        desk.close(name)
        desk.jobs.collect_unused(GONE)
        state.incarnations, state.runs = Unwalked(state.incarnations), Unwalked(state.runs)
    assert len(state.incarnations) == len(state.runs) == 2
    assert state.living == []


def test_who_comes_late_is_told_which_splits_were_used_up() -> None:
    """The dispatcher tells a late client the splits of finished tasks and the forgotten
    splits, but no splits that may be replayed.
    """
    desk = Desk()
    desk.open("k")
    over, running = desk.task(), desk.task()
    given = (
        (over, Split(0, 0, 4)),
        (running, Split(0, 4, 6)),
        (over, Split(0, 6, 7)),
        (over, Split(0, 9, 9)),
    )
    for task, split in given:
        desk.out.commit(u.AssignSplitsUpdate(task, 0, split))
    desk.out.commit(u.EndTaskUpdate(over, 3))
    desk.out.commit(u.DeliverUpdate(over, ((0, 3),)))
    desk.done()
    desk.open("l")
    assert desk.only(m.IterationOpened).sources == (m.SourcePart(0, ((0, 4), (6, 7)), 0),)


def test_clients_of_a_job_share_its_iterations() -> None:
    """The first client begins a repetition, later clients join it, and a repeated
    request joins nothing twice.
    """
    desk = Desk()
    for client, repetition in (("k", 0), ("l", 0), ("l", 0), ("n", 1)):
        desk.open(client, repetition=repetition)
    state = desk.out.state
    assert [iteration.clients for iteration in state.iterations.values()] == [{"k", "l"}, {"n"}]
    assert len({iteration.seed for iteration in state.iterations.values()}) == 2


def test_an_opened_client_gets_the_task_list() -> None:
    """The answer to an open request names the client, the iteration and the tasks."""
    desk = Desk()
    desk.open("k")
    opened = desk.only(m.IterationOpened)
    ticket = desk.out.ticket(2000)
    written = desk.out.counts_of(desk.out.state.iterations[2000])
    task_list = m.TaskList(0, (), False, None, (m.shown_name("k"),), ticket=ticket, written=written)
    assert ticket > 1 << 32
    assert (opened.client, opened.iteration, opened.task_list) == ("k", 2000, task_list)


def test_an_opened_client_is_told_what_is_gone() -> None:
    """The answer says how much was delivered before, whether that was all, and whether
    other clients read.
    """
    desk = Desk()

    def told(client: str) -> tuple[int, bool, bool]:
        desk.done()
        desk.open(client)
        opened = desk.only(m.IterationOpened)
        return opened.delivered, opened.finished, opened.shared

    assert told("k") == (0, False, False)
    task = desk.task()
    desk.beat("k", {task: ((0, 3),)})
    assert told("l") == (3, False, True)
    desk.close("k")
    desk.close("l")
    assert told("n") == (3, False, False)
    desk.out.commit(u.EndTaskUpdate(task, 3))
    desk.out.commit(u.CloseTaskListUpdate(2000))
    assert told("n") == (3, True, False)


def test_a_job_of_an_unknown_dataset_is_refused() -> None:
    """The dispatcher refuses a job of an unknown dataset, as it has no pipeline to
    read.
    """
    desk = Desk()
    desk.open("k", m.JobParameters("job", "other", "DYNAMIC"))
    assert desk.only(m.RequestRefused).error == "NotFoundError"


def test_what_cannot_be_split_cannot_be_sharded() -> None:
    """A dataset without splits can only be read in mode OFF, and the refusal gives the
    pipeline's reason.
    """
    desk = Desk()
    desk.register("whole", digest="whole", sources=None, unsplittable="it is a generator")
    desk.done()
    desk.open("k", m.JobParameters("job", "whole", "DYNAMIC"))
    refused = desk.only(m.RequestRefused)
    assert (refused.error, refused.text) == ("UnimplementedError", "it is a generator")
    desk.open("k", m.JobParameters("job", "whole", "OFF"))
    assert desk.only(m.IterationOpened)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"processing_mode": "OFF"}, "processing mode: <DYNAMIC>; got <OFF>"),
        ({"num_consumers": 2}, "number of consumers: <None>; got <2>"),
        ({"dataset_id": "other"}, "dataset: <print>; got <another>"),
    ],
)
def test_a_job_name_stands_for_one_job(change: dict[str, Any], text: str) -> None:
    """The dispatcher refuses a second client with other job parameters, and names the
    difference and the remedy.
    """
    desk = Desk()
    desk.register("other", digest="other", fingerprint="another")
    desk.open("k")
    desk.done()
    desk.open("l", structs.replace(JOB, **change))
    refused = desk.only(m.RequestRefused)
    assert (refused.error, text in refused.text) == ("InvalidArgumentError", True)


# --- reading


def test_deliveries_are_written_once() -> None:
    """A repeated report commits nothing, a longer report commits what is new, and
    unknown tasks count nothing.
    """
    desk = Desk()
    desk.open("k")
    task = desk.task()
    desk.beat("k", {task: ((0, 3),), 1: ((0, 9),)})
    assert desk.only(e.Commit).update == u.DeliverUpdate(task, ((0, 3),), "k")
    desk.beat("k", {task: ((0, 3),)})
    assert [type(one) for one in desk.done()] == [m.ClientHeartbeatAnswered]
    desk.beat("k", {task: ((0, 5),)})
    assert desk.only(e.Commit).update == u.DeliverUpdate(task, ((3, 5),), "k")


def test_the_last_delivery_settles_a_task() -> None:
    """When everything of a task was delivered, all clients get a list without it."""
    desk = Desk()
    desk.open("k")
    task = desk.task()
    desk.out.commit(u.EndTaskUpdate(task, 3))
    desk.beat("k", {task: ((0, 3),)})
    assert desk.only(m.TasksChanged).task_list.tasks == ()


def test_a_heartbeat_brings_the_list_to_who_lacks_it() -> None:
    """The dispatcher sends the task list only to a client that has another version."""
    desk = Desk()
    desk.open("k")
    desk.jobs.hosting.lists.tell(desk.out.state.iterations[2000])
    desk.done()
    desk.beat("k", version=0)
    assert desk.only(m.ClientHeartbeatAnswered).task_list is None  # the list is already on its way
    desk.beat("k", version=0, now=1.0)
    assert desk.only(m.ClientHeartbeatAnswered).task_list.version == 1
    desk.beat("k", version=1)
    assert desk.only(m.ClientHeartbeatAnswered).task_list is None


def test_an_unknown_client_is_told_so() -> None:
    """The dispatcher tells a client that it does not know it, so that its iterator ends
    with an error instead of waiting for ever.
    """
    desk = Desk()
    desk.beat("k")
    refused = desk.only(m.RequestRefused)
    assert (refused.request, refused.error) == ("k", "UnavailableError")
    assert "Unknown iteration client id k" in refused.text


# --- leaving


def test_the_last_report_counts() -> None:
    """A goodbye reports the last deliveries, and the dispatcher answers it again when
    it is repeated.
    """
    desk = Desk()
    desk.open("k")
    task = desk.task()
    desk.close("k", {task: ((0, 2),)})
    assert [getattr(one, "update", one) for one in desk.done()] == [
        u.DeliverUpdate(task, ((0, 2),), "k"),
        u.CloseClientUpdate("k"),
        m.IterationClosed("k"),
    ]
    desk.close("k")
    assert desk.done() == [m.IterationClosed("k")]


def test_a_client_that_left_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late request of a client that said goodbye opens nothing, and its name is
    remembered for long but not for ever.
    """
    monkeypatch.setattr(state, "DEPARTED_KEPT", 500)
    desk = Desk()
    desk.open("k")
    desk.close("k")
    desk.done()
    desk.open("k")
    assert desk.only(m.RequestRefused)
    for number in range(500):
        desk.open(f"n{number}")
        desk.close(f"n{number}")
    desk.done()
    assert len(desk.out.state.departed) == 500


def test_an_anonymous_job_ends_with_its_clients() -> None:
    """An anonymous job ends with its clients, as no client can join it again."""
    desk = Desk()
    desk.open("k", structs.replace(JOB, anonymous=True))
    desk.close("k")
    assert desk.out.state.living == []


def test_a_named_job_waits_for_clients() -> None:
    """The dispatcher collects a job that is unread for long; a client that joins in
    time keeps it.
    """
    desk = Desk()
    desk.open("k")
    desk.close("k", now=10.0)
    desk.jobs.collect_unused(10.0 + GC - 1)
    desk.open("l", now=10.0 + GC - 1)
    desk.jobs.collect_unused(10.0 + 2 * GC)
    assert "job" in [one.job.name for one in desk.out.state.living]
    desk.close("l", now=1000.0)
    desk.done()
    desk.jobs.collect_unused(1000.0 + GC)
    collected, ended = (one.text for one in desk.done() if isinstance(one, e.LogLine))
    assert "job job is collected" in collected
    assert "ends unfinished, without readers: 0 elements in 1000.0 s" in ended
    assert (desk.out.state.living, desk.jobs.unused_since) == ([], {})


def test_a_job_that_fails_says_so_once() -> None:
    """A job that fails has a line with the reason, and no other line for its end."""
    desk = Desk()
    desk.open("k")
    assert "repetition 0, begins" in desk.only(e.LogLine).text
    desk.jobs.hosting.fail(desk.out.state.iterations[2000], "DataLossError", "it is lost")
    failed = desk.only(e.LogLine)
    assert (failed.level, failed.text) == ("error", "job job: it is lost")
    desk.close("k", now=1000.0)
    desk.done()
    desk.jobs.collect_unused(1000.0 + GC)
    assert "job job is collected" in desk.only(e.LogLine).text


def test_a_negative_timeout_keeps_jobs_for_ever() -> None:
    """A negative time-out removes neither jobs nor their only clients."""
    desk = Desk(gc_timeout=-1.0)
    desk.open("k")
    desk.jobs.expire(1e9, TIMEOUT)
    desk.close("k")
    desk.jobs.collect_unused(1e9)
    assert "job" in [one.job.name for one in desk.out.state.living]


def test_dynamic_jobs_may_be_kept() -> None:
    """Jobs of mode DYNAMIC and their only clients stay if such jobs are not collected,
    and jobs of other modes are removed.
    """
    desk = Desk(collects_dynamic=False)
    desk.open("k")
    desk.open("l", structs.replace(JOB, name="copies", processing_mode="OFF"))
    desk.jobs.expire(1e9, TIMEOUT)
    assert {one.job.name for one in desk.out.state.living} == {"job"}
    assert desk.out.state.client_iteration.keys() == {"k"}
    desk.close("k", now=1e9)
    desk.jobs.collect_unused(2e9)
    assert {one.job.name for one in desk.out.state.living} == {"job"}


def test_what_was_collected_is_remembered() -> None:
    """The dispatcher remembers the description of a collected iteration to answer later
    requests.
    """
    desk = Desk(gc_timeout=0.0)
    desk.open("k", repetition=3)
    desk.close("k")
    desk.jobs.collect_unused(0.0)
    [gone] = desk.jobs.collected
    assert (gone.repetition, gone.job, gone.finished) == (3, JOB, False)


# --- silence


def test_a_silent_client_is_given_up_for_the_sake_of_others() -> None:
    """After the time-out the elements of a silent client go to the clients that still
    read.
    """
    desk = Desk()
    desk.open("k")
    desk.open("l")
    desk.beat("k", now=0.0)
    desk.go_on("l", 0.0, TIMEOUT)
    desk.jobs.expire(TIMEOUT, TIMEOUT)
    assert desk.out.state.iterations[2000].clients == {"l"}


def test_clients_that_fall_silent_together_are_not_given_up() -> None:
    """Clients that fall silent together keep their elements; after the first message of
    a client the others have a whole time-out.
    """
    desk = Desk()
    desk.open("k")
    desk.open("l")
    desk.beat("k", now=0.0)
    desk.jobs.expire(GC - 1, TIMEOUT)
    assert desk.jobs.absent == {"k", "l"}
    desk.beat("l", now=GC - 1)
    assert desk.jobs.absent == set()
    desk.go_on("l", GC, GC + TIMEOUT)
    desk.jobs.expire(GC - 1 + TIMEOUT - 0.1, TIMEOUT)
    assert desk.out.state.iterations[2000].clients == {"k", "l"}
    desk.jobs.expire(GC - 1 + TIMEOUT, TIMEOUT)
    assert desk.out.state.iterations[2000].clients == {"l"}


def test_the_only_client_may_be_silent_for_hours() -> None:
    """The only client of a job may return until the job itself is collected, as no
    other client needs its elements.
    """
    desk = Desk()
    desk.open("k")
    desk.jobs.expire(GC - 1, TIMEOUT)
    desk.beat("k", now=GC - 1)
    assert desk.only(m.ClientHeartbeatAnswered)
    assert desk.jobs.absent == set()
    desk.jobs.expire(GC + GC - 1, TIMEOUT)
    assert desk.out.state.client_iteration == {}


def test_a_named_job_is_collected_one_time_out_after_its_last_client_was_heard() -> None:
    """A client that fell silent for good does not keep its job for twice the
    time-out.
    """
    desk = Desk()
    desk.open("k")
    desk.beat("k", now=100.0)
    desk.jobs.expire(100.0 + GC - 1, TIMEOUT)
    assert desk.out.state.client_iteration == {"k": 2000}
    desk.jobs.expire(100.0 + GC, TIMEOUT)
    assert desk.out.state.living == []


def test_the_only_client_of_an_anonymous_job_is_not_waited_for_without_a_connection() -> None:
    """The only client of an anonymous job is given up with it after a minute of silence
    without a connection, however long jobs are kept.
    """
    desk = Desk(gc_timeout=-1.0)
    desk.open("k", structs.replace(JOB, anonymous=True))
    desk.clients.lose_contact("k", 20.0)
    desk.jobs.expire(20.0 + GONE - 1, TIMEOUT)
    assert desk.out.state.iterations[2000].clients == {"k"}
    desk.done()
    desk.jobs.expire(20.0 + GONE, TIMEOUT)
    gone, ended = (one.text for one in desk.done() if isinstance(one, e.LogLine))
    assert f"client {m.shown_name('k')} of job job is gone" in gone
    assert "repetition 0, ends unfinished" in ended
    assert desk.out.state.living == []
    desk.beat("k", now=100.0)
    assert desk.only(m.RequestRefused).error == "NotFoundError"


def test_a_client_that_workers_hear_is_waited_for() -> None:
    """A client that workers hear reads on without the dispatcher; its time-out begins
    when the workers no longer hear it.
    """
    desk = Desk()
    desk.open("k", structs.replace(JOB, anonymous=True))
    desk.clients.lose_contact("k", 20.0)
    desk.clients.notice({"k": 1000.0})
    desk.jobs.expire(1000.0 + GONE - 1, TIMEOUT)
    assert desk.out.state.iterations[2000].clients == {"k"}
    desk.jobs.expire(1000.0 + GONE, TIMEOUT)
    assert desk.out.state.living == []


@pytest.mark.parametrize(("anonymous", "unreachable"), [(True, False), (False, True)])
def test_a_connection_or_a_name_keeps_the_only_client(anonymous: bool, unreachable: bool) -> None:
    """The only client stays until its job is collected while it is connected, as it may
    be busy. It also stays if its job has a name.
    """
    desk = Desk()
    desk.open("k", structs.replace(JOB, anonymous=anonymous))
    if unreachable:
        desk.clients.lose_contact("k", 0.0)
    desk.jobs.expire(GC - 1, TIMEOUT)
    assert desk.out.state.iterations[2000].clients == {"k"}
    desk.jobs.expire(GC, TIMEOUT)
    assert "k" not in desk.out.state.client_iteration


def test_a_newcomer_ends_the_patience_with_a_silent_client() -> None:
    """When another client joins, the elements of an absent client are released, also in
    an anonymous job.
    """
    desk = Desk()
    job = structs.replace(JOB, anonymous=True)
    desk.open("k", job)
    desk.jobs.expire(TIMEOUT, TIMEOUT)
    desk.open("l", job, now=20.0)
    assert desk.out.state.iterations[2000].clients == {"l"}


def test_a_client_of_a_collected_job_is_forgotten() -> None:
    """The next check for silent clients removes the names of a collected job's
    clients.
    """
    desk = Desk()
    desk.open("k")
    desk.out.commit(u.CollectIncarnationUpdate(1))
    desk.jobs.expire(TIMEOUT, TIMEOUT)
    assert len(desk.clients) == 0


def test_a_failed_iteration_is_refused_to_all() -> None:
    """A reader of a failed iteration gets the failure with each heartbeat, and a client
    that joins it gets the failure at once.
    """
    desk = Desk()
    desk.open("k")
    desk.jobs.hosting.fail(desk.out.state.iterations[2000], "ValueError", "broken")
    assert desk.only(m.RequestRefused) == m.RequestRefused("k", "ValueError", "broken")
    desk.beat("k")
    assert desk.only(m.RequestRefused).request == "k"
    desk.open("l")
    assert desk.only(m.RequestRefused) == m.RequestRefused("l", "ValueError", "broken")


# --- leases


def test_clients_are_told_their_lease() -> None:
    """The answers to opening and to each heartbeat carry the lease and the heartbeat's
    number, and say whether the client reads alone.
    """
    desk = Desk()
    desk.open("k")
    assert desk.only(m.IterationOpened).lease == m.Lease(13.5, alone=True)
    desk.open("l")
    assert desk.only(m.IterationOpened).lease == m.Lease(13.5)
    desk.jobs.heartbeat("k", m.ClientHeartbeat("k", 0, 1, {}, beat=4), 1.0)
    answer = desk.only(m.ClientHeartbeatAnswered)
    assert (answer.beat, answer.lease) == (4, m.Lease(13.5))


def test_who_reads_on_alone_is_not_given_up_when_another_joins() -> None:
    """A client that workers hear stays while it believes that it reads alone, although
    the dispatcher does not hear it. Its lease counts once it is told of others.
    """
    desk = Desk()
    desk.open("k")
    desk.jobs.heartbeat("k", m.ClientHeartbeat("k", 0, 0, {}, alone=True), 0.0)
    desk.clients.notice({"k": 19.0})
    desk.jobs.expire(20.0, TIMEOUT)
    desk.open("l", now=20.0)
    assert desk.out.state.iterations[2000].clients == {"k", "l"}
    desk.go_on("l", 20.0, 35.0)
    desk.jobs.expire(35.5, TIMEOUT)  # workers report up to two seconds late whom they have heard
    assert desk.out.state.iterations[2000].clients == {"k", "l"}
    desk.jobs.expire(36.0, TIMEOUT)
    assert desk.out.state.iterations[2000].clients == {"l"}


def test_a_client_that_was_given_up_may_join_again_under_another_name() -> None:
    """A client that was given up finds its iteration under another name, unless the
    iteration was collected, even if the job begins anew.
    """
    desk = Desk(gc_timeout=0.0)
    desk.open("k")
    desk.open("l")
    desk.jobs.expire(16.0, TIMEOUT)
    desk.done()
    desk.beat("k", now=17.0)
    refused = desk.only(m.RequestRefused)
    assert (refused.given_up, refused.iteration) == (True, 2000)
    assert not desk.out.state.iterations
    again = m.OpenIteration("k.1", JOB, 0, iteration=2000)
    desk.jobs.open("k", again, 18.0)
    refused = desk.only(m.RequestRefused)
    assert (refused.error, refused.given_up) == ("NotFoundError", False)
    desk.open("n", now=18.0)
    desk.jobs.open("k", again, 19.0)
    assert desk.only(m.RequestRefused).error == "NotFoundError"
    desk.jobs.open("k", m.OpenIteration("k.2", JOB, 0, iteration=2001), 20.0)
    assert desk.out.state.iterations[2001].clients == {"n", "k.2"}


def test_who_asks_on_after_it_was_given_up_is_told_which_iteration_it_was_part_of() -> None:
    """The refusal of a client given up before it heard of its admission names its
    iteration, which it joins under another name.
    """
    desk = Desk()
    desk.open("k")
    desk.open("l", now=14.0)
    desk.jobs.expire(17.0, TIMEOUT)
    desk.done()
    desk.open("k", now=18.0)
    refused = desk.only(m.RequestRefused)
    assert (refused.request, refused.given_up, refused.iteration) == ("k", True, 2000)


def test_clients_of_a_dispatcher_without_a_journal_are_not_given_up() -> None:
    """A restarted dispatcher without a journal ends its former clients with an error,
    as no iteration is left to join.
    """
    desk = Desk()
    desk.beat("unknown")
    refused = desk.only(m.RequestRefused)
    assert (refused.error, refused.given_up) == ("UnavailableError", False)


# --- what is counted


def test_repeats_are_written_when_they_grow() -> None:
    """The dispatcher records a client's count of repeated elements, and of those that
    it gave back, when it grows. An outdated report changes nothing.
    """
    desk = Desk()
    desk.open("k")
    steps = ((0, 0, False), (3, 0, True), (3, 0, False), (2, 4, True), (1, 3, False), (5, 1, True))
    for repeats, back, written in steps:
        desk.done()
        beat = m.ClientHeartbeat("k", 0, 0, {}, repeats=repeats, given_back=back)
        desk.jobs.heartbeat("k", beat, 0.0)
        assert any(isinstance(one, e.Commit) for one in desk.done()) == written
    tally = desk.out.state.iterations[2000].tally
    assert (tally.repeats, tally.given_back) == ({"k": 5}, {"k": 4})


def test_an_audit_outlives_its_job() -> None:
    """The audit of a collected job remains."""
    desk = Desk(gc_timeout=0.0)
    desk.open("k")
    task = desk.task()
    desk.close("k", {task: ((0, 4),)})
    desk.jobs.collect_unused(1.0)
    assert desk.jobs.collected[0].audit["elements"]["delivered"] == 4


def test_the_clients_of_a_former_dispatcher_have_one_time_out_to_come_back() -> None:
    """Clients of a former dispatcher have a single time-out to return, and a job
    without clients counts as unused from then on.
    """
    desk = Desk()
    for client in ("k", "l"):
        desk.open(client)
    desk.out.commit(u.BeginIncarnationUpdate(2, structs.replace(JOB, name="idle")))
    desk.out.commit(u.CreateIterationUpdate(2001, 2, 0, 7))
    restarted = Desk()
    for update in snapshot(desk.out.state):
        restarted.out.commit(update)
    restarted.jobs.resume(1000.0, TIMEOUT)
    assert restarted.jobs.unused_since == {2: 1000.0}
    restarted.go_on("k", 1000.0, 1000.0 + TIMEOUT)
    restarted.jobs.expire(999.0 + TIMEOUT, TIMEOUT)
    assert restarted.out.state.iterations[2000].clients == {"k", "l"}
    restarted.jobs.expire(1001.0 + TIMEOUT, TIMEOUT)
    assert restarted.out.state.iterations[2000].clients == {"k"}


STEPS = structs.replace(JOB, name="steps", num_consumers=2, finite="drop")


def test_a_place_of_a_consumer_is_free_when_its_holder_is_gone() -> None:
    """The dispatcher refuses a second client for a consumer's place while the first
    lives, and admits it afterwards.
    """
    desk = Desk()

    def ask(client: str, now: float) -> None:
        desk.clients.hear(client, client, now)
        desk.jobs.open(client, m.OpenIteration(client, STEPS, 0, m.Reader(0)), now)

    ask("k", 0.0)
    assert desk.only(m.IterationOpened).client == "k"
    ask("l", 0.1)
    assert desk.out.state.iterations[2000].consumers == {0: "k"}
    desk.done()
    desk.close("k", now=0.2)
    desk.done()
    ask("l", 0.3)
    assert desk.only(m.IterationOpened).client == "l"
    assert desk.out.state.iterations[2000].consumers == {0: "l"}


def test_a_consumer_gives_way_to_another_when_it_is_gone_without_a_word() -> None:
    """The dispatcher probes the holder of a requested place, and gives the place to a
    repeated request once the holder's connection is lost.
    """
    desk = Desk()

    def ask(client: str, now: float) -> None:
        desk.jobs.open(client, m.OpenIteration(client, STEPS, 0, m.Reader(0)), now)

    ask("k", 0.0)
    desk.clients.lose_contact("k", 1.0)
    ask("l", 1.1)
    assert desk.out.state.iterations[2000].consumers == {0: "k"}
    ask("l", 10.0)
    assert desk.out.state.iterations[2000].consumers == {0: "l"}


# --- from states


def brought(
    client: str, job: m.JobParameters, consumer: int | None = None, seed: int = 11
) -> m.OpenIteration:
    """Return the request of a client that resumes from a state."""
    task = m.TaskPart(0, 5, None, (0,), ((Split(0, 0, 4),),), (), ((0, 3),), None)
    reader = m.Reader(consumer)
    views = () if consumer is None else (m.View(0, ((0, 0),)),)
    past = m.Checkpoint(
        m.CHECKPOINT_VERSION,
        job,
        "print",
        0,
        seed,
        0,
        reader,
        client,
        (client,),
        (),
        (task,),
        3 if views else 0,
        views,
    )
    return m.OpenIteration(f"new {client}", job, 0, reader, resume=m.encode_checkpoint(past))


def test_a_state_replaces_what_is_left_of_its_job() -> None:
    """An iteration that resumes from a state has its past and none of its former
    readers, and a repeated request changes nothing.
    """
    desk = Desk()
    desk.open("k")
    desk.close("k")
    desk.done()
    for _ in range(2):
        desk.jobs.open("peer", brought("k", JOB), 1.0)
        opened = desk.only(m.IterationOpened)
        assert (opened.iteration, opened.seed, opened.delivered) == (2001, 11, 3)
    assert desk.out.state.iterations[2001].clients == {"new k"}
    desk.jobs.collect_unused(1.0 + TIMEOUT)
    assert list(desk.out.state.iterations) == [2001]


def test_consumers_begin_together_from_their_states() -> None:
    """No consumer begins before the last consumer has come, and then each resumes at
    its step.
    """
    desk = Desk()
    desk.jobs.open("peer 0", brought("k", STEPS, 0), 0.0)
    assert desk.only(m.OpenAwaited)
    desk.jobs.open("peer 1", brought("l", STEPS, 1), 0.5)
    assert [one.step for one in desk.done() if isinstance(one, m.IterationOpened)] == [3, 3]
    assert desk.out.state.iterations[2000].consumers == {0: "new k", 1: "new l"}


def test_states_that_do_not_belong_together_are_refused_to_all() -> None:
    """The dispatcher refuses states that do not fit together to all clients, and leaves
    the job as it was.
    """
    desk = Desk()
    for consumer, seed in ((0, 11), (1, 12)):
        desk.jobs.open(f"peer {consumer}", brought(f"k{consumer}", STEPS, consumer, seed), 0.0)
    refused = [one for one in desk.done() if isinstance(one, m.RequestRefused)]
    assert {one.request for one in refused} == {"new k0", "new k1"}
    assert not desk.out.state.living


# --- collecting


def test_a_promised_order_has_its_seed_from_the_job() -> None:
    """A job with a promised order has the requested seed and number of tasks."""
    seeds = []
    for _ in range(2):
        desk = Desk()
        desk.open("k", structs.replace(JOB, name="order", num_tasks=3, seed=5))
        [iteration] = desk.out.state.iterations.values()
        seeds.append((iteration.seed, iteration.num_shards))
    assert seeds == [(derived(5, 0), 3)] * 2


def test_time_in_which_nobody_was_heard_is_forgiven() -> None:
    """The dispatcher does not count time in which it heard no client, so no client is
    given up for that time.
    """
    desk = Desk()
    for client in ("k", "l"):
        desk.open(client)
    for now in (0.0, 100.0):
        desk.jobs.listen(now)
    desk.go_on("l", 100.0, 114.0)
    desk.jobs.expire(114.0, TIMEOUT)
    assert desk.out.state.iterations[2000].clients == {"k", "l"}


def test_a_save_is_collected_when_it_has_ended() -> None:
    """The dispatcher collects a save when the time-out has passed since its marker was
    written, and not before.
    """
    desk = Desk()
    save = structs.replace(JOB, name="save", save=m.SaveParameters("/save", "run"))
    desk.out.commit(u.BeginIncarnationUpdate(1, save))
    desk.out.commit(u.CreateIterationUpdate(2000, 1, 0, 7))
    desk.jobs.collect_unused(5 * GC)
    assert "save" in [one.job.name for one in desk.out.state.living]
    desk.out.commit(u.EndSaveUpdate(2000))
    desk.jobs.collect_unused(5 * GC)
    desk.jobs.collect_unused(6 * GC - 1.0)
    assert "save" in [one.job.name for one in desk.out.state.living]
    desk.jobs.collect_unused(6 * GC)
    assert "save" not in [one.job.name for one in desk.out.state.living]
