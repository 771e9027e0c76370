"""Tests of the host that places actors of Ray, on a module that imitates Ray. Those of
a real one are in ``tests/engines``.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fake_ray import FakeRay, FakeWorker, installed
from zmqdata.cluster.host import HostError
from zmqdata.errors import FailedPreconditionError
from zmqdata.hosts import Ray, ray
from zmqdata.testing.cluster import await_condition

SERVICE = "tcp://10.0.0.1:5050"
MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.60.0
    Python: 3.12.1
This process on node 10.0.0.2 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""

Make = Callable[..., Ray]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Ray, and a host that asks it often."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", "/no/such/folder")
    return installed(monkeypatch)


@pytest.fixture
def make(fake: FakeRay) -> Iterator[Make]:
    """Makes a host, which the test closes or not."""
    hosts = []

    def made(service: str = SERVICE, **options: Any) -> Ray:
        hosts.append(Ray(service, **options))
        return hosts[-1]

    yield made
    fake.error = None
    FakeWorker.drains_at_once = True
    for worker in FakeWorker.made:
        worker.drain()
    for host in hosts:
        with suppress(HostError):
            host.close()


def await_states(host: Ray, *states: str) -> None:
    await_condition(
        lambda: [*host.running().values()] == [*states], 10.0, f"workers that are {states}"
    )


def test_each_worker_is_in_an_actor(fake: FakeRay, make: Make) -> None:
    """An actor has the CPUs of the host, and starts a worker with its name once. Ray
    restarts it without end.
    """
    host = make(num_cpus=0.5, worker_tags=("GPU",))
    names = host.start(2)
    await_states(host, "running", "running")
    assert fake.options == {"num_cpus": 0.5, "max_restarts": -1}
    assert [worker.name for worker in FakeWorker.made] == names
    [options, _] = [worker.options.command("x") for worker in FakeWorker.made]
    assert options == [f"--dispatcher={SERVICE}", "--host=0.0.0.0", "--tag=GPU", "--name=x"]
    assert [repr(actor.life) for actor in fake.actors] == names


def test_workers_of_a_dispatcher_on_loopback_listen_there(fake: FakeRay, make: Make) -> None:
    """Workers listen on loopback if the dispatcher does, so that no key is needed."""
    host = make("tcp://127.0.0.1:5050")
    host.start(1)
    await_states(host, "running")
    assert FakeWorker.made[0].options.config.host == "127.0.0.1"


def test_several_nodes_need_a_dispatcher_that_they_reach(
    fake: FakeRay, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A dispatcher on loopback is a warning on several nodes alone."""
    with caplog.at_level(logging.WARNING):
        make("tcp://127.0.0.1:5050")
        assert caplog.text == ""
        fake.cpus = [4.0, 4.0]
        make(SERVICE)
        assert caplog.text == ""
        make("tcp://127.0.0.1:5050")
    assert "--host 0.0.0.0" in caplog.text


def test_a_worker_that_cannot_be_placed_is_queued(
    fake: FakeRay, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker without a node stays queued. The log says once for each cause what is
    missing, and never that the start has failed.
    """
    monkeypatch.setattr(ray, "LOST_AFTER", 0.05)
    fake.places, fake.cpus = False, [2.0, 1.0]
    host = make(num_cpus=3)
    [name] = host.start(1)
    first = "Workers wait: each needs num_cpus=3, and no node of the Ray cluster has more than 2."
    await_condition(lambda: first in caplog.text, 10.0, "the first cause")
    fake.cpus, fake.taken = [2.0, 4.0], 5.0
    second = "each needs num_cpus=3, and fewer of the 6 CPUs of the Ray cluster are free."
    await_condition(lambda: second in caplog.text, 10.0, "the second cause")
    fake.taken = 6.0
    looks = len(fake.looks)
    await_condition(lambda: len(fake.looks) > looks + 3, 10.0, "more looks")
    fake.taken = 2.0
    third = "their actors have not started. Perhaps no single node has enough free CPUs."
    await_condition(lambda: third in caplog.text, 10.0, "the third cause")
    assert host.running() == {name: "queued"}
    fake.actors[0].place()
    await_states(host, "running")
    assert caplog.text.count("Workers wait:") == 3
    assert len(fake.actors) == 1
    assert "again" not in caplog.text


def test_an_actor_that_never_starts_is_told(
    fake: FakeRay, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If enough CPUs are free, or were at the start, the log says after a while what
    else may be missing.
    """
    monkeypatch.setattr(ray, "LOST_AFTER", 0.0)
    fake.places = False
    host = make()
    host.start(1)
    await_condition(lambda: len(fake.actors) == 1, 10.0, "an actor")
    fake.actors[0].lose_node()
    await_condition(lambda: len(fake.looks) > 3, 10.0, "looks")
    fake.taken = 4.0  # its own is among them
    looks = len(fake.looks)
    await_condition(lambda: len(fake.looks) > looks + 3, 10.0, "more looks")
    assert caplog.text == ""
    monkeypatch.setattr(ray, "STARTS_WITHIN", 0.0)
    await_condition(lambda: "each node needs zmqdata" in caplog.text, 10.0, "the advice")


def test_a_worker_whose_node_dies_is_the_same_one(
    fake: FakeRay, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of a dead node is queued until Ray places its actor again, and starts
    there once. No other actor is made for it.
    """
    monkeypatch.setattr(ray, "LOST_AFTER", 0.05)
    host = make()
    [name] = host.start(1)
    await_states(host, "running")
    fake.actors[0].lose_node()
    await_states(host, "queued")
    assert len(FakeWorker.made) == 1
    fake.actors[0].place()
    await_states(host, "running")
    assert [worker.name for worker in FakeWorker.made] == [name, name]
    assert len(fake.actors) == 1


def test_a_stopped_worker_does_not_come_back(
    fake: FakeRay, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose node dies while it drains is not started on another."""
    FakeWorker.drains_at_once = False
    host = make()
    host.start(1)
    await_states(host, "running")
    host.scale(0)
    await_condition(lambda: FakeWorker.made[0].now == "draining", 10.0, "the drain")
    fake.actors[0].lose_node()
    fake.actors[0].place()
    await_states(host)
    assert fake.actors[0].is_dead
    assert len(FakeWorker.made) == 1
    assert host._endings == {}


def test_a_queued_worker_that_is_stopped_never_starts(fake: FakeRay, make: Make) -> None:
    """An actor that waits for a node is taken away from Ray by ``scale(0)``."""
    fake.places = False
    host = make()
    host.start(1)
    await_condition(lambda: len(fake.actors) == 1, 10.0, "an actor")
    host.scale(0)
    await_states(host)
    assert fake.actors[0].is_dead
    assert FakeWorker.made == []


def test_an_ended_worker_is_replaced(
    fake: FakeRay, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that ends by itself starts again in another actor, under its name. The
    log has what it wrote last.
    """
    host = make()
    [name] = host.start(1)
    await_states(host, "running")
    FakeWorker.made[0].now = "ended"
    await_condition(lambda: len(FakeWorker.made) == 2, 10.0, "the next worker")
    assert [worker.name for worker in FakeWorker.made] == [name, name]
    assert [actor.is_dead for actor in fake.actors] == [True, False]
    assert (
        f"worker {name} is started again: it ended with exit code 2, and wrote: the key"
        in caplog.text
    )


def test_an_actor_that_ray_ended_is_replaced(
    fake: FakeRay, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """An actor that does not come back is replaced, and the log has Ray's words."""
    host = make()
    host.start(1)
    await_states(host, "running")
    fake.actors[0].die("The actor\n\tdied: zmqdata is missing")
    await_condition(lambda: len(fake.actors) == 2, 10.0, "the next actor")
    assert "it was ended by Ray: The actor died: zmqdata is missing" in caplog.text


def test_close_drains_before_it_kills(fake: FakeRay, make: Make) -> None:
    """``close`` waits until workers have drained, and leaves no actor."""
    host = make()
    host.start(2)
    await_states(host, "running", "running")
    host.close()
    assert [worker.now for worker in FakeWorker.made] == ["ended"] * 2
    assert [actor.is_dead for actor in fake.actors] == [True] * 2
    assert fake.shutdowns == 1


def test_workers_that_do_not_drain_are_killed(fake: FakeRay, make: Make) -> None:
    """``close`` kills the actors of workers that do not end in time."""
    FakeWorker.drains_at_once = False
    host = make()
    host._patience = 0.1
    host.start(1)
    await_states(host, "running")
    host.close()
    assert fake.actors[0].is_dead


def test_an_engine_that_is_gone_at_close_is_an_error(fake: FakeRay, make: Make) -> None:
    """The error of ``close`` names the workers that may still run, and has Ray's
    words.
    """
    host = make()
    [name] = host.start(1)
    await_states(host, "running")
    fake.error = ConnectionError("the head node is gone")
    with pytest.raises(HostError, match=f"may still run: {name}") as raised:
        host.close()
    assert "Ray has failed: the head node is gone" in str(raised.value)


def test_ray_has_a_deadline(
    fake: FakeRay, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call that Ray does not answer is an error after the deadline. Until it has its
    answer, other calls are errors, too, and wait in no other thread.
    """
    host = make()
    monkeypatch.setattr(ray, "DEADLINE", 0.05)
    release, create = threading.Event(), fake._create
    monkeypatch.setattr(fake, "_create", lambda *made: release.wait(60.0) and create(*made))
    host.start(1)
    await_condition(lambda: "Ray has not answered within 0.05 s" in caplog.text, 10.0, "the error")
    with pytest.raises(HostError, match=r"not answered within 0\.05 s"):
        host._call(fake.nodes)
    threads = [thread.name for thread in threading.enumerate()]
    assert threads.count("zmqdata-ray") == 1
    monkeypatch.setattr(ray, "DEADLINE", 20.0)
    release.set()
    await_condition(lambda: not host._late.is_alive(), 10.0, "the answer")
    await_states(host, "running")


def test_a_runtime_that_was_shut_down_is_not_started_again(
    fake: FakeRay, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers end with the runtime of their host. It places no worker in another one,
    and ``close`` has nothing left to do.
    """
    fake.init()
    host = make()
    host.start(1)
    await_states(host, "running")
    fake.shutdown()
    fake.init()
    with pytest.raises(HostError, match="was shut down"):
        host.running()
    await_condition(lambda: "Make a new `Ray`" in caplog.text, 10.0, "the error in the log")
    host.close()
    assert len(fake.actors) == 1
    assert fake.is_initialized()


def test_the_last_host_shuts_down_what_the_first_started(fake: FakeRay, make: Make) -> None:
    """A runtime that a host has started serves later hosts until the last is closed."""
    first, second = make(), make()
    first.close()
    assert (fake.inits, fake.shutdowns) == (1, 0)
    second.close()
    second.close()
    assert (fake.inits, fake.shutdowns) == (1, 1)


def test_a_runtime_that_the_program_started_meanwhile_stays(fake: FakeRay, make: Make) -> None:
    """Hosts do not shut down a runtime of the program because an earlier one was
    theirs.
    """
    first = make()
    fake.shutdown()
    fake.init()
    second = make()
    first.close()
    second.close()
    assert fake.is_initialized()


def test_close_in_a_forked_child_leaves_the_runtime(
    fake: FakeRay, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked child shuts down no runtime. Ray would never return."""
    host = make()
    with monkeypatch.context() as child:
        child.setattr(host, "_owner", 0)
        host.close()
        assert fake.is_initialized()
    host.close()
    assert not fake.is_initialized()


def test_a_runtime_that_was_found_stays(fake: FakeRay, make: Make) -> None:
    """A host does not shut down the runtime of the program."""
    fake.init()
    make().close()
    assert fake.is_initialized()


def test_a_cluster_of_another_python_is_refused(fake: FakeRay) -> None:
    """The error names the versions of both sides, and nothing stays connected."""
    fake.refusal = RuntimeError(MISMATCH)
    with pytest.raises(
        FailedPreconditionError,
        match=r"cluster runs Python 3\.12\.1 with Ray 2\.60\.0, .* Python 3\.11\.7 with Ray 2\.60",
    ):
        Ray(SERVICE)
    assert not fake.is_initialized()


def test_a_runtime_that_does_not_start_is_an_error(fake: FakeRay) -> None:
    """The error has Ray's words, and says how clusters are found."""
    fake.refusal = ConnectionError("no node at\n10.0.0.9:6379")
    with pytest.raises(
        HostError, match=r"of this machine .* no node at 10\.0\.0\.9:6379\. .* RAY_A"
    ):
        Ray(SERVICE)


def test_an_address_without_a_cluster_is_refused_at_once(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray, which would try for minutes, is not asked to connect to an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(HostError, match=f"{address} cannot be reached: .*refused"):
        Ray(SERVICE)
    assert fake.inits == 0


def test_a_noted_cluster_that_has_died_is_refused_at_once(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The address that ``ray start`` has noted is tried without a ``RAY_ADDRESS``."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(address)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(HostError, match=rf"{address} cannot be reached: .*`local` to start an"):
        Ray(SERVICE)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    Ray(SERVICE).close()
    assert fake.inits == 1


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Ray, the error has the command that installs it."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'zmqdata\[ray\]'"):
        Ray(SERVICE)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"num_cpus": "2"}, TypeError, "`num_cpus` must be a number, got '2'"),
        ({"num_cpus": -1}, ValueError, "got -1"),
        ({"num_cpus": 1.5}, ValueError, "a whole number or between 0 and 1"),
        ({"num_cpus": float("nan")}, ValueError, "got nan"),
        ({"num_gpus": 2}, TypeError, r"Ray\(\) has no argument 'num_gpus'"),
        ({"processes": 0}, ValueError, "`processes`"),
    ],
)
def test_wrong_options_are_refused(
    fake: FakeRay, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    """An option of the wrong type or value is an error, and starts no runtime."""
    with pytest.raises(kind, match=text):
        Ray(SERVICE, **options)
    assert fake.inits == 0
