"""The elements that operations of an iterator left out, for ``iterator.quarantine``."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from zmqdata.decisions import LEFT_OUT_KEPT, LEFT_OUT_REMEMBERED

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeftOut:
    """Element that an operation left out, in ``iterator.quarantine``."""

    number: int
    """Number of the element among the elements that came to this operation, from 0."""
    node: str
    """The operation, and the line of the user's code that made it."""
    error: str
    """Class and text of the exception, or the statement that the element killed its
    process.
    """
    traceback: str
    """Traceback as Python prints it; empty without an exception."""
    split: tuple[int, int] | None = None
    """First and last index (exclusive) of the split that the element came from, where a
    service assigns splits; of a batch, the split of its last row.

    None behind operations that hold elements back or run ahead (shuffle, interleave,
    prefetch, a parallel map, windows and groups, a cache) or read several sources at a
    time.
    """
    place: str = ""
    """The operation's place in the pipeline, with the repetition and the element that a
    nested dataset was made from, in each of which numbers begin anew. Behind a service
    it begins with the number of the task.
    """


class Quarantine(deque[LeftOut]):
    """The newest elements that were left out, each once.

    An operation may leave an element out again when it is replayed: after a state was
    loaded, or when another worker continues a task.

    Attributes:
        total: number of elements that were left out.
    """

    def __init__(self) -> None:
        super().__init__(maxlen=LEFT_OUT_KEPT)
        self.total = 0
        self._known: dict[tuple[str, int], None] = {}  # a set that knows the oldest

    def append(self, left_out: LeftOut, /) -> None:
        """Add an element unless it was added before."""
        if left_out.place:
            key = left_out.place, left_out.number
            if key in self._known:
                return
            self._known[key] = None
            if len(self._known) > LEFT_OUT_REMEMBERED:
                self._known.pop(next(iter(self._known)), None)
        self.total += 1
        super().append(left_out)
        if self.total == LEFT_OUT_KEPT + 1:
            self._tell_of_limit()

    def extend(self, left_out: Iterable[LeftOut], /) -> None:
        """Add elements, such as those of a state."""
        for one in left_out:
            self.append(one)

    def _tell_of_limit(self) -> None:
        log.warning(
            "more than %s elements were left out; `iterator.quarantine` lists the newest %s only",
            f"{LEFT_OUT_KEPT:,}",
            f"{LEFT_OUT_KEPT:,}",
        )
