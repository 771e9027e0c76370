"""The elements that operations of an iterator left out, for ``iterator.quarantine``."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from zmqdata.decisions import LEFT_OUT_KEPT, LEFT_OUT_REMEMBERED
from zmqdata.iterators.watch import LeftOut

log = logging.getLogger(__name__)


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
