"""When workers shall speak next: each heartbeat takes time, and thousands would leave
the dispatcher none.
"""

from __future__ import annotations

NEGLIGIBLE = 0.1
"""Seconds that are not worth telling: no worker beats as often."""


class Beats:
    """Gives out times for heartbeats, one after the other. With few workers it has
    nothing to say.

    Args:
        share: seconds between two of those times.
        most: seconds that a worker is silent at the most. With more workers than times,
            times are given out again.

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
        """Seconds after which the worker that beats now shall beat again, if it would
        sooner; 0: whenever it would.

        Times are given in the order of heartbeats, so thousands of workers that were
        started at once do not beat at once for ever.
        """
        self._given = max(self._given + self._share, now)
        if self._given > now + self._most:
            # So many that one would be silent for too long: what is left of a round is
            # given out a second time.
            self._given = min(self._given - self._most / 4, now + self._most)
        pause = round(self._given - now, 3)
        return pause if pause >= NEGLIGIBLE else 0.0
