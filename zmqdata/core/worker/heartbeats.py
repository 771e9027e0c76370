"""When a worker speaks to its dispatcher, and whether that one is heard. No clock."""

from __future__ import annotations

FEW_TASKS = 32
SECONDS_PER_TASK = 0.0002
"""What many tasks that are new, or end, one after the other, make a heartbeat wait for:
each tells of all of them.
"""
LISTENS = 3
"""Heartbeats for which a dispatcher may say nothing and still be sent what it can do
without.
"""


class Heartbeats:
    """Those of one worker, and the answers.

    Args:
        usual: seconds between two of them.
        patience: seconds to do without an answer.

    Attributes:
        pause: seconds between two of them now; the dispatcher may want them more
            rarely.

    Example:
        >>> beats = Heartbeats(usual=1.0, patience=60.0)
        >>> beats.spoke(10.0)
        >>> beats.may_tell(10.1, tasks=1000), beats.is_due(10.25, tasks=1000), beats.may_tell(10.1, tasks=3)
        (False, True, True)
    """

    def __init__(self, usual: float, patience: float) -> None:
        self.usual = self.pause = usual
        self._patience = patience
        self._spoke = -usual
        self._has_news = False
        self._heard: float | None = None

    def is_due(self, now: float, tasks: int) -> bool:
        """Whether it is time to speak, for one that has so many tasks."""
        return now - self._spoke >= (
            min(self.pause, _least_pause(tasks)) if self._has_news else self.pause
        )

    def may_tell(self, now: float, tasks: int) -> bool:
        """Whether what is new of a task is told at once. If not, it will be due
        soon.
        """
        self._has_news = True
        return self.is_due(now, tasks)

    def spoke(self, now: float) -> None:
        """It says how things stand."""
        self._spoke, self._has_news = now, False

    def answered(self, every: float) -> None:
        """The dispatcher wants to hear of it that often, in seconds; 0: it does not
        mind.
        """
        self.pause = max(self.usual, min(every, self._patience / 3))

    def heard(self, now: float) -> None:
        """Something came from the dispatcher."""
        self._heard = now

    def listens(self, now: float) -> bool:
        """Whether something came of late."""
        return self._heard is not None and now - self._heard <= LISTENS * self.pause

    def gives_up(self, now: float) -> bool:
        """Whether nothing came for longer than it waits, counted from the first look;
        said once in so long.
        """
        if self._heard is None:
            self._heard = now
        if now - self._heard < self._patience:
            return False
        self._heard = now
        return True


def _least_pause(tasks: int) -> float:
    return 0.0 if tasks <= FEW_TASKS else tasks * SECONDS_PER_TASK
