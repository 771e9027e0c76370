"""How a task is dealt that is saved: to nobody. What it makes goes to files, chunk by
chunk, and the dispatcher hears.

A chunk that is closed is told until the dispatcher has committed it. What the worker
had not closed when it dies is made again by the next host.

Tasks of a worker that are saved: the part of the worker core that knows that there are
such tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker import events as e
from zmqdata.core.worker.dealing import Dealing
from zmqdata.core.worker.streams import Portion, Stream
from zmqdata.core.worker.tasks import HostedTask
from zmqdata.failures.codec import told_by

REPEAT = 1.0
FIRST_CHUNK_SECONDS = 5.0
MOST_CHUNK_SECONDS = 600.0


class Written:
    """Cuts the blocks of a task into chunks for the writer of this worker.

    A chunk is closed when it is large enough or, so that it counts, when it has been
    open for long. The first chunks are short, later ones longer: a save of a day shall
    not leave thousands of files.

    Args:
        worker: who we are.
        definition: the task.
        chunk_bytes: about the size at which a chunk is closed.
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
        self._closed = 0
        self._closing: set[int] = set()
        self._told: dict[int, tuple[m.ChunkWritten, float]] = {}
        self._failure: tuple[m.SaveFailed, float] | None = None
        self._ended = False

    # --- as every way of dealing

    @property
    def ahead(self) -> int:
        """Bytes that are not in a file yet."""
        return self._unwritten

    def join(self, client: str, reader: m.Reader) -> Stream:
        """A stream on which nothing ever comes: nobody reads what is saved."""
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
        self._unwritten += portion.size
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

    # --- as this one alone

    @property
    def completed(self) -> bool:
        """Whether all that the task makes is in chunks that are on the disk."""
        return self._ended and self._failure is None and self._open is None and not self._closing

    def drain(self) -> list[e.WorkerCommand]:
        """What is to be done because of what was taken since the last time."""
        commands = list(self._commands)
        self._commands.clear()
        return commands

    def end(self) -> None:
        """The task makes no more."""
        self._ended = True
        self._close()

    def fail(self, failure: bytes) -> None:
        """An element, or all of the task, can not be made: the save fails."""
        error, text = told_by(failure)
        self._fail(error, text, failure)

    def _close(self) -> None:
        if self._open is not None:
            self._commands.append(e.CloseChunk(*self._key, self._open, self._stop))
            self._closing.add(self._open)
            self._open = None
            self._closed += 1

    def tick(self, now: float) -> None:
        """Closes a chunk that has been open for long, and tells again what was not
        answered.
        """
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
            self._since = now
        if now - self._since < min(FIRST_CHUNK_SECONDS * (1 + self._closed), MOST_CHUNK_SECONDS):
            return
        self._since = now
        self._close()
        # What a slow pipeline has collected for its next block shall be in the chunk
        # after this one at the latest.
        self._commands.append(e.FlushTask(*self._key))

    def take(self, event: e.BlockWritten | e.ChunkClosed | e.WriteFailed, now: float) -> None:
        """Takes what the writer has to say."""
        if isinstance(event, e.BlockWritten):
            self._unwritten -= event.size
        elif isinstance(event, e.WriteFailed):
            self._fail(event.error, event.text, b"")
        elif event.chunk in self._closing:
            self._closing.discard(event.chunk)
            told = m.ChunkWritten(
                self._worker, *self._key, event.chunk, event.stop, event.size, event.spec
            )
            self._told[event.chunk] = (told, now)
            self._commands.append(e.Send(e.DISPATCHER, told))

    def committed(self, stop: int) -> None:
        """Forgets chunks that count."""
        self._told = {first: told for first, told in self._told.items() if told[0].stop > stop}

    def _fail(self, error: str, text: str, failure: bytes) -> None:
        if self._failure is None:
            # Told at the next tick, and behind it until the task is taken away.
            self._failure = (m.SaveFailed(self._worker, *self._key, error, text, failure), -REPEAT)


SAVED_KEPT = 10_000


class Writing:
    """Brings what concerns chunks to the tasks that it is for. Tasks that are sent to
    clients are left alone.

    Args:
        worker: who we are.
        chunk_bytes: about the size of a chunk.
        find: the task that an event or message is for, if it is here under that
            attempt.
        distribute: carries out what a task has decided.

    Attributes:
        saved: the streams that were written here before, by path and number, and
            whether they are complete.
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
        self.events.on(e.BlockWritten, self._take)
        self.events.on(e.ChunkClosed, self._take)
        self.events.on(e.WriteFailed, self._take)
        self.messages = e.PeerHandlers()
        self.messages.on(m.ChunkCommitted, self._committed)

    def dealing_of(self, definition: m.TaskDefinition) -> Written | None:
        """How a task is dealt that is saved; None for one that is read."""
        return Written(self._worker, definition, self.chunk_bytes) if definition.save_path else None

    def _take(self, event: e.BlockWritten | e.ChunkClosed | e.WriteFailed, now: float) -> None:
        task = self._find(event)
        if task is not None and isinstance(task.dealing, Written):
            task.dealing.take(event, now)
            self._distribute(task)

    def _committed(self, peer: e.Peer, message: m.ChunkCommitted, now: float) -> None:
        task = self._find(message)
        if task is not None and isinstance(task.dealing, Written):
            task.dealing.committed(message.stop)

    def tick(self, tasks: Iterable[HostedTask], now: float) -> None:
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

    def drain(self, dealing: Dealing) -> list[e.WorkerCommand]:
        """What a task wants done with its chunks."""
        return dealing.drain() if isinstance(dealing, Written) else []

    def forget(self, dealing: Dealing) -> None:
        """A task is not here any more; what became of it is kept for those who ask."""
        if isinstance(dealing, Written):
            self.saved[dealing.path, dealing.stream] = dealing.completed
            if len(self.saved) > SAVED_KEPT:
                del self.saved[next(iter(self.saved))]
