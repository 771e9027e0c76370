"""How a worker's process ended, and what it was at then: what a successor tells the
dispatcher of it.
"""

from __future__ import annotations

from zmqdata.messages.discreet import Discreet

Place = tuple[str, int]
"""A node of a pipeline, by its place there, and the number of an element that came to
it.
"""

OPENING = -2
"""In place of an element's number: the pipeline was being opened."""


class Crumb(Discreet, frozen=True):
    """What a task was at: a call of a user's function, or, without a ``node``, the
    making of its next element.

    ``number`` counts what came to the node, from 0, or is that of the task's element.
    ``node`` is the place of the node in the pipeline, ``label`` what errors call it.
    ``skippable``: the node can leave the element out. ``split``: the last one that the
    task had begun.
    """

    task: int
    attempt: int
    number: int
    node: str = ""
    label: str = ""
    skippable: bool = False
    split: tuple[int, int] | None = None

    @property
    def place(self) -> Place:
        """What a death at this element is counted under."""
        return self.node, self.number


class Death(Discreet, frozen=True):
    """How the process of a worker ended: ``how`` in words, and what each of the tasks
    that it ran was at, if anything.

    ``tasks`` are the number and attempt of those. ``killed``: by SIGKILL, which the
    system sends to who takes too much memory, and a person to whom they like; or it
    came to its own limit of memory, which others may have used up.
    """

    worker: str
    how: str
    killed: bool = False
    tasks: tuple[tuple[int, int], ...] = ()
    crumbs: tuple[Crumb, ...] = ()
