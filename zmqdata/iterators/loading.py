"""Iterators over the output of ``save`` and ``distributed_save``: all of it, the chunks
of a task, or a save in there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from zmqdata import nodes
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.codec import decode_failure
from zmqdata.iterators.base import Context, ElementIterator, make_iterator
from zmqdata.iterators.sources import IndexedIterator
from zmqdata.storage.chunks import UNKNOWN_SIZE, ChunkReader
from zmqdata.storage.manifests import (
    CHUNKS,
    Chunk,
    ChunkName,
    Manifest,
    SaveError,
    error_of,
    partial_save,
    read_manifest,
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
    """Return a reader of a complete save, at its beginning.

    Raises:
        FailedPreconditionError: something else was saved there since.
    """
    return ChunkReader(node.path, _manifest_of(node).chunks)


def _named(name: str) -> Chunk:
    """Return a chunk of a distributed save."""
    return Chunk(f"{CHUNKS}/{name}", ChunkName.parse(name).elements, UNKNOWN_SIZE)


@make_iterator.register(nodes.Load)
def make_load_iterator(node: nodes.Load, context: Context) -> ElementIterator:
    """Return an iterator over all chunks, or over the chunks assigned to a task."""
    return (
        LoadIterator(node, context)
        if context.providers is None
        else LoadPartIterator(node, context)
    )


class LoadIterator(ElementIterator):
    """Reads all of a save. It reads chunks of a save in progress as they are committed,
    and waits for more until the save ends.

    Its state is a position in a file. If it began during the save, its state also holds
    the names of the chunks that it has found, because their order is that of discovery.
    """

    def __init__(self, node: nodes.Load, context: Context) -> None:
        self._node = node
        self._reader: ChunkReader | None = None
        self._names: list[str] | None = None  # None: all chunks, in the order of the manifest
        self._ended = False

    def __next__(self) -> Any:
        try:
            return next(self._reader or self._open())
        except StopIteration:
            if self._ended:
                raise
        return self._next_of_more()

    def _open(self) -> ChunkReader:
        return self._begin([] if self._node.grows else None)

    def _begin(self, names: list[str] | None) -> ChunkReader:
        """Open the named chunks, or all chunks of a complete save."""
        if names is None:
            chunks = list(_manifest_of(self._node).chunks)
        else:
            chunks = list(map(_named, names))
        self._names, self._ended = names, names is None
        self._reader = ChunkReader(self._node.path, chunks)
        return self._reader

    def _next_of_more(self) -> Any:
        wait = SaveWait(self._node.path)
        assert self._reader is not None
        while True:
            for element in self._reader:
                return element
            if self._ended:
                raise StopIteration
            if not self._find_more():
                wait.pause("another chunk of the save")

    def _find_more(self) -> bool:
        """Look for unread chunks; return False if nothing is new."""
        assert self._names is not None
        assert self._reader is not None
        there = partial_save(self._node.path, self._node.save_id)
        self._ended = not there.more
        if there.error is not None:
            raise raised(there.error)
        seen = set(self._names)
        fresh = [name for name in map(str, there.chunks) if name not in seen]
        self._names += fresh
        self._reader.add(map(_named, fresh))
        return bool(fresh) or self._ended

    def state(self) -> Any:
        if self._reader is None:
            return None
        return [None if self._names is None else list(self._names), self._reader.state()]

    def restore(self, state: Any) -> None:
        if state is not None:
            names, place = state
            self._begin(None if names is None else list(names)).restore(place)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class LoadPartIterator(IndexedIterator):
    """Reads the chunks that its provider assigns. Splits are places in the manifest, or
    chunks by name if the save may be in there.
    """

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
        self._reader = ChunkReader(self._node.path, [self._chunk()])
        return self._reader

    def _chunk(self) -> Chunk:
        if self._node.grows:
            return _named(self._names[(self._next - self._first) // self._stride])
        if self._manifest is None:
            self._manifest = _manifest_of(self._node)
        return self._manifest.chunks[self._next]

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
