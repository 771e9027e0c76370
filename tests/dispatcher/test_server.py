"""Test what the dispatcher's shell tells its core, and the addresses from which workers
may register.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from zmqdata import DispatcherConfig, DispatchServer, WorkerConfig, WorkerServer
from zmqdata.core.dispatcher.decider import DispatcherPolicy, DispatcherTimes
from zmqdata.dispatcher.parameters import host_aliases, policy_of, times_of
from zmqdata.errors import FailedPreconditionError
from zmqdata.transport.closed import LAST_LIFE


def test_a_configuration_becomes_times_and_policy() -> None:
    """The core gets the configured times in seconds, with -1 for never, and the other
    options unchanged.
    """
    times = times_of(
        DispatcherConfig(disconnect_grace_ms=200, client_timeout_ms=7_000, job_gc_timeout_ms=0)
    )
    assert (times.disconnect_grace, times.client_timeout, times.gc_timeout, times.gc_interval) == (
        0.2,
        7.0,
        0.0,
        1.0,
    )
    assert times_of(DispatcherConfig(job_gc_timeout_ms=-1)).gc_timeout == -1.0
    with pytest.warns(UserWarning, match="counts as 1000"):
        assert times_of(DispatcherConfig(client_timeout_ms=50)).client_timeout == 1.0
    assert times_of(DispatcherConfig(worker_timeout_ms=4_000)).worker_timeout == 4.0
    assert times_of(DispatcherConfig()) == DispatcherTimes()
    config = DispatcherConfig(
        gc_dynamic_sharding_jobs=False,
        deployment_mode="COLOCATED",
        worker_max_concurrent_snapshots=5,
    )
    assert policy_of(config) == DispatcherPolicy(False, "COLOCATED", 5)
    assert policy_of(DispatcherConfig()) == DispatcherPolicy()


def test_only_a_dispatcher_without_a_successor_takes_leave(tmp_path: Path) -> None:
    """A dispatcher tells its clients that it closes if it has no journal, or if its
    cluster closes, too. Otherwise another may continue from the journal.
    """
    for work_dir, is_last in ((None, True), (tmp_path, False), (tmp_path, True)):
        server = DispatchServer(DispatcherConfig(work_dir=work_dir and str(work_dir)))
        if work_dir and is_last:
            (work_dir / LAST_LIFE).touch()
        told: list[bool] = []
        server._started().core.close = lambda told=told: told.append(True) or []  # type: ignore[method-assign]
        server.stop()
        assert bool(told) == is_last


def test_names_are_resolved_when_a_dispatcher_starts() -> None:
    """A host name resolves to its numeric addresses, and an address to its short
    form.
    """
    assert "127.0.0.1" in host_aliases(["LocalHost:%port%"])["localhost"]
    assert host_aliases(["10.0.0.1", "[0:0:0:0:0:0:0:1]:5"]) == {
        "10.0.0.1": ("10.0.0.1",),
        "::1": ("::1",),
    }


def test_an_unknown_name_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """The dispatcher warns of an unknown host name, as only workers that announce
    exactly that name may register.
    """
    with caplog.at_level(logging.WARNING):
        assert host_aliases(["no-such-host.invalid:5"]) == {}
    assert "Unknown host 'no-such-host.invalid'" in caplog.text


def test_a_port_may_have_a_name() -> None:
    """A dispatcher accepts named ports, and a worker with a numeric port does not match
    and does not start.
    """
    config = DispatcherConfig(worker_addresses=("localhost:worker",))
    with (
        DispatchServer(config) as dispatcher,
        pytest.raises(FailedPreconditionError, match="The worker's address is not configured"),
    ):
        WorkerServer(WorkerConfig(dispatcher.target))


def test_a_worker_is_let_in_by_the_name_of_its_host() -> None:
    """A worker that announces 127.0.0.1 registers at a dispatcher configured with
    localhost.
    """
    config = DispatcherConfig(worker_addresses=("localhost:%port%",))
    with (
        DispatchServer(config) as dispatcher,
        WorkerServer(WorkerConfig(dispatcher.target)) as worker,
    ):
        assert worker.wait_registered(30)
