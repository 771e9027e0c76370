"""The ``Watch`` of a task's pipeline: it records what an attempt is working on, and
holds what it must skip.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from time import sleep as pause

from zmqdata.iterators.watch import WatchSlot
from zmqdata.messages import OPENING, Place, TaskDefinition
from zmqdata.splits import Split, SplitProvider
from zmqdata.worker.processes.limits import is_starvation
from zmqdata.worker.processes.watch import FIRST, IDLE, NUMBER, STOP, WAITING, WatchFile

PATIENCE = 600.0
"""Seconds for which a call waits for others, as long as a trial lasts for a call. They
may be stuck, or wait for this call. The task waits for nothing after that.
"""
SETTLE = 3.0
"""Seconds in which the process waits for a late end, over all suspects."""
LONGEST_SETTLE = 0.25
"""Maximum of these seconds for one suspect."""
BEYOND = 64
"""Number of elements after a suspect whose calls show that it will not be called for
again.
"""


class SuspectCalls:
    """The calls of a task with suspects. The call for a suspect runs alone, and the
    process then waits for an end that comes late: the system takes a while to end a
    process, and a thread that the function has begun may crash after it.

    Args:
        suspects: the suspects.

    Attributes:
        left: the suspects that were not made yet.
    """

    def __init__(self, suspects: Collection[Place]) -> None:
        self.left = set(suspects)
        self._suspects, self._patience = frozenset(suspects), PATIENCE
        self._settle = min(LONGEST_SETTLE, SETTLE / max(1, len(self.left)))
        self._calling: set[int] = set()
        self._is_alone = self._is_settled = False
        self._changed = threading.Condition()

    def is_suspect(self, place: str, number: int) -> bool:
        """Return True if the call for an element must run alone."""
        return (place, number) in self._suspects

    def enter(self, alone: bool) -> bool:
        """Wait until a call may begin. Return False for a call within a call."""
        thread = threading.get_ident()
        with self._changed:
            if thread in self._calling:
                return False
            self._await(lambda: not self._is_alone)
            if alone:
                self._is_alone = True
                self._await(lambda: not self._calling)
            self._calling.add(thread)
        if alone and not self._is_settled:
            # Else this call would be blamed for what an earlier call has caused.
            pause(self._settle)
        return True

    def _await(self, condition: Callable[[], bool]) -> None:
        if not self._changed.wait_for(condition, self._patience):
            self._patience = 0.0

    def leave(self, place: str, number: int, alone: bool) -> None:
        """End a call. After that of a suspect, wait for a late end."""
        if alone:
            pause(self._settle)
        with self._changed:
            self._is_settled = alone
            self._calling.discard(threading.get_ident())
            self._is_alone = self._is_alone and not alone
            self.left.discard((place, number))
            if not alone:
                self.left = {
                    one for one in self.left if one[0] != place or one[1] > number - BEYOND
                }
            self._changed.notify_all()


class TaskWatch:
    """The notes of one attempt.

    Args:
        file: shared memory for the notes.
        definition: the task, which lists the poisoned elements.
    """

    def __init__(self, file: WatchFile, definition: TaskDefinition) -> None:
        self._file = file
        self._key = (definition.task, definition.attempt)
        self.poisoned: dict[str, set[int]] = {}
        for node, number in definition.poisoned:
            self.poisoned.setdefault(node, set()).add(number)
        self._calls = SuspectCalls(definition.suspects)
        self._base = file.open(self._key)
        self.cells, self.at = file.cell(self._base)
        self._lock = threading.Lock()
        if definition.job.task_timeout is not None:
            # Infinity is allowed, so the limit is clamped before it becomes an int.
            file.limit(self._base, int(min(max(1, definition.job.task_timeout * 1000), 1 << 62)))
        self.cells[self.at] = OPENING

    def open(self, place: str, label: str, skippable: bool) -> WatchSlot:
        """Return a slot for a thread at a node."""
        base = self._file.open(self._key, place, label, skippable=skippable)
        cells, at = self._file.cell(base)
        return WatchSlot(cells, at)

    def close(self, slot: WatchSlot) -> None:
        """Release a slot."""
        if slot.cells is self._file.cells:
            self._file.close(slot.at - NUMBER)

    @property
    def is_trying(self) -> bool:
        """True if the task has suspects that were not made yet."""
        return bool(self._calls.left)

    @contextmanager
    def trying(self, place: str, label: str, skippable: bool, number: int) -> Iterator[None]:
        """Make a call of a task with suspects. A suspect is recorded until no late end
        is to be expected.
        """
        calls, alone = self._calls, self._calls.is_suspect(place, number)
        self.wait(1)
        is_outer = calls.enter(alone)
        self.wait(-1)
        slot = self.open(place, label, skippable) if alone else None
        if slot is not None:
            slot.cells[slot.at] = number
        try:
            yield
        finally:
            if is_outer:
                calls.leave(place, number, alone)
            if slot is not None:
                self.close(slot)

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
        self.cells[self.at] = IDLE

    def end(self) -> None:
        """Release the slot of the task, because the task is over."""
        self._file.close(self._base)
        self._base = -1
        self.cells, self.at = self._file.cell(-1)

    def wait(self, step: int) -> None:
        """Add ``step`` to the number of sources that wait for splits."""
        if self._base >= 0:
            with self._lock:
                self.cells[self._base + WAITING] += step

    def begin(self, split: Split) -> None:
        """Record that a source has begun a split."""
        if self._base >= 0:
            self.cells[self._base + FIRST], self.cells[self._base + STOP] = (
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
