"""The socket on which a server hears everybody, made anew when somebody keeps it from
hearing.

libzmq (4.3.5) reads nothing of a connection that shows the same routing id as another
one. What is said there fills our memory, and stays there when the connection is gone,
until the socket is closed. Who does that has a key, or there is none. So it is counted
who was let in and never heard. When that is too many, or too much, all peers connect
again.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from zmqdata.config.endpoints import split_address
from zmqdata.transport import sockets
from zmqdata.transport.connections import LOOK_EVERY, Connections
from zmqdata.transport.handshakes import Arrivals
from zmqdata.transport.keys import Key
from zmqdata.transport.loop import Loop
from zmqdata.transport.rejects import Rejects

log = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds after which we have read what came, and know of a connection that is there
whether it was let in.
"""
MOST_UNHEARD = 8
"""Connections that are gone or have said much, and were never heard. A peer that dies
at once leaves one, too.
"""
MOST_UNHEARD_BYTES = 256 << 20
"""Of all messages together that have begun and are not heard. Honest peers seldom begin
with large ones.
"""
PAUSE = 3.0
LONGEST_PAUSE = 60.0
"""Seconds for which the socket stays at least, and twice as long each time, but where
there is too much memory.
"""
CALM = 600.0
"""Seconds after which the last time counts no more."""
COMING_BACK = 30.0
"""Seconds in which peers connect again, that we cannot reach until they have said
something.
"""
SHARE = 20
"""To look takes a twentieth of our time at most, however many connections there are."""
TRY_AGAIN = 0.02
TELL_EVERY = 250
"""So many tries to get the port back are five seconds."""
MOST_NAMES = 100_000
"""Then we listen anew, as it could not be said any more who was heard."""


class Guests:
    """Counts who was let in and has said nothing that we have read.

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
        """Somebody has connected, and may."""
        self._let_in += 1

    def heard(self, peer: bytes) -> None:
        """Somebody is heard. A name counts once: honest peers have a new one for each
        connection.
        """
        self._names.add(peer)

    @property
    def are_heard(self) -> bool:
        """Whether all of them were, also those that have just come."""
        return self._let_in <= len(self._names)

    @property
    def are_too_many(self) -> bool:
        """Whether there were more names than can be remembered."""
        return len(self._names) >= MOST_NAMES

    def unheard(self, now: float) -> int:
        """How many were let in longer ago than the patience and were never heard; it is
        asked again and again.
        """
        looks = self._looks
        looks.append((now, self._let_in))
        while len(looks) > 1 and now - looks[1][0] >= PATIENCE:
            looks.popleft()
        when, let_in = looks[0]
        return max(0, let_in - len(self._names)) if now - when >= PATIENCE else 0


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
        port = split_address(bound.partition("://")[2])[1]
        self._connections = Connections(port, silence_ms / 1000, max_bytes)
        self._socket, self._arrivals, self._guests = socket, arrivals, guests
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
        self._connections.heard(peer, frames, time.monotonic())
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
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._connections.lost(peer)
            if time.monotonic() - self._made_anew < COMING_BACK:
                raise zmq.Again from None
            raise

    def drop(self, frames: Sequence[zmq.Frame], where: str, reason: str) -> None:
        """Counts a message that may not come here."""
        if self._socket is not None:
            self._rejects.drop(self._loop, self._socket, sockets.sender(frames), where, reason)

    def look(self, now: float) -> None:
        """Ends connections on which nothing comes, and begins anew if too much comes
        that is never heard.
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
                now, "so many peers have come that it is not known any more who of them was heard"
            )
        elif present is not None and now - self._made_anew >= PAUSE:
            self._judge(now, unheard - present.harmless, present.nbytes)

    def _judge(self, now: float, unheard: int, nbytes: int) -> None:
        if nbytes >= MOST_UNHEARD_BYTES:
            self._begin_anew(
                now, f"{nbytes / 1e6:.0f} MB have come on connections of which nothing is heard"
            )
        elif unheard >= MOST_UNHEARD and now - self._made_anew >= self._pause:
            is_calm = now - self._made_anew >= CALM
            self._pause = PAUSE if is_calm else min(2 * self._pause, LONGEST_PAUSE)
            self._begin_anew(
                now,
                f"{unheard} connections were let in and never heard, and are gone or have said "
                "much",
            )

    def _begin_anew(self, now: float, why: str) -> None:
        log.warning(
            "%s; does somebody use names that others have? Listening anew on %s", why, self.bound
        )
        self._made_anew, self._tries = now, 0
        self.close(linger=0)
        self._reopen()

    def _reopen(self) -> None:
        """libzmq frees the port a moment after the socket is closed."""
        try:
            self._open(self.bound)
        except (OSError, zmq.ZMQError) as error:
            self._tries += 1
            if self._tries % TELL_EVERY == 0:
                log.error("cannot listen on %s again: %s; trying on", self.bound, error)
            self._loop.later(TRY_AGAIN, self._reopen)

    def close(self, linger: int | None = None) -> None:
        """Frees the socket: nothing is sent or received any more. ``linger``:
        milliseconds, None: as usual.
        """
        if self._socket is not None:
            self._loop.forget(self._socket)
            if self._arrivals is not None:
                self._arrivals.close()
            self._socket.close(linger)
            self._socket = self._arrivals = None
