"""Tests of the shared memory in which a worker's process notes its current work."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from zmqdata import messages as m
from zmqdata.worker.processes import watch as module
from zmqdata.worker.processes.watch import SLOTS, CrumbFile, active, make_file

KEY = (4000, 2)
DEATH = {"worker": "w", "how": "ended", "killed": False, "tasks": [[4000, 1]], "crumbs": []}


def write(crumbs: CrumbFile, base: int, **words: int) -> None:
    for word, value in words.items():
        crumbs.cells[base + getattr(module, word)] = value


def test_what_is_noted_is_read() -> None:
    """A note holds the element, its task, the node, and the time-out and the split of
    the task.
    """
    crumbs = CrumbFile()
    task = crumbs.open(KEY)
    crumbs.limit(task, 1500)
    call = crumbs.open(KEY, "/0", "map(f) at train.py:12", skippable=True)
    write(crumbs, task, FIRST=3, STOP=5)
    cells, at = crumbs.cell(call)
    cells[at] = 17
    first, second = crumbs.notes()
    assert (first.place, first.timeout, first.split, first.is_active) == ("", 1.5, (3, 5), False)
    assert (second.key, second.number, second.place, second.label) == (
        KEY,
        17,
        "/0",
        "map(f) at train.py:12",
    )
    assert second.skippable
    assert crumbs.shortest_limit == 1.5


def test_another_process_reads_what_was_noted_last() -> None:
    """The last note of a process that exits at once is readable in every process that
    shares its memory.
    """
    descriptor = make_file()
    program = (
        "import os, sys; from zmqdata.worker.processes.watch import CrumbFile, NUMBER; c = "
        "CrumbFile(int(sys.argv[1]));"
        "c.introduce('name'); c.cells[c.open((4000, 2), '/0', 'map(f)') + NUMBER] = 17; os._exit(7)"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(descriptor)], pass_fds=[descriptor], check=False
    )
    found = msgspec.convert(CrumbFile(descriptor).death("ended", False), m.Death)
    os.close(descriptor)
    assert found == m.Death("name", "ended", False, (KEY,), (m.Crumb(*KEY, 17, "/0", "map(f)"),))


def test_a_task_in_a_call_is_at_nothing_else() -> None:
    """The note of a whole task counts only while no call of it runs and it waits for
    nothing.
    """
    crumbs = CrumbFile()
    task, call = crumbs.open(KEY), crumbs.open(KEY, "/0")
    write(crumbs, task, NUMBER=3)
    assert [note.place for note in active(crumbs.notes())] == [""]
    write(crumbs, call, NUMBER=8)
    assert [note.place for note in active(crumbs.notes())] == ["/0"]
    write(crumbs, call, NUMBER=module.IDLE)
    write(crumbs, task, WAITING=1)
    assert active(crumbs.notes()) == []


def test_who_ends_as_asked_is_no_death() -> None:
    """A process that announces its end, or never gave its name, leaves no death to
    report.
    """
    crumbs = CrumbFile()
    assert crumbs.death("ended", False) is None
    crumbs.introduce("name")
    assert crumbs.death("ended", False) is not None
    crumbs.end()
    assert crumbs.death("ended", False) is None


def test_what_is_stuck_is_alone_to_blame() -> None:
    """After a process ends because of a stuck call, only that call and its task are
    reported.
    """
    crumbs = CrumbFile()
    crumbs.introduce("name")
    for key in (KEY, (4001, 1)):
        write(crumbs, crumbs.open(key, "/0"), NUMBER=8)
    stuck = [note for note in crumbs.notes() if note.key == KEY]
    found = msgspec.convert(crumbs.death("was stuck", False, stuck), m.Death)
    assert (found.tasks, [crumb.task for crumb in found.crumbs]) == ((KEY,), [4000])


def test_slots_are_used_again() -> None:
    """A closed slot is free, and reusing it makes a different note. Without a free slot
    only the note is lost.
    """
    crumbs = CrumbFile()
    first = crumbs.open(KEY)
    serial = crumbs.notes()[0].serial
    crumbs.close(first)
    assert crumbs.notes() == []
    assert crumbs.open(KEY) == first
    assert crumbs.notes()[0].serial != serial
    bases = [crumbs.open(KEY) for _ in range(SLOTS)]
    assert bases[-1] == -1
    cells, at = crumbs.cell(-1)
    cells[at] = 17
    crumbs.limit(-1, 5)
    crumbs.close(-1)
    assert len(crumbs.notes()) == SLOTS


def test_a_new_process_begins_with_what_is_told() -> None:
    """The memory of a new process holds no notes or limits of its predecessor. It keeps
    the reported deaths, and the latest of many.
    """
    crumbs = CrumbFile()
    crumbs.introduce("name")
    crumbs.limit(crumbs.open(KEY), 5)
    crumbs.begin([DEATH])
    assert (crumbs.notes(), crumbs.shortest_limit, crumbs.told()) == ([], 0.0, [DEATH])
    crumbs.begin([{**DEATH, "how": "x" * 1000, "worker": str(index)} for index in range(100)])
    assert 10 < len(crumbs.told()) < 100
    assert crumbs.told()[-1]["worker"] == "99"
    crumbs.begin()
    assert crumbs.told() == []


@pytest.mark.parametrize(("label", "read"), [("é" * 1000, "é" * 190), ("\ud800", "?"), ("", "")])
def test_any_label_fits(label: str, read: str) -> None:
    """A label that is too long is cut. A label that cannot be encoded gets question
    marks.
    """
    crumbs = CrumbFile()
    crumbs.open(KEY, "/0", label)
    [note] = crumbs.notes()
    assert note.place == "/0"
    assert note.label.startswith(read)
    assert len(note.label) <= len(label)


def test_there_is_memory_without_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without files in memory provides an unnamed temporary file instead."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    descriptor = make_file()
    one, other = CrumbFile(descriptor), CrumbFile(descriptor)
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
        "import os, sys; from zmqdata.worker.processes.watch import CrumbFile; c = "
        "CrumbFile(int(sys.argv[1]));"
        f"c.limit_memory(1 << 30); c.introduce('name'); {ending} c.starve(); os._exit(7)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(descriptor)], pass_fds=[descriptor], check=False
    )
    crumbs = CrumbFile(descriptor)
    assert (ran.returncode, crumbs.starved) == (code, starved)
    crumbs.begin()
    assert crumbs.starved == 0
    os.close(descriptor)


def test_nobody_takes_the_memory_away() -> None:
    """A process cannot shrink the memory that it shares, which would end its
    supervisor.
    """
    descriptor = make_file()
    with pytest.raises(PermissionError):
        os.truncate(descriptor, 0)
    os.close(descriptor)
