"""The end of a worker's process, and the work that it was doing; its successor reports
it to the dispatcher.
"""

from __future__ import annotations

from zmqdata.messages.discreet import Discreet

Place = tuple[str, int]
"""An input element of a node: the node's place in the pipeline, and the element's
number there.
"""

OPENING = -2
"""Stands for an element's number while the pipeline is being opened."""


class Work(Discreet, frozen=True):
    """The work that a task was doing: a call of a user's function, or, without a
    ``node``, the making of its next element.
    """

    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    number: int
    """Number of the node's input element, from 0, or of the task's element."""
    node: str = ""
    """Place of the node in the pipeline."""
    label: str = ""
    """Name of the node in errors."""
    skippable: bool = False
    """True if the node can skip the element."""
    split: tuple[int, int] | None = None
    """The last split that the task had begun."""
    element: int = -1
    """Number of the task's element in progress; below 0 if unknown."""

    @property
    def place(self) -> Place:
        """The place under which a death at this element is counted."""
        return self.node, self.number


class Death(Discreet, frozen=True):
    """The end of a worker's process."""

    worker: str
    """Id of the worker."""
    how: str
    """Description of how it ended."""
    killed: bool = False
    """True if it was killed by SIGKILL, or reached its own memory limit. Neither proves
    a fault of a task: the kernel sends SIGKILL when memory runs out, a person may send
    it to any process, and other tasks may have used up the memory.
    """
    tasks: tuple[tuple[int, int], ...] = ()
    """Id and attempt of each task that it ran."""
    in_progress: tuple[Work, ...] = ()
    """The work that each of them was doing, if any."""
