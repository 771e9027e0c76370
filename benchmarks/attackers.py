"""Hostile peers, for ``benchmarks/attacks.py`` and the tests in ``tests/hostile``.

    python -m benchmarks.attackers KIND ENDPOINT SECONDS [--key-file FILE]

Each attack is a function that runs until it is told to stop. Some have no key and speak
plain TCP. The others have an admitted key, and send what no client would send.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import resource
import secrets
import select
import socket as plain
import sys
import threading
import time
from collections.abc import Callable, Iterator

import zmq

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.transport.handshakes import SIGNATURE
from zmqdata.transport.keychoice import own_key
from zmqdata.transport.keys import Key, load, new_key

GREETING = SIGNATURE + b"\1" + b"CURVE".ljust(20, b"\0") + b"\0" * 32
"""A client's whole ZMTP greeting."""
MOST_CONNECTIONS = 10_000
"""Limit of connections that an attack holds."""
SPARE_FILES = 500
"""File descriptors that an attack leaves free."""
AT_ONCE = 100
"""Connections made in a batch, and the high-water mark of sends."""
TAKES = 1_000
"""High-water mark of receives."""
HELD_BYTES = 8 << 20
"""Bytes of an unfinished handshake command that are sent."""

Stop = Callable[[], bool]


def place_of(endpoint: str) -> tuple[str, int]:
    """Return host and port of a TCP endpoint."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


class Recorder:
    """A proxy in front of a server, which records what a client sends through it.

    Args:
        endpoint: endpoint of the server.

    Attributes:
        endpoint: endpoint of the proxy, for the client.
        said: bytes that the client has sent so far.
    """

    def __init__(self, endpoint: str) -> None:
        self._server = place_of(endpoint)
        self._listener = plain.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.said = b""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            near, _ = self._listener.accept()
            with near, plain.create_connection(self._server) as far:
                while True:
                    for one in select.select([near, far], [], [])[0]:
                        part = one.recv(1 << 16)
                        if not part:
                            return
                        (far if one is near else near).sendall(part)
                        self.said += part if one is near else b""

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()


def recorded(endpoint: str, key: Key, frames: list[bytes], patience: float = 10.0) -> bytes:
    """Return the TCP bytes that a client with a key sends to a server until its first
    message is answered.
    """
    recorder = Recorder(endpoint)
    with zmq.Context() as context, with_key(context, recorder.endpoint, key) as client:
        client.send_multipart(frames)
        if not client.poll(int(patience * 1000)):
            raise TimeoutError(f"{endpoint} has not answered within {patience:g} s")
        said = recorder.said
    recorder.close()
    return said


def with_key(
    context: zmq.Context[zmq.Socket[bytes]],
    endpoint: str,
    key: Key,
    takes: int = TAKES,
    name: bytes = b"",
) -> zmq.Socket[bytes]:
    """Return a connection with a key that queues at most ``takes`` messages unread."""
    socket = context.socket(zmq.DEALER)
    if name:
        socket.routing_id = name
    socket.linger = 0
    socket.rcvhwm = takes
    socket.sndhwm = AT_ONCE
    socket.curve_publickey, socket.curve_secretkey = key.pair
    socket.curve_serverkey = key.known[0].public.encode()
    socket.connect(endpoint)
    return socket


def burning(endpoint: str, key: Key, stop: Stop) -> None:
    """Compute without sending anything: the cost of any other program on a core, for
    comparison.
    """
    while not stop():
        pass


# --- without a key


def hold(endpoint: str, said: bytes, count: int) -> list[plain.socket]:
    """Open connections that send certain bytes and nothing else; fewer if file
    descriptors run out.
    """
    held: list[plain.socket] = []
    with contextlib.suppress(OSError):
        for _ in range(count):
            one = plain.create_connection(place_of(endpoint), 5.0)
            held.append(one)
            one.sendall(said)
    return held


def crowd(endpoint: str, said: bytes, stop: Stop, most: int = MOST_CONNECTIONS) -> None:
    """Hold as many connections as possible, and replace those that the server ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = min(most, hard - SPARE_FILES)
    held: list[plain.socket] = []
    poller = select.epoll()
    try:
        while not stop():
            fresh = hold(endpoint, said, min(AT_ONCE, most - len(held)))
            for one in fresh:
                one.setblocking(False)
                poller.register(one, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)
            ended = {descriptor for descriptor, _ in poller.poll(0.0 if fresh else 0.1)}
            for one in [one for one in held if one.fileno() in ended]:
                poller.unregister(one)
                one.close()
            held = [one for one in held if one.fileno() >= 0] + fresh
    finally:
        for one in held:
            one.close()
        poller.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def silence(endpoint: str, key: Key, stop: Stop) -> None:
    """Hold connections that send nothing."""
    crowd(endpoint, b"", stop)


def half_greeting(endpoint: str, key: Key, stop: Stop) -> None:
    """Hold connections that stop in the middle of the greeting."""
    crowd(endpoint, GREETING[:20], stop)


def half_handshake(endpoint: str, key: Key, stop: Stop) -> None:
    """Hold connections that stop after the greeting."""
    crowd(endpoint, GREETING + b"\x04\xc8\x05HELLO", stop)


def long_handshake(endpoint: str, key: Key, stop: Stop) -> None:
    """Hold connections that announce a command of megabytes, and send most of it."""
    size = 16_000_000
    said = GREETING + b"\x06" + size.to_bytes(8, "big") + b"\x05HELLO" + bytes(HELD_BYTES)
    crowd(endpoint, said, stop, 100)


def hasty(endpoint: str, key: Key, stop: Stop) -> None:
    """Open and end connections as fast as possible."""
    while not stop():
        for one in hold(endpoint, GREETING, AT_ONCE):
            one.close()


def strangers(endpoint: str, key: Key, stop: Stop) -> None:
    """Connect with another cluster's key, and retry at once."""
    right, wrong = key.known[0], new_key()
    with zmq.Context() as context:
        sockets = []
        for _ in range(AT_ONCE):
            socket = context.socket(zmq.DEALER)
            socket.linger = 0
            socket.curve_publickey, socket.curve_secretkey = wrong.pair
            socket.curve_serverkey = right.public.encode()
            socket.reconnect_ivl = 1
            socket.connect(endpoint)
            sockets.append(socket)
        while not stop():
            time.sleep(0.05)
        for socket in sockets:
            socket.close()


# --- with a key


def flood(endpoint: str, key: Key, stop: Stop, says: Iterator[list[bytes]]) -> None:
    """Send messages as fast as the server accepts them, and read the answers."""
    with zmq.Context() as context, with_key(context, endpoint, key) as socket:
        for frames in says:
            while not stop():
                events = socket.poll(100, zmq.POLLIN | zmq.POLLOUT)
                if events & zmq.POLLIN:
                    socket.recv_multipart()
                elif events & zmq.POLLOUT:
                    socket.send_multipart(frames, copy=False)
                    break
            if stop():
                return


def garbage(endpoint: str, key: Key, stop: Stop) -> None:
    """Send small messages that cannot be decoded."""
    flood(endpoint, key, stop, itertools.repeat([b"ZD1", b"\xc1" * 20]))


def large(endpoint: str, key: Key, stop: Stop) -> None:
    """Send messages of 15 MB that cannot be decoded."""
    flood(endpoint, key, stop, itertools.repeat([b"ZD1", bytes(15_000_000)]))


def oversized(endpoint: str, key: Key, stop: Stop) -> None:
    """Send messages above the limit, each of which costs a new connection."""
    flood(endpoint, key, stop, itertools.repeat([b"ZD1", bytes(20_000_000)]))


def names(endpoint: str, key: Key, stop: Stop) -> None:
    """Connect under the routing id of another connection: libzmq reads nothing from
    such connections, and keeps what they send.
    """
    name, said = secrets.token_bytes(8), [b"ZD1", bytes(1_000_000)]
    with zmq.Context() as context, with_key(context, endpoint, key, name=name):
        while not stop():
            with with_key(context, endpoint, key, name=name) as socket:
                for _ in range(AT_ONCE):
                    while not stop() and not socket.poll(100, zmq.POLLOUT):
                        pass
                    if stop():
                        return
                    socket.send_multipart(said, copy=False)


def questions(endpoint: str, key: Key, stop: Stop) -> None:
    """Request the status continuously."""
    flood(endpoint, key, stop, itertools.repeat(wire.pack(m.RequestStatus("r"))))


def grants(endpoint: str, key: Key, stop: Stop) -> None:
    """Send credit for thousands of tasks at a time, on a link of its own."""
    link = m.OpenLink("greedy", "greedy-1", "", 0, "", ("tcp",))
    streams = tuple(m.StreamGrant(task, 1, 1 << 60, 1 << 60, 0) for task in range(10_000))
    grant = wire.pack(m.Grant("greedy-1", 0, streams))
    flood(endpoint, key, stop, itertools.chain([wire.pack(link)], itertools.repeat(grant)))


def links(endpoint: str, key: Key, stop: Stop) -> None:
    """Open links for ever new clients, each with a grant so that it counts as used."""

    def says() -> Iterator[list[bytes]]:
        while True:
            name = secrets.token_hex(8)
            yield wire.pack(m.OpenLink(name, name, "", 0, "", ("tcp",)))
            yield wire.pack(m.Grant(name, 0, (m.StreamGrant(1, 1, 1, 1, 0),)))

    flood(endpoint, key, stop, says())


def jobs(endpoint: str, key: Key, stop: Stop) -> None:
    """Request to read jobs of unregistered datasets."""

    def says() -> Iterator[list[bytes]]:
        for number in itertools.count():
            job = m.JobParameters(f"job-{number}", "nothing", "DYNAMIC")
            yield wire.pack(m.OpenIteration(secrets.token_hex(16), job, 0))

    flood(endpoint, key, stop, says())


WITHOUT_KEY = {
    one.__name__: one
    for one in (silence, half_greeting, half_handshake, long_handshake, hasty, strangers)
}
WITH_KEY = {one.__name__: one for one in (garbage, large, oversized, names, questions)}
ON_WORKERS = {one.__name__: one for one in (grants, links)}
ON_DISPATCHERS = {one.__name__: one for one in (jobs,)}
ATTACKS = {"burning": burning, **WITHOUT_KEY, **WITH_KEY, **ON_WORKERS, **ON_DISPATCHERS}


def main(arguments: list[str]) -> int:
    """Run an attack for some seconds; print a line when it has begun."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attackers")
    parser.add_argument("kind", choices=ATTACKS)
    parser.add_argument("endpoint")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--key-file")
    given = parser.parse_args(arguments)
    key = load(given.key_file) if given.key_file else own_key()
    print("attacks", flush=True)
    until = time.monotonic() + given.seconds
    ATTACKS[given.kind](given.endpoint, key, lambda: time.monotonic() >= until)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
