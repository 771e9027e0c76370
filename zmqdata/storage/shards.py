"""Writers of elements into the chunks of several shards.

A shard is a number that a user's ``shard_func`` gives to an element. Without such a
function, all elements belong to shard 0. Reading belongs to ``chunks``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from zmqdata.files.paths import is_url
from zmqdata.storage.chunks import UPLOAD_BYTES, ChunkWriter
from zmqdata.storage.manifests import Chunk

MOST_OPEN = 16
"""Number of shards whose files stay open between two blocks."""

ShardPlace = tuple[int, int, int]
"""Position in the only chunk of a shard: number of the shard, elements and bytes."""


def chunk_name(run: str, shard: int, part: int = 0) -> str:
    """Return the name of a chunk.

    >>> chunk_name("1f", 0), chunk_name("1f", 7, 2)
    ('1f-0-0.chunk', '1f-7-2.chunk')
    """
    return f"{run}-{shard}-{part}.chunk"


@dataclass
class ShardedWriter:
    """Writer that appends elements to the chunks of their shards.

    Attributes:
        chunks: chunks that are finished.
    """

    folder: str
    """Path of the folder."""
    run: str
    """Identifies the writer; prefix of the names of its chunks."""
    compression: str | None
    """Compression of the blocks."""
    most_bytes: int | None = None
    """Size at which a further chunk of the shard begins; None: a single chunk each. In
    a store it is ``UPLOAD_BYTES``.
    """
    places: Iterable[ShardPlace] = ()
    """Positions at which to continue."""

    def __post_init__(self) -> None:
        if is_url(self.folder):
            self.most_bytes = UPLOAD_BYTES
        self.chunks: list[Chunk] = []
        self._parts: dict[int, int] = {}
        self._writers = {
            shard: self._begun(shard, (elements, nbytes)) for shard, elements, nbytes in self.places
        }

    def _begun(self, shard: int, at: tuple[int, int] = (0, 0)) -> ChunkWriter:
        part = self._parts.get(shard, 0)
        self._parts[shard] = part + 1
        path = f"{self.folder}/{chunk_name(self.run, shard, part)}"
        return ChunkWriter(path, self.compression, at)

    def add(self, element: Any, shard: int = 0) -> bool:
        """Append an element. The caller must not modify it before ``flush``. Return
        True if all added elements of the shard are in its file.

        Raises:
            TypeError: the element has a leaf that cannot be stored.
        """
        writer = self._writers.get(shard)
        if writer is None:
            writer = self._writers[shard] = self._begun(shard)
            self._park(writer)
        if not writer.add(element):
            return False
        if self.most_bytes is not None and writer.nbytes >= self.most_bytes:
            self._finish(shard)
        else:
            self._park(writer)
        return True

    def _park(self, writer: ChunkWriter) -> None:
        if len(self._writers) > MOST_OPEN:
            writer.park()

    def flush(self) -> list[ShardPlace]:
        """Write the added elements of all shards, and return the positions."""
        for writer in self._writers.values():
            writer.flush()
            self._park(writer)
        return [(shard, writer.elements, writer.nbytes) for shard, writer in self._writers.items()]

    def _finish(self, shard: int) -> None:
        self.chunks.append(replace(self._writers.pop(shard).finish(), shard=shard))

    def finish(self) -> tuple[Chunk, ...]:
        """Write the remaining elements, close the files, and return the chunks in the
        order of their shards.
        """
        for shard in list(self._writers):
            self._finish(shard)
        return tuple(sorted(self.chunks, key=lambda chunk: chunk.shard))

    def close(self) -> None:
        """Close the files without writing the remaining elements. Idempotent."""
        for writer in self._writers.values():
            writer.close()
