"""Tests of the HTTP server that answers Prometheus and probes."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.metrics.scraped import beside, get, samples
from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    distribute,
)
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.measures.status import TASK_STATES, WORKER_STATES
from zmqdata.metrics import serving
from zmqdata.metrics.declared import DISPATCHER, HOSTED_STATES, WORKER
from zmqdata.metrics.listening import MOST_VISITORS, address_of, listener
from zmqdata.metrics.serving import Monitor
from zmqdata.testing.cluster import await_condition

pytest.importorskip("prometheus_client", reason="prometheus-client (extra `metrics`) is missing")


@pytest.fixture
def dispatcher() -> Iterator[DispatchServer]:
    """A dispatcher that shows its metrics."""
    with DispatchServer(DispatcherConfig(metrics_port=0)) as server:
        yield server


@pytest.fixture
def worker(dispatcher: DispatchServer) -> Iterator[WorkerServer]:
    """A worker that shows its metrics."""
    with WorkerServer(WorkerConfig(dispatcher.target, metrics_port=0)) as server:
        yield server


def shown_at(server: DispatchServer | WorkerServer) -> str:
    """Return the address of a server's metrics."""
    assert server.metrics_address is not None
    return server.metrics_address


def test_each_metric_is_shown_before_anything_happens(
    dispatcher: DispatchServer, worker: WorkerServer
) -> None:
    """The first scrape has the type and meaning of each declared metric, and a zero for
    each one that has no label of a job.
    """
    for server, metrics in ((dispatcher, DISPATCHER), (worker, WORKER)):
        status, text = get(shown_at(server))
        assert status == 200
        for metric in metrics:
            name = metric.shown[0] if metric.kind == "info" else metric.name
            assert f"# HELP {name} {metric.meaning}\n" in text
            assert f"# TYPE {name} " in text
            if not metric.labels:
                assert (name, ()) in samples(shown_at(server))
        assert 'job="' not in text
    known = {labels for name, labels in samples(shown_at(dispatcher)) if name == "zmqdata_tasks"}
    assert known == {(("state", state),) for state in TASK_STATES}
    known = {labels for name, labels in samples(shown_at(dispatcher)) if name == "zmqdata_workers"}
    assert known == {(("state", state),) for state in WORKER_STATES}
    hosted = {
        labels for name, labels in samples(shown_at(worker)) if name == "zmqdata_worker_tasks"
    }
    assert hosted == {(("state", state),) for state in HOSTED_STATES}


def test_a_worker_counts_what_it_made(dispatcher: DispatchServer, worker: WorkerServer) -> None:
    """The elements of tasks that have ended and gone stay in the counter of a worker,
    with the operation that took the time.
    """
    for name in ("first", "second"):
        dataset = Dataset.range(300).map(lambda x: x)
        read = dataset.apply(distribute("distributed_epoch", dispatcher.target, name))
        assert len(list(read)) == 300
    address = shown_at(worker)
    await_condition(
        lambda: samples(address)["zmqdata_worker_elements_total", ()] == 600, what="its count"
    )
    assert samples(address)["zmqdata_worker_block_bytes_total", ()] > 0
    assert samples(address)["zmqdata_worker_resident_bytes", ()] > 1 << 20


def test_openmetrics_is_answered_as_asked(dispatcher: DispatchServer) -> None:
    """A visitor that accepts OpenMetrics gets it; any other gets the older text."""
    asked = "application/openmetrics-text;version=1.0.0"
    assert get(shown_at(dispatcher), asked)[1].endswith("# EOF\n")
    for others in ("", "application/openmetrics-text;version=x", "application/openmetrics-text;,;"):
        status, text = get(shown_at(dispatcher), others)
        assert (status, "# EOF" in text) == (200, others.endswith(";,;"))


def test_other_paths_are_refused(dispatcher: DispatchServer) -> None:
    """Any other path is not found, and the answer names those that are."""
    status, text = get(beside(shown_at(dispatcher), "/"))
    assert (status, text) == (404, "Ask for /metrics, /healthz or /readyz.\n")


def test_a_loop_that_hangs_is_told(
    dispatcher: DispatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the loop hangs, even in its first turn, a scrape fails after a bounded time
    and ``/healthz`` says for how long; afterwards both are well again.
    """
    monkeypatch.setattr(serving, "LOOP_PATIENCE", 0.2)
    monkeypatch.setattr(serving, "STILL", 0.3)
    shell, go_on = dispatcher._own_shell(), threading.Event()
    assert shell is not None
    address, health = shown_at(dispatcher), beside(shown_at(dispatcher), "/healthz")
    shell.loop.post(lambda: go_on.wait(20) and None)
    try:
        assert get(address) == (503, "The loop has not answered within 0.2 s.\n")
        await_condition(lambda: get(health)[0] == 503, what="the probe")
        assert get(health)[1].startswith("The loop has not turned for ")
        assert get(beside(address, "/readyz"))[0] == 503
    finally:
        go_on.set()
    await_condition(lambda: get(health)[0] == 200 and get(address)[0] == 200, what="the loop")


def test_a_worker_without_its_dispatcher_is_alive_and_not_ready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``/readyz`` of a worker fails until its dispatcher knows it, and says so. Its
    name is a label, and stands in its log.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = WorkerConfig(f"127.0.0.1:{port}", metrics_port=0, name="left")
    caplog.set_level("INFO")
    with WorkerServer(config) as worker:
        address = shown_at(worker)
        labels = (("address", worker.address), ("name", "left"))
        assert samples(address)["zmqdata_worker_info", labels] == 1
        told = (503, "The dispatcher does not know this worker yet.\n")
        assert get(beside(address, "/readyz")) == told
        assert get(beside(address, "/healthz")) == (200, "alive\n")
        assert samples(address)["zmqdata_worker_registered", ()] == 0
        with DispatchServer(DispatcherConfig(port=port)):
            await_condition(
                lambda: get(beside(address, "/readyz")) == (200, "ready\n"), what="registration"
            )
    assert f"as {worker.address} (left); this worker waits for tasks" in caplog.text


def test_a_worker_that_lost_its_dispatcher_is_alive_and_not_ready() -> None:
    """While the dispatcher is dead, ``/readyz`` of a registered worker fails and its
    metric is 0; ``/healthz`` succeeds. A dispatcher at the same address ends that.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with WorkerServer(WorkerConfig(f"127.0.0.1:{port}", metrics_port=0)) as worker:
        address = shown_at(worker)
        ready = beside(address, "/readyz")
        for _ in range(2):
            with DispatchServer(DispatcherConfig(port=port)):
                await_condition(lambda: get(ready) == (200, "ready\n"), what="registration")
                await_condition(
                    lambda: samples(address)["zmqdata_worker_registered", ()] == 1,
                    what="a new scrape",
                )
            await_condition(lambda: get(ready)[0] == 503, what="the loss")
            assert get(ready)[1].startswith("The dispatcher does not answer.")
            assert get(beside(address, "/healthz")) == (200, "alive\n")
            await_condition(
                lambda: samples(address)["zmqdata_worker_registered", ()] == 0, what="a new scrape"
            )


def test_a_server_that_begins_is_alive_and_not_ready() -> None:
    """Until a dispatcher has read its journal it answers probes: it is alive, not
    ready, and has no metrics.
    """
    with contextlib.closing(
        Monitor(listener("127.0.0.1", 0), "127.0.0.1", "dispatcher", DISPATCHER, "It begins.")
    ) as monitor:
        assert get(beside(monitor.address, "/healthz")) == (200, "alive\n")
        assert get(beside(monitor.address, "/readyz")) == (503, "It begins.\n")
        assert get(monitor.address) == (503, "The server is starting.\n")


def test_idle_visitors_make_room(dispatcher: DispatchServer) -> None:
    """A bounded number of connections is served. The visitor whose request has been
    incomplete for longest makes room for a further one.
    """
    host, _, port = shown_at(dispatcher).removesuffix("/metrics").rpartition("/")[2].partition(":")
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            for _ in range(MOST_VISITORS)
        ]
        assert get(shown_at(dispatcher))[0] == 200
        assert idle[0].recv(1) == b""


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("zmqdata-metrics.svc:9100", 200), ("10.1.2.3", 200), ("", 421)],
)
def test_metrics_are_asked_for_by_known_names(host: str, status: int) -> None:
    """A page of a foreign name cannot read the metrics. A declared name may ask for
    them, and probes under any name are answered.
    """
    config = DispatcherConfig(metrics_port=0, metrics_names=("zmqdata-metrics.svc",))
    with DispatchServer(config) as server:
        assert get(shown_at(server), host=host)[0] == status
        assert get(beside(shown_at(server), "/healthz"), host=host)[0] == 200


def test_a_port_in_use_is_named() -> None:
    """A server whose port of metrics is in use says which one, and does not start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidArgumentError, match=f"`metrics_port`={port}: Address already"):
            DispatchServer(DispatcherConfig(metrics_port=port))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without prometheus-client a server with a port for metrics does not start, and
    the error names the extra; a server without such a port needs nothing.
    """
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "prometheus_client" else found(name, *rest),
    )
    with pytest.raises(FailedPreconditionError, match=r"pip install 'zmqdata\[metrics\]'"):
        DispatchServer(DispatcherConfig(metrics_port=0))
    with DispatchServer() as dispatcher:
        assert dispatcher.metrics_address is None


def test_the_address_is_one_that_others_can_reach() -> None:
    """The address for users has the host that was given, and for every interface one of
    this machine.
    """
    with listener("localhost", 0) as named, listener("0.0.0.0", 0) as every:
        assert address_of(named, "localhost").startswith("http://localhost:")
        assert "0.0.0.0" not in address_of(every, "0.0.0.0")


def test_a_host_that_is_a_path_is_refused() -> None:
    """The error for a wrong host names the setting."""
    with pytest.raises(ValueError, match="`metrics_host` must be an address"):
        DispatcherConfig(metrics_host="/tmp/metrics")
