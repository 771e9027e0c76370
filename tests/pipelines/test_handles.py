"""Tests of locks and open files in a pipeline: what a worker has in their place."""

# ruff: noqa: SIM115 - the tests close what they open

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import lzma
import multiprocessing
import os
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zmqdata.pipelines import fingerprint, open_pipeline, pack_pipeline

TEXT = "één\r\ntwo\nthree\r\nfour\n"


def sent(value: Any) -> Any:
    """Return what a worker makes of a value."""
    return open_pipeline(pack_pipeline(value))


class Tagged(threading.Condition):
    """A condition with an attribute of its own."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag


class Left(threading.Event):
    """An event whose author says what travels."""

    def __reduce__(self) -> Any:
        return Left, ()


class Shared:
    """A dataset with several locks, of which some are one."""

    def __init__(self) -> None:
        self.first = self.second = threading.Lock()
        self.acquire = self.first.acquire
        self.on_first = threading.Condition(self.first)
        self.again = threading.RLock()
        self.on_again = threading.Condition(self.again)
        self.tagged = Tagged("x")
        self.bounded = threading.BoundedSemaphore(2)
        self.semaphore, self.barrier = threading.Semaphore(3), threading.Barrier(1)
        self.set, self.unset = threading.Event(), threading.Event()
        self.set.set()


def test_a_lock_that_is_held_arrives_free() -> None:
    """A lock that a thread of this process holds is free in the worker."""
    here = Shared()
    with here.first, here.again, here.bounded, here.tagged:
        there = sent(here)
    assert there.first.acquire(blocking=False)
    there.first.release()
    assert there.bounded.acquire(blocking=False)
    assert there.bounded.acquire(blocking=False)
    assert not there.bounded.acquire(blocking=False)
    with there.on_again, there.again, there.tagged:
        assert there.again is not here.again


def test_a_thread_that_waits_stays_here() -> None:
    """A condition arrives without the threads that wait for it."""
    here, begun = threading.Condition(), threading.Event()

    def wait() -> None:
        with here:
            begun.set()
            here.wait(timeout=30)

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(30)
    with here:
        there = sent(here)
        here.notify_all()
    thread.join(30)
    with there:
        there.notify_all()


def test_two_holders_of_a_lock_hold_one() -> None:
    """Attributes, methods and conditions that share a lock share one in the worker."""
    there = sent(Shared())
    assert there.first is there.second
    with there.on_first:
        assert not there.second.acquire(blocking=False)
        assert not there.acquire(blocking=False)
    with there.on_again:
        assert there.again.acquire(blocking=False)


def test_counts_and_flags_arrive() -> None:
    """Counts, flags, attributes of a subclass, and its way of being pickled arrive."""
    there = sent(Shared())
    assert (there.tagged.tag, there.barrier.parties, there.barrier.wait(1)) == ("x", 1, 0)
    assert [there.semaphore.acquire(blocking=False) for _ in range(4)] == [True] * 3 + [False]
    assert (there.set.is_set(), there.unset.is_set()) == (True, False)
    left = Left()
    left.set()
    assert not sent(left).is_set()


def test_functions_may_hold_a_lock_and_a_file(tmp_path: Path) -> None:
    """A function of a script finds both in its closure and in its globals."""
    path = tmp_path / "file"
    path.write_text("one\ntwo\n")
    names = {"__name__": "__main__", "LOCK": threading.Lock(), "FILE": path.open()}
    exec("def f(x):\n with LOCK: return FILE.readline()", names)
    function: Any = names["f"]
    assert (sent(function)(0), function(0), sent(function)(0)) == ("one\n", "one\n", "two\n")


def test_a_file_that_does_not_travel_does_not_matter(tmp_path: Path) -> None:
    """A global file whose name is that of an attribute is no part of the pipeline."""
    with (tmp_path / "file").open("w") as file:
        names: dict[str, Any] = {"__name__": "__main__", "f": file}
        exec("def of(x): return x.f", names)
        assert sent(names["of"])(argparse.Namespace(f=7)) == 7


OPENED: dict[str, Callable[[Path], Any]] = {
    "text": lambda path: path.open(encoding="utf-8"),
    "text as it is": lambda path: path.open(encoding="utf-8", newline=""),
    "other text": lambda path: path.open(encoding="latin-1", newline="\n", errors="replace"),
    "bytes": lambda path: path.open("rb"),
    "unbuffered": lambda path: path.open("rb", buffering=0),
    "name of bytes": lambda path: io.FileIO(os.fsencode(path)),
    "gzip": lambda path: gzip.GzipFile(f"{path}.gz"),
    "gzip as text": lambda path: io.TextIOWrapper(
        gzip.GzipFile(f"{path}.gz"), encoding="utf-8", newline=""
    ),
    "bz2": lambda path: bz2.BZ2File(f"{path}.bz2"),
    "lzma": lambda path: lzma.LZMAFile(f"{path}.xz"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file, and compressed copies of it."""
    path = tmp_path / "file"
    path.write_bytes(TEXT.encode())
    for ending, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
        with module.open(f"{path}{ending}", "wb") as file:
            file.write(TEXT.encode())
    return path


@pytest.mark.parametrize("kind", OPENED)
@pytest.mark.parametrize(
    "read", [lambda file: None, lambda file: file.readline(), lambda file: file.read(3)]
)
def test_a_file_continues_at_its_position(path: Path, kind: str, read: Any) -> None:
    """The worker opens the file by its path, and reads what is left here."""
    with OPENED[kind](path) as here:
        read(here)
        there, other = sent([here, here])
        with there:
            assert there is other
            assert type(there) is type(here)
            assert there.read() == here.read() != ""


def test_a_relative_path_is_that_of_the_program(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker may run in another folder."""
    monkeypatch.chdir(tmp_path)
    with open("file", "rb") as here:
        packed = pack_pipeline(here)
    monkeypatch.chdir("/")
    with open_pipeline(packed) as there:
        assert there.read() == TEXT.encode()


def test_an_archive_is_read_by_its_file(tmp_path: Path) -> None:
    """Objects of Python's library that hold a file and a lock arrive with both."""
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "hello")
    with zipfile.ZipFile(path) as archive, sent(archive) as there:
        assert there.read("a") == archive.read("a") == b"hello"


def of_lines(path: Path) -> Any:
    file = path.open()
    next(file)
    return file


def replaced(path: Path) -> Any:
    file = path.open("rb")
    path.rename(f"{path}.old")
    path.write_bytes(b"another")
    return file


def deleted(path: Path) -> Any:
    file = path.open("rb")
    path.unlink()
    return file


def closed(path: Path) -> Any:
    file = path.open()
    file.close()
    return file


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "written": (lambda path: path.open("w"), "open for reading"),
    "written bytes": (lambda path: path.open("wb"), "open for reading"),
    "read and written": (lambda path: path.open("r+b"), "open for reading"),
    "appended": (lambda path: path.open("a"), "open for reading"),
    "written gzip": (lambda path: gzip.GzipFile(f"{path}.new", "wb"), "open for reading"),
    "closed": (closed, "open for reading"),
    "deleted": (deleted, "No such file"),
    "replaced": (replaced, "is not the file that is open"),
    "by number": (lambda path: os.fdopen(os.open(path, os.O_RDONLY)), "not int"),
    "device": (lambda path: io.FileIO("/dev/null"), "is not the file that is open"),
    "temporary": (
        lambda path: tempfile._TemporaryFileWrapper(path.open("rb"), "", delete=False),
        "process",
    ),
    "lines": (of_lines, "disabled by next"),
    "output": (lambda path: sys.__stdout__, "open for reading"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_no_worker_can_open_is_refused(path: Path, kind: str) -> None:
    """The error names the place of the object, the reason and the remedy."""
    make, reason = REFUSED[kind]
    file = make(path)
    told = rf"object\['rows'\] is a .* which cannot leave.*{reason}.*[Oo]pen it inside"
    with pytest.raises(TypeError, match=told):
        pack_pipeline({"rows": file})


@pytest.mark.parametrize(
    "make",
    [
        lambda: threading.Timer(1, print),
        threading.local,
        socket.socket,
        multiprocessing.Lock,
        multiprocessing.Event,
        lambda: os.fdopen(os.pipe()[0]),
    ],
)
def test_what_belongs_to_this_process_alone_is_refused(make: Callable[[], Any]) -> None:
    """Threads, sockets, pipes and locks that processes share cannot be sent."""
    with pytest.raises(TypeError, match=r"cannot (leave this process|be pickled)"):
        pack_pipeline([make()])


@pytest.mark.parametrize("make", [lambda: io.BytesIO(b"abc"), lambda: io.StringIO("abc")])
def test_a_file_in_memory_is_sent_whole(make: Callable[[], Any]) -> None:
    """Files in memory arrive with their content and position."""
    here = make()
    here.read(1)
    assert sent(here).read() == here.read() != ""


def test_a_fingerprint_is_that_of_the_path(path: Path) -> None:
    """Another lock, another object of the same file and another position are equal."""

    def told(value: Any) -> str:
        return str(fingerprint(value))

    assert told(Shared()) == told(Shared())
    with path.open() as one, path.open() as same, open(f"{path}.gz") as other:
        before = told([one])
        one.readline()
        assert told([one]) == told([same]) == before != told([other])
