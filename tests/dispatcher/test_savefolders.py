"""Test the dispatcher's files of saves, and the conflicts that it finds in a folder
after a restart.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from zmqdata.cli.save_progress import progress_of
from zmqdata.core.dispatcher import events as e
from zmqdata.dispatcher import savefolders
from zmqdata.dispatcher.savefolders import (
    SaveFolders,
    check_save,
    prepare_save,
    publish_chunk,
    write_marker,
)
from zmqdata.elements.specs import TensorSpec, encode_spec
from zmqdata.storage.manifests import (
    chunk_path,
    is_done,
    read_manifest,
    read_save,
    read_save_error,
    uncommitted_path,
)

SPEC = encode_spec(TensorSpec((), np.int64))
ONE = e.SaveChunk(0, 0, 1, 0, 5, 4)
TWO = e.SaveChunk(0, 1, 2, 5, 8, 4)


def begun(folder: Path) -> str:
    path = str(folder / "save")
    assert prepare_save(e.PrepareSave(path, "run", "lz4", SPEC, 8)).error == ""
    return path


def write(path: str, chunk: e.SaveChunk, content: bytes = b"1234") -> None:
    file = Path(uncommitted_path(path, chunk.stream, chunk.attempt, chunk.first))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def check(path: str, *chunks: e.SaveChunk, run: str = "run") -> e.SaveChecked:
    return check_save(e.CheckSave(2000, path, run, chunks))


def test_a_folder_is_prepared_once(tmp_path: Path) -> None:
    """A save's description exists from the start, and another save to the path is
    refused because of it.
    """
    path = begun(tmp_path)
    found = read_save(path)
    assert found is not None
    assert (found.save_id, found.compression, found.cardinality) == ("run", "lz4", 8)
    assert found.element_spec == TensorSpec((), np.int64)
    refused = prepare_save(e.PrepareSave(path, "other", None, None, -2))
    assert (refused.save_id, refused.error) == ("other", "AlreadyExistsError")


def test_a_folder_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    """The answer has the file system's error."""
    (tmp_path / "file").touch()
    refused = prepare_save(e.PrepareSave(str(tmp_path / "file" / "save"), "run", None, None, -2))
    assert refused.error == "NotFoundError"
    assert "cannot create the folder" in refused.text


@pytest.mark.parametrize(
    "path", ["reference://::data:,x", "zip://a::file:///b.zip", "simplecache::s3://bucket/x"]
)
def test_a_client_chooses_no_file_systems_within_others(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The dispatcher refuses nested file systems in a client's path, as some run
    templates that they find.
    """
    monkeypatch.setattr(savefolders, "begin_save", lambda *told: pytest.fail("it was opened"))
    refused = prepare_save(e.PrepareSave(path, "run", None, None, -2))
    assert (refused.error, "names several" in refused.text) == ("InvalidArgumentError", True)


def test_nothing_is_saved_to_the_memory_of_a_process(tmp_path: Path) -> None:
    """A save to memory:// is refused at the call, as no other process can read it, nor
    the dispatcher after a restart.
    """
    refused = prepare_save(e.PrepareSave("memory://bucket/save", "run", None, None, -2))
    assert refused.error == "InvalidArgumentError"
    assert "only the process that writes to memory://bucket/save can read it" in refused.text


def test_saves_are_listed_in_no_file_of_another_name(tmp_path: Path) -> None:
    """A link that another user put into an open work folder is refused, and the file
    that it names stays as it is.
    """
    (tmp_path / "victim").write_text("precious", encoding="utf-8")
    (tmp_path / "saves").symlink_to(tmp_path / "victim")
    asked = e.PrepareSave(str(tmp_path / "save"), "run", None, None, -2)
    refused = prepare_save(asked, work_dir=str(tmp_path))
    assert (refused.error, "symbolic link" in refused.text) == ("PermissionDeniedError", True)
    assert (tmp_path / "victim").read_text(encoding="utf-8") == "precious"


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A save.json that is no regular file refuses a new save and fails a running
    save.
    """
    os.mkfifo(tmp_path / "save.json")
    path = str(tmp_path)
    for one in (path, f"file://{path}"):
        refused = prepare_save(e.PrepareSave(one, "run", None, None, -2))
        assert refused.error == "FailedPreconditionError"
        assert f"{path}/save.json is a pipe, a device" in refused.text
        assert "but a file is expected there" in check(one).conflict


def test_publishing_twice_changes_nothing(tmp_path: Path) -> None:
    """Publishing a chunk again changes nothing."""
    path = begun(tmp_path)
    write(path, ONE)
    for _ in range(2):
        assert publish_chunk(e.PublishChunk(2000, path, ONE)) == e.ChunkPublished(2000, ONE)
    assert Path(chunk_path(path, "chunk_0_0_5")).read_bytes() == b"1234"


@pytest.mark.parametrize(
    ("content", "text"), [(None, "does not exist"), (b"123", "has 3 bytes instead of 4")]
)
def test_a_chunk_that_is_missing_or_cut_off_is_not_published(
    tmp_path: Path, content: bytes | None, text: str
) -> None:
    """A committed chunk that is missing or truncated is an error."""
    path = begun(tmp_path)
    if content is not None:
        write(path, ONE, content)
    error = publish_chunk(e.PublishChunk(2000, path, ONE)).error
    assert "Found missing chunk" in error
    assert text in error


def test_a_save_is_ended_with_a_manifest(tmp_path: Path) -> None:
    """The manifest names the chunks in order and the spec of all elements."""
    path = begun(tmp_path)
    for chunk in (ONE, TWO):
        write(path, chunk)
        publish_chunk(e.PublishChunk(2000, path, chunk))
    assert write_marker(
        e.FinishSave(2000, path, "run", "lz4", (ONE, TWO), (SPEC,))
    ) == e.SaveFinished(2000)
    found = read_manifest(path)
    assert [chunk.name for chunk in found.chunks] == ["chunks/chunk_0_0_5", "chunks/chunk_0_1_3"]
    assert (found.elements, found.save_id, found.compression, found.splittable) == (
        8,
        "run",
        "lz4",
        True,
    )
    assert found.element_spec == TensorSpec((), np.int64)
    assert is_done(path)


def test_a_save_whose_chunks_were_removed_is_not_done(tmp_path: Path) -> None:
    """A save with a missing committed chunk fails, so that no reader takes its folder
    for complete.
    """
    path = begun(tmp_path)
    write(path, ONE)
    publish_chunk(e.PublishChunk(2000, path, ONE))
    assert write_marker(
        e.FinishSave(2000, path, "run", "lz4", (ONE, TWO), (SPEC,))
    ) == e.SaveFinished(2000)
    assert not is_done(path)
    found = read_save_error(path)
    assert found is not None
    assert found.error == "DataLossError"
    assert "Found missing chunk" in found.text
    assert "chunk_0_1_3" in found.text


def test_a_save_is_ended_with_an_error(tmp_path: Path) -> None:
    """The marker of a failed save holds the error and the pipeline's failure."""
    path = begun(tmp_path)
    write_marker(
        e.FinishSave(2000, path, "run", None, error="DataLossError", text="no", failure=b"\x01")
    )
    found = read_save_error(path)
    assert found is not None
    assert (found.error, found.text, found.failure) == ("DataLossError", "no", "01")


def test_a_marker_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    """The answer has the file system's error, so that the dispatcher retries."""
    (tmp_path / "file").touch()
    assert write_marker(e.FinishSave(2000, str(tmp_path / "file"), "run", None)).error


def test_a_new_life_publishes_what_was_not(tmp_path: Path) -> None:
    """A restarted dispatcher publishes committed chunks, and leftovers of lost workers
    are no conflict.
    """
    path = begun(tmp_path)
    for chunk in (ONE, TWO, e.SaveChunk(0, 0, 9, 3, 4, 4)):
        write(path, chunk)
    publish_chunk(e.PublishChunk(2000, path, ONE))
    for _ in range(2):
        assert check(path, ONE, TWO) == e.SaveChecked(2000, streams=1)
    assert sorted(one.name for one in (tmp_path / "save" / "chunks").iterdir()) == [
        "chunk_0_0_5",
        "chunk_0_1_3",
    ]


@pytest.mark.parametrize("name", ["stream_", "stream_x", "stream_-1"])
def test_a_bad_stream_name_is_a_conflict(tmp_path: Path, name: str) -> None:
    """An invalid folder name among the streams is a conflict, as another program made
    it.
    """
    path = begun(tmp_path)
    (tmp_path / "save" / "streams" / name).mkdir(parents=True)
    assert check(path).conflict == f"Can't parse the name {name!r}. Expected stream_<stream>"


def test_the_streams_of_a_folder_are_counted(tmp_path: Path) -> None:
    """The check reports the number of streams, however many have a folder by now."""
    path = begun(tmp_path)
    assert check(path) == e.SaveChecked(2000, streams=0)
    (tmp_path / "save" / "streams" / "stream_1").mkdir(parents=True)
    assert check(path) == e.SaveChecked(2000, streams=2)


@pytest.mark.parametrize("name", ["chunk_", "chunk_x_0_1", "chunk_0_-1_1", "chunk_0_0_x"])
def test_a_bad_chunk_name_is_a_conflict(tmp_path: Path, name: str) -> None:
    """An invalid file name among the chunks is a conflict, as another program made
    it.
    """
    path = begun(tmp_path)
    chunks = tmp_path / "save" / "chunks"
    chunks.mkdir()
    (chunks / name).touch()
    assert "Expected chunk_<stream>_<chunk>_<num_elements>" in check(path).conflict


def test_a_chunk_that_was_never_committed_is_a_conflict(tmp_path: Path) -> None:
    """A published chunk that is not in the journal is a conflict, as the journal is
    outdated or foreign.
    """
    path = begun(tmp_path)
    write(path, ONE)
    publish_chunk(e.PublishChunk(2000, path, ONE))
    assert (
        check(path).conflict == f"Found conflict: {path} has chunk_0_0_5, which was never committed"
    )


def test_a_chunk_twice_is_a_conflict(tmp_path: Path) -> None:
    """Two chunks for the same position contradict each other."""
    path = begun(tmp_path)
    write(path, ONE)
    check(path, ONE)
    (tmp_path / "save" / "chunks" / "chunk_0_0_6").touch()
    assert "Found duplicate chunk" in check(path, ONE).conflict


def test_a_missing_chunk_is_a_conflict(tmp_path: Path) -> None:
    """A committed chunk that is nowhere on the disk is lost."""
    path = begun(tmp_path)
    assert "Found missing chunk" in check(path, ONE).conflict


def test_another_save_in_the_folder_is_a_conflict(tmp_path: Path) -> None:
    """A missing folder, or the folder of another save, contradicts the journal."""
    assert "Found conflict: there is nothing in" in check(str(tmp_path / "save")).conflict
    path = begun(tmp_path)
    assert "Found conflict: there is another save in" in check(path, run="other").conflict


def test_a_folder_that_is_out_of_reach_is_no_conflict(tmp_path: Path) -> None:
    """An unreachable file system is no conflict: the check returns the reason for a
    retry.
    """
    path = str(tmp_path / "loop")
    os.symlink(path, path)
    found = check(path)
    assert (found.conflict, "Too many levels of symbolic links" in found.error) == ("", True)


def test_the_marker_of_a_failed_save_is_not_put_into_the_folder_of_another(tmp_path: Path) -> None:
    """The marker of a failed save is not written to the folder of a later save, whose
    readers see no failure.
    """
    path = begun(tmp_path)
    write(path, ONE)
    failed = e.FinishSave(2000, path, "before", None, error="DataLossError", text="no")
    assert write_marker(failed) == e.SaveFinished(2000)
    assert read_save_error(path) is None
    assert publish_chunk(e.PublishChunk(2001, path, ONE)).error == ""


def test_a_folder_that_was_removed_says_why_its_save_failed(tmp_path: Path) -> None:
    """A removed folder gets only the marker of its failed save, and another save to the
    path is refused as after any failure.
    """
    path = str(tmp_path / "save")
    assert (
        write_marker(
            e.FinishSave(2000, path, "run", None, error="DataLossError", text="gone")
        ).error
        == ""
    )
    assert (
        progress_of(path).line
        == f"{path}: failed, 0 elements in 0 chunks of 0 streams: DataLossError: gone"
    )
    assert prepare_save(e.PrepareSave(path, "other", None, None, -2)).error == "AlreadyExistsError"


def test_commands_are_answered_from_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread answers each command with its event."""
    monkeypatch.setattr(savefolders, "THREADS", 1)
    answers: list[object] = []
    done = threading.Event()

    def report(event: object) -> None:
        answers.append(event)
        if len(answers) == 4:
            done.set()

    folders, path = SaveFolders(report, "/journal"), str(tmp_path / "save")
    folders.prepare(e.PrepareSave(path, "run", None, None, -2))
    folders.publish(e.PublishChunk(2000, path, ONE))
    folders.check(e.CheckSave(2000, path, "run", ()))
    folders.finish(e.FinishSave(2000, path, "run", None))
    assert done.wait(30)
    folders.close()
    begun_save = read_save(path)
    assert begun_save is not None
    assert begun_save.work_dir == "/journal"
    assert [type(one) for one in answers] == [
        e.SavePrepared,
        e.ChunkPublished,
        e.SaveChecked,
        e.SaveFinished,
    ]


def test_chunks_of_two_structures_are_no_save(tmp_path: Path) -> None:
    """A save whose chunks differ in structure fails, and the error names both
    structures.
    """
    path = str(tmp_path)
    specs = tuple(encode_spec(TensorSpec((), dtype)) for dtype in ("int8", "float32"))
    assert write_marker(e.FinishSave(2000, path, "run", None, (), specs)) == e.SaveFinished(2000)
    error = read_save_error(path)
    assert error is not None
    assert error.error == "InvalidArgumentError"
    assert "TensorSpec(shape=(), dtype=int8) and TensorSpec(shape=(), dtype=float32)" in error.text
