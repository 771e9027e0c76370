"""The control connections of one iterator: to its dispatcher, and to the workers that it reads from at present."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import zmq

from zmqdata import commands as c
from zmqdata.transport import sockets
from zmqdata.transport.handshakes import Handshakes
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop

REFUSAL_PATIENCE = 3.0
"""Seconds for which who listens where a worker was may refuse us: so long it takes at most until we hear that it is
gone, and somebody else has its port."""


class Servers:
    """Makes connections when they are needed, and ends those that are not any more.

    Args:
        context: where the sockets live.
        loop: polls them.
        key: what we show.
        service: the dispatcher's address.
        received: reads from a socket; given that, and who is at the other end. False when there was nothing.
        refused: takes the reason for which a server does not let us in, and will not.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        key: Key | None,
        service: str,
        received: Callable[[zmq.Socket[bytes], c.Peer], bool],
        refused: Callable[[str], None],
    ) -> None:
        self._context = context
        self._loop = loop
        self._key = key
        self._received = received
        self._refused = refused
        self._there: dict[c.Peer, tuple[zmq.Socket[bytes], Handshakes]] = {}
        self._refusals: dict[c.Peer, tuple[float, str]] = {}
        self._connect(c.DISPATCHER, service, "dispatcher", -1)

    def __contains__(self, peer: c.Peer) -> bool:
        return peer in self._there

    def socket(self, peer: c.Peer) -> zmq.Socket[bytes]:
        """The connection to the dispatcher, or to the worker at an address.

        Raises:
            zmq.ZMQError: it is no address.
        """
        if peer not in self._there:
            self._connect(peer, str(peer), "worker", sockets.MAX_CONTROL_BYTES)
        return self._there[peer][0]

    def _connect(self, peer: c.Peer, endpoint: str, role: str, max_bytes: int) -> None:
        socket, handshakes = sockets.control_dealer(self._context, endpoint, self._key, role, max_bytes=max_bytes)
        self._there[peer] = socket, handshakes
        self._loop.read(socket, lambda: self._received(socket, peer))
        self._loop.read(handshakes.monitor, lambda: self._shake_hands(handshakes, peer))

    def _shake_hands(self, handshakes: Handshakes, peer: c.Peer) -> bool:
        reason = handshakes.news()
        if reason and peer == c.DISPATCHER:
            self._refused(reason)
        elif reason:
            self._refusals.setdefault(peer, (time.monotonic(), reason))
        return reason is not None

    def look(self, wanted: Collection[str]) -> None:
        """Ends the connections to workers that are not wanted, and says that one that is does not let us in.

        Where a worker was that is gone, somebody else may listen, at once or some day.
        """
        for peer in self._there.keys() - {c.DISPATCHER, *wanted}:
            self._refusals.pop(peer, None)
            self._part_from(peer)
        for since, reason in list(self._refusals.values()):
            if time.monotonic() - since >= REFUSAL_PATIENCE:
                self._refused(reason)

    def _part_from(self, peer: c.Peer) -> None:
        socket, handshakes = self._there.pop(peer)
        for one in (socket, handshakes.monitor):
            self._loop.forget(one)
        handshakes.close()
        socket.close()

    def close(self) -> None:
        """Ends all of them."""
        for peer in list(self._there):
            self._part_from(peer)
