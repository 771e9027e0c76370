"""Tasks of a worker that are saved: the part of the worker core that knows that there are such tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata.commands import saves as s
from zmqdata.core.worker.dealing import Dealing
from zmqdata.core.worker.saving import Written

SAVED_KEPT = 10_000


class Hosted(Protocol):
    """A task that this worker hosts."""

    dealing: Dealing
    started: bool


class Writing:
    """Brings what concerns chunks to the tasks that it is for. Tasks that are sent to clients are left alone.

    Args:
        worker: who we are.
        chunk_bytes: about the size of a chunk.
        find: the task that an event or message is for, if it is here under that attempt.
        distribute: carries out what a task has decided.

    Attributes:
        saved: the streams that were written here before, by path and number, and whether they are complete.
    """

    def __init__(
        self, worker: str, chunk_bytes: int, find: Callable[[Any], Any], distribute: Callable[[Any], None]
    ) -> None:
        self.saved: dict[tuple[str, int], bool] = {}
        self._worker = worker
        self.chunk_bytes = chunk_bytes
        self._find = find
        self._distribute = distribute
        self.events: dict[type[Any], Callable[[Any, float], None]] = dict.fromkeys(
            (s.BlockWritten, s.ChunkClosed, s.WriteFailed), self._take
        )
        self.messages: dict[type[m.Message], Callable[[c.Peer, Any, float], None]] = {m.ChunkCommitted: self._committed}

    def dealing_of(self, definition: m.TaskDefinition) -> Written | None:
        """How a task is dealt that is saved; None for one that is read."""
        return Written(self._worker, definition, self.chunk_bytes) if definition.save_path else None

    def _take(self, event: Any, now: float) -> None:
        task = self._find(event)
        if task is not None and isinstance(task.dealing, Written):
            task.dealing.take(event, now)
            self._distribute(task)

    def _committed(self, peer: c.Peer, message: m.ChunkCommitted, now: float) -> None:
        task = self._find(message)
        if task is not None and isinstance(task.dealing, Written):
            task.dealing.committed(message.stop)

    def tick(self, tasks: Iterable[Hosted], now: float) -> None:
        """Closes chunks that are old, and tells again what was not answered."""
        for task in tasks:
            if task.started and isinstance(task.dealing, Written):
                task.dealing.tick(now)
                self._distribute(task)

    def end(self, dealing: Dealing) -> None:
        """A task makes no more."""
        if isinstance(dealing, Written):
            dealing.end()

    def fail(self, dealing: Dealing, failure: bytes) -> None:
        """A task can not be run."""
        if isinstance(dealing, Written):
            dealing.fail(failure)

    def drain(self, dealing: Dealing) -> list[object]:
        """What a task wants done with its chunks."""
        return dealing.drain() if isinstance(dealing, Written) else []

    def forget(self, dealing: Dealing) -> None:
        """A task is not here any more; what became of it is kept for those who ask."""
        if isinstance(dealing, Written):
            self.saved[dealing.path, dealing.stream] = dealing.completed
            if len(self.saved) > SAVED_KEPT:
                del self.saved[next(iter(self.saved))]
