"""What was dropped because it could not be decoded: counted, and logged once per peer
and kind.
"""

from __future__ import annotations

import logging
from collections import Counter

import zmq

from zmqdata.printable import printable
from zmqdata.transport.loop import Loop

log = logging.getLogger(__name__)

MOST_LOGGED = 1_000
WASTED = 25
REST = 0.005
"""Seconds without a look at a socket of which so many messages had to be dropped: who
sends nothing else would have a server do nothing else. Peers are heard in turn, so the
others are heard as often as that one in between.
"""


class Rejects:
    """Counts rejected input of one shell, in bounded memory whoever sends it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged: dict[tuple[object, str], None] = {}
        self._wasted = 0  # since the last rest

    def count(self, peer: object, where: str, reason: str) -> None:
        """Notes that something from ``peer`` was dropped; ``reason`` is logged the
        first time.

        Args:
            peer: who sent it.
            where: on which socket.
            reason: what was wrong; its beginning up to the first colon is the kind.
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
        """Counts a message that came on a socket, which has a rest if too many such
        came.
        """
        self.count(peer, where, reason)
        self._wasted += 1
        if self._wasted >= WASTED:
            self._wasted = 0
            loop.rest(socket, REST)

    @property
    def total(self) -> int:
        return sum(self.counts.values())
