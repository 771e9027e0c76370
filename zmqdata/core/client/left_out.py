"""The elements that workers left out, as a client hears of them: listed in the
quarantine of the iterator, and counted.

Decision 0028; protocol 7.11.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqdata import messages as m
from zmqdata.core.client import events as e

REMEMBERED = 100_000
"""Number of elements left out that are recognized when another host of their task
reports them again.
"""
LISTED = 1_000
"""Number of elements that the quarantine of an iterator lists."""

Where = tuple[int, str, int]
"""An element that was left out: number of the task, place of the operation, number of
the element there.
"""


class LeftOutElements:
    """Lists and counts what workers left out of an iteration.

    Args:
        job: name of the job that the client reads.
        do: receives the resulting commands.

    Attributes:
        of_task: number of elements that each ended task has left out.
    """

    def __init__(self, job: str, do: Callable[[e.ClientCommand], None]) -> None:
        self._job = job
        self._do = do
        self._listed: dict[Where, None] = {}  # a set that knows the oldest
        self._num_listed = self._num_poison = 0
        self.of_task: dict[int, int] = {}

    def take_poison(self, elements: tuple[m.LeftOutElement, ...]) -> None:
        """Take all elements that workers skip because they end their process."""
        for element in elements:
            self._num_poison += self._list(element)

    def take(self, elements: tuple[m.LeftOutElement, ...]) -> None:
        """Take elements that the pipeline of a task has left out. Another host of the
        task may report them again.
        """
        for element in elements:
            self._list(element)

    def _list(self, element: m.LeftOutElement) -> bool:
        """List an element in the quarantine. Return False if it was listed before."""
        where = (element.index, element.place, element.number)
        if where in self._listed:
            return False
        self._listed[where] = None
        if len(self._listed) > REMEMBERED:
            del self._listed[next(iter(self._listed))]
        self._num_listed += 1
        self._do(e.NoteLeftOut(element))
        return True

    def tell_all(self, repetition: int) -> None:
        """Log, at the end of a repetition, how many elements are missing because the
        pipeline skips failing elements.
        """
        # A task counts from its last host on.
        missing, self.of_task = sum(self.of_task.values()), {}
        missing, self._num_listed = max(missing, self._num_listed), 0
        if missing:
            which = f"the newest {LISTED:,} of them" if missing > LISTED else "them"
            text = (
                f"job {self._job!r}, repetition {repetition}, ended without "
                f"{missing:,} elements that workers could not produce. They were "
                f"skipped because {self._reason(missing)}. `iterator.quarantine` "
                f"lists {which}, with the reasons"
            )
            self._do(e.LogLine("warning", text))

    def _reason(self, missing: int) -> str:
        """Return the reason why elements are missing.

        Only elements that end a worker's process are known individually. In copies of
        the input, the same element may be skipped several times.
        """
        poison = self._num_poison
        if not poison:
            return "the pipeline asks for it (on_error='skip')"
        others = "" if missing <= poison else " or the pipeline (on_error='skip')"
        return (
            f"the job (on_poison='skip'){others} asks for it; {poison} of them end "
            "their worker's process and are listed in the iterator's quarantine"
        )
