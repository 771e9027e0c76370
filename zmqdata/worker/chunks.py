"""The worker's chunk files of saves: a thread writes blocks into chunks, and determines
the spec of their elements.

``core.worker.saving`` decides when a chunk is opened and closed. ``storage.chunks``
defines the format of a chunk.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

from zmqdata.blocks import BlockMeta, Structure, decode_block, decode_meta
from zmqdata.core.worker import events as e
from zmqdata.elements.specs import encode_spec, spec_of
from zmqdata.errors import InvalidArgumentError, NotFoundError, UnavailableError
from zmqdata.storage.chunks import write_block
from zmqdata.storage.files import FileSystem, error_name_of
from zmqdata.storage.manifests import SAVE, one_spec, uncommitted_path
from zmqdata.storage.remote import files_of

log = logging.getLogger(__name__)

Key = tuple[int, int]


class Specs:
    """The spec that admits all elements of some blocks. Blocks of equal structure are
    inspected only once.

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
        """Merge the specs of a block's elements.

        Raises:
            InvalidArgumentError: its elements differ in nesting or dtype from earlier
                elements.
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
    """Return True if the first element of a block has the spec of all its elements: no
    array has a shape of its own.
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
    """Path of the file."""
    files: FileSystem
    """File system of the file."""
    file: BinaryIO
    """The open file."""
    size: int = 0
    """Number of bytes written."""
    specs: Specs = field(default_factory=Specs)
    """Specs of the elements written."""


Kind = TypeVar("Kind", e.WriteBlock, e.CloseChunk)


class ChunkThread:
    """Writes the chunks of all tasks of a worker.

    Args:
        report: receives events for the worker core, from any thread.
    """

    def __init__(self, report: Callable[[e.WorkerEvent], None]) -> None:
        self._report = report
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._places: dict[Key, tuple[str, int]] = {}
        self._open: dict[Key, OpenChunk] = {}
        self._thread: threading.Thread | None = None

    # --- from the worker's loop

    def begin(self, key: Key, path: str, stream: int) -> None:
        """Save the elements of this attempt as stream ``stream`` of the save at
        ``path``.
        """
        self._do(lambda: self._places.__setitem__(key, (path, stream)))

    def write(self, command: e.WriteBlock) -> None:
        """Append a block to the open chunk, or to a new one if none is open."""
        self._do(lambda: self._attempt(command, self._write))

    def close_chunk(self, command: e.CloseChunk) -> None:
        """Flush the open chunk to disk and close it."""
        self._do(lambda: self._attempt(command, self._close))

    def stop(self, key: Key) -> None:
        """Stop an attempt, and remove its open chunk, which will never be committed."""
        self._do(lambda: self._forget(key))

    def _do(self, act: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="zmqdata-chunks", daemon=True)
            self._thread.start()
        self._queue.put(act)

    def close(self, timeout: float) -> None:
        """End the thread, and remove open chunks."""
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
                log.exception("the writer of chunks had an unexpected error; it continues")
        for key in list(self._open):
            self._forget(key)

    def _attempt(self, command: Kind, act: Callable[[Kind], e.WorkerEvent]) -> None:
        key = (command.task, command.attempt)
        if key not in self._places:
            return
        where = self._where(command)
        try:
            event: e.WorkerEvent = act(command)
        # Any error of a file system ends this save, but not the worker.
        except Exception as error:
            self._forget(key)
            text = str(error)
            if not isinstance(error, InvalidArgumentError):  # the elements are not at fault
                text = f"cannot write {where}: {type(error).__name__}: {text}"
            name = error_name_of(error, UnavailableError)
            event = e.WriteFailed(command.task, command.attempt, error=name, text=text)
        self._report(event)

    def _where(self, command: e.WriteBlock | e.CloseChunk) -> str:
        path, stream = self._places[command.task, command.attempt]
        return uncommitted_path(path, stream, command.attempt, command.chunk)

    def _write(self, command: e.WriteBlock) -> e.BlockWritten:
        key = (command.task, command.attempt)
        chunk = self._open.get(key)
        if chunk is None:
            path, where = self._places[key][0], self._where(command)
            files = files_of(path)
            if files.size(f"{path}/{SAVE}") is None:  # do not make a folder of this name
                raise NotFoundError(
                    f"this worker does not see {path}/{SAVE}, which the dispatcher wrote when the "
                    "save began. Mount the shared storage on this worker"
                )
            chunk = self._open[key] = OpenChunk(where, files, files.open(where, "wb"))
        chunk.size += write_block(chunk.file, command.meta, command.frames)
        chunk.file.flush()  # the progress counts the blocks of open chunks
        chunk.specs.add(command.meta, command.frames)
        return e.BlockWritten(command.task, command.attempt, command.size)

    def _close(self, command: e.CloseChunk) -> e.ChunkClosed:
        key = (command.task, command.attempt)
        chunk = self._open.pop(key)
        chunk.files.finish(chunk.file)
        return e.ChunkClosed(
            command.task,
            command.attempt,
            chunk=command.chunk,
            stop=command.stop,
            size=chunk.size,
            spec=encode_spec(chunk.specs.spec),
        )

    def _forget(self, key: Key) -> None:
        self._places.pop(key, None)
        chunk = self._open.pop(key, None)
        if chunk is not None:
            with contextlib.suppress(OSError):  # it writes what is buffered, to a full disk perhaps
                chunk.file.close()
            with contextlib.suppress(OSError):
                chunk.files.remove(chunk.path)
