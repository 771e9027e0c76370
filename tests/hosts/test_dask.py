"""Tests of the host that uses a Dask cluster, on objects that imitate Dask. Those of a
real one are in ``tests/engines``.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hosts import fake_dask
from tests.hosts.fake_dask import Client, FakeCluster, FakeDask, FakeKubernetes
from zmqdata.cluster import host as host_module
from zmqdata.cluster.host import HostError
from zmqdata.errors import FailedPreconditionError
from zmqdata.hosts import Dask
from zmqdata.hosts import dask as dask_module
from zmqdata.testing.cluster import await_condition

SERVICE = "tcp://10.0.0.1:5050"
SOON = 10.0

Make = Callable[..., Dask]


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package ``distributed``, and Dask workers whose workers are no processes."""
    monkeypatch.setitem(sys.modules, "distributed", fake_dask.DISTRIBUTED)
    from zmqdata.hosts import daskworkers

    monkeypatch.setattr(daskworkers, "PlacedWorker", fake_dask.FakeWorker)
    monkeypatch.setattr(Dask, "poll", 0.02)
    monkeypatch.setattr(dask_module, "PAUSES", (0.02, 0.02))
    monkeypatch.setattr(dask_module, "WAITS_FOR", 0.0)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes a host, which the test closes or not."""
    hosts = []

    def made(cluster: Any = None, **options: Any) -> Dask:
        hosts.append(Dask(SERVICE, cluster, **options))
        return hosts[-1]

    yield made
    for host in hosts:
        with suppress(HostError):
            host.close()


def await_states(host: Dask, *states: str) -> None:
    await_condition(lambda: sorted(host.running().values()) == sorted(states), SOON, str(states))


def await_plan(cluster: FakeCluster, count: int) -> None:
    """Wait until a cluster has a number of Dask workers, as its hosts need."""

    def has_it() -> bool:
        cluster.tick()
        return len(cluster.plan) == count

    await_condition(has_it, SOON, f"{count} Dask workers")


def test_each_dask_worker_has_one_worker(make: Make) -> None:
    """A worker is placed by name in a Dask worker that has none. The next one waits
    until a Dask worker joins, and the log says so once.
    """
    dask = FakeDask(2)
    host = make(dask.address, worker_tags=("GPU",))
    names = host.start(3)
    await_states(host, "queued", "running", "running")
    assert sorted(dask.placed()) == names[:2]
    assert [len(one.workers()) for one in dask.workers.values()] == [1, 1]
    dask.add()
    await_states(host, "running", "running", "running")
    assert dask.placed()[names[2]].options.config.worker_tags == ("GPU",)


def test_the_log_says_once_that_workers_wait(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Workers that wait in a cluster that cannot grow are a line of the log."""
    host = make(FakeDask(0).address)
    host.start(1)
    await_condition(lambda: "Workers wait for a Dask worker" in caplog.text, SOON, "the line")
    host.start(1)
    await_states(host, "queued", "queued")
    host.stop(list(host.running()))
    await_states(host)
    assert caplog.text.count("Workers wait for a Dask worker") == 1


def test_two_hosts_share_a_cluster(make: Make) -> None:
    """A Dask worker has one worker of all hosts, and a host sees only its own."""
    dask = FakeDask(2)
    first, second = make(dask.address), make(dask.address)
    first.start(1)
    await_states(first, "running")
    second.start(2)
    await_states(second, "running", "queued")
    assert len(dask.placed()) == 2
    from zmqdata.hosts import daskworkers

    taken = next(iter(dask.workers.values()))
    with pytest.raises(HostError, match="has a worker already"):
        asyncio.run(daskworkers.place("third", "late", first._options, dask_worker=taken))


def test_a_worker_returns_when_its_dask_worker_dies(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker of a Dask worker that has left is started in another one."""
    dask = FakeDask(1)
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    gone = dask.workers.popitem()[0]
    await_states(host, "queued")
    dask.add()
    await_states(host, "running")
    assert list(dask.placed()) == [name]
    assert f"{name} is started again: it ended with its Dask worker {gone}" in caplog.text


def test_the_log_says_how_a_worker_has_ended(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that ends in its Dask worker is closed there and started again, and the
    log has its last words.
    """
    dask = FakeDask(1)
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    ended = dask.placed()[name]
    ended.now = "ended"
    await_condition(lambda: dask.placed().get(name) not in (None, ended), SOON, "another")
    assert ended.is_closed
    assert "it exited with code 2, and wrote: no key" in caplog.text


def test_a_dask_worker_that_does_not_answer_keeps_its_worker(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker counts as before while its Dask worker hangs."""
    monkeypatch.setattr(dask_module, "ANSWERS_WITHIN", 0.05)
    dask = FakeDask(2)
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    [busy] = [one for one in dask.workers.values() if one.workers()]
    busy.hangs = True
    assert host.running() == {name: "running"}
    assert host.running() == {name: "running"}
    busy.hangs = False
    assert list(dask.placed()) == [name]


def test_a_start_that_fails_is_tried_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the error of a start, and the worker starts later."""
    from zmqdata.hosts import daskworkers

    errors = [OSError("no process is left")]

    def failing(name: str, options: Any) -> Any:
        if errors:
            raise errors.pop()
        return fake_dask.FakeWorker(name, options)

    monkeypatch.setattr(daskworkers, "PlacedWorker", failing)
    host = make(FakeDask(1).address)
    host.start(1)
    await_states(host, "running")
    text = r"could not be started on Dask worker tcp://10\.0\.0\.7:40000: no process is left"
    assert re.search(text, caplog.text)


def test_a_worker_that_was_started_twice_drains(make: Make) -> None:
    """A second worker of the same name, whose start was late, drains."""
    from zmqdata.hosts import daskworkers

    dask = FakeDask(2)
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    [other] = [one for one in dask.workers.values() if not one.workers()]
    asyncio.run(daskworkers.place(host._plugin, name, host._options, dask_worker=other))
    late = other.workers()[name]
    await_condition(lambda: late.is_closed, SOON, "its end")
    assert host.running() == {name: "running"}


def test_a_dask_worker_that_closes_gets_no_worker(make: Make) -> None:
    """A Dask worker that closes or is paused accepts no worker, and the end of its
    plugin drains those that it has.
    """
    from zmqdata.hosts import daskworkers

    dask = FakeDask(1)
    [closing] = dask.workers.values()
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    closing.status.name = "closing"
    worker = closing.workers()[name]
    asyncio.run(closing.plugins.pop(host._plugin).teardown(closing))
    assert worker.is_closed
    await_states(host, "queued")
    with pytest.raises(HostError, match="closing"):
        asyncio.run(daskworkers.place(host._plugin, name, host._options, dask_worker=closing))


def test_workers_drain_that_no_host_asks_for(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers drain when the lease of their host is over, and leave nothing. A question
    renews the lease. A host that asks later starts them again.
    """
    from zmqdata.hosts import daskworkers

    monkeypatch.setattr(daskworkers, "LEASE", 0.05)
    monkeypatch.setattr(dask_module, "ANSWERS_WITHIN", 0.05)
    dask = FakeDask(1)
    [place] = dask.workers.values()
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    plugin, worker = place.plugins[host._plugin], place.workers()[name]
    plugin.unasked = daskworkers.LOOKS
    assert host.running() == {name: "running"}
    assert plugin.unasked == 0
    place.hangs = True  # for its host
    asyncio.run(asyncio.wait_for(plugin.expire(place), SOON))
    assert worker.is_closed
    assert place.plugins == {}
    place.hangs = False
    await_states(host, "running")
    assert place.workers()[name] is not worker
    assert f"{name} is started again: it is gone" in caplog.text


def test_close_drains_its_own_workers_only(make: Make) -> None:
    """The end of a host drains its workers, waits for them, and leaves those of other
    hosts. Its client is closed.
    """
    dask = FakeDask(2)
    first, second = make(dask.address), make(dask.address)
    [mine], [other] = first.start(1), second.start(1)
    await_states(first, "running")
    await_states(second, "running")
    workers = dask.placed()
    first.close()
    assert workers[mine].is_closed
    assert workers[other].now == "running"
    assert first._client.status == "closed"
    with pytest.raises(RuntimeError, match="closed"):
        first.start(1)


def test_a_cluster_grows_and_shrinks_back(make: Make) -> None:
    """A cluster gets the Dask workers that a host needs, keeps those that it had, and
    loses only those without a worker and without a task.
    """
    cluster = FakeCluster(1)
    with make(cluster) as host:
        host.start(4)
        await_plan(cluster, 4)
        await_states(host, *["running"] * 4)
        [busy] = [one for one in cluster.scheduler.workers.values() if one.name == 3]
        kept, *_ = busy.workers()
        for worker in cluster.scheduler.placed().values():
            worker.takes_long = True
        host.stop([name for name in host.running() if name != kept])
        await_states(host, "running", *["draining"] * 3)
        await_condition(lambda: cluster._adaptive.size() == 1, SOON, "less need")
        cluster.tick()
        assert cluster.plan == {0, 1, 2, 3}
        for worker in cluster.scheduler.placed().values():
            worker.takes_long = False
        await_states(host, "running")
        next(one for one in cluster.scheduler.workers.values() if one.name == 2).executing = 1
        await_plan(cluster, 2)
        assert cluster.plan == {2, 3}
        next(one for one in cluster.scheduler.workers.values() if one.name == 2).executing = 0
    assert len(cluster.plan) == 1
    assert cluster._adaptive.periodic_callback is None


def test_a_cluster_of_kubernetes_shrinks_to_its_number(make: Make) -> None:
    """A cluster that takes no names of Dask workers gets their number."""
    cluster = FakeKubernetes(1)
    host = make(cluster)
    host.start(3)
    await_plan(cluster, 3)
    await_states(host, "running", "running", "running")
    host.close()
    assert len(cluster.plan) == 1


def test_jobs_with_several_dask_workers_are_closed_as_a_whole(make: Make) -> None:
    """A Dask worker is closed with the others of its job or not at all."""
    cluster = FakeCluster(4)
    names = {0: "0-0", 1: "0-1", 2: "1-0", 3: "1-1"}
    for worker in cluster.scheduler.workers.values():
        worker.name = names[worker.name]  # type: ignore[assignment]
    cluster.worker_spec = {"0": {"group": ["-0", "-1"]}, "1": {"group": ["-0", "-1"]}}
    make(cluster)
    adaptive = cluster._adaptive
    assert asyncio.run(adaptive.workers_to_close(3)) == []
    assert asyncio.run(adaptive.workers_to_close(2)) == ["0-0", "0-1"]
    cluster.scheduler.workers["tcp://10.0.0.7:40001"].executing = 1
    assert asyncio.run(adaptive.workers_to_close(2)) == ["1-0", "1-1"]


def test_hosts_enlarge_a_cluster_together(make: Make) -> None:
    """A cluster has as many Dask workers as all its hosts need. It has its first size
    when the last one has left.
    """
    cluster = FakeCluster(0)
    first, second = make(cluster), make(cluster)
    first.start(1)
    second.start(2)
    await_plan(cluster, 3)
    await_states(first, "running")
    await_states(second, "running", "running")
    first.close()
    cluster.tick()
    assert len(cluster.plan) == 2
    second.close()
    assert cluster.plan == set()


def test_an_error_of_dask_does_not_end_the_growth(make: Make) -> None:
    """A cluster grows on after Dask has stopped its sizing at an error. The end of the
    cluster stops it.
    """
    cluster = FakeCluster(0)
    host = make(cluster)
    cluster._adaptive.stop()
    assert cluster._adaptive.periodic_callback is not None
    cluster.close(1.0)
    cluster._adaptive.stop()
    assert cluster._adaptive.periodic_callback is None
    host.close()


def test_a_cluster_that_adapts_already_is_left_alone(make: Make) -> None:
    """A host does not size a cluster that its user lets adapt."""
    cluster = FakeCluster(1)
    cluster._adaptive = fake_dask.Adaptive(cluster)
    host = make(cluster)
    assert host._adaptive is None
    assert type(cluster._adaptive) is fake_dask.Adaptive


def test_a_cluster_without_a_plan_is_used_as_it_is(make: Make) -> None:
    """A host does not size a cluster that does not tell how large it is to be."""
    cluster = FakeCluster(1)
    host = make(SimpleNamespace(**vars(cluster), asynchronous=False))
    assert host._adaptive is None
    host.start(1)
    await_states(host, "running")


def test_dask_workers_within_this_process_are_a_cluster(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """The address of a scheduler of this process has no port, and no warning says that
    other machines cannot reach a dispatcher.
    """
    dask = FakeDask(1)
    fake_dask.KNOWN["inproc://10.0.0.7/1/1"] = dask
    host = Dask("tcp://127.0.0.1:5050", "inproc://10.0.0.7/1/1")
    host.start(1)
    await_states(host, "running")
    host.close()
    assert caplog.text == ""


def test_a_cluster_that_was_closed_has_ended_its_workers(make: Make) -> None:
    """A host closes at once after its cluster, although no scheduler answers."""
    cluster = FakeCluster(1)
    host = make(cluster)
    host.start(1)
    await_states(host, "running")
    cluster.close(1.0)
    cluster.scheduler.is_gone = True
    host.close()
    assert host._is_ended


def test_a_worker_that_does_not_drain_is_killed(make: Make) -> None:
    """``close`` kills a worker that does not drain in time."""
    dask = FakeDask(1)
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    host._patience = 0.1
    worker = dask.placed()[name]
    worker.takes_long = True
    host.close()
    assert worker.is_killed


def test_close_names_the_worker_of_a_dask_worker_that_hangs(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Dask worker that hangs keeps ``close`` for no longer than a worker may take."""
    monkeypatch.setattr(dask_module, "ANSWERS_WITHIN", 0.05)
    monkeypatch.setattr(host_module, "KILLED_WITHIN", 0.1)
    dask = FakeDask(1)
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    host._patience = 0.1
    [hung] = dask.workers.values()
    hung.hangs = True
    with pytest.raises(HostError, match=f"{name}. They did not end in time. Close it again"):
        host.close()
    hung.hangs = False
    host.close()
    assert dask.placed() == {}


def test_without_a_cluster_the_host_owns_one(make: Make) -> None:
    """The cluster of a host without one begins empty, and ends with the host. Workers
    listen where their dispatcher does.
    """
    host = make()
    own = host._own
    assert own.options["dashboard_address"] is None
    host.start(1)
    await_plan(own, 1)
    await_states(host, "running")
    [worker] = own.scheduler.placed().values()
    assert worker.options.config.host == "0.0.0.0"
    host.close()
    assert own.is_closed


def test_close_tells_what_may_still_run_without_the_engine(make: Make) -> None:
    """If Dask is gone when a host closes, the error names the workers. A later call
    succeeds once Dask is back.
    """
    dask = FakeDask(1)
    host = make(dask.address)
    [name] = host.start(1)
    await_states(host, "running")
    dask.is_gone = True
    with pytest.raises(HostError, match=rf"{name} \(Dask worker tcp.*does not answer"):
        host.close()
    dask.is_gone = False
    host.close()
    assert dask.placed() == {}


def test_an_own_cluster_ends_even_if_it_does_not_answer(make: Make) -> None:
    """The processes of an own cluster end with the host in any case."""
    host = make()
    host.start(1)
    await_plan(host._own, 1)
    await_states(host, "running")
    host._own.scheduler.is_gone = True
    with pytest.raises(HostError, match="may still run"):
        host.close()
    assert host._own.is_closed
    host.close()


@pytest.mark.parametrize(
    ("dask", "side"),
    [
        (FakeDask(0, "3.7.1.final.0"), "scheduler runs Python 3.7, and this program Python 3"),
        (FakeDask(1), r"worker tcp://10\.0\.0\.7:40000 runs Python 3\.7, and this program"),
    ],
)
def test_another_python_is_refused_at_once(make: Make, dask: FakeDask, side: str) -> None:
    """A scheduler or a Dask worker of another minor version of Python is an error that
    names both versions.
    """
    for worker in dask.workers.values():
        worker.python = "3.7.9.final.0"
    with pytest.raises(FailedPreconditionError, match=side):
        make(dask.address)


@pytest.mark.parametrize(
    ("python", "error", "text"),
    [
        ("3.7", None, "it runs Python 3.7, and this program 3."),
        (fake_dask.OWN, Exception("ModuleNotFoundError('zmqdata')"), "It needs zmqdata"),
    ],
)
def test_a_dask_worker_that_joins_and_is_unfit_gets_no_worker(
    make: Make, caplog: pytest.LogCaptureFixture, python: str, error: Exception | None, text: str
) -> None:
    """A Dask worker of another version of Python, or without zmqdata, is not asked
    again, and the log says why it gets no worker.
    """
    dask = FakeDask(1)
    host = make(dask.address)
    unfit = dask.add(python)
    unfit.error = error
    host.start(2)
    await_states(host, "running", "queued")
    assert text in caplog.text
    asked = unfit.asked
    dask.add()
    await_states(host, "running", "running")
    assert unfit.asked == asked
    assert unfit.workers() == {}
    del dask.workers[unfit.address]
    await_condition(lambda: host._unfit == set(), SOON, "that its address may be another's")


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of a missing package names the command that installs it."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'zmqdata[dask]'")):
        Dask(SERVICE)


def test_a_program_that_imports_itself_is_told_of_its_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that runs the main module again, as those of Dask do, makes no
    cluster.
    """
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(FailedPreconditionError, match="__main__"):
        Dask(SERVICE)


@pytest.mark.parametrize(
    ("cluster", "options", "error", "text"),
    [
        (7, {}, TypeError, "`cluster` must be a cluster of Dask"),
        (FakeCluster, {}, TypeError, "`cluster` must be a cluster of Dask"),
        (None, {"proceses": 2}, TypeError, "Did you mean 'processes'?"),
        ("tcp://10.0.0.7:1", {"processes": 0}, ValueError, "`processes`"),
    ],
)
def test_wrong_arguments_are_errors_of_the_call(
    cluster: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """An argument that a host does not take is an error."""
    with pytest.raises(error, match=re.escape(text)):
        Dask(SERVICE, cluster, **options)


def test_a_client_stands_for_its_cluster(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A host takes a client, and does not use it up. A warning says that other machines
    cannot reach a dispatcher on loopback. An asynchronous cluster is refused.
    """
    client = Client(FakeDask(1).address)
    host = Dask("tcp://127.0.0.1:5050", client)
    assert host._options.config.host == "127.0.0.1"
    assert "can be reached from its own machine alone" in caplog.text
    host.close()
    assert client.status == "running"
    client.scheduler = None  # as of one that is closed
    with pytest.raises(TypeError, match="an open Client"):
        make(client)
    cluster = FakeCluster(1)
    monkeypatch.setattr(cluster, "asynchronous", True)
    with pytest.raises(FailedPreconditionError, match="event loop"):
        make(cluster)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("is_gone", "Check that it runs at this address."),
        ("is_old", "It has distributed 2024.8.0, and this program 2026.8.0."),
    ],
)
def test_an_address_that_does_not_answer_is_an_error(fault: str, text: str) -> None:
    """The error of a host whose scheduler does not answer has the address. It has both
    releases if the client does not understand the scheduler.
    """
    dask = FakeDask(0)
    setattr(dask, fault, True)
    with pytest.raises(HostError) as raised:
        Dask(SERVICE, dask.address)
    assert dask.address in str(raised.value)
    assert str(raised.value).endswith(text)
