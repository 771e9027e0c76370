"""Tests of ``zmqdata.transport.tcp``: the kernel's counters of our connections."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import pytest

from zmqdata.testing.cluster import await_condition
from zmqdata.transport import tcp
from zmqdata.transport.tcp import sent_by_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not tell")
SENT = 300_000


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Return a socket that listens on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def connected(listener: socket.socket, nbytes: int) -> tuple[socket.socket, socket.socket]:
    """Return a connection on which the listening side has sent ``nbytes``."""
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    server.setblocking(True)
    left = nbytes
    while left:
        left -= server.send(bytes(min(left, 60_000)))
        client.recv(60_000, socket.MSG_WAITALL if left else 0)
    return client, server


def test_what_has_arrived_is_counted(listener: socket.socket) -> None:
    """The kernel reports our port's acknowledged bytes and time spent sending."""
    port = listener.getsockname()[1]
    client, server = connected(listener, SENT)
    with client, server:
        await_condition(
            lambda: sent_by_port([port])[port].nbytes >= SENT, 10.0, "the acknowledgement"
        )
        sent = sent_by_port([port, port + 1])
        assert list(sent) == [port]
        assert SENT <= sent[port].nbytes <= SENT + 1
        assert 0 <= sent[port].busy < 60


def test_the_busiest_connection_speaks_for_a_port(listener: socket.socket) -> None:
    """The busiest connection of a port counts, even if idle strangers connect to it."""
    port = listener.getsockname()[1]
    pairs = [connected(listener, size) for size in (0, SENT, 0)]
    await_condition(lambda: sent_by_port([port])[port].nbytes >= SENT, 10.0, "the acknowledgement")
    for sockets in pairs:
        for one in sockets:
            one.close()


def test_nobody_is_counted_who_is_not_connected(listener: socket.socket) -> None:
    """A port without connections and an empty list yield nothing, and our sockets stay
    open.
    """
    assert sent_by_port([listener.getsockname()[1]]) == sent_by_port([]) == {}
    assert listener.getsockname()


def test_a_kernel_that_tells_less_gives_nothing(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the list of descriptors, the option or its newer fields, no speed is
    known.
    """
    client, server = connected(listener, 10)
    port = listener.getsockname()[1]
    with client, server, monkeypatch.context() as context:
        context.setattr(tcp, "FOLDER", os.path.join(os.devnull, "nothing"))
        assert sent_by_port([port]) == {}
    assert tcp._counts(bytes(104)) is None
    monkeypatch.delattr(socket, "TCP_INFO")
    assert sent_by_port([port]) == {}
