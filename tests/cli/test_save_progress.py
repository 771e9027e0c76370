"""Tests of the output of ``zmqdata save-status``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from zmqdata.cli.commands import main
from zmqdata.cli.save_progress import follow
from zmqdata.errors import NotFoundError
from zmqdata.storage.manifests import (
    Chunk,
    Manifest,
    SaveDescription,
    SaveError,
    begin_save,
    chunk_path,
    fail_save,
    finish_save,
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
