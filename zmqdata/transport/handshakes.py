"""Reasons why a server does not admit this process, as far as the connection itself
reveals them.
"""

from __future__ import annotations

import contextlib
import socket as plain
import struct
import time
from collections.abc import Callable, Sequence
from itertools import count

import zmq

from zmqdata.transport.dispatcher_file import current_address
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

MOST_FAILURES = 5
"""Connections ended at once and without a reason, after which the server's greeting is
read. A server that cannot decrypt our messages ends connections so, and so does a proxy
without its server; the greeting tells the two apart.
"""
AT_ONCE = 2.5
"""Seconds within which such a connection follows the one before it. A server whose
interpreter is held lets a handshake run into ``sockets.HANDSHAKE_MS`` instead.
"""
GREETING_BYTES = 64
SIGNATURE = b"\xff" + b"\0" * 8 + b"\x7f" + b"\3"
"""The beginning of a ZMTP greeting, up to the version of the protocol: enough to make
the server send its whole greeting.
"""
LOOKS = 1.0
"""Seconds to connect, and for the whole greeting: the calling loop is blocked
meanwhile.
"""
_numbers = count()
_REFUSED = zmq.Event.HANDSHAKE_FAILED_AUTH
_MISMATCH = zmq.Event.HANDSHAKE_FAILED_PROTOCOL
_BROKEN = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
_DONE = zmq.Event.HANDSHAKE_SUCCEEDED
_ENDED = zmq.Event.DISCONNECTED


class Handshakes:
    """Observes the handshakes of a socket's connections, at the price of two file
    descriptors.

    Args:
        socket: a DEALER. Create this before the socket is connected, or any time later
            for its next connection. Close it before the socket is closed.
        endpoint: endpoint of the server.
        key: the key that the socket shows.

    Attributes:
        monitor: readable when a handshake has succeeded or failed.
        made: number of connections that were admitted.
        ended: number of connections that have ended, admitted or not.
    """

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str, key: Key | None) -> None:
        self._socket = socket
        self._endpoint = endpoint
        self._key = key
        self._failures = self.made = self.ended = 0
        self._failed_at = 0.0
        self.monitor = socket.context.socket(zmq.PAIR)
        try:
            self.monitor.set(zmq.LINGER, 0)
            # libzmq frees the address of a former observer some time after its end.
            address = f"inproc://handshakes-{next(_numbers)}"
            socket.monitor(address, _REFUSED | _MISMATCH | _BROKEN | _DONE | _ENDED)
            self.monitor.connect(address)
        except BaseException:
            self.close()
            raise

    def news(self) -> str | None:
        """Read an event; return the reason why the server does not admit this process.

        Returns:
            The reason; "" if no reason is known; None if no event is waiting.
        """
        event: int = _ENDED
        while event == _ENDED:
            try:
                event, _ = event_of(self.monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return None
            self.ended += event == _ENDED
        if event == _REFUSED:
            return self._unknown()
        if event == _MISMATCH:
            return self._mismatch()
        self.made += event == _DONE
        self._failures = self._failures_with(event, time.monotonic())
        if self._failures < MOST_FAILURES:
            return ""
        self._failures = 0
        mechanism = mechanism_of(self._endpoint)
        if mechanism is None or (mechanism == "NULL" and self._key is None):
            return ""
        return (
            self._other_key()
            if mechanism == "CURVE" and self._key is not None
            else self._mismatch()
        )

    def _failures_with(self, event: int, now: float) -> int:
        """Return the number of connections in a row that ended at once."""
        if event != _BROKEN:
            return 0
        follows, self._failed_at = now - self._failed_at < AT_ONCE, now
        return self._failures + 1 if follows else 1

    def _unknown(self) -> str:
        if self._key is None:
            return f"The server at {self._endpoint} does not admit this process."
        return (
            f"The server at {self._endpoint} does not admit the holder of key file "
            f"{self._key.path}: it does not list the key {self._key.public[:8]}..., or no longer "
            "does. Copy the key file of its cluster to this machine (ZMQDATA_KEY_FILE), or have a "
            "line for this key added to the file of the server."
        )

    def _mismatch(self) -> str:
        if self._key is None:
            return (
                f"The server at {self._endpoint} admits holders of its key only, but this process "
                "was told to do without a key. Leave out --insecure (ZMQDATA_INSECURE) here, and "
                "give it the key file of the cluster."
            )
        return (
            f"The server at {self._endpoint} does without a key, but this process has key file "
            f"{self._key.path}, so it does not trust the server. Start the server without "
            "--insecure, or set ZMQDATA_INSECURE=1 here, too."
        )

    def _other_key(self) -> str:
        key = self._key
        assert key is not None, "nothing is encrypted without a key"
        return (
            f"The server at {self._endpoint} has another key than key file {key.path} (cluster "
            f"{key.cluster}) says. Copy the key file of its cluster to this machine "
            "(ZMQDATA_KEY_FILE)."
        )

    def close(self) -> None:
        """Stop observing; an open monitor would keep the context from terminating."""
        self._socket.disable_monitor()
        self.monitor.close(linger=0)


class Arrivals:
    """Observes the peers of a server socket: admitted peers, and peers whose
    handshake fails before they show a key.

    libzmq does not report their addresses. Under a flood of events the loop reads them
    at its usual rate; the others wait in memory at a hundred bytes each, since a limit
    would block libzmq.

    Args:
        context: context of the socket.
        socket: the server's socket; close this before it.
        loop: polls the monitor.
        rejects: counts failed handshakes.
        let_in: called for each admitted connection.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        loop: Loop,
        rejects: Rejects,
        let_in: Callable[[], None],
    ) -> None:
        self._socket, self._loop, self._rejects, self._let_in = socket, loop, rejects, let_in
        address = f"inproc://arrivals-{id(self)}"
        socket.monitor(address, _MISMATCH | _DONE)
        self._monitor = context.socket(zmq.PAIR)
        self._monitor.set(zmq.LINGER, 0)
        self._monitor.set(zmq.RCVHWM, 0)
        self._monitor.connect(address)
        loop.read(self._monitor, self._hear)

    def _hear(self) -> bool:
        try:
            event, value = event_of(self._monitor.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            return False
        if event == _DONE:
            self._let_in()
            return True
        reason = _STRANGERS.get(value, "it does not speak ZeroMQ's protocol")
        self._rejects.count("an unknown peer", "a new connection", reason)
        return True

    def close(self) -> None:
        """Stop observing."""
        self._loop.forget(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close()


_STRANGERS = {
    int(
        zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC
    ): "it has the key file of another cluster: copy ours to its machine",
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): (
        "one side has a key, and the other was told to do without (--insecure, ZMQDATA_INSECURE): "
        "start both alike"
    ),
}


def event_of(frames: Sequence[bytes]) -> tuple[int, int]:
    """Return the number and the value of an event that libzmq reports to an observer.

    pyzmq's function for this brings the whole of asyncio, a tenth of the time in which
    a process of ours starts.
    """
    event, value = struct.unpack("=Hi", frames[0])
    return event, value


def mechanism_of(endpoint: str) -> str | None:
    """Return the security mechanism in the greeting of a server at a TCP endpoint; None
    if no greeting comes.
    """
    greeting = _greeting_of(endpoint, SIGNATURE)
    if len(greeting) < GREETING_BYTES or greeting[0] != SIGNATURE[0]:
        return None
    return greeting[12:32].rstrip(b"\0").decode(errors="replace")


def is_foreign(endpoint: str) -> bool:
    """Return True if the server at a TCP endpoint speaks another protocol, such as
    HTTP.
    """
    # A server of lines answers when one has ended.
    return not SIGNATURE.startswith(_greeting_of(endpoint, SIGNATURE + b"\r\n\r\n")[:1])


def _greeting_of(endpoint: str, opening: bytes) -> bytes:
    """Return the beginning of what a server says; nothing if it does not answer."""
    address = current_address(endpoint)
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not address.startswith("tcp://"):
        return b""
    greeting = b""
    with (
        contextlib.suppress(OSError, ValueError),
        plain.create_connection((host.strip("[]"), int(port)), LOOKS) as connection,
    ):
        connection.sendall(opening)
        until = time.monotonic() + LOOKS
        while len(greeting) < GREETING_BYTES and (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            part = connection.recv(GREETING_BYTES - len(greeting))
            if not part:
                break
            greeting += part
    return greeting
