"""Tests of the bars of saves, and of who sees them."""

from __future__ import annotations

import io
import multiprocessing
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zmqdata
from zmqdata import Dataset
from zmqdata.dataset import bars as module
from zmqdata.dataset.bars import SaveBar, is_watched, show_save
from zmqdata.machine.runkeys import RANKS, is_first_rank
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
from zmqdata.testing.cluster import await_condition

PATIENCE = 20.0


class Terminal(io.StringIO):
    """Text that was written to a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as a process without a launcher."""
    for name in (*RANKS, "LOCAL_RANK", "TQDM_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "FIRST_POLL", 0.001)
    monkeypatch.setattr(module, "LONGEST_POLL", 0.001)


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let this process write to a terminal. A fixture could not do it, because pytest
    redirects the output again when the test begins.
    """
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    """Return a save folder with 5 of 20 elements."""
    path = str(tmp_path)
    begin_save(path, SaveDescription("run", None, None, 20))
    add_chunk(path, "chunk_0_0_5")
    yield path
    bar = module._bars.pop(path, None)
    if bar is not None:
        bar.close()


def add_chunk(path: str, name: str) -> None:
    Path(chunk_path(path, name)).parent.mkdir(exist_ok=True)
    Path(chunk_path(path, name)).touch()


def ended(bar: SaveBar | None) -> None:
    assert bar is not None
    await_condition(lambda: not bar.is_alive(), PATIENCE, "the end of the bar")


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        ({}, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "4", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "3"}, False),
        ({"RANK": "0", "SLURM_PROCID": "3"}, True),
        ({"RANK": ""}, True),
    ],
)
def test_the_first_rank_is_known(
    ranks: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is the first rank if its launcher numbers it 0, or if it has none. The
    number on the machine counts only without a number among all machines.
    """
    for name, value in ranks.items():
        monkeypatch.setenv(name, value)
    assert is_first_rank() == first


def test_a_terminal_is_watched_by_the_first_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first rank on a terminal is watched; neither are other ranks, nor child
    processes, nor a process whose output goes to a file or nowhere.
    """
    terminal = on_terminal(monkeypatch)
    assert is_watched()
    monkeypatch.setenv("RANK", "1")
    assert not is_watched()
    monkeypatch.delenv("RANK")
    for output in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", output)
        assert not is_watched()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    assert not is_watched()


@pytest.mark.parametrize(("config", "seen"), [({"IPKernelApp": {}}, True), ({}, False)])
def test_a_notebook_is_watched(
    config: dict[str, Any], seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel of Jupyter is watched although it has no terminal; IPython with its
    output in a file is not.
    """
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    shell = types.SimpleNamespace(config=config)
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert is_watched() == seen


def test_a_bar_follows_a_save_to_its_end(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar shows elements, total and share while the save runs, and stays with the
    elements that were saved. A second request shows the same bar.
    """
    terminal = on_terminal(monkeypatch)
    bar = show_save(folder)
    await_condition(lambda: "5/20" in terminal.getvalue(), PATIENCE, "the first elements")
    add_chunk(folder, "chunk_3_0_2")
    await_condition(lambda: " 35%" in terminal.getvalue(), PATIENCE, "the next elements")
    assert "7/20" in terminal.getvalue()
    assert show_save(folder) is bar
    made = Chunk("chunks/chunk_0_0_5", 5, 0), Chunk("chunks/chunk_3_0_2", 2, 0)
    finish_save(folder, Manifest("run", None, None, made))
    ended(bar)
    assert "100%" in terminal.getvalue()
    assert "7/7" in terminal.getvalue().rpartition("\r")[2]


def test_a_bar_that_is_closed_looks_once_more(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ends with its save shows the whole bar, however long ago it looked
    last.
    """
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(module, "FIRST_POLL", 2 * PATIENCE)
    bar = show_save(folder)
    assert bar is not None
    await_condition(lambda: "5/20" in terminal.getvalue(), PATIENCE, "the first elements")
    finish_save(folder, Manifest("run", None, None, (Chunk("chunks/chunk_0_0_5", 5, 0),)))
    bar.close()
    assert "5/5" in terminal.getvalue().rpartition("\r")[2]


def test_a_bar_of_a_save_that_fails_says_so(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar of a save that fails ends with the error, on one line."""
    terminal = on_terminal(monkeypatch)
    bar = show_save(folder)
    fail_save(folder, SaveError("PipelineError", "Element 7\nhas failed"))
    ended(bar)
    last = terminal.getvalue().rpartition("\r")[2]
    assert "failed: PipelineError: Element 7?has failed" in last
    assert last.count("\n") == 1


def test_a_bar_ends_where_no_save_can_be_read(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged description ends the bar without a traceback."""
    terminal = on_terminal(monkeypatch)
    (Path(folder) / "save.json").write_text("{")
    ended(show_save(folder))
    assert "Traceback" not in terminal.getvalue()


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False), (None, False)])
def test_an_argument_decides_before_the_terminal(
    folder: str, progress: bool | None, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``progress`` shows or hides the bar whatever the output is; None goes by the
    output, which is no terminal here.
    """
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    Dataset.load(folder, wait=True, progress=progress)
    assert (folder in module._bars) == shown
    assert (folder in output.getvalue()) == shown


def test_an_argument_hides_the_bar_of_a_terminal(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``load`` shows the bar on a terminal by itself, and not with
    ``progress=False``.
    """
    terminal = on_terminal(monkeypatch)
    Dataset.load(folder, wait=True, progress=False)
    assert terminal.getvalue() == ""
    Dataset.load(folder, wait=True)
    assert folder in terminal.getvalue()


def test_tqdm_s_own_switch_hides_the_bar(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TQDM_DISABLE=1`` hides the bar, and nothing looks at the folder for it."""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    program = (
        "import sys, threading; from zmqdata.dataset.bars import show_save;"
        "bar = show_save(sys.argv[1], True);"
        "print(bar.is_alive(), *(one.name for one in threading.enumerate() if 'zmq' in one.name))"
    )
    command = [sys.executable, "-c", program, folder]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("False\n", "")


@pytest.mark.realprocess
def test_the_end_of_the_program_ends_the_bar(folder: str) -> None:
    """A program that ends during the save leaves its bar as it is, and ends at once
    with exit code 0.
    """
    program = "import sys; from zmqdata.dataset.bars import show_save; show_save(sys.argv[1], True)"
    command = [sys.executable, "-c", program, folder]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert "5/20" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_complete_save_has_no_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a complete save, with or without ``wait``, shows no bar: its elements are
    counted by ``len``.
    """
    terminal = on_terminal(monkeypatch)
    Dataset.range(3).save(str(tmp_path))
    for wait in (False, True):
        assert len(Dataset.load(str(tmp_path), wait=wait)) == 3
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("progress", [0, 1, "yes"])
def test_other_values_are_refused(tmp_path: Path, progress: Any) -> None:
    """``progress`` is True, False or None; the error shows what it was."""
    with pytest.raises(TypeError, match=f"must be True, False or None, got {progress!r}"):
        Dataset.load(str(tmp_path), progress=progress)
    with pytest.raises(TypeError, match="`progress` must be"):
        zmqdata.distributed_save(
            Dataset.range(3), str(tmp_path), "tcp://127.0.0.1:1", progress=progress
        )
