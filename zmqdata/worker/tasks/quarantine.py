"""What the pipelines of a worker left out: told in its log as it comes, and kept for
its status.

Leaving out belongs to ``iterators.guarding``. Nothing of this travels with elements.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import asdict
from itertools import islice
from typing import Any

from zmqdata.iterators.watching import LeftOut

log = logging.getLogger(__name__)

KEPT = 1000
SHOWN = 10


class TaskQuarantine(deque[LeftOut]):
    """The newest elements that one attempt of a task left out, as the ``quarantine`` of
    its context.

    The first, tenth, hundredth and so on are told in the log, the first with its
    traceback, and at the end how many there were: a bad file shall not fill the disk
    with lines.

    Args:
        task: its number.
    """

    def __init__(self, task: int) -> None:
        super().__init__(maxlen=KEPT)
        self.task = task
        self.total = 0
        self._next_told = 1

    def append(self, left_out: LeftOut, /) -> None:
        """Takes one more."""
        super().append(left_out)
        self.total += 1
        if self.total == self._next_told:
            self._tell(left_out)
            self._next_told *= 10

    def _tell(self, left_out: LeftOut) -> None:
        place = (
            "" if left_out.split is None else f" (split {left_out.split[0]} to {left_out.split[1]})"
        )
        element = f"element {left_out.number} of {left_out.node}{place}: {left_out.error}"
        if self.total == 1:
            log.warning(
                "task %s leaves out %s\n%s", self.task, element, left_out.traceback.rstrip()
            )
        else:
            log.warning(
                "task %s has left out %s elements, the newest is %s", self.task, self.total, element
            )

    def end(self) -> None:
        """The pipeline has come to its end."""
        if self.total > 1:
            log.warning("task %s has ended and left out %s elements", self.task, self.total)

    def shown(self) -> dict[str, Any]:
        """The number of them, and the newest, as a JSON-compatible dict. From any
        thread.
        """
        newest = islice(reversed(list(self)), SHOWN)
        return {"left_out": self.total, "quarantine": [_plain(left_out) for left_out in newest]}


def _plain(left_out: LeftOut) -> dict[str, Any]:
    """As a dict, with texts that can be encoded whatever the user's code has put into
    them.
    """
    return {
        name: value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, str)
        else value
        for name, value in asdict(left_out).items()
    }
