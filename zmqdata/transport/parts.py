"""A folder of parts of pipelines, each in a file named after its digest. Dispatcher and
workers keep theirs in one.

A part that is not whole yet lies beside the whole ones under ``<digest>.partial`` and
gets its name only when its bytes are what the digest says. Nothing here decides what is
kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import time
from pathlib import Path

from zmqdata.transport.folders import make_private

PARTIAL = ".partial"
ABANDONED_AFTER = 24 * 3600.0
_CHECKED_AT_A_TIME = 4 << 20


class PartFolder:
    """Files by digest.

    Args:
        folder: made when it is not there, for this user alone: pipelines may have
            secrets in them.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_private(folder)

    def whole(self) -> list[str]:
        """Digests of the parts that are whole, as far as their names tell."""
        return [path.name for path in self.folder.iterdir() if len(path.name) == 64]

    def partial(self) -> dict[str, int]:
        """How much there is of the parts that are not."""
        return {path.stem: path.stat().st_size for path in self.folder.glob(f"*{PARTIAL}")}

    def path(self, digest: str) -> Path:
        """Where a whole part lies. A digest comes from a peer: only its letters and
        digits reach the file system.
        """
        return self.folder / "".join(character for character in digest if character.isalnum())[:128]

    def _partial_path(self, digest: str) -> Path:
        return self.path(digest).with_suffix(PARTIAL)

    def size_of(self, digest: str) -> int | None:
        """Bytes of a whole part; None where there is none."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return None

    def put(self, digest: str, content: bytes) -> None:
        """Keeps a small part that came in one piece."""
        if self.size_of(digest) is None:
            with open(self._partial_path(digest), "wb", opener=_open_private) as file:
                file.write(content)
            self._partial_path(digest).replace(self.path(digest))

    def append(self, digest: str, offset: int, content: bytes) -> int:
        """Writes a piece if it is the next one; returns how much there is now.

        Raises:
            OSError: there is no space, or the folder is gone.
        """
        with open(self._partial_path(digest), "ab", opener=_open_private) as file:
            have = file.seek(0, os.SEEK_END)
            if have == offset:
                try:
                    have += file.write(content)
                    file.flush()
                except OSError:
                    # What was half written would put the next piece in the wrong place.
                    with contextlib.suppress(OSError):
                        file.truncate(offset)
                    raise
            return have

    def complete(self, digest: str) -> bool:
        """Gives a part its name if its bytes are what the digest says, else removes
        it.
        """
        path = self._partial_path(digest)
        sound = digest_of(path) == digest
        if sound:
            path.replace(self.path(digest))
        else:
            path.unlink(missing_ok=True)
        return sound

    def read(self, digest: str, offset: int, count: int) -> bytes | None:
        """Bytes of a whole part; None when it can not be read."""
        try:
            with self.path(digest).open("rb") as file:
                file.seek(offset)
                return file.read(count)
        except (OSError, ValueError):
            return None

    def remove(self, digest: str) -> None:
        """Removes a part, whole or not. Whoever has it mapped goes on reading it."""
        for path in (self.path(digest), self._partial_path(digest)):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def remove_whole(self, digest: str, descriptor: int) -> None:
        """Removes the file of a part that is open under ``descriptor``, unless another
        has its name by now.

        Checking it takes a while: somebody else may have found the damage too, and be
        fetching the part, or have it.
        """
        path = self.path(digest)
        with contextlib.suppress(OSError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                path.unlink()

    def claim(self, digest: str) -> int | None:
        """Locks a part that is not whole against other processes, for as long as the
        descriptor is open.

        Returns:
            The descriptor; None while somebody else has the lock.

        Raises:
            OSError: the file cannot be made.
        """
        path = self._partial_path(digest)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who had the lock may have completed or removed the file since it was
            # opened.
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except OSError:
            pass
        os.close(descriptor)
        return None

    def make_space(self, needed: int, limit: int, keep: frozenset[str]) -> bool:
        """Removes parts, those used longest ago first, until ``needed`` more bytes are
        within ``limit``.

        Returns:
            Whether they are. Parts in ``keep`` are not removed.
        """
        files = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if path.suffix == PARTIAL and time.time() - status.st_mtime > ABANDONED_AFTER:
                    path.unlink(missing_ok=True)
                else:
                    files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total + needed <= limit:
                break
            if path.name not in keep and path.suffix != PARTIAL:
                path.unlink(missing_ok=True)
                total -= size
        return total + needed <= limit


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def digest_of(path: Path) -> str:
    """SHA-256 of a file in hex; ``""`` when it can not be read."""
    found = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(_CHECKED_AT_A_TIME):
                found.update(piece)
    except OSError:
        return ""
    return found.hexdigest()


def private_map(descriptor: int) -> memoryview:
    """The bytes of a file, in memory that may be written to without changing it, and
    without a copy until then.
    """
    if os.fstat(descriptor).st_size == 0:
        return memoryview(bytearray())
    return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
