"""Tests of the life cycle of servers, by tf.data's rules."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.forks import told_by_child
from zmqdata import DispatcherConfig, DispatchServer, WorkerConfig, WorkerServer
from zmqdata.errors import NotFoundError
from zmqdata.testing.cluster import await_condition, listens, no_leaks
from zmqdata.transport.lifecycle import waitable

NOWHERE = "tcp://127.0.0.1:1"


def make_dispatcher(start: bool = False) -> DispatchServer:
    return DispatchServer(start=start)


def make_worker(start: bool = False) -> WorkerServer:
    return WorkerServer(WorkerConfig(dispatcher_address=NOWHERE), start=start)


BOTH = pytest.mark.parametrize("make", [make_dispatcher, make_worker])


def test_what_is_too_long_for_a_lock_is_for_ever() -> None:
    """Infinity and timeouts beyond a lock's maximum become None; others stay."""
    same = (None, 0, 2.5, threading.TIMEOUT_MAX)
    assert tuple(waitable(seconds) for seconds in same) == same
    assert waitable(float("inf")) is waitable(threading.TIMEOUT_MAX * 2) is None


@BOTH
def test_starting_and_stopping_twice_changes_nothing(make: Callable[[], Any]) -> None:
    """start() and stop() are idempotent."""
    with no_leaks():
        server = make()
        server.start()
        address = server.address
        server.start()
        assert server.address == address
        assert not server.join(0)
        server.stop()
        server.stop()
        assert server.join(0)


@BOTH
def test_no_second_life(make: Callable[[bool], Any]) -> None:
    """A stopped server cannot be started again, whether it ran or not. The error uses
    tf.data's words.
    """
    for ran in (True, False):
        server = make(ran)
        server.stop()
        with pytest.raises(
            RuntimeError, match="Server cannot be started after it has been stopped"
        ):
            server.start()


@BOTH
def test_join_returns_at_once_on_a_stopped_server(make: Callable[[bool], Any]) -> None:
    """join() waits until a server stops, and returns at once on a stopped server."""
    server = make(True)
    joined = threading.Thread(target=server.join)
    joined.start()
    assert joined.is_alive()
    server.stop()
    joined.join(10)
    assert not joined.is_alive()
    assert server.join() is server.join(5) is True


@BOTH
def test_there_is_nothing_to_join_before_the_start(make: Callable[[], Any]) -> None:
    """join() on a server that was never started raises instead of waiting forever."""
    with pytest.raises(RuntimeError, match=r"was not started; call start\(\) before join\(\)"):
        make().join()


@BOTH
def test_a_server_that_nobody_has_any_more_stops(make: Callable[[bool], Any]) -> None:
    """A server without references frees its port and its threads."""
    with no_leaks():
        server = make(True)
        address, gone = server.address, weakref.ref(server)
        assert listens(address)
        del server
        gc.collect()
        assert gone() is None
        await_condition(lambda: not listens(address))


def test_a_server_may_be_destroyed_in_its_own_thread() -> None:
    """A server whose last reference is dropped in its own loop stops too."""
    with no_leaks():
        server = DispatchServer()
        address = server.address
        shell = server._own_shell()
        assert shell is not None
        held, dropped = [server], threading.Event()
        del server
        post = shell.loop.post
        del shell
        post(lambda: (held.clear(), dropped.set()))  # type: ignore[arg-type]
        assert dropped.wait(10)
        await_condition(lambda: not listens(address))


@pytest.mark.realprocess
@pytest.mark.parametrize("what", ["DispatchServer()", "WorkerServer(WorkerConfig('127.0.0.1:1'))"])
def test_a_process_ends_with_a_running_server(what: str) -> None:
    """A script that does not stop its server ends without output."""
    program = f"from zmqdata import *; from zmqdata import WorkerConfig; kept = {what}"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_forked_child_ends_nothing() -> None:
    """Destroying a server in a forked child leaves the parent's server running."""
    held = [DispatchServer()]
    address = held[0].address

    def drop() -> bool:
        held.clear()
        gc.collect()
        return listens(address)

    assert told_by_child(drop) == "True"
    assert listens(address)
    held[0].stop()


def test_no_address_before_the_start() -> None:
    """A server on any free port that was not started has no address, no workers and no
    tasks.
    """
    for ask in (
        lambda: make_dispatcher().target,
        lambda: make_dispatcher().address,
        lambda: make_worker().address,
    ):
        with pytest.raises(RuntimeError, match="before start"):
            ask()
    assert make_dispatcher().num_workers() == make_worker().num_tasks() == 0
    assert not make_worker().wait_registered(0)


def test_a_fixed_port_is_an_address_before_the_start() -> None:
    """A server with a fixed port tells its address before the start, and has the same
    address afterwards; a server that was stopped before tells none.
    """
    with DispatchServer() as passing:
        port = int(passing.target.rpartition(":")[2])
    dispatcher = DispatchServer(DispatcherConfig(port=port), start=False)
    told = dispatcher.target
    assert told == dispatcher.address == f"tcp://127.0.0.1:{port}"
    with dispatcher:
        dispatcher.start()
        assert dispatcher.target == told
        with WorkerServer(WorkerConfig(told)) as passing_worker:
            free = int(passing_worker.address.rpartition(":")[2])
        worker = WorkerServer(WorkerConfig(told, port=free), start=False)
        assert worker.address == f"tcp://127.0.0.1:{free}"
        with worker:
            worker.start()
            assert worker.address == f"tcp://127.0.0.1:{free}"
    fresh = DispatchServer(DispatcherConfig(port=port), start=False)
    fresh.stop()
    with pytest.raises(RuntimeError, match="was stopped and never started, so it has no address"):
        fresh.target  # noqa: B018 - asking is all that is wanted


def test_counts() -> None:
    """A dispatcher counts workers until they stop, and a worker knows if it is
    registered. Both know their address.
    """
    with DispatchServer() as dispatcher:
        with WorkerServer(WorkerConfig(dispatcher_address=dispatcher.target)) as worker:
            assert worker.wait_registered(30)
            assert dispatcher.num_workers() == 1
            assert worker.num_tasks() == 0
            assert worker.address.startswith("tcp://127.0.0.1:")
            assert dispatcher.target == dispatcher.address
        await_condition(lambda: dispatcher.num_workers() == 0)


def test_the_address_is_told_after_the_end() -> None:
    """A stopped server keeps its address."""
    server = DispatchServer()
    target = server.target
    server.stop()
    assert server.target == target


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: DispatchServer(5),
            TypeError,
            "`config` must be DispatcherConfig, got 5 of type int",
        ),
        (
            lambda: DispatchServer(WorkerConfig(NOWHERE)),
            TypeError,
            "`config` must be DispatcherConfig, got Worker",
        ),
        (lambda: DispatchServer(DispatcherConfig(), 1), TypeError, "`start` must be bool, got 1"),
        (lambda: DispatchServer(start=None), TypeError, "`start` must be bool, got None"),
        (lambda: WorkerServer(None), TypeError, "`config` must be WorkerConfig, got None"),
        (
            lambda: WorkerServer(NOWHERE),
            TypeError,
            "`config` must be WorkerConfig, got 'tcp://127.0.0.1:1'",
        ),
        (
            lambda: WorkerServer(WorkerConfig(NOWHERE), "yes"),
            TypeError,
            "`start` must be bool, got 'yes'",
        ),
        (
            lambda: WorkerServer(WorkerConfig("grp://a:1"), False),
            NotFoundError,
            "No credentials factory .* grp",
        ),
        (
            lambda: WorkerServer(WorkerConfig("a:b:c"), False),
            ValueError,
            "Malformed address 'a:b:c'",
        ),
        (
            lambda: WorkerServer(WorkerConfig(NOWHERE, worker_address="a:b:c"), False),
            ValueError,
            "Malformed address",
        ),
        (
            lambda: WorkerServer(WorkerConfig(NOWHERE, data_transfer_address="a b"), False),
            ValueError,
            "Malformed address",
        ),
    ],
)
def test_a_server_refuses(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    """An argument of a wrong type or an invalid address is rejected before anything
    starts.
    """
    with no_leaks(), pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("name", ["join", "wait_registered"])
def test_what_is_no_time_is_refused(name: str) -> None:
    """A timeout that is negative or not a number is rejected at the call."""
    with make_worker(True) as server:
        use = getattr(server, name)
        with pytest.raises(
            TypeError, match="`timeout` must be a number of seconds or None, got '1'"
        ):
            use("1")
        with pytest.raises(
            ValueError, match="`timeout` must be a number of seconds from 0 up, got -1"
        ):
            use(-1)


def test_who_waits_for_a_worker_that_is_stopped_hears_so() -> None:
    """``wait_registered`` without a timeout ends when the worker stops. Its error says
    that the worker was never registered.
    """
    worker, answers = make_worker(start=True), []
    waiting = threading.Thread(target=lambda: answers.append(worker.wait_registered()), daemon=True)
    waiting.start()
    worker.stop()
    waiting.join(10)
    assert answers == [False]
    assert not worker.wait_registered()


def test_a_worker_that_cannot_start_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that fails to start closes its sockets, so that its ZeroMQ context can
    end. A garbage-collected context would wait for them.
    """
    import zmq

    from zmqdata.worker import control, server

    made: list[zmq.Context[Any]] = []
    new_context = server.sockets.new_context

    def remembered(*told: Any) -> zmq.Context[Any]:
        made.append(new_context(*told))
        return made[-1]

    def broken(*arguments: Any) -> str:
        raise ValueError("no such address")

    monkeypatch.setattr(server.sockets, "new_context", remembered)
    monkeypatch.setattr(control, "announced_address", broken)
    with pytest.raises(ValueError, match="no such address"):
        make_worker(start=True)
    assert [one.closed for one in made] == [True]


@BOTH
def test_an_address_outlives_its_server(make: Callable[..., Any]) -> None:
    """A stopped server has its address, and a server that never ran explains why it has
    none.
    """
    server = make(True)
    address = server.address
    server.stop()
    assert server.address == address
    fresh = make(False)
    with pytest.raises(RuntimeError, match="has no address before start"):
        fresh.address  # noqa: B018 - asking is all that is wanted
    fresh.stop()
    with pytest.raises(RuntimeError, match="was stopped and never started, so it has no address"):
        fresh.address  # noqa: B018 - asking is all that is wanted
