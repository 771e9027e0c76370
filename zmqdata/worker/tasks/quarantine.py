"""The elements that the pipelines of a worker skipped: logged as they occur, kept for
the worker's status, and reported to the readers.

``iterators.guarding`` skips the elements.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import asdict
from itertools import islice
from typing import Any

from zmqdata.iterators.quarantine import LeftOut, Quarantine
from zmqdata.messages import LeftOutElement, TaskDefinition

log = logging.getLogger(__name__)

MOST_TEXT = 4000
"""Maximum number of characters of an error, and of a traceback, that a reader gets."""
SHOWN = 10
"""Number of skipped elements in a status."""


class TaskQuarantine(Quarantine):
    """The newest elements that one attempt of a task skipped; the ``quarantine`` of its
    context.

    The first, tenth, hundredth and so on are logged, the first with its traceback. The
    total is logged at the end. A bad file must not fill the disk with log lines. The
    level is INFO, because clients log the same for all tasks together.

    Args:
        definition: the task.
        report: called with each element, except for those that end their process, which
            the dispatcher reports.
    """

    def __init__(
        self, definition: TaskDefinition, report: Callable[[LeftOutElement], None]
    ) -> None:
        super().__init__()
        self.task = definition.task
        self._index = definition.stream
        self._poisoned: Collection[tuple[str, int]] = frozenset(definition.poisoned)
        self._report = report
        self._next_told = 1

    def append(self, left_out: LeftOut, /) -> None:
        """Add a skipped element, unless a replay within the attempt skips it again."""
        before = self.total
        super().append(left_out)
        if self.total == before:
            return
        if self.total == self._next_told:
            self._tell(left_out)
            self._next_told *= 10
        if (left_out.place, left_out.number) not in self._poisoned:
            self._report(_reported(self._index, left_out))

    def _tell_of_limit(self) -> None:
        """Log nothing: readers are told, and the worker logs the totals."""

    def _tell(self, left_out: LeftOut) -> None:
        place = (
            "" if left_out.split is None else f" (split {left_out.split[0]} to {left_out.split[1]})"
        )
        element = f"element {left_out.number} of {left_out.node}{place}: {left_out.error}"
        if self.total == 1:
            text = f"task {self.task} leaves out {element}\n{left_out.traceback}"
            log.info("%s", text.rstrip())
        else:
            log.info(
                "task %s has left out %s elements, the newest is %s", self.task, self.total, element
            )

    def end(self) -> None:
        """Log the total at the end of the pipeline."""
        if self.total > 1:
            log.info("task %s has ended and left out %s elements", self.task, self.total)

    def shown(self) -> dict[str, Any]:
        """Return the total and the newest elements as a JSON-compatible dict.
        Thread-safe.
        """
        newest = islice(reversed(list(self)), SHOWN)
        return {"left_out": self.total, "quarantine": [_plain(left_out) for left_out in newest]}


def _reported(index: int, left_out: LeftOut) -> LeftOutElement:
    shown = _plain(left_out)
    # The end of a traceback names the user's line.
    error, traceback = shown["error"][:MOST_TEXT], shown["traceback"][-MOST_TEXT:]
    return LeftOutElement(
        index,
        left_out.place,
        left_out.number,
        shown["node"],
        error,
        left_out.split,
        traceback,
    )


def _plain(left_out: LeftOut) -> dict[str, Any]:
    """Return a skipped element as a dict whose texts can be encoded, whatever the
    user's code has put into them.
    """
    return {
        name: value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, str)
        else value
        for name, value in asdict(left_out).items()
    }
