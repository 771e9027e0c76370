"""Iterators that write elements into files: snapshots, and caches with a file name. The
files are ``chunks``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Any, TextIO

from zmqdata import nodes
from zmqdata.blocks import copied
from zmqdata.elements.specs import merge_specs, spec_of
from zmqdata.errors import (
    AlreadyExistsError,
    DataServiceError,
    FailedPreconditionError,
    NotFoundError,
)
from zmqdata.iterators.base import Context, ElementIterator, failure, make_iterator
from zmqdata.iterators.cache import identified, identity, played
from zmqdata.iterators.inputs import input_iterator
from zmqdata.storage.chunks import CHUNK_BYTES, ChunkReader, ChunkWriter
from zmqdata.storage.manifests import (
    Chunk,
    Manifest,
    read_manifest,
    remove_chunks,
    spec_text,
    write_manifest,
)

LOCK = "lockfile"


def lock_folder(folder: str) -> TextIO | None:
    """Make a folder, and hold it for writing until the file is closed or this process
    ends; None if another does.
    """
    os.makedirs(folder, exist_ok=True)
    file = open(os.path.join(folder, LOCK), "a+", encoding="utf-8")  # noqa: SIM115 - open for as long as it is held
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {os.uname().nodename}")
    file.flush()
    return file


class _Recorder:
    """Writes what an input yields into a folder, and makes it the folder's content at
    the end.

    Args:
        lock: what holds the folder.
        run: tells this run from others; the name of the chunk.
        at: where to go on in a chunk of this run: ``(elements, bytes)``.
    """

    def __init__(
        self, folder: str, lock: TextIO, run: str, compression: str | None, at: tuple[int, int]
    ) -> None:
        self._folder, self._lock, self._run, self._compression = folder, lock, run, compression
        name = chunk_name(run)
        remove_chunks(folder, {name})
        self.writer = ChunkWriter(os.path.join(folder, name), compression, at)

    def add(self, element: Any) -> None:
        self.writer.add(copied(element))

    def finish(self) -> None:
        """What was written becomes the content of the folder."""
        chunk = self.writer.finish()
        write_manifest(self._folder, Manifest(self._run, self._compression, None, (chunk,)))
        self._lock.close()

    def close(self) -> None:
        self.writer.close()
        self._lock.close()


def chunk_name(run: str) -> str:
    return f"{run}.chunk"


class FileCacheIterator(ElementIterator):
    """Writes its input's elements into a folder while it hands them out, or reads them
    if they are complete there.

    A state while it writes holds a state of the input from before the block that is
    being collected: restored, it goes on with the file as it was then, on the same
    machine also after a crash. Where the file is gone, or is being written by somebody
    else, it runs its input again; a complete one of another run is left alone. The
    state holds no elements. An element that cannot be stored fails, and ends the
    writing: those after it are handed out as they come.
    """

    compression: str | None = None
    shares = False  # whether to go on without writing when somebody else writes

    def __init__(self, node: nodes.Cache | nodes.Snapshot, context: Context) -> None:
        self._node, self._context = node, context
        self._folder = node.folder
        self._ids = identity(context)
        self._position = 0
        self._reader: ChunkReader | None = None
        self._input: ElementIterator | None = None
        self._recorder: _Recorder | None = None
        self._mark: list[Any] = []  # elements and bytes in the file, state of the input then
        self._since = 0  # elements and failures that came from the input since
        self._started = self._ended = False

    @property
    def _run(self) -> str:
        return "-".join(f"{part:x}" for part in self._ids)

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if not self._started:
            self._start()
        try:
            element = self._record() if self._reader is None else next(self._reader)
        except StopIteration:
            self._ended = True
            raise
        self._position += 1
        return element

    def _start(self) -> None:
        manifest = self._complete()
        if manifest is None:
            self.close()  # of a start that failed
            self._begin_input(None)
            self._begin_recording((0, 0))
        else:
            self._reader = ChunkReader(self._folder, manifest.chunks)
        self._started = True

    def _complete(self) -> Manifest | None:
        """What is complete in the folder."""
        try:
            manifest = read_manifest(self._folder)
        except NotFoundError:
            return None
        self._ids = [int(part, 16) for part in manifest.run.split("-")]
        return manifest

    def _begin_input(self, state: Any) -> None:
        self._input = input_iterator(self._node, identified(self._context, self._ids))
        if state is not None:
            self._input.restore(state)

    def _begin_recording(self, at: tuple[int, int]) -> None:
        assert self._input is not None
        lock = lock_folder(self._folder)
        if lock is not None:
            self._recorder = _Recorder(self._folder, lock, self._run, self.compression, at)
            self._mark, self._since = [*at, self._input.state()], 0
        elif not self.shares:
            path = os.path.join(self._folder, LOCK)
            raise AlreadyExistsError(
                f"{self._node.label}: There appears to be a concurrent caching iterator running: "
                f"{path!r} is held by "
                f"{_content(path)}. Let it end, or close() it, or give each reader a file name of "
                "its own; in the "
                "service, run one worker on each machine, or let cache() keep the elements in "
                "memory"
            )

    def _record(self) -> Any:
        assert self._input is not None
        try:
            element = next(self._input)
        except StopIteration:
            self._finish()
            raise
        except Exception:
            self._since += 1
            raise
        self._since += 1
        recorder = self._recorder
        if recorder is not None:
            try:
                recorder.add(element)
            except TypeError as error:
                recorder.close()  # what lacks an element must never count as complete
                self._recorder = None
                raise failure(self._node, error) from error
            if recorder.writer.pending == 0:
                self._mark, self._since = (
                    [recorder.writer.elements, recorder.writer.nbytes, self._input.state()],
                    0,
                )
        return element

    def _finish(self) -> None:
        if self._recorder is not None:
            self._recorder.finish()
        self.close()

    def state(self) -> Any:
        if not self._started:
            return None
        if self._reader is not None:
            return ["read", self._ids, self._position, self._ended, self._reader.state()]
        if self._ended or self._input is None:
            return ["read", self._ids, self._position, True, None]
        if self._recorder is None:
            return ["pass", self._ids, self._position, False, self._input.state()]
        return ["write", self._ids, self._position, False, [*self._mark, self._since]]

    def restore(self, state: Any) -> None:
        if state is None:
            return
        kind, ids, self._position, self._ended, place = state
        self._started = True
        manifest = self._complete()
        self._ids = ids
        if self._ended:
            return
        if manifest is not None and manifest.run == self._run:
            self._reader = ChunkReader(self._folder, manifest.chunks)
            if kind == "read":
                self._reader.restore(place)
            else:
                self._reader.skip(self._position)
        elif kind == "pass":
            self._begin_input(place)
        elif kind == "write":
            self._go_on(place, manifest is None)
        else:
            self._run_again(manifest is None)

    def _go_on(self, place: Any, may_write: bool) -> None:
        """Pull again from the mark on, and write on behind what the file had then."""
        elements, size, inner, since = place
        path = os.path.join(self._folder, chunk_name(self._run))
        if not may_write or (size and not (os.path.exists(path) and os.path.getsize(path) >= size)):
            self._run_again(may_write)
            return
        self._begin_input(inner)
        self._begin_recording((elements, size))
        for _ in range(since):
            self._repeat()

    def _run_again(self, may_write: bool) -> None:
        """Pull all again from the beginning."""
        self._begin_input(None)
        if may_write:
            self._begin_recording((0, 0))
        wanted, self._position = self._position, 0
        while self._position < wanted:
            self._position += self._repeat()

    def _repeat(self) -> int:
        """Pull one that was handed out already; 1 if it was an element."""
        try:
            self._record()
        except StopIteration:
            raise FailedPreconditionError(
                f"the input of {self._node.label} has fewer elements than when the state was "
                "taken: restore on the "
                "same input only"
            ) from None
        except DataServiceError as error:
            if error.final:
                raise
            return 0
        return 1

    def close(self) -> None:
        for held in (self._input, self._recorder, self._reader):
            if held is not None:
                held.close()


def _content(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read() or "another iterator"


def kept_element(node: nodes.Cache, index: int) -> tuple[Any] | None:
    """Element ``index`` as a cache plays it in this process or has it in its folder;
    None where it has not yet.
    """
    if not node.filename:
        return played(node, index)
    try:
        manifest = read_manifest(node.folder)
    except NotFoundError:
        return None
    if index >= manifest.elements:
        return None
    reader = ChunkReader(node.folder, manifest.chunks)
    try:
        reader.skip(index)
        return (next(reader),)
    finally:
        reader.close()


@make_iterator.register(nodes.Snapshot)
class SnapshotIterator(FileCacheIterator):
    """As a cache in files; while somebody else writes the snapshot, it hands its
    input's elements on.
    """

    shares = True

    def __init__(self, node: nodes.Snapshot, context: Context) -> None:
        super().__init__(node, context)
        self.compression = node.compression


def save_elements(
    elements: Iterator[Any], folder: str, run: str, compression: str | None, spec: Any
) -> None:
    """Write all elements into a folder, in place of what was saved there.

    Raises:
        AlreadyExistsError: somebody else is writing there.
        TypeError: an element holds something that cannot be stored, or elements differ
            in nesting or dtype.
    """
    lock = lock_folder(folder)
    if lock is None:
        raise AlreadyExistsError(
            f"somebody else is saving into {folder!r}: let him end, or choose another path"
        )
    with lock:
        chunks: list[Chunk] = []
        try:
            spec = _write_chunks(elements, os.path.join(folder, run), compression, spec, chunks)
        except BaseException:
            with contextlib.suppress(NotFoundError):
                remove_chunks(folder, {chunk.name for chunk in read_manifest(folder).chunks})
            raise
        write_manifest(folder, Manifest(run, compression, spec_text(spec), tuple(chunks)))


def _write_chunks(
    elements: Iterator[Any], prefix: str, compression: str | None, spec: Any, chunks: list[Chunk]
) -> Any:
    """Write all elements and list the chunks. Returns the spec that admits all of
    them.
    """
    writer: ChunkWriter | None = None
    try:
        for element in elements:
            found = spec_of(element)
            if spec is None:
                spec = found
            elif spec != found:
                spec = merge_specs(spec, found)
            writer = writer or ChunkWriter(f"{prefix}-{len(chunks)}.chunk", compression)
            writer.add(copied(element))
            if writer.nbytes >= CHUNK_BYTES:
                chunks.append(writer.finish())
                writer = None
        if writer is not None:
            chunks.append(writer.finish())
    finally:
        if writer is not None:
            writer.close()
    return spec
