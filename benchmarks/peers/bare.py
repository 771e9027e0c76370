"""The machine without any library: copying memory, a TCP connection, bare PUSH/PULL,
Python processes alone.

``tcp``, ``zmq`` and ``curve`` send elements endlessly. ``spin`` works when told to, and
prints the elements per second.

    python -m benchmarks.peers.bare tcp|zmq|curve ELEMENT PORT
    python -m benchmarks.peers.bare spin SPINS SECONDS
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import zmq

from benchmarks.reading import Peer, Turn
from benchmarks.workloads import spin, variants

SETTINGS = {
    "memcpy": (
        "np.copyto of each element into one of four warm arrays, as many as there are elements"
    ),
    "raw TCP": "sendall() by another process, recv_into() a warm array",
    "PUSH/PULL": "send(copy=False) by another process, recv(copy=False), over TCP",
    "PUSH/PULL, encrypted": "the same, with CURVE",
    "processes": "as many processes as workers that do the work and nothing else",
}
HIGH_WATER = 8
SERVER = zmq.curve_keypair()
"""Public and secret key of the receiver of encrypted elements."""


def start(*arguments: str, output: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.peers.bare", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, text=True)


def copied(element: str) -> Iterator[Any]:
    sources = variants(element)
    targets = [source.copy() for source in sources]
    for source, target in itertools.cycle(zip(sources, targets, strict=True)):
        np.copyto(target, source)
        yield target


def over_tcp(element: str, listener: socket.socket) -> Generator[Any, None, None]:
    target = np.empty_like(variants(element)[0])
    place = memoryview(target).cast("B")
    connection, _ = listener.accept()
    with connection:
        while True:
            have = 0
            while have < len(place):
                have += connection.recv_into(place[have:])
            yield target


def over_zmq(element: str, puller: zmq.Socket[bytes]) -> Iterator[Any]:
    known = variants(element)[0]
    while True:
        frame = puller.recv(copy=False)
        yield np.frombuffer(frame.buffer, known.dtype).reshape(known.shape)


class Measured(Peer):
    """The machine. A sender lives as long as a turn."""

    packages = ("numpy", "pyzmq")

    @contextlib.contextmanager
    def read(self, turn: Turn) -> Iterator[Iterator[Any]]:
        with contextlib.ExitStack() as stack:
            if turn.setting == "memcpy":
                yield copied(turn.element)
            elif turn.setting == "raw TCP":
                listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                stack.enter_context(sending("tcp", turn.element, str(listener.getsockname()[1])))
                with contextlib.closing(over_tcp(turn.element, listener)) as elements:
                    yield elements
            else:
                puller = stack.enter_context(zmq.Context()).socket(zmq.PULL)
                puller.set_hwm(HIGH_WATER)
                stack.callback(puller.close, 0)
                kind = "curve" if turn.setting == "PUSH/PULL, encrypted" else "zmq"
                if kind == "curve":
                    puller.curve_server = True
                    puller.curve_publickey, puller.curve_secretkey = SERVER
                port = puller.bind_to_random_port("tcp://127.0.0.1")
                stack.enter_context(sending(kind, turn.element, str(port), SERVER[0].decode()))
                yield over_zmq(turn.element, puller)

    def measure(self, turn: Turn) -> float:
        return rate_of_processes(turn) if turn.setting == "processes" else super().measure(turn)


@contextlib.contextmanager
def sending(kind: str, *arguments: str) -> Iterator[None]:
    sender = start(kind, *arguments)
    try:
        yield
    finally:
        sender.kill()
        sender.communicate()


def rate_of_processes(turn: Turn) -> float:
    """Return the elements per second of all processes, which start at the same
    moment.
    """
    crew = [
        start("spin", str(turn.spins), str(turn.seconds), output=subprocess.PIPE)
        for _ in range(turn.workers)
    ]
    try:
        for one in crew:
            assert one.stdout is not None
            one.stdout.readline()
        for one in crew:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        return sum(float(one.communicate()[0]) for one in crew)
    finally:
        for one in crew:
            one.kill()


def send_tcp(element: str, port: int) -> None:
    frames = [memoryview(array).cast("B") for array in variants(element)]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for frame in itertools.cycle(frames):
            connection.sendall(frame)


def send_zmq(element: str, port: int, server: str = "") -> None:
    """Send elements endlessly; encrypted if ``server`` is the receiver's public key."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as pusher:
        pusher.set_hwm(HIGH_WATER)
        if server:
            pusher.curve_publickey, pusher.curve_secretkey = zmq.curve_keypair()
            pusher.curve_serverkey = server.encode()
        pusher.connect(f"tcp://127.0.0.1:{port}")
        for array in itertools.cycle(variants(element)):
            pusher.send(array, copy=False)


def work(spins: int, seconds: float) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    total, begin = 0, perf_counter()
    while perf_counter() - begin < seconds:
        spin(spins, total)
        total += 1
    print(total / (perf_counter() - begin), flush=True)


def main() -> None:
    kind, one, other, *server = sys.argv[1:]
    if kind == "spin":
        work(int(one), float(other))
        return
    with contextlib.suppress(ConnectionError, KeyboardInterrupt):
        if kind == "tcp":
            send_tcp(one, int(other))
        else:
            send_zmq(one, int(other), server[0] if kind == "curve" else "")


if __name__ == "__main__":
    main()
