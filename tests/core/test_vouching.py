"""Test client, workers and dispatcher together when workers vouch for a client that the
dispatcher does not hear.
"""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata.core.client.lease import ClientLease
from zmqdata.core.client.links import LinkProfile, ReadLinks
from zmqdata.core.dispatcher.peers.lease import SHARE, Leases
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.worker.links import SendLinks

TICK = 0.2


class Cut:
    """A client that reads alone, whose last answer of the dispatcher came at 0.

    Args:
        workers: number of workers that it reads from. The client reaches ``near`` of
            them, of which the last ``bridges`` also reach the dispatcher.
        timeout: seconds of silence after which a client is given up.
        pause: seconds between two heartbeats of a worker.
    """

    def __init__(self, workers: int, near: int, bridges: int, timeout: float, pause: float) -> None:
        self.said: list[Any] = []
        self.links = ReadLinks(
            LinkProfile("k", "host", ("tcp",)),
            self.said.append,
            lambda address: (),
            lambda: (0.0, False),
        )
        self.lease, self.roster, self.leases = ClientLease(), Roster(), Leases(timeout)
        self.timeout, self.pause = timeout, pause
        addresses = [f"w{number:04}" for number in range(workers)]
        self.ends = {address: SendLinks(lambda command: None) for address in addresses[:near]}
        self.bridges = addresses[near - bridges : near]
        self.lease.record_answer(self.lease.speak(0.0), m.Lease(SHARE * timeout, alone=True), 0.0)
        self.roster.hear("k", "client", 0.0)
        self.leases.expect(pause)
        self.links.tend(addresses, 0.0)
        for address in addresses:
            name = self.links.by_address[address].name
            if address in self.ends:
                self.ends[address].open("k", m.OpenLink("k", name, "", 0, "host", ("tcp",)), 0.0)
            self.links.opened(m.LinkOpened(name, "tcp://x", "secret"), 0.0)

    def live(self, seconds: float) -> None:
        """Let time pass, and check that the lease holds and that no dispatcher that
        hears of the client gives it up.
        """
        now = beaten = 0.0
        while now < seconds:
            now += TICK
            self.links.tick(now, self.lease.pause(1.0), self.lease.is_unanswered(now))
            for command in self.said:
                message = getattr(command, "message", None)
                if isinstance(message, m.Grant) and command.peer in self.ends:
                    self.ends[command.peer].record_grant("client", message, now)
                    if message.sent:
                        self.lease.renew(message.sent, now)
            self.said.clear()
            if now - beaten >= self.pause:
                beaten = now
                for address in self.bridges:
                    readers = self.ends[address].readers(now, self.pause)
                    self.leases.tells(
                        self.roster,
                        m.WorkerHeartbeat(address, (), (), readers, every=self.pause),
                        now,
                    )
            assert self.lease.holds(now)
            if self.bridges:
                assert not self.leases.is_over(self.roster.members["k"], now)


@pytest.mark.parametrize("pause", [1.0, 3.3])
@pytest.mark.parametrize(("timeout", "seconds"), [(15.0, 60.0), (3.0, 20.0)])
@pytest.mark.parametrize(("workers", "bridges"), [(4, 1), (20, 1), (60, 1), (300, 1), (300, 30)])
def test_one_worker_that_reaches_both_is_enough(
    workers: int, bridges: int, timeout: float, seconds: float, pause: float
) -> None:
    """A client that is cut off is kept while a single worker reaches both sides,
    however many other workers hear it.
    """
    Cut(workers, workers, bridges, timeout, pause).live(seconds)


@pytest.mark.parametrize(("timeout", "seconds"), [(15.0, 60.0), (3.0, 20.0), (1.0, 10.0)])
@pytest.mark.parametrize(("workers", "near"), [(20, 4), (120, 60), (400, 1)])
def test_one_worker_that_answers_is_enough_to_read_on(
    workers: int, near: int, timeout: float, seconds: float
) -> None:
    """A client reads on without a dispatcher while a single worker answers, however
    many workers fall silent at once.
    """
    Cut(workers, near, 0, timeout, 1.0).live(seconds)
