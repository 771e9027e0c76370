"""The times of a worker's heartbeats, and the detection of a silent dispatcher. It has
no clock.

Protocol 4.1.
"""

from __future__ import annotations

FEW_TASKS = 32
"""Number of tasks up to which news of a task is sent at once."""
SECONDS_PER_TASK = 0.0002
"""Minimum pause between heartbeats for each task of a worker with many tasks. When many
tasks begin or end in sequence, one heartbeat then reports many of them.
"""
LISTENS = 3
"""Number of heartbeat intervals for which the dispatcher may be silent and still
receive optional messages.
"""


class Heartbeats:
    """The heartbeats of one worker, and the dispatcher's answers.

    Args:
        usual: seconds between two heartbeats.
        patience: seconds without an answer after which the worker gives up.

    Attributes:
        pause: current seconds between two heartbeats. The dispatcher may ask for a
            longer pause.

    Example:
        >>> beats = Heartbeats(usual=1.0, patience=60.0)
        >>> beats.spoke(10.0)
        >>> beats.may_tell(10.1, tasks=1000), beats.is_due(10.25, tasks=1000)
        (False, True)
        >>> beats.may_tell(10.1, tasks=3)
        True
    """

    def __init__(self, usual: float, patience: float) -> None:
        self.usual = self.pause = usual
        self._patience = patience
        self._spoke = -usual
        self._has_news = False
        self._heard: float | None = None

    def is_due(self, now: float, tasks: int) -> bool:
        """Return True if a worker with this number of tasks must send a heartbeat."""
        return now - self._spoke >= (
            min(self.pause, _least_pause(tasks)) if self._has_news else self.pause
        )

    def may_tell(self, now: float, tasks: int) -> bool:
        """Return True if news of a task is sent at once. If not, a heartbeat is due
        soon.
        """
        self._has_news = True
        return self.is_due(now, tasks)

    def spoke(self, now: float) -> None:
        """Record that a heartbeat was sent."""
        self._spoke, self._has_news = now, False

    def answered(self, every: float) -> None:
        """Adopt the interval that the dispatcher asks for, in seconds; 0 if it asks for
        none.
        """
        self.pause = max(self.usual, min(every, self._patience / 3))

    def heard(self, now: float) -> None:
        """Record that a message of the dispatcher has arrived."""
        self._heard = now

    def listens(self, now: float) -> bool:
        """Return True if a message of the dispatcher has arrived recently."""
        return self._heard is not None and now - self._heard <= LISTENS * self.pause

    def gives_up(self, now: float) -> bool:
        """Return True if no message has arrived for ``patience`` seconds, counted from
        the first call. After that, the count starts again.
        """
        if self._heard is None:
            self._heard = now
        if now - self._heard < self._patience:
            return False
        self._heard = now
        return True


def _least_pause(tasks: int) -> float:
    return 0.0 if tasks <= FEW_TASKS else tasks * SECONDS_PER_TASK
