"""Tests of what is said when no file descriptor is left."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import zmq

from zmqdata import Dataset, DispatchServer, LocalCluster, SqlDataset, TextLineDataset
from zmqdata.cli.options import guarded
from zmqdata.client.calls import likely_cause
from zmqdata.errors import DataServiceError, DescriptorShortageError, ResourceExhaustedError
from zmqdata.machine.descriptors import FOLDER, remedy, shortage_explained
from zmqdata.transport import sockets


@contextmanager
def few(spare: int) -> Iterator[None]:
    """Leave this process a number of descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir(FOLDER)) + 20, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(spare):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a text, a database, a save and a cache."""
    (tmp_path / "a.txt").write_text("one\n")
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("create table t (n int)")
    Dataset.range(3).save(str(tmp_path / "saved"))
    assert len(list(Dataset.range(3).cache(str(tmp_path / "cached")))) == 3
    return tmp_path


READINGS: dict[str, Callable[[str], object]] = {
    "text": lambda folder: list(TextLineDataset(f"{folder}/a.txt")),
    "database": lambda folder: list(
        SqlDataset("sqlite", f"{folder}/a.db", "select n from t", ["int64"])
    ),
    "listing": lambda folder: Dataset.list_files(f"{folder}/*.txt"),
    "save": lambda folder: Dataset.range(3).save(f"{folder}/new"),
    "load": lambda folder: list(Dataset.load(f"{folder}/saved")),
    "cache": lambda folder: list(Dataset.range(3).cache(f"{folder}/cached")),
    "function": lambda folder: list(Dataset.range(1).map(lambda x: open(os.devnull).close() or x)),
    "cluster": lambda folder: LocalCluster(1),
}


@pytest.mark.parametrize("reading", READINGS)
def test_whatever_lacks_a_descriptor_names_the_limit(reading: str, folder: Path) -> None:
    """Sources, saves, functions and clusters name the limit if no descriptor is
    left.
    """
    if reading != "cluster":
        with contextlib.suppress(DataServiceError):  # imports what it needs
            READINGS[reading](f"{folder}/saved")
    with few(0), pytest.raises(Exception, match=r"needs a file descriptor.*`ulimit -n`"):
        READINGS[reading](str(folder))


@pytest.mark.parametrize("spare", [2, 6, 12])
def test_a_server_does_not_start_with_too_few_descriptors(
    spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts with too few descriptors names the limit. ZeroMQ would abort
    the process.
    """
    monkeypatch.setattr(sockets, "_raise_file_limit", lambda: None)
    with (
        few(spare),
        pytest.raises(DescriptorShortageError, match=r"^a dispatcher needs 24.*`ulimit -n`"),
    ):
        DispatchServer()


def test_a_command_without_descriptors_ends_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that lacks descriptors ends with a line that names the limit."""

    def fail() -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    assert guarded("zmqdata worker", fail) == 2
    assert "`zmqdata worker` needs a file descriptor" in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "none"), zmq.ZMQError(errno.ENFILE)])
def test_a_shortage_becomes_an_error_of_ours(error: Exception) -> None:
    """A lack of descriptors is an error that names the limit, whichever library met
    it.
    """
    told = pytest.raises(
        ResourceExhaustedError, match=r"^an iterator needs a file descriptor.*ulimit"
    )
    with told, shortage_explained("an iterator"):
        raise error


def test_other_errors_are_left_alone() -> None:
    """An error that is no lack of descriptors passes unchanged."""
    with pytest.raises(OSError, match="no such file"), shortage_explained("an iterator"):
        raise OSError(errno.ENOENT, "no such file")


def test_the_remedy_counts_what_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text has the number of open descriptors; it is the limit if they cannot be
    listed.
    """
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    many = remedy("it")
    for descriptor in opened:
        os.close(descriptor)
    used = [int(text.partition(" uses ")[2].split()[0]) for text in (many, remedy("it"))]
    assert used[0] == used[1] + 3

    def fail(path: str) -> list[str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "listdir", fail)
    text = remedy("it").partition(" uses ")[2].split()
    assert text[0] == text[2]


def test_a_shortage_is_no_fault_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that cannot be looked up for lack of descriptors is not called unknown."""

    def fail(*told: object, **more: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("socket.getaddrinfo", fail)
    cause = likely_cause("tcp://example.org:5050")
    assert "`ulimit -n`" in cause
    assert "Unknown host" not in cause
