"""Tests of the shared memory in which a worker's process notes its current work."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from zmqdata import messages as m
from zmqdata.worker.processes import watch as module
from zmqdata.worker.processes.watch import SLOTS, WatchFile, active, make_file

KEY = (4000, 2)
DEATH = {"worker": "w", "how": "ended", "killed": False, "tasks": [[4000, 1]], "in_progress": []}


def write(watch_file: WatchFile, base: int, **words: int) -> None:
    for word, value in words.items():
        watch_file.cells[base + getattr(module, word)] = value


def test_what_is_noted_is_read() -> None:
    """A note holds the element, its task, the node, and the time-out and the split of
    the task.
    """
    watch_file = WatchFile()
    task = watch_file.open(KEY)
    watch_file.limit(task, 1500)
    call = watch_file.open(KEY, "/0", "map(f) at train.py:12", skippable=True)
    write(watch_file, task, FIRST=3, STOP=5)
    cells, at = watch_file.cell(call)
    cells[at] = 17
    first, second = watch_file.notes()
    assert (first.place, first.timeout, first.split, first.is_active) == ("", 1.5, (3, 5), False)
    assert (second.key, second.number, second.place, second.label) == (
        KEY,
        17,
        "/0",
        "map(f) at train.py:12",
    )
    assert second.skippable
    assert watch_file.shortest_limit == 1.5


def test_another_process_reads_what_was_noted_last() -> None:
    """The last note of a process that exits at once is readable in every process that
    shares its memory.
    """
    descriptor = make_file()
    program = (
        "import os, sys; from zmqdata.worker.processes.watch import WatchFile, NUMBER; c = "
        "WatchFile(int(sys.argv[1]));"
        "c.introduce('name'); c.cells[c.open((4000, 2), '/0', 'map(f)') + NUMBER] = 17; os._exit(7)"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(descriptor)], pass_fds=[descriptor], check=False
    )
    found = msgspec.convert(WatchFile(descriptor).death("ended", False), m.Death)
    os.close(descriptor)
    assert found == m.Death("name", "ended", False, (KEY,), (m.Work(*KEY, 17, "/0", "map(f)"),))


def test_a_task_in_a_call_is_at_nothing_else() -> None:
    """The note of a whole task counts only while no call of it runs and it waits for
    nothing.
    """
    watch_file = WatchFile()
    task, call = watch_file.open(KEY), watch_file.open(KEY, "/0")
    write(watch_file, task, NUMBER=3)
    assert [note.place for note in active(watch_file.notes())] == [""]
    write(watch_file, call, NUMBER=8)
    assert [note.place for note in active(watch_file.notes())] == ["/0"]
    write(watch_file, call, NUMBER=module.IDLE)
    write(watch_file, task, WAITING=1)
    assert active(watch_file.notes()) == []


def test_who_ends_as_asked_is_no_death() -> None:
    """A process that announces its end, or never gave its name, leaves no death to
    report.
    """
    watch_file = WatchFile()
    assert watch_file.death("ended", False) is None
    watch_file.introduce("name")
    assert watch_file.death("ended", False) is not None
    watch_file.end()
    assert watch_file.death("ended", False) is None


def test_what_is_stuck_is_alone_to_blame() -> None:
    """After a process ends because of a stuck call, only that call and its task are
    reported.
    """
    watch_file = WatchFile()
    watch_file.introduce("name")
    for key in (KEY, (4001, 1)):
        write(watch_file, watch_file.open(key, "/0"), NUMBER=8)
    stuck = [note for note in watch_file.notes() if note.key == KEY]
    found = msgspec.convert(watch_file.death("was stuck", False, stuck), m.Death)
    assert (found.tasks, [work.task for work in found.in_progress]) == ((KEY,), [4000])


def test_slots_are_used_again() -> None:
    """A closed slot is free, and reusing it makes a different note. Without a free slot
    only the note is lost.
    """
    watch_file = WatchFile()
    first = watch_file.open(KEY)
    serial = watch_file.notes()[0].serial
    watch_file.close(first)
    assert watch_file.notes() == []
    assert watch_file.open(KEY) == first
    assert watch_file.notes()[0].serial != serial
    bases = [watch_file.open(KEY) for _ in range(SLOTS)]
    assert bases[-1] == -1
    cells, at = watch_file.cell(-1)
    cells[at] = 17
    watch_file.limit(-1, 5)
    watch_file.close(-1)
    assert len(watch_file.notes()) == SLOTS


def test_a_new_process_begins_with_what_is_told() -> None:
    """The memory of a new process holds no notes or limits of its predecessor. It keeps
    the reported deaths, and the latest of many.
    """
    watch_file = WatchFile()
    watch_file.introduce("name")
    watch_file.limit(watch_file.open(KEY), 5)
    watch_file.begin([DEATH])
    assert (watch_file.notes(), watch_file.shortest_limit, watch_file.told()) == ([], 0.0, [DEATH])
    watch_file.begin([{**DEATH, "how": "x" * 1000, "worker": str(index)} for index in range(100)])
    assert 10 < len(watch_file.told()) < 100
    assert watch_file.told()[-1]["worker"] == "99"
    watch_file.begin()
    assert watch_file.told() == []


@pytest.mark.parametrize(("label", "read"), [("é" * 1000, "é" * 190), ("\ud800", "?"), ("", "")])
def test_any_label_fits(label: str, read: str) -> None:
    """A label that is too long is cut. A label that cannot be encoded gets question
    marks.
    """
    watch_file = WatchFile()
    watch_file.open(KEY, "/0", label)
    [note] = watch_file.notes()
    assert note.place == "/0"
    assert note.label.startswith(read)
    assert len(note.label) <= len(label)


def test_there_is_memory_without_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without files in memory provides an unnamed temporary file instead."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    descriptor = make_file()
    one, other = WatchFile(descriptor), WatchFile(descriptor)
    os.close(descriptor)
    one.open(KEY)
    assert len(other.notes()) == 1


@pytest.mark.realprocess
@pytest.mark.parametrize(
    ("ending", "code", "starved"), [("", module.STARVED_CODE, 1 << 30), ("c.end();", 7, 0)]
)
def test_a_process_without_memory_says_so(ending: str, code: int, starved: int) -> None:
    """A process without its memory ends at once and keeps its notes. A process that was
    asked to end does so in its own way.
    """
    descriptor = make_file()
    program = (
        "import os, sys; from zmqdata.worker.processes.watch import WatchFile; c = "
        "WatchFile(int(sys.argv[1]));"
        f"c.limit_memory(1 << 30); c.introduce('name'); {ending} c.starve(); os._exit(7)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(descriptor)], pass_fds=[descriptor], check=False
    )
    watch_file = WatchFile(descriptor)
    assert (ran.returncode, watch_file.starved) == (code, starved)
    watch_file.begin()
    assert watch_file.starved == 0
    os.close(descriptor)


def test_nobody_takes_the_memory_away() -> None:
    """A process cannot shrink the memory that it shares, which would end its
    supervisor.
    """
    descriptor = make_file()
    with pytest.raises(PermissionError):
        os.truncate(descriptor, 0)
    os.close(descriptor)
