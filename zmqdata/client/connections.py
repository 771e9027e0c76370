"""The connections of an iterator: control sockets to its dispatcher and its workers,
and memory shared with workers of this host.

Also warns when the process waits because it has no file descriptor left.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import zmq

from zmqdata.blocks import warn_of_missing_codec
from zmqdata.config.endpoints import endpoint_host
from zmqdata.core.client import events as e
from zmqdata.core.client.events import ConnectLink
from zmqdata.errors import DataServiceError, InvalidArgumentError, ProtocolError
from zmqdata.machine.descriptors import is_shortage, remedy
from zmqdata.transport import sockets
from zmqdata.transport.addresses import is_loopback
from zmqdata.transport.handshakes import Handshakes
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.memory import MappedMemory

log = logging.getLogger(__name__)
REFUSAL_PATIENCE = 3.0
"""Seconds for which a server at a worker's address may refuse this client.

Another process may have the port of a worker that is gone. Hearing that the worker is
gone takes that long at most.
"""


QUIET = 2.0
"""Seconds without a message after which the handshakes of a connection are observed,
because it may have to be made again. Servers send a message each second.
"""


@dataclass
class _ControlConnection:
    """A control connection."""

    endpoint: str
    """Endpoint of the server."""
    socket: zmq.Socket[bytes]
    """The DEALER."""
    handshakes: Handshakes | None = None
    """Observes its handshakes; None while messages come, which saves two file
    descriptors.
    """
    heard: float = 0.0
    """Time of the last message."""


class Servers:
    """Control connections, made when they are needed and ended when they are not.

    Args:
        context: ZeroMQ context of the sockets.
        loop: polls the sockets.
        key: key of this client.
        service: address of the dispatcher.
        received: reads from a socket of a peer. Returns False if no message was
            waiting.
        refused: takes the reason why a server does not accept this client and never
            will.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        key: Key | None,
        service: str,
        received: Callable[[zmq.Socket[bytes], e.Peer], bool],
        refused: Callable[[str], None],
    ) -> None:
        self._context = context
        self._loop = loop
        self._key = key
        self._received = received
        self._refused = refused
        self._there: dict[e.Peer, _ControlConnection] = {}
        self._refusals: dict[e.Peer, tuple[float, str]] = {}
        self._connect(e.DISPATCHER, service, "dispatcher", -1)

    def __contains__(self, peer: e.Peer) -> bool:
        return peer in self._there

    def socket(self, peer: e.Peer) -> zmq.Socket[bytes]:
        """Return the connection to the dispatcher, or to the worker at an address.

        Raises:
            zmq.ZMQError: The address is invalid, or no file descriptor is left.
        """
        if peer not in self._there:
            self._connect(peer, str(peer), "worker", sockets.MAX_CONTROL_BYTES)
        return self._there[peer].socket

    def _connect(self, peer: e.Peer, endpoint: str, role: str, max_bytes: int) -> None:
        socket, handshakes = sockets.control_dealer(
            self._context, endpoint, self._key, role, max_bytes=max_bytes
        )
        there = self._there[peer] = _ControlConnection(endpoint, socket)
        self._loop.read(socket, lambda: self._hear(there, peer))
        self._observe(there, peer, handshakes)

    def _hear(self, there: _ControlConnection, peer: e.Peer) -> bool:
        heard = self._received(there.socket, peer)
        if heard:
            there.heard = time.monotonic()
            self._stop_observing(there)
        return heard

    def _observe(self, there: _ControlConnection, peer: e.Peer, handshakes: Handshakes) -> None:
        there.handshakes = handshakes
        self._loop.read(handshakes.monitor, lambda: self._shake_hands(handshakes, peer))

    def _stop_observing(self, there: _ControlConnection) -> None:
        if there.handshakes is not None:
            self._loop.forget(there.handshakes.monitor)
            there.handshakes.close()
            there.handshakes = None

    def _shake_hands(self, handshakes: Handshakes, peer: e.Peer) -> bool:
        reason = handshakes.news()
        if reason and peer == e.DISPATCHER:
            self._refused(reason)
        elif reason:
            self._refusals.setdefault(peer, (time.monotonic(), reason))
        return reason is not None

    def look(self, wanted: Collection[str]) -> None:
        """End the connections to workers that are not wanted, and report a wanted
        worker that does not accept this client.

        Another process may listen, at once or later, at the address of a worker that is
        gone.
        """
        dispatcher = self._there[e.DISPATCHER]
        try:
            sockets.follow(dispatcher.socket, dispatcher.endpoint)
        except (OSError, DataServiceError) as error:
            self._refused(str(error))
        for peer in self._there.keys() - {e.DISPATCHER, *wanted}:
            self._refusals.pop(peer, None)
            self._part_from(peer)
        now = time.monotonic()
        for peer, there in self._there.items():
            if there.handshakes is None and now - there.heard >= QUIET:
                with contextlib.suppress(zmq.ZMQError):  # no descriptor is left
                    again = Handshakes(there.socket, there.endpoint, self._key)
                    self._observe(there, peer, again)
        for since, reason in list(self._refusals.values()):
            if now - since >= REFUSAL_PATIENCE:
                self._refused(reason)

    def _part_from(self, peer: e.Peer) -> None:
        there = self._there.pop(peer)
        self._stop_observing(there)
        self._loop.forget(there.socket)
        there.socket.close()

    def close(self) -> None:
        """End all connections."""
        for peer in list(self._there):
            self._part_from(peer)


PAUSE = 10.0
"""Seconds between two warnings about file descriptors."""


class Descriptors:
    """Warnings about the lack of file descriptors of this process, for an iterator."""

    def __init__(self) -> None:
        self._told = -PAUSE

    def explains(self, error: OSError | zmq.ZMQError | ValueError, what: str) -> bool:
        """Return True if an operation failed because no file descriptor was left. Warn
        now and then.

        The operation is repeated.

        Args:
            error: the error of the operation.
            what: what the operation was to make.
        """
        if not is_shortage(error):
            return False
        now = time.monotonic()
        if now - self._told >= PAUSE:
            self._told = now
            log.warning("%s. The attempt is repeated", remedy(what))
        return True


class Memories:
    """Mapped memories by the names of their links.

    Content taken from a memory outlives its link.

    Args:
        descriptors: warns about the lack of file descriptors.
    """

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._mapped: dict[str, MappedMemory] = {}
        self._unusable: dict[str, tuple[str, Exception]] = {}
        self._is_warned = False

    def map(self, command: ConnectLink) -> bool:
        """Map the memory of a link.

        Returns:
            False if the link has no memory or it cannot be mapped.
        """
        if command.memory is None:
            return False
        try:
            self._mapped[command.link] = MappedMemory(command.memory)
        except (OSError, ValueError, ProtocolError) as error:
            if self._descriptors.explains(
                error, f"the memory that worker {command.address} offers"
            ):
                return False
            self._unusable[command.link] = command.address, error
            return False
        return True

    def of(self, link: str) -> MappedMemory | None:
        """Return the memory of a link over which a message has come, or None.

        The first that cannot be used is logged as a warning. Not before: a worker that
        sends nothing may have ended just now.
        """
        unusable = self._unusable.pop(link, None)
        if unusable is not None:
            address, error = unusable
            log.log(
                logging.DEBUG if self._is_warned else logging.WARNING,
                "the memory that worker %s offers cannot be used by this process "
"(%s), so elements arrive through a socket, which is slower. The "
"worker may run in another container or as another user",
                address, error,
            )  # fmt: skip
            self._is_warned = True
        return self._mapped.get(link)

    def forget(self, link: str) -> None:
        """Forget the memory of a closed link."""
        self._mapped.pop(link, None)
        self._unusable.pop(link, None)


def note_missing_codec(address: str) -> None:
    """Warn once if a worker on another host would compress what it sends here.

    Args:
        address: address of the worker's link.
    """
    host = endpoint_host(address)
    if host is not None:
        with contextlib.suppress(InvalidArgumentError):
            if not is_loopback(host):
                warn_of_missing_codec()
