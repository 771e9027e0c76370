"""Tests of hosts with real workers on this machine."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.client.calls import status
from zmqdata.cluster import host as host_module
from zmqdata.cluster.fleet import RUNNING
from zmqdata.dispatcher.server import DispatchServer
from zmqdata.hosts import Local
from zmqdata.testing.cluster import await_condition, no_leaks

SOON = 30.0


def slow(number: int) -> int:
    """Take a while, as decoding does."""
    import threading

    threading.Event().wait(0.01)
    return number


@pytest.fixture
def dispatcher() -> Iterator[DispatchServer]:
    """A dispatcher without workers."""
    with DispatchServer() as server:
        yield server


@pytest.mark.realprocess
def test_a_killed_worker_is_replaced_and_nothing_is_lost(dispatcher: DispatchServer) -> None:
    """Workers of a host are listed under their names; a killed one returns under its
    name, every element comes once, and the end of the host leaves no process.
    """
    status(dispatcher.target)  # makes what stays until the end of the program
    with no_leaks(), Local(dispatcher.target, processes=2, heartbeat_interval_ms=100) as host:
        names = host.start(2)
        wanted = {f"{name}/{index}" for name in names for index in range(2)}
        await_condition(
            lambda: {one["name"] for one in status(dispatcher.target)["workers"]} == wanted,
            SOON,
            "all processes",
        )
        ds = Dataset.range(800).map(slow).apply(distribute("distributed_epoch", dispatcher.target))
        reader = iter(ds)
        seen = [int(next(reader)) for _ in range(10)]
        os.kill(host._servers[names[0]].pid, signal.SIGKILL)
        seen += [int(element) for element in reader]
        assert sorted(seen) == list(range(800))
        await_condition(lambda: [*host.running().values()] == [RUNNING] * 2, SOON, "its successor")
        assert sorted(host.running()) == sorted(names)
    assert host._servers == {}


@pytest.mark.realprocess
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"key_file": "/nowhere/cluster.key"},
            r"exit code 2, and wrote: .*There is no key file /nowhere/cluster\.key\. Copy",
        ),
        (
            {"dispatcher_timeout_ms": 300, "heartbeat_interval_ms": 100},
            r"exit code 4, and wrote: .*has not answered for 0\.3 s",
        ),
    ],
)
def test_the_log_says_why_a_worker_cannot_work(
    options: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of the host has the exit code, the cause and the remedy of a worker that
    has no key, or no dispatcher.
    """
    with Local("tcp://127.0.0.1:1", **options) as host:
        host.start(1)
        await_condition(lambda: re.search(words, caplog.text), SOON, words)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"proceses": 2}, TypeError, "Did you mean 'processes'?"),
        ({"name": "mine"}, TypeError, "Local() has no argument 'name'"),
        ({"processes": 0}, ValueError, "`processes`"),
        ({"drain_seconds": -1}, ValueError, "`drain_seconds`"),
    ],
)
def test_wrong_options_are_errors_of_the_call(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """An option that no worker would take never reaches one."""
    with pytest.raises(error, match=re.escape(text)):
        Local("tcp://127.0.0.1:1", **options)


def test_a_program_that_ends_closes_its_hosts(tmp_path: Path) -> None:
    """The end of the program closes hosts that it has left open."""
    with DispatchServer() as dispatcher:
        host = Local(dispatcher.target)
        host.start(1)
        await_condition(lambda: host._servers, SOON, "a worker")
        host_module._close_all()
        assert host._servers == {}


def test_a_local_cluster_follows_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """``adapt`` stops workers that no loop needs, and starts those that one needs."""
    monkeypatch.setattr(host_module, "LOOK_EVERY", 0.05)
    with LocalCluster(2, in_process=True, heartbeat_interval_ms=100) as cluster:
        cluster.adapt(0, 3, interval=0.1)
        await_condition(lambda: not cluster.workers, SOON, "the end of both workers")
        ds = Dataset.range(100_000).map(slow).map(slow).map(slow)
        reader = iter(ds.apply(distribute("distributed_epoch", cluster.target)))
        next(reader)
        await_condition(lambda: len(cluster.workers) == 3 or not next(reader) + 1, SOON, "three")
        cluster.adapt(1, 1, interval=0.1)
        await_condition(lambda: len(cluster.workers) == 1, SOON, "one worker")
        reader.close()
        cluster.add_worker()
        await_condition(lambda: len(cluster.workers) == 1, SOON, "one worker again")
    with pytest.raises(RuntimeError, match="closed"):
        cluster.adapt(0, 1)


def test_a_cluster_that_is_dropped_ends_with_its_host() -> None:
    """A cluster that follows the number is collected when nothing refers to it."""
    cluster = LocalCluster(1, in_process=True)
    cluster.adapt(1, 1, interval=0.1)
    host = cluster._host
    assert host is not None
    del cluster
    await_condition(host._halted.is_set, SOON, "the end of the host")
