"""What one attempt of a task notes of its work, and what it is told to leave out: the
``Watch`` of its pipeline.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from zmqdata.iterators.watching import WatchSlot
from zmqdata.messages import OPENING, TaskDefinition
from zmqdata.splits import Split, SplitProvider
from zmqdata.worker.processes import crumbs
from zmqdata.worker.processes.crumbs import CrumbFile
from zmqdata.worker.processes.limits import is_starvation

PATIENCE = 60.0
"""Seconds after which a suspect is not waited for any more: it may be stuck."""


class Turn:
    """Which task of this process is at a suspect: one at a time, so that a death tells
    which one it was.

    ``owner`` is the one that has the turn.
    """

    def __init__(self) -> None:
        self.owner: object = None
        self._call: object = None
        self._free = threading.Condition()

    def take(self, owner: object) -> object:
        """Waits for the turn, though not for ever; returns what to leave it with."""
        with self._free:
            self._free.wait_for(lambda: self.owner is None, PATIENCE)
            self.owner, self._call = owner, object()
            return self._call

    def leave(self, call: object) -> None:
        """The call is over. One that was not waited for any more has no turn to
        leave.
        """
        with self._free:
            if self._call is call:
                self.owner = self._call = None
                self._free.notify()

    def take_from(self, owner: object) -> None:
        """A task is not wanted any more: nobody waits for its call, which may never
        end.
        """
        with self._free:
            if self.owner is owner:
                self.owner = self._call = None
                self._free.notify()


TURN = Turn()


class TaskWatch:
    """Notes for one attempt.

    Args:
        file: where.
        definition: the task, which says what is poison.
    """

    def __init__(self, file: CrumbFile, definition: TaskDefinition) -> None:
        self._file = file
        self._key = (definition.task, definition.attempt)
        self.poisoned: dict[str, set[int]] = {}
        self.suspects: dict[str, set[int]] = {}
        for places, by_node in (
            (definition.poisoned, self.poisoned),
            (definition.suspects, self.suspects),
        ):
            for node, number in places:
                by_node.setdefault(node, set()).add(number)
        self._base = file.open(self._key)
        self.cells, self.at = file.cell(self._base)
        self._lock = threading.Lock()
        if definition.task_timeout is not None:
            # Infinity is a time, too: it is bounded while it is a float.
            file.limit(self._base, int(min(max(1, definition.task_timeout * 1000), 1 << 62)))
        self.cells[self.at] = OPENING

    def open(self, place: str, label: str, skippable: bool) -> WatchSlot:
        """A slot for one thread at one node."""
        return WatchSlot(
            *self._file.cell(self._file.open(self._key, place, label, skippable=skippable))
        )

    def close(self, slot: WatchSlot) -> None:
        """Gives a slot back."""
        if slot.cells is self._file.cells:
            self._file.close(slot.at - crumbs.NUMBER)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Held while a suspect is called for."""
        self.wait(1)
        call = TURN.take(self)
        self.wait(-1)
        try:
            yield
        finally:
            TURN.leave(call)

    def abandon(self) -> None:
        """The attempt is not wanted any more, and may be stuck."""
        TURN.take_from(self)

    def failed(self, error: BaseException) -> None:
        """Something has been raised by what is noted. Where memory is limited, a lack
        of it ends the process.
        """
        if is_starvation(error):
            self._file.starve()

    def note(self, number: int) -> None:
        """What goes on now is for element ``number`` of the task."""
        self.cells[self.at] = number

    def rest(self) -> None:
        """The pipeline is at nothing."""
        self.cells[self.at] = crumbs.IDLE

    def end(self) -> None:
        """The task is over."""
        self._file.close(self._base)
        self._base = -1
        self.cells, self.at = self._file.cell(-1)

    def wait(self, step: int) -> None:
        """One source more, or less, waits for splits."""
        if self._base >= 0:
            with self._lock:
                self.cells[self._base + crumbs.WAITING] += step

    def begin(self, split: Split) -> None:
        """A source has begun a split."""
        if self._base >= 0:
            self.cells[self._base + crumbs.FIRST], self.cells[self._base + crumbs.STOP] = (
                split.start,
                split.stop,
            )


class WatchedProvider:
    """A split provider that tells the watch of waits and of splits.

    Args:
        provider: where the splits come from.
        watch: whom to tell.
    """

    def __init__(self, provider: SplitProvider, watch: TaskWatch) -> None:
        self._provider, self._watch = provider, watch
        self.reset, self.state, self.restore = provider.reset, provider.state, provider.restore

    def next_split(self) -> Split | None:
        """The next one; None at the end of this repetition."""
        self._watch.wait(1)
        try:
            split = self._provider.next_split()
        finally:
            self._watch.wait(-1)
        if split is not None:
            self._watch.begin(split)
        return split
