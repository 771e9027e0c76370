"""A clock that tests move: it stands still until somebody runs what is due. No thread
and no real time lives here.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Simulated seconds, and a list of what happens when.

    Things due at the same moment happen in the order in which they were asked for, so a
    run is repeatable.

    Args:
        now: where time begins, in seconds.

    Example:
        >>> clock = Clock()
        >>> clock.after(2.0, lambda: print("two seconds later"))
        >>> clock.advance(1.0)
        >>> clock.advance(1.0)
        two seconds later
        >>> clock.now
        2.0
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._due)

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Has ``call`` called once ``seconds`` from now; a negative delay counts as
        none.
        """
        heapq.heappush(self._due, (self.now + max(0.0, seconds), next(self._order), call))

    def run_next(self) -> bool:
        """Moves to the next thing that is due and does it; False when nothing is
        left.
        """
        if not self._due:
            return False
        self.now, _, call = heapq.heappop(self._due)
        call()
        return True

    def advance(self, seconds: float) -> None:
        """Moves on by ``seconds``, doing everything that falls due on the way."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.run_next()
        self.now = end
