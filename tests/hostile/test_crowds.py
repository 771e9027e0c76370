"""Tests of many connections, floods of messages, and peers that read nothing: servers
stay small, and serve all other clients.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket as plain
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.attackers import (
    AT_ONCE,
    ATTACKS,
    GREETING,
    ON_DISPATCHERS,
    ON_WORKERS,
    WITH_KEY,
    WITHOUT_KEY,
    hold,
    recorded,
)
from benchmarks.attacks import Loop, cluster, memory_of
from benchmarks.processes import ROOT
from tests.hostile.conftest import Peer, Service, check_serves, endpoints, servers, wait_until
from zmqdata import Dataset, distribute, wire
from zmqdata import messages as m
from zmqdata.client.calls import status
from zmqdata.core.worker.streams import MOST_BYTES_OUT
from zmqdata.transport import sockets
from zmqdata.transport.keychoice import own_key
from zmqdata.transport.keys import load
from zmqdata.worker import links

pytestmark = pytest.mark.full

FEW = 200
MOST_MORE = 1 << 30
"""Bytes by which a server may grow under any attack. A server without bounds would grow
as much in a second or two.
"""
HELLO = 64 + 202
BEGUN = {"strangers": 3, "hasty": 3, "large": 5, "oversized": 5}
"""Number of times that an attack has asked whether to end once it has really begun."""


def said_by_halves(endpoint: str) -> dict[str, bytes]:
    """Return the bytes of connections that stop early, up to a valid start of a
    handshake.
    """
    whole = recorded(endpoint, own_key(), wire.pack(m.RequestStatus("r")))
    return {
        "nothing": b"",
        "half a greeting": GREETING[:20],
        "a greeting": GREETING,
        "half a hello": whole[: HELLO - 100],
        "hello": whole[:HELLO],
        "what is no greeting": b"GET / HTTP/1.1\r\n\r\n" * 100,
    }


@pytest.mark.parametrize("which", [0, 1])
def test_those_who_never_finish_keep_nobody_out(service: Service, which: int) -> None:
    """Hundreds of connections that stay silent, or stop within the handshake, block no
    client.
    """
    endpoint = endpoints(service)[which]
    held = [one for said in said_by_halves(endpoint).values() for one in hold(endpoint, said, FEW)]
    assert len(held) == 6 * FEW
    check_serves(service)
    for one in held:
        one.close()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", [*WITH_KEY, *ON_WORKERS, *ON_DISPATCHERS, "strangers", "hasty"])
def test_everything_comes_once_during_a_flood(service: Service, kind: str, which: int) -> None:
    """A loop reads every element once while a peer with or without a key floods a
    server.
    """
    stopping, asked = threading.Event(), []

    def stop() -> bool:
        asked.append(1)
        return stopping.is_set()

    attacker = threading.Thread(
        target=ATTACKS[kind], args=(endpoints(service)[which], own_key(), stop)
    )
    attacker.start()
    try:
        wait_until(lambda: len(asked) > BEGUN.get(kind, 2 * AT_ONCE), "it has begun")
        check_serves(service, 20_000)
        begun = len(asked)
        wait_until(lambda: len(asked) > begun, "it still goes on")
    finally:
        stopping.set()
        attacker.join(20)
    check_serves(service)


class Greedy:
    """A client that reads a job of its own, and ignores all limits.

    Args:
        service: target and a worker's address.
        ds: dataset of the job.
        make_peer: makes its connections.
    """

    def __init__(
        self, target: str, worker: str, ds: Dataset, make_peer: Callable[..., Peer]
    ) -> None:
        self._it = iter(ds.apply(distribute("parallel_epochs", target, job_name="greedy")))
        next(self._it)
        jobs = status(target)["jobs"]
        dataset_id = next(job["dataset_id"] for job in jobs if job["job"] == "greedy")
        self.asker, self.peer = make_peer(target), make_peer(worker)
        self.ask = m.OpenIteration("greedy", m.JobParameters("mine", dataset_id, "OFF"), 0)
        place = None
        while place is None:
            opened = self.asker.ask(self.ask)
            if isinstance(opened, m.IterationOpened):
                place = next((one for one in opened.task_list.tasks if one.address == worker), None)
                self.ticket = opened.task_list.ticket
        self.key = (place.task, place.attempt)
        self.link = self.peer.ask(
            m.OpenLink("greedy", "greedy-1", "", 0, "", ("tcp",), ticket=self.ticket)
        )

    def grant(self, handed_out: int, seen: int) -> list[m.Message]:
        """Request everything, and claim to have handed out ``handed_out`` elements.
        Return what the worker has answered, which it does twice a second at most.
        """
        stream = m.StreamGrant(*self.key, m.parts.MOST_NUMBER, m.parts.MOST_NUMBER, handed_out)
        self.peer.say(m.Grant("greedy-1", seen, (stream,)))
        return self.peer.answers()

    def is_refused(self, count: int) -> bool:
        """True if the worker refuses a grant that claims to have handed out ``count``
        elements.
        """
        return any(isinstance(one, m.LinkRefused) for one in self.grant(count, count))

    def close(self) -> None:
        """Close the iterator."""
        self._it.close()


def endless() -> Dataset:
    """Return endless elements of a megabyte."""
    return Dataset.range(1).repeat().map(lambda x: np.zeros(1 << 17))


def test_a_link_that_is_asked_for_and_not_read_is_ended(
    make_service: Callable[..., Service],
    make_peer: Callable[..., Peer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A worker ends a link whose client claims to have handed out everything and reads
    nothing; the log does not name the client.
    """
    monkeypatch.setattr(links, "MOST_QUEUED_BYTES", 8 << 20)
    service = make_service(workers=1)
    greedy = Greedy(service.target, service.workers[0].address, endless(), make_peer)
    most = m.parts.MOST_NUMBER
    wait_until(lambda: greedy.is_refused(most), "the link was ended")
    assert "a data socket: its client takes nothing" in servers(service)[1].rejects.counts
    assert "its client takes nothing" in caplog.text
    assert "greedy" not in caplog.text
    greedy.close()
    check_serves(service)


# --- in processes, and at full size


@contextlib.contextmanager
def attacking(kind: str, endpoint: str, key_file: Path) -> Iterator[None]:
    """Run a process that attacks."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.attackers",
        kind,
        endpoint,
        "600",
        f"--key-file={key_file}",
    ]
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True)
    assert attacker.stdout is not None
    try:
        assert attacker.stdout.readline() == b"attacks\n"
        yield
    finally:
        os.killpg(attacker.pid, signal.SIGKILL)
        attacker.wait(20)
        attacker.stdout.close()


@pytest.mark.full
@pytest.mark.realprocess
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [*WITHOUT_KEY, *WITH_KEY, *ON_WORKERS, *ON_DISPATCHERS])
def test_servers_stay_small(tmp_path: Path, kind: str) -> None:
    """Neither thousands of connections nor a flood of messages takes all memory, or
    ends other reads.
    """
    which = [0] if kind in ON_DISPATCHERS else [1] if kind in ON_WORKERS else [0, 1]
    with cluster(tmp_path) as processes:
        loop = Loop(processes[0].address)
        wait_until(lambda: loop.count > 1000, "the loop reads", 30)
        try:
            for server in [processes[one] for one in which]:
                before, most = memory_of(server.pid), [0]
                with attacking(kind, server.address, tmp_path / "cluster.key"):
                    for _ in range(5):
                        count = loop.count
                        wait_until(
                            lambda count=count: loop.count > count + 5_000, "the loop goes on", 60
                        )
                        loop.rate(1.0)
                        most.append(memory_of(server.pid) - before)
                assert max(most) < MOST_MORE
        finally:
            loop.stop()


@pytest.mark.full
@pytest.mark.realprocess
@pytest.mark.timeout(120)
def test_who_does_not_prove_who_it_is_is_sent_away(tmp_path: Path) -> None:
    """A server ends each connection without a valid handshake within the time for
    handshakes, whatever it sent.
    """
    with cluster(tmp_path) as (dispatcher, worker):
        for endpoint in (dispatcher.address, worker.address):
            held = [
                one for said in (b"", GREETING[:20], GREETING) for one in hold(endpoint, said, 100)
            ]
            for one in held:
                wait_until(
                    lambda one=one: is_ended(one), "it is ended", 2 * sockets.HANDSHAKE_MS / 1000
                )
                one.close()


def is_ended(one: plain.socket) -> bool:
    """True if the other side has closed a connection."""
    if not select.select([one], [], [], 0)[0]:
        return False
    try:
        return not one.recv(1 << 12)
    except ConnectionError:
        return True


@pytest.mark.full
@pytest.mark.realprocess
@pytest.mark.timeout(120)
def test_a_greedy_client_gets_no_more_than_a_client_can_hold(
    tmp_path: Path, make_peer: Callable[..., Peer]
) -> None:
    """A worker makes a bounded number of elements for a client that grants everything
    and reads nothing, and then waits.
    """
    with cluster(tmp_path) as (dispatcher, worker):
        key = load(tmp_path / "cluster.key")
        greedy = Greedy(
            dispatcher.address, worker.address, endless(), lambda one: make_peer(one, key)
        )
        before = memory_of(worker.pid)
        grown: list[tuple[float, int]] = []

        def is_still() -> bool:
            """True if the worker has not grown for two seconds."""
            greedy.grant(0, 0)
            greedy.asker.say(greedy.ask)
            now = time.monotonic()
            grown.append((now, memory_of(worker.pid) - before))
            former = [size for when, size in grown if when <= now - 2.0]
            return bool(former) and grown[-1][1] <= former[-1]

        wait_until(is_still, "it is content", 60)
        assert MOST_BYTES_OUT // 2 < grown[-1][1] < 2 * MOST_BYTES_OUT
        greedy.close()
