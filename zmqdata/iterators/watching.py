"""What a pipeline that is watched has: slots to note the number of the element at which
a user's function is.

A process that dies leaves the notes behind. Where they are kept is the watch's affair,
noting that of ``callsites``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableSequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

IDLE = -1
"""In place of an element's number: no call."""


@dataclass(frozen=True)
class LeftOut:
    """An element that an operation left out, in ``iterator.quarantine``.

    Attributes:
        number: of the element among those that came to this operation, from 0.
        node: the operation, and the place in the user's code that made it.
        error: the exception's class and text, or that it killed its process.
        traceback: as Python prints it; empty where there was no exception.
        split: first and last index (exclusive) of the split that it came from, where a
            service hands out splits; of a batch, that of its last row. None behind
            operations that hold elements back or run ahead (shuffle, interleave,
            prefetch, a parallel map, windows and groups, a cache) or read several
            sources at a time.
    """

    number: int
    node: str
    error: str
    traceback: str
    split: tuple[int, int] | None = None


class WatchSlot(NamedTuple):
    """Where one thread notes the number of the element that it is at: ``cells[at]``."""

    cells: MutableSequence[int] | memoryview
    at: int


class Watch(Protocol):
    """What keeps the notes of a task's pipeline."""

    @property
    def poisoned(self) -> Mapping[str, Collection[int]]:
        """The numbers of elements that killed their process, by the place of the node
        that they came to.
        """

    @property
    def suspects(self) -> Mapping[str, Collection[int]]:
        """Those at which a process died, and which may be to blame."""

    def open(self, place: str, label: str, skippable: bool) -> WatchSlot:
        """A slot for one thread at one node."""

    def close(self, slot: WatchSlot) -> None:
        """The slot may be used for something else."""

    def alone(self) -> AbstractContextManager[object]:
        """Held while a suspect is called for, so that no two are called for at a
        time.
        """

    def failed(self, error: BaseException) -> None:
        """Hears what a call has raised, while its element is noted. It may end the
        process for a lack of memory.
        """
