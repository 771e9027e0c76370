"""Tests of ``zmqdata.storage.packed``."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from zmqdata.errors import DataLossError
from zmqdata.storage.packed import (
    PackedFile,
    compression_by_name,
    compression_of,
    zstandard_module,
)

Pack = Callable[[bytes], bytes]
PACKS: dict[str, Pack] = {
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
    "ZSTD": zstandard.ZstdCompressor(write_checksum=True).compress,
    "BZ2": bz2.compress,
    "XZ": lzma.compress,
}
SKIPPED = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
"""Frame of zstd that holds no content."""
CONTENT = b"".join(b"%d\n" % random.Random(number).randrange(10**9) for number in range(30_000))


def opened(packed: bytes, compression: str) -> PackedFile:
    file: Any = io.BytesIO(packed)
    file.name = "a.packed"
    return PackedFile(file, compression)


@pytest.mark.parametrize("name", PACKS)
def test_members_are_read_in_turn(name: str) -> None:
    """The content of all members comes, whatever lies between them and whatever is
    asked for at a time.
    """
    pack = PACKS[name]
    members = [pack(CONTENT), pack(b""), pack(b"end")]
    assert opened(b"".join(members), name).read() == CONTENT + b"end"
    padded = opened(bytes(4).join(members) + bytes(8), name)
    assert b"".join(iter(lambda: padded.read(1000), b"")) == CONTENT + b"end"


def test_frames_without_content_are_passed_over() -> None:
    """A file of zstd may begin with such a frame, hold and end with it."""
    pack = PACKS["ZSTD"]
    packed = SKIPPED + pack(b"a") + SKIPPED + pack(b"b") + SKIPPED
    assert opened(packed, "ZSTD").read() == b"ab"
    assert compression_of(packed) == "ZSTD"


def test_frames_with_long_windows_are_read() -> None:
    """A frame may refer to content that lies 256 MB before."""
    settings = zstandard.ZstdCompressionParameters(window_log=28)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    assert opened(packer.compress(b"abc") + packer.flush(), "ZSTD").read() == b"abc"


@pytest.mark.parametrize("name", PACKS)
def test_a_file_that_was_cut_off_is_data_loss(name: str) -> None:
    """Its content is never just shorter: wherever it ends, within a member or its
    beginning, the end is an error.
    """
    packed = PACKS[name](CONTENT)
    for end in (0, 3, 20, len(packed) // 2, len(packed) - 1):
        with pytest.raises(DataLossError, match=r"a\.packed ends in the middle"):
            opened(packed[:end], name).read()
    with pytest.raises(DataLossError, match="ends in the middle"):
        opened(packed + packed[:9], name).read()


@pytest.mark.parametrize("name", PACKS)
def test_a_damaged_file_is_data_loss(name: str) -> None:
    """Rubbish before, within and behind a member is an error that names the file."""
    packed = PACKS[name](CONTENT)
    middle = bytearray(packed)
    middle[len(packed) // 2 : len(packed) // 2 + 99] = b"?" * 99
    for bad in (b"rubbish" + packed, middle, packed + b"rubbish and more of it"):
        with pytest.raises(DataLossError, match=r"a\.packed (cannot be unpacked|ends)"):
            opened(bytes(bad), name).read()


def test_seeking_goes_forward_by_reading() -> None:
    """A position behind the present one is reached, and one before it is refused."""
    file = opened(zlib.compress(CONTENT), "ZLIB")
    assert file.seek(150_003) == file.tell() == 150_003
    assert file.read(3) == CONTENT[150_003:150_006]
    with pytest.raises(io.UnsupportedOperation, match="read forward"):
        file.seek(5)
    assert file.seek(10**9) == len(CONTENT)


def test_content_tells_the_compression() -> None:
    """Each compression is recognized by its first bytes, and no text is."""
    for name, pack in PACKS.items():
        assert compression_of(pack(CONTENT)[:16]) == compression_of(pack(b"")[:16]) == name
    texts = ["", "{}", "x^2", "BZh9", "x\x01", "xڀ", "\ufeff{}", "P*M", "id,n"]
    assert [compression_of(text.encode()) for text in texts] == [""] * len(texts)


def test_names_tell_the_compression() -> None:
    """The end of a name, or of the path of a URL, stands for a compression."""
    names = ["a.jsonl.zst", "/A.GZ", "https://h/a.xz?b.gz", "s3://b/a.bz2", "a.json", "gz"]
    assert [*map(compression_by_name, names)] == ["ZSTD", "GZIP", "XZ", "BZ2", "", ""]


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without zstandard, the error names the extra."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"pip install 'zmqdata\[zstd\]'"):
        zstandard_module()
