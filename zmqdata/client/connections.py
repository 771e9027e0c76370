"""The control connections of one iterator: to its dispatcher, and to the workers that
it reads from at present.

Tells that a process has no file descriptor left, which is why it waits.

The memories that an iterator's links share with workers of this host.
"""

from __future__ import annotations

import errno
import logging
import resource
import time
from collections.abc import Callable, Collection

import zmq

from zmqdata.core.client import events as e
from zmqdata.core.client.events import ConnectLink
from zmqdata.errors import ProtocolError
from zmqdata.transport import sockets
from zmqdata.transport.handshakes import Handshakes
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.memory import MappedMemory

log = logging.getLogger(__name__)
REFUSAL_PATIENCE = 3.0
"""Seconds for which who listens where a worker was may refuse us: so long it takes at
most until we hear that it is gone, and somebody else has its port.
"""


class Servers:
    """Makes connections when they are needed, and ends those that are not any more.

    Args:
        context: where the sockets live.
        loop: polls them.
        key: what we show.
        service: the dispatcher's address.
        received: reads from a socket; given that, and who is at the other end. False
            when there was nothing.
        refused: takes the reason for which a server does not let us in, and will not.
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
        self._there: dict[e.Peer, tuple[zmq.Socket[bytes], Handshakes]] = {}
        self._refusals: dict[e.Peer, tuple[float, str]] = {}
        self._connect(e.DISPATCHER, service, "dispatcher", -1)

    def __contains__(self, peer: e.Peer) -> bool:
        return peer in self._there

    def socket(self, peer: e.Peer) -> zmq.Socket[bytes]:
        """The connection to the dispatcher, or to the worker at an address.

        Raises:
            zmq.ZMQError: it is no address.
        """
        if peer not in self._there:
            self._connect(peer, str(peer), "worker", sockets.MAX_CONTROL_BYTES)
        return self._there[peer][0]

    def _connect(self, peer: e.Peer, endpoint: str, role: str, max_bytes: int) -> None:
        socket, handshakes = sockets.control_dealer(
            self._context, endpoint, self._key, role, max_bytes=max_bytes
        )
        self._there[peer] = socket, handshakes
        self._loop.read(socket, lambda: self._received(socket, peer))
        self._loop.read(handshakes.monitor, lambda: self._shake_hands(handshakes, peer))

    def _shake_hands(self, handshakes: Handshakes, peer: e.Peer) -> bool:
        reason = handshakes.news()
        if reason and peer == e.DISPATCHER:
            self._refused(reason)
        elif reason:
            self._refusals.setdefault(peer, (time.monotonic(), reason))
        return reason is not None

    def look(self, wanted: Collection[str]) -> None:
        """Ends the connections to workers that are not wanted, and says that one that
        is does not let us in.

        Where a worker was that is gone, somebody else may listen, at once or some day.
        """
        for peer in self._there.keys() - {e.DISPATCHER, *wanted}:
            self._refusals.pop(peer, None)
            self._part_from(peer)
        for since, reason in list(self._refusals.values()):
            if time.monotonic() - since >= REFUSAL_PATIENCE:
                self._refused(reason)

    def _part_from(self, peer: e.Peer) -> None:
        socket, handshakes = self._there.pop(peer)
        for one in (socket, handshakes.monitor):
            self._loop.forget(one)
        handshakes.close()
        socket.close()

    def close(self) -> None:
        """Ends all of them."""
        for peer in list(self._there):
            self._part_from(peer)


PAUSE = 10.0
"""Seconds between two of these warnings."""


class Descriptors:
    """Those that this process may have, as far as an iterator needs them."""

    def __init__(self) -> None:
        self._told = -PAUSE

    def explains(self, error: OSError | zmq.ZMQError | ValueError, what: str) -> bool:
        """Whether there were too few for something, which is tried again. Says so, now
        and then.

        Args:
            error: that it failed with.
            what: was to be had.
        """
        if getattr(error, "errno", None) not in (errno.EMFILE, errno.ENFILE):
            return False
        now = time.monotonic()
        if now - self._told >= PAUSE:
            self._told = now
            limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            log.warning(
                "%s takes a file descriptor, and there is none left (%s; this process may have %d, "
                "`ulimit -n`, and "
                "raise that to %d): close some, or raise the limit. It is tried again", what, error, limit, most,
            )  # fmt: skip
        return True


class Memories:
    """Those that are mapped, by the names of their links. What was taken from one lives
    longer than its link.

    Args:
        descriptors: of this process.
    """

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._mapped: dict[str, MappedMemory] = {}
        self._is_warned = False

    def map(self, command: ConnectLink) -> bool:
        """Maps the memory of a link; False where there is none, or it cannot be had.
        Says why, once.
        """
        if command.memory is None:
            return False
        try:
            self._mapped[command.link] = MappedMemory(command.memory)
        except (OSError, ValueError, ProtocolError) as error:
            if self._descriptors.explains(
                error, f"the memory that worker {command.address} would share"
            ):
                return False
            log.log(
                logging.DEBUG if self._is_warned else logging.WARNING,
                "the memory that worker %s would share cannot be used from here (%s): elements "
                "come through a socket, "
                "which is slower. Is it in another container, or run by another user?",
                command.address, error,
            )  # fmt: skip
            self._is_warned = True
            return False
        return True

    def of(self, link: str) -> MappedMemory | None:
        """The memory of a link."""
        return self._mapped.get(link)

    def forget(self, link: str) -> None:
        """The link is closed."""
        self._mapped.pop(link, None)
