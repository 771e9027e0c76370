"""The kernel's view of the connections of a ROUTER's peers. libzmq does not expose it
and limits no bytes, for example.

Silent peers are detected here, too, since a server must not send heartbeats. libzmq
(4.3.5: ``Assertion failed: !_io_error``) aborts the process if a heartbeat is due on a
connection that broke while a queue of it was full. Peers send heartbeats, so each
connection receives something every second.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import zmq

from zmqdata.transport import sockets
from zmqdata.transport.tcp import ConnectionCounts, connections_of, told_of

LARGE = 64 << 10
"""Smaller answers are bounded well enough by their number."""
MOST_UNTAKEN = 64 << 20
"""Limit of the bytes of large answers that wait for a peer; a single answer may be
larger.
"""
MOST_PEERS = 100_000
"""Limit of remembered peers."""
LET_IN = sockets.HANDSHAKE_MS / 1000 + 1.0
"""Seconds after which a surviving connection must have been admitted."""
LITTLE = 16 << 10
"""More than the bytes of a handshake and of heartbeats, and less than a queue full of
the smallest messages.
"""
LOOK_EVERY = 1.0
"""Seconds between two searches for silent peers."""


class Unheard(NamedTuple):
    """Connections from which no message was read."""

    harmless: int
    """Number of connections that were admitted and have sent next to nothing, or are in
    the middle of a first message.
    """
    nbytes: int
    """Bytes that all of them have sent."""


@dataclass
class _Connection:
    """State of a peer's connection."""

    descriptor: int
    """libzmq's file descriptor."""
    untaken: int = 0
    """Bytes of large answers that the peer had not acknowledged when ``acked`` was
    read.
    """
    acked: int = 0
    """Bytes acknowledged in all."""
    poll_at: float = 0.0
    """Time before which the connection cannot have been silent for too long."""


class Connections:
    """Connections of the peers from which a message was read. Without statistics from
    the kernel, it limits nothing.

    Args:
        port: port of the ROUTER. A descriptor with another port now belongs to
            something else.
        silence: seconds without traffic after which a connection is ended.
        max_bytes: limit of a message.
    """

    def __init__(self, port: int, silence: float, max_bytes: int) -> None:
        self._port = port
        self._max_bytes = max_bytes
        self._seen: dict[int, tuple[float, int]] = {}
        self._silence = silence
        self._look_at = 0.0
        self._of: dict[bytes, _Connection] = {}

    def heard(self, peer: bytes, frames: Sequence[zmq.Frame], now: float) -> None:
        """Remember the connection of a peer. It changes if the peer reconnects under a
        routing id that it chose itself.
        """
        with contextlib.suppress(zmq.ZMQError, TypeError):
            descriptor = int(frames[-1].get(zmq.SRCFD))
            known = self._of.get(peer)
            if known is not None and known.descriptor == descriptor:
                known.poll_at = now + self._silence
                return
            self._of[peer] = _Connection(descriptor, poll_at=now + self._silence)
            if len(self._of) > MOST_PEERS:
                del self._of[next(iter(self._of))]

    def lost(self, peer: bytes) -> None:
        """Forget a peer that is no longer connected."""
        self._of.pop(peer, None)

    def _told(self, connection: _Connection) -> ConnectionCounts | None:
        told = told_of(connection.descriptor)
        return told if told is not None and told.port == self._port else None

    def has_room(self, peer: bytes, nbytes: int) -> bool:
        """Return True if an answer of ``nbytes`` may be sent to a peer; it then counts
        as sent.

        A connection delivers answers in order, so acknowledgements always cover the
        oldest.
        """
        connection = self._of.get(peer) if nbytes >= LARGE else None
        told = self._told(connection) if connection is not None else None
        if connection is None or told is None:
            return True
        connection.untaken = max(0, connection.untaken - max(0, told.acked - connection.acked))
        connection.acked = told.acked
        if connection.untaken and connection.untaken + nbytes > MOST_UNTAKEN:
            return False
        connection.untaken += nbytes
        return True

    def end_silent(self, now: float) -> None:
        """End the connections that have been silent for too long."""
        if now < self._look_at:
            return
        self._look_at = now + min(LOOK_EVERY, self._silence / 4)
        for peer, connection in list(self._of.items()):
            if now < connection.poll_at:
                continue
            told = self._told(connection)
            if told is not None and told.silent <= self._silence:
                connection.poll_at = now + self._silence - told.silent
                continue
            self.lost(peer)
            if told is not None:
                _end(connection.descriptor)

    def unheard(self, now: float) -> Unheard | None:
        """Summarize the connections from which no message was read, and end the silent
        ones.

        It inspects every connection.

        Returns:
            The summary; None if the kernel has no statistics.
        """
        present = connections_of(self._port)
        if present is None:
            return None
        heard = {connection.descriptor for connection in self._of.values()}
        found = [
            (descriptor, told) for descriptor, told in present.items() if descriptor not in heard
        ]
        for descriptor in [descriptor for descriptor, told in found if told.silent > self._silence]:
            _end(descriptor)
        before, self._seen = self._seen, {}
        harmless = 0
        for _, told in found:
            since, received = before.get(told.inode, (now, 0))
            self._seen[told.inode] = (since, told.received)
            begins = received < told.received <= self._max_bytes
            # A connection that is not admitted ends before ``LET_IN``; any host may
            # connect.
            harmless += now - since >= LET_IN and (told.received < LITTLE or begins)
        return Unheard(harmless, sum(told.received for _, told in found))


def _end(descriptor: int) -> None:
    """Shut down a connection, so that libzmq sees it end."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=descriptor)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
