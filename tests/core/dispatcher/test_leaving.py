"""Test when a client may leave an iteration whose elements other clients still hold."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.leaving import FEW, Departures
from zmqdata.core.dispatcher.liveness import Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration

JOB = m.JobParameters("job", "dataset", "DYNAMIC")


class Room:
    """An iteration with some readers, and the messages to them."""

    def __init__(self, *clients: str) -> None:
        self.out = Outbox(1)
        self.clients = Roster()
        self.departures = Departures(self.out, self.clients)
        self.iteration = Iteration(7, JOB, 0, 1, 0)
        self.beats = dict.fromkeys(clients, 0)
        for client in clients:
            self.iteration.clients.add(client)
            self.clients.heard(client, client, 0.0)

    def beat(self, client: str, now: float, done: bool = False) -> list[tuple[str, m.Message]]:
        self.beats[client] += 1
        self.clients.heard(client, client, now)
        beat = m.ClientHeartbeat(client, 0, 0, {}, beat=self.beats[client], done=done)
        self.departures.take(self.iteration, beat, now)
        return self.told()

    def told(self) -> list[tuple[str, m.Message]]:
        return [(one.peer, one.message) for one in self.out.drain() if isinstance(one, e.Send)]

    def tick(self) -> list[tuple[str, m.Message]]:
        self.departures.tick({7: self.iteration})
        return self.told()


def test_who_reads_on_lets_the_others_go() -> None:
    """The dispatcher probes the other readers, and lets a finished reader end once when
    the first other reader reads on.
    """
    room = Room("k", "l", "n")
    assert room.beat("k", 1.0, done=True) == [("l", m.Probe()), ("n", m.Probe())]
    assert room.beat("l", 1.1) == [("k", m.MayEnd("k", 1))]
    assert room.beat("n", 1.2) == []


def test_the_last_one_waits() -> None:
    """No reader may end while all known readers are done, as a silent reader may hold
    missing elements.
    """
    room = Room("k", "l", "dead")
    room.beat("k", 1.0, done=True)
    assert room.beat("l", 1.1, done=True) == [("dead", m.Probe())]
    assert room.beat("k", 1.3, done=True) == []
    assert room.tick() == []


def test_who_gets_more_lets_the_others_go() -> None:
    """A finished reader that gets the elements of a dead reader reads on, so the others
    may end.
    """
    room = Room("k", "l", "dead")
    room.beat("k", 1.0, done=True)
    room.beat("l", 1.1, done=True)
    assert room.beat("k", 2.0) == [("l", m.MayEnd("l", 1))]


def test_a_lost_answer_comes_again() -> None:
    """The dispatcher repeats a lost permission to end for the newest report of a
    reader.
    """
    room = Room("k", "l")
    room.beat("k", 1.0, done=True)
    room.beat("l", 1.1)
    room.beat("k", 1.3, done=True)
    assert room.beat("l", 2.1) == [("k", m.MayEnd("k", 2))]


def test_a_reader_that_workers_hear_stays_too() -> None:
    """A reader cut off from the dispatcher counts as reading on if workers have heard
    it since.
    """
    room = Room("k", "l")
    room.clients.notice({"l": 0.9})
    room.beat("k", 1.0, done=True)
    assert room.tick() == []
    room.clients.notice({"l": 1.1})
    assert room.tick() == [("k", m.MayEnd("k", 1))]


def test_who_is_gone_counts_no_more() -> None:
    """The dispatcher does not wait for a reader that has left, and forgets a collected
    iteration.
    """
    room = Room("k", "l")
    room.beat("k", 1.0, done=True)
    room.departures.forget("k", room.iteration)
    assert room.beat("l", 1.1) == []
    room.beat("k", 1.0, done=True)
    room.departures.tick({})
    assert room.beat("l", 1.2) == []


def test_many_readers_are_not_asked() -> None:
    """The dispatcher does not probe many readers, as some reader reports soon anyway
    and probes would grow with their number squared.
    """
    names = [f"k{number}" for number in range(FEW + 1)]
    room = Room(*names)
    assert room.beat("k0", 1.0, done=True) == []
    assert room.beat("k1", 1.1) == [("k0", m.MayEnd("k0", 1))]


def test_all_are_done_when_each_says_so() -> None:
    """A reader that reads on, or has said nothing, is not done."""
    room = Room("k", "l")
    assert not room.departures.are_all_done(room.iteration)
    room.beat("k", 1.0, done=True)
    assert not room.departures.are_all_done(room.iteration)
    room.beat("l", 1.1, done=True)
    assert room.departures.are_all_done(room.iteration)
    room.beat("l", 1.2)
    assert not room.departures.are_all_done(room.iteration)
