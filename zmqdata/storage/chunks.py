"""Chunks: files of elements, stored as blocks with lengths and a checksum each.

The list of a folder's chunks belongs to ``manifests``. Running pipelines over chunks
belongs to ``iterators``.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from struct import error as LayoutError
from typing import Any, BinaryIO

import msgspec

from zmqdata.blocks import BlockBuilder, Compression, DecodedBlock, decode_block
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    MissingCodecError,
    MissingDtypeError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    UnavailableError,
)
from zmqdata.files.paths import is_url, shown_url
from zmqdata.storage.files import LOCAL
from zmqdata.storage.manifests import HEAD, MARK, Chunk
from zmqdata.storage.remote import files_of

BLOCK_BYTES = 1 << 20
BLOCK_ELEMENTS = 4096
CHUNK_BYTES = 256 << 20
UPLOAD_BYTES = 32 << 20
"""Size of a chunk in a store, which is held in memory until it is whole."""
UNKNOWN_SIZE = -1
"""Stand-in for the size of a chunk whose size in bytes is unknown."""


def write_block(file: BinaryIO, meta: bytes, frames: Sequence[Any]) -> int:
    """Append a block to a chunk and return its size there in bytes."""
    views = [memoryview(frame).cast("B") for frame in frames]
    header = msgspec.msgpack.encode((meta, [len(view) for view in views]))
    checksum = zlib.crc32(header)
    for view in views:
        checksum = zlib.crc32(view, checksum)
    size = sum(map(len, views))
    file.write(HEAD.pack(MARK, len(header), size, checksum))
    file.write(header)
    for view in views:
        file.write(view)
    return HEAD.size + len(header) + size


class ChunkWriter:
    """Writer that appends elements to a chunk. A chunk in a store is visible once it is
    finished.

    Args:
        path: name of the file.
        compression: as for ``distribute``.
        at: position at which to continue, as ``(elements, bytes)``; the file is
            truncated there. Only a file on this machine can be continued.
    """

    def __init__(self, path: str, compression: str | None, at: tuple[int, int] = (0, 0)) -> None:
        self.path = path
        self.elements, self.nbytes = at
        self._builder = BlockBuilder(
            allow_objects=False
        )  # a reader would otherwise unpickle untrusted bytes
        self._compression = Compression(compression)
        self._files = files_of(path)
        self._file: BinaryIO | None = None
        file = self._opened()
        if self.nbytes:
            file.truncate(self.nbytes)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            if is_url(self.path):
                self._file = io.BytesIO()
                return self._file
            self._file = self._files.open(self.path, "r+b" if self.nbytes else "wb")
            if self.nbytes:
                self._file.seek(self.nbytes)
        return self._file

    @property
    def pending(self) -> int:
        """The number of elements that were added and are not yet in the file."""
        return self._builder.count

    def add(self, element: Any) -> bool:
        """Append an element. The caller must not modify it before ``flush``. Return
        True if all added elements are in the file.

        Raises:
            TypeError: the element has a leaf that cannot be stored.
        """
        builder = self._builder
        if not builder.add(element):
            self.flush()
            builder.add(element)
        if builder.nbytes < BLOCK_BYTES and builder.count < BLOCK_ELEMENTS:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Write the added elements as a block."""
        if not self._builder.count:
            return
        file, block = self._opened(), self._builder.build(self._compression)
        self.nbytes += write_block(file, block.meta, block.frames)
        file.flush()
        self.elements += block.count

    def park(self) -> None:
        """Release the descriptor of a file on this machine until the next block."""
        if self._files is LOCAL:
            self.close()

    def finish(self) -> Chunk:
        """Write the remaining elements, sync the file to disk and close it."""
        self.flush()
        file = self._opened()
        if isinstance(file, io.BytesIO):
            self._files.replace(self.path, file.getvalue())
        self._files.finish(file)
        return Chunk(self.path.rpartition("/")[2], self.elements, self.nbytes)

    def close(self) -> None:
        """Close the file without writing the remaining elements. Idempotent."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # it was opened
            self.close()


def read_block(file: BinaryIO) -> DecodedBlock | None:
    """Return the next block of a chunk, or None at its end.

    Raises:
        DataLossError: the block is truncated or damaged.
        MissingCodecError: the block is compressed, and blosc is not installed.
        MissingDtypeError: an array has a dtype of ml_dtypes, which is not installed.
    """
    head = file.read(HEAD.size)
    if not head:
        return None
    try:
        mark, header_size, size, checksum = HEAD.unpack(head)
        content = memoryview(file.read(header_size + size)) if mark == MARK else memoryview(b"")
        if len(content) < header_size + size or mark != MARK or zlib.crc32(content) != checksum:
            raise DataLossError("a block is truncated, or its checksum does not match")
        meta, sizes = msgspec.msgpack.decode(content[:header_size])
        frames, at = [], header_size
        for length in sizes:
            frames.append(content[at : at + length])
            at += length
        return decode_block(meta, frames, allow_objects=False)
    except (DataLossError, MissingCodecError, MissingDtypeError):
        raise
    except (ProtocolError, ValueError, TypeError, MemoryError, OverflowError, LayoutError) as error:
        raise DataLossError(f"a block cannot be read: {error}") from None


class ChunkReader:
    """Iterator over the elements of chunks, in order. Damage raises a single
    DataLossError; iteration then continues with the next chunk.

    Args:
        folder: the folder of the chunks.
        chunks: the chunks to read; more can be appended later.
    """

    _file: BinaryIO | None = None

    def __init__(self, folder: str, chunks: Iterable[Chunk]) -> None:
        self._folder = folder
        self._files = files_of(folder)
        self._chunks = list(chunks)
        self._chunk = 0
        self._offset = 0  # of the current block
        self._taken = 0  # elements taken from the current block
        self._before = 0  # elements of this chunk before the current block
        self._count = 0  # elements in the current block
        self._block: Iterator[Any] = iter(())

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Append chunks to the list of chunks to read."""
        self._chunks.extend(chunks)

    def __iter__(self) -> ChunkReader:
        return self

    def __next__(self) -> Any:
        while True:
            for element in self._block:
                self._taken += 1
                return element
            if self._chunk == len(self._chunks):
                raise StopIteration
            self._next_block()

    def _next_block(self) -> None:
        chunk = self._chunks[self._chunk]
        try:
            if self._file is None:
                self._open(chunk)
            assert self._file is not None
            offset = self._file.tell()
            try:
                block = read_block(self._file)
            except (UnavailableError, PermissionDeniedError):
                self._file.seek(offset)  # the next call reads the block again
                raise
            if block is None:
                self._check_count(chunk)
        except (UnavailableError, PermissionDeniedError):
            raise
        except (MissingCodecError, MissingDtypeError) as error:
            self._next_chunk()
            raise FailedPreconditionError(
                f"{shown_url(os.path.join(self._folder, chunk.name))} cannot be read here: {error}"
            ) from None
        except (DataLossError, FailedPreconditionError, NotFoundError, OSError) as error:
            self._next_chunk()
            raise DataLossError(
                f"{shown_url(os.path.join(self._folder, chunk.name))} is damaged: {error}. "
                "Remove the folder and save the dataset again"
            ) from None
        if block is None:
            self._next_chunk()
        else:
            self._before += self._count
            self._block, self._offset, self._taken, self._count = (
                block.elements(),
                offset,
                0,
                len(block),
            )

    def _open(self, chunk: Chunk, at: int = 0) -> None:
        path = os.path.join(self._folder, chunk.name)
        self._file = self._files.open(path, "rb")
        self._file.seek(at)  # a store is read from there on to learn the size
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(at)
        if chunk.nbytes != UNKNOWN_SIZE and size != chunk.nbytes:
            raise DataLossError(f"it has {size} bytes, but {chunk.nbytes} were written")

    def _check_count(self, chunk: Chunk) -> None:
        found = self._before + self._count
        if found != chunk.elements:
            raise DataLossError(f"it has {found} elements, but {chunk.elements} were written")

    def _next_chunk(self) -> None:
        self.close()
        self._chunk += 1
        self._offset = self._taken = self._before = self._count = 0

    def skip(self, count: int) -> None:
        """Skip a number of elements. Whole chunks are skipped without reading them."""
        while self._chunk < len(self._chunks) and count >= self._chunks[self._chunk].elements:
            count -= self._chunks[self._chunk].elements
            self._next_chunk()
        for _ in range(count):
            next(self)

    def state(self) -> Any:
        """Return the position: chunk, byte of a block, element in that block, and
        number of elements of the chunk before that block.
        """
        return [self._chunk, self._offset, self._taken, self._before]

    def restore(self, state: Any) -> None:
        """Continue at the position that ``state`` returned."""
        self._chunk, offset, taken, before = state
        if taken:
            self._open(self._chunks[self._chunk], offset)
            self._next_block()
            self._before = before
            for _ in range(taken):
                next(self)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            self._file.close()
        self._file, self._block = None, iter(())

    def __del__(self) -> None:
        self.close()
