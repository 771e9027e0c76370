"""Test how a worker leaves."""

from __future__ import annotations

from typing import Any

from tests.definitions import changed, define
from zmqdata.config.worker import DRAIN_SECONDS
from zmqdata.core.worker.draining import Draining
from zmqdata.messages import TaskDefinition

TASK = define(1, 1, 1, "dataset", "digest", "DYNAMIC", 1, None, (), ())


def task(**changes: Any) -> TaskDefinition:
    return changed(TASK, **changes)


def quiet() -> Draining:
    return Draining(lambda note: None, DRAIN_SECONDS)


def test_a_worker_stays_while_others_may_take_its_tasks() -> None:
    """A leaving worker stays until its tasks are gone, counted from the first request
    to leave.
    """
    draining = quiet()
    assert draining.begin(10.0, 7.0, [TASK])
    assert not draining.begin(16.0, 7.0, [TASK])
    draining.check_done(16.9, [TASK])
    assert not draining.done
    draining.check_done(16.9, [])
    assert draining.done


def test_a_worker_leaves_in_time() -> None:
    """The worker reports untaken tasks once when its time is over, without copies,
    which no other worker can take.
    """
    notes: list[Any] = []
    draining = Draining(notes.append, DRAIN_SECONDS)
    draining.begin(10.0, 7.0, [TASK])
    for now in (17.0, 18.0):
        draining.check_done(now, [TASK, task(processing_mode="OFF")])
    assert draining.done
    assert [note.level for note in notes] == ["info", "info", "warning"]
    assert "no other worker has taken 1 tasks of this worker in time" in notes[2].text


def test_a_worker_says_what_was_taken_back() -> None:
    """A leaving worker says how many tasks it gives back and which copies end with it,
    and at its end how many of them the dispatcher has taken back. It does not claim
    that another worker has them, because it does not learn why a task was dropped.
    """
    notes: list[Any] = []
    draining = Draining(notes.append, DRAIN_SECONDS)
    draining.begin(10.0, 7.0, [TASK, TASK, TASK, task(processing_mode="OFF")])
    draining.check_done(12.0, [TASK])
    draining.check_done(17.0, [TASK])
    assert [note.text for note in notes[:2]] == [
        "draining: 3 tasks go back to the dispatcher; 1 copies of the input (mode OFF) end here",
        "drained: the dispatcher has taken back 2 of 3 tasks in 7.0 s",
    ]


def test_who_was_not_told_to_leave_stays() -> None:
    """A worker that was not told to leave waits for tasks."""
    draining = quiet()
    draining.check_done(1e9, [])
    assert not draining.done


def test_who_has_had_its_tasks_leaves() -> None:
    """A worker that has hosted its maximum of tasks leaves and hands its tasks over. It
    does not count as worn if it was told to leave before.
    """
    draining = Draining(lambda note: None, DRAIN_SECONDS, max_tasks=2)
    draining.tasks = 1
    draining.check_done(10.0, [TASK])
    assert not draining.begun
    draining.tasks = 2
    draining.check_done(10.0, [TASK])
    assert (draining.begun, draining.worn, draining.done) == (True, True, False)
    draining.check_done(10.0, [])
    assert draining.done
    told = Draining(lambda note: None, DRAIN_SECONDS, max_tasks=2)
    told.begin(10.0, 7.0, [TASK])
    told.tasks = 2
    told.check_done(10.0, [])
    assert (told.worn, told.done) == (False, True)


def test_a_copy_keeps_who_has_had_its_tasks() -> None:
    """A worker finishes its copies before it leaves after its maximum of tasks, as
    another host would begin a copy anew.
    """
    copy = task(processing_mode="OFF")
    draining = Draining(lambda note: None, DRAIN_SECONDS, max_tasks=1)
    draining.tasks = 5
    draining.check_done(10.0, [TASK, copy])
    assert not draining.begun
    draining.check_done(11.0, [TASK])
    draining.check_done(12.0, [copy])
    assert (draining.begun, draining.done) == (True, False)
    draining.check_done(11.0 + DRAIN_SECONDS, [copy])
    assert draining.done
