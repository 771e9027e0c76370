"""Pacing of worker heartbeats. Each heartbeat takes time, and thousands of workers
would leave the dispatcher none for other work.

Protocol 4.1.
"""

from __future__ import annotations

NEGLIGIBLE = 0.1
"""Seconds. A shorter pause is not sent, because no worker sends heartbeats that
often.
"""


class Beats:
    """Assigns the times of the next heartbeats in order. With few workers
    it assigns no pause.

    Args:
        share: seconds between two of these times.
        most: maximum number of seconds between two heartbeats of a worker. With more
            workers than times in that period, times are assigned twice.

    Example:
        >>> beats = Beats(share=0.1, most=5.0)
        >>> [beats.next(now=10.0) for _ in range(4)], beats.next(now=20.0)
        ([0.0, 0.1, 0.2, 0.3], 0.0)
    """

    def __init__(self, share: float, most: float) -> None:
        self._share = share
        self._most = most
        self._given = 0.0

    def next(self, now: float) -> float:
        """Return the seconds after which the worker that sends a heartbeat now should
        send the next; 0 if it may choose.

        Times are assigned in the order of heartbeats. Thousands of workers that start
        at once therefore do not send heartbeats at once for ever.
        """
        self._given = max(self._given + self._share, now)
        if self._given > now + self._most:
            # With so many workers, some would be silent for too long: the rest of a
            # period is assigned a second time.
            self._given = min(self._given - self._most / 4, now + self._most)
        pause = round(self._given - now, 3)
        return pause if pause >= NEGLIGIBLE else 0.0
