"""Tests of sockets that reconnect to an unreachable machine and survive their peers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import zmq

from zmqdata.testing.cluster import await_condition
from zmqdata.transport import keys, sockets


class Deaf:
    """A port that accepts no connection, as behind a cut cable.

    Linux drops connection requests while the queue of connections to be accepted is
    full.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.server = self._stack.enter_context(
            closing(socket.create_server(("127.0.0.1", 0), backlog=0))
        )
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


def test_connections_do_not_all_wait_for_one_thread(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    """libzmq has a second thread while encryption or thousands of closes occupy the
    first.
    """
    assert context.get(zmq.IO_THREADS) >= 2


def test_a_link_that_cannot_be_connected_says_so(
    deaf: Deaf, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """A link soon receives a notice about a peer that does not answer at all."""
    pull = sockets.link_pull(context, deaf.endpoint, "link", "secret")
    assert pull.poll(5_000)
    assert sockets.is_end(pull.recv_multipart(copy=False))
    sockets.close_pull(pull)


def test_a_link_tells_its_end_from_what_a_worker_sends(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    """A link receives a notice when its connection ends, and what a worker sends is
    never taken for one.
    """
    (public, secret), push = zmq.curve_keypair(), context.socket(zmq.PUSH)
    push.set(zmq.CURVE_SERVER, 1)
    push.set(zmq.CURVE_SECRETKEY, secret)
    push.set(zmq.SNDTIMEO, 5_000)
    endpoint = f"tcp://127.0.0.1:{push.bind_to_random_port('tcp://127.0.0.1')}"
    own = zmq.curve_keypair()[1].decode()
    pull = sockets.link_pull(context, endpoint, "link", own, public)
    notice = [(int(zmq.Event.DISCONNECTED)).to_bytes(6, "little"), b"tcp://127.0.0.1"]
    push.send_multipart(notice)
    assert pull.poll(5_000)
    forged = pull.recv_multipart(copy=False)
    assert [frame.bytes for frame in forged] == notice
    assert not sockets.is_end(forged)
    push.close(linger=0)
    assert pull.poll(5_000)
    assert sockets.is_end(pull.recv_multipart(copy=False))
    sockets.close_pull(pull)


def test_links_have_no_heartbeats(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """A link uses the kernel's keepalive and no heartbeats of ZeroMQ. A heartbeat due
    while a link closes and blocks arrive would abort the process.
    """
    push, endpoint = sockets.link_push(context, ["tcp://127.0.0.1:*"], "link")
    pull = sockets.link_pull(context, endpoint, "link", "secret")
    assert {one.get(zmq.HEARTBEAT_IVL) for one in (push, pull)} == {0}
    assert {one.get(zmq.TCP_KEEPALIVE) for one in (push, pull)} == {1}
    sockets.close_pull(pull)
    push.close()


def test_a_link_keeps_next_to_nothing_of_what_is_said_to_it(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    """A link buffers almost nothing that a client sends to it. The server never reads
    these bytes, which stay until the link is closed.
    """
    push, _ = sockets.link_push(context, ["tcp://127.0.0.1:*"], "link")
    assert push.rcvhwm * push.maxmsgsize <= sockets.MAX_GREETING_BYTES
    push.close()


def test_control_connections_ask_again_soon(
    deaf: Deaf, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """A control connection without an answer retries earlier than TCP, from a new
    port.
    """
    dealer, handshakes = sockets.control_dealer(context, deaf.endpoint, None, "dispatcher")
    handshakes.close()
    events = dealer.get_monitor_socket(zmq.Event.CONNECT_DELAYED, "inproc://events")
    soon = 0

    def ask_soon() -> bool:
        nonlocal soon
        began = time.monotonic()
        assert events.poll(10_000)
        events.recv_multipart()
        soon += time.monotonic() - began < 0.9
        return soon == 3

    await_condition(ask_soon, what="three asks that come as soon")
    dealer.disable_monitor()
    events.close(linger=0)
    dealer.close(linger=0)


def test_a_message_is_sent_at_once_or_not_at_all() -> None:
    """A message arrives with all frames, or fails whole if the peer is absent."""
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


DEATHS = {
    "control": """
        server, endpoint = sockets.control_router(zmq.Context(), "tcp://127.0.0.1:0", 400)
        if not (peer := os.fork()):
            context = zmq.Context()
            dealer, _ = sockets.control_dealer(context, endpoint, None, "dispatcher", 400)
            for _ in range(400):
                dealer.send(b"x" * 2000)
            context.destroy(linger=500)
            os._exit(0)
        os.waitpid(peer, 0)
    """,
    "link": """
        (told, tell), (public, secret) = os.pipe(), zmq.curve_keypair()
        if not (peer := os.fork()):
            context = zmq.Context()
            push = context.socket(zmq.PUSH)
            push.set(zmq.CURVE_SERVER, 1)
            push.set(zmq.CURVE_SECRETKEY, secret)
            push.set(zmq.SNDHWM, 0)
            os.write(tell, str(push.bind_to_random_port("tcp://127.0.0.1")).encode())
            for _ in range(300):
                push.send(b"x" * 30_000)
            context.destroy(linger=500)
            os._exit(0)
        endpoint = f"tcp://127.0.0.1:{int(os.read(told, 20))}"
        server = sockets.link_pull(zmq.Context(), endpoint, "link", zmq.curve_keypair()[1].decode(), public)
        os.waitpid(peer, 0)
    """,
}


@pytest.mark.realprocess
@pytest.mark.parametrize("kind", DEATHS)
def test_who_dies_while_much_of_it_waits_takes_nobody_along(kind: str) -> None:
    """A dead peer with many unread messages does not abort the process. libzmq may
    abort at the next heartbeat on a broken connection whose reading is paused.
    """
    lines = [
        "import os, threading, zmq",
        "from zmqdata.transport import sockets",
        textwrap.dedent(DEATHS[kind]),
    ]
    # The process reads nothing until heartbeats are due after the death. It then waits
    # for one more heartbeat behind the last message.
    lines += ["threading.Event().wait(3)"]
    lines += ["while server.poll(1500): server.recv_multipart()"]
    lines += ["print('alive', flush=True)", "os._exit(0)"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=50
    )
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr


def kept_by_kernel(port: int) -> int:
    """Return the kernel's send buffer size for a port on which this process listens."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == port:
                return found.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    raise AssertionError(f"nothing listens on {port}")


@pytest.mark.parametrize(("near", "encrypts"), [(True, False), (True, True), (False, False)])
def test_little_waits_in_the_kernel_for_a_client_of_the_same_host(
    context: zmq.Context[zmq.Socket[bytes]], near: bool, encrypts: bool
) -> None:
    """A link for the same host has a small send buffer, and other links the system's.
    The listening socket sets it for its connections.
    """
    with socket.create_server(("127.0.0.1", 0)) as untouched:
        usual = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    key = keys.new_key() if encrypts else None
    push, endpoint = sockets.link_push(context, ["tcp://127.0.0.1:*"], "link", key, near)
    kept = kept_by_kernel(int(endpoint.rpartition(":")[2]))
    push.close()
    if near and not encrypts:
        most = int(Path("/proc/sys/net/core/wmem_max").read_text(encoding="ascii"))
        assert kept == 2 * min(sockets.NEAR_SEND_BYTES, most)  # a system may allow less
    else:
        assert kept == usual
