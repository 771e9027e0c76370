"""Test the store of pipelines."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest

from zmqdata.core.dispatcher.events import KeepPiece, PieceKept
from zmqdata.dispatcher.store import RESERVED_BYTES, PipelineStore

DIGEST = "0" * 64


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PipelineStore:
    return PipelineStore(None if request.param == "memory" else str(tmp_path))


def test_a_pipeline_is_found_by_its_digest(store: PipelineStore) -> None:
    """The store returns a stored pipeline, also if stored twice, and no other."""
    store.put(DIGEST, b"pipeline")
    store.put(DIGEST, b"pipeline")
    assert (store.get(DIGEST), store.get("1" * 64)) == (b"pipeline", None)


def test_a_dropped_pipeline_is_gone(store: PipelineStore) -> None:
    """Dropping a pipeline twice changes nothing."""
    store.put(DIGEST, b"pipeline")
    store.drop(DIGEST)
    store.drop(DIGEST)
    assert store.get(DIGEST) is None


def test_a_folder_outlives_its_store(tmp_path: Path) -> None:
    """Another store on the same folder finds all pipelines and no incomplete file."""
    PipelineStore(str(tmp_path)).put(DIGEST, b"pipeline")
    assert PipelineStore(str(tmp_path)).get(DIGEST) == b"pipeline"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [DIGEST]


def test_no_path_reaches_the_file_system(tmp_path: Path) -> None:
    """Only the letters and digits of a digest become part of a file name."""
    PipelineStore(str(tmp_path)).put("../../escaped", b"pipeline")
    assert [path.parent.name for path in tmp_path.rglob("*") if path.is_file()] == ["pipelines"]


def test_what_is_kept_is_known_and_can_be_brought_to_the_disk(store: PipelineStore) -> None:
    """The store knows only stored pipelines, and can sync them to the disk."""
    store.put(DIGEST, b"pipeline")
    store.sync(DIGEST)
    assert store.missing([DIGEST, "1" * 64]) == ["1" * 64]


# --- parts


PART = bytes(range(100)) * 50
NAME = hashlib.sha256(PART).hexdigest()


def piece(offset: int, content: bytes, digest: str = NAME) -> KeepPiece:
    return KeepPiece(digest, len(PART), offset, content)


def test_a_part_is_kept_when_it_is_whole(store: PipelineStore) -> None:
    """A part is stored on disk piece by piece, and can be read in pieces once it is
    whole.
    """
    assert store.read_piece(NAME, 0) is None
    assert store.keep_piece(piece(0, PART[:70])) == PieceKept(NAME, 70)
    assert store.read_piece(NAME, 0) is None
    assert store.keep_piece(piece(0, PART[:70])) == PieceKept(NAME, 70)
    assert store.keep_piece(piece(90, PART[90:])) == PieceKept(NAME, 70, broken=True)
    assert store.keep_piece(piece(70, PART[70:])) == PieceKept(NAME, len(PART))
    assert store.read_piece(NAME, 4_990) == PART[4_990:]
    store.drop(NAME)
    assert store.read_piece(NAME, 0) is None
    store.close()


def test_a_part_with_other_bytes_is_not_kept(store: PipelineStore) -> None:
    """A part with wrong bytes is removed, and its upload begins anew."""
    assert store.keep_piece(piece(0, PART[::-1])) == PieceKept(NAME, 0, broken=True)
    assert store.keep_piece(piece(0, PART)) == PieceKept(NAME, len(PART))
    store.close()


def test_parts_outlive_a_dispatcher_with_a_work_folder(tmp_path: Path) -> None:
    """The next dispatcher on a work folder finds whole parts and the progress of
    others.
    """
    store = PipelineStore(str(tmp_path))
    store.keep_piece(piece(0, PART))
    store.keep_piece(piece(0, PART[:7], DIGEST))
    store.close()
    assert PipelineStore(str(tmp_path)).found() == ([NAME], {DIGEST: 7})


def test_without_a_work_folder_parts_go_with_the_dispatcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a work folder the parts are in a temporary folder until the dispatcher
    ends, and small pipelines stay in memory.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = PipelineStore(None)
    assert store.found() == ([], {})
    store.keep_piece(piece(0, PART))
    store.put(DIGEST, b"small")
    assert [path.name for path in tmp_path.rglob("*") if len(path.name) == 64] == [NAME]
    assert store.get(DIGEST) == b"small"
    store.close()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lock"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The event of an unwritable folder has the system's error and the path, and a
    small pipeline stays in memory.
    """
    store = PipelineStore(str(tmp_path))
    shutil.rmtree(tmp_path / "pipelines")
    told = store.keep_piece(piece(0, PART))
    assert "No such file" in told.error
    assert str(tmp_path) in told.error
    store.put(DIGEST, b"small")
    assert store.get(DIGEST) == b"small"


def test_large_parts_leave_a_disk_its_last_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large part leaves space for the journal on the same disk: the store refuses a
    piece and names the space left.
    """
    usage = shutil.disk_usage(tmp_path)
    little = usage._replace(free=min(RESERVED_BYTES, usage.total // 20) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: little)
    kept = PipelineStore(str(tmp_path)).keep_piece(piece(0, b"01234"))
    assert (
        kept.error
        == f"only {little.free} bytes are left, which the journal may need: {tmp_path}/pipelines"
    )
    monkeypatch.undo()
    assert not PipelineStore(str(tmp_path)).keep_piece(piece(0, b"01234")).error
