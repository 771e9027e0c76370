"""Test calls to a dispatcher: their time-outs, and their errors without an answer."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    distribute,
    from_dataset_id,
    register_dataset,
    wire,
)
from zmqdata import messages as m
from zmqdata.client import calls
from zmqdata.client.calls import likely_cause, status
from zmqdata.errors import UnavailableError

NOBODY = "tcp://127.0.0.1:1"
UNKNOWN = "tcp://no-such-host.invalid:1"


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (
            lambda: distribute("parallel_epochs", NOBODY, dispatcher_timeout="x"),
            "dispatcher_timeout",
        ),  # type: ignore[arg-type]
        (
            lambda: register_dataset(NOBODY, Dataset.range(1), dispatcher_timeout="x"),
            "dispatcher_timeout",
        ),  # type: ignore[arg-type]
        (
            lambda: from_dataset_id("parallel_epochs", NOBODY, "id", dispatcher_timeout="x"),
            "dispatcher_timeout",
        ),  # type: ignore[arg-type]
        (lambda: status(NOBODY, "x"), "timeout"),  # type: ignore[arg-type]
    ],
    ids=["distribute", "register_dataset", "from_dataset_id", "status"],
)
def test_every_call_checks_its_time(use: Callable[[], Any], name: str) -> None:
    """Each call refuses an invalid time-out before it sends a request."""
    with pytest.raises(ValueError, match=f"`{name}` must be a positive number of seconds, got 'x'"):
        use()


def test_the_likely_cause() -> None:
    """An unknown host explains silence; with a known host or a file the cause is the
    dispatcher or the network.
    """
    assert likely_cause(UNKNOWN).startswith("Unknown host 'no-such-host.invalid': ")
    assert (
        likely_cause(NOBODY)
        == likely_cause("ipc:///tmp/none")
        == "Check that it is running and that this machine can reach it."
    )


def greet(server: socket.socket, opening: bytes) -> None:
    with server.accept()[0] as visitor:
        visitor.sendall(opening)


def test_a_server_of_another_protocol_is_named() -> None:
    """The port of the metrics or of another program explains silence, and the port of a
    dispatcher does not.
    """
    with DispatchServer(DispatcherConfig(metrics_port=0)) as server:
        place = (server.metrics_address or "").split("/")[2]
        assert likely_cause(f"tcp://{place}").startswith("What listens there speaks another prot")
        assert likely_cause(server.target) == likely_cause(NOBODY)
    for opening in (b"SSH-2.0-x\r\n", b""):
        with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as thread:
            thread.submit(greet, other, opening)
            cause = likely_cause(f"tcp://127.0.0.1:{other.getsockname()[1]}")
        assert ("another protocol" in cause) == bool(opening)


def test_an_unknown_host_is_named_while_waiting_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that waits for an unknown host logs it once, goes on, and names it again
    when it gives up.
    """
    monkeypatch.setattr(calls, "SAY_SO_AFTER", 0.05)
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(UnavailableError, match="Unknown host 'no-such-host"),
    ):
        status(UNKNOWN, 0.2)
    [said] = [
        record.getMessage() for record in caplog.records if "still trying" in record.getMessage()
    ]
    assert "Unknown host 'no-such-host.invalid'" in said


@pytest.mark.parametrize("packing", [0.0, 100.0])
def test_a_wait_is_spoken_of_only_if_nothing_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, packing: float
) -> None:
    """An upload that takes minutes is no wait while the dispatcher confirms pieces, nor
    while this process makes them.
    """
    now = [0.0]

    def made(_: m.Message) -> list[m.Message]:
        now[0] += packing
        return [ask]

    monkeypatch.setattr(calls, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ask, quiet = m.RequestStatus("me"), m.PieceStored("me", "part", 1)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, ThreadPoolExecutor() as threads:
        router, dealer, idle = map(context.socket, (zmq.ROUTER, zmq.DEALER, zmq.PAIR))
        router.rcvtimeo = 10_000
        port = router.bind_to_random_port("tcp://127.0.0.1")
        dealer.connect(f"tcp://127.0.0.1:{port}")
        handshakes: Any = SimpleNamespace(monitor=idle)
        answer, place = m.StatusReported, f"tcp://127.0.0.1:{port}"
        call = threads.submit(
            calls.converse, dealer, handshakes, place, ask, answer, "me", 60.0, made
        )
        for _ in range(10):
            peer, *_ = router.recv_multipart()
            now[0] += calls.SAY_SO_AFTER * 0.7
            router.send_multipart([peer, *wire.pack(quiet)])
        router.send_multipart([peer, *wire.pack(m.StatusReported("me", b"{}"))])
        assert call.result(10.0).status == b"{}"
        for socket in (router, dealer, idle):
            socket.close(linger=0)
    assert not [one for one in caplog.records if "waiting for" in one.getMessage()]


def test_every_purpose_is_that_of_a_message() -> None:
    """The table of purposes names messages that exist."""
    assert [name for name in calls.PURPOSES if not hasattr(m, name)] == []
