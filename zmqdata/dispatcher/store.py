"""The store of registered pipelines and their parts, by the digest of their content, on
disk or in memory.

It never interprets their bytes.

Protocol 2.7 to 2.9.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from zmqdata import messages as m
from zmqdata.core.dispatcher.events import KeepPiece, PieceKept
from zmqdata.dispatcher.journalfile import sync_folder
from zmqdata.transport.folders import SocketFolder
from zmqdata.transport.parts import PartFolder

log = logging.getLogger(__name__)

RESERVED_BYTES = 256 << 20
"""Bytes that stay free on the disk (a twentieth of a small disk), so that uploads of
large pipelines cannot stop a dispatcher with a journal.
"""


class PipelineStore:
    """Packed pipelines and large parts by digest.

    Args:
        work_dir: folder in which to keep them. None keeps packed pipelines in memory,
            and large parts in a temporary folder that is removed with this store.
        synced: False if the folder does not outlive a crash of the machine, so that
            nothing waits for the disk.

    Raises:
        OSError: the folder cannot be created.
    """

    def __init__(self, work_dir: str | None, synced: bool = True) -> None:
        self._synced = synced
        self._memory: dict[str, bytes] = {}
        self._temporary: SocketFolder | None = None
        self._folder = None if work_dir is None else PartFolder(Path(work_dir) / "pipelines")

    def put(self, digest: str, pipeline: bytes) -> None:
        """Store a pipeline. Storing it again changes nothing. If the disk is full, the
        pipeline is kept in memory.
        """
        if self._folder is None or self._temporary is not None:
            self._memory[digest] = pipeline
            return
        try:
            self._folder.put(digest, pipeline)
        except OSError as error:
            log.error(
                "a pipeline is kept in memory only, and lost when the dispatcher ends, because it "
                "cannot be written to the work folder: %s",
                error,
            )
            self._memory[digest] = pipeline

    def get(self, digest: str) -> bytes | None:
        """Return the pipeline; None if it is not stored."""
        if digest in self._memory or self._folder is None:
            return self._memory.get(digest)
        return self._folder.read(digest, 0, -1)

    def drop(self, digest: str) -> None:
        """Delete a pipeline or part, if it is stored."""
        self._memory.pop(digest, None)
        if self._folder is not None:
            self._folder.remove(digest)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return the digests that are not stored."""
        kept = self._memory.keys() | set(self.found()[0])
        return [digest for digest in digests if digest not in kept]

    def sync(self, digest: str) -> None:
        """Write a pipeline or part to the folder, if the store has one, and wait until
        it is on the disk if the store is synced.

        Raises:
            OSError: it cannot be written, or is missing.
        """
        if self._folder is None:
            return
        if digest in self._memory:
            self._folder.put(digest, self._memory[digest])
        with self._folder.path(digest).open("rb") as file:
            if self._synced:
                os.fsync(file.fileno())
                sync_folder(self._folder.folder)

    def found(self) -> tuple[list[str], dict[str, int]]:
        """Return what an earlier store left in the folder: complete parts, and the
        sizes of partial ones.
        """
        return ([], {}) if self._folder is None else (self._folder.whole(), self._folder.partial())

    def keep_piece(self, command: KeepPiece) -> PieceKept:
        """Write a piece, and verify the part when it is complete."""
        try:
            if self._folder is None:
                self._temporary = SocketFolder()
                self._folder = PartFolder(self._temporary.path)
            self._check_space()
            have = self._folder.append(command.digest, command.offset, command.content)
            if have < command.size:
                return PieceKept(
                    command.digest, have, broken=have != command.offset + len(command.content)
                )
            if self._folder.complete(command.digest):
                return PieceKept(command.digest, have)
            return PieceKept(command.digest, 0, broken=True)
        except OSError as error:
            return PieceKept(
                command.digest,
                0,
                error=f"{error.strerror or error}: {error.filename or self._place()}",
            )

    def _check_space(self) -> None:
        disk = shutil.disk_usage(self._place())
        if disk.free < min(RESERVED_BYTES, disk.total // 20):
            raise OSError(
                errno.ENOSPC,
                f"only {disk.free} bytes are left, which the journal may need",
                self._place(),
            )

    def _place(self) -> str:
        return "the temporary folder" if self._folder is None else str(self._folder.folder)

    def read_piece(self, digest: str, offset: int) -> bytes | None:
        """Return bytes of a part from ``offset`` on; None if it is not stored."""
        return None if self._folder is None else self._folder.read(digest, offset, m.PIECE_BYTES)

    def close(self) -> None:
        """Remove the temporary folder."""
        if self._temporary is not None:
            self._temporary.close()
