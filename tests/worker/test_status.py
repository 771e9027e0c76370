"""Test the counts of a worker's status: what its tasks are at."""

from __future__ import annotations

from typing import Any

from zmqdata import messages as m
from zmqdata.core.worker.dealing import dealing_for
from zmqdata.core.worker.tasks import HostedTask
from zmqdata.iterators.watching import OUTSIDE, WAITS_FOR_READERS, WAITS_FOR_SPLITS
from zmqdata.worker.processes.crumbs import NUMBER, WAITING, CrumbFile
from zmqdata.worker.status import Activity


def hosted(number: int, **changes: Any) -> HostedTask:
    definition = m.TaskDefinition(number, 1, 7, "dataset", "digest", "OFF", 9, None, (), ())
    task = HostedTask(definition, [], dealing_for(definition, 1000), started=True)
    task.allowed, task.unread = 10, None
    for name, value in changes.items():
        setattr(task, name, value)
    return task


def test_each_task_is_counted_at_what_it_does() -> None:
    """A task counts at each function that runs, else at what it waits for, else outside
    of functions; one that has not started or has ended does not count, and what an
    ended one was seen at is kept.
    """
    crumbs, activity = CrumbFile(), Activity()
    call = crumbs.open((1, 1), "0", "map(f)")
    crumbs.cells[call + NUMBER] = 5
    crumbs.cells[crumbs.open((2, 1)) + WAITING] = 1
    tasks = [hosted(1), hosted(2), hosted(3, produced_bytes=10), hosted(4)]
    tasks += [hosted(5, started=False), hosted(6, total=3)]
    activity.look(crumbs.notes(), tasks)
    crumbs.close(call)
    tasks[3].total = 9
    activity.look(crumbs.notes(), tasks)
    assert activity.shown() == {
        (1, 1): {"seen_at": {"map(f)": 1, OUTSIDE: 1}},
        (2, 1): {"seen_at": {WAITS_FOR_SPLITS: 2}},
        (3, 1): {"seen_at": {WAITS_FOR_READERS: 2}},
        (4, 1): {"seen_at": {OUTSIDE: 1}},
        (5, 1): {"seen_at": {}},
        (6, 1): {"seen_at": {}},
    }


def test_a_task_that_is_gone_is_forgotten() -> None:
    """The counts of a task end with the task, so that a worker keeps only present
    ones.
    """
    activity = Activity()
    activity.look([], [hosted(1), hosted(2)])
    activity.look([], [hosted(2)])
    assert list(activity.shown()) == [(2, 1)]
