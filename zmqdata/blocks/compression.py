"""Compresses the buffers of columns with blosc, and back. What pays is found out in
``adaptive``.

A frame is either the buffer itself or a row of blosc chunks; which of both is told by
the column's list of chunk sizes. What a chunk claims about itself is compared with what
the block announced before anything is decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import Any, TypeAlias

import blosc
import numpy as np

from zmqdata.blocks.choosing import Packing
from zmqdata.errors import ProtocolError

# One thread per call: with the GIL released blosc would otherwise start and join a pool
# of threads for each chunk.
blosc.set_releasegil(True)
blosc.set_nthreads(1)

Buffer: TypeAlias = "bytes | memoryview"
Encoded: TypeAlias = "tuple[Buffer, tuple[int, ...]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Room: TypeAlias = Callable[[int], Bytes]
"""Gives so many writable bytes, aligned to 64."""

CODECS: tuple[str, ...] = tuple(blosc.compressor_list())
MIN_BYTES = 1024
"""Smaller columns are sent as they are."""
MAX_CHUNK = 2_147_483_631
"""What blosc takes in one call."""
ALIGNMENT = 64
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""Blosc's filters, as it numbers them."""

_LEVELS = {"zstd": 1, "zlib": 1}
_FORMAT = 2  # of blosc's chunks; another one is not to be read
_HEADER = Layout(
    "<BBBBIII"
)  # versions of format and codec, flags, typesize, raw bytes, block bytes, chunk bytes


def validate_compression(value: object) -> str | None:
    """The value of a ``compression`` argument, if it is one that exists.

    Args:
        value: "AUTO", None, or the name of a blosc codec.

    Returns:
        The same value.

    Raises:
        ValueError: anything else; the text begins as tf.data's does.

    >>> validate_compression("lz4")
    'lz4'
    """
    if value is None or (isinstance(value, str) and (value == "AUTO" or value in CODECS)):
        return value
    allowed = ", ".join(repr(choice) for choice in ("AUTO", None, *CODECS))
    remark = (
        " SNAPPY is tf.data's codec; its counterpart here is 'lz4'."
        if str(value).upper() == "SNAPPY"
        else ""
    )
    raise ValueError(
        f"Invalid `compression` argument: {value!r}. Must be one of {allowed}.{remark}"
    )


def packing_of(codec: str, typesize: int) -> Packing:
    """A codec with the filter that mostly suits items of so many bytes; 0: text.

    >>> str(packing_of("zstd", 8))
    'zstd+shuffle'
    """
    return Packing(
        codec, "noshuffle" if typesize == 0 else "bitshuffle" if typesize == 1 else "shuffle"
    )


def compress(buffer: memoryview, packing: Packing, typesize: int) -> bytes:
    """One chunk of at most `MAX_CHUNK` bytes. The GIL is released meanwhile."""
    size = typesize if 1 <= typesize <= blosc.MAX_TYPESIZE else 1
    level, shuffle = _LEVELS.get(packing.codec, 5), SHUFFLES.index(packing.shuffle)
    packed: bytes = blosc.compress(buffer, size, level, shuffle, packing.codec)
    return packed


def encode_buffer(
    buffer: memoryview, packing: Packing | None, typesize: int, *, max_chunk: int = MAX_CHUNK
) -> Encoded:
    """The frame for a buffer and the sizes of its chunks; no chunks where the frame is
    the buffer itself.

    Args:
        buffer: flat bytes.
        packing: codec and filter, or None.
        typesize: bytes of one item, which filters work on; 0 for text.
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
    """The ``nbytes`` bytes that a frame holds.

    Args:
        frame: flat bytes as received.
        nbytes: what the header of the block announced; the caller has held it against
            its limit.
        chunks: sizes of the blosc chunks in the frame, none when it is raw.
        own: whether the result must be writable, aligned to 64 bytes and independent of
            the frame.
        room: where it may lie; None: in fresh memory.

    Raises:
        ProtocolError: frame, chunks and announcement contradict each other, or a chunk
            is damaged.
    """
    if not chunks:
        if frame.nbytes != nbytes:
            raise ProtocolError(f"a frame of {frame.nbytes} bytes was announced with {nbytes}")
        raw: Bytes = np.frombuffer(frame, np.uint8) if nbytes else np.empty(0, np.uint8)
        return copy_aligned(raw, room) if own else raw
    _check_chunks(frame, nbytes, chunks)
    buffer = _make_room(nbytes, room)
    address = buffer.__array_interface__["data"][0]
    start = 0
    for size in chunks:
        address += _decompress(frame[start : start + size], address)
        start += size
    return buffer


def _check_chunks(frame: memoryview, nbytes: int, chunks: Sequence[int]) -> None:
    """All sizes agree, so that decompressing writes exactly ``nbytes`` bytes and reads
    no others than the frame's.
    """
    if min(chunks) < _HEADER.size or sum(chunks) != frame.nbytes:
        raise ProtocolError(
            f"{len(chunks)} chunks of {sum(chunks)} bytes were announced in one of {frame.nbytes}"
        )
    start = claimed = 0
    for size in chunks:
        chunk = frame[start : start + size]
        version, _, _, typesize, raw_size, block_size, chunk_size = _HEADER.unpack_from(chunk)
        # By hand: blosc.cbuffer_validate keeps a reference to the buffer for ever, and
        # with it every frame received.
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
        written: int = blosc.decompress_ptr(chunk, address)
    except Exception as error:  # blosc's own error class derives from nothing narrower
        raise ProtocolError(f"a compressed chunk is damaged: {error}") from None
    if written != expected:
        raise ProtocolError(f"a compressed chunk gave {written} bytes instead of {expected}")
    return written


def empty_aligned(nbytes: int) -> Bytes:
    """Fresh writable bytes whose address is a multiple of 64."""
    fresh: Bytes = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -fresh.__array_interface__["data"][0] % ALIGNMENT
    return fresh[start : start + nbytes]


def _make_room(nbytes: int, room: Room | None) -> Bytes:
    try:
        return (room or empty_aligned)(nbytes)
    except MemoryError:
        raise ProtocolError(
            f"a block announced {nbytes} bytes, more than there is memory for"
        ) from None


def copy_aligned(raw: Bytes, room: Room | None = None) -> Bytes:
    """The same bytes in memory of our own."""
    copy = _make_room(raw.size, room)
    copy[:] = raw
    return copy
