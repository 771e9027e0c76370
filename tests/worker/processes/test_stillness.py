"""Tests of which calls and tasks count as stuck."""

from __future__ import annotations

from zmqdata.worker.processes.stillness import Stillness, overdue
from zmqdata.worker.processes.watch import IDLE, NUMBER, WAITING, WatchFile

KEY = (4000, 1)


class Task:
    """A task with a single call, inspected every second."""

    def __init__(self, limit: int = 0) -> None:
        self.watch_file = WatchFile()
        self.task, self.call = self.watch_file.open(KEY), self.watch_file.open(KEY, "/0", "map(f)")
        if limit:
            self.watch_file.limit(self.task, limit)
        self.stillness = Stillness()
        self.now = 0.0

    def at(
        self, number: int, call: int = IDLE, waiting: int = 0, seconds: float = 1.0
    ) -> list[tuple[str, float]]:
        """Inspect the notes after some seconds; return the active notes and how long
        each is still.
        """
        cells = self.watch_file.cells
        cells[self.task + NUMBER], cells[self.call + NUMBER], cells[self.task + WAITING] = (
            number,
            call,
            waiting,
        )
        self.stillness.look(self.now, self.watch_file.notes())
        self.now += seconds
        return [
            (note.place, since)
            for note, since in self.stillness.look(self.now, self.watch_file.notes())
        ]


def test_a_call_is_still_while_its_number_is_the_same() -> None:
    """A call is still from the moment its number is first seen. The task around it does
    not count.
    """
    task = Task()
    assert task.at(0, call=7) == [("/0", 1.0)]
    assert task.at(0, call=7) == [("/0", 2.0)]
    assert task.at(0, call=8) == [("/0", 1.0)]
    assert task.at(0, call=IDLE) == [("", 1.0)]


def test_a_task_is_not_still_while_its_calls_come_and_go() -> None:
    """A filter that passes nothing on for an hour is at work. Without a running call,
    the time since the element began counts.
    """
    task = Task()
    task.at(0, call=7, seconds=50.0)
    assert task.at(0) == [("", 1.0)]
    assert task.at(0) == [("", 2.0)]
    assert task.at(1) == [("", 1.0)]


def test_who_waits_is_not_still() -> None:
    """A task that waits for splits, credit or a reader is not still, and its wait does
    not count afterwards.
    """
    task = Task()
    assert task.at(0, waiting=1, seconds=100.0) == []
    assert task.at(0) == [("", 1.0)]
    assert task.at(IDLE, seconds=100.0) == []


def test_only_tasks_with_a_limit_are_overdue() -> None:
    """A call is overdue after the time-out of its task, and never without a
    time-out.
    """
    for limit, expected in ((0, []), (5_000, ["/0"])):
        task = Task(limit)
        found = []
        for seconds in (4.0, 1.0):
            task.at(0, call=7, seconds=seconds)
            notes = task.watch_file.notes()
            found.append(
                [note.place for note in overdue(task.stillness.look(task.now, notes), notes)]
            )
        assert found == [[], expected]
