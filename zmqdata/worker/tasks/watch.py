"""The ``Watch`` of a task's pipeline: it records what an attempt is working on, and
holds what it must skip.
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
"""Seconds after which other tasks no longer wait for a suspect's call, because it may
be stuck.
"""


class TurnToken:
    """A token with which a call leaves the turn."""


class Turn:
    """The right of a task of this process to process a suspect element. Only one task
    has it at a time, so that a death identifies the suspect.

    Attributes:
        owner: the task that has the turn; None if it is free.
    """

    def __init__(self) -> None:
        self.owner: TaskWatch | None = None
        self._call: TurnToken | None = None
        self._free = threading.Condition()

    def take(self, owner: TaskWatch) -> TurnToken:
        """Wait for the turn, up to ``PATIENCE`` seconds. Return the token with which to
        leave it.
        """
        with self._free:
            self._free.wait_for(lambda: self.owner is None, PATIENCE)
            self.owner, self._call = owner, (call := TurnToken())
            return call

    def leave(self, call: TurnToken) -> None:
        """End a call. Do nothing if the turn was passed on meanwhile."""
        with self._free:
            if self._call is call:
                self.owner = self._call = None
                self._free.notify()

    def take_from(self, owner: TaskWatch) -> None:
        """Free the turn of a task that is no longer wanted. Its call may never end."""
        with self._free:
            if self.owner is owner:
                self.owner = self._call = None
                self._free.notify()


TURN = Turn()


class TaskWatch:
    """The notes of one attempt.

    Args:
        file: shared memory for the notes.
        definition: the task, which lists the poisoned elements.
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
            # Infinity is allowed, so the limit is clamped before it becomes an int.
            file.limit(self._base, int(min(max(1, definition.task_timeout * 1000), 1 << 62)))
        self.cells[self.at] = OPENING

    def open(self, place: str, label: str, skippable: bool) -> WatchSlot:
        """Return a slot for a thread at a node."""
        base = self._file.open(self._key, place, label, skippable=skippable)
        cells, at = self._file.cell(base)
        return WatchSlot(cells, at)

    def close(self, slot: WatchSlot) -> None:
        """Release a slot."""
        if slot.cells is self._file.cells:
            self._file.close(slot.at - crumbs.NUMBER)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the turn while the function is called for a suspect."""
        self.wait(1)
        call = TURN.take(self)
        self.wait(-1)
        try:
            yield
        finally:
            TURN.leave(call)

    def abandon(self) -> None:
        """Free the turn, because the attempt is no longer wanted and may be stuck."""
        TURN.take_from(self)

    def failed(self, error: BaseException) -> None:
        """Handle an error raised by the watched code. If memory is limited, a lack of
        it ends the process.
        """
        if is_starvation(error):
            self._file.starve()

    def note(self, number: int) -> None:
        """Record that the pipeline now works on element ``number`` of the task."""
        self.cells[self.at] = number

    def rest(self) -> None:
        """Record that the pipeline is idle."""
        self.cells[self.at] = crumbs.IDLE

    def end(self) -> None:
        """Release the slot of the task, because the task is over."""
        self._file.close(self._base)
        self._base = -1
        self.cells, self.at = self._file.cell(-1)

    def wait(self, step: int) -> None:
        """Add ``step`` to the number of sources that wait for splits."""
        if self._base >= 0:
            with self._lock:
                self.cells[self._base + crumbs.WAITING] += step

    def begin(self, split: Split) -> None:
        """Record that a source has begun a split."""
        if self._base >= 0:
            self.cells[self._base + crumbs.FIRST], self.cells[self._base + crumbs.STOP] = (
                split.start,
                split.stop,
            )


class WatchedProvider:
    """A split provider that reports waits and splits to the watch.

    Args:
        provider: provides the splits.
        watch: receives the reports.
    """

    def __init__(self, provider: SplitProvider, watch: TaskWatch) -> None:
        self._provider, self._watch = provider, watch
        self.reset, self.state, self.restore = provider.reset, provider.state, provider.restore

    def next_split(self) -> Split | None:
        """Return the next split; None at the end of this repetition."""
        self._watch.wait(1)
        try:
            split = self._provider.next_split()
        finally:
            self._watch.wait(-1)
        if split is not None:
            self._watch.begin(split)
        return split
