"""The worker's files of saves: a thread that writes blocks into chunks, and says what
the elements in them look like.

When a chunk is opened and closed is decided by ``core.worker.saving``; what a chunk is,
by ``chunks``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

from zmqdata.blocks import BlockMeta, Structure, decode_block, decode_meta
from zmqdata.core.worker import events as e
from zmqdata.elements.specs import encode_spec, spec_of
from zmqdata.errors import BY_NAME, InvalidArgumentError, UnavailableError
from zmqdata.storage.chunks import write_block
from zmqdata.storage.files import FileSystem, files_of
from zmqdata.storage.manifests import one_spec, uncommitted_path

log = logging.getLogger(__name__)

Key = tuple[int, int]


class Specs:
    """The spec that admits all elements of some blocks. Blocks that are alike are
    looked at once.

    >>> from zmqdata.blocks import BlockBuilder
    >>> builder, specs = BlockBuilder(), Specs()
    >>> builder.add(7), builder.add(8)
    (True, True)
    >>> block = builder.build()
    >>> specs.add(block.meta, block.frames)
    >>> specs.spec
    TensorSpec(shape=(), dtype=int64)
    """

    def __init__(self) -> None:
        self.spec: Any = None
        self._seen: set[object] = set()

    def add(self, meta: bytes, frames: Any) -> None:
        """Looks at a block.

        Raises:
            InvalidArgumentError: its elements differ in nesting or dtype from those
                before.
        """
        header = decode_meta(meta)
        shapes = tuple(column.shape for column in header.columns)
        kind = (str(header.structure), shapes)
        if kind in self._seen:
            return
        elements = decode_block(meta, frames, allow_objects=False).elements()
        if _is_uniform(header):
            self._seen.add(kind)
            self._merge(spec_of(next(elements)))
            return
        for element in elements:
            self._merge(spec_of(element))

    def _merge(self, spec: Any) -> None:
        self.spec = spec if self.spec is None else one_spec(self.spec, spec)


def _is_uniform(header: BlockMeta) -> bool:
    """Whether the first element of a block tells what all of them look like: no array
    has a shape of its own.
    """
    if header.structure is None:
        return False
    leaves = Structure(header.structure).leaves
    return all(
        column.shape is not None or leaf.kind != "array"
        for leaf, column in zip(leaves, header.columns, strict=True)
    )


@dataclass
class OpenChunk:
    """A chunk that is being written."""

    path: str
    files: FileSystem
    file: BinaryIO
    size: int = 0
    specs: Specs = field(default_factory=Specs)


Kind = TypeVar("Kind", e.WriteBlock, e.CloseChunk)


class ChunkThread:
    """Writes the chunks of all tasks of a worker.

    Args:
        report: takes events for the worker core, from any thread.
    """

    def __init__(self, report: Callable[[e.WorkerEvent], None]) -> None:
        self._report = report
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._places: dict[Key, tuple[str, int]] = {}
        self._open: dict[Key, OpenChunk] = {}
        self._thread: threading.Thread | None = None

    # --- from the worker's loop

    def begin(self, key: Key, path: str, stream: int) -> None:
        """What this attempt of a task makes is saved there."""
        self._do(lambda: self._places.__setitem__(key, (path, stream)))

    def write(self, command: e.WriteBlock) -> None:
        """Appends a block to the open chunk, or to a new one."""
        self._do(lambda: self._attempt(command, self._write))

    def close_chunk(self, command: e.CloseChunk) -> None:
        """Brings the open chunk onto the disk."""
        self._do(lambda: self._attempt(command, self._close))

    def stop(self, key: Key) -> None:
        """Forgets an attempt; its open chunk, which nobody will hear of, is removed."""
        self._do(lambda: self._forget(key))

    def _do(self, act: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="zmqdata-chunks", daemon=True)
            self._thread.start()
        self._queue.put(act)

    def close(self, timeout: float) -> None:
        """Ends the thread; what is open is removed."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout)

    # --- in its own thread

    def _run(self) -> None:
        while True:
            act = self._queue.get()
            if act is None:
                break
            try:
                act()
            except Exception:
                log.exception("zmqdata-chunks: unexpected error; going on")
        for key in list(self._open):
            self._forget(key)

    def _attempt(self, command: Kind, act: Callable[[Kind], e.WorkerEvent]) -> None:
        key = (command.task, command.attempt)
        if key not in self._places:
            return
        try:
            event: e.WorkerEvent = act(command)
        # Whatever a file system says is the end of this save, not of the worker.
        except Exception as error:
            self._forget(key)
            name = type(error).__name__
            text = f"a chunk of {command.task} could not be written: {name}: {error}"
            if isinstance(error, InvalidArgumentError):
                text = str(error)  # not the file is at fault
            event = e.WriteFailed(
                *key, name if name in BY_NAME else UnavailableError.__name__, text
            )
        self._report(event)

    def _write(self, command: e.WriteBlock) -> e.BlockWritten:
        key = (command.task, command.attempt)
        chunk = self._open.get(key)
        if chunk is None:
            path, stream = self._places[key]
            where = uncommitted_path(path, stream, command.attempt, command.chunk)
            files = files_of(path)
            chunk = self._open[key] = OpenChunk(where, files, files.open(where, "wb"))
        chunk.size += write_block(chunk.file, command.meta, command.frames)
        chunk.specs.add(command.meta, command.frames)
        return e.BlockWritten(*key, command.size)

    def _close(self, command: e.CloseChunk) -> e.ChunkClosed:
        key = (command.task, command.attempt)
        chunk = self._open.pop(key)
        chunk.files.finish(chunk.file)
        return e.ChunkClosed(
            *key, command.chunk, command.stop, chunk.size, encode_spec(chunk.specs.spec)
        )

    def _forget(self, key: Key) -> None:
        self._places.pop(key, None)
        chunk = self._open.pop(key, None)
        if chunk is not None:
            chunk.file.close()
            chunk.files.remove(chunk.path)
