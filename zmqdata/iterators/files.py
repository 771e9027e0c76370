"""Iterators over files: file names, text lines, and the base of iterators over other
records.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from typing import Any, BinaryIO

from zmqdata.errors import NoFilesMatchedError
from zmqdata.files.filenames import native, portable
from zmqdata.iterators.base import Context, Name, failure, make_iterator
from zmqdata.iterators.sources import IndexedIterator, PartsIterator
from zmqdata.nodes.records import TextLines
from zmqdata.nodes.sources import ListFiles
from zmqdata.splits import FileSplits

_BUFFER = 1 << 16


@make_iterator.register(ListFiles)
class ListFilesIterator(IndexedIterator):
    """Yields file names: those from its provider, or those that match now, in the order
    of this repetition.

    Args:
        node: lists the files.
        context: context of the node.
        splits: the splits of the files, as a shuffle draws them; None: their own order.
    """

    def __init__(self, node: ListFiles, context: Context, splits: FileSplits | None = None) -> None:
        super().__init__(context, 0)
        self._node, self._context, self._splits = node, context, splits
        self._listed = context.providers is not None

    def __next__(self) -> str:
        self._strand.place = self._own_place
        if not self._listed:
            self._list()
        (index,) = self._next_range(1)
        return native(self._name_of(index))

    def _name(self) -> Name:
        # The order of files may differ between readings, so the position is no name.
        return self._group(), hash_of(self._name_of(self._next - self._stride))

    def _list(self) -> None:
        names = self._node.ordered(self._context.seed, self._context.turn, self._splits)
        if not names:
            raise NoFilesMatchedError(f"{self._node.label}: no file matches any more")
        self._names, self._stop, self._listed = names, len(names), True


def hash_of(filename: str) -> int:
    """Return a number of 64 bits that stands for a file name, in either form, on every
    machine.

    >>> hash_of("a.txt") == hash_of("b.txt")
    False
    """
    digest = hashlib.blake2b(portable(filename).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


class FilesIterator(PartsIterator):
    """Base of the iterators that read files in order; splits are files, and states hold
    the position in the file.

    A file that cannot be opened is the failure of a single element.
    """

    _is_within = True
    _file: BinaryIO | None = None

    def __init__(self, node: Any, context: Context) -> None:
        super().__init__(context, len(node.filenames))
        self._node = node
        self._offset = 0

    def _open(self, offset: int = 0) -> BinaryIO:
        """Open the next file and return it, positioned at ``offset``. While it is open,
        ``_next`` is its index.
        """
        self._begin_part()
        node = self._node
        try:
            self._file = open_binary(
                node.filenames[self._next], node.compression_type, node.buffer_size
            )
        except OSError as error:
            self._next += self._stride
            raise failure(node, error) from error
        if offset:
            self._file.seek(offset)
        self._offset = offset
        return self._file

    @property
    def in_part(self) -> bool:
        return self._file is not None

    @property
    def _position(self) -> int:
        return self._offset

    def _part_number(self) -> int:
        return self._next if self._node.places is None else self._node.places[self._next]

    def _end_part(self) -> None:
        self.close()
        self._offset = 0
        self._next += self._stride

    def state(self) -> Any:
        return [super().state(), self._offset]

    def restore(self, state: Any) -> None:
        position, offset = state
        super().restore(position)
        if offset:
            self._open(offset)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def __del__(self) -> None:
        self.close()


@make_iterator.register(TextLines)
class TextLinesIterator(FilesIterator):
    """Yields lines without their line ends, decoded from UTF-8.

    A file that cannot be opened, and a line that is not UTF-8, are each the failure of
    a single element.
    """

    def __next__(self) -> str:
        self._strand.place = self._own_place
        while True:
            file = self._file or self._open()
            try:
                line = file.readline()
            except (OSError, EOFError, zlib.error) as error:
                self._end_part()
                raise failure(self._node, error) from error
            if line:
                break
            self._end_part()
        self._offset += len(line)
        try:
            return line.rstrip(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise failure(self._node, error) from error


def open_binary(
    filename: str, compression_type: str = "", buffer_size: int | None = None
) -> BinaryIO:
    """Open a file for reading, decompressed as ``compression_type`` says: ``""``,
    ``"GZIP"`` or ``"ZLIB"``.

    ``buffer_size`` is in bytes; None or 0: 64 KiB.
    """
    size = max(buffer_size or _BUFFER, 2)  # a size of 1 would select line buffering
    if compression_type == "GZIP":
        return io.BufferedReader(gzip.GzipFile(filename, "rb"), size)
    if compression_type == "ZLIB":
        return io.BufferedReader(_ZlibFile(filename), size)
    return open(filename, "rb", size)


class _ZlibFile(io.RawIOBase):
    """zlib stream as a readable file; it seeks forward by reading."""

    def __init__(self, filename: str) -> None:
        self._file = open(filename, "rb")  # noqa: SIM115 - closed by close()
        self._stream = zlib.decompressobj()
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._stream.eof:
            packed = self._stream.unconsumed_tail or self._file.read(1 << 16)
            if not packed:
                raise EOFError(f"{self._file.name} ends in the middle of its zlib stream")
            piece = self._stream.decompress(packed, len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                self._position += len(piece)
                return len(piece)
        return 0

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise io.UnsupportedOperation("A zlib stream can only be read forward")
        while self._position < offset and self.read(min(1 << 16, offset - self._position)):
            pass
        return self._position

    def close(self) -> None:
        self._file.close()
        super().close()
