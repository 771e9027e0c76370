"""Test the client's decider."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.decider import LINK_PATIENCE, SETTLE, ClientCore, ClientProfile
from zmqdata.core.client.leaving import COPIES_PATIENCE
from zmqdata.core.client.quarantine import PATIENCE
from zmqdata.core.credit import FIRST_ELEMENTS, FIRST_SHARED

JOB = m.JobParameters("job", "dataset", "DYNAMIC")
D = e.DISPATCHER


def place(task: int = 1, attempt: int = 1, worker: str = "w") -> m.TaskPlace:
    return m.TaskPlace(task, attempt, worker, worker)


class Reader(Transcript):
    """A consumer core that opens a link to worker ``w`` as soon as it has a task."""

    core: ClientCore

    def __init__(
        self, *places: m.TaskPlace, closed: bool = False, opened: bool = True, **profile: Any
    ) -> None:
        job = profile.pop("job", JOB)
        super().__init__(ClientCore(ClientProfile("me", job, 0, "tcp://d:1", **profile)))
        self.number = 0
        self.link = "me-1"
        if opened:
            self.feed(e.Tick())
            self.hear(D, m.IterationOpened("me", 7, m.TaskList(1, places, closed)))
            self.hear("w", m.LinkOpened("me-1", "tcp://x", "secret"))

    def list(self, version: int, *places: m.TaskPlace, closed: bool = False) -> None:
        self.hear(D, m.TasksChanged("me", m.TaskList(version, places, closed)))

    def block(
        self, first: int, count: int = 2, task: int = 1, attempt: int = 1, skip: int = 0
    ) -> None:
        self.number += 1
        header = m.Block(self.number, task, attempt, first, count, skip, 10 * count)
        self.feed(e.Arrived(self.link, header, "content"))

    def end(self, total: int, task: int = 1, attempt: int = 1) -> None:
        self.number += 1
        self.feed(e.Arrived(self.link, m.EndOfTask(self.number, task, attempt, total)))

    def take(self, first: int, stop: int, task: int = 1, attempt: int = 1, size: int = 0) -> None:
        self.feed(e.PartsHandedOut((e.TakenElements(task, attempt, first, stop, size),)))

    def streams(self) -> list[m.StreamGrant]:
        return [stream for grant in self.all_of(m.Grant) for stream in grant.streams]


# --- what workers left out


def left_out(reader: Reader, number: int = 1) -> m.LeftOutElement:
    """Feed an element that task 1 has left out, and return it."""
    element = m.LeftOutElement(0, "/0", number, "map(f)", "ValueError: no")
    reader.number += 1
    reader.feed(e.Arrived(reader.link, m.ElementsLeftOut(reader.number, 1, 1, (element,))))
    return element


@pytest.mark.parametrize("count", [0, 2])
def test_a_client_awaits_what_an_ended_task_has_left_out(count: int) -> None:
    """If the list without a task overtakes what the task has left out, the client lists
    that and ends with the task's end. A task without elements may do so, too.
    """
    reader = Reader(place())
    if count:
        reader.block(0, count)
        reader.take(0, count)
    reader.hear(D, m.TasksChanged("me", m.TaskList(2, (), True, left_out_of={1: 1})))
    assert not reader.core.finished
    element = left_out(reader)
    assert reader.all_of(e.NoteLeftOut) == [e.NoteLeftOut(element)]
    reader.end(count)
    assert reader.core.finished


def test_a_client_does_not_await_for_long_what_a_lost_worker_has_left_out() -> None:
    """After two seconds the iteration ends without the reasons, and says how many
    elements are missing.
    """
    reader = Reader(place())
    reader.hear(D, m.TasksChanged("me", m.TaskList(2, (), True, left_out_of={1: 3})))
    reader.wait(PATIENCE - 0.1)
    assert not reader.core.finished
    reader.wait(0.2)
    assert reader.core.finished
    assert "ended without 3 elements" in reader.all_of(e.LogLine)[-1].text


def test_a_client_awaits_nothing_of_tasks_that_it_did_not_read_or_has_heard() -> None:
    """Elements that were left out delay no end if they were told in time, even by a
    task of which others hold elements, or belong to a task that the client never read.
    """
    reader = Reader(place())
    left_out(reader)
    reader.number += 1
    reader.feed(e.Arrived(reader.link, m.EndOfTask(reader.number, 1, 1, 0, 1, held=True)))
    reader.hear(D, m.TasksChanged("me", m.TaskList(2, (), True, left_out_of={1: 1, 5: 2})))
    assert reader.core.finished


# --- sharing


def test_a_client_that_shares_takes_what_its_loop_needs() -> None:
    """A client asks for two elements of each task at first if other clients read, too,
    and for more only once its loop waits although all of these have come.
    """
    reader = Reader(place())
    assert reader.streams()[-1].elements == FIRST_ELEMENTS
    shared = m.TaskList(2, (place(), place(2)), False, readers=("me", "other"))
    reader.hear(D, m.TasksChanged("me", shared))
    reader.all_of(m.Grant)
    assert reader.core.reading.tasks[2].window.grant[0] == FIRST_SHARED
    reader.wait(1.0)
    assert {one.task: one.elements for one in reader.streams()} == {1: FIRST_ELEMENTS, 2: 2}
    for first, elements in ((0, 3), (1, 6)):
        reader.block(first, count=1, task=2)
        reader.take(first, first + 1, task=2)
        assert reader.core.reading.tasks[2].window.grant[0] == elements


# --- opening


def test_an_iteration_is_asked_for_until_it_is_opened() -> None:
    """The client asks to open its iteration once a second until the dispatcher answers,
    and then sends heartbeats instead.
    """
    reader = Reader(opened=False)
    reader.wait(2.5)
    assert reader.all_of(m.OpenIteration) == [m.OpenIteration("me", JOB, 0)] * 3
    reader.hear(D, m.IterationOpened("somebody else", 7, m.TaskList(1, (), False)))
    assert not reader.core.opened
    reader.hear(D, m.IterationOpened("me", 7, m.TaskList(1, (), False)))
    reader.wait(1.0)
    assert reader.sent(m.ClientHeartbeat).task_version == 1


def test_nothing_is_read_before_a_client_hears_that_it_was_let_in() -> None:
    """A client without a lease opens no link and takes nothing, but reports that it
    holds nothing when the dispatcher asks.
    """
    reader = Reader(opened=False)
    reader.feed(e.Tick())
    reader.commands.clear()
    reader.list(5, place())
    assert reader.commands == []
    reader.hear(D, m.RequestHoldings("me", 1, 2))
    assert reader.sent(m.HoldingsReported).ranges == ()
    reader.hear(D, m.IterationOpened("me", 7, m.TaskList(4, (place(),), False)))
    assert reader.all_of(m.OpenLink) == [], (
        "attempt 1 may have given others what this client does not hold"
    )
    reader.list(5, place(attempt=2))
    assert reader.sent(m.OpenLink).client == "me"


@pytest.mark.parametrize("consumer", [None, 1])
def test_who_was_given_up_before_it_heard_that_it_was_let_in_joins_again(
    consumer: int | None,
) -> None:
    """A client given up before it was admitted joins again at once, as it holds
    nothing. It belongs to the iteration that its state began, and does not warn again.
    """
    reader = Reader(opened=False, resume=b"state", reader=m.Reader(consumer))
    reader.feed(e.Tick())
    assert reader.sent(m.OpenIteration).resume == b"state"
    give_up(reader)
    ask = reader.sent(m.OpenIteration)
    assert (ask.client, ask.iteration, ask.resume, ask.step, ask.former) == (
        "me.1",
        7,
        b"",
        0,
        "me",
    )
    give_up(reader)
    assert reader.commands == []
    reader.hear(D, m.IterationOpened("me.1", 7, m.TaskList(1, (place(),), False)))
    assert reader.core.opened
    assert reader.sent(m.OpenLink).client == "me.1"


def test_who_is_given_up_again_and_again_keeps_its_step() -> None:
    """A numbered consumer that is given up repeatedly keeps the step below which it has
    everything, whatever it heard since.
    """
    reader = numbered(step=5)
    give_up(reader)
    reader.wait(SETTLE)
    reader.commands.clear()
    give_up(reader, "me.1")
    ask = reader.sent(m.OpenIteration)
    assert (ask.client, ask.iteration, ask.step, ask.former) == ("me.2", 7, 5, "me.1")


def test_who_joins_again_in_vain_is_patient_for_no_longer_than_others() -> None:
    """A client that joins again gives a silent dispatcher up after the usual
    time-out.
    """
    reader = Reader(opened=False, dispatcher_timeout=30.0)
    reader.feed(e.Tick())
    give_up(reader)
    reader.wait(29.0)
    assert not reader.all_of(e.Finish)
    reader.wait(2.0)
    assert reader.sent(e.Finish).error == "UnavailableError"


def joined(delivered: int, finished: bool, shared: bool) -> list[str]:
    """Return the messages to the user of a client that opens an iteration in this
    condition.
    """
    reader = Reader(opened=False)
    reader.feed(e.Tick())
    opened = m.IterationOpened(
        "me", 7, m.TaskList(1, (), False), delivered, finished, shared, how="follows"
    )
    reader.hear(D, opened)
    assert reader.all_of(e.LogLine) == [], "a state may be loaded before anything is read"
    reader.feed(e.Wanted())
    texts = [note.text for note in reader.all_of(e.LogLine) if note.level == "warning"]
    reader.hear(D, opened)
    assert reader.all_of(e.LogLine) == []
    return texts


def test_a_late_reader_is_told_what_is_gone() -> None:
    """The client warns its user once, with the remedy, when its job was read before."""
    (text,) = joined(5, True, True)
    assert "job 'job', repetition 0, incarnation 0: this client reads on with its run" in text
    assert "this repetition has ended before" in text
    assert "start the program again or use another job_name" in text
    (text,) = joined(5, False, False)
    assert "5 elements were delivered before, and this client receives only of the rest" in text


def test_readers_that_share_are_told_nothing() -> None:
    """The client warns neither when it is the first of an iteration nor when it joins
    others of its run, as no element is lost.
    """
    assert [joined(0, False, False), joined(5, False, True)] == [[], []]


def test_what_is_unknown_is_ignored() -> None:
    """The client ignores messages that are not meant for a client."""
    reader = Reader()
    reader.hear(D, m.DrainStarted("request", ()))
    assert reader.commands == []


def test_a_probe_is_answered() -> None:
    """The client answers a probe at once, unless it is leaving."""
    reader = Reader()
    reader.hear(D, m.Probe())
    assert reader.sent(m.ClientHeartbeat).client == "me"
    reader.feed(e.CloseRequested())
    reader.hear(D, m.Probe())
    assert reader.all_of(m.ClientHeartbeat) == []


def test_a_client_repeats_for_which_question_it_has_told_everything_again() -> None:
    """The heartbeat names the question by which the dispatcher asked for all that was
    handed out. A later question does not ask for that.
    """
    reader = Reader()
    asked, later = m.Question(5, 1), m.Question(5, 2)
    for probe in (m.Probe(asked, retells=True), m.Probe(later)):
        reader.hear(D, probe)
        beat = reader.sent(m.ClientHeartbeat)
        assert (beat.question, beat.retold) == (probe.question, asked)


@pytest.mark.parametrize("error", ["PermissionDeniedError", "VersionMismatchError"])
def test_who_is_not_heard_ends_the_iteration(error: str) -> None:
    """A client that the dispatcher does not hear ends its iteration at once with the
    reason, and sends no goodbye.
    """
    reader = Reader()
    reader.feed(e.ShutOut(error, "another key or version"))
    assert reader.sent(e.Finish) == e.Finish(error, "another key or version")
    reader.feed(e.CloseRequested())
    assert reader.all_of(e.Closed) == [e.Closed()]
    assert reader.all_of(m.CloseIteration) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_is_shut_out_says_no_goodbye(when: str) -> None:
    """A refused client closes at once, before or after the refusal and whatever it has
    not reported, as the dispatcher would not answer a goodbye.
    """
    reader = Reader(place())
    reader.block(0)
    reader.take(0, 2)
    refusal = m.RequestRefused("me", "PermissionDeniedError", "revoked")
    if when == "before":
        reader.hear(D, refusal)
        reader.feed(e.CloseRequested())
    else:
        reader.feed(e.CloseRequested())
        reader.hear(D, refusal)
    assert reader.all_of(e.Closed) == [e.Closed()]
    assert reader.all_of(m.CloseIteration) == []
    reader.wait(5.0)
    assert reader.commands == []


def at_the_end(alone: bool = False, free: bool = False, total: int = 5, **profile: Any) -> Reader:
    """Return a client that has handed out the two elements that it received of a
    task.
    """
    reader = Reader(opened=False, **profile)
    reader.feed(e.Tick())
    lease = m.Lease(13.5, alone, free)
    reader.hear(D, m.IterationOpened("me", 7, m.TaskList(1, (place(),), True), lease=lease))
    reader.hear("w", m.LinkOpened("me-1", "tcp://x", "secret"))
    reader.block(0)
    reader.take(0, 2)
    reader.end(total)
    return reader


def test_who_is_done_says_so_and_waits() -> None:
    """A client at the end reports at once and four times a second until the dispatcher
    says that nothing is owed.
    """
    reader = at_the_end()
    beat = reader.sent(m.ClientHeartbeat)
    assert (beat.done, beat.delivered) == (beat.beat, {1: ((0, 2),)})
    reader.wait(1.0)
    assert len(reader.all_of(m.ClientHeartbeat)) == 4
    assert not reader.core.finished
    reader.list(2, closed=True)
    assert reader.core.finished


def test_who_is_done_goes_when_another_one_stays() -> None:
    """A client at the end ignores answers to earlier reports and to other clients."""
    reader = at_the_end()
    beat = reader.sent(m.ClientHeartbeat).beat
    for answer in (m.MayEnd("me", beat - 1), m.MayEnd("somebody else", beat)):
        reader.hear(D, answer)
        assert not reader.core.finished
    reader.hear(D, m.MayEnd("me", beat))
    assert reader.core.finished


def test_what_comes_after_the_end_is_handed_out() -> None:
    """A client at the end reads the elements of a dead client on, and ignores an
    outdated answer to its first report.
    """
    reader = at_the_end()
    beat = reader.sent(m.ClientHeartbeat).beat
    reader.block(2, 3)
    reader.hear(D, m.MayEnd("me", beat))
    assert not reader.core.finished
    reader.take(2, 5)
    reader.end(5)
    assert reader.sent(m.ClientHeartbeat).done
    reader.hear(D, m.MayEnd("me", beat))
    assert not reader.core.finished


def test_without_a_dispatcher_the_end_comes_with_the_lease() -> None:
    """Without a dispatcher a lone client ends after a second, and other clients after a
    lease. They warn that a dead client may have held elements, unless the client has
    received all of them.
    """
    reader = at_the_end()
    reader.wait(13.0)
    assert not reader.core.finished
    reader.wait(1.0)
    assert reader.core.finished
    assert "held by readers that have died may be missing" in reader.all_of(e.LogLine)[-1].text
    assert "2 elements handed out here could not be reported" in reader.all_of(e.LogLine)[-1].text
    reader = at_the_end(alone=True)
    reader.wait(1.25)
    assert reader.core.finished
    assert "may be missing" in reader.all_of(e.LogLine)[-1].text
    reader = at_the_end(alone=True, total=2)
    reader.wait(1.25)
    assert reader.core.finished
    assert reader.all_of(e.LogLine) == []
    reader = at_the_end(dispatcher_timeout=5.0)
    reader.wait(5.25)
    assert reader.core.finished
    assert reader.all_of(e.Finish) == [e.Finish("", "")]


def test_a_stop_at_the_end_is_no_silence_of_the_dispatcher() -> None:
    """A client that was suspended at the end asks the dispatcher again before it
    ends.
    """
    reader = at_the_end()
    reader.now += 60.0
    reader.wait(1.0)
    assert not reader.core.finished


def test_where_nobody_is_given_what_another_holds_nobody_waits() -> None:
    """Readers of copies, shared caches and anonymous jobs end without waiting, as they
    never get the elements of others.
    """
    assert at_the_end(free=True).core.finished


def test_each_worker_gets_one_link() -> None:
    """Tasks at the same address share a link, and a task between two hosts needs no
    link.
    """
    reader = Reader(place(1), place(2), place(3, worker=""), place(4, worker="x"))
    reader.wait(1.0)
    assert {command.peer for command in reader.commands if isinstance(command, e.Send)} == {
        D,
        "w",
        "x",
    }
    assert [stream.task for stream in reader.sent(m.Grant).streams] == [1, 2]


def test_a_refusal_is_raised_at_the_users_call() -> None:
    """A refused client finishes with the error, and ignores refusals of other
    clients.
    """
    reader = Reader(opened=False)
    reader.hear(D, m.RequestRefused("other", "NotFoundError", "text"))
    assert not reader.commands
    reader.hear(D, m.RequestRefused("me", "NotFoundError", "text"))
    assert reader.sent(e.Finish) == e.Finish("NotFoundError", "text")


def test_a_pipelines_failure_comes_with_the_refusal() -> None:
    """A refusal brings the worker's whole report of a pipeline's failure to the
    training loop.
    """
    reader = Reader()
    reader.hear(D, m.RequestRefused("me", "PipelineError", "text", b"all of it"))
    assert reader.sent(e.Finish) == e.Finish("PipelineError", "text", b"all of it")


# --- elements


def test_a_block_is_delivered_and_its_credit_comes_back() -> None:
    """The client grants taken elements again at once when nothing is left, and widens
    its window.
    """
    reader = Reader(place())
    reader.block(0)
    assert [one.skip for one in reader.all_of(e.Deliver)] == [0, 1]
    reader.take(0, 1)
    assert reader.streams() == []
    reader.take(1, 2, size=20)
    assert reader.streams() == [m.StreamGrant(1, 1, 2 + 16, 20 + (2 << 20), 2)]


def test_a_block_that_came_before_is_dropped() -> None:
    """The client drops a block that a new link repeats."""
    reader = Reader(place())
    reader.block(0)
    reader.block(0)
    assert reader.commands == []
    reader.block(2, skip=1)
    assert reader.sent(e.Deliver).skip == 1


def test_blocks_of_other_attempts_and_tasks_are_dropped() -> None:
    """The client accepts blocks only of tasks in its list, and only of the listed
    attempt.
    """
    reader = Reader(place(attempt=2))
    reader.block(0, attempt=1)
    reader.block(0, attempt=3)
    reader.block(0, task=9)
    assert reader.all_of(e.Deliver) == []


def test_a_message_out_of_order_is_not_looked_at() -> None:
    """The client ignores a message behind a gap, as the link repairs the gap."""
    reader = Reader(place())
    reader.number = 5
    reader.block(0)
    assert reader.all_of(e.Deliver) == []


def test_deliveries_are_reported_until_they_are_counted() -> None:
    """Each heartbeat repeats unacknowledged deliveries, and grants say how far the
    dispatcher has counted them.
    """
    reader = Reader(place())
    reader.block(0, 4)
    reader.take(0, 2)
    reader.wait(1.0)
    assert reader.sent(m.ClientHeartbeat).delivered == {1: ((0, 2),)}
    reader.take(2, 4, size=40)
    reader.take(4, 4)
    reader.wait(1.0)
    beat = reader.sent(m.ClientHeartbeat)
    assert (beat.report, beat.delivered) == (2, {1: ((0, 4),)})
    reader.hear(D, m.ClientHeartbeatAnswered("me", 1, None))
    reader.wait(1.0)
    assert reader.sent(m.ClientHeartbeat).delivered == {1: ((2, 4),)}
    assert [(stream.handed_out, stream.reported) for stream in reader.streams()] == [(4, 2)]
    reader.hear(D, m.ClientHeartbeatAnswered("me", 2, m.TaskList(2, (place(attempt=2),), False)))
    reader.wait(1.0)
    assert (reader.sent(m.ClientHeartbeat).delivered, reader.core.task_list.version) == ({}, 2)


def test_an_acknowledged_report_of_an_old_attempt_counts_nothing() -> None:
    """An acknowledgement counts only for the attempt that it names."""
    reader = Reader(place())
    reader.block(0)
    reader.take(0, 2, size=20)
    reader.wait(1.0)
    reader.list(2, place(attempt=2))
    reader.hear(D, m.ClientHeartbeatAnswered("me", 1, None))
    reader.wait(1.0)
    assert [
        (stream.attempt, stream.handed_out, stream.reported) for stream in reader.streams()
    ] == [(2, 0, 0)]


# --- more than was granted


def reopen(reader: Reader, number: int) -> None:
    """Let the worker open the requested link that replaces a broken link."""
    reader.wait(1.25)
    reader.link, reader.number = f"me-{number}", 0
    assert reader.all_of(m.OpenLink)[-1].link == reader.link
    reader.hear("w", m.LinkOpened(reader.link, "tcp://x", "secret"))


def test_a_block_beyond_the_grant_breaks_its_link() -> None:
    """A block beyond the grant is not delivered and breaks its link. The worker may
    resend it on the next link once it has room.
    """
    reader = Reader(place())
    reader.block(0, 8)
    reader.block(8, 1)
    assert reader.all_of(e.Deliver) == []
    assert "although only 8 (" in reader.sent(e.LogLine).text
    assert reader.sent(e.DisconnectLink).link == "me-1"
    reader.take(0, 8, size=80)
    reopen(reader, 2)
    assert reader.streams()[-1].elements == 8 + 16
    reader.block(8, 1)
    assert reader.sent(e.Deliver).header.first == 8
    assert reader.core.reading.tasks[1].window.breaches == 0


def test_a_single_block_may_be_larger_than_any_window() -> None:
    """The client accepts a block of any size while nothing of its stream waits, also
    when a new link repeats it.
    """
    reader = Reader(place())
    reader.feed(e.LinkBroken("me-1", "reset"))
    reopen(reader, 2)
    reader.block(0, 1000)
    pieces = reader.all_of(e.Deliver)
    assert {one.header.count for one in pieces} == {1000}
    assert [n for one in pieces for n in range(one.skip, one.stop)] == list(range(1000))
    reader.block(1000, 1)
    assert reader.all_of(e.Deliver) == []


def test_the_window_of_a_new_host_is_its_own() -> None:
    """A new host has its own window: blocks of the former host do not count against it,
    and it sends nothing before its grant.
    """
    reader = Reader(place())
    reader.block(0, 1000)
    reader.list(2, place(attempt=2))
    reader.block(1000, 8, attempt=2)
    assert reader.sent(e.Deliver).header.first == 1000


def test_a_worker_that_goes_on_sending_too_much_ends_the_iteration() -> None:
    """After three excessive blocks in a row the training loop gets its remaining
    elements and then an error.
    """
    reader = Reader(place())
    reader.block(0, 8)
    for number in (2, 3):
        reader.block(8, 1)
        assert reader.all_of(e.Finish) == []
        reopen(reader, number)
    reader.block(8, 1)
    assert reader.sent(e.Finish).error == "DataLossError"
    assert "`w` repeatedly sends more than it was granted" in reader.sent(e.Finish).text


# --- tasks move


def test_a_fenced_task_is_left_at_once() -> None:
    """A client that is asked what it holds of a task reports all it received, and drops
    what the old host still sends.
    """
    reader = Reader(place())
    reader.block(0)
    reader.hear(D, m.RequestHoldings("me", 1, 2))
    assert reader.sent(m.HoldingsReported) == m.HoldingsReported("me", 1, 2, ((0, 2),))
    reader.block(2)
    assert reader.all_of(e.Deliver) == []


def test_elements_of_an_old_attempt_are_handed_out_and_reported() -> None:
    """Elements received before a task moved still count, but add no credit to its new
    stream.
    """
    reader = Reader(place())
    reader.block(0)
    reader.list(2, place(attempt=2))
    reader.take(0, 2, size=20)
    assert reader.streams() == []
    reader.wait(1.0)
    assert reader.sent(m.ClientHeartbeat).delivered == {1: ((0, 2),)}
    assert [(stream.attempt, stream.handed_out) for stream in reader.streams()] == [(2, 0)]


def test_a_late_list_does_not_bring_an_old_attempt_back() -> None:
    """A task that was fenced before any list named it begins with the new attempt."""
    reader = Reader()
    reader.hear(D, m.RequestHoldings("me", 1, 2))
    assert reader.sent(m.HoldingsReported).ranges == ()
    reader.list(2, place(attempt=1))
    assert reader.all_of(m.OpenLink) == []
    reader.list(3, place(attempt=2))
    assert len(reader.all_of(m.OpenLink)) == 1


def test_a_task_that_left_the_list_is_remembered() -> None:
    """A client reports what it holds of a task even after the task left the list, so
    that no element is delivered twice.
    """
    reader = Reader(place())
    reader.block(0)
    reader.list(2)
    reader.block(2)
    assert reader.all_of(e.Deliver) == []
    reader.hear(D, m.RequestHoldings("me", 1, 2))
    assert reader.sent(m.HoldingsReported).ranges == ((0, 2),)


def test_an_older_list_is_ignored() -> None:
    """The client ignores an older task list, as lists may overtake each other."""
    reader = Reader(place())
    reader.list(3, place(attempt=3))
    reader.list(2, place(attempt=9))
    assert reader.core.reading.tasks[1].place.attempt == 3


def test_an_ended_task_goes_on_with_a_new_attempt() -> None:
    """A task whose attempt had ended goes on with a new attempt if its host is lost
    afterwards.
    """
    reader = Reader(place(), closed=True)
    reader.block(0)
    reader.end(2)
    reader.list(2, place(attempt=2), closed=True)
    reader.take(0, 2, size=20)
    assert not reader.core.finished
    reader.end(2, attempt=2)
    assert reader.core.finished


# --- the end


def test_the_end_comes_when_everything_was_taken() -> None:
    """The client finishes, says goodbye and closes its links once the list is closed,
    all tasks have ended and nothing waits.
    """
    reader = Reader(place(), closed=True)
    reader.block(0)
    reader.end(2)
    assert reader.all_of(e.Finish) == []
    reader.take(0, 2, size=20)
    assert reader.sent(e.Finish) == e.Finish()
    assert reader.sent(m.CloseLink) == m.CloseLink("me-1")
    assert reader.sent(m.CloseIteration) == m.CloseIteration("me", 1, {1: ((0, 2),)}, at_end=True)


def test_no_end_before_the_list_is_closed() -> None:
    """The client waits while the list is open, as it may bring another task."""
    reader = Reader(place())
    reader.end(0)
    assert not reader.core.finished
    reader.list(2, place(), closed=True)
    assert reader.core.finished


def test_a_block_after_the_end_of_its_task_is_waited_for() -> None:
    """The client waits for blocks of a dead client that come after the end of their
    task, and for the repeated end.
    """
    reader = Reader(place(), place(2), closed=True)
    reader.end(2)
    reader.block(0)
    reader.end(2, task=2)
    reader.take(0, 2, size=20)
    assert not reader.core.finished
    reader.end(2)
    assert reader.core.finished


def test_a_finished_client_takes_no_more_tasks() -> None:
    """A finished client opens no task, whatever lists it receives."""
    reader = Reader(closed=True)
    assert reader.core.finished
    reader.list(2, place())
    assert reader.all_of(m.OpenLink) == []


def test_the_goodbye_is_repeated_until_it_is_heard() -> None:
    """A finished client repeats its last report until it is acknowledged, and then
    closes without delay.
    """
    reader = Reader(closed=True)
    reader.wait(2.0)
    assert len(reader.all_of(m.CloseIteration)) >= 3
    reader.hear(D, m.IterationClosed("somebody else"))
    reader.hear(D, m.IterationClosed("me"))
    reader.wait(2.0)
    assert reader.commands == []
    reader.feed(e.CloseRequested())
    assert reader.commands == [e.Closed()]
    reader.feed(e.CloseRequested())
    assert reader.commands == []


def test_a_client_reads_on_after_its_dispatcher_has_closed_for_good() -> None:
    """The client takes what workers still send, also beyond its lease. It ends with an
    error once nothing has come for a second, and says no goodbye.
    """
    reader = Reader(place())
    reader.core.lease.begin(m.Lease(2.0), 0.0, 0.0)
    reader.hear(D, m.DispatcherClosed())
    assert reader.core.lease.holds(100.0)
    for first in range(0, 10, 2):
        reader.wait(0.9)
        reader.block(first)
        reader.take(first, first + 2)
    reader.wait(0.9)
    assert not reader.core.finished
    reader.wait(1.0)
    [finish] = reader.all_of(e.Finish)
    assert finish.error == "UnavailableError"
    assert "The dispatcher at tcp://d:1 has closed before the end of job 'job'" in finish.text
    assert reader.all_of(m.CloseIteration) == []


def test_a_client_that_was_not_let_in_ends_with_its_dispatcher() -> None:
    """A client that has no iteration yet ends with an error when its dispatcher closes
    for good.
    """
    reader = Reader(opened=False)
    reader.hear(D, m.DispatcherClosed())
    reader.wait(2.0)
    assert reader.sent(e.Finish).error == "UnavailableError"


def test_no_goodbye_is_repeated_after_the_dispatcher_has_closed() -> None:
    """A goodbye ends at once, in silence, when the dispatcher closes for good."""
    for is_first in (False, True):
        reader = Reader(place(), closed=True)
        reader.block(0)
        reader.take(0, 2)
        reader.end(2)
        if is_first:
            reader.feed(e.CloseRequested())
        reader.hear(D, m.DispatcherClosed())
        if not is_first:
            assert reader.commands == []
            reader.feed(e.CloseRequested())
        assert reader.commands == [e.Closed()]
        reader.wait(5.0)
        assert reader.commands == []


def test_closing_early_says_goodbye_without_an_end() -> None:
    """A closed iterator returns its elements at once, and ends when the dispatcher has
    acknowledged its goodbye.
    """
    reader = Reader(place())
    reader.block(0, 4)
    reader.take(0, 1)
    reader.feed(e.CloseRequested())
    assert reader.all_of(e.Finish) == []
    assert reader.sent(m.CloseIteration).delivered == {1: ((0, 1),)}
    reader.block(4)
    assert reader.all_of(e.Deliver) == []
    reader.hear(D, m.IterationClosed("me"))
    assert reader.commands == [e.Closed()]


def test_closing_does_not_wait_for_a_silent_dispatcher() -> None:
    """A closing client gives up its goodbye after two seconds without an answer."""
    reader = Reader(place())
    reader.feed(e.CloseRequested())
    reader.wait(1.5)
    assert reader.all_of(e.Closed) == []
    reader.wait(1.0)
    assert reader.sent(e.Closed)
    reader.wait(1.0)
    assert reader.commands == []


def test_a_last_report_is_told_for_as_long_as_it_takes() -> None:
    """The client repeats its last report in the background, as other readers would
    otherwise get its elements again.
    """
    reader = Reader(place())
    reader.block(0, 3)
    reader.take(0, 3)
    reader.feed(e.CloseRequested())
    reader.wait(100.0)
    assert reader.all_of(e.Closed) == []
    assert reader.all_of(m.CloseIteration)[-1].delivered == {1: ((0, 3),)}
    reader.wait(210.0)
    assert reader.all_of(e.Closed) == [e.Closed()]


def test_closing_after_the_end_waits_for_the_goodbye() -> None:
    """A client that finished and is closed before its goodbye was acknowledged ends
    with that acknowledgement.
    """
    reader = Reader(closed=True)
    reader.feed(e.CloseRequested())
    assert reader.commands == []
    reader.hear(D, m.IterationClosed("me"))
    assert reader.commands == [e.Closed()]


def test_a_client_that_never_spoke_closes_at_once() -> None:
    """A client that never sent a message closes at once, as the dispatcher does not
    know it.
    """
    reader = Reader(opened=False)
    reader.feed(e.CloseRequested())
    assert reader.commands == [e.Closed()]


# --- silence


def test_a_silent_dispatcher_is_told_of_and_then_given_up() -> None:
    """After 5 s of silence the client logs it, and after the time-out the user gets an
    error that says what to check.
    """
    reader = Reader(opened=False, dispatcher_timeout=30.0)
    reader.wait(12.0)
    assert "no answer from the dispatcher at tcp://d:1" in reader.all_of(e.LogLine)[0].text
    reader.wait(20.0)
    assert reader.sent(e.Finish).error == "UnavailableError"


def test_waiting_is_explained() -> None:
    """A client without elements for 10 s logs what it waits for."""

    def said(*places: m.TaskPlace, closed: bool = False, workers: int = 0) -> str:
        reader = Reader(*places, closed=closed)
        texts = []
        idle = m.IdleWorkers(workers, 0)
        for _ in range(24):
            reader.hear(D, m.ClientHeartbeatAnswered("me", 0, None, idle=idle))
            reader.wait(0.5)
            texts += [note.text for note in reader.all_of(e.LogLine) if note.level == "warning"]
        return texts[0]

    assert "no worker is registered" in said()
    assert "none of 2 registered workers may host it" in said(workers=2)
    assert "elements of worker w (silent for 10 s)" in said(place(), closed=True)
    assert "a worker to host the task that has further elements" in said(place(worker=""))


def test_who_has_gone_on_from_a_state_waits_for_nobodys_state() -> None:
    """A client that resumed from a state waits for elements like other clients once its
    iteration is open.
    """
    state = m.Checkpoint(
        m.CHECKPOINT_VERSION, JOB, "print", 0, 11, 0, m.Reader(1), "me", (), (), ()
    )
    reader = Reader(opened=False, reader=m.Reader(1), resume=m.encode_checkpoint(state))
    reader.feed(e.Tick())
    reader.hear(D, m.OpenAwaited("me", "the state of consumer 0"))
    plan = m.Plan((m.View(0, ((1, 0),)),), 8, {})
    reader.hear(D, m.IterationOpened("me", 7, m.TaskList(1, (place(),), False, plan)))
    texts = []
    for _ in range(24):
        reader.hear(D, m.ClientHeartbeatAnswered("me", 0, None))
        reader.wait(0.5)
        texts += [note.text for note in reader.all_of(e.LogLine)]
    assert "for elements" in texts[0]
    assert "worker w (silent for 10 s). Workers make the elements of all consumers" in texts[0]


def test_an_open_list_of_ended_tasks_waits_for_the_end() -> None:
    """The client waits for the end when all listed tasks have ended and the list is
    open.
    """
    reader = Reader(place())
    reader.end(0)
    texts = []
    for _ in range(24):
        reader.hear(D, m.ClientHeartbeatAnswered("me", 0, None))
        reader.wait(0.5)
        texts += [note.text for note in reader.all_of(e.LogLine) if note.level == "warning"]
    assert "the end of the iteration" in texts[0]


def test_a_worker_that_can_never_send_to_us_ends_the_job() -> None:
    """The client raises a final refusal of a link to its user, but waits after a
    refusal that is temporary or not its own.
    """
    reader = Reader(place())
    reader.hear("w", m.LinkRefused("me-1", "ResourceExhaustedError", "no port"))
    reader.hear("w", m.LinkRefused("you-1", "InvalidArgumentError", "over ipc only"))
    assert reader.all_of(e.Finish) == []
    reader.hear("w", m.LinkRefused("me-1", "InvalidArgumentError", "over ipc only"))
    assert reader.sent(e.Finish) == e.Finish("NotFoundError", "over ipc only")


def test_a_worker_that_does_not_let_us_in_any_more_ends_the_job() -> None:
    """A client that a worker stops admitting raises an error, as its elements would
    never come and no other message would say why.
    """
    reader = Reader(place())
    reader.hear("w", m.LinkRefused("me-1", "PermissionDeniedError", "no longer admitted"))
    assert reader.sent(e.Finish) == e.Finish("PermissionDeniedError", "no longer admitted")


def test_a_worker_without_a_port_is_not_waited_for_forever() -> None:
    """When no other elements come either, the error repeats the worker's reason and the
    remedy.
    """
    reader = Reader(place(), place(2, worker="x"))
    for second in range(60):
        reader.hear(D, m.ClientHeartbeatAnswered("me", 0, None))
        reader.hear("x", m.LinkRefused("me-2", "ResourceExhaustedError", "give it more"))
        if second == 20:
            reader.block(0)
        if second == 25:
            reader.take(0, 2)
        reader.wait(1.0)
        if reader.core.finished:
            break
    assert 0 <= second - 25 - LINK_PATIENCE <= 1
    finish = reader.sent(e.Finish)
    assert finish.error == "ResourceExhaustedError"
    assert (
        "`x` has refused a link for 30 s, and no element can be read from it without a link: give "
        "it more." in finish.text
    )


def test_time_in_which_we_were_stopped_is_no_refusal() -> None:
    """Time in which the client was suspended does not count as refusal, so it goes on
    waiting for a link.
    """
    reader = Reader(place(), place(2, worker="x"))

    def refused_for(seconds: int) -> bool:
        for _ in range(seconds):
            reader.hear("x", m.LinkRefused("me-2", "ResourceExhaustedError", "give it more"))
            reader.hear(D, m.ClientHeartbeatAnswered("me", 0, None))
            reader.wait(1.0)
        return reader.core.finished

    assert not refused_for(10)
    reader.now += 2 * LINK_PATIENCE
    assert not refused_for(15)
    assert refused_for(10)


def test_a_broken_link_is_replaced() -> None:
    """The client opens a new link that goes on after the last message."""
    reader = Reader(place())
    reader.block(0)
    reader.now = 5.0
    reader.feed(e.LinkBroken("me-1", "reset"))
    assert (reader.sent(m.OpenLink).replaces, reader.sent(m.OpenLink).have_through) == ("me-1", 1)


# --- numbered consumers


def numbered(step: int = 0, horizon: int = 8) -> Reader:
    """Return a consumer that reads only task 1, from a given step on."""
    reader = Reader(opened=False, reader=m.Reader(0))
    reader.feed(e.Tick())
    reader.feed(e.Wanted())
    plan = m.Plan((m.View(0, ((1, 0),)),), horizon, {})
    reader.hear(D, m.TasksChanged("me", m.TaskList(1, (place(),), False, plan)))
    assert reader.core.task_list.version == -1
    reader.hear(D, m.IterationOpened("me", 7, m.TaskList(1, (place(),), False, plan), step=step))
    assert [note.text for note in reader.all_of(e.LogLine)] == (
        [
            "job 'job', repetition 0, incarnation 0: this client begins the job; "
            f"consumer 0 continues at step {step}"
        ]
        if step
        else []
    )
    reader.hear("w", m.LinkOpened("me-1", "tcp://x", "secret"))
    return reader


def test_a_consumer_reports_its_step() -> None:
    """Heartbeats of a numbered consumer carry the step below which it has handed out
    everything, and no ranges.
    """
    reader = numbered(step=2)
    assert [stream.first for stream in reader.streams()] == [2]
    reader.block(2, 2)
    reader.take(2, 4)
    reader.wait(1.0)
    beat = reader.sent(m.ClientHeartbeat)
    assert (beat.steps, beat.delivered, beat.near) == (4, {}, 0)


def test_a_consumer_asks_on_before_it_is_at_the_horizon() -> None:
    """A numbered consumer reports once, at once, that it is near the horizon, and
    repeats it in each heartbeat until the horizon moves.
    """
    reader = numbered()
    reader.block(0, 8)
    reader.take(0, 4)
    assert reader.sent(m.ClientHeartbeat).near == 8
    reader.take(4, 5)
    assert reader.all_of(m.ClientHeartbeat) == []
    reader.wait(1.0)
    assert reader.sent(m.ClientHeartbeat).near == 8


def test_a_consumer_that_takes_much_reports_sooner() -> None:
    """A numbered consumer reports after some megabytes without waiting for a second to
    pass, unlike other clients.
    """
    for reader, soon in ((numbered(horizon=100), 1), (Reader(place()), 0)):
        reader.now += 0.2
        reader.block(0)
        reader.take(0, 1, size=5 << 20)
        assert len(reader.all_of(m.ClientHeartbeat)) == soon


def test_who_waits_for_another_consumer_is_told() -> None:
    """The client logs the number of the consumer that it waits for."""
    reader = numbered(horizon=0)
    plan = m.Plan((), 0, {}, (2, 3))
    reader.hear(D, m.TasksChanged("me", m.TaskList(2, (place(),), False, plan)))
    notes = []
    for _ in range(12):
        reader.wait(1.0)
        notes += [note.text for note in reader.all_of(e.LogLine)]
        reader.hear(D, m.ClientHeartbeatAnswered("me", 0, None))
    assert any("for consumer 2, 3 of this job, still without a client" in text for text in notes)


# --- its lease


def leased(alone: bool = False, **profile: Any) -> Reader:
    """Return a client with a lease of nine seconds that holds elements 0 to 3 and has
    handed out the first.
    """
    reader = Reader(opened=False, **profile)
    reader.feed(e.Tick())
    tasks = m.TaskList(1, (place(),), False)
    reader.hear(D, m.IterationOpened("me", 7, tasks, lease=m.Lease(9.0, alone)))
    reader.hear("w", m.LinkOpened("me-1", "tcp://x", "secret"))
    reader.block(0, 4)
    reader.take(0, 1)
    return reader


def beat(reader: Reader, alone: bool = False) -> None:
    """Answer the next heartbeat."""
    reader.wait(1.0)
    [said] = reader.all_of(m.ClientHeartbeat)
    reader.hear(
        D, m.ClientHeartbeatAnswered("me", said.report, None, said.beat, m.Lease(9.0, alone))
    )


def give_up(reader: Reader, client: str = "me") -> None:
    reader.hear(
        D,
        m.RequestRefused(client, "NotFoundError", "Unknown iteration client id me.", b"", True, 7),
    )


def test_a_lease_is_renewed_by_answers() -> None:
    """An answer renews the lease from the time of its heartbeat; without answers the
    client asks more often, and the lease ends.
    """
    reader = leased()
    beat(reader)
    assert reader.core.lease.until == 10.0
    reader.wait(9.0)
    assert not reader.core.lease.holds(reader.now)
    reader.wait(1.0)
    assert len(reader.all_of(m.ClientHeartbeat)) == 4


def test_heartbeats_say_whether_a_client_believes_to_be_alone() -> None:
    """Each heartbeat says whether the client believes that it reads alone, so the
    dispatcher need not rely on an answer that was lost.
    """
    reader = leased(alone=True)
    beat(reader)
    reader.wait(1.0)
    assert not reader.sent(m.ClientHeartbeat).alone
    assert leased(alone=True).core.lease.alone


def test_a_client_that_was_given_up_joins_again() -> None:
    """A client that was given up drops what it holds and joins the same iteration under
    another name, holding nothing.
    """
    reader = leased()
    give_up(reader)
    ask = reader.sent(m.OpenIteration)
    assert (ask.client, ask.iteration) == ("me.1", 7)
    assert reader.all_of(e.DropQueued)
    assert reader.sent(m.CloseLink).link == "me-1"
    assert (
        "3 elements that it held go to other clients, and so do 1 elements"
        in reader.sent(e.LogLine).text
    )
    reader.hear(
        D, m.IterationOpened("me.1", 7, m.TaskList(2, (place(),), False), 9, lease=m.Lease(9.0))
    )
    assert reader.sent(m.OpenLink).client == "me.1"
    assert not reader.all_of(e.LogLine)
    reader.hear("w", m.LinkOpened("me.1-1", "tcp://x", "secret"))
    reader.link, reader.number = "me.1-1", 0
    reader.block(4)
    assert {one.header.first for one in reader.all_of(e.Deliver)} == {4}
    reader.wait(1.0)
    assert reader.sent(m.ClientHeartbeat).delivered == {}


def test_what_was_said_to_the_former_name_does_not_count() -> None:
    """The client ignores answers, task lists, questions and goodbyes for its former
    name.
    """
    reader = leased()
    give_up(reader)
    for message in (
        m.IterationOpened("me", 7, m.TaskList(9, (place(),), False)),
        m.ClientHeartbeatAnswered("me", 1, m.TaskList(9, (), True), 1),
        m.TasksChanged("me", m.TaskList(9, (), True)),
        m.RequestHoldings("me", 1, 2),
    ):
        reader.hear(D, message)
        assert reader.commands == []
    give_up(reader)
    assert reader.commands == []
    assert not reader.core.opened


def test_a_client_that_finds_nothing_to_join_ends() -> None:
    """A client whose job was collected ends, as it must not read from the beginning
    again.
    """
    reader = leased()
    give_up(reader)
    reader.hear(D, m.RequestRefused("me.1", "NotFoundError", "Unknown iteration client id me.1"))
    assert reader.sent(e.Finish).error == "NotFoundError"


def test_a_consumer_that_was_given_up_asks_for_its_place() -> None:
    """A numbered consumer that was given up hands out nothing more, waits until all is
    acknowledged, and asks to go on behind that.
    """
    consumer = Reader(reader=m.Reader(consumer_index=1))
    consumer.core.reading.begin(7)
    give_up(consumer)
    assert consumer.commands == []
    assert not consumer.core.lease.holds(consumer.now)
    give_up(consumer)
    consumer.wait(SETTLE)
    assert consumer.all_of(e.DropQueued)
    ask = consumer.all_of(m.OpenIteration)[0]
    assert (ask.client, ask.iteration, ask.step, ask.former) == ("me.1", 7, 7, "me")
    assert any(
        "It continues at the step of its training loop" in note.text
        for note in consumer.all_of(e.LogLine)
    )


def test_a_consumer_whose_place_was_taken_ends() -> None:
    """A numbered consumer ends when another client has taken its place."""
    consumer = Reader(reader=m.Reader(consumer_index=1))
    give_up(consumer)
    consumer.wait(SETTLE)
    consumer.hear(
        D,
        m.RequestRefused("me.1", "FailedPreconditionError", "Consumer 1 is read by another client"),
    )
    assert consumer.sent(e.Finish).error == "FailedPreconditionError"


def test_what_is_here_before_an_error_is_handed_out() -> None:
    """The client hands out its remaining elements before an error without a lease, as a
    failed iteration gives no elements to others.
    """
    reader = leased()
    reader.hear(D, m.RequestRefused("me", "UnavailableError", "failed"))
    assert reader.sent(e.Finish).error == "UnavailableError"
    assert reader.core.lease.holds(1e9)


def test_without_a_lease_nothing_is_handed_out_before_giving_up() -> None:
    """A client that holds elements and hears nothing ends with the error, as other
    clients may have got its elements.
    """
    reader = leased(dispatcher_timeout=20.0)
    reader.wait(30.0)
    assert reader.all_of(e.DropQueued)
    assert reader.sent(e.Finish).error == "UnavailableError"
    assert any(
        "until it answers, no element is handed out" in note.text
        for note in reader.all_of(e.LogLine)
    )


def test_time_in_which_we_were_stopped_is_not_silence() -> None:
    """Time in which the client was suspended does not count as the dispatcher's
    silence, for example while a laptop is closed overnight.
    """
    reader = leased(dispatcher_timeout=20.0)
    beat(reader)
    reader.now += 30_000.0
    reader.feed(e.Tick())
    assert not reader.all_of(e.Finish)
    assert not reader.core.lease.holds(reader.now)
    assert reader.all_of(m.ClientHeartbeat)


def test_repeats_are_counted_and_told() -> None:
    """The client drops and counts repeated blocks and blocks of an outdated attempt."""
    reader = Reader(place())
    reader.block(0, 3)
    reader.block(0, 3)
    reader.list(2, place(attempt=2))
    reader.block(3, 2, attempt=1)
    assert not reader.all_of(e.Deliver)
    reader.wait(1.0)
    assert reader.sent(m.ClientHeartbeat).repeats == 5
    reader.feed(e.CloseRequested())
    assert reader.sent(m.CloseIteration).repeats == 5


# --- giving back


def test_a_request_to_give_back_is_answered_with_a_grant() -> None:
    """The client has the shell drop what the loop has not begun, and says in a grant
    what it keeps, also to a request that comes again.
    """
    reader = Reader(place())
    reader.block(0, 4)
    reader.commands.clear()
    reader.number += 1
    ask = m.TakeBackElements(reader.number, 1, 1, 1, keep=1)
    reader.feed(e.Arrived(reader.link, ask))
    assert reader.sent(e.DropUnbegun) == e.DropUnbegun(1, 1, 1, 3)
    reader.feed(e.UnbegunDropped(1, 1, 1, ((2, 4),)))
    assert [(one.recall, one.kept) for one in reader.streams()] == [(1, 2)]
    reader.wait(1.0)
    assert {(one.recall, one.kept) for one in reader.streams()} == {(1, 2)}
    assert reader.sent(m.ClientHeartbeat).given_back == 2


def test_only_the_present_attempt_may_ask_for_elements() -> None:
    """A host that has lost the task gets nothing back."""
    reader = Reader(place(attempt=2))
    reader.block(0, 4, attempt=2)
    reader.commands.clear()
    reader.number += 1
    reader.feed(e.Arrived(reader.link, m.TakeBackElements(reader.number, 1, 1, 1, keep=0)))
    assert reader.all_of(e.DropUnbegun) == []


def test_a_reader_of_copies_waits_until_no_copy_is_begun() -> None:
    """A client that has read a copy to its end says so at once, and ends when the list
    of copies is closed.
    """
    reader = Reader(opened=False, job=structs.replace(JOB, processing_mode="OFF"))
    reader.feed(e.Tick())
    lease = m.Lease(9.0, free=True)
    answer = m.IterationOpened("me", 7, m.TaskList(1, (place(),), False), lease=lease)
    reader.hear(D, answer)
    reader.hear("w", m.LinkOpened("me-1", "tcp://x", "secret"))
    assert reader.all_of(m.ClientHeartbeat) == []
    reader.end(0)
    assert reader.sent(m.ClientHeartbeat).done
    assert not reader.core.finished
    reader.list(2, closed=True)
    assert reader.core.finished


def test_a_reader_of_copies_does_not_wait_for_a_dead_dispatcher() -> None:
    """A client that has read a copy to its end ends after some seconds without an
    answer, as nothing of it is missing.
    """
    reader = Reader(opened=False, job=structs.replace(JOB, processing_mode="OFF"))
    reader.feed(e.Tick())
    opened = m.IterationOpened("me", 7, m.TaskList(1, (place(),), False), lease=m.Lease(60.0))
    reader.hear(D, opened)
    reader.hear("w", m.LinkOpened("me-1", "tcp://x", "secret"))
    reader.end(0)
    reader.wait(COPIES_PATIENCE - 0.5)
    assert not reader.core.finished
    reader.commands.clear()
    reader.wait(1.0)
    assert reader.core.finished
    assert not [one for one in reader.all_of(e.LogLine) if one.level == "warning"]


def test_a_client_that_reads_on_after_all_says_so_at_once() -> None:
    """A client that was done and gets elements tells the dispatcher, because others
    that are done wait for a reader that stays.
    """
    reader = at_the_end()
    assert reader.sent(m.ClientHeartbeat).done
    reader.commands.clear()
    reader.block(2, 3)
    assert not reader.sent(m.ClientHeartbeat).done


def test_the_grant_of_an_ended_task_goes_to_another_at_once() -> None:
    """A client with a limit grants another worker an element as soon as the task of the
    first has ended.
    """
    reader = Reader(
        place(), place(2, worker="x"), job=structs.replace(JOB, max_outstanding_requests=1)
    )
    reader.hear("x", m.LinkOpened("me-2", "tcp://y", "secret"))
    reader.commands.clear()
    reader.end(0)
    assert [(one.task, one.elements) for one in reader.streams()] == [(2, 1)]


# --- what functions print


@pytest.mark.parametrize("shows", [True, False])
def test_a_client_shows_what_functions_print_if_it_says_so(shows: bool) -> None:
    """A client asks workers for the lines of functions and shows them, or neither."""
    reader = Reader(opened=False, shows_task_log=shows)
    reader.feed(e.Tick())
    listed = structs.replace(place(), index=5)
    reader.hear(D, m.IterationOpened("me", 7, m.TaskList(1, (listed,), False)))
    assert reader.sent(m.OpenLink).shows_task_log == shows
    reader.hear("w", m.LinkOpened("me-1", "tcp://x", "secret"))
    lines = (m.TaskLine("hello"), m.TaskLine("no file", 30, "decode"))
    message = m.TaskLogged(1, 1, 1, lines, 7)
    reader.feed(e.Arrived("me-1", message))
    assert reader.all_of(e.ShowTaskLog) == ([e.ShowTaskLog("w", message)] if shows else [])
    reader.number = 1
    reader.block(0)
    assert reader.all_of(e.Deliver), "lines are numbered like all messages of a link"
