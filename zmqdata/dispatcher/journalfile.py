"""The journal on disk: a locked folder, one file, and the thread that writes it. Its
format is ``zmqdata.journal``.
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
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from zmqdata.errors import FailedPreconditionError
from zmqdata.journal import JournalEncoder, Replay, read_journal
from zmqdata.transport.folders import make_private
from zmqdata.updates import Update

LOCK = "lock"
JOURNAL = "journal"
FRESH = "journal.new"
PATIENCE = 60.0
PAUSE = 0.1
LEAST_GROWTH = 4 << 20
"""A journal is not replaced by a snapshot before it grew by so many bytes, and by the
size of its last snapshot.
"""


class WorkDirLock:
    """Makes a work folder the only one's who holds it. The system lets go of it when
    its process dies.

    Args:
        work_dir: the folder, which is made if it is not there.

    Raises:
        FailedPreconditionError: another dispatcher holds it; the text says which.
        OSError: the folder can not be made or written.
    """

    def __init__(self, work_dir: Path) -> None:
        with _named(work_dir):
            make_private(work_dir)
            self._descriptor = os.open(
                work_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.pread(self._descriptor, 4096, 0))
            os.close(self._descriptor)
            raise FailedPreconditionError(
                f"work_dir {work_dir} is in use by another dispatcher: {holder}. Stop that one "
                "first (SIGTERM: one "
                "that is killed may be started again), or give this one a folder of its own"
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
        """Lets go of the folder. The file stays: who removed it could remove
        another's.
        """
        _held.discard(self)
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def abandon(self) -> None:
        """Closes a forked child's copy, as a child that kept it would hold the folder
        after its parent's death.
        """
        os.close(self._descriptor)


@contextmanager
def _named(work_dir: Path) -> Iterator[None]:
    """Has the system's errors say what cannot be used, and what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"cannot be used as work_dir ({reason}). Give it room and rights, or choose another folder"
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
        return "it did not say which"


class JournalFile:
    """The file in a work folder that is locked. One thread at a time uses it.

    Args:
        work_dir: the folder.
    """

    def __init__(self, work_dir: Path) -> None:
        self.path = work_dir / JOURNAL
        self._folder = work_dir
        self._descriptor: int | None = None
        self._encoder = JournalEncoder(0)
        self._size = self._snapshot_size = 0

    def replay(self, apply: Callable[[Update], object]) -> Replay | None:
        """Applies what was written before; None when that is nothing.

        Raises:
            DataLossError: the file is damaged. It is left as it is.
            FailedPreconditionError: a later version has written it.
            OSError: it cannot be read.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        return read_journal(content, str(self.path), apply)

    def begin(self, snapshot: Sequence[Update]) -> None:
        """Replaces the file, and any torn end of it, by one that begins with a
        snapshot: all of it, or nothing.

        Raises:
            OSError: it cannot be written; the file is what it was.
        """
        self._encoder = JournalEncoder(secrets.randbits(32))
        content = self._encoder.begin(snapshot)
        fresh = self._folder / FRESH
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            _write(descriptor, content, fresh)
            os.fsync(descriptor)
            fresh.replace(self.path)
            sync_folder(self._folder)
        except BaseException:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        self._size = self._snapshot_size = len(content)

    def append(self, turns: Sequence[Sequence[Update]]) -> None:
        """Writes turns behind the others, and waits until they are on the disk: once
        for all of them.

        Raises:
            OSError: they may be, or may not be, on the disk; nothing may be written any
                more.
        """
        assert self._descriptor is not None
        content = b"".join(map(self._encoder.turn, turns))
        _write(self._descriptor, content, self.path)
        os.fdatasync(self._descriptor)
        self._size += len(content)

    @property
    def is_long(self) -> bool:
        """Whether a snapshot would be much shorter, or has become worth a try."""
        return self._size - self._snapshot_size > max(LEAST_GROWTH, self._snapshot_size)

    def close(self) -> None:
        """Closes the file."""
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
    """Waits until the names of the files in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Job = Callable[[], object]


def patiently(job: Job) -> None:
    """Does something that opens files. While others have all that there may be, it is
    tried again.

    Strangers may have them, as connections; but none of them has one for longer than a
    handshake may take.

    Raises:
        OSError: there were none for long, or something else is wrong.
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
    """Writes turns in a thread of its own; those that come while it writes are written
    together.

    Args:
        file: the journal, begun.
        written: called in the thread with the number of the last turn that is written.
        failed: called in the thread, once, when it cannot be written; nothing is
            written after that.
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
        """Begins to write. What was given to it before is written, too."""
        self._thread.start()

    def write(self, turn: int, updates: Sequence[Update], before: Sequence[Job] = ()) -> None:
        """Has a turn written, after the jobs in ``before`` are done."""
        with self._changed:
            self._turns.append((turn, updates))
            self._before.extend(before)
            self._changed.notify()

    @property
    def wants_snapshot(self) -> bool:
        """Whether the file has become so long that a snapshot should take its place."""
        return self._file.is_long and not self._replacing

    def replace(self, snapshot: Sequence[Update]) -> None:
        """Has the file replaced by a snapshot, in which all turns so far are."""
        with self._changed:
            self._snapshot = snapshot
            self._replacing = True
            # Written as a snapshot, they need not be written once more.
            self._turns = [(turn, ()) for turn, _ in self._turns[-1:]]
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread once all is written."""
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
        except Exception as error:  # whatever it is, nothing is written any more
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
