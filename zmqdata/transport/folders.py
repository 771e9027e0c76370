"""Folders and files that belong to this user: private folders that are removed with
their owner, and the judgement of folders that were there before.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from zmqdata.errors import PermissionDeniedError

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


def is_trusted(status: os.stat_result) -> bool:
    """Return True if a file belongs to this user or to root, who can change all files
    anyway.
    """
    return status.st_uid in (os.getuid(), 0)


def make_own(folder: Path) -> None:
    """Create a folder as ``make_private`` does, and refuse a folder that another user
    may have prepared.

    Raises:
        PermissionDeniedError: another user owns the folder, or a symbolic link that
            leads to it.
        OSError: the folder cannot be created.
    """
    _check_links(folder.absolute())
    make_private(folder)
    if not is_trusted(status := folder.stat()):
        raise _foreign(folder, status)


def _check_links(path: Path) -> None:
    """Raise an error if another user owns a symbolic link on the way to a path.

    The system ends the recursion: it gives no status to a path of links in a circle.
    """
    for part in (*reversed(path.parents), path):
        with contextlib.suppress(FileNotFoundError):
            status = part.lstat()
            if stat.S_ISLNK(status.st_mode):
                if not is_trusted(status):
                    raise _foreign(part, status)
                if part.exists():
                    _check_links(part.parent / os.readlink(part))


def check_content(folder: Path) -> None:
    """Raise an error if another user owns an entry of a folder, or an entry is a
    symbolic link: writing through a link changes a file elsewhere.

    Raises:
        PermissionDeniedError: the folder has such an entry.
        OSError: the folder cannot be read.
    """
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            _check_entry(entry, entry.lstat())


def open_own(path: str | Path, flags: int) -> int:
    """Open a file of this user, as an opener of ``open``. A new file has mode 600.

    Raises:
        PermissionDeniedError: another user owns the file, it is a symbolic link, or it
            is to be written and has another name.
        OSError: the file cannot be opened.
    """
    place = Path(path)
    try:
        # O_NONBLOCK: opening a named pipe must not block.
        descriptor = os.open(
            place, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
    except OSError as error:
        if error.errno == errno.ELOOP:
            _check_entry(place, place.lstat())
        raise
    try:
        _check_entry(place, status := os.fstat(descriptor))
        if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1:
            raise PermissionDeniedError(
                f"{place} has {status.st_nlink} names, so another file would be written with it. "
                "Replace it by a copy, or remove this name"
            )
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_entry(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise PermissionDeniedError(
            f"{path} is a symbolic link, through which another file would be written. Expected a "
            f"folder that only zmqdata writes to. Remove the link, or choose another folder than "
            f"{path.parent}"
        )
    if not is_trusted(status):
        raise _foreign(path, status)


def _foreign(path: Path, status: os.stat_result) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"{path} belongs to user {status.st_uid}, who can change what is written there, but this "
        f"process runs as user {os.getuid()}. In a folder that all users share, such as /tmp, "
        "another user may have made it first. Choose another folder, or, if it is yours, run "
        f"`chown -hR {os.getuid()} {path}` as root"
    )


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
