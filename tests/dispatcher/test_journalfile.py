"""Test the journal on a real disk, and the lock of its folder."""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from zmqdata import updates as u
from zmqdata.dispatcher import journalfile
from zmqdata.dispatcher.journalfile import JournalFile, JournalWriter, WorkDirLock
from zmqdata.errors import DataLossError, FailedPreconditionError, PermissionDeniedError

FACTS = [u.CloseTaskListUpdate(number) for number in range(6)]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[JournalFile]:
    made = JournalFile(tmp_path)
    made.begin(FACTS[:1])
    yield made
    made.close()


def replayed(folder: Path) -> list[u.AnyUpdate]:
    found: list[u.AnyUpdate] = []
    JournalFile(folder).replay(found.append)
    return found


class Written:
    """Receive the reports of a writer."""

    def __init__(self, file: JournalFile) -> None:
        self.turns: queue.Queue[int] = queue.Queue()
        self.failures: queue.Queue[Exception] = queue.Queue()
        self.writer = JournalWriter(file, self.turns.put, self.failures.put)

    def until(self, turn: int) -> None:
        while self.turns.get(timeout=10) < turn:
            pass


# --- the lock


def test_a_folder_that_is_made_is_its_users_alone(tmp_path: Path) -> None:
    """Only its owner can read a new work folder, as pipelines in it may contain
    secrets.
    """
    WorkDirLock(tmp_path / "some" / "work").close()
    assert (tmp_path / "some" / "work").stat().st_mode & 0o777 == 0o700


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    """A second lock is refused with process and host of the first, and is granted once
    that is gone.
    """
    first = WorkDirLock(tmp_path / "work")
    with pytest.raises(
        FailedPreconditionError, match=rf"process {os.getpid()} on host {os.uname().nodename}"
    ):
        WorkDirLock(tmp_path / "work")
    first.close()
    WorkDirLock(tmp_path / "work").close()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[1]", b'{"pid": "x", "host": 1}'])
def test_a_holder_that_does_not_say_who_it_is_is_respected(tmp_path: Path, content: bytes) -> None:
    """The lock decides, whatever its file contains."""
    lock = WorkDirLock(tmp_path)
    (tmp_path / "lock").write_bytes(content)
    with pytest.raises(FailedPreconditionError, match="its lock file does not name it"):
        WorkDirLock(tmp_path)
    lock.close()


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    """A child that outlives its parent does not keep the folder."""
    lock = WorkDirLock(tmp_path)
    end, hold = os.pipe()
    born, birth = os.pipe()
    child = os.fork()
    if not child:
        os.close(hold)
        os.write(birth, b"!")
        os.read(end, 1)
        os._exit(0)
    try:
        os.read(born, 1)
        lock.abandon()  # as the death of this process would
        journalfile._held.discard(lock)
        WorkDirLock(tmp_path).close()
    finally:
        for descriptor in (hold, end, born, birth):
            os.close(descriptor)
        os.waitpid(child, 0)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The error names a file in the place of the folder, and the remedy."""
    (tmp_path / "work").touch()
    with pytest.raises(OSError, match=r"as work_dir \(File exists\)\. .* another folder") as raised:
        WorkDirLock(tmp_path / "work")
    assert raised.value.filename == str(tmp_path / "work")


@pytest.mark.parametrize("name", ["lock", "journal", "journal.new", "pipelines", "last-life"])
def test_a_folder_with_a_link_is_refused(tmp_path: Path, name: str) -> None:
    """A symbolic link in a work folder is refused before anything is written."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / name).symlink_to("../victim")
    with pytest.raises(PermissionDeniedError, match=f"work/{name} is a symbolic link"):
        WorkDirLock(tmp_path / "work")
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "use"),
    [("journal", replayed), ("journal.new", lambda folder: JournalFile(folder).begin(FACTS[:1]))],
)
def test_a_link_that_comes_later_is_refused(
    tmp_path: Path, name: str, use: Callable[[Path], object]
) -> None:
    """Neither the journal is read through a link, nor its next snapshot written."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / name).symlink_to("victim")
    with pytest.raises(PermissionDeniedError, match=f"{name} is a symbolic link"):
        use(tmp_path)
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_full_disk_is_told_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a full disk names the folder, unlike the system's error, and the
    failed attempt does not block the next.
    """

    def fail(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("os.pwrite", fail)
        with pytest.raises(OSError, match=r"work_dir \(No space left on device\)") as raised:
            WorkDirLock(tmp_path)
    assert raised.value.filename == str(tmp_path)
    WorkDirLock(tmp_path).close()


# --- the file


def test_nothing_written_is_nothing_replayed(tmp_path: Path) -> None:
    """A fresh folder has no journal."""
    assert JournalFile(tmp_path).replay(print) is None


def test_what_is_appended_comes_back(file: JournalFile, tmp_path: Path) -> None:
    """The journal replays its snapshot and its turns in order."""
    file.append([FACTS[1:3], FACTS[3:4]])
    file.append([FACTS[4:]])
    assert replayed(tmp_path) == FACTS


def test_a_new_beginning_replaces_the_file(file: JournalFile, tmp_path: Path) -> None:
    """A snapshot replaces the file, and later turns are appended to it."""
    file.append([FACTS[1:2]])
    file.begin(FACTS[2:3])
    file.append([FACTS[3:4]])
    assert replayed(tmp_path) == FACTS[2:4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal"]


def test_a_half_written_snapshot_is_not_believed(file: JournalFile, tmp_path: Path) -> None:
    """An incomplete or failed snapshot leaves the journal as it was until the snapshot
    is renamed.
    """
    file.append([FACTS[1:2]])
    (tmp_path / "journal.new").write_bytes((tmp_path / "journal").read_bytes()[:30])
    assert replayed(tmp_path) == FACTS[:2]


def test_damage_is_told_with_the_path(file: JournalFile, tmp_path: Path) -> None:
    """The error of a damaged journal names the file."""
    path = tmp_path / "journal"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(DataLossError, match=f"`{path}` is damaged at offset 0"):
        replayed(tmp_path)


def test_a_file_is_long_when_a_snapshot_is_worth_it(
    file: JournalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot is due when the file has grown by a fixed size, and by the size of its
    snapshot.
    """
    monkeypatch.setattr(journalfile, "LEAST_GROWTH", 100)
    assert not file.is_long
    file.append([FACTS] * 2)
    assert file.is_long
    file.begin(FACTS * 100)
    file.append([FACTS] * 2)
    assert not file.is_long


# --- the thread


def test_turns_are_written_and_told(file: JournalFile, tmp_path: Path) -> None:
    """The writer reports a number once its turn is on the disk, and performs a turn's
    preparations first.
    """
    heard, order = Written(file), []
    for turn, fact in enumerate(FACTS[1:], 1):
        heard.writer.write(turn, [fact], [lambda turn=turn: order.append(turn)])  # type: ignore[misc]
    heard.writer.start()
    heard.until(5)
    assert replayed(tmp_path) == FACTS
    assert order == [1, 2, 3, 4, 5]
    heard.writer.close()


@pytest.mark.parametrize("synced", [True, False])
def test_a_temporary_journal_is_written_and_not_synced(
    synced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn is in the file when it is reported. Only a journal that can outlive the
    machine waits for the disk: twice for a snapshot, and once for a turn.
    """
    syncs: list[int] = []
    monkeypatch.setattr(os, "fsync", syncs.append)
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    file = JournalFile(tmp_path, synced)
    file.begin(FACTS[:1])
    heard = Written(file)
    heard.writer.start()
    heard.writer.write(1, FACTS[1:2])
    heard.until(1)
    assert replayed(tmp_path) == FACTS[:2]
    assert len(syncs) == 3 * synced
    heard.writer.close()


class Counting(JournalFile):
    """Count the syncs, and let the first wait for a signal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.syncs: list[int] = []
        self.entered, self.word = threading.Event(), threading.Event()

    def append(self, turns: Sequence[Sequence[u.Update]]) -> None:
        self.syncs.append(len(turns))
        self.entered.set()
        assert self.word.wait(10)
        super().append(turns)


def test_turns_that_come_while_it_writes_share_a_sync(tmp_path: Path) -> None:
    """All turns that wait share a single sync (group commit)."""
    file = Counting(tmp_path)
    file.begin([])
    heard = Written(file)
    heard.writer.start()
    heard.writer.write(1, FACTS[:1])
    assert file.entered.wait(10)
    for turn in (2, 3, 4):
        heard.writer.write(turn, FACTS[turn - 1 : turn])
    file.word.set()
    heard.until(4)
    assert file.syncs == [1, 3]
    assert replayed(tmp_path) == FACTS[:4]
    heard.writer.close()


def test_a_snapshot_takes_the_place_of_what_waits(file: JournalFile, tmp_path: Path) -> None:
    """The writer skips turns that a snapshot covers, and writes the turns after it."""
    heard = Written(file)
    heard.writer.write(1, FACTS[1:2])
    heard.writer.replace(FACTS[2:4])
    heard.writer.write(2, FACTS[4:5])
    assert not heard.writer.wants_snapshot
    heard.writer.start()
    heard.until(2)
    assert replayed(tmp_path) == FACTS[2:5]
    heard.writer.close()


def test_what_is_left_is_written_at_the_end(file: JournalFile, tmp_path: Path) -> None:
    """Closing waits for the disk, unless the writer never started."""
    heard = Written(file)
    heard.writer.start()
    heard.writer.write(1, FACTS[1:2])
    heard.writer.close()
    assert replayed(tmp_path) == FACTS[:2]
    Written(file).writer.close()


def test_a_full_disk_ends_the_writer(file: JournalFile) -> None:
    """The writer reports its first failure once, and writes nothing after it."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), file._descriptor or -1)
    heard = Written(file)
    heard.writer.start()
    heard.writer.write(1, FACTS[1:2])
    error = heard.failures.get(timeout=10)
    assert isinstance(error, OSError)
    assert (error.strerror, error.filename) == ("No space left on device", str(file.path))
    heard.writer.write(2, FACTS[2:3])
    heard.writer.close()
    assert heard.turns.empty()
    assert heard.failures.empty()


def test_a_lack_of_files_is_waited_for(file: JournalFile, tmp_path: Path) -> None:
    """The writer waits for free file descriptors, which many connections may use up for
    a moment.
    """
    heard = Written(file)
    lacking = [errno.EMFILE, errno.ENFILE]

    def prepare() -> None:
        if lacking:
            raise OSError(lacking.pop(), "Too many open files")

    heard.writer.start()
    heard.writer.write(1, FACTS[1:2], [prepare])
    heard.until(1)
    heard.writer.close()
    assert lacking == []
    assert heard.failures.empty()


def test_a_lack_of_files_that_stays_ends_the_writer(
    file: JournalFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lasting lack of file descriptors is reported and ends the writer."""
    monkeypatch.setattr(journalfile, "PATIENCE", 0.0)
    heard = Written(file)

    def prepare() -> None:
        raise OSError(errno.ENFILE, "Too many open files in system")

    heard.writer.start()
    heard.writer.write(1, FACTS[1:2], [prepare])
    error = heard.failures.get(timeout=10)
    assert isinstance(error, OSError)
    assert error.errno == errno.ENFILE
    heard.writer.close()


def test_what_cannot_be_prepared_ends_the_writer(file: JournalFile, tmp_path: Path) -> None:
    """The writer ends before it records a dataset whose pipeline cannot be written to
    the disk.
    """
    heard = Written(file)
    heard.writer.start()
    heard.writer.write(1, FACTS[1:2], [(tmp_path / "gone").read_bytes])
    assert isinstance(heard.failures.get(timeout=10), FileNotFoundError)
    heard.writer.close()
    assert replayed(tmp_path) == FACTS[:1]
