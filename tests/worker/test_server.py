"""Tests of a worker in this process: how it finds its dispatcher, what it announces,
how it ends and what it reports.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.proxy import free_ports
from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    distribute,
)
from zmqdata.client.calls import status
from zmqdata.errors import FailedPreconditionError, NotFoundError
from zmqdata.testing.cluster import await_condition, no_leaks
from zmqdata.transport.folders import user_folder
from zmqdata.worker import server as module

AN_HOUR_MS = 3_600_000
"""A wait that a test would not survive."""


@pytest.fixture
def dispatcher() -> Iterator[DispatchServer]:
    with DispatchServer() as server:
        yield server


def worker_of(dispatcher: DispatchServer, **options: Any) -> WorkerServer:
    return WorkerServer(WorkerConfig(dispatcher.target, **options))


def free_port() -> int:
    [port] = free_ports(1)
    return port


def test_a_worker_is_known_when_its_start_returns(dispatcher: DispatchServer) -> None:
    """A worker that has started is registered, if its dispatcher is running."""
    with WorkerServer(WorkerConfig(dispatcher.target)) as worker:
        assert worker.wait_registered(0)
        assert dispatcher.num_workers() == 1


def test_a_worker_says_soon_that_its_dispatcher_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A worker that loses its connection says so, and once, long before it would miss
    the answer to its rare heartbeats.
    """
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher.target, heartbeat_interval_ms=60_000)
        with WorkerServer(config) as worker:
            assert worker.wait_registered(10)
            dispatcher.stop()
            await_condition(lambda: "has been silent for" in caplog.text)
    assert caplog.text.count("has been silent for") == 1


def test_a_worker_waits_for_a_dispatcher_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker starts without its dispatcher, and registers as soon as the dispatcher
    is running.
    """
    monkeypatch.setattr(module, "ANSWER_PATIENCE", AN_HOUR_MS / 1000)
    port = free_port()
    with WorkerServer(WorkerConfig(f"127.0.0.1:{port}", heartbeat_interval_ms=50)) as worker:
        assert not worker.wait_registered(0)
        with DispatchServer(DispatcherConfig(port=port)) as dispatcher:
            assert worker.wait_registered(30)
            assert dispatcher.num_workers() == 1


def test_a_worker_whose_folder_is_open_to_others_does_not_start(
    dispatcher: DispatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that would block all of its jobs fails the start of a worker. The error
    names the remedy.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    user_folder().chmod(0o755)
    with no_leaks(), pytest.raises(PermissionError, match="Remove it, or set TMPDIR"):
        worker_of(dispatcher)


def test_a_refused_worker_does_not_start() -> None:
    """The start of a worker that the dispatcher refuses raises a RuntimeError in
    tf.data's words, and leaves nothing behind.
    """
    config = DispatcherConfig(worker_addresses=("10.255.255.1",))
    with no_leaks(), DispatchServer(config) as dispatcher:
        with pytest.raises(
            FailedPreconditionError, match="The worker's address is not configured"
        ) as caught:
            WorkerServer(WorkerConfig(dispatcher.target))
        assert isinstance(caught.value, RuntimeError)
        assert dispatcher.num_workers() == 0


def read(dispatcher: DispatchServer, count: int = 1_000, **options: Any) -> list[int]:
    dataset = Dataset.range(count).apply(
        distribute("distributed_epoch", dispatcher.target, **options)
    )
    return sorted(int(x) for x in dataset)


def link_addresses(worker: WorkerServer) -> list[str]:
    """Return the addresses of a worker's data sockets that its clients receive."""
    shell = worker._own_shell()
    assert shell is not None
    return [link.address for link in shell.core.links.by_client.values()]


def opened(dispatcher: DispatchServer, **options: Any) -> Iterator[Any]:
    """Open an iterator that has a data connection because it has an element."""
    service = distribute(
        "distributed_epoch", dispatcher.target, max_outstanding_requests=8, **options
    )
    elements = iter(Dataset.range(100_000).apply(service))
    next(elements)
    return elements


@pytest.mark.parametrize(
    ("protocol", "begin"),
    [("tcp", "tcp://127.0.0.1:"), ("ipc", "ipc:///"), ("shm", "ipc:///"), (None, "ipc:///")],
)
def test_a_worker_offers_the_transport_that_it_was_told(
    dispatcher: DispatchServer, protocol: str | None, begin: str
) -> None:
    """The only transport of a worker's data is its data_transfer_protocol. Without it,
    clients on the same host use paths.
    """
    with WorkerServer(WorkerConfig(dispatcher.target, data_transfer_protocol=protocol)) as worker:
        elements = opened(dispatcher)
        assert all(address.startswith(begin) for address in link_addresses(worker))
        elements.close()  # type: ignore[attr-defined]
        assert read(dispatcher) == list(range(1_000))


def test_a_client_of_another_transport_is_refused(dispatcher: DispatchServer) -> None:
    """A client that accepts only tcp gets an error that the worker sends elements over
    paths only.
    """
    config = WorkerConfig(dispatcher.target, data_transfer_protocol="ipc")
    text = r"Protocol 'tcp' is not available.*over ipc only.* over tcp only"
    with WorkerServer(config), pytest.raises(NotFoundError, match=text):
        read(dispatcher, data_transfer_protocol="tcp")


def test_data_connections_use_the_port_that_was_told(dispatcher: DispatchServer) -> None:
    """The data socket uses data_transfer_port, and clients receive
    data_transfer_address.
    """
    port = free_port()
    config = WorkerConfig(
        dispatcher.target,
        data_transfer_protocol="tcp",
        data_transfer_port=port,
        data_transfer_address="localhost:%dts_port%",
    )
    with WorkerServer(config) as worker:
        elements = opened(dispatcher)
        assert link_addresses(worker) == [f"tcp://localhost:{port}"]
        elements.close()  # type: ignore[attr-defined]


def test_an_announced_data_port_is_told_to_clients(dispatcher: DispatchServer) -> None:
    """A data_transfer_address with a port is announced unchanged, as a forwarder may
    listen on it.
    """
    inside, outside = free_port(), free_port()
    config = WorkerConfig(
        dispatcher.target,
        data_transfer_protocol="tcp",
        data_ports=(inside, inside),
        data_transfer_address=f"127.0.0.1:{outside}",
    )
    with WorkerServer(config) as worker:
        service = distribute("distributed_epoch", dispatcher.target)
        elements = iter(Dataset.range(10).apply(service))
        await_condition(lambda: link_addresses(worker) == [f"tcp://127.0.0.1:{outside}"])
        elements.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("quiet", "more"), [(AN_HOUR_MS, True), (0, False)])
def test_what_is_made_gets_out_in_the_quiet_period(
    dispatcher: DispatchServer, quiet: int, more: bool
) -> None:
    """A stopping worker continues to send its elements for the given quiet period, and
    not at all without a quiet period.
    """
    config = WorkerConfig(dispatcher.target, shutdown_quiet_period_ms=quiet, buffer_bytes=1 << 20)
    with WorkerServer(config) as worker:
        dataset = Dataset.range(1_000).map(lambda x: x)
        elements = iter(
            dataset.apply(
                distribute("parallel_epochs", dispatcher.target, max_outstanding_requests=4)
            )
        )
        first = [next(elements) for _ in range(4)]
        shell = worker._own_shell()
        assert shell is not None
        await_condition(
            lambda: any(task.total == 1_000 for task in shell.core.tasks.values()),
            what="all is made",
        )
        if more:
            ending = thread(worker.stop)
            rest = list(elements)
            ending.join()  # it ends when everything is out
            assert [int(x) for x in first + rest] == list(range(1_000))
        else:
            worker.stop()
            with worker_of(dispatcher):
                rest = [int(x) for x in elements]
            assert len(rest) < 1_900, "most of the first copy is lost"
            assert rest[-1_000:] == list(range(1_000)), "another worker begins a copy"


def thread(call: Callable[[], None]) -> threading.Thread:
    started = threading.Thread(target=call)
    started.start()
    return started


def test_a_quiet_worker_that_owes_nothing_ends_at_once(dispatcher: DispatchServer) -> None:
    """A worker with nothing to send does not wait for its quiet period."""
    worker = WorkerServer(WorkerConfig(dispatcher.target, shutdown_quiet_period_ms=AN_HOUR_MS))
    worker.stop()
    assert worker.join(0.0)


def test_a_quiet_period_has_an_end(dispatcher: DispatchServer) -> None:
    """A worker whose client takes nothing stops when its quiet period is over."""
    with WorkerServer(WorkerConfig(dispatcher.target, shutdown_quiet_period_ms=300)) as worker:
        elements = opened(dispatcher)
        shell = worker._own_shell()
        assert shell is not None
        made = lambda: any(task.produced > 30 for task in shell.core.tasks.values())  # noqa: E731 - evaluated repeatedly
        await_condition(made, what="more elements than the client lets it send")
        began = time.monotonic()
        worker.stop()
        assert time.monotonic() - began >= 0.3
        elements.close()  # type: ignore[attr-defined]


def test_a_worker_tells_its_state(dispatcher: DispatchServer) -> None:
    """A worker reports its configuration, its tasks, its ended tasks and its removed
    tasks on request.
    """
    with worker_of(dispatcher, worker_tags=["GPU"], heartbeat_interval_ms=50) as worker:
        elements = opened(dispatcher, job_name="job")
        found = status(worker.address)
        assert (found["worker"], found["registered"]) == (worker.address, True)
        assert (found["config"]["worker_tags"], found["config"]["heartbeat_interval_ms"]) == (
            ["GPU"],
            50,
        )
        [task] = found["tasks"]
        assert task["processing_mode"] == "distributed_epoch"
        assert task["started"]
        assert task["produced"] > 0
        assert task["clients"] == found["clients"]
        assert worker.num_tasks() == 1
        elements.close()  # type: ignore[attr-defined]
        assert read(dispatcher, 10) == list(range(10))
        await_condition(lambda: status(worker.address)["deleted_tasks"], what="a task that is gone")


def test_a_dispatcher_tells_its_state() -> None:
    """A dispatcher reports its configuration, its workers and its iterations, including
    collected iterations, on request.
    """
    config = DispatcherConfig(job_gc_timeout_ms=0, job_gc_check_interval_ms=0)
    with DispatchServer(config) as dispatcher, worker_of(dispatcher, worker_tags=["GPU"]) as worker:
        elements = opened(dispatcher, job_name="job")
        found = status(dispatcher.target)
        assert (found["dispatcher"], found["config"]["job_gc_timeout_ms"]) == (dispatcher.target, 0)
        assert [(one["address"], one["tags"]) for one in found["workers"]] == [
            (worker.address, ["GPU"])
        ]
        [living] = found["iterations"]
        assert isinstance(living.pop("iteration"), int)
        assert living.pop("dataset_id")
        assert living == {
            "repetition": 0,
            "job": "job",
            "processing_mode": "distributed_epoch",
            "num_consumers": None,
            "num_clients": 1,
            "finished": False,
            "collected": False,
        }
        elements.close()  # type: ignore[attr-defined]
        await_condition(lambda: not status(dispatcher.target)["jobs"], what="the collection")
        [gone] = status(dispatcher.target)["iterations"]
        assert (gone["job"], gone["num_clients"], gone["collected"]) == ("job", 0, True)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"gc_dynamic_sharding_jobs": False}, True),
        ({"gc_dynamic_sharding_jobs": True}, False),
        ({"job_gc_check_interval_ms": -1}, True),
        ({"job_gc_timeout_ms": -1}, True),
    ],
)
def test_which_jobs_are_collected(given: dict[str, Any], kept: bool) -> None:
    """A DYNAMIC job without clients is collected, unless its kind, or all collection,
    is excluded.
    """
    config = DispatcherConfig(**{"job_gc_timeout_ms": 0, "job_gc_check_interval_ms": 0} | given)
    with DispatchServer(config) as dispatcher, WorkerServer(WorkerConfig(dispatcher.target)):
        for name, mode in (("dynamic", "distributed_epoch"), ("copies", "parallel_epochs")):
            elements = iter(Dataset.range(100_000).apply(distribute(mode, dispatcher.target, name)))
            next(elements)
            elements.close()
        expected = {"dynamic", "copies"} if kept else set()
        if given == {"gc_dynamic_sharding_jobs": False}:
            expected = {"dynamic"}

        def clients() -> dict[str, int]:
            return {job["job"]: job["clients"] for job in status(dispatcher.target)["jobs"]}

        await_condition(lambda: clients() == dict.fromkeys(expected, 0), what="the collection")
