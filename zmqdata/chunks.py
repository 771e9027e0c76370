"""Elements in files: a folder with chunks of blocks and a manifest that says what they are. Running pipelines over it
belongs to ``iterators``.

A chunk is a row of blocks, each with its lengths and a checksum. The manifest is written last, by renaming: without it
a folder holds nothing.
"""

from __future__ import annotations

import json
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any, BinaryIO

import msgspec

from zmqdata.blocks import BlockBuilder, Compression, decode_block
from zmqdata.errors import DataLossError, NotFoundError, ProtocolError
from zmqdata.specs import decode_spec, encode_spec

BLOCK_BYTES = 1 << 20
BLOCK_ELEMENTS = 4096
CHUNK_BYTES = 256 << 20
MANIFEST = "manifest.json"
_FORMAT = "zmqdata elements 1"
_HEAD = Layout("<4sIQI")  # mark, bytes of the header, bytes of the frames, checksum of both
_MARK = b"zqb1"


class Chunk(msgspec.Struct, frozen=True):
    """One file of a folder: how many elements it holds, in how many bytes."""

    name: str
    elements: int
    nbytes: int


class Manifest(msgspec.Struct, frozen=True):
    """What a folder holds.

    Attributes:
        run: tells what was written at one time from what was written at another.
        spec: of the elements, encoded, or None where there are none to tell.
    """

    run: str
    compression: str | None
    spec: str | None
    chunks: tuple[Chunk, ...]
    format: str = _FORMAT

    @property
    def elements(self) -> int:
        """How many there are in all chunks."""
        return sum(chunk.elements for chunk in self.chunks)

    @property
    def element_spec(self) -> Any:
        return None if self.spec is None else decode_spec(b64decode(self.spec))


def spec_text(spec: Any) -> str | None:
    """A spec as a manifest holds it."""
    return None if spec is None else b64encode(encode_spec(spec)).decode()


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Make the chunks that it names the content of the folder, and remove all others."""
    content = msgspec.to_builtins(manifest)
    checked = {**content, "checksum": _checksum(content)}
    path = os.path.join(folder, MANIFEST)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(checked, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    remove_chunks(folder, {chunk.name for chunk in manifest.chunks})


def remove_chunks(folder: str, keep: set[str]) -> None:
    """Remove the chunks of a folder but those named."""
    for name in os.listdir(folder):
        if name.endswith(".chunk") and name not in keep:
            os.remove(os.path.join(folder, name))


def _checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def read_manifest(folder: str) -> Manifest:
    """What a folder holds.

    Raises:
        NotFoundError: there is no manifest.
        DataLossError: it cannot be read.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        checksum = content.pop("checksum")
        manifest = msgspec.convert(content, Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"{folder!r} holds no saved dataset: there is no {MANIFEST} in it. Check the path; a save that was broken "
            "off leaves none"
        ) from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataLossError(f"{path} is damaged: {error}") from None
    if checksum != _checksum(content) or manifest.format != _FORMAT:
        raise DataLossError(f"{path} is damaged, or of another version: its checksum does not fit")
    return manifest


class ChunkWriter:
    """Appends elements to one chunk.

    Args:
        path: name of the file.
        compression: as for ``distribute``.
        at: where to go on, as ``(elements, bytes)``; what lies behind is cut off.
    """

    def __init__(self, path: str, compression: str | None, at: tuple[int, int] = (0, 0)) -> None:
        self.path = path
        self.elements, self.nbytes = at
        self._builder = BlockBuilder(allow_objects=False)  # who reads a file would unpickle a stranger's bytes
        self._compression = Compression(compression)
        self._file: BinaryIO = open(path, "r+b" if at[1] else "wb")  # noqa: SIM115 - closed by close()
        self._file.truncate(self.nbytes)
        self._file.seek(self.nbytes)

    @property
    def pending(self) -> int:
        """How many elements were added and are not in the file yet."""
        return self._builder.count

    def add(self, element: Any) -> None:
        """Append an element, which nobody may change until ``flush``.

        Raises:
            TypeError: it holds something that cannot be stored.
        """
        if not self._builder.add(element):
            self.flush()
            self._builder.add(element)
        if self._builder.nbytes >= BLOCK_BYTES or self._builder.count >= BLOCK_ELEMENTS:
            self.flush()

    def flush(self) -> None:
        """Write what was added, as a block."""
        if not self._builder.count:
            return
        block = self._builder.build(self._compression)
        frames = [memoryview(frame).cast("B") for frame in block.frames]
        header = msgspec.msgpack.encode((block.meta, [len(frame) for frame in frames]))
        checksum = zlib.crc32(header)
        for frame in frames:
            checksum = zlib.crc32(frame, checksum)
        size = sum(map(len, frames))
        self._file.write(_HEAD.pack(_MARK, len(header), size, checksum))
        self._file.write(header)
        for frame in frames:
            self._file.write(frame)
        self._file.flush()
        self.elements += block.count
        self.nbytes += _HEAD.size + len(header) + size

    def finish(self) -> Chunk:
        """Write the rest and close the file, which is on the disk afterwards."""
        self.flush()
        os.fsync(self._file.fileno())
        self.close()
        return Chunk(os.path.basename(self.path), self.elements, self.nbytes)

    def close(self) -> None:
        """Close the file without writing the rest. Idempotent."""
        self._file.close()


def read_block(file: BinaryIO) -> Iterator[Any] | None:
    """The elements of the next block of a chunk, or None at its end.

    Raises:
        DataLossError: it is truncated or damaged.
    """
    head = file.read(_HEAD.size)
    if not head:
        return None
    try:
        mark, header_size, size, checksum = _HEAD.unpack(head)
        content = memoryview(file.read(header_size + size)) if mark == _MARK else memoryview(b"")
        if len(content) < header_size + size or mark != _MARK or zlib.crc32(content) != checksum:
            raise DataLossError("a block is truncated or its checksum does not fit")
        meta, sizes = msgspec.msgpack.decode(content[:header_size])
        frames, at = [], header_size
        for length in sizes:
            frames.append(content[at : at + length])
            at += length
        return decode_block(meta, frames, allow_objects=False).elements()
    except DataLossError:
        raise
    except (ProtocolError, ValueError, TypeError, MemoryError, OverflowError, LayoutError) as error:
        raise DataLossError(f"a block cannot be read: {error}") from None


class ChunkReader:
    """Reads the elements of a folder in order. Damage is one DataLossError, behind which the next chunk follows."""

    def __init__(self, folder: str, manifest: Manifest) -> None:
        self._folder = folder
        self._chunks = manifest.chunks
        self._chunk = 0
        self._file: BinaryIO | None = None
        self._offset = 0  # of the block that is being read
        self._taken = 0  # elements of that block
        self._block: Iterator[Any] = iter(())

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
            block = read_block(self._file)
        except (DataLossError, OSError) as error:
            self._next_chunk()
            raise DataLossError(
                f"{os.path.join(self._folder, chunk.name)} is damaged: {error}. Remove the folder and make it again"
            ) from None
        if block is None:
            self._next_chunk()
        else:
            self._block, self._offset, self._taken = block, offset, 0

    def _open(self, chunk: Chunk) -> None:
        path = os.path.join(self._folder, chunk.name)
        self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
        size = os.fstat(self._file.fileno()).st_size
        if size != chunk.nbytes:
            raise DataLossError(f"it has {size} bytes, and {chunk.nbytes} were written")

    def _next_chunk(self) -> None:
        self.close()
        self._chunk += 1
        self._offset = self._taken = 0

    def skip(self, count: int) -> None:
        """Leave out elements; whole chunks without reading them."""
        while self._chunk < len(self._chunks) and count >= self._chunks[self._chunk].elements:
            count -= self._chunks[self._chunk].elements
            self._next_chunk()
        for _ in range(count):
            next(self)

    def state(self) -> Any:
        """Where it is: chunk, byte and element."""
        return [self._chunk, self._offset, self._taken]

    def restore(self, state: Any) -> None:
        """Continue where ``state`` was taken."""
        self._chunk, offset, taken = state
        if taken:
            self._open(self._chunks[self._chunk])
            assert self._file is not None
            self._file.seek(offset)
            self._next_block()
            for _ in range(taken):
                next(self)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            self._file.close()
        self._file, self._block = None, iter(())
