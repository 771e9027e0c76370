"""Packed files: recognizing them by their name and content, and reading what they
hold.
"""

from __future__ import annotations

import io
import re
import zlib
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from zmqdata.errors import DataLossError

HEAD = 16
"""Number of bytes that tell how a file is packed."""
ENDINGS = {".gz": "GZIP", ".zst": "ZSTD", ".bz2": "BZ2", ".xz": "XZ"}
"""Compressions by the ends of names."""
# No JSON begins in one of these ways. Text may begin as BZ2 or a skippable frame of
# ZSTD does, and in other ways of zlib.
_STARTS = {
    "GZIP": re.compile(rb"\x1f\x8b\x08"),
    "ZLIB": re.compile(rb"x(?:\x9c|\xda[^\x80-\xbf])", re.DOTALL),
    "ZSTD": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "BZ2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "XZ": re.compile(rb"\xfd7zXZ\0"),
}
# zstd has no limit for what it returns of a piece, which may be 30,000 times as long.
_PIECES = {"ZSTD": 1 << 14}
_PIECE = 1 << 16
_LONGEST_WINDOW = 1 << 31  # of `zstd --long=31`


def compression_of(head: bytes) -> str:
    """Return the compression of a file that begins with these bytes; "" if it is plain.

    >>> compression_of(zlib.compress(b"text")), compression_of(b"text")
    ('ZLIB', '')
    """
    return next((name for name, start in _STARTS.items() if start.match(head)), "")


def compression_by_name(name: str) -> str:
    """Return the compression that the end of a file name or URL stands for; "" for
    none.

    >>> compression_by_name("https://host/a.jsonl.gz?signature=x")
    'GZIP'
    """
    path = urlsplit(name).path if name.startswith(("http://", "https://")) else name
    return next((kind for end, kind in ENDINGS.items() if path.lower().endswith(end)), "")


def zstandard_module() -> Any:
    """Return the module of zstd.

    Raises:
        ImportError: it is not installed; the text names the extra.
    """
    try:
        import zstandard
    except ImportError as error:
        raise ImportError(
            f"zstd needs the package zstandard, which cannot be imported: {error}. Run "
            "`pip install 'zmqdata[zstd]'` here and on the machine of each worker"
        ) from error
    return zstandard


def _new_stream(compression: str) -> Any:
    """Return an object that unpacks a single member of a packed file."""
    if compression == "ZSTD":
        unpacker = zstandard_module().ZstdDecompressor(max_window_size=_LONGEST_WINDOW)
        return unpacker.decompressobj()
    # Some builds of Python lack these two modules.
    if compression == "BZ2":
        from bz2 import BZ2Decompressor

        return BZ2Decompressor()
    if compression == "XZ":
        from lzma import LZMADecompressor

        return LZMADecompressor()
    return zlib.decompressobj(zlib.MAX_WBITS | (16 if compression == "GZIP" else 0))


class PackedFile(io.RawIOBase):
    """Content of a packed file, of all its members or frames in turn. It seeks forward
    by reading.

    Args:
        file: the packed file, which is closed with this one.
        compression: ``"GZIP"``, ``"ZLIB"``, ``"ZSTD"``, ``"BZ2"`` or ``"XZ"``.

    Raises:
        ImportError: the module of the compression is missing.
    """

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._file, self._compression = file, compression
        self._stream = _new_stream(compression)
        self._packed = b""  # bytes of the file that the stream did not get
        self._ready = memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if self._stream.eof and not self._begin_member():
                return 0
            self._ready = memoryview(self._unpacked(len(buffer)))
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        self._position += count
        return count

    def _begin_member(self) -> bool:
        """Go to the next member; return False at the end of the file."""
        rest = self._stream.unused_data
        while not (rest := rest.lstrip(b"\0")):  # members may be padded
            rest = self._read()
            if not rest:
                return False
        self._stream, self._packed = _new_stream(self._compression), rest
        return True

    def _read(self) -> bytes:
        return self._file.read(_PIECES.get(self._compression, _PIECE))

    def _unpacked(self, size: int) -> bytes:
        """Return some of the content; not more than a size, except of zstd."""
        stream = self._stream
        packed = getattr(stream, "unconsumed_tail", b"")
        if not packed and getattr(stream, "needs_input", True):
            packed, self._packed = self._packed or self._read(), b""
            if not packed:
                raise DataLossError(
                    f"{self._file.name} ends in the middle of its {self._compression} stream. It "
                    "was cut off, or is still being written. Write the whole file again"
                )
        try:
            sizes = () if self._compression == "ZSTD" else (size,)
            return bytes(stream.decompress(packed, *sizes))
        except Exception as error:
            raise DataLossError(
                f"{self._file.name} cannot be unpacked as {self._compression} behind byte "
                f"{self._position} of its content: {error}. It is damaged, or packed otherwise"
            ) from error

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise io.UnsupportedOperation("a packed file can only be read forward")
        while self._position < offset and self.read(min(_PIECE, offset - self._position)):
            pass
        return self._position

    def close(self) -> None:
        self._file.close()
        super().close()
