"""Iterators over files of binary records: TFRecord files, and records of fixed
length.
"""

from __future__ import annotations

import os
import zlib
from typing import BinaryIO

from zmqdata.errors import DataLossError
from zmqdata.iterators.base import Context, failure, make_iterator
from zmqdata.iterators.files import FilesIterator
from zmqdata.nodes.records import Files, FixedLengthRecords, TFRecords
from zmqdata.storage.records import read_record

_FRAME = 16  # bytes that the format adds to each record


def _damaged(node: Files, filename: str, offset: int, reason: object) -> DataLossError:
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
            except (DataLossError, EOFError, zlib.error, OSError) as error:
                name, offset = self._node.filenames[self._next], self._offset
                self._end_part()
                raise _damaged(self._node, name, offset, error) from error
            if record is not None:
                self._offset += len(record) + _FRAME
                return record
            self._end_part()


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
            except (DataLossError, EOFError, zlib.error, OSError) as error:
                name, offset = self._node.filenames[self._next], self._offset
                self._end_part()
                raise _damaged(self._node, name, offset, error) from error
            if record is not None:
                self._offset += self._size
                return record
            self._end_part()

    def _open(self, offset: int = 0) -> BinaryIO:
        file = super()._open()
        node = self._node
        self._ahead = b""
        if not node.compression_type:
            self._end = os.fstat(file.fileno()).st_size - self._footer
            rest = (self._end - node.header_bytes) % self._size
            if self._end < node.header_bytes or rest:
                return self._refuse_length()
        begin = offset or node.header_bytes
        try:
            reached = file.seek(begin)
        except (EOFError, zlib.error, OSError) as error:
            self._next += self._stride
            file.close()
            self._file = None
            raise failure(node, error) from error
        if reached < begin:
            return self._refuse_end(reached, begin)
        self._offset = begin
        return file

    def _refuse_end(self, reached: int, begin: int) -> BinaryIO:
        node, name = self._node, self._node.filenames[self._next]
        self._end_part()
        raise DataLossError(
            f"{node.label}: the unpacked file {name} has {reached} bytes, and its next record "
            f"begins at byte {begin}. Check `header_bytes`, or was the file replaced?"
        )

    def _refuse_length(self) -> BinaryIO:
        node, name = self._node, self._node.filenames[self._next]
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
