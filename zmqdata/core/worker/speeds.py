"""The speed of links, measured from their connections' counters, and the resulting
speed of tasks.

The counting of bytes, and decisions based on the speed, do not belong here.

Decision 0025; protocol 6.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from zmqdata.measures.sums import Recent

FULL = 0.8
"""Share of the time in which a connection had data to send, above which its measured
rate counts as the rate of the link.
"""
GROWTH = 1.05
"""Maximum factor by which the assumed speed of a link grows at each measurement while
its connection often had no data to send.

Short bursts are faster than the link's sustained rate if a switch or a cloud limits it
by a token bucket.
"""


class LinkSpeed:
    """The speed of a link. ``bytes_per_second`` is None until the link was busy for
    long enough to measure it.

    Args:
        known: speed of an earlier link to the same host; None if unknown.

    >>> speed = LinkSpeed()
    >>> for now, sent, busy in [(0.0, 0, 0.0), (0.25, 30_000_000, 0.25)]:
    ...     speed.observe(now, sent, busy)
    >>> speed.bytes_per_second
    120000000.0
    """

    def __init__(self, known: float | None = None) -> None:
        self.bytes_per_second = known
        self._last: tuple[float, int, float] | None = None

    def observe(self, now: float, sent: int, busy: float, compressed: bool = False) -> None:
        """Update the speed from counters that start with the connection.

        While blocks are compressed, no measurement lowers the speed. The cause may be
        the cores, which compression keeps from sending and receiving. Even more
        compression would make that worse.

        Args:
            now: time of the measurement.
            sent: number of bytes that have arrived.
            busy: seconds in which bytes were in flight.
            compressed: True if blocks are compressed.
        """
        last, self._last = self._last, (now, sent, busy)
        if last is None or sent < last[1]:  # a new connection
            return
        window, moved, working = now - last[0], sent - last[1], busy - last[2]
        if moved <= 0 or working <= 0 or window <= 0:
            return
        measured, known = moved / working, self.bytes_per_second
        if compressed and known is not None and measured < known:
            return
        if working >= FULL * window:
            self.bytes_per_second = measured if known is None else (known + measured) / 2
        elif known is not None and measured > known:
            self.bytes_per_second = min(measured, known * GROWTH)


class LinkUse:
    """The share of time in which a link had bytes in flight.

    Attributes:
        shown: this share of the last seconds, and the bytes per second that the link
            moved meanwhile.

    >>> use = LinkUse()
    >>> for now, sent, busy in [(0.0, 0, 0.0), (1.0, 50_000, 0.5)]:
    ...     use.observe(now, sent, busy)
    >>> use.shown
    (0.5, 100000.0)
    """

    def __init__(self) -> None:
        self.shown = (0.0, 0.0)
        self._recent = Recent(3)
        self._began: float | None = None

    def observe(self, now: float, sent: int, busy: float) -> None:
        """Update the share from counters that start with the connection.

        Args:
            now: time of the measurement.
            sent: number of bytes that have arrived.
            busy: seconds in which bytes were in flight.
        """
        if self._began is None:
            self._began = now
        seconds, moved, working = self._recent.look(now, (now - self._began, float(sent), busy))
        if seconds > 0:
            self.shown = (min(1.0, working / seconds), moved / working if working else 0.0)


def task_speed(speeds: Sequence[float], *, numbered: bool = False, cached: bool = False) -> float:
    """Return the bytes per second at which the clients of a task, taken together, can
    be sent its blocks.

    Args:
        speeds: speed of each stream; infinite for clients on this host.
        numbered: True if every client gets as much as every other. The slowest then
            limits all.
        cached: True if every client gets everything. The fastest must then not wait.

    >>> task_speed([1e8, 3e8]), task_speed([1e8, 3e8], numbered=True)
    (400000000.0, 200000000.0)
    >>> task_speed([1e8, 3e8], cached=True)
    300000000.0
    """
    if not speeds:
        return math.inf
    if cached:
        return max(speeds)
    return len(speeds) * min(speeds) if numbered else sum(speeds)
