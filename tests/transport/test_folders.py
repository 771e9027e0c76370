"""Tests of the folders of ipc sockets."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from zmqdata.errors import PermissionDeniedError
from zmqdata.transport.folders import (
    SocketFolder,
    check_content,
    make_own,
    open_own,
    user_folder,
)

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
STRANGER = 54321


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


# --- folders that were there before


@as_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """The error names the owner, the user of this process, and the remedy."""
    (tmp_path / "work").mkdir()
    os.chown(tmp_path / "work", STRANGER, STRANGER)
    expected = r"work belongs to user 54321, .* runs as user 0\. .* `chown -hR 0 .*/work` as root"
    with pytest.raises(PermissionDeniedError, match=expected):
        make_own(tmp_path / "work")


@as_root
@pytest.mark.parametrize("way", ["last", "parent", "chained", "dangling"])
def test_a_link_of_another_user_does_not_lead_to_a_folder(tmp_path: Path, way: str) -> None:
    """A symbolic link of another user is refused wherever it is on the way, before a
    folder is made behind it.
    """
    (tmp_path / "victim").mkdir()
    (tmp_path / "theirs").symlink_to(tmp_path / ("none" if way == "dangling" else "victim"))
    os.lchown(tmp_path / "theirs", STRANGER, STRANGER)
    (tmp_path / "mine").symlink_to("theirs/..")
    path = {"parent": "theirs/made", "chained": "mine/made"}.get(way, "theirs")
    with pytest.raises(PermissionDeniedError, match="theirs belongs to user 54321"):
        make_own(tmp_path / path)
    assert not list(tmp_path.glob("**/made"))


def test_own_links_lead_to_a_folder(tmp_path: Path) -> None:
    """Links of this user or of root lead to a folder, such as /var/run on Linux."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "first").symlink_to("disk")
    (tmp_path / "second").symlink_to(tmp_path / "first")
    make_own(tmp_path / "second" / "work")
    assert (tmp_path / "disk" / "work").is_dir()


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    """A circle of links is an error of the system."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match=r"symbolic links|File exists"):
        make_own(tmp_path / "one" / "work")


def test_a_folder_with_a_link_is_refused(tmp_path: Path) -> None:
    """A link in a folder is refused, also if this user owns it."""
    (tmp_path / "pipelines").symlink_to("/elsewhere")
    with pytest.raises(PermissionDeniedError, match=r"/pipelines is a symbolic link, .* Remove"):
        check_content(tmp_path)


@as_root
def test_a_folder_with_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """A journal that another user made is not this dispatcher's."""
    (tmp_path / "journal").touch()
    os.chown(tmp_path / "journal", STRANGER, STRANGER)
    with pytest.raises(PermissionDeniedError, match="/journal belongs to user 54321"):
        check_content(tmp_path)
    with pytest.raises(PermissionDeniedError, match="/journal belongs to user 54321"):
        open_own(tmp_path / "journal", os.O_WRONLY | os.O_TRUNC)


@pytest.mark.parametrize("mode", ["rb", "wb", "ab"])
def test_no_file_is_opened_through_a_link(tmp_path: Path, mode: str) -> None:
    """A link is refused, and the file that it leads to keeps its content."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to("victim")
    with (
        pytest.raises(PermissionDeniedError, match="/lock is a symbolic link"),
        open(tmp_path / "lock", mode, opener=open_own),
    ):
        pass
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_file_of_this_user_is_emptied_once_it_is_judged(tmp_path: Path) -> None:
    """Opening a file for writing drops its content, and gives a new file mode 600."""
    for content in (b"long", b"s"):
        with open(tmp_path / "file", "wb", opener=open_own) as file:
            file.write(content)
    assert (tmp_path / "file").read_bytes() == b"s"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
def test_no_file_is_written_by_another_name(tmp_path: Path, mode: str) -> None:
    """A hard link is not written. The file that it names keeps its content, and may be
    read.
    """
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").hardlink_to(tmp_path / "victim")
    with (
        pytest.raises(PermissionDeniedError, match="/lock has 2 names"),
        open(tmp_path / "lock", mode, opener=open_own),
    ):
        pass
    with open(tmp_path / "lock", "rb", opener=open_own) as file:
        assert file.read() == b"precious"
