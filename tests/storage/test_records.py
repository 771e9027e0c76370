"""Tests of ``zmqdata.storage.records``."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import pytest
import zstandard

from zmqdata.errors import DataLossError
from zmqdata.storage.checksums import masked_crc32c
from zmqdata.storage.records import TFRecordWriter, as_record, read_record

CONTENTS = [b"one", b"", bytes(5000)]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Records are read back in order, then None; closing twice is allowed."""
    with TFRecordWriter(tmp_path / "a") as writer:
        for content in CONTENTS:
            writer.write(content)
        writer.flush()
    writer.close()
    with open(tmp_path / "a", "rb") as file:
        assert [read_record(file) for _ in range(4)] == [*CONTENTS, None]


@pytest.mark.parametrize(
    ("options", "unpack"),
    [
        ("GZIP", gzip.decompress),
        ("ZLIB", zlib.decompress),
        ("ZSTD", lambda packed: zstandard.ZstdDecompressor().decompressobj().decompress(packed)),
    ],
)
def test_compressed_files(tmp_path: Path, options: str, unpack: object) -> None:
    """A compressed file holds the same bytes in the standard container."""
    with TFRecordWriter(tmp_path / "a", options) as writer:
        writer.write(b"one")
    assert callable(unpack)
    assert unpack((tmp_path / "a").read_bytes()) == as_record(b"one")


def test_what_lies_around_a_record() -> None:
    """A record consists of length, length checksum, content and content checksum, in
    little endian.
    """
    record = as_record(b"123456789")
    assert record[:8] == (9).to_bytes(8, "little")
    assert record[8:12] == masked_crc32c(record[:8]).to_bytes(4, "little")
    assert record[12:] == b"123456789" + 0xC78AB0E5.to_bytes(4, "little")


@pytest.mark.parametrize("length", [3, 12, 14, 18])
def test_a_truncated_record_is_data_loss(length: int) -> None:
    """A file that ends within a record is damaged, wherever it ends."""
    with pytest.raises(DataLossError, match="truncated record"):
        read_record(io.BytesIO(as_record(b"abc")[:length]))


@pytest.mark.parametrize(
    ("place", "text"), [(0, "its length"), (9, "its length"), (13, "3 bytes"), (16, "3 bytes")]
)
def test_a_changed_byte_is_data_loss(place: int, text: str) -> None:
    """A changed byte fails the checksum of the length or of the content."""
    damaged = bytearray(as_record(b"abc"))
    damaged[place] ^= 1
    with pytest.raises(DataLossError, match=f"corrupted record: .*{text}"):
        read_record(io.BytesIO(damaged))


def test_bad_arguments(tmp_path: Path) -> None:
    """An unknown compression and a text record are rejected."""
    with pytest.raises(ValueError, match="GZIP"):
        TFRecordWriter(tmp_path / "a", "BZ2")
    with TFRecordWriter(tmp_path / "a") as writer, pytest.raises(TypeError, match="got a str"):
        writer.write("text")  # type: ignore[arg-type]
