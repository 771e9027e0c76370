"""Tests of the base of all hosts, with an engine in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from zmqdata.cluster import following
from zmqdata.cluster import host as host_module
from zmqdata.cluster.fleet import DRAINING, RUNNING
from zmqdata.cluster.following import Bounds
from zmqdata.cluster.host import Host, HostError
from zmqdata.dispatcher.server import DispatchServer
from zmqdata.errors import FailedPreconditionError
from zmqdata.messages import ScaleDecided
from zmqdata.testing.cluster import await_condition

SOON = 10.0


class MemoryHost(Host):
    """A host whose workers are names in a dict.

    Args:
        service: address of the dispatcher.
        drains: True if workers end when they are told to drain.
    """

    def __init__(self, service: str = "tcp://127.0.0.1:1", drains: bool = True) -> None:
        super().__init__(service, "memory", 1, patience=0.2)
        self.states: dict[str, str] = {}
        self.drains, self.fault = drains, ""
        self.bug: BaseException | None = None
        self.refusals = 0
        self.killed: list[str] = []
        self.launched = threading.Semaphore(0)

    def _states(self) -> dict[str, str]:
        if self.bug is not None:
            raise self.bug
        if self.fault:
            raise HostError(self.fault)
        return dict(self.states)

    def _launch(self, name: str) -> None:
        self.launched.release()
        if name.endswith("-13"):
            raise HostError("the quota is used up")
        self.states[name] = RUNNING

    def _drain(self, names: Iterable[str]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise HostError("scancel: busy")
        for name in names:
            if self.drains:
                self.states.pop(name, None)
            else:
                self.states[name] = DRAINING

    def _kill(self, names: Iterable[str]) -> None:
        for name in names:
            self.killed.append(name)
            self.states.pop(name)

    def _known(self) -> list[str]:
        return list(self.states)

    def _last_words(self, name: str) -> str:
        return "was cut off"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts look often."""
    monkeypatch.setattr(host_module, "LOOK_EVERY", 0.01)


@pytest.fixture
def host() -> Iterator[MemoryHost]:
    """A host with an engine in memory."""
    with MemoryHost() as made:
        yield made


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[DispatchServer]:
    """A dispatcher without workers."""
    with DispatchServer() as server:
        yield server


def test_start_and_stop_change_the_wish(host: MemoryHost) -> None:
    """``start`` returns names at once, ``stop`` knows no unknown name, and ``scale``
    sets the number.
    """
    names = host.start(3)
    await_condition(lambda: sorted(host.running()) == sorted(names), SOON, "three workers")
    await_condition(lambda: set(host.running().values()) == {RUNNING}, SOON, "their start")
    host.stop([names[0], "unknown"])
    await_condition(lambda: sorted(host.running()) == sorted(names[1:]), SOON, "two workers")
    host.scale(4)
    await_condition(lambda: len(host.running()) == 4, SOON, "four workers")
    host.scale(0)
    await_condition(lambda: host.running() == {}, SOON, "no worker")


def test_an_ended_worker_is_replaced_with_a_line_in_the_log(
    host: MemoryHost, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says how a worker has ended, and another one takes its name."""
    [name] = host.start(1)
    await_condition(lambda: host.states, SOON, "a worker")
    host.states.clear()
    await_condition(lambda: host.states == {name: RUNNING}, SOON, "its successor")
    assert f"worker {name} is started again: it was cut off" in caplog.text


def test_the_engines_words_are_in_the_log(
    host: MemoryHost, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused start is logged with the words of the engine, and the others go on."""
    host.start(14)
    await_condition(lambda: len(host.states) == 13, SOON, "all but one")
    await_condition(lambda: "the quota is used up" in caplog.text, SOON, "the refusal")
    assert host.running()[host._fleet.wanted[13]] == "queued"


def test_a_closed_host_has_drained_its_workers() -> None:
    """``close`` waits until all have ended, kills those that do not, and is final."""
    host = MemoryHost(drains=False)
    names = host.start(2)
    await_condition(lambda: len(host.states) == 2, SOON, "two workers")
    host.close()
    assert sorted(host.killed) == sorted(names)
    host.close()
    for call in (lambda: host.start(1), lambda: host.scale(1), host.running):
        with pytest.raises(RuntimeError, match="MemoryHost is closed"):
            call()


def test_an_engine_that_is_gone_leaves_names(caplog: pytest.LogCaptureFixture) -> None:
    """``close`` names the workers that may still run if the engine does not answer."""
    host = MemoryHost()
    [name] = host.start(1)
    await_condition(lambda: host.states, SOON, "a worker")
    host.fault = "squeue: no controller"
    await_condition(lambda: host.fault in caplog.text, SOON, "a line in the log")
    with pytest.raises(HostError, match=f"may still run: {name}. squeue: no controller"):
        host.close()
    assert caplog.text.count(host.fault) == 1


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda host: host.start(-1), ValueError, "`n`"),
        (lambda host: host.start("2"), TypeError, "`n`"),
        (lambda host: host.scale(5000), ValueError, "`n`"),
        (lambda host: host.stop("memory-1"), TypeError, r"write \['memory-1'\]"),
        (lambda host: host.adapt(3, 2), ValueError, r"`minimum`=3 .* exceeds `maximum`=2"),
        (lambda host: host.adapt(0, 2, interval=0), ValueError, "`interval` must be at least"),
        (lambda host: host.adapt(0, 2, interval="1"), TypeError, "`interval` must be"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(
    host: MemoryHost, call: Callable[[Host], object], error: type[Exception], text: str
) -> None:
    """Numbers out of range and texts are errors of the call, and start nothing."""
    with pytest.raises(error, match=text):
        call(host)
    assert host.running() == {}


def test_bounds_clamp_workers_of_several_processes() -> None:
    """Six processes are three workers of two, or two of four."""
    assert [Bounds(0, 10).clamped(6, each) for each in (1, 2, 4)] == [6, 3, 2]
    assert (Bounds(2, 5).clamped(0, 1), Bounds(2, 5).clamped(9, 1)) == (2, 5)


def test_a_fault_of_the_host_ends_no_wish(
    host: MemoryHost, caplog: pytest.LogCaptureFixture
) -> None:
    """After an unforeseen error the host goes on, and the log has it once."""
    host.bug = ValueError("no such table")
    host.start(1)
    await_condition(lambda: "ValueError: no such table" in caplog.text, SOON, "the log")
    host.bug = None
    await_condition(lambda: host.states, SOON, "the worker")
    assert caplog.text.count("no such table") == 1


def test_a_drain_that_the_engine_refuses_is_repeated(host: MemoryHost) -> None:
    """A worker that could not be told to end is told again at the next look."""
    [name] = host.start(1)
    await_condition(lambda: host.states, SOON, "a worker")
    host.refusals = 2
    host.stop([name])
    await_condition(lambda: not host.states, SOON, "its end")


def test_a_close_that_was_interrupted_is_repeated() -> None:
    """Ctrl-C, or an engine that is gone, leaves a host that can be closed again."""
    host = MemoryHost()
    host.start(1)
    await_condition(lambda: host.states, SOON, "a worker")
    host.bug = KeyboardInterrupt()
    host._halt()
    with pytest.raises(KeyboardInterrupt):
        host.close()
    host.bug, host.fault = None, "no controller"
    with pytest.raises(HostError, match="no controller"):
        host.close()
    host.fault = ""
    host.close()
    assert host.states == {}


def test_a_signal_handler_cannot_close_what_it_interrupts(host: MemoryHost) -> None:
    """A handler that interrupts a call gets an error that names ``SystemExit``."""
    with host._state, pytest.raises(RuntimeError, match="raise SystemExit"):
        host.close()


def follows(host: Host) -> bool:
    """Return True if a host is admitted as the one that follows the number."""
    try:
        host.adapt(1, 2)
    except FailedPreconditionError:
        return False
    return True


def test_only_one_host_follows_the_dispatcher(dispatcher: DispatchServer) -> None:
    """A second host is refused with the name of the first, until that ends."""
    with MemoryHost(dispatcher.target) as first, MemoryHost(dispatcher.target) as second:
        first.adapt(1, 2, interval=60.0)
        with pytest.raises(FailedPreconditionError, match=first._follower.name):
            second.adapt(1, 2)
        assert second.running() == {}
        await_condition(lambda: len(first.running()) == 1, SOON, "the minimum")
        first.scale(2)
        await_condition(lambda: not first._follower.asks, SOON, "its goodbye")
        await_condition(lambda: follows(second), SOON, "the place")


def test_a_host_follows_once_the_dispatcher_answers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer the minimum is kept, the log says so once, and ``scale`` ends
    the questions.
    """
    monkeypatch.setattr(following, "ASK_PATIENCE", 0.05)
    monkeypatch.setattr(following, "GOODBYE_PATIENCE", 0.05)
    caplog.set_level(logging.INFO)
    with MemoryHost() as host:
        host.adapt(2, 5, interval=0.1)
        await_condition(lambda: len(host.states) == 2, SOON, "the minimum")
        assert "No dispatcher has answered" in caplog.text
        host.scale(1)
        await_condition(lambda: len(host.states) == 1, SOON, "the end of one")


@pytest.mark.parametrize(("workers", "pause"), [(0, 1.0), (3, 7.0)])
def test_the_number_is_asked_for_sooner_while_no_worker_is_wanted(
    workers: int, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher is asked again after a second while it wants no worker, so that a
    loop that begins does not wait for the interval.
    """
    follower = following.Follower("tcp://127.0.0.1:1", "Memory", 1)
    told = ScaleDecided("request", workers, "a reason", 1)
    monkeypatch.setattr(following, "ask_scale", lambda *asked: told)
    monkeypatch.setattr(following.time, "monotonic", lambda: 100.0)
    assert follower.ask(Bounds(0, 4, 7.0)) == workers
    assert [follower.is_due(100.0 + pause - 0.1), follower.is_due(100.0 + pause)] == [False, True]
