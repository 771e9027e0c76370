"""Facts about the memory in which a worker's process notes what it is at."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from zmqdata import messages as m
from zmqdata.worker.processes import crumbs as module
from zmqdata.worker.processes.crumbs import SLOTS, CrumbFile, active, make_file

KEY = (4000, 2)
DEATH = {"worker": "w", "how": "ended", "killed": False, "tasks": [[4000, 1]], "crumbs": []}


def write(crumbs: CrumbFile, base: int, **words: int) -> None:
    for word, value in words.items():
        crumbs.cells[base + getattr(module, word)] = value


def test_what_is_noted_is_read() -> None:
    """A note has the element, whose it is, the node, and the time-out and split of its
    task.
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
    """What a process noted before it ended at once is there for the one that shares its
    memory.
    """
    descriptor = make_file()
    program = (
        "import os, sys; from zmqdata.worker.processes.crumbs import CrumbFile, NUMBER; c = "
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
    """The note of a task as a whole counts where none of its calls runs and it waits
    for nothing.
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
    """A process that says that it ends, or never said who it was, leaves nothing to
    tell.
    """
    crumbs = CrumbFile()
    assert crumbs.death("ended", False) is None
    crumbs.introduce("name")
    assert crumbs.death("ended", False) is not None
    crumbs.end()
    assert crumbs.death("ended", False) is None


def test_what_is_stuck_is_alone_to_blame() -> None:
    """Of a process that was ended because a call was stuck, only that call and its task
    are told.
    """
    crumbs = CrumbFile()
    crumbs.introduce("name")
    for key in (KEY, (4001, 1)):
        write(crumbs, crumbs.open(key, "/0"), NUMBER=8)
    stuck = [note for note in crumbs.notes() if note.key == KEY]
    found = msgspec.convert(crumbs.death("was stuck", False, stuck), m.Death)
    assert (found.tasks, [crumb.task for crumb in found.crumbs]) == ((KEY,), [4000])


def test_slots_are_used_again() -> None:
    """A closed slot is free, and a new use of it is another note; without any the note
    is lost and nothing else.
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
    """Notes and limits of the former process are gone; deaths are passed on, the last
    ones where they are many.
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
    """A label that is too long is cut, one that cannot be encoded is written with
    question marks.
    """
    crumbs = CrumbFile()
    crumbs.open(KEY, "/0", label)
    [note] = crumbs.notes()
    assert note.place == "/0"
    assert note.label.startswith(read)
    assert len(note.label) <= len(label)


def test_there_is_memory_without_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no files in memory, a temporary one without a name does."""
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
    """It ends at once, with its notes as they are; one that ends as it was asked to
    ends in its own way.
    """
    descriptor = make_file()
    program = (
        "import os, sys; from zmqdata.worker.processes.crumbs import CrumbFile; c = "
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
    """A process that shares it cannot make it shorter, which would end its
    supervisor.
    """
    descriptor = make_file()
    with pytest.raises(PermissionError):
        os.truncate(descriptor, 0)
    os.close(descriptor)
