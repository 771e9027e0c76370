"""Counts of rejected messages. Each kind is logged once per peer."""

from __future__ import annotations

import logging
from collections import Counter

import zmq

from zmqdata.printable import printable
from zmqdata.transport.loop import Loop

log = logging.getLogger(__name__)

MOST_LOGGED = 1_000
"""Limit of remembered kinds and peers."""
WASTED = 25
"""Rejected messages on a socket after which it rests."""
REST = 0.005
"""Seconds for which the socket rests. Without rests, a peer that sends nothing but
garbage would keep the server busy. Sockets are read fairly among peers, so the other
peers are read as often as that peer in between.
"""


class Rejects:
    """Counts the rejected messages of a shell, in bounded memory."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged: dict[tuple[object, str], None] = {}
        self._wasted = 0  # messages since the last rest

    def count(self, peer: object, where: str, reason: str) -> None:
        """Count a rejected message; the first of its kind from ``peer`` is logged.

        Args:
            peer: the sender.
            where: the socket.
            reason: the fault; its text before the first colon is the kind.
        """
        kind = f"{where}: {reason.partition(':')[0][:80]}"
        self.counts[kind if kind in self.counts or len(self.counts) < MOST_LOGGED else "other"] += 1
        if (peer, kind) not in self._logged:
            if len(self._logged) >= MOST_LOGGED:
                del self._logged[next(iter(self._logged))]
            self._logged[peer, kind] = None
            log.warning("dropped a message on %s from %r: %s", where, peer, printable(reason[:200]))

    def drop(
        self, loop: Loop, socket: zmq.Socket[bytes], peer: object, where: str, reason: str
    ) -> None:
        """Count a rejected message of a socket, and let the socket rest after too
        many.
        """
        self.count(peer, where, reason)
        self._wasted += 1
        if self._wasted >= WASTED:
            self._wasted = 0
            loop.rest(socket, REST)

    @property
    def total(self) -> int:
        return sum(self.counts.values())
