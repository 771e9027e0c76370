"""What the kernel knows of the connections of a ROUTER's peers, and libzmq does not
say: it bounds no bytes, for one.

Who is silent is found here, too, as a server must have no heartbeats of its own: libzmq
ends the process (4.3.5: ``Assertion failed: !_io_error``) when one is due on a
connection that broke while a queue of it was full. Peers have them, so something comes
from each of them every second.
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
"""Bytes of large answers that may wait for one peer, besides one that is larger."""
MOST_PEERS = 100_000
LET_IN = sockets.HANDSHAKE_MS / 1000 + 1.0
"""Seconds after which a connection that is still there was let in."""
LITTLE = 16 << 10
"""Bytes of a handshake and of heartbeats, and less than would fill a queue with the
smallest messages.
"""
LOOK_EVERY = 1.0
"""Seconds between two looks for who is silent."""


class Unheard(NamedTuple):
    """Connections of which nothing was heard: how many need not be, and how much all of
    them have said.

    ``harmless`` are those that were let in and have said next to nothing, or are in the
    midst of a first message.
    """

    harmless: int
    nbytes: int


@dataclass
class _Connection:
    """``descriptor``: libzmq's. ``untaken``: bytes of large answers, as of when so much
    was acknowledged in all.

    ``look_at``: it cannot have been silent for too long before.
    """

    descriptor: int
    untaken: int = 0
    acked: int = 0
    look_at: float = 0.0


class Connections:
    """Knows the connection of each peer that has said anything. Where the kernel tells
    nothing, it limits nothing.

    Args:
        port: of the ROUTER. A descriptor that has another one is somebody else's by
            now.
        silence: seconds after which a connection is ended on which nothing comes.
        max_bytes: the largest message.
    """

    def __init__(self, port: int, silence: float, max_bytes: int) -> None:
        self._port = port
        self._max_bytes = max_bytes
        self._seen: dict[int, tuple[float, int]] = {}
        self._silence = silence
        self._look_at = 0.0
        self._of: dict[bytes, _Connection] = {}

    def heard(self, peer: bytes, frames: Sequence[zmq.Frame], now: float) -> None:
        """Remembers by which connection a peer is heard: by another one than before, if
        it chose its name itself.
        """
        with contextlib.suppress(zmq.ZMQError, TypeError):
            descriptor = int(frames[-1].get(zmq.SRCFD))
            known = self._of.get(peer)
            if known is not None and known.descriptor == descriptor:
                known.look_at = now + self._silence
                return
            self._of[peer] = _Connection(descriptor, look_at=now + self._silence)
            if len(self._of) > MOST_PEERS:
                del self._of[next(iter(self._of))]

    def lost(self, peer: bytes) -> None:
        """Forgets a peer that is not connected any more."""
        self._of.pop(peer, None)

    def _told(self, connection: _Connection) -> ConnectionCounts | None:
        told = told_of(connection.descriptor)
        return told if told is not None and told.port == self._port else None

    def has_room(self, peer: bytes, nbytes: int) -> bool:
        """Whether an answer of so many bytes may be sent to a peer, which counts as
        sent then.

        A connection carries answers in their order, so what was acknowledged is what
        was sent first.
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
        """Ends the connections on which nothing has come for too long."""
        if now < self._look_at:
            return
        self._look_at = now + min(LOOK_EVERY, self._silence / 4)
        for peer, connection in list(self._of.items()):
            if now < connection.look_at:
                continue
            told = self._told(connection)
            if told is not None and told.silent <= self._silence:
                connection.look_at = now + self._silence - told.silent
                continue
            self.lost(peer)
            if told is not None:
                _end(connection.descriptor)

    def unheard(self, now: float) -> Unheard | None:
        """What there is of connections of which nothing was heard, but for silent ones,
        which it ends.

        It takes a look at every connection. None: the kernel tells of none.
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
            # Who was not let in is not there for so long: anybody may connect.
            harmless += now - since >= LET_IN and (told.received < LITTLE or begins)
        return Unheard(harmless, sum(told.received for _, told in found))


def _end(descriptor: int) -> None:
    """Has libzmq find that the other side has ended a connection."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=descriptor)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
