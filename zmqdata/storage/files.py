"""Files wherever they are: by plain paths on this machine, by URLs (``s3://bucket/x``)
wherever fsspec reaches.

Only what saving and loading need. What is in the files belongs to ``chunks`` and
``manifests``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Protocol, cast

from zmqdata.errors import AlreadyExistsError, FailedPreconditionError, UnimplementedError


class FileSystem(Protocol):
    """A file system. Paths are whole, as the user gave them; folders need not be
    made.
    """

    def open(self, path: str, mode: str) -> BinaryIO:
        """A file, ``"rb"`` or ``"wb"``; one that is written is on the disk after
        ``finish``.
        """

    def finish(self, file: BinaryIO) -> None:
        """Closes a file that was written, which is on the disk afterwards."""

    def create(self, path: str, content: bytes) -> None:
        """Makes a file with this content, at once; AlreadyExistsError where there is
        one.
        """

    def replace(self, path: str, content: bytes) -> None:
        """Makes a file with this content, at once, in place of what was there."""

    def move(self, source: str, target: str) -> None:
        """Gives a file another name. On this machine that is one step; an object store
        copies and deletes.
        """

    def names(self, folder: str) -> list[str]:
        """What is in a folder, in order; nothing where there is none."""

    def size(self, path: str) -> int | None:
        """How many bytes a file has, None where there is none."""

    def remove(self, path: str) -> None:
        """Removes a file, if there is one."""

    def remove_folder(self, folder: str) -> None:
        """Removes a folder with everything in it, as far as possible."""


def read(files: FileSystem, path: str, most: int = -1) -> bytes:
    """The content of a file, or the first ``most`` bytes of it."""
    with files.open(path, "rb") as file:
        return file.read(most)


def _regular(path: str, flags: int) -> int:
    """Opens a file for ``open``. Whatever else has its name is waited for by nobody, as
    a pipe would be for ever.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (
            errno.ENXIO,
            errno.EISDIR,
        ):  # a socket or a pipe that nobody reads; a folder to be written
            raise FailedPreconditionError(_no_file(path)) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FailedPreconditionError(_no_file(path))


def _no_file(path: str) -> str:
    return (
        f"{path} should be a file, and is a pipe, a device, a socket or a folder: nothing of ours "
        "makes one there. "
        "Remove it, or name another folder"
    )


class LocalFiles:
    """Files that this machine has, mounted ones included."""

    def open(self, path: str, mode: str) -> BinaryIO:
        if "w" in mode:
            self._make_folder(path)
        return cast(BinaryIO, open(path, mode, opener=_regular))

    def _make_folder(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)

    def finish(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def create(self, path: str, content: bytes) -> None:
        partial = self._write_partial(path, content)
        try:
            os.link(partial, path)
        except FileExistsError:
            raise AlreadyExistsError(f"{path} exists already") from None
        finally:
            os.remove(partial)
        self._settle(path)

    def replace(self, path: str, content: bytes) -> None:
        os.replace(self._write_partial(path, content), path)
        self._settle(path)

    def _write_partial(self, path: str, content: bytes) -> str:
        partial = f"{path}.{os.getpid()}.new"
        with self.open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return partial

    def move(self, source: str, target: str) -> None:
        self._make_folder(target)
        os.replace(source, target)
        self._settle(target)

    def _settle(self, path: str) -> None:
        """A new name is on the disk only when its folder is."""
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)


class RemoteFiles:
    """Files behind a URL, by fsspec.

    Args:
        filesystem: an ``fsspec.AbstractFileSystem``.
    """

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def open(self, path: str, mode: str) -> BinaryIO:
        if "w" in mode:
            self._filesystem.makedirs(self._filesystem._parent(path), exist_ok=True)
        return cast(BinaryIO, self._filesystem.open(path, mode))

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def create(self, path: str, content: bytes) -> None:
        if self.size(path) is not None:
            raise AlreadyExistsError(f"{path} exists already")
        self.replace(path, content)

    def replace(self, path: str, content: bytes) -> None:
        with self.open(path, "wb") as file:
            file.write(content)

    def move(self, source: str, target: str) -> None:
        self._filesystem.makedirs(self._filesystem._parent(target), exist_ok=True)
        self._filesystem.mv(source, target)

    def names(self, folder: str) -> list[str]:
        # Listings are cached by some file systems, and others write here too.
        self._filesystem.invalidate_cache()
        try:
            found = self._filesystem.ls(folder, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(PurePosixPath(name).name for name in found)

    def size(self, path: str) -> int | None:
        self._filesystem.invalidate_cache()
        try:
            found = self._filesystem.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(found["size"] or 0)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(path)

    def remove_folder(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            self._filesystem.rm(folder, recursive=True)


LOCAL = LocalFiles()


class FileURLs(RemoteFiles):
    """Files that this machine has, by URLs: opened as those with plain paths are, which
    fsspec does not.
    """

    def open(self, path: str, mode: str) -> BinaryIO:
        return LOCAL.open(self._filesystem._strip_protocol(path), mode)


def is_url(path: str) -> bool:
    """Whether a path is for fsspec.

    >>> is_url("s3://bucket/x"), is_url("/tmp/x"), is_url("file:///tmp/x")
    (True, False, True)
    """
    return "://" in path


def whole_path(path: str) -> str:
    """A path that means the same from every folder.

    >>> whole_path("s3://bucket/x/"), whole_path("/a/../b")
    ('s3://bucket/x', '/b')
    """
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def files_of(path: str) -> FileSystem:
    """The file system of a path.

    Raises:
        UnimplementedError: it is a URL, and fsspec, or what it needs for this protocol,
            is not installed.
        ValueError: nobody knows this protocol.

    >>> files_of("/tmp/x") is LOCAL
    True
    """
    if not is_url(path):
        return LOCAL
    try:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        filesystem, _ = fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise UnimplementedError(
            f"{path} is a URL, and for those something is missing here: {error}. Install it with "
            "`pip install "
            "'zmqdata[fsspec]'`, and what fsspec needs for this protocol (s3fs, gcsfs, ...), on "
            "every worker and at "
            "the dispatcher too"
        ) from None
    return (FileURLs if isinstance(filesystem, LocalFileSystem) else RemoteFiles)(filesystem)
