"""Access to files by plain paths on this machine, and to the clients of fsspec.

Only operations that saving and loading need belong here, and the options of clients.
File contents belong to ``chunks`` and ``manifests``, reading by ranges to ``reading``,
files of stores to ``remote``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO, cast

from zmqdata.errors import (
    BY_NAME,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnimplementedError,
)
from zmqdata.files.paths import is_url, shown_url
from zmqdata.machine.descriptors import shortage_explained

_SECRETS = (
    *("auth", "authorization", "connection_string", "cookie", "credential", "credentials", "key"),
    *("passphrase", "password", "passwd", "secret", "token"),
)
"""Ends of the names of options, and of headers, that hold secrets."""
_WORDS = (None, "", False, True, "anon", "cloud", "google_default", "cache", "browser")
"""Values of such options that name a way to credentials and hold none."""
LOCK = "lockfile"
"""File in a folder that is locked while the folder is written."""


class FileSystem(Protocol):
    """A file system. Paths are absolute, as the user gave them. Folders are created on
    demand.
    """

    def open(self, path: str, mode: str) -> BinaryIO:
        """Open a file with mode ``"rb"`` or ``"wb"``. A written file is on the disk
        after ``finish``.
        """

    def finish(self, file: BinaryIO) -> None:
        """Sync a written file to the disk and close it."""

    def create(self, path: str, content: bytes) -> None:
        """Create a file with this content atomically; raise AlreadyExistsError if it
        exists.
        """

    def replace(self, path: str, content: bytes) -> None:
        """Create a file with this content atomically, replacing an existing file."""

    def move(self, source: str, target: str) -> None:
        """Rename a file. On this machine this is atomic; an object store copies and
        deletes.
        """

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; empty if the folder does not exist."""

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with its contents, as far as possible."""


def read(files: FileSystem, path: str, most: int = -1) -> bytes:
    """Return the content of a file, or its first ``most`` bytes."""
    with files.open(path, "rb") as file:
        return file.read(most)


def _regular(path: str, flags: int) -> int:
    """Open a regular file for ``open``. Refuse other kinds of files, because opening a
    pipe would block forever.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (
            errno.ENXIO,
            errno.EISDIR,
        ):  # a socket, a pipe without a reader, or a folder opened for writing
            raise FailedPreconditionError(_no_file(path)) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FailedPreconditionError(_no_file(path))


def _no_file(path: str) -> str:
    return (
        f"{path} is a pipe, a device, a socket or a folder, but a file is expected "
        "there. zmqdata never creates such an entry. Remove it, or choose another "
        "folder"
    )


class LocalFiles:
    """Files on this machine, including mounted file systems."""

    def open(self, path: str, mode: str) -> BinaryIO:
        if "w" in mode:
            self._make_folder(path)
        with shortage_explained(f"the file {path}"):
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
        """Sync the folder of a file, because a new name is durable only after its
        folder is synced.
        """
        with shortage_explained(f"the folder of {path}"):
            folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def names(self, folder: str) -> list[str]:
        try:
            with shortage_explained(f"the folder {folder}"):
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


LOCAL = LocalFiles()


def lock_folder(folder: str) -> TextIO | None:
    """Create a folder, and lock it for writing until the returned file is closed or
    this process ends; None if another writer holds it. A store has no locks, and any
    number of writers there.

    Raises:
        AlreadyExistsError: a file has the name of the folder, or of one above it.
    """
    if is_url(folder):
        return io.StringIO()
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        path = Path(folder)
        found = next(one for one in (path, *path.parents) if os.path.lexists(one))
        raise AlreadyExistsError(
            f"The folder {folder!r} cannot be created, because {str(found)!r} is a file. Choose "
            "another name, or remove the file"
        ) from None
    with shortage_explained(f"the folder {folder}"):
        file = open(os.path.join(folder, LOCK), "a+", encoding="utf-8")  # noqa: SIM115 - held open
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {os.uname().nodename}")
    file.flush()
    return file


def error_name_of(error: Exception, otherwise: type[Exception]) -> str:
    """Return the name of the class under which an error of a file system is told to
    users.

    Args:
        error: the error.
        otherwise: class of an error that is none of ours, unless the disk is full.

    >>> error_name_of(OSError(errno.ENOSPC, "full"), FailedPreconditionError)
    'ResourceExhaustedError'
    """
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ResourceExhaustedError.__name__
    return type(error).__name__ if type(error).__name__ in BY_NAME else otherwise.__name__


def filesystem_of(url: str, **options: Any) -> tuple[Any, str]:
    """Return the file system of fsspec for a URL, and the path of the URL in it.

    Args:
        url: the URL.
        options: arguments of the file system.

    Raises:
        UnimplementedError: fsspec, or a package that it needs for this protocol, is not
            installed.
        InvalidArgumentError: the protocol is unknown.
        OSError: the server cannot be reached. It has the path as its file name.
    """
    with _explained(url):
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(url, **options)
    return filesystem, path


def check_protocols(url: str) -> None:
    """Raise if this process cannot read a URL. Connects to nothing.

    Raises:
        UnimplementedError, InvalidArgumentError: as ``filesystem_of``.
    """
    if url.startswith(("http://", "https://")):
        return
    with _explained(url):
        import fsspec

        for part in url.split("::"):
            fsspec.get_filesystem_class(part.partition("://")[0])


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turn the errors of fsspec for a URL into ours."""
    told = shown_url(url)
    try:
        yield
    except ImportError as error:
        raise UnimplementedError(
            f"{told} is a URL, and a package for it is missing: {error}. Install it "
            "with `pip install 'zmqdata[fsspec]'`, together with the package that "
            "fsspec needs for this protocol (s3fs, gcsfs, ...), on every worker and "
            "on the dispatcher, too"
        ) from None
    except OSError as error:
        # Some protocols reach their server here, and their errors do not name it.
        error.filename = error.filename or told
        raise
    except ValueError as error:
        import fsspec

        known = ", ".join(sorted(fsspec.available_protocols()))
        raise InvalidArgumentError(
            f"{told} cannot be opened by fsspec: {error}. The protocols that it knows are {known}"
        ) from None


class StorageOptions(dict[str, Any]):
    """Options of the client of a store. They are pickled only if they hold no secret.

    >>> StorageOptions(anon=True, client_kwargs={"password": "x"}).secrets()
    ['client_kwargs.password']
    """

    def secrets(self) -> list[str]:
        """Return the names of the options that hold secrets, nested ones, too."""
        return list(_secrets(self))

    def __repr__(self) -> str:
        return f"<storage options {', '.join(self)}>"

    def __reduce__(self) -> Any:
        if found := self.secrets():
            raise InvalidArgumentError(
                f"storage_options holds {', '.join(map(repr, found))}, and secrets do not travel "
                "to other processes. Leave them out, and give each machine its own: in the "
                "environment, as AWS_ACCESS_KEY_ID, or in ~/.config/fsspec"
            )
        return StorageOptions, (dict(self),)


def is_secret(name: str) -> bool:
    """Return True if an option, or a header, of this name may hold a secret.

    >>> is_secret("X-API-Key"), is_secret("region")
    (True, False)
    """
    return name.casefold().endswith(_SECRETS)


def _secrets(options: Any, before: str = "") -> Iterator[str]:
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(options, dict):
        pairs = options.items()
    elif isinstance(options, (list, tuple)):
        pairs = enumerate(options)
    for name, value in pairs:
        path = f"{before}{name}"
        is_nested = isinstance(value, (dict, list))
        if not is_nested and is_secret(str(name)) and value not in _WORDS:
            yield path
        else:
            yield from _secrets(value, f"{path}.")
