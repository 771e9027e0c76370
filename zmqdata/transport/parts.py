"""A folder of pipeline parts, each in a file named after its digest. The dispatcher and
the workers each keep such a folder.

A partial part lies beside the whole parts as ``<digest>.partial``. It gets its final
name only once its bytes match the digest. The caller decides which parts to keep.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import time
from pathlib import Path

from zmqdata.transport.folders import make_own, open_own

PARTIAL = ".partial"
ABANDONED_AFTER = 24 * 3600.0
"""Seconds without a write after which a partial part may be removed."""
_CHECKED_AT_A_TIME = 4 << 20


class PartFolder:
    """Content-addressed files of pipeline parts in a folder.

    Args:
        folder: created if it does not exist, for this user alone, since pipelines may
            contain secrets.

    Raises:
        PermissionDeniedError: another user may have prepared the folder.
        OSError: the folder cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_own(folder)

    def whole(self) -> list[str]:
        """Return the digests of the whole parts, judged by their file names."""
        return [path.name for path in self.folder.iterdir() if len(path.name) == 64]

    def partial(self) -> dict[str, int]:
        """Return the bytes received so far of each partial part, by digest."""
        return {path.stem: path.stat().st_size for path in self.folder.glob(f"*{PARTIAL}")}

    def path(self, digest: str) -> Path:
        """Return the path of a whole part.

        A digest comes from a peer: only its letters and digits reach the file system.
        """
        return self.folder / "".join(character for character in digest if character.isalnum())[:128]

    def _partial_path(self, digest: str) -> Path:
        return self.path(digest).with_suffix(PARTIAL)

    def size_of_partial(self, digest: str) -> int:
        """Return the bytes received so far of a partial part; 0 if there is none."""
        try:
            return self._partial_path(digest).stat().st_size
        except FileNotFoundError:
            return 0

    def size_of(self, digest: str) -> int | None:
        """Return the size of a whole part in bytes; None if the part does not exist."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return None

    def put(self, digest: str, content: bytes) -> None:
        """Store a small part that arrived whole."""
        if self.size_of(digest) is None:
            with open(self._partial_path(digest), "wb", opener=open_own) as file:
                file.write(content)
            self._partial_path(digest).replace(self.path(digest))

    def append(self, digest: str, offset: int, content: bytes) -> int:
        """Append a piece if it is the next, and return the bytes received so far.

        Raises:
            OSError: the disk is full, or the folder no longer exists.
        """
        with open(self._partial_path(digest), "ab", opener=open_own) as file:
            have = file.seek(0, os.SEEK_END)
            if have == offset:
                try:
                    have += file.write(content)
                    file.flush()
                except OSError:
                    # A partly written piece would shift the next piece.
                    with contextlib.suppress(OSError):
                        file.truncate(offset)
                    raise
            return have

    def complete(self, digest: str) -> bool:
        """Rename a partial part to its digest if its bytes match, else remove it.

        Returns:
            True if the bytes match the digest.
        """
        path = self._partial_path(digest)
        sound = digest_of(path) == digest
        if sound:
            path.replace(self.path(digest))
        else:
            path.unlink(missing_ok=True)
        return sound

    def read(self, digest: str, offset: int, count: int) -> bytes | None:
        """Read bytes of a whole part; return None if it cannot be read."""
        try:
            with open(self.path(digest), "rb", opener=open_own) as file:
                file.seek(offset)
                return file.read(count)
        except (OSError, ValueError):
            return None

    def remove(self, digest: str) -> None:
        """Remove a part, whole or partial. Processes that have it mapped can still read
        it.
        """
        for path in (self.path(digest), self._partial_path(digest)):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def remove_whole(self, digest: str, descriptor: int) -> None:
        """Remove the file of a part that is open under ``descriptor``, unless another
        file has its name by now.

        Computing a digest takes time: another process may have found the same damage
        meanwhile and fetched the part anew.
        """
        path = self.path(digest)
        with contextlib.suppress(OSError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                path.unlink()

    def claim(self, digest: str) -> int | None:
        """Lock a partial part against other processes until the descriptor is closed.

        Returns:
            The descriptor; None while another process holds the lock.

        Raises:
            OSError: the file cannot be created.
        """
        path = self._partial_path(digest)
        descriptor = open_own(path, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder of the lock may have completed or removed the file
            # since this process opened it.
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except OSError:
            pass
        os.close(descriptor)
        return None

    def make_space(self, needed: int, limit: int, keep: frozenset[str]) -> bool:
        """Remove the least recently used parts until ``needed`` more bytes fit within
        ``limit``.

        Parts in ``keep`` are not removed.

        Returns:
            True if the bytes fit.
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


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; ``""`` if it cannot be read."""
    found = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0, opener=open_own) as file:
            while piece := file.read(_CHECKED_AT_A_TIME):
                found.update(piece)
    except OSError:
        return ""
    return found.hexdigest()


def private_map(descriptor: int) -> memoryview:
    """Map a file copy-on-write: writing to the returned view does not change the
    file.
    """
    if os.fstat(descriptor).st_size == 0:
        return memoryview(bytearray())
    return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
