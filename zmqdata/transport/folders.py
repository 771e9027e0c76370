"""Folders of a user alone that go with their owner: for ``ipc`` sockets, and for files
that a process lives on.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_OWNER = "owner"
_LOCK = "lock"


def user_folder() -> Path:
    """The folder of this user's workers, which nobody else can enter.

    Raises:
        PermissionError: somebody else has made a folder of this name, or opened it to
            others.
    """
    folder = Path(tempfile.gettempdir()) / f"zmqdata-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            f"{folder} belongs to somebody else or is open to others, and what a worker keeps "
            "there is for nobody "
            "else. Remove it, or set TMPDIR to a folder in which only you can make files"
        )
    return folder


def make_private(folder: Path) -> None:
    """Makes a folder that nobody else can enter, and those on the way; one that is
    there is left as it is.

    Raises:
        OSError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


class SocketFolder:
    """A folder that lives as long as its owner.

    The owner holds a lock on a file in it; the system lets go of the lock when the
    process dies. Whoever makes the next folder removes those whose lock nobody holds.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self) -> None:
        parent = user_folder()
        with _alone(parent):
            _sweep(parent)
            self.path = parent / secrets.token_hex(4)
            self.path.mkdir(mode=0o700)
            self._owner = os.open(self.path / _OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._owner)


@contextlib.contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """Keeps others from making folders and removing them: one that is being made looks
    like one of the dead.
    """
    descriptor = os.open(parent / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@functools.lru_cache(maxsize=1)
def _folder_of(process: int) -> SocketFolder:
    def remove() -> None:
        if os.getpid() == process:  # a forked child leaves the folder of its parent alone
            folder.close()

    folder = SocketFolder()
    atexit.register(remove)
    return folder


def own_folder() -> Path:
    """A folder of this process for as long as it lives; when it is killed, the next one
    removes what it has left.
    """
    return _folder_of(os.getpid()).path


def _sweep(parent: Path) -> None:
    for folder in parent.iterdir():
        # A folder without its file is just being made, or just being removed.
        with contextlib.suppress(OSError):
            owner = os.open(folder / _OWNER, os.O_RDWR)
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(owner)
