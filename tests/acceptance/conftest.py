"""Clusters for the acceptance tests, on threads or on real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zmqdata
from tests.acceptance.reading import QUICK
from tests.service.proxy import free_ports

KINDS = ("threads", "processes")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each test that asks for a cluster with threads and with processes."""
    if "host_kind" in metafunc.fixturenames:
        is_core = any(mark.name == "core" for mark in metafunc.definition.iter_markers())
        marks = [pytest.mark.realprocess, *([] if is_core else [pytest.mark.full])]
        metafunc.parametrize(
            "host_kind", [KINDS[0], pytest.param(KINDS[1], marks=marks)], scope="session"
        )


_shared: dict[str, zmqdata.LocalCluster] = {}
"""The shared clusters by kind. The first test of a kind creates its cluster."""


@pytest.fixture(scope="session")
def shared_clusters() -> Iterator[dict[str, zmqdata.LocalCluster]]:
    """Yield the shared clusters; those that still run end with the session."""
    yield _shared
    for cluster in _shared.values():
        cluster.close()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close the shared cluster of a kind after its last test.

    The tests of a kind follow each other, because its parameter has the scope of the
    session. The heartbeats of a cluster take a thirtieth of a core.
    """
    kind = kind_of(item)
    if kind in _shared and kind != kind_of(nextitem):
        _shared.pop(kind).close()


def kind_of(item: pytest.Item | None) -> str:
    """Return the kind of cluster that a test has; empty if it has none."""
    called = getattr(item, "callspec", None)
    return "" if called is None else str(called.params.get("host_kind", ""))


@pytest.fixture
def cluster(
    host_kind: str, shared_clusters: dict[str, zmqdata.LocalCluster]
) -> zmqdata.LocalCluster:
    """Return a shared dispatcher with two workers and quick heartbeats, which tests
    must not change.
    """
    if host_kind not in shared_clusters:
        shared_clusters[host_kind] = zmqdata.LocalCluster(
            2, in_process=host_kind == "threads", **QUICK
        )
    return shared_clusters[host_kind]


@pytest.fixture
def make_cluster(host_kind: str) -> Iterator[Callable[..., zmqdata.LocalCluster]]:
    """Yield a factory of clusters with given options, closed after the test."""
    made: list[zmqdata.LocalCluster] = []

    def make(num_workers: int = 2, **options: Any) -> zmqdata.LocalCluster:
        made.append(
            zmqdata.LocalCluster(
                num_workers, in_process=host_kind == "threads", **{**QUICK, **options}
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def make_dispatcher() -> Iterator[Callable[..., zmqdata.DispatchServer]]:
    """Yield a factory of dispatchers in this process, stopped after the test."""
    made: list[zmqdata.DispatchServer] = []

    def make(**options: Any) -> zmqdata.DispatchServer:
        made.append(zmqdata.DispatchServer(zmqdata.DispatcherConfig(**options)))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def make_worker() -> Iterator[Callable[..., zmqdata.WorkerServer]]:
    """Yield a factory of workers in this process, stopped after the test."""
    made: list[zmqdata.WorkerServer] = []

    def make(dispatcher: str, **options: Any) -> zmqdata.WorkerServer:
        options = {"heartbeat_interval_ms": QUICK["heartbeat_interval_ms"], **options}
        made.append(zmqdata.WorkerServer(zmqdata.WorkerConfig(dispatcher, **options)))
        assert made[-1].wait_registered(30)
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def silent_address() -> str:
    """Return an address at which no dispatcher listens."""
    [port] = free_ports(1)
    return f"tcp://127.0.0.1:{port}"
