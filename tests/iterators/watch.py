"""A watch for tests, which records every note."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from zmqdata.iterators.watch import IDLE, WatchSlot


class Cells(list[int]):
    """A single cell, and every value written to it."""

    def __init__(self, notes: list[int]) -> None:
        super().__init__([IDLE])
        self.notes = notes

    def __setitem__(self, at: Any, number: Any) -> None:
        super().__setitem__(at, number)
        if number != IDLE:
            self.notes.append(number)


class RecordingWatch:
    """Notes by place of the node. ``slots`` are those in use, and ``failures`` hold
    exceptions with the numbers noted then.
    """

    def __init__(
        self,
        poisoned: Mapping[str, Collection[int]] = {},
        suspects: Mapping[str, Collection[int]] = {},
    ) -> None:
        self.poisoned = poisoned
        self.suspects = suspects
        self.notes: dict[str, list[int]] = {}
        self.skippable: dict[str, bool] = {}
        self.slots: list[WatchSlot] = []
        self.failures: list[tuple[BaseException, list[int]]] = []
        self.entered = 0
        self._lock = threading.Lock()

    def open(self, place: str, label: str, skippable: bool) -> WatchSlot:
        self.skippable[place] = skippable
        slot = WatchSlot(Cells(self.notes.setdefault(place, [])), 0)
        self.slots.append(slot)
        return slot

    def close(self, slot: WatchSlot) -> None:
        self.slots = [one for one in self.slots if one is not slot]

    @property
    def is_trying(self) -> bool:
        return bool(self.suspects)

    def trying(
        self, place: str, label: str, skippable: bool, number: int
    ) -> AbstractContextManager[object]:
        return self._alone() if number in self.suspects.get(place, ()) else nullcontext()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            self.entered += 1
            yield

    def failed(self, error: BaseException) -> None:
        noted = [slot.cells[slot.at] for slot in self.slots]
        self.failures.append((error, [number for number in noted if number != IDLE]))
