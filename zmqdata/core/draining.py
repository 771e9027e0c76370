"""How a worker leaves in good order: it waits until its tasks have gone elsewhere, but not for ever. No clock.

Which of its tasks goes where is decided by the dispatcher (``core.hosting``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from zmqdata.commands import Note
from zmqdata.core.targets import outlives_host
from zmqdata.messages import TaskDefinition

DRAIN_SECONDS = 6.0
"""How long a worker that shall leave waits for others to take its tasks."""


class Draining:
    """Whether a worker is on its way out (``begun``), and whether it may leave (``done``).

    Args:
        do: takes what is to be told.

    Example:
        >>> draining = Draining(lambda note: None)
        >>> draining.begin(0.0, 6.0, [])
        True
        >>> draining.look(0.0, [])
        >>> draining.done
        True
    """

    def __init__(self, do: Callable[[object], None]) -> None:
        self.begun = self.done = False
        self._until = 0.0
        self._do = do

    def begin(self, now: float, patience: float, tasks: Collection[TaskDefinition]) -> bool:
        """It shall leave within ``patience`` seconds; False when it was told before, which counts."""
        if self.begun:
            return False
        self.begun, self._until = True, now + patience
        self._do(Note("info", f"draining: {len(tasks)} tasks are handed over"))
        return True

    def look(self, now: float, tasks: Collection[TaskDefinition]) -> None:
        """It may leave when it hosts nothing that would go on elsewhere, or has waited for long enough."""
        left = sum(map(outlives_host, tasks)) if self.begun and not self.done else 0
        if self.begun and not self.done and (not left or now >= self._until):
            self.done = True
            if left:
                self._do(Note("warning", f"nobody has taken {left} tasks in time; they wait for another worker"))
