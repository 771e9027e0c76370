"""Iterators over the output of ``save`` and ``distributed_save``: all of it, the chunks
of a task, or a save in progress.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from zmqdata import nodes
from zmqdata.errors import DataLossError, FailedPreconditionError
from zmqdata.failures.codec import decode_failure
from zmqdata.iterators.base import Context, ElementIterator, make_iterator
from zmqdata.iterators.sources import IndexedIterator
from zmqdata.storage.chunks import UNKNOWN_SIZE, ChunkReader
from zmqdata.storage.files import files_of
from zmqdata.storage.manifests import (
    Chunk,
    Manifest,
    SaveError,
    chunk_path,
    committed_chunks,
    error_of,
    is_done,
    read_manifest,
    read_save,
    read_save_error,
)

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.05
MOST_PAUSE = 2.0
SAY_SO_AFTER = 10.0


def _manifest_of(node: nodes.Load) -> Manifest:
    manifest = read_manifest(node.path)
    if manifest.save_id != node.save_id:
        raise FailedPreconditionError(
            f"{node.label}: something else was saved there since load() was called. Call it again"
        )
    return manifest


def opened(node: nodes.Load) -> ChunkReader:
    """Return a reader of a save, at its beginning.

    Raises:
        FailedPreconditionError: something else was saved there since.
    """
    return ChunkReader(node.path, _manifest_of(node).chunks)


@make_iterator.register(nodes.Load)
def make_load_iterator(node: nodes.Load, context: Context) -> ElementIterator:
    """Return an iterator over all chunks, or over the chunks assigned to a task."""
    return (
        LoadIterator(node, context)
        if context.providers is None
        else LoadPartIterator(node, context)
    )


class LoadIterator(ElementIterator):
    """Reads a save. Its state is a position in a file."""

    def __init__(self, node: nodes.Load, context: Context) -> None:
        self._node = node
        self._reader: ChunkReader | None = None

    def __next__(self) -> Any:
        return next(self._reader or self._open())

    def _open(self) -> ChunkReader:
        self._reader = opened(self._node)
        return self._reader

    def state(self) -> Any:
        return None if self._reader is None else self._reader.state()

    def restore(self, state: Any) -> None:
        if state is not None:
            self._open().restore(state)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class LoadPartIterator(IndexedIterator):
    """Reads the chunks that its provider assigns; splits are chunk numbers."""

    _is_within = True

    def __init__(self, node: nodes.Load, context: Context) -> None:
        super().__init__(context, 0)
        self._node = node
        self._manifest: Manifest | None = None
        self._reader: ChunkReader | None = None

    def __next__(self) -> Any:
        while True:
            reader = self._reader or self._open()
            try:
                return next(reader)
            except StopIteration:
                self.close()
                self._next += self._stride

    def _open(self) -> ChunkReader:
        """Open the next chunk and return its reader. While it is open, ``_next`` is its
        number.
        """
        while self._next >= self._stop:
            self._advance()
        if self._manifest is None:
            self._manifest = _manifest_of(self._node)
        self._reader = ChunkReader(self._node.path, [self._manifest.chunks[self._next]])
        return self._reader

    def state(self) -> Any:
        return [super().state(), None if self._reader is None else self._reader.state()]

    def restore(self, state: Any) -> None:
        position, place = state
        super().restore(position)
        if place is not None:
            # At the beginning of a range, the offset alone does not show that the range
            # was entered.
            self._open().restore(place)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None


@make_iterator.register(nodes.LoadGrowing)
class LoadGrowingIterator(ElementIterator):
    """Reads the chunks of a distributed save as they are committed, and waits for more
    until the save ends.

    Its state holds the names of the chunks that it has begun: their order is that of
    discovery.
    """

    def __init__(self, node: nodes.LoadGrowing, context: Context) -> None:
        self._node = node
        self._names: list[str] = []
        self._ended = False
        self._reader = ChunkReader(node.path, ())

    def __next__(self) -> Any:
        wait = SaveWait(self._node.path)
        while True:
            for element in self._reader:
                return element
            if self._ended:
                raise StopIteration
            if not self._find_more():
                wait.pause("another chunk of the save")

    def _find_more(self) -> bool:
        """Look for unread chunks; return False if nothing is new."""
        # Read the marker before the chunks: the chunks listed after it are all that the
        # save will have.
        self._ended = is_done(self._node.path)
        error = read_save_error(self._node.path)
        if error is not None:
            self._ended = True
            raise raised(error)
        self._check_run()
        seen = set(self._names)
        fresh = [
            name
            for name in committed_chunks(files_of(self._node.path), self._node.path)
            if str(name) not in seen
        ]
        self._names += map(str, fresh)
        self._reader.add(self._chunk(str(name), name.elements) for name in fresh)
        if self._ended:
            self._check_complete()
        return bool(fresh) or self._ended

    def _check_run(self) -> None:
        description = read_save(self._node.path)
        if description is None or description.save_id != self._node.save_id:
            raise FailedPreconditionError(
                f"{self._node.label}: something else was saved there since load() was called. "
                "Call it again"
            )

    def _check_complete(self) -> None:
        missing = {chunk.name for chunk in read_manifest(self._node.path).chunks} - {
            chunk_path("", name)[1:] for name in self._names
        }
        if missing:
            raise DataLossError(f"{self._node.path} is damaged: Found missing chunk {min(missing)}")

    def _chunk(self, name: str, elements: int) -> Chunk:
        return Chunk(chunk_path("", name)[1:], elements, UNKNOWN_SIZE)

    def state(self) -> Any:
        return [list(self._names), self._reader.state()]

    def restore(self, state: Any) -> None:
        names, place = state
        self._names = list(names)
        self._reader.add(self._chunk(name, int(name.rpartition("_")[2])) for name in names)
        self._reader.restore(place)

    def close(self) -> None:
        self._reader.close()


def raised(error: SaveError) -> Exception:
    """Return the error that prevents a save from being read, in the form that its
    readers raise.
    """
    return decode_failure(bytes.fromhex(error.failure)) if error.failure else error_of(error)


class SaveWait:
    """Waits longer each time, and logs a warning after a while.

    Args:
        path: path of the save.
        sleep: function that waits.
    """

    def __init__(self, path: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._path, self._sleep = path, sleep
        self._pause, self._waited, self._said = FIRST_PAUSE, 0.0, SAY_SO_AFTER

    def pause(self, what: str) -> None:
        """Wait once for ``what``."""
        if self._waited >= self._said:
            self._said *= 2
            log.warning(
                "waiting for %s in %s for %.0f s (wait=True)", what, self._path, self._waited
            )
        self._sleep(self._pause)
        self._waited += self._pause
        self._pause = min(self._pause * 2, MOST_PAUSE)
