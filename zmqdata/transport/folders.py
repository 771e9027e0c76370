"""Private folders that are removed with their owner: for ``ipc`` sockets and for files
that live as long as a process.
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
    """Return the folder of this user's workers, which no other user can enter.

    Raises:
        PermissionError: another user has made a folder of this name, or the folder is
            open to other users.
    """
    folder = Path(tempfile.gettempdir()) / f"zmqdata-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            f"{folder} belongs to another user or is open to other users, but workers keep private "
            "files there. Remove it, or set TMPDIR to a folder in which only you can create files"
        )
    return folder


def make_private(folder: Path) -> None:
    """Create a folder that no other user can enter, and its missing parents. An
    existing folder is left as it is.

    Raises:
        OSError: the folder cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


class SocketFolder:
    """A folder that is removed with its owner.

    The owner holds a lock on a file in the folder; the kernel releases it when the
    process dies. The next process that makes a folder removes the folders without a
    lock.

    Raises:
        OSError: the folder cannot be created.
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
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._owner)


@contextlib.contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """Hold the lock for making and removing folders, since a folder without its owner's
    lock yet looks abandoned.
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
        if os.getpid() == process:  # a forked child must not remove its parent's folder
            folder.close()

    folder = SocketFolder()
    atexit.register(remove)
    return folder


def own_folder() -> Path:
    """Return this process's own folder.

    It is removed at exit. If the process is killed, the next process that makes a
    folder removes it.
    """
    return _folder_of(os.getpid()).path


def _sweep(parent: Path) -> None:
    for folder in parent.iterdir():
        # A folder without an owner file is being made or removed at this moment.
        with contextlib.suppress(OSError):
            owner = os.open(folder / _OWNER, os.O_RDWR)
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(owner)
