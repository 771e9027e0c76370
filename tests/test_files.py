"""Tests of ``zmqdata.files``: the same facts about files of this machine and about those behind a URL."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from zmqdata.errors import AlreadyExistsError, UnimplementedError
from zmqdata.files import LOCAL, files_of, is_url, read, whole_path


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty folder, on this machine or in fsspec's memory."""
    if request.param == "local":
        yield str(tmp_path / "deep" / "folder")
        return
    yield "memory://deep/folder"
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def test_files_come_and_go(folder: str) -> None:
    """What is written is there with its size, under its new name after a move, and gone when it is removed."""
    files = files_of(folder)
    path, target = f"{folder}/a", f"{folder}/sub/b"
    assert (files.names(folder), files.size(path)) == ([], None)
    file = files.open(path, "wb")
    file.write(b"12345")
    files.finish(file)
    assert (files.names(folder), files.size(path), read(files, path)) == (["a"], 5, b"12345")
    files.move(path, target)
    assert (files.size(path), files.size(target), read(files, target)) == (None, 5, b"12345")
    files.remove(target)
    files.remove(target)
    assert files.size(target) is None


def test_a_move_takes_the_place_of_what_is_there(folder: str) -> None:
    """A file that is moved onto another one replaces it."""
    files = files_of(folder)
    for name in ("a", "b"):
        files.replace(f"{folder}/{name}", name.encode())
    files.move(f"{folder}/a", f"{folder}/b")
    assert (files.names(folder), read(files, f"{folder}/b")) == (["b"], b"a")


def test_a_file_is_created_once(folder: str) -> None:
    """Creating a file that exists is an error and leaves it alone; replacing it does not."""
    files, path = files_of(folder), f"{folder}/a"
    files.create(path, b"one")
    with pytest.raises(AlreadyExistsError, match="exists already"):
        files.create(path, b"two")
    assert read(files, path) == b"one"
    files.replace(path, b"three")
    assert (read(files, path), files.names(folder)) == (b"three", ["a"])


def test_folders_are_removed_whole(folder: str) -> None:
    """A folder goes with everything in it; one that is not there is gone already."""
    files = files_of(folder)
    files.replace(f"{folder}/sub/a", b"")
    files.remove_folder(f"{folder}/sub")
    files.remove_folder(f"{folder}/sub")
    assert files.size(f"{folder}/sub/a") is None


def test_paths_mean_the_same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative path becomes whole; a URL stays as it is."""
    monkeypatch.chdir(tmp_path)
    assert whole_path("a/b") == f"{tmp_path}/a/b"
    assert (whole_path("s3://x/y/"), is_url("a/b"), is_url("s3://x")) == ("s3://x/y", False, True)
    assert files_of("/a") is LOCAL


def test_a_missing_fsspec_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsspec, or what it needs for a protocol, a URL is an error that says what to install."""
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "fsspec":
            raise ImportError("No module named 'fsspec'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnimplementedError, match=r"pip install 'zmqdata\[fsspec\]'"):
        files_of("s3://bucket/x")


def test_an_unknown_protocol_is_refused() -> None:
    """A URL whose protocol nobody knows is a ValueError."""
    with pytest.raises(ValueError, match="nonsense"):
        files_of("nonsense://x")
