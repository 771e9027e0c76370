"""Tests of the output of ``zmqdata save-status``."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console

from zmqdata.blocks import BlockBuilder
from zmqdata.cli.commands import main
from zmqdata.cli.save_progress import follow
from zmqdata.dispatcher import journalfile
from zmqdata.dispatcher.journalfile import WorkDirLock
from zmqdata.errors import NotFoundError
from zmqdata.files.paths import files_token
from zmqdata.storage.chunks import write_block
from zmqdata.storage.manifests import (
    Chunk,
    Manifest,
    SaveDescription,
    SaveError,
    begin_save,
    chunk_path,
    fail_save,
    finish_save,
    uncommitted_path,
)
from zmqdata.storage.progress import SaveProgress, progress_of


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return a save folder with 7 of 20 elements in two chunks of two streams."""
    path = str(tmp_path)
    begin_save(path, SaveDescription("run", None, None, 20))
    for name in ("chunk_0_0_5", "chunk_3_0_2"):
        Path(chunk_path(path, name)).parent.mkdir(exist_ok=True)
        Path(chunk_path(path, name)).touch()
    return path


def finish(path: str) -> None:
    made = Chunk("chunks/chunk_0_0_5", 5, 0), Chunk("chunks/chunk_3_0_2", 2, 0)
    finish_save(path, Manifest("run", None, None, made))


def test_a_running_save_is_counted(folder: str) -> None:
    """The status shows committed elements, chunks and streams, and the total."""
    assert progress_of(folder) == SaveProgress(folder, "running", 7, 20, 2, 2)
    assert (
        progress_of(folder).line
        == f"{folder}: running, 7 of 20 elements (35 %) in 2 chunks of 2 streams"
    )


def test_a_finished_save_says_so(folder: str) -> None:
    """A finished save has nothing left, even if an error policy left elements out."""
    finish(folder)
    assert progress_of(folder).line == f"{folder}: done, 7 elements in 2 chunks of 2 streams"


def test_the_reason_of_a_failure_is_one_line_for_a_terminal(folder: str) -> None:
    """The reason of a failure is a single printable line, whatever the error."""
    fail_save(folder, SaveError("PipelineError", "map failed\n  \x1b[2Jat once"))
    assert progress_of(folder).line.endswith(" of 2 streams: PipelineError: map failed ?[2Jat once")


def test_an_unknown_number_is_left_out(tmp_path: Path) -> None:
    """Without a cardinality the status shows no total."""
    begin_save(str(tmp_path), SaveDescription("run", None, None, -2))
    assert (
        progress_of(str(tmp_path)).line
        == f"{tmp_path}: running, 0 elements in 0 chunks of 0 streams"
    )


def test_elements_of_open_chunks_count(folder: str) -> None:
    """Elements in the whole blocks of an open chunk count, once although their chunk is
    committed. Of two attempts at a stream the later one counts.
    """
    blocks = Path(uncommitted_path(folder, 0, 2, 5))
    blocks.parent.mkdir(parents=True)
    with blocks.open("wb") as file:
        for count in (3, 4):
            builder = BlockBuilder()
            for number in range(count):
                builder.add(number)
            block = builder.build()
            write_block(file, block.meta, block.frames)
    for other in (uncommitted_path(folder, 0, 1, 5), uncommitted_path(folder, 0, 2, 0)):
        shutil.copy(blocks, other)
    counts: dict[str, tuple[int, int]] = {}
    assert progress_of(folder).elements == progress_of(folder, counts).elements == 7 + 7
    assert progress_of(folder, counts).elements == 7 + 7
    os.truncate(blocks, blocks.stat().st_size - 1)
    assert progress_of(folder).elements == 7 + 3
    blocks.write_bytes(b"zqb1 no block at all, but longer than the beginning of a block")
    assert progress_of(folder).elements == 7


def test_a_save_says_that_no_dispatcher_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status names the folder with which a dispatcher continues a save, or says
    that none can continue it. A save whose dispatcher may be out of sight is running.
    """
    work, save, foreign = tmp_path / "work", str(tmp_path / "save"), str(tmp_path / "foreign")
    hidden, circle = str(tmp_path / "hidden"), tmp_path / "circle"
    circle.symlink_to(circle)
    seen = SaveDescription("run", None, None, 20, work_dir=str(work), files=files_token())
    begin_save(save, seen)
    begin_save(foreign, structs.replace(seen, files="of another machine"))
    begin_save(hidden, structs.replace(seen, work_dir=str(circle / "work")))
    lock = WorkDirLock(work)
    assert progress_of(save).state == progress_of(hidden).state == "running"
    lock.close()
    assert progress_of(save).state == "stopped"
    assert main(["save-status", save]) == 1
    assert f"Start a dispatcher with work_dir='{work}'" in capsys.readouterr().out
    shutil.rmtree(work)
    assert progress_of(save).state == "abandoned"
    assert main(["save-status", save]) == 1
    assert "none can continue it" in capsys.readouterr().out
    assert progress_of(foreign).state == "running"
    finish(save)
    assert (progress_of(save).state, progress_of(save).error) == ("done", "")


def test_a_look_at_a_lock_does_not_keep_a_dispatcher_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher that starts while a reader of its save looks at the lock gets it."""
    look = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(look, fcntl.LOCK_SH)
    lock = fcntl.flock

    def refused(descriptor: int, how: int) -> None:
        try:
            lock(descriptor, how)
        except BlockingIOError:
            os.close(look)
            raise

    monkeypatch.setattr(journalfile.fcntl, "flock", refused)
    WorkDirLock(tmp_path).close()


def test_a_bar_ends_when_no_dispatcher_comes_back(tmp_path: Path) -> None:
    """The bar of a save that no dispatcher writes waits for a restart, and ends."""
    work, save, paused = tmp_path / "work", str(tmp_path / "save"), list[float]()
    WorkDirLock(work).close()
    begin_save(
        save, SaveDescription("run", None, None, 20, work_dir=str(work), files=files_token())
    )
    assert follow(save, Console(quiet=True), paused.append).state == "stopped"
    assert sum(paused) == 20.0


def test_a_folder_without_a_save_is_refused(tmp_path: Path) -> None:
    """A folder without a save is rejected."""
    with pytest.raises(NotFoundError, match="holds no distributed save"):
        progress_of(str(tmp_path))


@pytest.mark.parametrize(
    "end", [finish, lambda path: fail_save(path, SaveError("DataLossError", "no"))]
)
def test_a_bar_ends_with_the_save(folder: str, end: Callable[[str], None]) -> None:
    """The progress bar ends with the save, whether it succeeds or fails."""
    console = Console(width=120, force_terminal=True)
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 3:
            end(folder)

    with console.capture() as captured:
        found = follow(folder, console, pause)
    assert (len(paused), found.elements) == (3, 7)
    assert found.state in ("done", "failed")
    assert "7/20" in captured.get()
    assert ("7/7" in captured.get()) == (found.state == "done")


def test_the_command_prints_one_line_or_json(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints a line or JSON, and exits with 0 unless a save fails."""
    assert main(["save-status", folder]) == 0
    assert capsys.readouterr().out == progress_of(folder).line + "\n"
    assert main(["save-status", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == progress_of(folder).fields
    finish(folder)
    assert main(["save-status", folder, "--follow"]) == 0
    assert "done, 7 elements" in capsys.readouterr().out


def test_the_command_fails_with_the_save(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed save exits with 1 and the reason, and a missing save with 2."""
    fail_save(folder, SaveError("PipelineError", "map failed"))
    assert main(["save-status", folder]) == 1
    told = capsys.readouterr().out
    assert (
        "failed, 7 of 20 elements (35 %) in 2 chunks of 2 streams: PipelineError: map failed"
        in told
    )
    assert main(["save-status", str(tmp_path / "chunks")]) == 2
    assert "holds no distributed save" in capsys.readouterr().err
