"""Tests of the worker's files of saves: chunks are written in order, described, and
removed if unwanted.
"""

from __future__ import annotations

import errno
import io
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest

from zmqdata.blocks import BlockBuilder, EncodedBlock
from zmqdata.core.worker import events as e
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.specs import TensorSpec, decode_spec
from zmqdata.storage.chunks import ChunkReader
from zmqdata.storage.files import LocalFiles
from zmqdata.storage.manifests import SAVE, Chunk, uncommitted_path
from zmqdata.worker.chunks import ChunkThread, Specs

KEY = (1, 2)


class Desk:
    """A chunk writer and its events."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        (folder / SAVE).touch()
        self.said: Queue[Any] = Queue()
        self.writer = ChunkThread(self.said.put)
        self.writer.begin(KEY, self.path, 3)

    def write(self, chunk: int, *elements: Any, key: tuple[int, int] = KEY) -> None:
        block = built(*elements)
        self.writer.write(e.WriteBlock(*key, chunk, block.nbytes, block.meta, block.frames))

    def close_chunk(self, chunk: int, stop: int) -> None:
        self.writer.close_chunk(e.CloseChunk(*KEY, chunk, stop))

    def next(self) -> Any:
        return self.said.get(timeout=10)

    def file(self, chunk: int) -> Path:
        return Path(uncommitted_path(self.path, 3, 2, chunk))


def built(*elements: Any) -> EncodedBlock:
    builder = BlockBuilder()
    for element in elements:
        assert builder.add(element)
    return builder.build()


def specs_of(*blocks: EncodedBlock) -> Any:
    specs = Specs()
    for block in blocks:
        specs.add(block.meta, block.frames)
    return specs.spec


def test_blocks_become_a_chunk(tmp_path: Path) -> None:
    """The writer acknowledges each block. The closed chunk has all elements, and the
    writer reports its size and spec.
    """
    desk = Desk(tmp_path)
    desk.write(4, np.int64(1), np.int64(2))
    desk.write(4, np.int64(3))
    desk.close_chunk(4, 7)
    assert [desk.next(), desk.next()] == [e.BlockWritten(*KEY, 16), e.BlockWritten(*KEY, 8)]
    closed = desk.next()
    assert (closed.chunk, closed.stop, closed.size) == (4, 7, desk.file(4).stat().st_size)
    assert decode_spec(closed.spec) == TensorSpec((), np.int64)
    reader = ChunkReader(str(desk.file(4).parent), [Chunk(desk.file(4).name, 3, closed.size)])
    assert [int(x) for x in reader] == [1, 2, 3]
    desk.writer.close(10)


def test_an_attempt_that_is_stopped_leaves_no_open_chunk(tmp_path: Path) -> None:
    """A stopped attempt removes its open chunk and writes no more. Its closed chunks
    stay, as they may count already.
    """
    desk = Desk(tmp_path)
    desk.write(0, np.int64(1))
    desk.close_chunk(0, 1)
    desk.write(1, np.int64(2))
    desk.writer.stop(KEY)
    desk.write(1, np.int64(3))
    desk.writer.close(10)
    assert [path.name for path in desk.file(0).parent.iterdir()] == [desk.file(0).name]
    assert desk.said.qsize() == 3


def test_the_end_of_a_worker_leaves_no_open_chunk(tmp_path: Path) -> None:
    """The writer removes its open chunk when the worker ends."""
    desk = Desk(tmp_path)
    desk.write(0, np.int64(1))
    desk.writer.close(10)
    assert not desk.file(0).exists()


def test_a_writer_that_never_wrote_ends_at_once(tmp_path: Path) -> None:
    """A writer starts no thread without a task that is saved."""
    ChunkThread(print).close(0)


def test_a_chunk_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    """The writer reports the file system's error once, and writes nothing more for the
    task.
    """
    desk = Desk(tmp_path)
    (tmp_path / "streams").touch()
    desk.write(0, np.int64(1))
    failed = desk.next()
    assert (type(failed), failed.error) == (e.WriteFailed, "UnavailableError")
    assert "NotADirectoryError" in failed.text or "FileExistsError" in failed.text
    desk.write(0, np.int64(2))
    desk.writer.close(10)
    assert desk.said.empty()


def test_elements_that_do_not_fit_together_are_told(tmp_path: Path) -> None:
    """A chunk cannot hold elements of different dtypes, as no spec would describe
    them.
    """
    desk = Desk(tmp_path)
    desk.write(0, np.int64(1))
    desk.write(0, np.float32(1))
    desk.next()
    failed = desk.next()
    assert failed.error == "InvalidArgumentError"
    assert failed.text.startswith(
        "The elements of a saved dataset must have one structure, but they have the specs "
        "TensorSpec(shape=(), dtype=int64) and TensorSpec(shape=(), dtype=float32). Make "
        "nesting and dtypes equal"
    )
    desk.writer.close(10)


def test_shapes_that_differ_are_found_in_every_element() -> None:
    """The spec admits every array length that occurs, at any place in a block."""
    block = built(np.zeros(3), np.zeros(3), np.zeros(5))
    assert specs_of(block) == TensorSpec((None,), np.float64)
    assert specs_of(built(np.zeros((2, 3))), built(np.zeros((4, 3)))) == TensorSpec(
        (None, 3), np.float64
    )


def test_text_needs_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer inspects a single element of a block of texts of any length, and none
    of further blocks.
    """
    looked: list[Any] = []
    monkeypatch.setattr(
        "zmqdata.worker.chunks.spec_of", lambda element: looked.append(element) or "spec"
    )
    assert specs_of(built("a", "bcd"), built("", "x" * 99, "y")) == "spec"
    assert looked == ["a"]


def test_ragged_tensors_keep_their_spec() -> None:
    """The spec of ragged tensors with rows of differing length is ragged, too."""
    found = specs_of(
        built(RaggedTensor.from_rows([[1, 2], [3]]), RaggedTensor.from_rows([[1], [4, 5], [2]]))
    )
    assert isinstance(found, RaggedTensorSpec)
    assert found.shape == (None, None)


def test_a_full_disk_is_told_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is a ResourceExhaustedError that names the file, also if closing the
    file fails once more. The writer goes on.
    """

    class FullDisk(io.BytesIO):
        def write(self, content: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            self.write(b"the rest")

    monkeypatch.setattr(LocalFiles, "open", lambda self, path, mode: FullDisk())
    desk = Desk(tmp_path)
    desk.write(0, np.int64(1))
    failed = desk.next()
    assert (type(failed), failed.error) == (e.WriteFailed, "ResourceExhaustedError")
    assert (
        failed.text == f"cannot write {desk.file(0)}: OSError: [Errno 28] No space left on device"
    )
    monkeypatch.undo()
    desk.writer.begin(KEY, desk.path, 3)
    desk.write(0, np.int64(1))
    assert desk.next() == e.BlockWritten(*KEY, 8)
    desk.writer.close(10)


def test_a_share_that_is_not_mounted_is_told(tmp_path: Path) -> None:
    """A worker that does not see the folder of a save makes none in its place."""
    desk = Desk(tmp_path)
    (tmp_path / SAVE).unlink()
    desk.write(0, np.int64(1))
    failed = desk.next()
    assert (failed.error, failed.text.rpartition(". ")[2]) == (
        "NotFoundError",
        "Mount the shared storage on this worker",
    )
    assert list(tmp_path.iterdir()) == []
    desk.writer.close(10)
