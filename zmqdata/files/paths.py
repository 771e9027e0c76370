"""Paths as users write them: a name of a file on this machine, or a URL.

A text with a scheme (``s3://bucket/x``) is a URL and never the name of a local file.
``file://`` names a local file, and ``~`` at the beginning the home of the user. Access
to files belongs to ``storage.files``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from zmqdata.errors import InvalidArgumentError, UnimplementedError
from zmqdata.peeking import shown

FileName: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"
"""Name of a file or folder. The operating system takes bytes as well as text."""

_URL = re.compile("([^/]*)://")
_SCHEMES = re.compile("[A-Za-z][A-Za-z0-9+.-]+(::[A-Za-z][A-Za-z0-9+.-]+)*")
_FILE_URL = re.compile("(?:file|local):(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)
_ANY_FILE_URL = re.compile("(?:file|local)://", re.IGNORECASE)
_KNOWN = (
    "abfs|abfss|adl|az|dbfs|file|ftp|gcs|gs|hdfs|hf|http|https|local|memory|oci|oss|s3|s3a|s3n|sftp|"
    "smb|ssh|wasb|wasbs|webdav|webhdfs"
)
_NO_SLASH = re.compile(f"(?:{_KNOWN}):(?![/:])", re.IGNORECASE)
_URL_WITHIN = re.compile(f"/(?:(?:{_KNOWN}):/|[A-Za-z][A-Za-z0-9+.-]+://)")
_HOME = re.compile("~[^/]*(?=/)|~$")
_ONE_SLASH = re.compile(f"{_SCHEMES.pattern}::?/(?!/)")
_USER = re.compile("^[^/]*:[^/]*@")
# A password with a slash is no URL, and a secret.
_WEB_USER = re.compile(r"^(?:[^/]*|[^/:@]*:(?!\d+(?:/|$))[^@]*)@")
_CHAIN = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*(?:://|::))")
_QUERY = re.compile(r"\?.*", re.DOTALL)
_LONGEST = 100
LOCK = "lock"
"""File in the work folder of a dispatcher, which locks it while it lives."""


def is_url(path: str) -> bool:
    """Return True if a path has a scheme.

    >>> is_url("s3://bucket/x"), is_url("/tmp/x"), is_url("file:///tmp/x")
    (True, False, True)
    """
    return _URL.match(path) is not None


def shown_url(path: str) -> str:
    """Return a path as texts for people show it: a URL without user, password and
    query, which may hold secrets.

    >>> shown_url("https://me:secret@host/a?signature=x"), shown_url("s3://bucket/a?.txt")
    ('https://host/a?...', 's3://bucket/a?.txt')
    """
    first, *chained = _CHAIN.split(path)
    if chained and (is_url(first) or is_url(path[len(first) + 2 :])):
        return "::".join(map(shown_url, [first, *chained]))
    found = _URL.match(path)
    if found is None:
        return path
    is_web = found[1].lower() in ("http", "https")
    rest = (_WEB_USER if is_web else _USER).sub("", path[found.end() :])
    return f"{found[0]}{_QUERY.sub('?...', rest) if is_web else rest}"


def file_path(value: Any) -> str:
    """Return the name of a file as text.

    Bytes are decoded as the operating system's names are, so that every name can be
    opened, whatever its encoding.

    Raises:
        TypeError: the value is no name.
        ValueError: the name is empty, or contains a NUL.

    >>> import numpy as np
    >>> file_path(b"a.txt"), file_path(np.array("a.txt"))
    ('a.txt', 'a.txt')
    """
    # Not isinstance: supervisors of workers do without numpy.
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    try:
        found = os.fsdecode(value.item() if is_scalar else value)
    except TypeError:
        text = shown(value).split("\n")[0]
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        raise TypeError(
            f"a file name must be a str or path, got {text} of type {type(value).__name__}"
        ) from None
    if not found or "\0" in found:
        raise ValueError(f"a file name must not be empty, nor contain a NUL, got {found!r}")
    return str(found)


def whole_path(name: FileName) -> str:
    """Return a path that does not depend on the current folder: an absolute path on
    this machine, or a URL of another file system.

    Raises:
        InvalidArgumentError: the path is no URL that a file can have.
        TypeError, ValueError: as ``file_path``.

    >>> whole_path("s3://bucket/x/"), whole_path("/a/../b"), whole_path("file:///a%20b")
    ('s3://bucket/x', '/b', '/a b')
    >>> whole_path("~/x") == os.path.join(os.path.expanduser("~"), "x")
    True
    """
    path = file_path(name)
    if found := _FILE_URL.match(path):
        return os.path.abspath(unquote(path[found.end() :]))
    if _ANY_FILE_URL.match(path):
        raise InvalidArgumentError(
            f"{path!r} names a host where a file URL has none. Expected three slashes before an "
            "absolute path, as in 'file:///data/x', or the path alone"
        )
    if _ONE_SLASH.match(path):
        raise InvalidArgumentError(
            f"{path!r} begins as a URL does, but has a single slash. pathlib.Path removes the "
            "second slash of a URL. Pass the URL as text, or write './' before the name of a "
            "local file"
        )
    if found := _NO_SLASH.match(path):
        raise InvalidArgumentError(
            f"{path!r} begins with the scheme of a URL, {found[0]!r}, but lacks the slashes behind "
            "it. Write them, as in 's3://bucket/x' or 'file:///data/x', or './' before the name of "
            "a local file"
        )
    url = _URL.match(path)
    if url is None:
        return os.path.abspath(_local(path))
    if not _SCHEMES.fullmatch(url[1]):
        raise InvalidArgumentError(
            f"{path!r} is a URL without a scheme that exists. Is a variable empty? Expected a "
            "scheme of letters, as in 's3://bucket/x', or './' before the name of a local file"
        )
    return f"{url[1].lower()}://{path[url.end() :].rstrip('/')}"


def _local(path: str) -> str:
    """Return the path of a local file with the home that it begins with.

    Raises:
        InvalidArgumentError: a URL follows the name of a folder, or no such home is
            known.
    """
    if found := _URL_WITHIN.search(path, 2 if path.startswith("./") else 0):
        url = path[found.start() + 1 :]
        raise InvalidArgumentError(
            f"{path!r} has the URL {url!r} behind the name of a folder. Was it joined with the "
            "folder? Pass the URL alone"
        )
    if not _HOME.match(path):
        return path
    whole = os.path.expanduser(path)
    if whole == path:
        raise InvalidArgumentError(
            f"{path!r} begins with the home of a user who is not known on this machine. Give an "
            "absolute path, or write './' before the name of a local folder"
        )
    return whole


def local_path(name: str, path: FileName, remedy: str) -> str:
    """Return the absolute path of a file on this machine.

    Args:
        name: name of what takes the path, for the error.
        path: the path as the user wrote it.
        remedy: what to do instead if the path is a URL.

    Raises:
        UnimplementedError: the path is a URL of another file system.
        InvalidArgumentError: the path is no URL that a file can have.
        TypeError, ValueError: as ``file_path``.

    >>> local_path("`work_dir`", "file:///data", "Give a folder")
    '/data'
    """
    found = whole_path(path)
    if is_url(found):
        told = shown_url(file_path(path))
        raise UnimplementedError(
            f"{name} takes a path on this machine, and {told!r} is a URL. {remedy}"
        )
    return found


def local_name(name: str, path: FileName, remedy: str) -> str:
    """Return the name of a file on this machine for the operating system. A relative
    path stays one.

    Args:
        name, path, remedy: as for ``local_path``.

    Raises:
        UnimplementedError, InvalidArgumentError, TypeError, ValueError: as
            ``local_path``.

    >>> [local_name("`work_dir`", path, "") for path in ("jobs", "file:///jobs")]
    ['jobs', '/jobs']
    """
    given, found = file_path(path), local_path(name, path, remedy)
    return given if os.path.abspath(given) == found else found


def files_token() -> str:
    """Return a token that is equal in two processes only if they see the same files:
    they share kernel, mounts and root folder. "" if the system does not tell.

    Containers of a machine have different tokens.
    Example:
        >>> files_token() == files_token()
        True
    """
    with contextlib.suppress(OSError):
        return token_of(boot_id(), identity_of("/proc/self/ns/mnt"), identity_of("/"))
    return ""


def boot_id() -> str:
    """Return an identifier that is different each time the kernel is started.

    Raises:
        OSError: the system has none.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identity_of(path: str) -> str:
    """Return an identifier of a file or namespace, unique on this machine.

    Raises:
        OSError: it does not exist.
    """
    seen = os.stat(path)
    return f"{seen.st_dev}:{seen.st_ino}"


def token_of(*seen: str) -> str:
    """Return a short token of texts, equal only for equal texts."""
    return hashlib.sha256("|".join(seen).encode()).hexdigest()[:32]


def is_locked(path: str) -> bool | None:
    """Return True if a process holds the lock (``flock``) of a file, None if this
    process cannot find out.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
