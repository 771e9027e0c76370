"""Compression of column buffers with blosc, and decompression. ``adaptive`` finds out
what pays.

A frame is either the buffer itself or a sequence of blosc chunks; the column's list of
chunk sizes says which. The sizes in a chunk's header are compared with what the block
announced before any decompression.

blosc is optional: it has no wheel for the newest versions of Python. Without it the
only codec is None, and blocks are sent and saved uncompressed.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct as Layout
from typing import Any, TypeAlias

import numpy as np

from zmqdata.blocks.choosing import Packing
from zmqdata.errors import MissingCodecError, ProtocolError

try:
    import blosc
except ImportError:
    blosc = None
else:
    # A single thread per call: with the GIL released, blosc would otherwise start and
    # join a thread pool for each chunk.
    blosc.set_releasegil(True)
    blosc.set_nthreads(1)

log = logging.getLogger(__name__)

Buffer: TypeAlias = "bytes | memoryview"
Encoded: TypeAlias = "tuple[Buffer, tuple[int, ...]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Room: TypeAlias = Callable[[int], Bytes]
"""Allocates the requested number of writable bytes, aligned to 64."""

CODECS: tuple[str, ...] = (
    ("blosclz", "lz4", "lz4hc", "zlib", "zstd") if blosc is None else tuple(blosc.compressor_list())
)
"""Their names. Without blosc they are still accepted, so that one program runs with and
without it.
"""
ALIASES = {"GZIP": "zlib", "ZLIB": "zlib", "SNAPPY": "lz4"}
"""The names of tf.data, and the codecs that take their place. blosc's snappy is missing
in many of its builds, and lz4 is faster.
"""
MIN_BYTES = 1024
"""Smaller columns are sent uncompressed."""
MAX_CHUNK = 2_147_483_631
"""blosc's limit of bytes in a call."""
ALIGNMENT = 64
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""blosc's filters, in the order of their numbers."""

_LEVELS = {"zstd": 1, "zlib": 1}
_FORMAT = 2  # of blosc's chunks; chunks of another format are rejected
# Versions of format and codec, flags, typesize, raw bytes, block bytes, chunk bytes.
_HEADER = Layout("<BBBBIII")


def can_compress() -> bool:
    """True if blosc is installed in this process, so that codecs other than None
    exist.
    """
    return blosc is not None


@cache
def warn_of_missing_codec() -> None:
    """Say once in this process that nothing is compressed, why, and what to do."""
    log.warning(
        "Nothing is compressed by this process, though it was asked for or would pay: the package "
        "`blosc` is not installed for Python %s. Elements are sent and saved as they are. Install "
        "it with `pip install blosc`, if there is a wheel for this version of Python, or say "
        "`compression=None`.",
        platform.python_version(),
    )


def validate_compression(value: object) -> str | None:
    """Check the value of a ``compression`` argument.

    A codec's name is accepted without blosc, too; then it means None, and is warned of.

    Args:
        value: "AUTO", None, the name of a blosc codec, or a name of tf.data: "GZIP",
            "ZLIB" or "SNAPPY".

    Returns:
        The same value; for a name of tf.data, the codec that takes its place.

    Raises:
        ValueError: the value is none of these; the text begins as tf.data's does.

    >>> validate_compression("lz4"), validate_compression("GZIP")
    ('lz4', 'zlib')
    """
    found = ALIASES.get(value, value) if isinstance(value, str) else value
    if found is None or (isinstance(found, str) and (found == "AUTO" or found in CODECS)):
        if found not in (None, "AUTO") and not can_compress():
            warn_of_missing_codec()
        return found
    allowed = ", ".join(repr(choice) for choice in ("AUTO", None, *CODECS, *ALIASES))
    raise ValueError(f"Invalid `compression` argument: {value!r}. Must be one of {allowed}.")


def packing_of(codec: str, typesize: int) -> Packing:
    """Return a codec with the filter that usually suits items of ``typesize`` bytes; 0
    stands for text.

    >>> str(packing_of("zstd", 8))
    'zstd+shuffle'
    """
    return Packing(
        codec, "noshuffle" if typesize == 0 else "bitshuffle" if typesize == 1 else "shuffle"
    )


def compress(buffer: memoryview, packing: Packing, typesize: int) -> bytes:
    """Compress a chunk of at most `MAX_CHUNK` bytes, with the GIL released."""
    size = typesize if 1 <= typesize <= blosc.MAX_TYPESIZE else 1
    level, shuffle = _LEVELS.get(packing.codec, 5), SHUFFLES.index(packing.shuffle)
    packed: bytes = blosc.compress(buffer, size, level, shuffle, packing.codec)
    return packed


def decompress(chunk: Buffer, address: int) -> int:
    """Write what a chunk holds to an address that has room for it; return how many
    bytes.
    """
    written: int = blosc.decompress_ptr(chunk, address)
    return written


def encode_buffer(
    buffer: memoryview, packing: Packing | None, typesize: int, *, max_chunk: int = MAX_CHUNK
) -> Encoded:
    """Return the frame of a buffer and the sizes of its chunks, which are empty if the
    frame is the buffer itself.

    Args:
        buffer: flat bytes.
        packing: codec and filter, or None.
        typesize: bytes of an item, for the filters; 0 for text.
        max_chunk: bytes after which a new chunk begins.
    """
    if packing is None or buffer.nbytes < MIN_BYTES:
        return buffer, ()
    starts = range(0, buffer.nbytes, max_chunk)
    chunks = [compress(buffer[start : start + max_chunk], packing, typesize) for start in starts]
    if sum(map(len, chunks)) >= buffer.nbytes:
        return buffer, ()
    return (chunks[0] if len(chunks) == 1 else b"".join(chunks)), tuple(map(len, chunks))


def decode_buffer(
    frame: memoryview, nbytes: int, chunks: Sequence[int], *, own: bool, room: Room | None = None
) -> Bytes:
    """Return the ``nbytes`` bytes that a frame holds.

    Args:
        frame: flat bytes as received.
        nbytes: size that the block's header announced; the caller has checked it
            against its limit.
        chunks: sizes of the blosc chunks in the frame; empty if it is uncompressed.
        own: True if the result must be writable, aligned to 64 bytes and independent of
            the frame.
        room: allocates the result; None allocates fresh memory.

    Raises:
        MissingCodecError: the frame is compressed, and blosc is not installed.
        ProtocolError: frame, chunks and announced size contradict each other, or a
            chunk is damaged.
    """
    if not chunks:
        if frame.nbytes != nbytes:
            raise ProtocolError(f"a frame of {frame.nbytes} bytes was announced with {nbytes}")
        raw: Bytes = np.frombuffer(frame, np.uint8) if nbytes else np.empty(0, np.uint8)
        return copy_aligned(raw, room) if own else raw
    if not can_compress():
        raise MissingCodecError(
            f"{nbytes} bytes are compressed, and the package `blosc`, which decompresses them, is "
            f"not installed for Python {platform.python_version()}. Install it with `pip install "
            "blosc`, or use a version of Python that it has a wheel for"
        )
    _check_chunks(frame, nbytes, chunks)
    buffer = _make_room(nbytes, room)
    address = buffer.__array_interface__["data"][0]
    start = 0
    for size in chunks:
        address += _decompress(frame[start : start + size], address)
        start += size
    return buffer


def _check_chunks(frame: memoryview, nbytes: int, chunks: Sequence[int]) -> None:
    """Check that all sizes agree, so that decompression writes exactly ``nbytes`` bytes
    and reads only the frame's.
    """
    if min(chunks) < _HEADER.size or sum(chunks) != frame.nbytes:
        raise ProtocolError(
            f"{len(chunks)} chunks of {sum(chunks)} bytes were announced in a frame of "
            f"{frame.nbytes}"
        )
    start = claimed = 0
    for size in chunks:
        chunk = frame[start : start + size]
        version, _, _, typesize, raw_size, block_size, chunk_size = _HEADER.unpack_from(chunk)
        # Not by blosc.cbuffer_validate, which leaks a reference to the buffer, and with
        # it every received frame.
        fits = chunk_size == size and raw_size <= MAX_CHUNK and 1 <= block_size <= max(raw_size, 1)
        if version != _FORMAT or typesize == 0 or not fits:
            raise ProtocolError(
                f"a chunk of {size} bytes claims {chunk_size}, holding {raw_size}, or has a bad "
                "header"
            )
        start += size
        claimed += raw_size
    if claimed != nbytes:
        raise ProtocolError(f"chunks claim to hold {claimed} bytes where {nbytes} were announced")


def _decompress(chunk: memoryview, address: int) -> int:
    expected: int = _HEADER.unpack_from(chunk)[4]
    try:
        written = decompress(chunk, address)
    except Exception as error:  # blosc's own error class derives from nothing narrower
        raise ProtocolError(f"a compressed chunk is damaged: {error}") from None
    if written != expected:
        raise ProtocolError(f"a compressed chunk gave {written} bytes instead of {expected}")
    return written


def empty_aligned(nbytes: int) -> Bytes:
    """Allocate writable bytes at an address that is a multiple of 64."""
    fresh: Bytes = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -fresh.__array_interface__["data"][0] % ALIGNMENT
    return fresh[start : start + nbytes]


def _make_room(nbytes: int, room: Room | None) -> Bytes:
    try:
        return (room or empty_aligned)(nbytes)
    except MemoryError:
        raise ProtocolError(
            f"a block announced {nbytes} bytes, for which there is not enough memory"
        ) from None


def copy_aligned(raw: Bytes, room: Room | None = None) -> Bytes:
    """Copy bytes into memory owned by this process."""
    copy = _make_room(raw.size, room)
    copy[:] = raw
    return copy
