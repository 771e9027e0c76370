"""The file in which a dispatcher announces its address to processes that share a disk
with it, for engines that choose the host only when they start it.

A service ``file:PATH`` names such a file. Connections follow it: each second they read
the file anew, and go to the dispatcher that it names now.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import time
from pathlib import Path

from zmqdata.config.endpoints import FILE_SCHEME, parse_service
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    VersionMismatchError,
)

READ_EVERY = 1.0
"""Least seconds between two readings of a file."""
MOST_BYTES = 1 << 16
"""Maximum size of a file in bytes; the file of a dispatcher has about a hundred."""

UNUSABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError, NotFoundError)
"""Errors of contents that no dispatcher has written."""

_read: dict[str, tuple[float, str]] = {}
"""Time of the last reading of a file, and the address that was found last, by path."""


class DispatcherFile:
    """The file of one start of a dispatcher.

    Args:
        path: path of the file. Its folder exists.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()
        self._id = secrets.token_hex(8)

    def write(self, address: str, mode: int = 0o644, **more: str) -> None:
        """Announce an address. Readers see the whole file or none.

        Args:
            address: endpoint at which the dispatcher listens now.
            mode: permissions of the file.
            more: further facts.

        Raises:
            OSError: the file cannot be written.
        """
        from zmqdata.messages import PROTOCOL_VERSION

        facts = {"address": address, "protocol": PROTOCOL_VERSION, "id": self._id, **more}
        draft = self._other()
        try:
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(facts) + "\n", encoding="utf-8")
            draft.chmod(mode)
            os.replace(draft, self._path)
        except OSError as error:
            raise OSError(
                error.errno, f"the dispatcher file cannot be written: {error.strerror}", self._path
            ) from None
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the file, unless a newer dispatcher has replaced it."""
        taken = self._other()
        with contextlib.suppress(OSError):
            if self._is_own(self._path):
                # A newer dispatcher may replace it at any moment. What was moved away
                # is checked again, and a newer file goes back unless there is one.
                os.replace(self._path, taken)
                if not self._is_own(taken):
                    os.link(taken, self._path)
        with contextlib.suppress(OSError):
            taken.unlink(missing_ok=True)

    def _is_own(self, path: Path) -> bool:
        return self._id in path.read_text(encoding="utf-8")

    def _other(self) -> Path:
        return self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")


def address_in(path: str) -> str:
    """Return the address of the dispatcher that a file announces; errors are those of
    ``facts_in``.
    """
    return facts_in(path)["address"]


def facts_in(path: str) -> dict[str, str]:
    """Return what a file announces, with its address in normal form.

    Raises:
        FileNotFoundError: no dispatcher has written the file yet.
        OSError: the file cannot be read.
        FailedPreconditionError: other users may write the file, or own it.
        InvalidArgumentError: a dispatcher did not write the file.
        VersionMismatchError: the dispatcher speaks another version of the protocol.
    """
    from zmqdata.messages import PROTOCOL_VERSION

    # Opened anew, which makes a network file system ask its server. A pipe must not
    # block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_owner(path, os.fstat(descriptor))
        content = os.read(descriptor, MOST_BYTES)
    finally:
        os.close(descriptor)
    try:
        facts = json.loads(content)
        address, version = parse_service(facts["address"], "address"), int(facts["protocol"])
        if address.startswith(FILE_SCHEME):
            raise ValueError("its address is another file")
    except UNUSABLE as error:
        raise InvalidArgumentError(
            f"The dispatcher file {path} has no address of a dispatcher ({error}). Name the file "
            "that `zmqdata dispatcher --dispatcher-file` writes."
        ) from None
    if version != PROTOCOL_VERSION:
        raise VersionMismatchError(
            f"The dispatcher that wrote {path} speaks version {version} of the protocol, and this "
            f"process version {PROTOCOL_VERSION}: their releases of zmqdata are incompatible. "
            "Install the same release on all machines."
        )
    return {**facts, "address": address}


def _check_owner(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise FailedPreconditionError(f"The dispatcher file {path} is no regular file.")
    if found.st_mode & 0o022 or found.st_uid not in (0, os.geteuid()):
        raise FailedPreconditionError(
            f"Other users may change the dispatcher file {path} (owner {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):o}), and so send this process to their own dispatcher. "
            f"Expected a file that belongs to user {os.geteuid()} or to root, and that its owner "
            "alone may write. Run "
            "`chmod go-w` on it, or start the dispatcher as the same user."
        )


def current_address(endpoint: str) -> str:
    """Return the endpoint at which a dispatcher listens now.

    Args:
        endpoint: what ``parse_service`` returns.

    Returns:
        The endpoint itself, unless it names a file; else the address in the file. An
        address that was found before stays valid while the file is missing or unusable.
        ``""`` if no dispatcher has written the file yet.

    Raises:
        OSError, DataServiceError: as ``address_in``, if no address was found before.

    Example:
        >>> current_address("tcp://10.0.0.1:5050"), current_address("file:/no/such")
        ('tcp://10.0.0.1:5050', '')
    """
    if not endpoint.startswith(FILE_SCHEME):
        return endpoint
    read_at, address = _read.get(endpoint, (-READ_EVERY, ""))
    now = time.monotonic()
    if now - read_at >= READ_EVERY:
        try:
            address = address_in(endpoint.removeprefix(FILE_SCHEME))
        except FileNotFoundError:
            pass
        except (OSError, DataServiceError):
            if not address:
                raise
        _read[endpoint] = now, address
    return address
