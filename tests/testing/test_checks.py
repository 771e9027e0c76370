"""Facts about the laws themselves: each law catches a core that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.definitions import define
from tests.kit.checks import LawBroken, Laws
from tests.kit.runner import SimulatedPipeline
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core import events
from zmqdata.core.client import events as client_events
from zmqdata.core.client.decider import ClientCore, ClientProfile
from zmqdata.core.dispatcher import events as dispatcher_events
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.worker import events as worker_events
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.splits import IndexSplits, Split
from zmqdata.testing import Clock

PIPELINE = SimulatedPipeline(splits=3, most=1)
JOB = m.JobParameters("job", "dataset", "DYNAMIC")
DESCRIPTION = m.DatasetDescription(
    "digest", "print", (IndexSplits(3),), "", None, -2, None, "3.11", "0"
)


class Court:
    """Laws over a job with a single task, which worker ``w`` hosts and clients ``k``
    and ``l`` read.
    """

    def __init__(self, mode: str = "DYNAMIC") -> None:
        self.laws = Laws(1, Clock(), PIPELINE)
        self.dispatcher = DispatcherCore(1)
        self.worker = WorkerCore(WorkerProfile("w", "w"))
        self.client = ClientCore(ClientProfile("k", JOB, 0, "d"))
        self.commit(
            u.RegisterDatasetUpdate("dataset", DESCRIPTION),
            u.BeginIncarnationUpdate(1, m.JobParameters("job", "dataset", mode)),
            u.CreateIterationUpdate(2000, 1, 0, 1),
            u.OpenClientUpdate("k", 2000),
            u.OpenClientUpdate("l", 2000),
            u.CreateTaskUpdate(1, 2000, 1),
            u.HostTaskUpdate(1, 2, "w"),
        )

    def commit(self, *updates: u.Update) -> None:
        self.says(*[dispatcher_events.Commit(update) for update in updates])

    def says(self, *commands: Any) -> None:
        self.laws.check("dispatcher", self.dispatcher, events.Tick(), list(commands))

    def pushes(self, number: int, first: int, count: int = 1, size: int = 10) -> None:
        header = m.Block(number, 1, 2, first, count, 0, size)
        self.laws.check("w", self.worker, events.Tick(), [worker_events.Push("k-1", header)])

    def grants(self, elements: int, size: int, handed_out: int = 0) -> None:
        grant = m.Grant("k-1", 0, (m.StreamGrant(1, 2, elements, size, handed_out),))
        self.laws.check("w", self.worker, events.Received("k", grant), [])

    def client_says(self, command: Any) -> None:
        self.laws.check("k", self.client, events.Tick(), [command])

    def takes(self, client: str, first: int, stop: int, at: int = 0, alone: bool = False) -> None:
        names = tuple((0, first + at + n, 0) for n in range(stop - first))
        header = m.Block(1, 1, 2, first, stop - first, 0, 1)
        self.laws.handed_out(client, header, names, first, alone)


def test_attempts_only_grow() -> None:
    """A task may not return to an earlier attempt, nor change its host without a new
    attempt.
    """
    court = Court()
    court.commit(u.HostTaskUpdate(1, 3, ""), u.HostTaskUpdate(1, 3, "v"))
    for update in (u.HostTaskUpdate(1, 3, "w"), u.HostTaskUpdate(1, 2, "")):
        with pytest.raises(LawBroken, match="follows 3"):
            court.commit(update)


@pytest.mark.parametrize(
    "message",
    [
        m.HostTask(define(1, 9, 2000, "dataset", "digest", "DYNAMIC", 1, None, (), ())),
        m.SplitsAssigned(1, 2, 0, 0, (Split(0, 0, 1),)),
        m.IterationOpened("stranger", 2000, m.TaskList(0, (), False)),
        m.IterationClosed("k"),
        m.DatasetRegistered("request", "other"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_facts_are_written_before_they_are_told(message: m.Message) -> None:
    """A dispatcher commits a fact before it sends any message that reveals it."""
    with pytest.raises(LawBroken, match="revealed before it was committed"):
        Court().says(events.Send("peer", message))


def test_a_split_is_in_one_ledger() -> None:
    """A split may go to another task only after it was taken back, and no end may be
    reported before that.
    """
    court = Court()
    court.commit(u.CreateTaskUpdate(2, 2000, 1), u.AssignSplitsUpdate(1, 0, Split(0, 0, 3)))
    with pytest.raises(LawBroken, match="while 1 has"):
        court.commit(u.AssignSplitsUpdate(2, 0, Split(0, 2, 3)))
    court.commit(u.CutLedgerUpdate(1, 0, 1, 1, 2))
    with pytest.raises(LawBroken, match="told the end of repetition 0"):
        court.commit(u.AssignSplitsUpdate(2, 0, Split(0, 3, 3)))
    court.commit(
        u.AssignSplitsUpdate(2, 0, Split(0, 2, 3)), u.AssignSplitsUpdate(2, 0, Split(0, 3, 3))
    )


def test_nothing_is_handed_out_twice() -> None:
    """No element is delivered twice: by two clients, by one client, or after a lost
    client reported it.
    """
    court = Court()
    court.takes("k", 0, 2)
    with pytest.raises(LawBroken, match="handed out by k and again by l"):
        court.takes("l", 1, 2)
    court.commit(u.DeliverUpdate(1, ((0, 1),)), u.CloseClientUpdate("k"))
    court.takes("l", 1, 2)
    with pytest.raises(LawBroken, match="handed out by k and again by l"):
        court.takes("l", 0, 1)


def test_a_name_stands_for_one_element() -> None:
    """A repeated attempt must make the same element under the same number."""
    court = Court()
    court.takes("k", 0, 1)
    court.commit(u.CloseClientUpdate("k"))
    with pytest.raises(LawBroken, match="was"):
        court.takes("l", 0, 1, at=5)


def test_order_holds_while_nobody_leaves() -> None:
    """A client gets growing numbers within a task."""
    court = Court()
    court.takes("k", 2, 3)
    with pytest.raises(LawBroken, match="follows 2"):
        court.takes("k", 0, 1)


def test_what_the_dead_take_does_not_count() -> None:
    """A client that was given up, and cannot know that others read, delivers only for
    itself.
    """
    court = Court()
    court.commit(u.CloseClientUpdate("k"))
    court.takes("k", 0, 1, alone=True)
    court.takes("l", 0, 1)


def test_nobody_hands_out_without_a_lease() -> None:
    """A client that was given up, and knows that others read, has stopped before."""
    court = Court()
    court.commit(u.CloseClientUpdate("k"))
    with pytest.raises(LawBroken, match=r"k hands out .* without a lease"):
        court.takes("k", 0, 1)


def test_links_are_numbered_without_a_gap() -> None:
    """Message n + 1 follows message n."""
    court = Court()
    court.grants(9, 900)
    court.pushes(1, 0)
    with pytest.raises(LawBroken, match="message 3 on k-1 follows 1"):
        court.pushes(3, 1)


def test_credit_is_kept() -> None:
    """A worker may exceed its credit only for a client with nothing in flight, and a
    resent block needs no credit.
    """
    court = Court()
    court.grants(2, 100)
    court.pushes(1, 0, count=5, size=500)
    court.laws.numbers.clear()
    court.pushes(1, 0, count=5, size=500)
    with pytest.raises(LawBroken, match="with credit for 2, 100"):
        court.pushes(2, 5)


def test_memory_is_bounded() -> None:
    """The laws catch a worker that makes more than its buffer holds, and a worker that
    miscounts.
    """
    court = Court()
    definition = define(1, 2, 2000, "dataset", "digest", "DYNAMIC", 1, None, (), ())
    court.worker.handle(0.0, events.Received(events.DISPATCHER, m.HostTask(definition)))
    event = worker_events.Produced(1, 2, 0, 1, 10, b"", ())
    court.laws.check("w", court.worker, event, court.worker.handle(0.0, event))
    court.worker.tasks[1].dealing._pending_bytes = 11
    with pytest.raises(LawBroken, match="miscounted"):
        court.laws.check("w", court.worker, event, [])
    court.worker.tasks[1].dealing._pending_bytes = 1 << 30
    with pytest.raises(LawBroken, match="may hold"):
        court.laws.check("w", court.worker, event, [])
    court.laws.check("w", court.worker, worker_events.Produced(7, 2, 0, 1, 10, b"", ()), [])


def test_old_attempts_stay_behind() -> None:
    """A client that has answered for a new attempt neither takes nor grants for an
    older attempt.
    """
    court = Court()
    court.client_says(events.Send(events.DISPATCHER, m.HoldingsReported("k", 1, 3, ())))
    with pytest.raises(LawBroken, match="old attempt"):
        court.client_says(client_events.Deliver(m.Block(1, 1, 2, 0, 1, 0, 1), (), 0, 1))
    with pytest.raises(LawBroken, match="returns to attempt"):
        court.client_says(events.Send("w", m.Grant("k-1", 0, (m.StreamGrant(1, 2, 1, 1, 0),))))


def test_the_end_is_the_end() -> None:
    """A client that has finished gets no delivery."""
    court = Court()
    court.client.finished = True
    with pytest.raises(LawBroken, match="after the end"):
        court.client_says(client_events.Deliver(m.Block(1, 1, 2, 0, 1, 0, 1), (), 0, 1))


def test_everything_is_delivered_once() -> None:
    """The laws name a missing element and an unfinished task at the end."""
    court = Court()
    with pytest.raises(LawBroken, match="not settled"):
        court.laws.check_end()
    court.takes("k", 0, 2)
    court.commit(u.EndTaskUpdate(1, 2), u.DeliverUpdate(1, ((0, 2),)))
    with pytest.raises(LawBroken, match=r"missing \[\(0, 2, 0\)\]"):
        court.laws.check_end()


def test_a_copy_is_complete() -> None:
    """Each task in mode OFF gives every element, except those that died with a client
    or that a dead client may hold.
    """
    court = Court("OFF")
    court.takes("k", 0, 2)
    court.laws.check_end()
    court.laws.state.iterations[2000].clients.clear()
    with pytest.raises(LawBroken, match=r"lacks \[\(0, 2, 0\)\]"):
        court.laws.check_end()
    court.laws.state.iterations[2000].clients.add("k")
    court.takes("k", 2, 3)
    court.commit(u.CloseClientUpdate("k"))
    court.laws.check_end()


def test_nothing_is_left_of_a_collected_job() -> None:
    """The laws name what a core still remembers of a collected job."""
    court = Court()
    court.laws.check_empty(court.dispatcher, {})
    court.dispatcher.jobs.absent.add("k")
    with pytest.raises(LawBroken, match="absent clients"):
        court.laws.check_empty(court.dispatcher, {})


def test_observers_outlive_a_dispatcher() -> None:
    """Observers hear of the clients of a new dispatcher without a journal, too."""
    court, heard = Court(), list[object]()
    court.laws.on_opened.append(heard.append)
    court.laws.on_gone.append(heard.append)
    court.laws.forget()
    opened = u.OpenClientUpdate("new", 2000)
    court.commit(
        u.RegisterDatasetUpdate("dataset", DESCRIPTION),
        u.BeginIncarnationUpdate(1, JOB),
        u.CreateIterationUpdate(2000, 1, 0, 1),
        opened,
        u.CloseClientUpdate("new"),
    )
    assert heard == [opened, "new"]
