"""Files of stores, with the operations of ``files``: an object is read by ranges, and
becomes visible as a whole.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from zmqdata.errors import AlreadyExistsError, NotFoundError
from zmqdata.files.paths import is_url, shown_url
from zmqdata.storage.files import LOCAL, FileSystem, filesystem_of
from zmqdata.storage.reading import SequentialFile, change, open_remote, put


class RemoteFiles:
    """Files at a URL, through fsspec. Contents are read and replaced with retries.

    Args:
        filesystem: an ``fsspec.AbstractFileSystem``.
    """

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def open(self, path: str, mode: str) -> BinaryIO:
        if "w" in mode:
            self._filesystem.makedirs(self._filesystem._parent(path), exist_ok=True)
            return cast(BinaryIO, self._filesystem.open(path, mode))
        file = open_remote(path)
        try:
            file.seek(0, io.SEEK_END)  # asks for the size
        except NotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, str(error), shown_url(path)) from None
        return cast(BinaryIO, io.BufferedReader(SequentialFile(file)))

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def create(self, path: str, content: bytes) -> None:
        if self.size(path) is not None:
            raise AlreadyExistsError(f"{shown_url(path)} exists already")
        self.replace(path, content)

    def replace(self, path: str, content: bytes) -> None:
        put(path, content)

    def move(self, source: str, target: str) -> None:
        self._filesystem.makedirs(self._filesystem._parent(target), exist_ok=True)
        self._filesystem.mv(source, target)

    def names(self, folder: str) -> list[str]:
        # Some file systems cache listings, and other processes write here, too.
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
        # While a process ends, only a client with an open connection can send requests.
        with contextlib.suppress(NotFoundError):
            change(path, lambda filesystem, name: filesystem.rm_file(name), "removed")

    def remove_folder(self, folder: str) -> None:
        with contextlib.suppress(Exception):
            change(folder, lambda filesystem, name: filesystem.rm(name, True), "removed")


class FileURLs(RemoteFiles):
    """Files on this machine, by URL. They are opened as plain paths are, with a check
    that fsspec lacks.
    """

    def open(self, path: str, mode: str) -> BinaryIO:
        return LOCAL.open(self._filesystem._strip_protocol(path), mode)


def files_of(path: str) -> FileSystem:
    """Return the file system of a path.

    Raises:
        UnimplementedError, InvalidArgumentError, OSError: as ``filesystem_of``, for a
            URL.

    >>> files_of("/tmp/x") is LOCAL
    True
    """
    if not is_url(path):
        return LOCAL
    filesystem, _ = filesystem_of(path)
    from fsspec.implementations.local import LocalFileSystem

    return (FileURLs if isinstance(filesystem, LocalFileSystem) else RemoteFiles)(filesystem)


def new_name() -> str:
    """Return a name that no other writer has.

    >>> new_name() == new_name()
    False
    """
    return os.urandom(8).hex()
