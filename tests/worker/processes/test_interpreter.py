"""Tests of the folders in which child processes look for modules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zmqdata.config.logs import LogSettings
from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.interpreter import add_folder, folder_on_path
from zmqdata.worker.processes.supervisor import child_command


@pytest.mark.parametrize(
    ("path", "folder", "safe", "place"),
    [
        (["", "/lib"], "/home", False, "first"),
        (["/home", "/lib"], "/home", False, "first"),
        (["/usr/bin", "/lib", "/home"], "/home", False, "last"),
        ([], "/home", False, "last"),
        (["", "/lib"], "/home", True, "nowhere"),
        (["", "/lib"], "", False, "nowhere"),
    ],
)
def test_a_child_looks_where_its_supervisor_does(
    path: list[str], folder: str, safe: bool, place: str
) -> None:
    """A child searches the working folder first if its supervisor does, and last
    otherwise. It skips the folder if Python forbids it or the folder is gone.
    """
    assert folder_on_path(path, folder, safe) == place


@pytest.mark.parametrize(
    ("place", "before", "after"),
    [
        ("first", ["/lib"], ["HERE", "/lib"]),
        ("first", ["HERE", "/lib"], ["HERE", "/lib"]),
        ("last", ["/lib"], ["/lib", "HERE"]),
        ("last", ["", "/lib"], ["", "/lib"]),
        ("last", ["/lib", "HERE", "/usr"], ["/lib", "HERE", "/usr"]),
        ("nowhere", ["/lib"], ["/lib"]),
    ],
)
def test_a_folder_is_added_once(
    place: str, before: list[str], after: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is already on the path stays at its place."""
    monkeypatch.chdir(tmp_path)
    path = [entry.replace("HERE", os.getcwd()) for entry in before]
    add_folder(place, path)
    assert path == [entry.replace("HERE", os.getcwd()) for entry in after]


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker restarts its processes even if its working folder is deleted. Such a
    folder holds no modules.
    """
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert '"nowhere"' in child_command(WorkerConfig("127.0.0.1:1"), LogSettings())[-1]
    path = ["/lib"]
    add_folder("last", path)
    add_folder("first", path)
    assert path == ["/lib"]
    monkeypatch.chdir(tmp_path)
