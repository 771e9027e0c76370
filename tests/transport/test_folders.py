"""Tests of the folders of ipc sockets."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from zmqdata.transport.folders import SocketFolder, user_folder


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this test a folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_nobody_else_gets_in() -> None:
    """Only the user can enter the folder and its parent."""
    folder = SocketFolder()
    for path in (folder.path, folder.path.parent):
        assert path.stat().st_mode & 0o777 == 0o700
    folder.close()


def test_a_closed_folder_is_gone() -> None:
    """close() removes the folder with its content."""
    folder = SocketFolder()
    (folder.path / "socket").touch()
    folder.close()
    assert not folder.path.exists()


def test_what_the_dead_left_is_removed() -> None:
    """The next owner removes the folders of dead processes and no others."""
    alive, dead = SocketFolder(), SocketFolder()
    os.close(dead._owner)  # as the system does when a process dies
    fresh = SocketFolder()
    assert not dead.path.exists()
    assert alive.path.exists()
    alive.close()
    fresh.close()


def test_a_folder_that_is_open_to_others_is_refused() -> None:
    """A folder of this name that others can enter raises an error that names it."""
    user_folder().chmod(0o755)
    with pytest.raises(PermissionError, match="zmqdata-"):
        SocketFolder()


def test_folders_made_at_the_same_time_leave_each_other_alone() -> None:
    """A folder in creation is not taken for a dead process's folder."""
    made: list[SocketFolder] = []
    threads = [
        threading.Thread(target=lambda: made.extend(SocketFolder() for _ in range(20)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 160
    assert all((folder.path / "owner").exists() for folder in made)
    for folder in made:
        folder.close()


def test_a_process_has_one_folder_for_as_long_as_it_lives() -> None:
    """A process has a single folder, removed at its exit and not by a forked child."""
    code = """
import os
from zmqdata.transport.folders import own_folder
path = own_folder()
assert path == own_folder()
child = os.fork()
if child == 0:
    raise SystemExit
os.waitpid(child, 0)
assert path.exists()
print(path)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip()
    assert not Path(done.stdout.strip()).exists()
