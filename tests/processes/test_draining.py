"""Tests of workers that are told to leave while clients read from them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.client.calls import status
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess

COUNT = 4_000
OPTIONS: dict[str, Any] = {"heartbeat_interval_ms": 200, "buffer_bytes": 1 << 16}


def reader(
    cluster: LocalCluster, mode: str = "distributed_epoch", count: int = COUNT
) -> Iterator[int]:
    dataset = Dataset.range(count).shuffle(100, seed=3).batch(2)
    distributed = dataset.apply(
        distribute(mode, cluster.target, "job", max_outstanding_requests=16)
    )
    return (int(x) for batch in distributed for x in batch)


def some(elements: Iterator[int], count: int = 200) -> list[int]:
    return [next(elements) for _ in range(count)]


def hosted(cluster: LocalCluster, address: str) -> int:
    return sum(task["address"] == address for task in status(cluster.target)["tasks"])


def test_a_worker_that_gets_sigterm_hands_its_tasks_over() -> None:
    """A worker that gets SIGTERM leaves at once with exit code 0; no element is lost or
    repeated.
    """
    with LocalCluster(2, **OPTIONS) as cluster:
        elements = reader(cluster)
        found = some(elements)
        first, second = cluster.workers
        await_condition(
            lambda: hosted(cluster, first.address) and hosted(cluster, second.address),
            what="two tasks",
        )
        first.stop()
        assert first.exit_code == 0  # type: ignore[attr-defined]  # processes have an exit code
        assert "drained: the dispatcher has taken back 1 of 1 tasks" in first.log
        found += list(elements)
        assert sorted(found) == list(range(COUNT))


@pytest.mark.full
def test_the_last_worker_waits_for_another() -> None:
    """The last worker continues its work until another worker takes its tasks."""
    with LocalCluster(1, **OPTIONS) as cluster:
        elements = reader(cluster)
        found = some(elements)
        last = cluster.workers[0]
        last.signal(signal.SIGTERM)  # type: ignore[attr-defined]  # processes accept signals
        found += some(elements)
        await_condition(
            lambda: any(one["state"] == "draining" for one in status(cluster.target)["workers"]),
            what="its leaving",
        )
        cluster.add_worker()
        await_condition(lambda: not last.alive, what="the end of the first worker")
        assert last.exit_code == 0  # type: ignore[attr-defined]  # processes have an exit code
        found += list(elements)
        assert sorted(found) == list(range(COUNT))


def test_a_worker_is_drained_from_the_command_line() -> None:
    """The command returns when the worker has left, and says so; the supervisor does
    not restart it, and ends with 0.
    """
    with LocalCluster(2, **OPTIONS) as cluster:
        elements = reader(cluster)
        found = some(elements)
        worker = cluster.workers[1]
        command = [
            sys.executable,
            "-m",
            "zmqdata",
            "drain",
            worker.address,
            "--dispatcher",
            cluster.target,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{worker.address} has left; it")
        await_condition(lambda: not worker.alive, what="the end of the worker")
        assert worker.exit_code == 0  # type: ignore[attr-defined]  # processes have an exit code
        found += list(elements)
        assert sorted(found) == list(range(COUNT))
        unknown = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert unknown.returncode == 2
        assert "No worker" in unknown.stderr


def test_ctrl_c_does_not_wait() -> None:
    """The only worker leaves at once on SIGINT, and the iteration waits for another
    worker.
    """
    with LocalCluster(1, **OPTIONS) as cluster:
        elements = reader(cluster)
        some(elements)
        worker = cluster.workers[0]
        worker.signal(signal.SIGINT)  # type: ignore[attr-defined]  # processes accept signals
        await_condition(lambda: not worker.alive, what="the end of the worker")
        assert worker.exit_code == 0  # type: ignore[attr-defined]  # processes have an exit code
        assert "drain" not in worker.log
        assert "does not end within" not in worker.log


@pytest.mark.full
def test_workers_are_replaced_one_after_the_other() -> None:
    """Each new worker takes over a task of a leaving worker; the number of tasks stays
    the same.
    """
    with LocalCluster(2, **OPTIONS) as cluster:
        elements = reader(cluster, count=40_000)
        found = some(elements)
        await_condition(lambda: len(status(cluster.target)["tasks"]) == 2, what="two tasks")
        for turn in range(3):
            cluster.workers[turn].stop()
            newcomer = cluster.add_worker()
            found += some(elements)
            await_condition(
                lambda newcomer=newcomer: hosted(cluster, newcomer.address) == 1,
                what="a task for it",
            )
        assert len(status(cluster.target)["tasks"]) == 2
        found += list(elements)
        assert sorted(found) == list(range(40_000))
