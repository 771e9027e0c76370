"""Sockets find their way back to a machine that was out of reach."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
import zmq

from zmqdata.transport import sockets


class Deaf:
    """A port that takes no connection, as one behind a cut cable: what asks for one is lost without an answer.

    Linux loses asks for connections while the queue of those that nobody has taken yet is full.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.server = self._stack.enter_context(closing(socket.create_server(("127.0.0.1", 0), backlog=0)))
        self.address = self.server.getsockname()
        self._fill()

    def _fill(self) -> None:
        while True:
            client = self._stack.enter_context(closing(socket.socket()))
            client.settimeout(0.2)
            try:
                client.connect(self.address)
            except TimeoutError:
                return

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.address[1]}"

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    with closing(Deaf()) as made:
        yield made


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    monkeypatch.setattr(sockets, "CONNECT_MS", 200)
    made = sockets.new_context()
    yield made
    made.destroy(linger=0)


def test_a_link_that_cannot_be_connected_says_so(deaf: Deaf, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """The monitor of a link speaks soon when the other side does not answer at all."""
    pull, monitor = sockets.link_pull(context, deaf.endpoint, "link", "secret")
    assert monitor.poll(5_000)
    sockets.close_pull(pull)


def test_control_connections_ask_again_soon(deaf: Deaf, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """A connection that gets no answer is asked for anew, each time from another port, before TCP would."""
    dealer, handshakes = sockets.control_dealer(context, deaf.endpoint, None, "dispatcher")
    handshakes.close()
    events = dealer.get_monitor_socket(zmq.Event.CONNECT_DELAYED, "inproc://events")
    for _ in range(3):
        assert events.poll(900)
        events.recv_multipart()
    dealer.disable_monitor()
    dealer.close(linger=0)


def test_a_message_is_sent_at_once_or_not_at_all() -> None:
    """All frames arrive as one message; of one for somebody who is not there, none goes."""
    with sockets.new_context() as context:
        router, endpoint = sockets.control_router(context, "tcp://127.0.0.1:0", 1_000)
        dealer, handshakes = sockets.control_dealer(context, endpoint, None, "dispatcher")
        with closing(router), closing(dealer), closing(handshakes):
            sockets.send_at_once(dealer, [b"one", b"two", b"three"])
            assert router.poll(10_000)
            peer, *frames = router.recv_multipart()
            with pytest.raises(zmq.ZMQError) as refused:
                sockets.send_at_once(router, [b"nobody", b"lost"])
            sockets.send_at_once(router, [peer, b"back"])
            assert dealer.poll(10_000)
            assert (frames, dealer.recv_multipart()) == ([b"one", b"two", b"three"], [b"back"])
    assert refused.value.errno == zmq.EHOSTUNREACH
