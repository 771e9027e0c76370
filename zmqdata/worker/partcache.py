"""The parts of pipelines on a worker's disk, shared by all workers of a user on this
machine.

Only one process at a time fetches a part; the others find it when it is complete. Parts
held for runners stay open, so that another process may remove their files to make
space.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zmqdata.core.worker import events as e
from zmqdata.errors import PermissionDeniedError
from zmqdata.machine.descriptors import is_shortage, shortage
from zmqdata.pipelines.memorymaps import fault_of
from zmqdata.pipelines.parcels import drop_parcels
from zmqdata.printable import shown_size
from zmqdata.transport.folders import make_own, open_own, user_folder
from zmqdata.transport.parts import PartFolder, digest_of, private_map


def checked(command: e.CheckFiles) -> e.FilesChecked:
    """Return whether the files that a pipeline maps are the same here."""
    return e.FilesChecked(command.request, next(filter(None, map(fault_of, command.maps)), ""))


AWAIT_OTHER = 0.2
"""Seconds for which a part is awaited that another process fetches."""
LOOK_EVERY = 0.005
"""Seconds between two looks for such a part."""


class PartCache:
    """Claims, writes, verifies and opens parts. A thread of its own accesses the files.

    Args:
        folder: folder of the parts; None for a folder of this user in the system's
            temporary folder.
        limit: maximum number of bytes in it.
        report: receives ``PartClaimed`` and ``PieceKept`` events, from any thread.

    Raises:
        PermissionDeniedError: another user may have prepared the folder.
    """

    def __init__(
        self, folder: str | None, limit: int, report: Callable[[e.WorkerEvent], None]
    ) -> None:
        if folder is not None:
            try:
                make_own(Path(folder))
            except PermissionDeniedError:
                raise
            except OSError:  # told when a pipeline needs the folder
                pass
        self._place = folder
        self._limit = limit
        self._report = report
        self._folder: PartFolder | None = None
        self._held: dict[str, int] = {}
        self._claims: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zmqdata-parts")

    # --- from the worker's loop

    def claim(self, command: e.ClaimPart) -> None:
        """Look for a part, and report ``PartClaimed``."""
        self._thread.submit(self._claim, command.digest, command.size)

    def keep(self, command: e.KeepPiece) -> None:
        """Write a piece, and report ``PieceKept``."""
        self._thread.submit(self._keep, command)

    def release(self, command: e.ReleaseParts) -> None:
        """Release the parts that are not needed."""
        self._thread.submit(self._release, command.needed)

    def drop_parcels(self, command: e.DropParcels) -> None:
        """Drop the parcels that are kept opened for some datasets."""
        drop_parcels(command.datasets)

    def close(self) -> None:
        """Release all parts. The files stay for the next worker."""
        self._closing.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._release(frozenset())

    def check_files(self, command: e.CheckFiles) -> None:
        """Look at the files that a pipeline maps, and report ``FilesChecked``."""
        self._thread.submit(lambda: self._report(checked(command)))

    # --- from runners

    def find(self, digest: str) -> memoryview | None:
        """Return the bytes of a held part, as memory that the caller may write to; None
        if it is not held.
        """
        with self._lock:
            descriptor = self._held.get(digest)
            return None if descriptor is None else private_map(descriptor)

    # --- in its thread

    def _claim(self, digest: str, size: int) -> None:
        try:
            folder = self._open_folder()
            if self._hold(folder, digest, size):
                self._report(e.PartClaimed(digest, size, False))
                return
            if not folder.make_space(
                size - folder.size_of_partial(digest), self._limit, frozenset(self._held)
            ):
                text = (
                    f"the cache of {shown_size(self._limit)} in {folder.folder} has no room for "
                    "it; give the worker a larger cache with --pipeline-cache-bytes"
                )
                self._report(e.PartClaimed(digest, 0, False, text))
                return
            if digest not in self._claims:
                descriptor = folder.claim(digest)
                if descriptor is None:
                    have = size if self._await_other(folder, digest, size) else 0
                    self._report(e.PartClaimed(digest, have, False))
                    return
                self._claims[digest] = descriptor
            self._report(e.PartClaimed(digest, self._fitting(digest, size), True))
        except OSError as error:
            self._report(e.PartClaimed(digest, 0, False, self._text(error)))

    def _await_other(self, folder: PartFolder, digest: str, size: int) -> bool:
        """Wait a moment for the process that fetches a part, and return True if the
        part is complete. A small part is there within milliseconds, long before the
        worker looks again.
        """
        until = time.monotonic() + AWAIT_OTHER
        while not self._closing.wait(LOOK_EVERY) and time.monotonic() < until:
            if self._hold(folder, digest, size):
                return True
        return False

    def _fitting(self, digest: str, size: int) -> int:
        """Return the number of usable bytes of a part. A file that has its full length,
        but was never renamed as complete, is discarded.
        """
        have = os.fstat(self._claims[digest]).st_size
        if have >= size:
            os.truncate(self._claims[digest], 0)
            return 0
        return have

    def _keep(self, command: e.KeepPiece) -> None:
        if command.digest not in self._claims:
            return
        try:
            folder = self._open_folder()
            have = folder.append(command.digest, command.offset, command.content)
            broken = have != command.offset + len(command.content)
            if have == command.size:
                broken = not folder.complete(command.digest) or not self._hold(
                    folder, command.digest, have, True
                )
            if broken or have == command.size:
                # A broken part begins anew with another claim, because the locked file
                # may have lost its name.
                self._unclaim(command.digest)
            self._report(e.PieceKept(command.digest, 0 if broken else have, broken))
        except OSError as error:
            self._unclaim(command.digest)
            self._open_folder().remove(command.digest)
            self._report(e.PieceKept(command.digest, 0, error=self._text(error)))

    def _hold(self, folder: PartFolder, digest: str, size: int, checked: bool = False) -> bool:
        """Open a complete part if it matches its digest. Remove a part that does not
        match.
        """
        if digest in self._held:
            return True
        path = folder.path(digest)
        try:
            descriptor = open_own(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        if os.fstat(descriptor).st_size != size or not (checked or digest_of(path) == digest):
            folder.remove_whole(digest, descriptor)
            os.close(descriptor)
            return False
        os.utime(descriptor)
        with self._lock:
            self._held[digest] = descriptor
        return True

    def _release(self, needed: frozenset[str]) -> None:
        for digest in self._claims.keys() - needed:
            self._unclaim(digest)
        with self._lock:
            for digest in self._held.keys() - needed:
                os.close(self._held.pop(digest))

    def _unclaim(self, digest: str) -> None:
        descriptor = self._claims.pop(digest, None)
        if descriptor is not None:
            os.close(descriptor)

    def _open_folder(self) -> PartFolder:
        if self._folder is None:
            self._folder = PartFolder(Path(self._place) if self._place else user_folder() / "parts")
        return self._folder

    def _text(self, error: OSError) -> str:
        if is_shortage(error):
            return str(shortage("the file of a part"))
        place = self._place or (
            self._folder.folder if self._folder else "the system's temporary folder"
        )
        return (
            f"{error.strerror or error}: {place}; make space there, or choose another folder with "
            "--pipeline-cache-dir"
        )
