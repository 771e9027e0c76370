"""Tasks that are saved: their blocks go to files, chunk by chunk, and no client gets
any.

The worker reports a closed chunk until the dispatcher has committed it. Elements in a
chunk that was not closed when the worker died are produced again by the next host.

Decision 0014; protocol 10.2 and 10.4 to 10.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker import events as e
from zmqdata.core.worker.dealing import Dealing
from zmqdata.core.worker.streams import Portion, Stream, occupied
from zmqdata.core.worker.tasks import HostedTask
from zmqdata.failures.codec import told_by

REPEAT = 1.0
"""Seconds after which an unanswered report is resent."""
FIRST_CHUNK_SECONDS = 5.0
"""Seconds after which the first chunk is closed; later chunks stay open longer."""
MOST_CHUNK_SECONDS = 600.0
"""Maximum number of seconds for which a chunk stays open."""
FLUSH_SECONDS = 1.0
"""Seconds after which elements that a slow pipeline collects for its next block are
written, so that the progress counts them.
"""


class Written:
    """Divides the blocks of a task into chunks for the writer of this worker.

    A chunk is closed when it is large enough, or when it has been open for long, so
    that its elements are committed. The first chunks are short, and later ones longer:
    a save that takes a day must not leave thousands of files.

    Args:
        worker: id of this worker.
        definition: the task.
        chunk_bytes: approximate size at which a chunk is closed.
    """

    def __init__(self, worker: str, definition: m.TaskDefinition, chunk_bytes: int) -> None:
        self.streams: dict[str, Stream] = {}
        self.path = definition.save_path
        self.stream = definition.stream
        self._worker = worker
        self._key = e.TaskKey(definition.task, definition.attempt)
        self._chunk_bytes = chunk_bytes
        self._commands: deque[e.WorkerCommand] = deque()
        self._unwritten = 0
        self._open: int | None = None
        self._stop = 0
        self._size = 0
        self._since: float | None = None
        self._flushed = 0.0
        self._closed = 0
        self._closing: set[int] = set()
        self._told: dict[int, tuple[m.ChunkWritten, float]] = {}
        self._failure: tuple[m.SaveFailed, float] | None = None
        self._ended = False

    # --- the `Dealing` protocol

    @property
    def ahead(self) -> int:
        """Number of bytes that are not in a file yet."""
        return self._unwritten

    def join(self, client: str, reader: m.Reader) -> Stream:
        """Return a stream that never gets a block, because no client reads a saved
        task.
        """
        return Stream(client)

    def add(self, portion: Portion) -> None:
        if self._failure is not None:
            return
        if portion.failure:
            self.fail(portion.failure)
            return
        if self._open is None:
            self._open, self._size, self._since = portion.first, 0, None
        self._commands.append(
            e.WriteBlock(*self._key, self._open, portion.size, portion.meta, portion.frames)
        )
        self._unwritten += occupied(portion.size)
        self._size += portion.size
        self._stop = portion.first + portion.count
        if self._size >= self._chunk_bytes:
            self._close()

    def deal(self, usable: Callable[[Stream], bool]) -> Iterator[tuple[Stream, Portion]]:
        return iter(())

    def has_all(self, stream: Stream) -> bool:
        return True

    def release(self, client: str, delivered: RangeSet) -> bool:
        return True

    # --- saving

    @property
    def completed(self) -> bool:
        """True if everything that the task produces is in chunks on disk."""
        return self._ended and self._failure is None and self._open is None and not self._closing

    def drain(self) -> list[e.WorkerCommand]:
        """Return the commands that have accumulated since the last call."""
        commands = list(self._commands)
        self._commands.clear()
        return commands

    def end(self) -> None:
        """Record that the task produces no more, and close the open chunk."""
        self._ended = True
        self._close()

    def fail(self, failure: bytes) -> None:
        """Fail the save, because an element or the whole task cannot be produced."""
        error, text = told_by(failure)
        self._fail(error, text, failure)

    def _close(self) -> None:
        if self._open is not None:
            self._commands.append(e.CloseChunk(*self._key, self._open, self._stop))
            self._closing.add(self._open)
            self._open = None
            self._closed += 1

    def tick(self, now: float) -> None:
        """Close a chunk that has been open for long, and resend unanswered reports."""
        for first, (message, since) in self._told.items():
            if now - since >= REPEAT:
                self._told[first] = (message, now)
                self._commands.append(e.Send(e.DISPATCHER, message))
        if self._failure is not None and now - self._failure[1] >= REPEAT:
            self._failure = (self._failure[0], now)
            self._commands.append(e.Send(e.DISPATCHER, self._failure[0]))
        self._watch_age(now)

    def _watch_age(self, now: float) -> None:
        if self._ended or self._failure is not None:
            return
        if self._since is None:
            self._since = self._flushed = now
        if now - self._flushed >= FLUSH_SECONDS:
            self._flushed = now
            self._commands.append(e.FlushTask(*self._key))
        if now - self._since < min(FIRST_CHUNK_SECONDS * (1 + self._closed), MOST_CHUNK_SECONDS):
            return
        self._since = now
        self._close()

    def apply(self, event: e.BlockWritten | e.ChunkClosed | e.WriteFailed, now: float) -> None:
        """Apply an event of the writer."""
        if isinstance(event, e.BlockWritten):
            self._unwritten -= occupied(event.size)
        elif isinstance(event, e.WriteFailed):
            self._fail(event.error, event.text, b"")
        elif event.chunk in self._closing:
            self._closing.discard(event.chunk)
            told = m.ChunkWritten(
                self._worker, *self._key, event.chunk, event.stop, event.size, event.spec
            )
            self._told[event.chunk] = (told, now)
            self._commands.append(e.Send(e.DISPATCHER, told))

    def forget_committed(self, stop: int) -> None:
        """Forget chunks that are committed."""
        self._told = {first: told for first, told in self._told.items() if told[0].stop > stop}

    def _fail(self, error: str, text: str, failure: bytes) -> None:
        if self._failure is None:
            # Sent at the next tick, and resent until the dispatcher drops the task.
            self._failure = (m.SaveFailed(self._worker, *self._key, error, text, failure), -REPEAT)


SAVED_KEPT = 10_000
"""Maximum number of finished streams that the worker remembers."""


class Writing:
    """Dispatches events and messages about chunks to the tasks that are saved. It
    ignores tasks that are sent to clients.

    Args:
        worker: id of this worker.
        chunk_bytes: approximate size of a chunk.
        find: returns the task of an event or message, or None if this worker does not
            host that attempt.
        distribute: carries out the commands of a task.

    Attributes:
        saved: for each stream written here before, by path and number, True if it is
            complete.
    """

    def __init__(
        self,
        worker: str,
        chunk_bytes: int,
        find: Callable[[e.OfTask], HostedTask | None],
        distribute: Callable[[HostedTask], None],
    ) -> None:
        self.saved: dict[tuple[str, int], bool] = {}
        self._worker = worker
        self.chunk_bytes = chunk_bytes
        self._find = find
        self._distribute = distribute
        self.events = e.Handlers()
        self.events.on(e.BlockWritten, self._apply)
        self.events.on(e.ChunkClosed, self._apply)
        self.events.on(e.WriteFailed, self._apply)
        self.messages = e.PeerHandlers()
        self.messages.on(m.ChunkCommitted, self._committed)

    def dealing_of(self, definition: m.TaskDefinition) -> Written | None:
        """Return the dealing of a task that is saved; None for a task that clients
        read.
        """
        return Written(self._worker, definition, self.chunk_bytes) if definition.save_path else None

    def _apply(self, event: e.BlockWritten | e.ChunkClosed | e.WriteFailed, now: float) -> None:
        task = self._find(event)
        if task is not None and isinstance(task.dealing, Written):
            task.dealing.apply(event, now)
            self._distribute(task)

    def _committed(self, peer: e.Peer, message: m.ChunkCommitted, now: float) -> None:
        task = self._find(message)
        if task is not None and isinstance(task.dealing, Written):
            task.dealing.forget_committed(message.stop)

    def tick(self, tasks: Iterable[HostedTask], now: float) -> None:
        """Close chunks that are old, and resend unanswered reports."""
        for task in tasks:
            if task.started and isinstance(task.dealing, Written):
                task.dealing.tick(now)
                self._distribute(task)

    def end(self, dealing: Dealing) -> None:
        """Record that a task produces no more."""
        if isinstance(dealing, Written):
            dealing.end()

    def fail(self, dealing: Dealing, failure: bytes) -> None:
        """Record that a task cannot run."""
        if isinstance(dealing, Written):
            dealing.fail(failure)

    def drain(self, dealing: Dealing) -> list[e.WorkerCommand]:
        """Return the commands that a task has for its chunks."""
        return dealing.drain() if isinstance(dealing, Written) else []

    def forget(self, dealing: Dealing) -> None:
        """Record whether a task that leaves this worker is completely saved."""
        if isinstance(dealing, Written):
            self.saved[dealing.path, dealing.stream] = dealing.completed
            if len(self.saved) > SAVED_KEPT:
                del self.saved[next(iter(self.saved))]
