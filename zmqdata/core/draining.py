"""How a worker leaves in good order: it waits until its tasks have gone elsewhere, but not for ever. No clock.

Which of its tasks goes where is decided by the dispatcher (``core.hosting``).
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqdata.messages import TaskDefinition


class Draining:
    """Whether a worker is on its way out, and whether it may leave.

    Example:
        >>> draining = Draining()
        >>> draining.may_leave(0.0, [])
        False
        >>> draining.begin(0.0, 7.0)
        >>> draining.may_leave(0.0, [])
        True
    """

    def __init__(self) -> None:
        self.begun = False
        self._until = 0.0

    def begin(self, now: float, patience: float) -> None:
        """It shall leave within ``patience`` seconds; asked again, the first time counts."""
        if not self.begun:
            self.begun, self._until = True, now + patience

    def may_leave(self, now: float, tasks: Iterable[TaskDefinition]) -> bool:
        """Whether it hosts nothing any more that would go on elsewhere, or has waited for long enough."""
        return self.begun and (now >= self._until or not any(goes_on_elsewhere(task) for task in tasks))


def goes_on_elsewhere(task: TaskDefinition) -> bool:
    """Whether another host will take a task; a copy of the whole input ends with its worker."""
    return task.processing_mode != "OFF" or task.num_consumers is not None
