"""Tests of ``zmqdata.blocks.compression``: codecs, their choice, and false chunks."""

from __future__ import annotations

import contextlib
import gc
import logging
import struct
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.blocks import Compression, compression
from zmqdata.blocks.choosing import Packing
from zmqdata.blocks.compression import (
    CODECS,
    MIN_BYTES,
    SHUFFLES,
    Bytes,
    decode_buffer,
    empty_aligned,
    encode_buffer,
    packing_of,
    validate_compression,
)
from zmqdata.errors import MissingCodecError, ProtocolError

TOKENS = memoryview(np.arange(4096, dtype=np.int64).view(np.uint8))
LZ4, ZSTD = packing_of("lz4", 8), packing_of("zstd", 8)
NOISE = memoryview(np.random.default_rng(7).integers(0, 256, 32768, np.uint8))


@pytest.mark.parametrize("value", ["AUTO", None, *CODECS])
def test_known_compressions_are_accepted(value: str | None) -> None:
    """AUTO, None and the name of each codec in blosc are accepted unchanged."""
    assert validate_compression(value) == value


@pytest.mark.parametrize("value", ["", "gzip", "auto", "LZ4", 1, True, b"lz4"])
def test_unknown_compressions_are_refused(value: object) -> None:
    """Any other value raises tf.data's ValueError with the list of accepted values."""
    with pytest.raises(ValueError, match=r"Invalid `compression` argument.*'AUTO', None, .*'lz4'"):
        validate_compression(value)


def test_names_of_tfdata_stand_for_codecs() -> None:
    """GZIP and ZLIB mean zlib, and SNAPPY means lz4."""
    assert [validate_compression(name) for name in ("GZIP", "ZLIB", "SNAPPY")] == [
        "zlib",
        "zlib",
        "lz4",
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("typesize", [0, 1, 8, 4000])
def test_compressed_buffer_comes_back(codec: str, typesize: int) -> None:
    """Each codec and shuffle shrinks bytes and restores them aligned and writable."""
    frame, chunks = encode_buffer(TOKENS, packing_of(codec, typesize), typesize)
    buffer = decode_buffer(memoryview(frame), TOKENS.nbytes, chunks, own=False)
    assert bytes(buffer) == bytes(TOKENS)
    assert len(frame) < TOKENS.nbytes
    assert buffer.flags.writeable
    assert buffer.ctypes.data % 64 == 0


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("typesize", [1, 2, 8])
def test_any_filter_suits_any_type(shuffle: str, typesize: int) -> None:
    """A filter that is unusual for an item size also restores the bytes."""
    frame, chunks = encode_buffer(TOKENS, Packing("lz4", shuffle), typesize)
    assert bytes(decode_buffer(memoryview(frame), TOKENS.nbytes, chunks, own=False)) == bytes(
        TOKENS
    )


@given(
    raw=st.binary(max_size=5000),
    max_chunk=st.integers(300, 3000),
    codec=st.sampled_from([None, *CODECS]),
)
def test_any_bytes_come_back_in_any_number_of_chunks(
    raw: bytes, max_chunk: int, codec: str | None
) -> None:
    """Decoding restores any bytes, however they are divided into chunks."""
    raw = raw * 3
    packing = None if codec is None else packing_of(codec, 1)
    frame, chunks = encode_buffer(memoryview(raw), packing, 1, max_chunk=max_chunk)
    assert bytes(decode_buffer(memoryview(frame), len(raw), chunks, own=True)) == raw


def test_large_buffers_are_cut() -> None:
    """A buffer beyond the limit of a single call becomes several chunks."""
    frame, chunks = encode_buffer(TOKENS, ZSTD, 8, max_chunk=10_000)
    assert len(chunks) == 4
    assert sum(chunks) == len(frame)


@pytest.mark.parametrize(
    "buffer", [NOISE, TOKENS[: MIN_BYTES - 1]], ids=["incompressible", "small"]
)
def test_compression_that_does_not_pay_is_left_out(buffer: memoryview) -> None:
    """Noise and small buffers are sent raw."""
    assert encode_buffer(buffer, LZ4, 1) == (buffer, ())


def test_raw_frame_is_copied_only_on_demand() -> None:
    """A raw frame is read in place unless the caller needs to own the result."""
    frame = memoryview(bytes(100))
    assert not decode_buffer(frame, 100, (), own=False).flags.writeable
    owned = decode_buffer(frame, 100, (), own=True)
    assert owned.flags.writeable
    assert owned.ctypes.data % 64 == 0


def _lie(offset: int, value: int) -> tuple[memoryview, tuple[int, ...]]:
    frame, chunks = encode_buffer(TOKENS, LZ4, 8)
    damaged = bytearray(frame)
    struct.pack_into("<I", damaged, offset, value)
    return memoryview(damaged), chunks


@pytest.mark.parametrize("value", [0, 1, 16, 32767, 32769, 2**31, 2**32 - 1])
@pytest.mark.parametrize("offset", [4, 8, 12], ids=["nbytes", "blocksize", "cbytes"])
def test_chunk_that_lies_about_its_sizes_is_refused(offset: int, value: int) -> None:
    """The decoder compares a chunk's claims with the announcement before decompressing
    it.
    """
    frame, chunks = _lie(offset, value)
    with pytest.raises(ProtocolError):
        decode_buffer(frame, TOKENS.nbytes, chunks, own=False)


@pytest.mark.parametrize("chunks", [(1,), (16,), (-1, 17), (0,), (10**9,), (20, 20)])
def test_sizes_of_chunks_must_add_up(chunks: tuple[int, ...]) -> None:
    """Chunk sizes that do not add up to the frame's size are rejected."""
    frame, _ = encode_buffer(TOKENS, LZ4, 8)
    with pytest.raises(ProtocolError):
        decode_buffer(memoryview(frame), TOKENS.nbytes, chunks, own=False)


@pytest.mark.parametrize("nbytes", [0, 99, 101])
def test_raw_frame_must_have_the_announced_size(nbytes: int) -> None:
    """A raw frame whose size differs from the announced size is rejected."""
    with pytest.raises(ProtocolError, match="announced"):
        decode_buffer(memoryview(bytes(100)), nbytes, (), own=False)


def test_impossible_allocation_is_a_protocol_error() -> None:
    """An announced size beyond the available memory is a ProtocolError."""

    def room(nbytes: int) -> Bytes:
        return empty_aligned(nbytes << 50)

    with pytest.raises(
        ProtocolError, match="announced 4096 bytes, for which there is not enough memory"
    ):
        decode_buffer(memoryview(bytes(4096)), 4096, (), own=True, room=room)


@given(st.data())
def test_damaged_chunks_decode_or_are_refused(data: st.DataObject) -> None:
    """A changed chunk decodes to other bytes or raises ProtocolError, nothing else."""
    codec = data.draw(st.sampled_from(CODECS))
    frame, chunks = encode_buffer(TOKENS[:8000], packing_of(codec, 8), 8)
    damaged = bytearray(frame)
    for place in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=8)):
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        assert decode_buffer(memoryview(damaged), 8000, chunks, own=False).size == 8000


def test_decoding_keeps_nothing_of_the_frame() -> None:
    """Decoding keeps no reference to the frame, even after an error."""
    frame, chunks = encode_buffer(memoryview(bytes(10_000)), LZ4, 8)
    good, bad = bytearray(frame), bytearray(frame)
    bad[0] = 9
    before = [sys.getrefcount(good), sys.getrefcount(bad)]
    for _ in range(50):
        decode_buffer(memoryview(good), 10_000, chunks, own=True)
        with pytest.raises(ProtocolError):
            decode_buffer(memoryview(bad), 10_000, chunks, own=True)
    gc.collect()
    assert [sys.getrefcount(good), sys.getrefcount(bad)] == before


@pytest.mark.parametrize(("place", "value"), [(0, 1), (3, 0), (8, 0), (11, 255), (4, 255), (12, 1)])
def test_a_header_that_cannot_be_is_refused(place: int, value: int) -> None:
    """A chunk with an invalid format or size in its header is rejected before
    decompression. The test covers format, item size, block size, raw size and chunk
    size.
    """
    frame, chunks = encode_buffer(memoryview(bytes(10_000)), LZ4, 8)
    damaged = bytearray(frame)
    damaged[place : place + 1] = bytes([value])
    if place == 8:
        damaged[8:12] = bytes(4)
    with pytest.raises(ProtocolError):
        decode_buffer(memoryview(damaged), 10_000, chunks, own=True)


# --- without blosc


@pytest.fixture
def no_blosc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide blosc from this process for the duration of a test."""
    compression.warn_of_missing_codec.cache_clear()
    monkeypatch.setattr(compression, "blosc", None)
    yield
    compression.warn_of_missing_codec.cache_clear()


def test_the_package_imports_without_blosc() -> None:
    """The package imports without blosc, and its codecs keep their names."""
    program = (
        "import sys; sys.modules['blosc'] = None\n"
        "import zmqdata.dataset, zmqdata.client.distribute, zmqdata.worker.server\n"
        "from zmqdata import blocks\nprint(blocks.can_compress(), *blocks.CODECS)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["False", *CODECS]
    assert said.stderr == ""


@pytest.mark.parametrize("value", CODECS)
def test_without_blosc_a_codec_means_none(
    value: str, no_blosc: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Without blosc a named codec is accepted, and blocks stay raw. A single warning
    per process names the package and the remedy.
    """
    assert validate_compression(value) == value
    for _ in range(2):
        stream = Compression(value)
        assert stream.leaves_all()
        assert stream.encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
        assert stream.shown == ""
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "`blosc` is not installed" in record.message
    assert "pip install blosc" in record.message


def test_without_blosc_auto_warns_where_it_would_compress(
    no_blosc: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Without blosc "AUTO" warns on links and in files, but not on a single host."""
    ticks = iter(range(1_000))
    stream = Compression("AUTO", clock=lambda: float(next(ticks)))
    assert stream.leaves_all()
    assert Compression(None).leaves_all()
    assert caplog.records == []
    stream.speed = 1e8
    assert stream.encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
    assert Compression("AUTO").leaves_all()
    assert len(caplog.records) == 1


def test_without_blosc_compressed_bytes_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without blosc only raw bytes decode; compressed bytes raise and name blosc."""
    frame, chunks = encode_buffer(TOKENS, LZ4, 8)
    monkeypatch.setattr(compression, "blosc", None)
    with pytest.raises(MissingCodecError, match=r"pip install blosc"):
        decode_buffer(memoryview(frame), TOKENS.nbytes, chunks, own=False)
    assert bytes(decode_buffer(TOKENS, TOKENS.nbytes, (), own=False)) == bytes(TOKENS)
