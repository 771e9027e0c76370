"""Tests of ``zmqdata.storage.chunks``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from zmqdata.blocks import compression as codecs
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import DataLossError, FailedPreconditionError, PermissionDeniedError
from zmqdata.storage import chunks, reading
from zmqdata.storage.chunks import ChunkReader, ChunkWriter
from zmqdata.storage.manifests import Chunk, Manifest, read_manifest, spec_text, write_manifest


def filled(
    folder: Path, counts: tuple[int, ...] = (5, 3), compression: str | None = None
) -> Manifest:
    """Return a folder with chunks of small numbers, two per block."""
    made = []
    for index, count in enumerate(counts):
        writer = ChunkWriter(str(folder / f"{index}.chunk"), compression)
        for number in range(count):
            writer.add({"x": np.full(3, number), "n": index})
            if number % 2:
                writer.flush()
        made.append(writer.finish())
    manifest = Manifest("run", compression, spec_text(TensorSpec((), "int8")), tuple(made))
    write_manifest(str(folder), manifest)
    return manifest


def numbers(reader: ChunkReader) -> list[tuple[int, int]]:
    return [(element["n"], int(element["x"][0])) for element in reader]


EIGHT = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("compression", [None, "AUTO", "zstd"])
def test_elements_come_back_in_order(tmp_path: Path, compression: str | None) -> None:
    """Elements of several chunks are read in order after the manifest names the
    chunks.
    """
    made = filled(tmp_path, compression=compression)
    assert read_manifest(str(tmp_path)) == made
    manifest = read_manifest(str(tmp_path))
    assert (manifest.elements, manifest.element_spec) == (8, TensorSpec((), "int8"))
    assert numbers(ChunkReader(str(tmp_path), manifest.chunks)) == EIGHT


def test_reading_goes_on_from_any_place(tmp_path: Path) -> None:
    """A state is a position in a file, and skipping leaves whole chunks unread."""
    manifest = filled(tmp_path)
    reader = ChunkReader(str(tmp_path), manifest.chunks)
    for step in range(9):
        other, skipped = (
            ChunkReader(str(tmp_path), manifest.chunks),
            ChunkReader(str(tmp_path), manifest.chunks),
        )
        other.restore(reader.state())
        skipped.skip(step)
        assert numbers(other) == numbers(skipped) == EIGHT[step:]
        next(reader, None)
    assert next(reader, "ended") == "ended"
    reader.close()


def test_large_and_many_elements_make_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block ends at its maximum size or number of elements, or at a new structure."""
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 100)
    monkeypatch.setattr(chunks, "BLOCK_ELEMENTS", 3)
    writer = ChunkWriter(str(tmp_path / "a.chunk"), None)
    pending = []
    for element in (1, 2, 3, np.zeros(20), 4, "text"):
        writer.add(element)
        pending.append(writer.pending)
    assert pending == [1, 2, 0, 0, 1, 1]
    made = writer.finish()
    assert made == Chunk("a.chunk", 6, (tmp_path / "a.chunk").stat().st_size)
    assert list(ChunkReader(str(tmp_path), [made]))[4:] == [4, "text"]


def test_writing_goes_on_behind_a_place(tmp_path: Path) -> None:
    """A chunk reopened at an offset is truncated there and continues from it."""
    writer = ChunkWriter(str(tmp_path / "a.chunk"), None)
    writer.add(1)
    writer.flush()
    at = writer.elements, writer.nbytes
    writer.add(2)
    writer.finish()
    again = ChunkWriter(str(tmp_path / "a.chunk"), None, at)
    again.add(3)
    made = again.finish()
    assert list(ChunkReader(str(tmp_path), [made])) == [1, 3]


@pytest.mark.parametrize("place", [0, 4, 8, 16, 30, -1])
def test_a_changed_byte_is_data_loss_and_the_next_chunk_follows(tmp_path: Path, place: int) -> None:
    """A changed byte in a chunk is a single DataLossError; all other elements are
    read.
    """
    manifest = filled(tmp_path, (2, 1))
    damaged = bytearray((tmp_path / "0.chunk").read_bytes())
    damaged[place] ^= 1
    (tmp_path / "0.chunk").write_bytes(damaged)
    reader = ChunkReader(str(tmp_path), manifest.chunks)
    with pytest.raises(DataLossError, match=r"0.chunk is damaged"):
        next(reader)
    assert numbers(reader) == [(1, 0)]


def test_a_truncated_or_missing_chunk_is_data_loss(tmp_path: Path) -> None:
    """A chunk with the wrong length and a missing chunk raise DataLossError."""
    manifest = filled(tmp_path, (2, 2, 1))
    content = (tmp_path / "0.chunk").read_bytes()
    (tmp_path / "0.chunk").write_bytes(content[:-1])
    (tmp_path / "1.chunk").unlink()
    reader = ChunkReader(str(tmp_path), manifest.chunks)
    with pytest.raises(
        DataLossError, match=r"0.chunk is damaged: it has \d+ bytes, but \d+ were written"
    ):
        next(reader)
    with pytest.raises(DataLossError, match=r"1.chunk is damaged: .*No such file"):
        next(reader)
    assert numbers(reader) == [(2, 0)]


@pytest.fixture
def memory() -> Iterator[str]:
    """Return the URL of an empty folder in fsspec's memory."""
    yield "memory://b/x"
    fsspec.filesystem("memory").store.clear()


def test_a_chunk_in_a_store_is_visible_as_a_whole(memory: str) -> None:
    """Nothing is there until a writer has finished. What it leaves without that is
    nothing.
    """
    kept, left = (ChunkWriter(f"{memory}/{name}.chunk", None) for name in ("kept", "left"))
    for writer in (kept, left):
        for number in range(5):
            writer.add(np.int64(number))
        writer.flush()
    store = fsspec.filesystem("memory")
    assert store.find("/b") == []
    left.close()
    chunk = kept.finish()
    assert store.find("/b") == ["/b/x/kept.chunk"]
    reader, other = ChunkReader(memory, [chunk]), ChunkReader(memory, [chunk])
    first = next(reader)
    other.restore(reader.state())
    assert [int(first), *map(int, other)] == [0, *map(int, reader)] == list(range(5))


def test_a_store_that_fails_is_no_damage(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is refused is an error of its own, and the next call reads the
    same block. An object that vanishes is damage.
    """
    monkeypatch.setattr(chunks, "BLOCK_ELEMENTS", 3)
    writer = ChunkWriter(f"{memory}/a.chunk", None)
    for number in range(5):
        writer.add(np.int64(number))
    chunk = writer.finish()
    reader = ChunkReader(memory, [chunk])
    store = type(fsspec.filesystem("memory"))
    cat, refusals = store.cat_file, iter([True, False, True])

    def cat_file(*given: Any, **options: Any) -> Any:
        if next(refusals, False):
            raise PermissionError("no")
        return cat(*given, **options)

    monkeypatch.setattr(store, "cat_file", cat_file)
    for _ in range(2):
        with pytest.raises(PermissionDeniedError, match=r"a\.chunk"):
            next(reader)
    assert list(map(int, reader)) == list(range(5))
    monkeypatch.setattr(store, "cat_file", cat)
    monkeypatch.setattr(reading, "BLOCK", 16)
    gone = ChunkReader(memory, [chunk])
    assert [int(next(gone)) for _ in range(3)] == [0, 1, 2]
    fsspec.filesystem("memory").store.clear()
    with pytest.raises(DataLossError, match=r"memory://b/x/a\.chunk is damaged: .* not be read"):
        next(gone)


def test_a_block_with_a_good_checksum_may_still_be_nonsense(tmp_path: Path) -> None:
    """Bytes that never were a block raise DataLossError even with a valid checksum."""
    head = chunks.HEAD
    for header in (b"\x01", b"\x92\xc4\x01\x00\x90"):
        content = head.pack(b"zqb1", len(header), 0, chunks.zlib.crc32(header)) + header
        (tmp_path / "a.chunk").write_bytes(content)
        manifest = Manifest("r", None, None, (Chunk("a.chunk", 1, len(content)),))
        with pytest.raises(DataLossError, match="a block cannot be read"):
            next(ChunkReader(str(tmp_path), manifest.chunks))


def test_compressed_chunks_need_blosc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed chunk without blosc is not data loss. The error names file, package
    and remedy, and uncompressed chunks are read.
    """
    made = []
    for index, codec in enumerate(["lz4", None]):
        writer = ChunkWriter(str(tmp_path / f"{index}.chunk"), codec)
        writer.add(np.full(5_000, index))
        made.append(writer.finish())
    monkeypatch.setattr(codecs, "blosc", None)
    reader = ChunkReader(str(tmp_path), made)
    with pytest.raises(
        FailedPreconditionError, match=r"0\.chunk cannot be read here.*`blosc`"
    ) as it:
        next(reader)
    assert "pip install blosc" in str(it.value)
    assert "Remove the folder" not in str(it.value)
    assert int(next(reader)[0]) == 1
    reader.close()


def test_chunks_written_without_blosc_are_read_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without blosc a chunk with a named codec is written raw with a warning. It is
    read like any other chunk.
    """
    codecs.warn_of_missing_codec.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(codecs, "blosc", None)
        manifest = filled(tmp_path, compression="zstd")
    codecs.warn_of_missing_codec.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert numbers(ChunkReader(str(tmp_path), manifest.chunks)) == EIGHT
