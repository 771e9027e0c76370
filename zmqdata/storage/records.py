"""The record format of TFRecord files: writing a file, and reading a single record.
Running pipelines over it belongs to ``operations``.

A record consists of its length (8 bytes, little endian), the masked CRC-32C of the
length (4), the content, and the masked CRC-32C of the content (4).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, BinaryIO, get_args

from zmqdata.config.checks import FileCompression
from zmqdata.errors import DataLossError
from zmqdata.files.paths import FileName, local_path
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.recipes import names_arguments
from zmqdata.storage.checksums import Bytes, masked_crc32c
from zmqdata.storage.packed import zstandard_module

_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")
COMPRESSION_TYPES = get_args(FileCompression)


def read_record(file: BinaryIO) -> bytes | None:
    """Return the next record of a file, or None at its end.

    Raises:
        DataLossError: the file ends within a record, or a checksum does not match.
    """
    head = file.read(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise DataLossError(
            f"truncated record: {len(head)} bytes are left, and the header of a "
            f"record has {_HEAD.size}"
        )
    length, checksum = _HEAD.unpack(head)
    if masked_crc32c(head[:8]) != checksum:
        raise DataLossError(
            "corrupted record: the checksum of its length does not match. Is this a TFRecord file?"
        )
    content = file.read(length)
    foot = file.read(_FOOT.size)
    if len(content) < length or len(foot) < _FOOT.size:
        raise DataLossError(
            f"truncated record: {len(content)} bytes are left of {length} and a checksum"
        )
    if masked_crc32c(content) != _FOOT.unpack(foot)[0]:
        raise DataLossError(f"corrupted record: the checksum of its {length} bytes does not match")
    return content


def as_record(content: Bytes) -> bytes:
    """Return bytes in the form of a record.

    >>> len(as_record(b"abc"))
    19
    """
    length = struct.pack("<Q", len(content))
    return b"".join(
        (length, _FOOT.pack(masked_crc32c(length)), content, _FOOT.pack(masked_crc32c(content)))
    )


class TFRecordWriter:
    """Writer of a TFRecord file. An existing file is overwritten.

    Args:
        path: name of the file.
        options: the compression, ``""`` or None, ``"GZIP"``, ``"ZLIB"`` or ``"ZSTD"``.

    Raises:
        ValueError: the compression is unknown.
        UnimplementedError: the name is a URL of another file system.
        ImportError: ``"ZSTD"`` needs ``pip install 'zmqdata[zstd]'``.

    >>> import tempfile, os, zmqdata
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers.tfrecord")
    >>> with TFRecordWriter(path) as writer:
    ...     writer.write(b"one")
    ...     writer.write(b"two")
    >>> list(zmqdata.TFRecordDataset(path))
    [b'one', b'two']

    Equivalent of ``tf.io.TFRecordWriter``.
    """

    @names_arguments
    def __init__(self, path: FileName, options: FileCompression | None = None) -> None:
        if (options or "") not in COMPRESSION_TYPES:
            raise ValueError(f'options must be "", "GZIP", "ZLIB" or "ZSTD", got {options!r}')
        self._packer: Any = None
        if options == "ZSTD":
            self._packer = zstandard_module().ZstdCompressor(write_checksum=True).compressobj()
        elif options:
            self._packer = zlib.compressobj(wbits=zlib.MAX_WBITS | (16 if options == "GZIP" else 0))
        remedy = "Write the file locally and copy it, or mount the file system"
        name = local_path("TFRecordWriter", path, remedy)
        with shortage_explained(f"the file {name}"):
            self._file = open(name, "wb")  # noqa: SIM115 - closed by close()

    def write(self, record: Bytes) -> None:
        """Append a record.

        Raises:
            TypeError: the record is not bytes-like.
        """
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"a record must be bytes, got a {type(record).__name__}; encode it first"
            )
        self._write(as_record(record))

    def _write(self, content: bytes) -> None:
        self._file.write(content if self._packer is None else self._packer.compress(content))

    def flush(self) -> None:
        """Pass the written bytes to the operating system. For a compressed file, some
        bytes may stay buffered until ``close``.
        """
        self._file.flush()

    def close(self) -> None:
        """Finish the file. Idempotent."""
        if self._file.closed:
            return
        if self._packer is not None:
            self._file.write(self._packer.flush())
        self._file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
