"""Interface of a watched pipeline: slots that record the number of the element that a
user's function is processing.

The records outlive a process that dies. The watch decides where to keep them;
``callsites`` writes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableSequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

IDLE = -1
"""Stands for "no call" in place of an element's number."""


class WatchSlot(NamedTuple):
    """Cell where a thread records the number of the element that it is processing:
    ``cells[at]``.
    """

    cells: MutableSequence[int] | memoryview
    """Cells shared by several slots."""
    at: int
    """Index of the slot's cell."""


class Watch(Protocol):
    """Keeps the records of a task's pipeline."""

    @property
    def poisoned(self) -> Mapping[str, Collection[int]]:
        """Numbers of the elements that killed their process, by the place of their
        node.
        """

    @property
    def is_trying(self) -> bool:
        """True while the task has suspects, one of which may have caused the death of
        its process. The process runs nothing but this task then.
        """

    def open(self, place: str, label: str, skippable: bool) -> WatchSlot:
        """Return a slot for a thread at a node."""

    def close(self, slot: WatchSlot) -> None:
        """Release a slot for other uses."""

    def trying(
        self, place: str, label: str, skippable: bool, number: int
    ) -> AbstractContextManager[object]:
        """Return a context manager to hold during each call while ``is_trying``. No
        call runs beside that for a suspect.
        """

    def failed(self, error: BaseException) -> None:
        """Record the error that a call raised, while its element is recorded. It may
        end the process if memory ran out.
        """
