"""The socket on which a server hears everybody, made anew when somebody keeps it from hearing.

libzmq (4.3.5) reads nothing of a connection that shows the same routing id as another one. What is said there fills our
memory, and stays there when the connection is gone, until the socket is closed. Who does that has a key, or there is
none. So it is counted who was let in and never heard. When that is too many, or too much, all peers connect again.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from zmqdata.endpoints import split_address
from zmqdata.transport import sockets
from zmqdata.transport.connections import Connections
from zmqdata.transport.handshakes import Strangers
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds within which we read what has come, however much there is of it."""
MOST_UNHEARD = 8
"""Connections that are gone or have said much, and were never heard. A peer that dies at once leaves one, too."""
MOST_UNHEARD_BYTES = 256 << 20
"""More than large messages that are on their way, with which honest peers begin, have together."""
PAUSE = 3.0
"""Seconds for which the socket stays at least, so that a large message arrives."""
LOOK_EVERY = 1.0
TRY_AGAIN = 0.02
MOST_NAMES = 100_000


class Guests:
    """Counts who was let in and has said nothing that we have read.

    Example:
        >>> guests = Guests()
        >>> guests.let_in(), guests.let_in(), guests.heard(b"a")
        (None, None, None)
        >>> [guests.unheard(now) for now in (0.0, 4.0, 5.0)]
        [0, 0, 1]
    """

    def __init__(self) -> None:
        self._let_in = 0
        self._heard = 0
        self._names: dict[bytes, None] = {}
        self._looks: deque[tuple[float, int]] = deque()

    def let_in(self) -> None:
        """Somebody has connected, and may."""
        self._let_in += 1

    def heard(self, peer: bytes) -> None:
        """Somebody is heard. A name counts once: honest peers have a new one for each connection."""
        if peer not in self._names:
            self._heard += 1
            self._names[peer] = None
            if len(self._names) > MOST_NAMES:
                del self._names[next(iter(self._names))]

    @property
    def are_heard(self) -> bool:
        """Whether all of them were, also those that have just come."""
        return self._let_in <= self._heard

    def unheard(self, now: float) -> int:
        """How many were let in longer ago than the patience and were never heard; it is asked again and again."""
        looks = self._looks
        looks.append((now, self._let_in))
        while len(looks) > 1 and now - looks[1][0] >= PATIENCE:
            looks.popleft()
        when, let_in = looks[0]
        return max(0, let_in - self._heard) if now - when >= PATIENCE else 0


class Entrance:
    """A ROUTER with all that is known of its peers.

    Args:
        context: where it lives.
        loop: polls it.
        endpoint: where it listens.
        silence_ms: after how long without a sign of life a connection is ended.
        max_bytes: the largest message that is accepted.
        key: by which it is known; None: it lets in anybody.
        rejects: counts what may not come.
        hear: called while there is something to receive; False when there was nothing.

    Attributes:
        bound: the endpoint, with its port.

    Raises:
        OSError: it cannot listen there; the text says why.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: Loop,
        endpoint: str,
        silence_ms: int,
        max_bytes: int,
        key: Key | None,
        rejects: Rejects,
        hear: Callable[[], bool],
    ) -> None:
        self._context, self._loop, self._rejects, self._hear = context, loop, rejects, hear
        self._options = (silence_ms, max_bytes, key)
        self._socket: zmq.Socket[bytes] | None = None
        self._made_anew = self._looked = -math.inf
        self.bound = self._open(endpoint)

    def _open(self, endpoint: str) -> str:
        socket, bound = sockets.control_router(self._context, endpoint, *self._options)
        self._socket = socket
        self._guests = Guests()
        self._connections = Connections(split_address(bound.partition("://")[2])[1], self._options[0] / 1000)
        self._strangers = Strangers(self._context, socket, self._loop, self._rejects, self._guests.let_in)
        self._loop.read(socket, self._hear)
        return bound

    def receive(self) -> tuple[bytes, list[zmq.Frame]]:
        """The next message, and who has sent it.

        Raises:
            zmq.Again: there is none.
        """
        if self._socket is None:
            raise zmq.Again
        first, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        peer = first.bytes
        self._guests.heard(peer)
        self._connections.heard(peer, frames)
        return peer, frames

    def send(self, peer: bytes, frames: Sequence[bytes]) -> None:
        """Sends to a peer without waiting.

        Raises:
            zmq.Again: it does not take what was sent to it before.
            zmq.ZMQError: EHOSTUNREACH, it is not connected.
        """
        if self._socket is None or not self._connections.has_room(peer, len(frames[-1])):
            raise zmq.Again
        try:
            sockets.send_at_once(self._socket, [peer, *frames])
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                self._connections.lost(peer)
            raise

    def drop(self, frames: Sequence[zmq.Frame], where: str, reason: str) -> None:
        """Counts a message that may not come here."""
        if self._socket is not None:
            self._rejects.drop(self._loop, self._socket, sockets.sender(frames), where, reason)

    def look(self, now: float) -> None:
        """Ends connections on which nothing comes, and begins anew if too much comes that is never heard."""
        if self._socket is None:
            return
        self._connections.end_silent(now)
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        unheard = self._guests.unheard(now)
        if self._guests.are_heard or now - self._made_anew < PAUSE:
            return
        present = self._connections.unheard()
        if present is None:
            return
        unheard -= present.little  # an honest one may be quiet for long
        if unheard >= MOST_UNHEARD or present.nbytes >= MOST_UNHEARD_BYTES:
            self._begin_anew(max(0, unheard), present.nbytes)
            self._made_anew = now

    def _begin_anew(self, unheard: int, nbytes: int) -> None:
        log.warning(
            "%d connections were let in and are gone or have said much, and none of it was heard; %.0f MB are there: "
            "somebody shows names that others have. Listening anew on %s; all peers connect again",
            unheard,
            nbytes / 1e6,
            self.bound,
        )
        self.close(linger=0)
        self._reopen()

    def _reopen(self) -> None:
        """libzmq frees the port a moment after the socket is closed."""
        try:
            self._open(self.bound)
        except OSError as error:
            log.debug("not yet: %s", error)
            self._loop.later(TRY_AGAIN, self._reopen)

    def close(self, linger: int | None = None) -> None:
        """Frees the socket: nothing is sent or received any more. ``linger``: milliseconds, None: as usual."""
        if self._socket is not None:
            self._loop.forget(self._socket)
            self._strangers.close()
            self._socket.close(linger)
            self._socket = None
