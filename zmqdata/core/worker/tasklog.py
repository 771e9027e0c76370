"""The task log: how many of the lines that functions print and log are sent.

``core.worker.links`` decides to which client.

Protocol 6.13.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from zmqdata import messages as m

BURST = 1000
"""Number of lines that a worker process may send at once."""
PER_SECOND = 100.0
"""Number of lines that a worker process may send in each further second."""
LINES_KEPT = BURST
"""Number of lines of a task that are kept until a client reads it."""
MOST_CHARACTERS_OF_LINE = 4096
"""Number of characters of a line, or of a record, that are sent."""


class LineLimit:
    """Limits the lines of a worker process: a burst, and then a number in each second.

    Args:
        burst: number of lines that may be sent at once.
        per_second: number of lines that may be sent in each further second.

    Example:
        >>> limit = LineLimit(burst=2, per_second=1.0)
        >>> [limit.admits(now) for now in (0.0, 0.1, 0.2, 1.2, 1.3)]
        [True, True, False, True, False]
    """

    def __init__(self, burst: int = BURST, per_second: float = PER_SECOND) -> None:
        self._burst, self._per_second = float(burst), per_second
        self._left, self._counted = self._burst, 0.0

    def admits(self, now: float) -> bool:
        """Count a line, and return True if it may be sent."""
        gained = max(0.0, now - self._counted) * self._per_second
        self._left, self._counted = min(self._burst, self._left + gained), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class KeptLines:
    """The lines of a task that no client has received: the newest, and the number of
    those that are suppressed.

    Example:
        >>> kept = KeptLines()
        >>> kept.add([m.TaskLine("hello")], suppressed=2)
        >>> message = kept.drain(task=1, attempt=1)
        >>> [line.text for line in message.lines], message.suppressed, bool(kept)
        (['hello'], 2, False)
    """

    def __init__(self) -> None:
        self._lines: deque[m.TaskLine] = deque(maxlen=LINES_KEPT)
        self._suppressed = 0

    def __bool__(self) -> bool:
        return bool(self._lines or self._suppressed)

    def add(self, lines: Iterable[m.TaskLine], suppressed: int) -> None:
        """Add lines, and count those that were suppressed before."""
        self._suppressed += suppressed
        for line in lines:
            self._suppressed += len(self._lines) == LINES_KEPT
            self._lines.append(line)

    def drain(self, task: int, attempt: int) -> m.TaskLogged:
        """Return the message with all lines, and forget them."""
        message = m.TaskLogged(0, task, attempt, tuple(self._lines), self._suppressed)
        self._lines.clear()
        self._suppressed = 0
        return message
