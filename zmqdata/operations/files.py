"""Files: their names, lines of text, TFRecord files, and records of fixed length."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar

import numpy as np

from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    InvalidArgumentError,
    NoFilesMatchedError,
    PipelineError,
)
from zmqdata.files.filenames import native, portable
from zmqdata.files.paths import is_url, shown_url
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.calling import CALLED_FOR, failure
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.indexed import IndexedIterator, PartsIterator
from zmqdata.iterators.random_access import element_at, name_at, refusal
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.nodes.base import FILE_AGAIN, Infer, Node, first_of, in_label
from zmqdata.splits import FileSplits, IndexSplits, SplitSource
from zmqdata.storage.checksums import masked_crc32c
from zmqdata.storage.listing import matching_names
from zmqdata.storage.packed import HEAD, PackedFile, compression_of
from zmqdata.storage.reading import Identity, RemoteFile, SequentialFile, open_remote
from zmqdata.storage.records import COMPRESSION_TYPES, read_record


@dataclass(frozen=True, kw_only=True)
class ListFiles(Node):
    """Yields the names of the files that match absolute patterns, listed anew in each
    repetition.
    """

    patterns: tuple[str, ...] = field(metadata=in_label(first_of))
    """Absolute glob patterns."""
    shuffle: bool
    """True to shuffle the names."""
    seed: int | None = None
    """Seed of the order; None: that of the context."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Arguments of the client of the store that the files lie in."""
    operation: ClassVar[str] = "list_files"
    lists_files: ClassVar[bool] = True
    split_unit: ClassVar[str] = "files"
    restoring: ClassVar[str] = "lists the files again"

    @property
    def cardinality(self) -> int:
        return len(self._names())

    @property
    def split_source(self) -> FileSplits:
        options = json.dumps(self.storage_options) if self.storage_options else ""
        names = tuple(map(portable, self.patterns))
        return FileSplits(names, self.shuffle, self.seed, options=options)

    def ordered(self, seed: int, turn: int, splits: FileSplits | None = None) -> tuple[str, ...]:
        """Return the portable names of the files that match now, in the order of a
        turn, see ``FileSplits.ordered``.

        Args:
            seed: seed of what has none of the user.
            turn: the turn.
            splits: the splits of these files, as a shuffle draws them; None: their own
                order.
        """
        return (splits or self.split_source).ordered(map(portable, self._names()), seed, turn)

    def _names(self) -> list[str]:
        with shortage_explained("list_files"):
            return matching_names(self.patterns, self.storage_options)

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.str_)


@dataclass(frozen=True, kw_only=True)
class Files(Node):
    """Base of the sources that read files in order; a split is a file."""

    filenames: tuple[str, ...] = field(metadata=in_label(first_of))
    """Paths of the files."""
    compression_type: str = ""
    """``""``, ``"GZIP"``, ``"ZLIB"`` or ``"ZSTD"``."""
    buffer_size: int | None = None
    """Size of the read buffer in bytes; None: 64 KiB."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Arguments of the client of the store that the files lie in."""
    places: range | None = field(default=None, repr=False, compare=False)
    """Numbers of the files in the whole source, if these are a part of it."""

    split_unit: ClassVar[str] = "files"
    restoring: ClassVar[str] = FILE_AGAIN
    own_state: ClassVar[int] = 24

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(len(self.filenames))

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.bytes_)


@dataclass(frozen=True, kw_only=True)
class TextLines(Files):
    """Yields the lines of text files, in order of the files."""

    operation: ClassVar[str] = "TextLineDataset"

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.str_)


@dataclass(frozen=True, kw_only=True)
class TFRecords(Files):
    """Yields the records of TFRecord files."""

    operation: ClassVar[str] = "TFRecordDataset"


@dataclass(frozen=True, kw_only=True)
class FixedLengthRecords(Files):
    """Yields records of equal length, which lie between the header and the footer of
    each file.
    """

    record_bytes: int
    """Length of a record in bytes."""
    header_bytes: int = 0
    """Length of the header in bytes."""
    footer_bytes: int = 0
    """Length of the footer in bytes."""
    operation: ClassVar[str] = "FixedLengthRecordDataset"


_BUFFER = 1 << 16
_CUT_OFF = (
    "It was cut off or replaced after the state was made: restore it, or read from the beginning"
)
READ_ERRORS = (OSError, EOFError, ImportError, DataServiceError)
"""Errors that reading a file raises, on this machine or in a store."""


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
    _remote: RemoteFile | None = None
    _local = Identity(0)  # of the open file of this machine: its size alone
    _identity: Identity | None = None  # of the file that was open at the restored state

    def __init__(self, node: Any, context: Context) -> None:
        super().__init__(context, len(node.filenames))
        self._node = node
        self._offset = 0
        self._begin = 0  # of the line that was read last

    def _open(self, offset: int = 0) -> BinaryIO:
        """Open the next file and return it, positioned at ``offset``. While it is open,
        ``_next`` is its index.
        """
        self._begin_part()
        node, name = self._node, self._node.filenames[self._next]
        try:
            if is_url(name):
                options = node.storage_options
                self._remote = open_remote(name, expected=self._identity, options=options)
            else:
                self._check_size(os.stat(name).st_size, offset)
            file = open_binary(name, node.compression_type, node.buffer_size, self._remote)
            self._file = file
            if offset and (end := file.seek(offset)) < offset:
                raise DataLossError(f"its content ends at byte {end}. {_CUT_OFF}")
            if not offset and not node.compression_type:
                self._check_plain(file.peek(HEAD))
        except READ_ERRORS as error:
            self._end_part()
            if isinstance(error, DataLossError) and not is_url(name):
                raise _damaged(node, name, offset, error) from error
            raise failure(node, error) from error
        self._offset = offset
        return file

    def _check_size(self, size: int, offset: int) -> None:
        """Raise an error if a file of this machine is shorter than at the state."""
        least = self._identity.size if self._identity else 0
        if not self._node.compression_type:
            least = max(least, offset)  # the file may have grown while it was open
        if size < least:
            raise DataLossError(f"it has {size} bytes, expected {least} or more. {_CUT_OFF}")
        self._local = Identity(size)

    def _check_plain(self, head: bytes) -> None:
        """Raise an error for a packed file, of which these are the first bytes."""
        found = compression_of(head)
        if not found or self._may_be_plain(head):
            return
        remedy = f"Pass compression_type={found!r}"
        if found not in COMPRESSION_TYPES:
            remedy = "Unpack it first, or read JSON Lines with from_jsonl()"
        raise InvalidArgumentError(
            f"{self._shown} begins as a file that is packed with {found}, and would be read as it "
            f"is. {remedy}"
        )

    def _may_be_plain(self, head: bytes) -> bool:
        """Return True if a plain file may have these first bytes, which are those of
        packed files.
        """
        try:
            codecs.utf_8_decode(head)  # also if the last character is cut
        except UnicodeDecodeError:
            return False
        return True

    @property
    def in_part(self) -> bool:
        return self._file is not None

    @property
    def _shown(self) -> str:
        """Name of the file that is read, for errors."""
        return shown_url(self._node.filenames[self._next])

    def _failure(self, error: BaseException) -> Exception:
        """Return the error of the line that was read last."""
        setattr(error, CALLED_FOR, f"{self._shown}, byte {self._begin}")  # for a quarantine, too
        return failure(self._node, error)

    @property
    def _position(self) -> int:
        return self._offset

    def _part_number(self) -> int:
        return self._next if self._node.places is None else self._node.places[self._next]

    def _end_part(self) -> None:
        self.close()
        self._offset, self._identity = 0, None
        self._next += self._stride

    def state(self) -> Any:
        found = [super().state(), self._offset]
        if self._offset:
            # Where a task is continued, the file may be another one.
            found.append([*(self._local if self._remote is None else self._remote.identity)])
        return found

    def restore(self, state: Any) -> None:
        position, offset, *identity = state
        super().restore(position)
        if offset:
            self._identity = Identity(*identity[0])
            self._open(offset)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._remote = None

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
            except READ_ERRORS as error:
                self._end_part()
                raise failure(self._node, error) from error
            if line:
                break
            self._end_part()
        self._begin, self._offset = self._offset, self._offset + len(line)
        try:
            return line.rstrip(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise self._failure(error) from error


def open_binary(
    filename: str,
    compression_type: str = "",
    buffer_size: int | None = None,
    remote: RemoteFile | None = None,
) -> io.BufferedReader:
    """Open a file for reading, decompressed as ``compression_type`` says, see
    ``PackedFile``; "": as it is. A file of a store (``remote``) comes by large blocks.

    ``buffer_size`` is in bytes; None or 0: 64 KiB.
    """
    size = max(buffer_size or _BUFFER, 2)  # a size of 1 would select line buffering
    raw: Any = (
        SequentialFile(remote) if remote is not None else open(filename, "rb", 0)  # noqa: SIM115 - closed with the returned file
    )
    return io.BufferedReader(PackedFile(raw, compression_type) if compression_type else raw, size)


_FRAME = 16  # bytes that the format adds to each record


def _damaged(
    node: Files, filename: str, offset: int, reason: BaseException
) -> DataLossError | PipelineError:
    if isinstance(reason, DataServiceError) and not isinstance(reason, DataLossError):
        return failure(node, reason)  # of a store
    return DataLossError(f"{node.label}: {filename} is damaged at byte {offset}: {reason}")


@make_iterator.register(TFRecords)
class TFRecordsIterator(FilesIterator):
    """Yields the bytes of records. A damaged record is a single failure, and the rest
    of its file is skipped.
    """

    def __next__(self) -> bytes:
        self._strand.place = self._own_place
        while True:
            file = self._file or self._open()
            try:
                record = read_record(file)
            except READ_ERRORS as error:
                name, offset = self._shown, self._offset
                self._end_part()
                raise _damaged(self._node, name, offset, error) from error
            if record is not None:
                self._offset += len(record) + _FRAME
                return record
            self._end_part()

    def _may_be_plain(self, head: bytes) -> bool:
        return masked_crc32c(head[:8]) == int.from_bytes(head[8:12], "little")


@make_iterator.register(FixedLengthRecords)
class FixedLengthRecordsIterator(FilesIterator):
    """Yields records of a fixed length. It reads ahead to find the footer of a
    compressed file.
    """

    def __init__(self, node: FixedLengthRecords, context: Context) -> None:
        super().__init__(node, context)
        self._size = node.record_bytes
        self._footer = node.footer_bytes
        # In a compressed file: bytes that were read ahead and may belong to the footer;
        # they begin at ``_offset``.
        self._ahead = b""
        self._end = 0  # in a plain file: offset of its footer

    def _may_be_plain(self, head: bytes) -> bool:
        return True

    def __next__(self) -> bytes:
        self._strand.place = self._own_place
        while True:
            file = self._file or self._open()
            try:
                record = (
                    self._read_packed(file)
                    if self._node.compression_type
                    else self._read_plain(file)
                )
            except READ_ERRORS as error:
                name, offset = self._shown, self._offset
                self._end_part()
                raise _damaged(self._node, name, offset, error) from error
            if record is not None:
                self._offset += self._size
                return record
            self._end_part()

    def _open(self, offset: int = 0) -> BinaryIO:
        file = super()._open(offset)
        node = self._node
        self._ahead = b""
        if not node.compression_type:
            try:
                self._end = file.seek(0, os.SEEK_END) - self._footer
            except READ_ERRORS as error:
                self._end_part()
                raise failure(node, error) from error
            rest = (self._end - node.header_bytes) % self._size
            if self._end < node.header_bytes or rest:
                return self._refuse_length()
        begin = offset or node.header_bytes
        try:
            reached = file.seek(begin)
        except READ_ERRORS as error:
            self._end_part()
            raise failure(node, error) from error
        if reached < begin:
            return self._refuse_end(reached, begin)
        self._offset = begin
        return file

    def _refuse_end(self, reached: int, begin: int) -> BinaryIO:
        node, name = self._node, self._shown
        self._end_part()
        raise DataLossError(
            f"{node.label}: the unpacked file {name} has {reached} bytes, and its next record "
            f"begins at byte {begin}. Check `header_bytes`, or was the file replaced?"
        )

    def _refuse_length(self) -> BinaryIO:
        node, name = self._node, self._shown
        between = self._end - node.header_bytes
        self._end_part()
        raise DataLossError(
            f"{node.label}: the file {name} has a body length of {between} bytes between the "
            f"header ({node.header_bytes} bytes) and the footer ({node.footer_bytes} bytes), "
            f"which is not an exact multiple of the record length ({self._size} bytes). Check "
            "the three lengths"
        )

    def _read_plain(self, file: BinaryIO) -> bytes | None:
        if self._offset >= self._end:
            return None
        record = file.read(self._size)
        if len(record) < self._size:
            raise DataLossError("the file became shorter while it was read")
        return record

    def _read_packed(self, file: BinaryIO) -> bytes | None:
        wanted = self._size + self._footer
        self._ahead += file.read(wanted - len(self._ahead))
        if len(self._ahead) == self._footer:
            return None
        if len(self._ahead) < wanted:
            raise DataLossError(
                f"Excess bytes: {len(self._ahead)} bytes remain for a record of {self._size} and "
                f"a footer of {self._footer}"
            )
        record, self._ahead = self._ahead[: self._size], self._ahead[self._size :]
        return record


@element_at.register
def _(node: ListFiles, index: int) -> Any:
    if node.shuffle:
        raise refusal(
            node,
            index,
            ", as each repetition has its own order: call list_files(..., shuffle=False)",
        )
    return native(node.ordered(0, 0)[index])


@name_at.register
def _(node: ListFiles, index: int) -> Name:
    return 0, hash_of(element_at(node, index))
