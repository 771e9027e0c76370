"""Test how the dispatcher assigns splits and lists files, and how it takes unstarted
splits back: from which task, for which task and by which reports.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.dispatcher.test_decider import Cluster
from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.dispatcher.saving import POLL_INTERVAL, RETRY
from zmqdata.core.dispatcher.splits import PATIENCE, Filling
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.splits import FIRST_CHUNK, ChunkSplits, FileSplits, IndexSplits, Split

A, B, C = "a", "b", "c"
FILES = FileSplits(("*.txt",), False, None)
CHUNKS = ChunkSplits("/a", "run")


# --- assigning


def test_a_repeated_ask_gets_the_same_splits() -> None:
    """The ledger grows once a worker has all of it. The dispatcher commits an entry
    before it sends it, and resends it on request.
    """
    cluster = Cluster()
    cluster.want(0)
    assert isinstance(cluster.commands[0], e.Commit)
    first = cluster.splits()
    assert first == (Split(0, 0, 1),)
    cluster.want(0)
    assert (cluster.splits(), cluster.all_of(e.Commit)) == (first, [])
    cluster.want(1)
    assert cluster.splits() == (Split(0, 1, 9),)
    cluster.want(0)
    assert cluster.splits() == (Split(0, 0, 1), Split(0, 1, 9))


def test_the_end_of_a_repetition_is_marked() -> None:
    """When all splits are handed out the ledger gets an end mark."""
    cluster = Cluster(IndexSplits(1))
    cluster.want(0)
    cluster.want(1)
    assert [split.is_end for split in cluster.splits()] == [True]


def test_asks_that_make_no_sense_are_ignored() -> None:
    """The dispatcher does not answer a request for a missing source or ledger
    position.
    """
    cluster = Cluster()
    cluster.want(5)
    assert cluster.commands == []
    cluster.want(0, source=3)
    assert cluster.commands == []


def test_who_does_not_host_a_task_gets_no_splits() -> None:
    """The dispatcher makes other workers, older attempts and hosts of settled tasks
    drop the task.
    """
    cluster = Cluster()
    cluster.want(0, worker="v")
    assert cluster.sent(m.DropTask) == m.DropTask(cluster.task, 1)
    cluster.want(0, attempt=0)
    assert cluster.sent(m.DropTask) == m.DropTask(cluster.task, 0)
    cluster.beat("w", m.TaskReport(cluster.task, 1, 0, 0))
    cluster.want(0)
    assert cluster.sent(m.DropTask) == m.DropTask(cluster.task, 1)


def test_no_task_gets_the_splits_of_another_in_a_promised_order() -> None:
    """A task of a job with a fixed number of tasks gets its own splits in order, and
    then the end, without a question to any other task.
    """
    cluster = Cluster(IndexSplits(4), busy=False)
    cluster.join("w")
    job = m.JobParameters("job", "dataset", "DYNAMIC", num_tasks=2)
    cluster.hear("k", m.OpenIteration("k", job, 0))
    got: list[Split] = []
    while not got or not got[-1].is_end:
        cluster.hear("w", m.RequestSplits("w", cluster.task, 1, 0, 0, len(got), 0, True))
        got += cluster.splits()
    taken = [index for split in got for index in range(split.start, split.stop, split.step)]
    assert taken == [0, 2]
    assert cluster.all_of(m.TakeBackSplits) == []


# --- chunks of a save in progress


def found(*names: str, more: bool = True, **changes: Any) -> e.ChunksFound:
    return e.ChunksFound(2000, 0, 0, names, more, **changes)


def test_chunks_are_looked_for_while_tasks_wait() -> None:
    """A look answers the waiting task with what is new. Until then it is repeated at an
    interval.
    """
    cluster = Cluster(CHUNKS)
    cluster.want(0)
    assert cluster.all_of(e.FindChunks) == [e.FindChunks(2000, 0, 0, CHUNKS)]
    cluster.want(0)
    assert cluster.commands == []
    cluster.feed(found())
    assert cluster.commands == []
    cluster.want(0)
    assert cluster.all_of(e.FindChunks) == []
    cluster.now += POLL_INTERVAL
    cluster.feed(e.Tick())
    assert cluster.all_of(e.FindChunks) == [e.FindChunks(2000, 0, 0, CHUNKS)]
    cluster.feed(found("chunk_0_0_3"))
    first = Split(0, FIRST_CHUNK, FIRST_CHUNK + 1, ("chunk_0_0_3",))
    assert cluster.splits() == (first,)
    cluster.now += POLL_INTERVAL
    cluster.want(1)
    cluster.feed(found("chunk_0_0_3", more=False))
    assert [split.is_end for split in cluster.splits()] == [True]


def test_a_look_that_fails_for_now_is_repeated() -> None:
    """An unreachable file system is logged and tried again later."""
    cluster = Cluster(CHUNKS)
    cluster.want(0)
    cluster.feed(found(text="the server is gone"))
    assert "the server is gone" in cluster.sent(e.LogLine).text
    cluster.now += RETRY
    cluster.feed(e.Tick())
    assert cluster.all_of(e.FindChunks) == [e.FindChunks(2000, 0, 0, CHUNKS)]


def test_a_save_that_can_not_be_read_is_an_error_at_the_client() -> None:
    """The error of a save, and a chunk with an impossible name, end the job."""
    for event, error in (
        (found(error="ValueError", text="a bad row", failure=b"encoded"), "ValueError"),
        (found("chunk_0_9999999999_3"), "DataLossError"),
    ):
        cluster = Cluster(CHUNKS)
        cluster.want(0)
        cluster.feed(event)
        refusal = cluster.sent(m.RequestRefused)
        assert (refusal.request, refusal.error, refusal.failure) == ("k", error, event.failure)


# --- files


def test_files_are_listed_once_for_all_who_ask() -> None:
    """The first request lists the files, later requests wait, and all get the names."""
    cluster = Cluster(FILES)
    cluster.want(0)
    assert cluster.commands == [e.FindFiles(2000, 0, 0, FILES)]
    cluster.want(0)
    assert cluster.commands == []
    cluster.feed(e.FilesListed(2000, 0, 0, ("b.txt", "a.txt")))
    assert cluster.all_of(e.Commit)[0].update == u.ListFilesUpdate(2000, 0, 0, ("a.txt", "b.txt"))
    assert cluster.splits() == (Split(0, 0, 1, ("a.txt",)),)


def test_missing_files_are_an_error_at_the_client() -> None:
    """A listing without match or with an error ends the job with NotFoundError for its
    present and later clients.
    """
    for error, text in (("", "no file matches"), ("disk is gone", "disk is gone")):
        cluster = Cluster(FILES)
        cluster.want(0)
        cluster.feed(e.FilesListed(2000, 0, 0, (), error))
        refused = cluster.sent(m.RequestRefused)
        assert (refused.request, refused.error) == ("k", "NotFoundError")
        assert text in refused.text
        cluster.all_of(object)
        cluster.hear(
            "late", m.OpenIteration("late", m.JobParameters("job", "dataset", "DYNAMIC"), 0)
        )
        assert cluster.sent(m.RequestRefused) == m.RequestRefused(
            "late", "NotFoundError", refused.text
        )
        cluster.feed(e.FilesListed(2000, 0, 0, ()))
        assert cluster.all_of(m.RequestRefused) == []


def test_files_of_a_job_that_was_collected_are_nobodys() -> None:
    """A listing that completes after its job was collected changes nothing."""
    cluster = Cluster(FILES)
    cluster.feed(e.FilesListed(9999, 0, 0, ("a",)))
    assert cluster.commands == []


# --- cuts


def test_an_ask_that_knows_of_another_cut_gets_no_splits() -> None:
    """A request with a later cut makes the dispatcher ask for the lost return again,
    and an outdated request gets no answer.
    """
    cluster = Cluster()
    cluster.hear("w", m.RequestSplits("w", cluster.task, 1, 0, 0, 0, 1))
    assert cluster.sent(m.TakeBackSplits) == m.TakeBackSplits(cluster.task, 1, 0, 1)
    assert cluster.all_of(m.SplitsAssigned) == []
    cluster.hear("w", m.RequestSplits("w", cluster.task, 1, 0, 0, 0, -1))
    assert cluster.commands == []


def test_nothing_is_given_behind_an_end() -> None:
    """Splits returned after a source got the end of a repetition are not assigned to
    it, as it would never read them.
    """
    cluster = Cluster()
    for split in (Split(0, 0, 100), Split(0, 100, 100)):
        cluster.core.out.commit(u.AssignSplitsUpdate(cluster.task, 0, split))
    cluster.core.state.iterations[2000].cursors[0].take_back([Split(0, 5, 6)])
    cluster.core.out.drain()
    cluster.want(2)
    assert cluster.all_of(m.SplitsAssigned) == []


def test_who_comes_to_the_end_waits_for_what_others_have_not_started() -> None:
    """Before the dispatcher tells the end, it asks the holders of unstarted splits to
    return them.
    """
    cluster = Cluster()
    cluster.core.out.commit(u.AssignSplitsUpdate(cluster.task, 0, Split(0, 0, 100)))
    cluster.core.out.drain()
    cluster.join("v")
    cluster.hear("v", m.RequestSplits("v", cluster.task + 1, 1, 0, 0, 0))
    assert cluster.sent(m.TakeBackSplits).task == cluster.task
    assert cluster.all_of(m.SplitsAssigned) == []


# --- taking back


class Pair(Transcript):
    """A dispatcher whose worker ``a`` has all splits except the first, which ``b`` has
    used up.
    """

    core: DispatcherCore

    def __init__(
        self, *more: str, count: int = 21, leased: bool = True, cardinality: int = -2
    ) -> None:
        super().__init__(DispatcherCore(1, DispatcherTimes()))
        description = m.DatasetDescription(
            "d" * 64, "print", (IndexSplits(count),), "", None, cardinality, None, "3.11", "0"
        )
        self.hear("k", m.RegisterDataset("request", "dataset", description, b"pipeline"))
        for name in (A, B, *more):
            self.hear(name, m.RegisterWorker(name, f"tcp://{name}:1", (), "3.11", "0", ()))
        self.hear("k", m.OpenIteration("k", m.JobParameters("job", "dataset", "DYNAMIC"), 0))
        if leased:
            self.give(B, Split(0, 0, 1))
            self.give(A, Split(0, 1, count))

    def task(self, worker: str) -> int:
        return next(task.task for task in self.core.state.tasks.values() if task.worker == worker)

    def ledger(self, worker: str) -> list[Split]:
        return self.core.state.tasks[self.task(worker)].ledger[0].entries

    def give(self, worker: str, split: Split) -> None:
        self.core.out.commit(u.AssignSplitsUpdate(self.task(worker), 0, split))
        self.core.out.drain()

    def want(
        self,
        worker: str,
        have: int | None = None,
        cut: int = 0,
        waiting: bool = True,
        repetition: int = 0,
        produced: int = 0,
        pace: float = 0.0,
    ) -> None:
        have = len(self.ledger(worker)) if have is None else have
        ask = m.RequestSplits(
            worker, self.task(worker), 1, 0, repetition, have, cut, waiting, pace, produced
        )
        self.hear(worker, ask)

    def keep(self, entries: int, stop: int, cut: int = 1, worker: str = A) -> None:
        self.hear(worker, m.SplitsReturned(worker, self.task(worker), 1, 0, cut, entries, stop))

    def given(self) -> list[tuple[object, tuple[Split, ...]]]:
        return [
            (command.peer, command.message.splits)
            for command in self.commands
            if isinstance(command, e.Send) and isinstance(command.message, m.SplitsAssigned)
        ]


def test_who_has_nothing_left_gets_what_others_have_not_started() -> None:
    """The dispatcher asks the holder and cuts its ledger before it assigns the waiting
    task its share of the returned splits.
    """
    pair = Pair()
    pair.want(B)
    assert pair.sent(m.TakeBackSplits) == m.TakeBackSplits(pair.task(A), 1, 0, 1)
    assert pair.given() == []
    pair.keep(1, 5)
    facts = [command.update for command in pair.commands if isinstance(command, e.Commit)]
    assert facts[0] == u.CutLedgerUpdate(pair.task(A), 0, 1, 1, 5)
    assert pair.ledger(A) == [Split(0, 1, 5)]
    assert pair.given() == [(B, (Split(0, 5, 6),))]
    assert pair.core.splits.taking_back.waiting == {}


def test_the_holder_gets_its_share_again() -> None:
    """Returned splits are handed out once like new splits to each task that asks, and
    then comes the end.
    """
    pair = Pair(count=9)
    pair.want(B)
    pair.keep(0, 0)
    got = [split for _, splits in pair.given() for split in splits]
    for produced in range(20):
        pair.want(A, cut=1, produced=produced)
        got += [split for _, splits in pair.given() for split in splits]
        if got[-1].is_end:
            break
    assert sorted(index for split in got for index in range(split.start, split.stop)) == list(
        range(1, 9)
    )


def test_an_ask_ahead_of_time_takes_nothing_from_others() -> None:
    """A request ahead of time gets no answer until splits are free or the source
    waits.
    """
    pair = Pair()
    pair.want(B, waiting=False)
    assert pair.commands == []
    pair.want(B)
    assert pair.all_of(m.TakeBackSplits)


def test_everything_started_means_the_end() -> None:
    """The dispatcher does not ask a holder without unstarted splits again before it
    gets more splits.
    """
    pair = Pair(C)
    pair.want(B)
    pair.keep(1, 21, cut=0)
    assert pair.given() == [(B, (Split(0, 21, 21),))]
    pair.want(C)
    assert pair.given() == [(C, (Split(0, 21, 21),))]


def test_a_holder_that_waits_itself_is_not_waited_for() -> None:
    """A holder that has used up its splits needs no question, and all get their end at
    once.
    """
    pair = Pair()
    pair.want(B)
    pair.want(A)
    assert sorted(pair.given()) == [(A, (Split(0, 21, 21),)), (B, (Split(0, 21, 21),))]
    pair.keep(1, 21, cut=0)
    assert pair.given() == []


def test_a_holder_that_has_more_by_now_is_waited_for() -> None:
    """An answer about fewer entries than the holder has says nothing about the rest."""
    pair = Pair()
    pair.want(B)
    pair.keep(0, 1, cut=0)
    assert pair.given() == []


def test_a_holder_that_does_not_answer_is_not_waited_for() -> None:
    """The dispatcher repeats its question and tells the end after a second; the holder
    itself gets back what it returns later.
    """
    pair = Pair()
    pair.want(B)
    pair.wait(PATIENCE / 2)
    assert pair.all_of(m.TakeBackSplits)
    assert pair.given() == []
    pair.wait(PATIENCE)
    assert pair.given() == [(B, (Split(0, 21, 21),))]
    pair.keep(1, 5)
    assert pair.given() == []
    pair.want(A, cut=1)
    assert pair.given()[0][1][0].start == 5


def test_all_who_wait_share() -> None:
    """Two tasks wait for the same holder, and a task that gets nothing then waits for
    tasks that got splits.
    """
    pair = Pair(C, count=3)
    pair.want(B)
    pair.want(C)
    assert (
        pair.all_of(m.TakeBackSplits) == []
    )  # A was asked just now, and B has started all its splits
    pair.keep(1, 2)
    assert pair.given() == [(B, (Split(0, 2, 3),))]
    pair.wait(0.5)
    assert pair.sent(m.TakeBackSplits).task == pair.task(B)
    pair.keep(2, 3, cut=0, worker=B)
    assert pair.given() == [(C, (Split(0, 3, 3),))]


def test_those_that_wait_are_not_looked_at_again_and_again() -> None:
    """The dispatcher answers waiting tasks in order up to the first for which no
    returned split is left.
    """
    names = [f"idle-{number}" for number in range(20)]
    pair = Pair(*names, count=3)
    for name in (B, *names):
        pair.want(name)
    asked: list[object] = []
    grant = pair.core.splits.taking_back._grant
    pair.core.splits.taking_back._grant = lambda peer, ask, now: (
        asked.append(peer),
        grant(peer, ask, now),
    )[1]
    pair.keep(1, 2)
    assert asked == [B, names[0]]


def test_a_cut_counts_once() -> None:
    """The dispatcher ignores repeated, late and invalid reports."""
    pair = Pair()
    pair.want(B)
    pair.keep(1, 5)
    pair.want(A, cut=1)
    ledger = pair.ledger(A)
    for entries, stop, cut in [
        (1, 5, 1),
        (0, 0, 1),
        (1, 3, 3),
        (9, 3, 2),
        (1, 99, 2),
        (1, 1, 2),
        (-1, 0, 2),
    ]:
        pair.keep(entries, stop, cut)
        assert pair.ledger(A) == ledger
    pair.hear(A, m.SplitsReturned(A, pair.task(A), 1, 7, 2, 0, 0))
    pair.hear(A, m.SplitsReturned(A, pair.task(A), 2, 0, 2, 0, 0))
    pair.hear(B, m.SplitsReturned(B, pair.task(A), 1, 0, 2, 0, 0))
    pair.hear(B, m.SplitsReturned(B, 99, 1, 0, 2, 0, 0))
    assert pair.ledger(A) == ledger


def test_a_cut_that_was_not_heard_of_is_asked_for() -> None:
    """A request that knows a later cut shows that the report was lost, and a request
    that knows fewer cuts is late.
    """
    pair = Pair()
    pair.want(A, have=1, cut=1)
    assert pair.sent(m.TakeBackSplits).cut == 1
    assert pair.given() == []
    pair.keep(1, 5)
    pair.want(A, have=1, cut=0)
    assert pair.commands == []


def test_a_new_attempt_counts_from_the_beginning() -> None:
    """The cuts of a new attempt begin at zero, as its worker knows none, and a task
    without a host stops waiting.
    """
    pair = Pair(C)
    pair.keep(1, 5)
    pair.want(B)
    pair.hear(A, m.WorkerStopped(A))
    task = next(
        task
        for task in pair.core.state.tasks.values()
        if task.ledger[0].entries[:1] == [Split(0, 1, 5)]
    )
    assert (task.attempt, task.cuts) == (2, {})
    pair.want(C, have=0)
    pair.hear(B, m.WorkerStopped(B))
    pair.wait(1.0)
    assert B not in {
        waiting.peer
        for alike in pair.core.splits.taking_back.waiting.values()
        for waiting in alike.values()
    }


def test_no_other_repetition_is_touched() -> None:
    """A task in a later repetition has passed the end of this repetition, whatever it
    has skipped.
    """
    pair = Pair()
    pair.give(A, Split(1, 0, 5))
    pair.want(B)
    assert pair.given() == [(B, (Split(0, 0, 0),))]


def test_nothing_is_remembered_of_tasks_that_are_gone() -> None:
    """The dispatcher forgets the waiting tasks and started splits of a removed
    iteration.
    """
    pair = Pair()
    pair.want(B)
    pair.keep(1, 5)
    state = pair.core.state
    pair.core.out.commit(u.CollectIncarnationUpdate(1))
    pair.core.hosting.placement.facts.clear()
    assert state.tasks == {}
    pair.wait(1.0)
    assert (pair.core.splits.taking_back.started, pair.core.splits.taking_back.waiting) == ({}, {})


# --- buffers that fill


def test_a_buffer_takes_no_more_than_its_share() -> None:
    """A task that has produced nothing gets half of the splits of two tasks. It gets
    more as soon as it produces, and after a second in any case.
    """
    for produces in (True, False):
        pair = Pair(count=100, leased=False)
        for _ in range(50):
            pair.want(A)
        assert taken(pair, A) == 50
        if not produces:
            pair.now += PATIENCE
        pair.want(A, produced=int(produces))
        assert taken(pair, A) > 50


def test_a_full_share_waits_only_while_splits_are_left() -> None:
    """A task that has its share and wants more learns that none are left as soon as the
    last one is handed out.
    """
    pair = Pair(count=4, leased=False)
    for _ in range(3):
        pair.want(A)
    assert taken(pair, A) == 2
    for _ in range(3):
        pair.want(B)
    assert taken(pair, A) == taken(pair, B) == 2
    assert pair.ledger(A)[-1].is_end
    assert pair.ledger(B)[-1].is_end


def test_a_buffer_takes_its_share_of_each_repetition() -> None:
    """The share counts anew in each repetition, whatever was produced before."""
    pair = Pair(count=100, leased=False)
    for _ in range(50):
        pair.want(B, produced=7)
        pair.want(A, produced=7)
    assert taken(pair, A) == taken(pair, B) == 50
    for _ in range(50):
        pair.want(A, repetition=1, produced=50)
    assert taken(pair, A) == 100


def test_a_single_task_may_take_everything() -> None:
    """A task that shares with no other gets all splits, whatever it has produced."""
    filling = Filling()
    ask = m.RequestSplits("w", 1, 1, 0, 0, 0)
    for count, tasks in ((100, 1), (None, 2)):
        assert filling.most(ask, count, tasks, 0.0) > 100
    assert filling.most(ask, 100, 2, 0.0) == 50
    filling.record_lease(ask, 50)
    assert filling.most(ask, 100, 2, 0.0) == 0
    filling.forget({2})
    assert filling.most(ask, 100, 2, 0.0) == 50


def taken(pair: Pair, worker: str) -> int:
    return sum(split.size for split in pair.ledger(worker))


# --- short repetitions without end

ENDLESS = INFINITE_CARDINALITY


def endless(count: int, cardinality: int = ENDLESS) -> Pair:
    """Return two tasks that have read a repetition of a source."""
    pair = Pair(count=count, leased=False, cardinality=cardinality)
    for _ in range(count + 3):
        for worker in (A, B):
            if not pair.ledger(worker) or not pair.ledger(worker)[-1].is_end:
                pair.want(worker)
    return pair


def passes(pair: Pair, worker: str) -> list[int]:
    """Return the repetition of each entry of a ledger, behind the first repetition; end
    marks are negative.
    """
    entries = [split for split in pair.ledger(worker) if split.repetition]
    return [-split.repetition if split.is_end else split.repetition for split in entries]


def test_short_repetitions_come_several_at_a_time() -> None:
    """A task gets its share of the next repetitions at once, each with its end. Another
    task gets the ends of these, and the repetitions behind them.
    """
    pair = endless(3)
    pair.want(A, repetition=1, pace=0.001)
    ahead = [1, -1, 2, -2, 3, -3, 4, -4]
    assert passes(pair, A) == ahead
    assert {split.size for split in pair.ledger(A)[-8:]} == {3, 0}
    assert pair.given()[-1][1] == tuple(pair.ledger(A)[-8:])
    pair.want(B, repetition=1, pace=0.001)
    assert passes(pair, B) == [-1, -2, -3, -4, 5, -5, 6, -6, 7, -7, 8, -8]


@pytest.mark.parametrize(
    ("changes", "cardinality"),
    [
        ({"pace": 0.1}, ENDLESS),
        ({"pace": 0.0}, ENDLESS),
        ({"waiting": False}, ENDLESS),
        ({}, 300),
    ],
    ids=["long", "of unknown pace", "ahead of time", "counted"],
)
def test_other_repetitions_come_one_at_a_time(changes: Any, cardinality: int) -> None:
    """A repetition that takes long, or that a known number follows, is handed out in
    the usual leases.
    """
    pair = endless(3, cardinality)
    pair.want(A, repetition=1, **{"pace": 0.001, **changes})
    assert passes(pair, A) == [1]


def test_what_is_taken_back_ahead_of_time_is_handed_out_again() -> None:
    """A worker that drains returns repetitions ahead of time, which the next task in
    them gets before any other split.
    """
    pair = endless(3)
    pair.want(A, repetition=1, pace=0.001)
    pair.keep(len(pair.ledger(A)) - 6, 3)
    assert passes(pair, A) == [1, -1]
    pair.want(B, repetition=1, pace=0.001)
    assert passes(pair, B) == [-1, 2, -2, 3, -3, 4, -4, 5, -5]
    pair.want(A, repetition=2, pace=0.001, cut=1)
    assert passes(pair, A)[2:6] == [-2, -3, -4, -5]
