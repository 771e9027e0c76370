"""Tests of the visitors of an HTTP server."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest

from zmqdata.testing.cluster import await_condition
from zmqdata.transport import visitors
from zmqdata.transport.visitors import HostNames, Places, Visit, VisitorServer


class Greeting(Visit):
    """Answers each request with its path."""

    def visit(self) -> None:
        self.answer(200, self.path)


@pytest.fixture
def server() -> Iterator[VisitorServer]:
    """A server of four visitors at a time."""
    made = VisitorServer(socket.create_server(("127.0.0.1", 0)), Greeting, 4, "greeting")
    made.start()
    yield made
    made.stop()


def connected(server: VisitorServer, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(server.server_address[:2], timeout=20)
    made.sendall(sent)
    return made


def ask(server: VisitorServer) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/x")
        return connection.getresponse().status


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: loc"])
def test_half_requests_keep_nobody_out(server: VisitorServer, sent: bytes) -> None:
    """Each newcomer is served, although half requests take all places. Newcomers that
    are answered leave theirs.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connected(server, sent))
        for _ in range(5):
            assert ask(server) == 200
            await_condition(lambda: not server._places._served)


def test_a_request_has_to_be_complete_in_time(
    server: VisitorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A visitor that sends its request byte by byte is hung up on, also if there is
    room.
    """
    with connected(server, b"GET / HT") as slow:
        assert ask(server) == 200
        monkeypatch.setattr(visitors, "REQUEST_SECONDS", 0.0)
        assert slow.recv(1) == b""


def told(server: VisitorServer, sent: bytes) -> bytes:
    with connected(server, sent) as visitor:
        return b"".join(iter(lambda: visitor.recv(1 << 16), b""))


def test_a_request_has_a_longest_head(server: VisitorServer) -> None:
    """Headers that are too long together are refused, as they would take memory, and
    so is a line.
    """
    line = b"A: " + b"b" * 20_000 + b"\r\n"
    assert told(server, b"GET / HTTP/1.1\r\n" + 2 * line + b"\r\n").startswith(b"HTTP/1.1 200 ")
    assert told(server, b"GET / HTTP/1.1\r\n" + 4 * line).startswith(b"HTTP/1.1 431 ")
    assert told(server, b"GET /".ljust(1 + (64 << 10), b"a")).startswith(b"HTTP/1.1 414 ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"DELETE / HTTP/1.1\r\n\r\n", b"405"),
        (b"HEAD /x HTTP/1.1\r\n\r\n", b"200"),
    ],
)
def test_other_requests_are_answered(server: VisitorServer, sent: bytes, status: bytes) -> None:
    """A request that is none, and one that would change something, get an error."""
    assert status in told(server, sent).partition(b"\r\n")[0]


def test_visitors_that_are_answered_keep_their_places() -> None:
    """A visitor whose request is complete never makes room; a further one is sent
    away.
    """
    places: Places[int] = Places(3)
    for number in range(3):
        assert places.enter(number, now=number) is None
    places.complete(0)
    places.complete(2)
    assert places.overdue(now=100.0) == [1]
    assert places.enter(3, now=3.0) == 1
    places.complete(3)
    assert places.enter(4, now=4.0) == 4
    places.leave(0)
    assert places.enter(5, now=5.0) is None


def test_a_visitor_that_made_room_does_not_come_back() -> None:
    """A request that completes after its visitor was sent away takes no place."""
    places: Places[int] = Places(1)
    places.enter(0, now=0.0)
    assert places.enter(1, now=1.0) == 0
    places.complete(0)
    places.complete(1)
    places.leave(1)
    assert places.enter(2, now=2.0) is None


def test_places_leave_descriptors_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server takes fewer visitors if few descriptors are left, and always some."""
    for left, expected in ((1000, 100), (60, 28), (10, visitors.LEAST)):
        monkeypatch.setattr(visitors, "left", lambda left=left: left)
        made = VisitorServer(socket.create_server(("127.0.0.1", 0)), Greeting, 100, "greeting")
        assert made._places._most == expected
        made.stop()


def test_a_visitor_without_a_request_is_forgotten(server: VisitorServer) -> None:
    """A connection that is closed before a request leaves its place."""
    for _ in range(3):
        connected(server).close()
    await_condition(lambda: not server._places._incomplete)


@pytest.mark.parametrize(
    "host", ["localhost", "IP6-LOCALHOST:1", "[::1]:9", "127.0.0.1", "10.1.2.3:80"]
)
def test_addresses_and_own_names_are_known(host: str) -> None:
    """An address always passes, and so do the names of this machine."""
    assert HostNames([]).has(host)
    assert HostNames([]).has(socket.gethostname())


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil", "[::1"]
)
def test_other_names_are_declared(host: str) -> None:
    """A foreign name, and what only looks like an address, does not pass."""
    assert not HostNames(["", "known.example"]).has(host)
