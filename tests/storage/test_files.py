"""Tests of ``zmqdata.storage.files``, on local files and on files behind a URL."""

from __future__ import annotations

import builtins
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from zmqdata.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from zmqdata.files.paths import is_url, whole_path
from zmqdata.storage.files import LOCAL, StorageOptions, read
from zmqdata.storage.remote import files_of


@pytest.fixture(params=["local", "url", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return an empty folder, on this machine or in fsspec's memory."""
    if request.param == "local":
        yield str(tmp_path / "deep" / "folder")
        return
    if request.param == "url":
        yield f"file://{tmp_path}/deep/folder"
        return
    yield "memory://deep/folder"
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def test_files_come_and_go(folder: str) -> None:
    """A written file has its size, moves to its new name, and can be removed."""
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
    """Moving a file onto another file replaces it."""
    files = files_of(folder)
    for name in ("a", "b"):
        files.replace(f"{folder}/{name}", name.encode())
    files.move(f"{folder}/a", f"{folder}/b")
    assert (files.names(folder), read(files, f"{folder}/b")) == (["b"], b"a")


def test_a_file_is_created_once(folder: str) -> None:
    """Creating a file that exists is an error and has no effect; replacing succeeds."""
    files, path = files_of(folder), f"{folder}/a"
    files.create(path, b"one")
    with pytest.raises(AlreadyExistsError, match="exists already"):
        files.create(path, b"two")
    assert read(files, path) == b"one"
    files.replace(path, b"three")
    assert (read(files, path), files.names(folder)) == (b"three", ["a"])


def test_folders_are_removed_whole(folder: str) -> None:
    """Removing a folder removes its content; removing a missing folder succeeds."""
    files = files_of(folder)
    files.replace(f"{folder}/sub/a", b"")
    files.remove_folder(f"{folder}/sub")
    files.remove_folder(f"{folder}/sub")
    assert files.size(f"{folder}/sub/a") is None


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.fspath(path))
    server.close()


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("mode", ["rb", "wb"])
@pytest.mark.parametrize("protocol", ["", "file://", "local://"])
@pytest.mark.parametrize("make", [fifo, listening, zeros, Path.mkdir])
def test_what_is_no_file_is_not_opened(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    make: Callable[[Path], None],
    protocol: str,
    mode: str,
) -> None:
    """A pipe, socket, device or folder raises an error that names it. The call does not
    block and leaves no descriptor open.
    """
    monkeypatch.chdir(tmp_path)  # socket names are limited in length
    make(Path("a"))
    path = f"{protocol}{tmp_path}/a"
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FailedPreconditionError, match=rf"{tmp_path}/a is a pipe.* Remove it"):
        files_of(path).open(path, mode)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_files_have_the_rights_that_the_user_gives(folder: str, tmp_path: Path) -> None:
    """The umask determines a file's read permissions, and it is never executable."""
    files_of(folder).replace(f"{folder}/a", b"")
    mask = os.umask(0)
    os.umask(mask)
    for path in tmp_path.rglob("a"):
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_paths_mean_the_same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative path becomes absolute; a URL stays unchanged."""
    monkeypatch.chdir(tmp_path)
    assert whole_path("a/b") == f"{tmp_path}/a/b"
    assert (whole_path("s3://x/y/"), is_url("a/b"), is_url("s3://x")) == ("s3://x/y", False, True)
    assert files_of("/a") is LOCAL


def test_a_server_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a protocol that connects at once has the URL as its file name."""

    def refuse(url: str) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(OSError, match="Name or service not known: 'ftp://h/x'"):
        files_of("ftp://h/x")


def test_a_missing_fsspec_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL without fsspec or its protocol's library raises with what to install."""
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "fsspec":
            raise ImportError("No module named 'fsspec'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnimplementedError, match=r"pip install 'zmqdata\[fsspec\]'"):
        files_of("s3://bucket/x")


def test_an_unknown_protocol_is_refused() -> None:
    """A URL with an unknown protocol raises a ValueError."""
    with pytest.raises(ValueError, match="nonsense"):
        files_of("nonsense://x")


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Authorization": "Bearer x"}},
        {"client_kwargs": {"headers": {"X-API-Key": "x"}}},
        {"auth": ("user", "x")},
        *({name: "x"} for name in ("api_key", "client_secret", "refresh_token", "Password")),
        {"nested": [{"password": "x"}]},
    ],
)
def test_secrets_are_known_by_the_ends_of_names(options: dict[str, Any]) -> None:
    """Options and headers that hold secrets are refused in any case and depth."""
    assert len(StorageOptions(options).secrets()) == 1
    with pytest.raises(InvalidArgumentError, match="secrets do not travel"):
        pickle.dumps(StorageOptions(options))


def test_options_without_secrets_travel() -> None:
    """Words that name a way to credentials are no secrets, nor are other headers."""
    options = {"token": "anon", "headers": {"X-Team": "seven"}, "endpoint_url": "https://h"}
    assert pickle.loads(pickle.dumps(StorageOptions(options))) == options
