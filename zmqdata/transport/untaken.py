"""What peers have not taken of the large answers that they asked for. libzmq bounds their number, not their bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from zmqdata.transport.tcp import acked_bytes

LARGE = 64 << 10
"""Smaller answers are bounded well enough by their number."""
MOST = 64 << 20
"""Bytes of large answers that may wait for one peer, besides one that is larger."""
MOST_PEERS = 100_000


@dataclass
class _Connection:
    """``descriptor``: libzmq's. ``untaken``: bytes of large answers, as of when so much was acknowledged in all."""

    descriptor: int
    untaken: int = 0
    acked: int = 0


class Untaken:
    """Counts for each peer of a ROUTER. A connection carries answers in their order, so what is acknowledged was first.

    Where the kernel does not count (it is not Linux), there is no limit.
    """

    def __init__(self) -> None:
        self._connections: dict[bytes, _Connection] = {}

    def heard(self, peer: bytes, frames: Sequence[zmq.Frame]) -> None:
        """Remembers by which connection a peer is heard, for the answers that it may ask for."""
        if peer in self._connections:
            return
        with contextlib.suppress(zmq.ZMQError, TypeError):
            self._connections[peer] = _Connection(int(frames[-1].get(zmq.SRCFD)))
            if len(self._connections) > MOST_PEERS:
                del self._connections[next(iter(self._connections))]

    def lost(self, peer: bytes) -> None:
        """Forgets a peer that is not connected any more."""
        self._connections.pop(peer, None)

    def has_room(self, peer: bytes, nbytes: int) -> bool:
        """Whether an answer of so many bytes may be sent to a peer, which counts as sent then."""
        connection = self._connections.get(peer) if nbytes >= LARGE else None
        acked = acked_bytes(connection.descriptor) if connection is not None else None
        if connection is None or acked is None:
            return True
        connection.untaken = max(0, connection.untaken - max(0, acked - connection.acked))
        connection.acked = acked
        if connection.untaken and connection.untaken + nbytes > MOST:
            return False
        connection.untaken += nbytes
        return True
