"""The journal on disk: a locked folder, a file, and the thread that writes it.
``zmqdata.journal`` defines the format.

Decision 0013; protocol 1.5.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from zmqdata.errors import FailedPreconditionError, PermissionDeniedError
from zmqdata.files.paths import LOCK
from zmqdata.journal import JournalEncoder, Replay, read_journal
from zmqdata.transport.folders import check_content, make_own, open_own
from zmqdata.updates import Update

JOURNAL = "journal"
FRESH = "journal.new"
PATIENCE = 60.0
"""Seconds for which opening a file is retried while no file descriptor is free."""
PAUSE = 0.1
"""Seconds between two attempts."""
LOOKS, LOOK_SECONDS = 5, 0.002
"""Number of attempts to lock a work folder, and seconds after each."""
LEAST_GROWTH = 4 << 20
"""Bytes by which a journal must grow, at least, before a snapshot replaces it. It must
also double the size of its last snapshot.
"""


class WorkDirLock:
    """An exclusive lock on a work folder. The system releases it when its process dies.

    Args:
        work_dir: the folder, which is created if it does not exist.

    Raises:
        FailedPreconditionError: another dispatcher holds the lock; the text says which.
        PermissionDeniedError: another user may have prepared the folder.
        OSError: the folder cannot be created or written.
    """

    def __init__(self, work_dir: Path) -> None:
        with _named(work_dir):
            make_own(work_dir)
            check_content(work_dir)
            self._descriptor = open_own(work_dir / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            _lock(self._descriptor)
        except BlockingIOError:
            holder = _holder(os.pread(self._descriptor, 4096, 0))
            os.close(self._descriptor)
            raise FailedPreconditionError(
                f"work_dir {work_dir} is in use by another dispatcher: {holder}. Stop "
                "that dispatcher first (with SIGTERM: a killed one may be started "
                "again), or give this one a folder of its own"
            ) from None
        _held.add(self)
        try:
            with _named(work_dir):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(
                    self._descriptor,
                    json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(),
                    0,
                )
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder. The lock file stays, because removing it could remove the
        lock of another dispatcher.
        """
        _held.discard(self)
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def abandon(self) -> None:
        """Close a forked child's copy of the lock, which would otherwise outlive the
        parent.
        """
        os.close(self._descriptor)


def _lock(descriptor: int) -> None:
    """Lock a work folder. A reader of a save holds the lock for microseconds, to find
    out whether a dispatcher lives (``paths.is_locked``).
    """
    for _ in range(LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(LOOK_SECONDS)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def _named(work_dir: Path) -> Iterator[None]:
    """Add to an OSError which folder cannot be used, and what to do."""
    try:
        yield
    except PermissionDeniedError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        text = (
            f"cannot be used as work_dir ({reason}). Free disk space or grant access "
            "there, or choose another folder"
        )
        raise OSError(error.errno, text, str(work_dir)) from None


_held: weakref.WeakSet[WorkDirLock] = weakref.WeakSet()


def _abandon_all() -> None:
    for lock in list(_held):
        lock.abandon()
    _held.clear()


os.register_at_fork(after_in_child=_abandon_all)


def _holder(content: bytes) -> str:
    try:
        told = json.loads(content)
        return f"process {int(told['pid'])} on host {str(told['host'])[:255]}"
    except (ValueError, TypeError, KeyError):
        return "its lock file does not name it"


class JournalFile:
    """The journal file in a locked work folder. A single thread at a time may use it.

    Args:
        work_dir: the folder.
        synced: False if the folder does not outlive a crash of the machine. Each write
            then returns without waiting for the disk.
    """

    def __init__(self, work_dir: Path, synced: bool = True) -> None:
        self.path = work_dir / JOURNAL
        self._folder = work_dir
        self._synced = synced
        self._descriptor: int | None = None
        self._encoder = JournalEncoder(0)
        self._size = self._snapshot_size = 0

    def replay(self, apply: Callable[[Update], object]) -> Replay | None:
        """Apply the updates written before; return None if the file does not exist.

        Raises:
            DataLossError: the file is damaged. It is left as it is.
            FailedPreconditionError: a later version has written it.
            OSError: it cannot be read.
        """
        try:
            with open(self.path, "rb", opener=open_own) as file:
                content = file.read()
        except FileNotFoundError:
            return None
        return read_journal(content, str(self.path), apply)

    def begin(self, snapshot: Sequence[Update]) -> None:
        """Replace the file atomically by a file that begins with a snapshot. A torn end
        is dropped.

        Raises:
            OSError: it cannot be written; the old file is unchanged.
        """
        self._encoder = JournalEncoder(secrets.randbits(32))
        content = self._encoder.begin(snapshot)
        fresh = self._folder / FRESH
        descriptor = open_own(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        try:
            _write(descriptor, content, fresh)
            if self._synced:
                os.fsync(descriptor)
            fresh.replace(self.path)
            if self._synced:
                sync_folder(self._folder)
        except BaseException:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        self._size = self._snapshot_size = len(content)

    def append(self, turns: Sequence[Sequence[Update]]) -> None:
        """Append turns, and wait for the disk once for all of them if the journal is
        synced.

        Raises:
            OSError: the turns may or may not be on the disk; nothing may be written any
                more.
        """
        assert self._descriptor is not None
        content = b"".join(map(self._encoder.turn, turns))
        _write(self._descriptor, content, self.path)
        if self._synced:
            os.fdatasync(self._descriptor)
        self._size += len(content)

    @property
    def is_long(self) -> bool:
        """True if the file has grown so much since its last snapshot that a new
        snapshot is worthwhile.
        """
        return self._size - self._snapshot_size > max(LEAST_GROWTH, self._snapshot_size)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _write(descriptor: int, content: bytes, path: Path) -> None:
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Job = Callable[[], object]


def patiently(job: Job) -> None:
    """Run a job that opens files, and retry it while no file descriptor is free.

    Unauthenticated connections may use up the descriptors, but each of them for no
    longer than a handshake.

    Raises:
        OSError: no descriptor became free in time, or the job failed for another
            reason.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            job()
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() >= until:
                raise
        time.sleep(PAUSE)


class JournalWriter:
    """Writes turns in its own thread. Turns that arrive during a write are written
    together.

    Args:
        file: the journal, begun.
        written: called in the thread with the number of the last written turn.
        failed: called in the thread, once, if a write fails; nothing is written after
            that.
    """

    def __init__(
        self, file: JournalFile, written: Callable[[int], None], failed: Callable[[Exception], None]
    ) -> None:
        self._file = file
        self._written = written
        self._failed = failed
        self._changed = threading.Condition()
        self._turns: list[tuple[int, Sequence[Update]]] = []
        self._before: list[Job] = []
        self._snapshot: Sequence[Update] | None = None
        self._replacing = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="zmqdata-journal", daemon=True)

    def start(self) -> None:
        """Start writing, including turns added before."""
        self._thread.start()

    def write(self, turn: int, updates: Sequence[Update], before: Sequence[Job] = ()) -> None:
        """Queue a turn, which is written after the jobs in ``before``."""
        with self._changed:
            self._turns.append((turn, updates))
            self._before.extend(before)
            self._changed.notify()

    @property
    def wants_snapshot(self) -> bool:
        """True if the file is so long that a snapshot should replace it."""
        return self._file.is_long and not self._replacing

    def replace(self, snapshot: Sequence[Update]) -> None:
        """Queue a snapshot that contains all turns so far; it replaces the file."""
        with self._changed:
            self._snapshot = snapshot
            self._replacing = True
            # The snapshot contains their updates.
            self._turns = [(turn, ()) for turn, _ in self._turns[-1:]]
            self._changed.notify()

    def close(self) -> None:
        """End the thread once everything is written."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._file.close()

    def _run(self) -> None:
        try:
            while self._write_next():
                pass
        except Exception as error:  # after any error, nothing is written any more
            self._failed(error)

    def _write_next(self) -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: self._turns or self._stopping or self._snapshot is not None
            )
            turns, self._turns = self._turns, []
            before, self._before = self._before, []
            snapshot, self._snapshot = self._snapshot, None
            if not turns and snapshot is None:
                return False
        for job in before:
            patiently(job)
        if snapshot is not None:
            patiently(partial(self._file.begin, snapshot))
            self._replacing = False
        fresh = [updates for _, updates in turns if updates]
        if fresh:
            self._file.append(fresh)
        if turns:
            self._written(turns[-1][0])
        return True
