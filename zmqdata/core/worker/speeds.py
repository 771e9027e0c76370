"""How fast links are, from what their connections count, and what that means for the
tasks that use them.

Who counts, and what is decided by it, does not belong here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FULL = 0.8
"""The part of the time in which a connection had something to send, from which its rate
is that of the link.
"""
GROWTH = 1.05
"""How much faster a link may be taken to be after a look at a connection that often had
nothing to send.

Short bursts pass faster than the link carries for long, where a switch or a cloud
limits it by a bucket of tokens.
"""


class LinkSpeed:
    """The speed of one link. ``bytes_per_second`` is None until it was busy for long
    enough to tell.

    Args:
        known: that of the link before it to the same host, if there was one.

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
        """Takes counts from the beginning of a connection: bytes that arrived, seconds
        with some on their way.

        While blocks are ``compressed`` nothing makes a link slower: it may be the cores
        that are, which compressing keeps from sending and receiving, and then more of
        it would be for the worse.
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


def task_speed(speeds: Sequence[float], *, numbered: bool = False, cached: bool = False) -> float:
    """How many bytes per second of one task its clients can be sent together.

    Args:
        speeds: of the streams; infinite for those on this host.
        numbered: each gets as much as every other: the slowest decides.
        cached: each gets everything: the fastest is not to be kept waiting.

    >>> task_speed([1e8, 3e8]), task_speed([1e8, 3e8], numbered=True), task_speed([1e8, 3e8], cached=True)
    (400000000.0, 200000000.0, 300000000.0)
    """
    if not speeds:
        return math.inf
    if cached:
        return max(speeds)
    return len(speeds) * min(speeds) if numbered else sum(speeds)
