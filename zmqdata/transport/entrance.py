"""The ROUTER of a server, which is replaced if peers keep it from receiving.

libzmq (4.3.5) reads nothing from a connection with the routing id of another
connection. Its messages fill this process's memory, even after the connection has
ended, until the socket is closed. Such a peer holds a key, or the server has none.
Therefore this module counts the connections that were admitted and never heard. If they
are too many, or hold too many bytes, it replaces the socket and all peers reconnect.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from zmqdata.config.endpoints import split_address
from zmqdata.printable import shown_size
from zmqdata.transport import sockets
from zmqdata.transport.connections import LOOK_EVERY, Connections
from zmqdata.transport.handshakes import Arrivals
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

log = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds after which pending messages were read, and each surviving connection has
completed its handshake.
"""
MOST_UNHEARD = 8
"""Limit of connections that were admitted and never heard, and have ended or sent much.
A peer that dies at once leaves such a connection, too.
"""
MOST_UNHEARD_BYTES = 256 << 20
"""Limit of the bytes of all messages that have begun on unheard connections. Honest
peers rarely begin with large messages.
"""
PAUSE = 3.0
"""Seconds between two replacements of the socket, at first."""
LONGEST_PAUSE = 60.0
"""Limit of this pause, which doubles each time. A replacement for too much memory waits
only for ``PAUSE``.
"""
CALM = 600.0
"""Seconds without a replacement after which the pause is reset."""
COMING_BACK = 30.0
"""Seconds in which peers reconnect after a replacement; until a peer has sent a
message, it cannot be reached.
"""
SHARE = 20
"""The inspection of connections takes at most one part in this many of the server's
time.
"""
TRY_AGAIN = 0.02
"""Seconds between two attempts to bind the port again."""
TELL_EVERY = 250
"""Failed attempts after which an error is logged: five seconds."""
MOST_NAMES = 100_000
"""Limit of remembered routing ids. At the limit the socket is replaced, since it is no
longer known which peers were heard.
"""


class Guests:
    """Counts the connections that were admitted but never heard.

    Example:
        >>> guests = Guests()
        >>> guests.let_in(), guests.let_in(), guests.heard(b"a")
        (None, None, None)
        >>> [guests.unheard(now) for now in (0.0, 14.0, 15.0)]
        [0, 0, 1]
    """

    def __init__(self) -> None:
        self._let_in = 0
        self._names: set[bytes] = set()
        self._looks: deque[tuple[float, int]] = deque()

    def let_in(self) -> None:
        """Count a connection that was admitted."""
        self._let_in += 1

    def heard(self, peer: bytes) -> None:
        """Note that a peer was heard. Each routing id counts once: honest peers have a
        new id for each connection.
        """
        self._names.add(peer)

    @property
    def are_heard(self) -> bool:
        """True if all admitted connections were heard, including the newest."""
        return self._let_in <= len(self._names)

    @property
    def are_too_many(self) -> bool:
        """True if the limit of remembered routing ids is reached."""
        return len(self._names) >= MOST_NAMES

    def unheard(self, now: float) -> int:
        """Return how many connections were admitted more than ``PATIENCE`` ago and
        never heard. Call it periodically.
        """
        looks = self._looks
        looks.append((now, self._let_in))
        while len(looks) > 1 and now - looks[1][0] >= PATIENCE:
            looks.popleft()
        when, let_in = looks[0]
        return max(0, let_in - len(self._names)) if now - when >= PATIENCE else 0


class Entrance:
    """A ROUTER together with the state of its peers' connections.

    Args:
        context: context of the socket.
        loop: polls the socket.
        endpoint: endpoint to bind.
        silence_ms: time without any traffic after which a connection is ended.
        max_bytes: limit of a message.
        key: the server's key; None admits every peer.
        rejects: counts rejected messages.
        hear: called while messages are readable; returns False if it found none.

    Attributes:
        bound: the bound endpoint, with its port.
        port: the port.

    Raises:
        OSError: the endpoint cannot be bound; the text says why.
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
        self._arrivals: Arrivals | None = None
        self._made_anew = self._look_at = -math.inf
        self._pause = PAUSE
        self._tries = 0
        self.bound = self._open(endpoint)

    def _open(self, endpoint: str) -> str:
        silence_ms, max_bytes, key = self._options
        socket, bound = sockets.control_router(self._context, endpoint, silence_ms, max_bytes, key)
        guests = Guests()
        try:
            arrivals = Arrivals(self._context, socket, self._loop, self._rejects, guests.let_in)
        except zmq.ZMQError:
            socket.close(linger=0)
            raise
        self.port = split_address(bound.partition("://")[2])[1]
        self._connections = Connections(self.port, silence_ms / 1000, max_bytes)
        self._socket, self._arrivals, self._guests = socket, arrivals, guests
        self._loop.read(socket, self._hear)
        return bound

    def receive(self) -> tuple[bytes, list[zmq.Frame]]:
        """Return the routing id of the next message's sender, and the frames.

        Raises:
            zmq.Again: no message is waiting.
        """
        if self._socket is None:
            raise zmq.Again
        first, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        peer = first.bytes
        self._guests.heard(peer)
        self._connections.heard(peer, frames, time.monotonic())
        return peer, frames

    def send(self, peer: bytes, frames: Sequence[bytes]) -> None:
        """Send to a peer without waiting.

        Raises:
            zmq.Again: the peer has not yet taken what was sent before.
            zmq.ZMQError: EHOSTUNREACH, the peer is not connected.
        """
        if self._socket is None or not self._connections.has_room(peer, len(frames[-1])):
            raise zmq.Again
        try:
            sockets.send_at_once(self._socket, [peer, *frames])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._connections.lost(peer)
            if time.monotonic() - self._made_anew < COMING_BACK:
                raise zmq.Again from None
            raise

    def drop(self, frames: Sequence[zmq.Frame], where: str, reason: str) -> None:
        """Count a message that this server does not accept."""
        if self._socket is not None:
            self._rejects.drop(self._loop, self._socket, sockets.sender(frames), where, reason)

    def look(self, now: float) -> None:
        """End silent connections, and replace the socket if too much arrives that is
        never heard.
        """
        if self._socket is None:
            return
        self._connections.end_silent(now)
        if now < self._look_at:
            return
        unheard, began = self._guests.unheard(now), time.perf_counter()
        present = None if self._guests.are_heard else self._connections.unheard(now)
        self._look_at = now + max(LOOK_EVERY, SHARE * (time.perf_counter() - began))
        if self._guests.are_too_many:
            self._begin_anew(
                now,
                "more peers have connected than can be remembered, so unheard peers can no longer "
                "be told from others",
            )
        elif present is not None and now - self._made_anew >= PAUSE:
            self._judge(now, unheard - present.harmless, present.nbytes)

    def _judge(self, now: float, unheard: int, nbytes: int) -> None:
        if nbytes >= MOST_UNHEARD_BYTES:
            self._begin_anew(
                now,
                f"{shown_size(nbytes)} have come on connections from which no message could be "
                "read",
            )
        elif unheard >= MOST_UNHEARD and now - self._made_anew >= self._pause:
            is_calm = now - self._made_anew >= CALM
            self._pause = PAUSE if is_calm else min(2 * self._pause, LONGEST_PAUSE)
            self._begin_anew(
                now,
                f"{unheard} connections were admitted and never heard, and have ended or sent much",
            )

    def _begin_anew(self, now: float, why: str) -> None:
        log.warning(
            "%s; does a peer use routing ids of other peers? Listening anew on %s", why, self.bound
        )
        self._made_anew, self._tries = now, 0
        self.close(linger=0)
        self._reopen()

    def _reopen(self) -> None:
        """Bind the port again; libzmq frees it a moment after the socket is closed."""
        try:
            self._open(self.bound)
        except (OSError, zmq.ZMQError) as error:
            self._tries += 1
            if self._tries % TELL_EVERY == 0:
                log.error("cannot listen on %s again: %s; still trying", self.bound, error)
            self._loop.later(TRY_AGAIN, self._reopen)

    def close(self, linger: int | None = None) -> None:
        """Close the socket. ``linger`` is in milliseconds; None keeps the socket's own
        setting.
        """
        if self._socket is not None:
            self._loop.forget(self._socket)
            if self._arrivals is not None:
                self._arrivals.close()
            self._socket.close(linger)
            self._socket = self._arrivals = None
