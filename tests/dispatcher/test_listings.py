"""Test listings of files for jobs, which run in separate processes."""

from __future__ import annotations

import os
import queue
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.objectstore import object_store
from zmqdata.core.dispatcher.events import FilesListed, FindFiles
from zmqdata.dispatcher import listings
from zmqdata.dispatcher.listings import AT_A_TIME, Listings
from zmqdata.splits import FileSplits
from zmqdata.testing.cluster import await_condition, descendants, is_running

PATIENCE = 30.0


class Desk:
    """Request listings and receive their results."""

    def __init__(self) -> None:
        self.told: queue.SimpleQueue[FilesListed] = queue.SimpleQueue()
        self.wanted = {7}
        self.listings = Listings(self.told.put, lambda iteration: iteration in self.wanted)

    def ask(self, *patterns: str, iteration: int = 7) -> None:
        self.listings.begin(FindFiles(iteration, 0, 2, FileSplits(patterns, False, None)))

    def answer(self) -> FilesListed:
        return self.told.get(timeout=PATIENCE)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.listings.close()


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let each later listing hang like a file system whose server is gone."""
    program = tmp_path / "hanging"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import signal; signal.pause()'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return lambda: monkeypatch.setattr(listings.sys, "executable", str(program))


def test_stores_are_listed(desk: Desk) -> None:
    """URLs are listed with the packages of the environment and the options of the
    store, and a store that refuses is an error with its words.
    """
    with object_store() as store:
        store.objects = {"/a1": b"", "/a2": b""}
        options = '{"headers": {"X-Team": "seven"}}'
        files = FileSplits((store.url("/a{1..3}"),), False, None, options=options)
        desk.listings.begin(FindFiles(7, 0, 2, files))
        assert desk.answer() == FilesListed(7, 0, 2, (store.url("/a1"), store.url("/a2")))
        assert store.headers["X-Team"] == "seven"
        store.faults.append(403)
        desk.ask(store.url("/a1"))
        assert "the store says 403" in desk.answer().error


def test_files_are_listed(desk: Desk, tmp_path: Path) -> None:
    """A listing has each name once and sorted, for the repetition that asked."""
    for name in ("b", "a"):
        (tmp_path / name).touch()
    desk.ask(f"{tmp_path}/*", f"{tmp_path}/a")
    assert desk.answer() == FilesListed(7, 0, 2, (f"{tmp_path}/a", f"{tmp_path}/b"))


def test_why_they_cannot_be_is_told(desk: Desk) -> None:
    """The error has the system's reason in a single line."""
    desk.ask("/a\0b/*")
    assert "null" in desk.answer().error


def test_names_that_are_not_utf8_are_listed(desk: Desk, tmp_path: Path) -> None:
    """Names and patterns with other bytes have a portable form, which can be sent."""
    folder = tmp_path / os.fsdecode(b"d\xe9")
    folder.mkdir()
    for name in (b"\xff", b"a"):
        (folder / os.fsdecode(name)).touch()
    desk.ask(f"{tmp_path}/d\0e9/*")
    assert sorted(desk.answer().names) == [f"{tmp_path}/d\0e9/\0ff", f"{tmp_path}/d\0e9/a"]


def test_who_hangs_holds_up_nobody(
    desk: Desk, hanging: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hanging listings make room for others once no job waits for them, and their
    processes end.
    """
    before = set(descendants(os.getpid()))
    executable = sys.executable
    hanging()
    for _ in range(AT_A_TIME):
        desk.ask("/x", iteration=7)
    await_condition(
        lambda: len(set(descendants(os.getpid())) - before) == AT_A_TIME, what="processes that hang"
    )
    monkeypatch.setattr(listings.sys, "executable", executable)
    desk.ask("/nowhere/*", iteration=8)
    desk.wanted = {8}
    told = [desk.answer() for _ in range(AT_A_TIME + 1)]
    assert sorted(one.iteration for one in told) == [7] * AT_A_TIME + [8]
    assert [one.error for one in told if one.iteration == 8] == [""]
    await_condition(
        lambda: set(descendants(os.getpid())) <= before, what="the end of the processes"
    )


ABANDONED = """
import os, queue, sys
from zmqdata.core.dispatcher.events import FindFiles
from zmqdata.dispatcher.listings import Listings
from zmqdata.splits import FileSplits

told = queue.SimpleQueue()
Listings(told.put, lambda iteration: True).begin(FindFiles(7, 0, 2, FileSplits(("/**" * 8 + "/x",), False, None)))
told.get()
"""


@pytest.mark.realprocess
def test_a_listing_ends_with_its_dispatcher() -> None:
    """A listing ends by itself when its dispatcher is killed, as it checks for the
    dispatcher.
    """
    with subprocess.Popen([sys.executable, "-c", ABANDONED]) as process:
        await_condition(lambda: descendants(process.pid), what="a listing that takes long")
        [listing] = descendants(process.pid)
        process.kill()
    await_condition(lambda: not is_running(listing), what="its end")


def test_patience_ends(
    desk: Desk, hanging: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that takes too long is an error with the patterns and the likely
    causes.
    """
    hanging()
    monkeypatch.setattr(listings, "PATIENCE", 0.2)
    desk.ask("/mnt/gone/*")
    error = desk.answer().error
    assert "/mnt/gone/* were not listed within 0.2 s. Does a file system hang" in error
