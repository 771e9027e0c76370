"""Section 1.3: the life of server objects, and the state that they export."""

from __future__ import annotations

import contextlib
import gc
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zmqdata
from tests.acceptance.reading import QUICK, command, numbers, read, status
from zmqdata.testing.cluster import await_condition, listens

NOWHERE = "tcp://127.0.0.1:1"


def a_dispatcher(**options: Any) -> zmqdata.DispatchServer:
    return zmqdata.DispatchServer(**options)


def a_worker(**options: Any) -> zmqdata.WorkerServer:
    return zmqdata.WorkerServer(zmqdata.WorkerConfig(NOWHERE), **options)


@pytest.fixture(params=[a_dispatcher, a_worker])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a factory of servers of either kind."""
    return request.param  # type: ignore[no-any-return]


@pytest.mark.claim("1.3a")
def test_a_target_can_be_dialled() -> None:
    """A new dispatcher listens at its target, on a port that it chose."""
    with zmqdata.DispatchServer() as dispatcher:
        assert dispatcher.target.startswith("tcp://")
        assert listens(dispatcher.target)
        assert dispatcher.num_workers() == 0


@pytest.mark.claim("1.3a")
def test_the_port_is_the_one_that_was_asked_for() -> None:
    """A dispatcher uses the given port, which is free again after it has stopped."""
    with zmqdata.DispatchServer() as first:
        port = int(first.target.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            zmqdata.DispatchServer(zmqdata.DispatcherConfig(port=port))
    with zmqdata.DispatchServer(zmqdata.DispatcherConfig(port=port)) as again:
        assert again.target == first.target


@pytest.mark.claim("1.3b")
def test_starting_and_stopping_twice_changes_nothing(make: Callable[..., Any]) -> None:
    """A second start and a second stop of a server do nothing."""
    server = make()
    address = server.address
    server.start()
    assert server.address == address
    server.stop()
    server.stop()


@pytest.mark.claim("1.3c", "7.64")
@pytest.mark.parametrize("started", [True, False])
def test_a_stopped_server_stays_stopped(make: Callable[..., Any], started: bool) -> None:
    """Starting a stopped server is a RuntimeError in tf.data's words."""
    server = make(start=started)
    server.stop()
    with pytest.raises(RuntimeError, match="Server cannot be started after it has been stopped"):
        server.start()


@pytest.mark.claim("1.3d")
def test_start_may_come_later(make: Callable[..., Any]) -> None:
    """A server that was created with ``start=False`` can be started later."""
    server = make(start=False)
    server.start()
    assert listens(server.address)
    server.stop()
    assert not listens(server.address)


@pytest.mark.claim("1.3d")
def test_join_waits_for_the_end(make: Callable[..., Any]) -> None:
    """``join`` blocks until the server stops, and returns at once if it has stopped."""
    server = make()
    assert server.join(0.05) is False
    waiting = threading.Thread(target=server.join)
    waiting.start()
    assert waiting.is_alive()
    server.stop()
    waiting.join(30)
    assert not waiting.is_alive()
    assert server.join() is True


@pytest.mark.claim("1.3d")
def test_join_may_wait_for_ever(make: Callable[..., Any]) -> None:
    """``join`` accepts infinity as its time-out."""
    server = make()
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(server.join(math.inf)), daemon=True)
    waiting.start()
    server.stop()
    waiting.join(30)
    assert found == [True]


@pytest.mark.claim("1.3d")
def test_waits_of_a_worker_are_times(make_dispatcher: Any, make_worker: Any) -> None:
    """``wait_registered`` and ``drain`` accept infinity, and ``drain`` refuses None
    without draining.
    """
    worker = make_worker(make_dispatcher().target)
    assert worker.wait_registered(math.inf)
    with pytest.raises(TypeError, match="`timeout` must be a number of seconds, got None"):
        worker.drain(None)
    worker.drain(math.inf)
    assert worker.drained


@pytest.mark.claim("1.3e")
def test_servers_end_with_their_objects(make: Callable[..., Any]) -> None:
    """A server that is garbage collected frees its port."""
    address = make().address
    gc.collect()
    await_condition(lambda: not listens(address), what="the port to be free")


@pytest.mark.claim("1.3f")
def test_counts_of_workers_and_tasks(make_dispatcher: Any, make_worker: Any) -> None:
    """A dispatcher counts its workers, and a worker counts its tasks."""
    dispatcher = make_dispatcher()
    workers = [make_worker(dispatcher.target) for _ in range(3)]
    assert dispatcher.num_workers() == 3
    it = iter(read(zmqdata.Dataset.counter(), dispatcher))
    next(it)
    await_condition(
        lambda: all(worker.num_tasks() == 1 for worker in workers), what="a task on each worker"
    )
    it.close()
    await_condition(
        lambda: not any(worker.num_tasks() for worker in workers), what="the tasks to end"
    )
    it = iter(read(zmqdata.Dataset.counter(), dispatcher))
    next(it)
    workers[0].stop()
    assert workers[0].num_tasks() == 0
    await_condition(lambda: dispatcher.num_workers() == 2, what="one worker less")
    it.close()


@pytest.mark.claim("1.3g")
def test_the_state_can_be_seen(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """The dispatcher exports its workers and iterations, and a worker exports its
    tasks.
    """
    cluster = make_cluster(1)
    it = iter(read(zmqdata.Dataset.counter(), cluster, job_name="seen"))
    next(it)
    found = status(cluster)
    assert [worker["address"] for worker in found["workers"]] == [cluster.workers[0].address]
    [iteration] = found["iterations"]
    expected = {"job": "seen", "repetition": 0, "num_consumers": None}
    expected |= {
        "processing_mode": "distributed_epoch",
        "num_clients": 1,
        "finished": False,
        "collected": False,
    }
    assert {name: iteration[name] for name in expected} == expected
    assert iteration["dataset_id"]
    worker = status(cluster, "--worker", cluster.workers[0].address)
    assert [task["processing_mode"] for task in worker["tasks"]] == ["distributed_epoch"]
    assert worker["config"]["heartbeat_interval_ms"] == QUICK["heartbeat_interval_ms"]
    it.close()


@pytest.mark.claim("1.3g")
@pytest.mark.realprocess
def test_status_of_nobody_is_an_error_in_time(silent_address: str) -> None:
    """``zmqdata status`` fails after its time-out if the dispatcher does not answer."""
    answer = command("status", "--dispatcher", silent_address, "--timeout", "0.3")
    assert answer.returncode != 0
    assert silent_address in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.claim("3.1a")
def test_a_worker_may_come_before_its_dispatcher(silent_address: str) -> None:
    """A worker waits for its dispatcher, and then serves readers."""
    worker = zmqdata.WorkerServer(zmqdata.WorkerConfig(silent_address, **QUICK))
    assert worker.wait_registered(0.1) is False
    port = int(silent_address.rpartition(":")[2])
    with zmqdata.DispatchServer(zmqdata.DispatcherConfig(port=port)) as dispatcher:
        assert worker.wait_registered(30)
        assert numbers(read(zmqdata.Dataset.range(5), dispatcher)) == list(range(5))
        worker.stop()


@pytest.mark.claim("1.3h")
def test_a_cluster_ends_for_good(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """A closed cluster listens nowhere, can be closed again, and starts no workers."""
    cluster = make_cluster(1)
    addresses = [cluster.target, cluster.workers[0].address]
    cluster.close()
    cluster.close()
    assert not any(map(listens, addresses))
    with pytest.raises(RuntimeError, match="closed"):
        cluster.add_worker()


@pytest.mark.claim("2.3h", "3.1a", "4.1c")
@pytest.mark.realprocess
@pytest.mark.full
def test_processes_come_in_any_order(silent_address: str, tmp_path: Path) -> None:
    """A worker and a reader wait for their dispatcher, and a second dispatcher on its
    folder is refused.
    """
    found: list[list[int]] = []
    ds = read(zmqdata.Dataset.range(100), silent_address, dispatcher_timeout=60)
    reading = threading.Thread(target=lambda: found.append(numbers(ds)), daemon=True)
    reading.start()
    options = ["--port", silent_address.rpartition(":")[2], "--work-dir", str(tmp_path)]
    programs = [["worker", "--dispatcher", silent_address], ["dispatcher", *options]]
    with contextlib.ExitStack() as at_end:
        for program in programs:
            running = subprocess.Popen(
                [sys.executable, "-m", "zmqdata", *program], stdout=subprocess.DEVNULL
            )
            at_end.callback(running.wait, 20)
            at_end.callback(running.terminate)
        reading.join(40)
        assert [sorted(one) for one in found] == [list(range(100))]
        second = command("dispatcher", "--work-dir", str(tmp_path))
        assert second.returncode == 2
        assert str(tmp_path) in second.stderr
