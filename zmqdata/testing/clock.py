"""A clock that tests move. It stands still until a test runs what is due. Neither
threads nor real time belong here.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Simulated seconds, and the calls that are due.

    Calls due at the same moment run in the order in which they were requested, so a run
    is repeatable.

    Args:
        now: starting time, in seconds.

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
        """Schedule ``call`` for ``seconds`` from now. A negative delay counts as
        none.
        """
        heapq.heappush(self._due, (self.now + max(0.0, seconds), next(self._order), call))

    def run_next(self) -> bool:
        """Move to the next call that is due and run it. Return False if none is
        left.
        """
        if not self._due:
            return False
        self.now, _, call = heapq.heappop(self._due)
        call()
        return True

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``, and run every call that falls due."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.run_next()
        self.now = end
