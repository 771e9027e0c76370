"""Test which worker hosts which task."""

from __future__ import annotations

from typing import Any

from tests.core.dispatcher.tasks.test_placement import Listed
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.hosting import MOST_COPIES, Hosting
from zmqdata.core.dispatcher.tasks.placement import Placement, WorkerFacts
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.codec import encode_failure
from zmqdata.splits import IndexSplits, Split


class Hosts:
    """An iteration with its clients, and the decisions about it since the last
    check.
    """

    def __init__(
        self,
        *clients: str,
        mode: str = "DYNAMIC",
        shards: tuple[str, ...] = (),
        target: str = "AUTO",
        num_tasks: int | None = None,
        **local: str,
    ) -> None:
        self.out = Outbox(1)
        self.workers, self.clients = Roster(), Roster()
        placement = Placement(Listed(*[f"tcp://{name}" for name in shards]))
        self.hosting = Hosting(self.out, self.workers, self.clients, placement)
        description = m.DatasetDescription(
            "digest", "print", (IndexSplits(10),), "", None, -2, None, "3.11", "0"
        )
        self.out.commit(u.RegisterDatasetUpdate("dataset", description))
        job = m.JobParameters("job", "dataset", mode, target_workers=target, num_tasks=num_tasks)
        self.out.commit(u.BeginIncarnationUpdate(1, job))
        self.out.commit(u.CreateIterationUpdate(2000, 1, 0, 7, num_tasks or len(shards)))
        for client in (*clients, *local):
            self.clients.hear(client, client, 0.0)
            beside = (f"tcp://{local[client]}",) if client in local else ()
            own = placement.shards_beside(job, beside, len(shards))
            self.out.commit(u.OpenClientUpdate(client, 2000, beside, shards=own))
        self.done()

    @property
    def iteration(self) -> Iteration:
        return self.out.state.iterations[2000]

    @property
    def tasks(self) -> list[Task]:
        return list(self.iteration.tasks.values())

    def add(self, *names: str) -> None:
        for name in names:
            self.workers.hear(name, name, 0.0)
            self.hosting.add_worker(name, WorkerFacts(f"tcp://{name}", (), "3.11"))

    def report(self, worker: str, *reports: m.TaskReport) -> None:
        self.hosting.apply_report(worker, reports)

    def holds(self, client: str, *ranges: tuple[int, int]) -> None:
        task = self.tasks[0]
        self.hosting.record_holdings(m.HoldingsReported(client, task.task, task.attempt, ranges))

    def deliver(self, first: int, stop: int) -> None:
        self.out.commit(u.DeliverUpdate(self.tasks[0].task, ((first, stop),)))

    def done(self) -> list[Any]:
        self.hosting.lists.push(0.0)
        return [one.message if isinstance(one, e.Send) else one for one in self.out.drain()]

    def messages(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.done() if isinstance(one, kind)]


def told(
    task: Task, total: int | None = None, produced: int = 0, incomplete: bool = False
) -> m.TaskReport:
    return m.TaskReport(task.task, task.attempt, produced, total, 0.0, incomplete)


def test_each_worker_gets_a_task() -> None:
    """An iteration has as many tasks as workers, whichever came first."""
    hosts = Hosts("k")
    hosts.add("a")
    hosts.hosting.staff(hosts.iteration)
    hosts.add("b")
    assert [task.worker for task in hosts.tasks] == ["a", "b"]
    assert hosts.hosting.lists.task_list(hosts.iteration, "k").tasks[0].address == "tcp://a"
    assert len({task.seed for task in hosts.tasks}) == 2


def test_a_task_knows_its_iteration() -> None:
    """Each task carries the repetition and the seed of its iteration, and a new host
    gets the seeds of the old host.
    """
    hosts = Hosts("k")
    hosts.out.commit(u.CreateIterationUpdate(2001, 1, 3, 8))
    hosts.add("a")
    old = hosts.messages(m.HostTask)
    assert [(one.definition.repetition, one.definition.iteration_seed) for one in old] == [
        (0, 7),
        (3, 8),
    ]
    hosts.hosting.lose_worker("a")
    hosts.holds("k")
    hosts.add("b")
    definitions = {one.definition.iteration: one.definition for one in hosts.messages(m.HostTask)}
    for before in (one.definition for one in old):
        after = definitions[before.iteration]
        assert after.attempt > before.attempt
        assert (after.seed, after.iteration_seed, after.repetition) == (
            before.seed,
            before.iteration_seed,
            before.repetition,
        )


def test_a_closed_iteration_gets_no_task() -> None:
    """A worker that joins a closed iteration gets no task."""
    hosts = Hosts("k")
    hosts.out.commit(u.CloseTaskListUpdate(2000))
    hosts.add("a")
    assert hosts.tasks == []


def test_a_missing_task_is_sent_again() -> None:
    """The dispatcher resends a task to a worker that misses it in two reports or
    reports an old attempt of it.
    """
    hosts = Hosts("k")
    hosts.add("a")
    hosts.done()
    hosts.report("a")
    assert hosts.done() == [], "most likely it is on its way"
    hosts.report("a")
    assert [one.definition.task for one in hosts.messages(m.HostTask)] == [hosts.tasks[0].task]
    hosts.report("a", m.TaskReport(hosts.tasks[0].task, 0, 0, None))
    assert {type(one) for one in hosts.done()} == {m.DropTask, m.HostTask}
    hosts.report("a", told(hosts.tasks[0]))
    assert hosts.done() == []


def test_a_missing_task_of_a_former_dispatcher_begins_anew() -> None:
    """A worker may have dropped an attempt for a dispatcher whose journal has lost the
    end, and ignores that attempt from then on. Its last report may come later, so the
    task begins a new attempt when reports lack it.
    """
    hosts = Hosts("k")
    hosts.add("a")
    facts, task = hosts.hosting.facts["a"], hosts.tasks[0]
    facts.inherited.add(task.task)
    hosts.report("a", told(task))
    hosts.report("a")
    hosts.done()
    hosts.report("a")
    assert hosts.messages(m.HostTask) == []
    assert (task.attempt, facts.inherited) == (2, set())


def test_a_task_that_should_not_be_there_is_dropped() -> None:
    """The dispatcher makes a worker drop a reported task that is unknown or belongs to
    another worker.
    """
    hosts = Hosts("k")
    hosts.add("a", "b")
    hosts.done()
    hosts.report("b", told(hosts.tasks[0]), told(hosts.tasks[1]), m.TaskReport(1, 1, 0, None))
    assert hosts.messages(m.DropTask) == [m.DropTask(hosts.tasks[0].task, 1), m.DropTask(1, 1)]


def test_a_lost_worker_leaves_its_task_fenced() -> None:
    """A lost worker's task begins a new attempt without a host, and the dispatcher asks
    each client what it holds.
    """
    hosts = Hosts("k", "l")
    hosts.add("a")
    hosts.done()
    hosts.hosting.lose_worker("a")
    done = hosts.done()
    assert [one.client for one in done if isinstance(one, m.RequestHoldings)] == ["k", "l"]
    lists = [one.task_list for one in done if isinstance(one, m.TasksChanged)]
    assert [(place.attempt, place.worker, place.address) for place in lists[0].tasks] == [
        (2, "", "")
    ]


def test_a_fenced_task_is_hosted_when_everybody_has_answered() -> None:
    """The worker with the fewest tasks makes the task without elements that clients
    hold or have delivered.
    """
    hosts = Hosts("k", "l")
    hosts.add("a", "b", "c")
    hosts.deliver(0, 3)
    hosts.hosting.lose_worker("a")
    hosts.done()
    hosts.holds("k", (5, 7))
    hosts.holds("k", (0, 99))
    assert hosts.done() == [e.Commit(u.HoldUpdate(hosts.tasks[0].task, "k", ((5, 7),)))]
    hosts.holds("l", (3, 4))
    definition = hosts.messages(m.HostTask)[0].definition
    assert (definition.skip, hosts.tasks[0].worker) == (((0, 4), (5, 7)), "b")
    hosts.holds("l", (0, 99))
    assert hosts.done() == []


def test_an_orphan_waits_for_the_next_worker() -> None:
    """A task without any worker waits for the next worker, which gets it instead of a
    new task.
    """
    hosts = Hosts("k")
    hosts.add("a")
    hosts.out.commit(u.AssignSplitsUpdate(hosts.tasks[0].task, 0, Split(0, 0, 5)))
    hosts.hosting.lose_worker("a")
    hosts.holds("k")
    hosts.done()
    hosts.add("b")
    assert hosts.messages(m.HostTask)[0].definition.ledger == ((Split(0, 0, 5),),)
    assert len(hosts.tasks) == 1


def test_a_task_that_nobody_owes_gets_no_host() -> None:
    """An ended task whose elements living clients hold leaves the list, and returns
    when such a client dies.
    """
    hosts = Hosts("k", "l")
    hosts.add("a", "b")
    hosts.report("a", told(hosts.tasks[0], total=4))
    hosts.hosting.lose_worker("a")
    hosts.holds("k", (0, 2))
    hosts.holds("l", (2, 4))
    assert [place.task for place in hosts.hosting.lists.task_list(hosts.iteration, "k").tasks] == [
        hosts.tasks[1].task
    ]
    hosts.done()
    hosts.hosting.forget_client("l", hosts.iteration)
    assert [one.client for one in hosts.messages(m.RequestHoldings)] == ["k"]
    hosts.holds("k", (0, 2))
    assert hosts.messages(m.HostTask)[0].definition.skip == ((0, 2),)


def test_holdings_that_were_delivered_need_no_new_attempt() -> None:
    """A client that has reported all its elements may leave without a new attempt."""
    hosts = Hosts("k", "l")
    hosts.add("a", "b")
    hosts.hosting.lose_worker("a")
    hosts.holds("k")
    hosts.holds("l", (2, 4))
    hosts.deliver(2, 4)
    hosts.done()
    hosts.hosting.forget_client("l", hosts.iteration)
    done = hosts.done()
    assert [type(one) for one in done] == [e.Commit, m.ReleaseClient]
    assert done[1].delivered[hosts.tasks[0].task] == ((2, 4),)


def test_nobody_waits_for_the_answer_of_a_dead_client() -> None:
    """A fence ends when the last client without an answer is given up."""
    hosts = Hosts("k", "l")
    hosts.add("a", "b")
    hosts.hosting.lose_worker("a")
    hosts.holds("k")
    hosts.done()
    hosts.hosting.forget_client("l", hosts.iteration)
    assert len(hosts.messages(m.HostTask)) == 1


def test_what_a_worker_cannot_give_again_is_made_again() -> None:
    """An incomplete task begins a new attempt on any free worker."""
    hosts = Hosts("k")
    hosts.add("a")
    hosts.done()
    hosts.report("a", told(hosts.tasks[0], incomplete=True))
    done = hosts.done()
    assert m.DropTask(hosts.tasks[0].task, 1) in done
    assert hosts.tasks[0].attempt == 2


def test_a_copy_dies_with_its_worker() -> None:
    """A lost worker's task in mode OFF leaves the iteration, which closes as soon as
    every client has read the rest.
    """
    hosts = Hosts("k", mode="OFF")
    hosts.add("a", "b")
    hosts.report("b", told(hosts.tasks[1], total=3))
    hosts.report("b", told(hosts.tasks[1], total=3, incomplete=True))
    hosts.hosting.lose_worker("a")
    assert not hosts.iteration.closed
    hosts.hosting.close_copies(hosts.iteration)
    assert hosts.iteration.closed
    assert [place.task for place in hosts.hosting.lists.task_list(hosts.iteration, "k").tasks] == [
        hosts.tasks[1].task
    ]


def test_the_list_closes_when_a_new_task_would_find_nothing() -> None:
    """An iteration adds no task once a task has ended with no split left, or all tasks
    have ended.
    """
    hosts = Hosts("k")
    hosts.add("a", "b")
    hosts.report("a", told(hosts.tasks[0], total=0))
    assert not hosts.iteration.closed
    hosts.out.commit(u.AssignSplitsUpdate(hosts.tasks[1].task, 0, Split(0, 0, 10)))
    hosts.hosting.close_if_ended(hosts.iteration)
    assert hosts.iteration.closed
    assert hosts.messages(m.TasksChanged)[-1].task_list.closed


def test_settled_tasks_are_dropped() -> None:
    """A fully delivered task leaves the list and its worker, and the dispatcher forgets
    it.
    """
    hosts = Hosts("k")
    hosts.add("a", "b")
    task = hosts.tasks[1]
    hosts.out.commit(u.DeliverUpdate(task.task, ((0, 2),)))
    hosts.report("b", told(task, total=2))
    hosts.done()
    hosts.report("b", told(task, total=2))
    assert hosts.messages(m.DropTask) == [m.DropTask(task.task, 1)]
    assert hosts.hosting.facts["b"].tasks == set()
    hosts.hosting.lose_worker("b")
    assert hosts.hosting.holdings.waiting == {}


def test_a_settled_task_in_the_hands_of_a_worker_that_dies_stays_settled() -> None:
    """A settled task of a lost worker stays settled, without questions and without a
    new host.
    """
    hosts = Hosts("k")
    hosts.add("a")
    hosts.deliver(0, 2)
    hosts.report("a", told(hosts.tasks[0], total=2))
    hosts.hosting.facts["a"].tasks.add(hosts.tasks[0].task)
    hosts.done()
    hosts.hosting.lose_worker("a")
    assert hosts.done() == [e.Commit(u.RemoveWorkerUpdate("a"))]


def test_nothing_is_kept_of_a_collected_iteration() -> None:
    """Fences, holdings and versions are removed with their iteration."""
    hosts = Hosts("k")
    hosts.add("a")
    hosts.hosting.lose_worker("a")
    hosts.done()
    hosts.hosting.lists.tell(hosts.iteration)
    hosts.hosting.forget_iteration(hosts.iteration)
    hosts.out.commit(u.CollectIncarnationUpdate(1))
    hosts.hosting.ask_again()
    hosts.done()
    holdings = hosts.hosting.holdings
    assert (holdings.waiting, hosts.hosting.lists.versions) == ({}, {})


# --- static parts and target workers


def placed_at(hosts: Hosts) -> list[tuple[int | None, str]]:
    return [(task.shard, task.worker) for task in hosts.tasks]


def test_all_static_parts_exist_from_the_beginning() -> None:
    """An iteration creates a task for each configured worker at once, assigns tasks to
    present workers, and adds no more.
    """
    hosts = Hosts("k", mode="DATA", shards=("a", "b"))
    hosts.add("b", "other")
    hosts.hosting.staff(hosts.iteration)
    assert placed_at(hosts) == [(0, ""), (1, "b")]
    assert hosts.iteration.closed
    assert [
        place.worker for place in hosts.hosting.lists.task_list(hosts.iteration, "k").tasks
    ] == ["", "b"]
    hosts.add("a")
    assert placed_at(hosts) == [(0, "a"), (1, "b")]
    (definition,) = [
        one.definition for one in hosts.messages(m.HostTask) if one.definition.shard == 1
    ]
    assert (definition.num_shards, definition.ledger) == (2, ())


def test_a_part_whose_worker_does_not_come_goes_elsewhere() -> None:
    """Another worker makes a static part after the time to wait for its configured
    worker.
    """
    hosts = Hosts("k", mode="DATA", shards=("a", "b"))
    hosts.add("b")
    hosts.hosting.staff(hosts.iteration)
    hosts.hosting.adopt(1.0)
    hosts.hosting.adopt(10.9)
    assert placed_at(hosts) == [(0, ""), (1, "b")]
    hosts.hosting.adopt(11.0)
    assert placed_at(hosts) == [(0, "b"), (1, "b")]


def test_a_lost_part_is_continued_elsewhere() -> None:
    """A static part outlives its worker as a dynamic task does."""
    hosts = Hosts("k", mode="DATA", shards=("a", "b"))
    hosts.add("a", "b")
    hosts.hosting.staff(hosts.iteration)
    hosts.hosting.lose_worker("a")
    hosts.holds("k", (0, 3))
    assert placed_at(hosts) == [(0, "b"), (1, "b")]


def test_a_local_part_waits_for_its_reader() -> None:
    """A shard that must be read beside its worker waits while no client is there."""
    hosts = Hosts(mode="DATA", shards=("a", "b"), target="LOCAL", k="a")
    hosts.add("a", "b")
    hosts.hosting.staff(hosts.iteration)
    assert placed_at(hosts) == [(0, "a"), (1, "")]
    hosts.done()
    for seconds in (0.0, 10.0, 1000.0):
        hosts.hosting.adopt(seconds)
    assert hosts.done() == []
    assert hosts.iteration.failure is None


def test_a_local_part_without_its_worker_is_an_error_for_its_reader_alone() -> None:
    """A client beside a worker that stays away gets an error until it closes, and other
    clients read on.
    """
    hosts = Hosts(mode="DATA", shards=("a", "b"), target="LOCAL", k="a", l="b")
    hosts.add("a")
    hosts.hosting.staff(hosts.iteration)
    assert placed_at(hosts) == [(0, "a"), (1, "")]
    hosts.done()
    for seconds in (0.0, 9.0):
        hosts.hosting.adopt(seconds)
    assert hosts.done() == []
    for seconds in (10.0, 10.5):
        hosts.hosting.adopt(seconds)
        refused = hosts.messages(m.RequestRefused)
        assert [(one.request, one.error) for one in refused] == [("l", "UnavailableError")]
        assert "The worker of shard 1 of 2 of job job has been away for 10 s" in refused[0].text
    hosts.hosting.forget_client("l", hosts.iteration)
    hosts.done()
    hosts.hosting.adopt(11.0)
    assert hosts.done() == []
    assert hosts.iteration.failure is None


def test_a_local_part_waits_while_its_worker_makes_suspects() -> None:
    """A shard whose worker is reserved for suspects waits for it, however long that
    takes.
    """
    hosts = Hosts(mode="DATA", shards=("a", "b"), target="LOCAL", k="a", l="b")
    hosts.add("a", "b")
    hosts.hosting.placement.reserved = "b"
    hosts.hosting.staff(hosts.iteration)
    for seconds in (0.0, 100.0):
        hosts.hosting.adopt(seconds)
    assert hosts.messages(m.RequestRefused) == []
    assert placed_at(hosts) == [(0, "a"), (1, "")]
    hosts.hosting.resume_all()
    assert placed_at(hosts) == [(0, "a"), (1, "b")]


def test_a_suspect_local_part_does_not_wait_forever() -> None:
    """A reader of a suspect shard whose worker stays away gets an error."""
    hosts = Hosts(mode="DATA", shards=("a", "b"), target="LOCAL", k="a", l="b")
    hosts.add("a")
    hosts.hosting.staff(hosts.iteration)
    suspect = list(hosts.iteration.tasks.values())[1]
    hosts.hosting.out.commit(u.CountDeathUpdate(suspect.task, 1, "died"))
    hosts.done()
    for seconds in (0.0, 10.0):
        hosts.hosting.adopt(seconds)
    assert [one.request for one in hosts.messages(m.RequestRefused)] == ["l"]


def test_a_failed_iteration_leaves_no_task_behind() -> None:
    """All hosts of a failed iteration drop their tasks, and the error stays for later
    requests.
    """
    hosts = Hosts("k")
    hosts.add("a")
    hosts.done()
    hosts.hosting.fail(hosts.iteration, "InvalidArgumentError", "it can not be")
    assert [one.task for one in hosts.messages(m.DropTask)] == [hosts.tasks[0].task]
    assert hosts.iteration.live_tasks == []
    hosts.hosting.refuse_failed("k", hosts.iteration)
    assert hosts.messages(m.RequestRefused) == [
        m.RequestRefused("k", "InvalidArgumentError", "it can not be")
    ]


def test_a_task_that_cannot_run_fails_its_iteration() -> None:
    """A task that cannot run fails its iteration even if others can, and each reader
    gets the worker's report.
    """
    failure = encode_failure(FailedPreconditionError("HINT is needed"), 0, "tcp://a")
    hosts = Hosts("k", "l")
    hosts.add("a", "b")
    hosts.done()
    report = m.TaskReport(hosts.tasks[0].task, 1, 0, None, failure=failure)
    hosts.report("a", report)
    refused = hosts.messages(m.RequestRefused)
    assert refused == [
        m.RequestRefused(name, "FailedPreconditionError", "HINT is needed", failure)
        for name in "kl"
    ]
    assert hosts.iteration.live_tasks == []
    hosts.report("a", report)
    assert [type(one) for one in hosts.done()] == [m.DropTask]


def test_what_a_worker_cannot_say_fails_an_iteration_too() -> None:
    """The iteration fails with a decoding error if a worker reports invalid bytes as a
    failure.
    """
    hosts = Hosts("k")
    hosts.add("a")
    hosts.report("a", m.TaskReport(hosts.tasks[0].task, 1, 0, None, failure=b"nonsense"))
    assert [one.error for one in hosts.messages(m.RequestRefused)] == ["ProtocolError"]


def test_local_jobs_have_tasks_beside_their_clients() -> None:
    """A local job has tasks only on workers beside its clients, and each client is told
    of its own task.
    """
    hosts = Hosts(mode="OFF", target="LOCAL", k="a", l="b")
    hosts.add("a", "b", "c")
    assert [task.worker for task in hosts.tasks] == ["a", "b"]
    assert [
        place.worker for place in hosts.hosting.lists.task_list(hosts.iteration, "k").tasks
    ] == ["a"]
    hosts.hosting.staff(hosts.iteration)
    assert len(hosts.tasks) == 2


def test_a_worker_that_nobody_reads_from_loses_its_task() -> None:
    """A local copy ends with its client, and a local dynamic task moves to the
    remaining client's worker.
    """
    for mode, left in (("OFF", ["b"]), ("DYNAMIC", ["b", "b"])):
        hosts = Hosts(mode=mode, target="LOCAL", k="a", l="b")
        hosts.add("a", "b")
        hosts.hosting.forget_client("k", hosts.iteration)
        if mode == "DYNAMIC":
            hosts.holds("l")
        assert [task.worker for task in hosts.iteration.live_tasks] == left


def test_a_failed_iteration_gets_no_further_task() -> None:
    """A worker that joins after an iteration has failed gets no task of it."""
    hosts = Hosts("k")
    hosts.add("a")
    hosts.hosting.fail(hosts.iteration, "InvalidArgumentError", "it can not be")
    hosts.add("b")
    hosts.hosting.staff(hosts.iteration)
    assert hosts.iteration.live_tasks == []


def test_a_task_that_comes_out_otherwise_fails_its_job() -> None:
    """A host that ends before a client's elements, or at another total than the host
    before, fails the job for all readers.
    """
    for told, text in (
        (4, "ended after 4 elements when it was made again; clients already had 7"),
        (9, ""),
    ):
        hosts = Hosts("k")
        hosts.add("a", "b")
        hosts.hosting.lose_worker("a")
        hosts.holds("k", (0, 7))
        task = hosts.tasks[0]
        hosts.report(task.worker, m.TaskReport(task.task, task.attempt, told, told))
        refused = [
            one.text for one in hosts.messages(m.RequestRefused) if one.error == "DataLossError"
        ]
        assert (task.total, bool(refused)) == ((None, True) if text else (9, False))
        assert text in "".join(refused)
    hosts.report(task.worker, m.TaskReport(task.task, task.attempt, 10, 10))
    assert (
        "after 9 elements the first time, and after 10" in hosts.messages(m.RequestRefused)[0].text
    )


def test_copies_may_end_where_they_like() -> None:
    """A copy (OFF) may end anywhere as no host resumes it, and a second report of its
    end changes nothing.
    """
    hosts = Hosts("k", mode="OFF")
    hosts.add("a")
    task = hosts.tasks[0]
    for total in (4, 3):
        hosts.report("a", m.TaskReport(task.task, 1, total, total))
    assert (task.total, hosts.iteration.failure) == (4, None)


# --- leaving workers


def test_tasks_of_a_worker_that_will_leave_go_elsewhere() -> None:
    """The dispatcher fences each task of a leaving worker, asks clients for their
    elements, and moves the task to the other worker.
    """
    hosts = Hosts("k")
    hosts.add("w")
    hosts.hosting.staff(hosts.iteration)
    hosts.hosting.drain("w")
    assert hosts.tasks[0].worker == "w"
    hosts.add("v")
    hosts.done()
    hosts.hosting.drain("w")
    assert (hosts.tasks[0].attempt, hosts.tasks[0].worker) == (2, "")
    hosts.holds("k", (0, 3))
    assert hosts.tasks[0].worker == "v"
    hosts.hosting.drain("w")
    assert hosts.tasks[0].attempt == 2


def test_a_newcomer_takes_a_task_from_who_has_several() -> None:
    """A new worker takes a task from a worker with several tasks, and the iteration
    begins no other task.
    """
    hosts = Hosts("k")
    hosts.add("w", "v")
    hosts.hosting.lose_worker("w")
    hosts.holds("k")
    assert [task.worker for task in hosts.tasks] == ["v", "v"]
    hosts.add("x")
    last = hosts.tasks[-1]
    assert (last.worker, last.attempt) == ("", 2)
    hosts.hosting.record_holdings(m.HoldingsReported("k", last.task, last.attempt, ()))
    assert [task.worker for task in hosts.tasks] == ["v", "x"]
    hosts.add("y")
    assert [task.worker for task in hosts.tasks] == ["v", "x", "y"]


def test_a_worker_that_will_leave_gets_no_task() -> None:
    """A leaving worker gets no task, not even an unhosted task, and loses unread tasks
    without a successor.
    """
    hosts = Hosts("k")
    hosts.add("w", "v")
    assert [task.worker for task in hosts.tasks] == ["w", "v"]
    hosts.hosting.drain("v")
    hosts.holds("k")
    hosts.hosting.lose_worker("w")
    hosts.holds("k")
    hosts.hosting.staff(hosts.iteration)
    assert "v" not in {task.worker for task in hosts.tasks[:1]}
    hosts.hosting.forget_client("k", hosts.iteration)
    hosts.hosting.drain("v")
    assert [task.worker for task in hosts.tasks] == ["", ""]


def test_a_copy_stays_with_the_worker_that_will_leave() -> None:
    """A leaving worker in mode OFF keeps its copy, as no other worker can resume it."""
    hosts = Hosts("k", mode="OFF")
    hosts.add("w", "v")
    hosts.hosting.staff(hosts.iteration)
    hosts.hosting.drain("w")
    assert {task.worker for task in hosts.tasks} == {"w", "v"}


def test_a_shard_beside_its_client_stays() -> None:
    """A leaving worker keeps a local shard, as only its client reads it."""
    hosts = Hosts(mode="DATA", shards=("w", "v"), target="LOCAL", k="w", l="v")
    hosts.add("w", "v")
    hosts.hosting.staff(hosts.iteration)
    hosts.hosting.drain("w")
    assert [task.worker for task in hosts.tasks] == ["w", "v"]


def test_a_task_between_two_hosts_is_asked_about_in_the_next_life() -> None:
    """A restarted dispatcher asks the clients repeatedly what they hold of a task
    between two hosts, and then hosts it.
    """
    hosts = Hosts("k")
    hosts.add("a")
    task = hosts.tasks[0]
    hosts.out.commit(u.HostTaskUpdate(task.task, 2, ""))
    hosts.done()
    hosts.hosting = Hosting(hosts.out, hosts.workers, hosts.clients, Placement(Listed()))
    hosts.hosting.resume()
    for _ in range(2):
        hosts.hosting.ask_again()
        assert hosts.messages(m.RequestHoldings) == [m.RequestHoldings("k", task.task, 2)]
    hosts.holds("k", (0, 3))
    assert (task.worker, task.attempt) == ("a", 2)
    assert task.held["k"].ranges == ((0, 3),)


def test_holdings_of_another_attempt_do_not_count() -> None:
    """The dispatcher ignores a late answer about another attempt or a removed task."""
    hosts = Hosts("k")
    hosts.add("a")
    task = hosts.tasks[0]
    for late in (
        m.HoldingsReported("k", task.task, 7, ((0, 3),)),
        m.HoldingsReported("k", 1, 1, ((0, 3),)),
    ):
        hosts.hosting.record_holdings(late)
    assert task.held == {}


# --- a fixed number of tasks


def test_a_fixed_number_of_tasks_is_shared_evenly() -> None:
    """All tasks of a promised order exist at once, and a worker that joins takes its
    share of them.
    """
    hosts = Hosts("k", num_tasks=4)
    hosts.hosting.staff(hosts.iteration)
    assert [(task.shard, task.worker) for task in hosts.tasks] == [
        (0, ""),
        (1, ""),
        (2, ""),
        (3, ""),
    ]
    assert hosts.iteration.closed
    hosts.add("a")
    assert [task.worker for task in hosts.tasks] == ["a"] * 4
    hosts.add("b")
    for task in hosts.tasks:
        hosts.hosting.record_holdings(m.HoldingsReported("k", task.task, task.attempt, ()))
    assert sorted(task.worker for task in hosts.tasks) == ["a", "a", "b", "b"]
    assert [task.attempt for task in hosts.tasks if task.worker == "b"] == [2, 2]


def test_a_promised_order_has_the_same_seeds_in_every_life() -> None:
    """The seeds of tasks of a promised order follow from the seed of their iteration
    alone.
    """
    seeds = []
    for life in (1, 2):
        hosts = Hosts("k", num_tasks=3)
        hosts.out.state.life = life
        hosts.hosting.staff(hosts.iteration)
        seeds.append([task.seed for task in hosts.tasks])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3


# --- copies


def test_a_worker_that_joins_late_begins_a_copy_while_others_are_read() -> None:
    """The list of copies is open until every copy was delivered, whether or not all of
    them are made.
    """
    hosts = Hosts("k", mode="OFF")
    hosts.add("a")
    hosts.report("a", told(hosts.tasks[0], total=3))
    hosts.add("b")
    assert [task.worker for task in hosts.tasks] == ["a", "b"]
    hosts.report("b", told(hosts.tasks[1], total=0))
    assert not hosts.iteration.closed
    hosts.deliver(0, 3)
    hosts.hosting.settle(hosts.tasks[0])
    assert hosts.iteration.closed
    hosts.add("c")
    assert len(hosts.tasks) == 2


def test_only_workers_beyond_the_copies_of_a_state_begin_new_ones() -> None:
    """Each copy of a state counts as that of a worker, though it has ended or shares
    its worker with another copy.
    """
    hosts = Hosts("k", mode="OFF")
    for number in (1, 2, 3):
        hosts.out.commit(u.CreateTaskUpdate(number, 2000, 7, None, number))
    hosts.out.commit(u.EndTaskUpdate(1, 0))
    hosts.add("a", "b", "c")
    assert [task.worker for task in hosts.tasks] == ["", "a", "a"]
    hosts.add("d")
    assert [task.worker for task in hosts.tasks] == ["", "a", "a", "d"]


def test_a_worker_begins_three_copies_at_most() -> None:
    """A worker whose process dies again and again begins a copy three times, so that it
    ends.
    """
    hosts = Hosts("k", mode="OFF")
    for life in range(5):
        name = f"life-{life}"
        hosts.workers.hear(name, name, 0.0)
        hosts.hosting.add_worker(name, WorkerFacts("tcp://w", (), "3.11"))
        hosts.hosting.lose_worker(name)
    assert len(hosts.tasks) == MOST_COPIES == 3


def test_a_worker_that_lives_begins_a_copy_each_time_it_is_found_again() -> None:
    """A worker that was lost without having died, because it did not hear the
    dispatcher, begins copies without a limit: otherwise its job would wait for good.
    """
    hosts = Hosts("k", mode="OFF")
    for _ in range(MOST_COPIES + 2):
        hosts.workers.hear("lives", "lives", 0.0)
        hosts.hosting.add_worker("lives", WorkerFacts("tcp://w", (), "3.11"))
        hosts.hosting.lose_worker("lives")
    assert len(hosts.tasks) == MOST_COPIES + 2
