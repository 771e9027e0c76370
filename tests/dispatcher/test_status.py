"""Tests of the status of a dispatcher: its words, rates and sizes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import asdict, replace

from tests.core.dispatcher.rundesk import JOB, Desk
from tests.core.dispatcher.test_decider import Cluster
from zmqdata import messages as m
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.dispatcher.status import status_of
from zmqdata.splits import IndexSplits

BATCHES = m.DatasetUnits(32, ("files",))
MADE = m.TaskSums(seconds=4.0, making=3.0, for_readers=1.0, elements=40.0, nbytes=400.0)
TAKEN = m.LoopMeasures(recent=m.LoopSums(seconds=2.0, waiting=1.0, elements=10.0))


def measured(units: m.DatasetUnits = BATCHES, made: m.TaskSums = MADE) -> m.ServiceStatus:
    """Return the status of a dispatcher whose only worker and only client have sent
    measures.
    """
    desk = Desk()
    described = m.DatasetDescription(
        "e" * 64, "other", (IndexSplits(100),), "", None, -2, None, "3.11", "0", units=units
    )
    desk.hear("k", m.RegisterDataset("request", "batched", described, b"pipeline"))
    desk.opened("k", "run", job=replace(JOB, dataset_id="batched"))
    (task,) = desk.core.state.tasks.values()
    sums = m.TaskMeasures(task.task, task.attempt, made, made)
    # Nothing new has been produced since the report before, in which case a worker that
    # makes many elements at once counted as idle.
    for _ in range(2):
        report = m.TaskReport(task.task, task.attempt, 40, None, measures=sums)
        desk.hear("w", m.WorkerHeartbeat("w", (report,), ()))
    desk.hear("k", m.ClientHeartbeat("k", 0, 0, {}, measures=TAKEN))
    return status_of(desk.core, desk.now, "tcp://d:1", DispatcherConfig(), Counter())


def test_the_rate_of_a_worker_is_that_of_its_tasks() -> None:
    """A worker has the rates and shares that its tasks have measured."""
    (worker,) = measured().workers
    assert (worker.elements_per_second, worker.bytes_per_second) == (10.0, 100)
    assert (worker.making_share, worker.waiting_for_readers_share) == (0.75, 0.25)


def test_what_was_delivered_was_made() -> None:
    """A task has made what reached a loop, also if its worker has reported less, and
    all of its elements once it has ended.
    """
    desk = Desk()
    desk.opened("k", "run")
    (task,) = desk.core.state.tasks
    desk.hear("k", m.ClientHeartbeat("k", 0, 0, {task: ((0, 88),)}))

    def row() -> m.TaskStatus:
        found = status_of(desk.core, desk.now, "", DispatcherConfig(), Counter())
        return found.tasks[0]

    assert (row().delivered, row().produced) == (88, 88)
    desk.hear("w", m.WorkerHeartbeat("w", (m.TaskReport(task, 1, 87, None),), ()))
    assert (row().delivered, row().produced) == (88, 88)
    desk.hear("w", m.WorkerHeartbeat("w", (m.TaskReport(task, 1, 90, None),), ()))
    assert (row().delivered, row().produced) == (88, 90)
    desk.hear("w", m.WorkerHeartbeat("w", (m.TaskReport(task, 1, 90, 120),), ()))
    assert (row().delivered, row().produced, row().total) == (88, 120, 120)


def test_a_worker_without_measures_does_nothing() -> None:
    """Before the first measures, all rates and shares are zero."""
    (worker,) = measured(made=m.TaskSums()).workers
    assert (worker.elements_per_second, worker.making_share) == (0.0, 0.0)


def test_a_job_says_what_its_elements_are() -> None:
    """A job of batches has its rate in batches and in rows."""
    (job,) = measured().jobs
    assert (job.unit, job.batch_rows) == ("batches", 32)
    assert (job.elements_per_second, job.rows_per_second) == (5.0, 160.0)
    assert job.splits[0].unit == "files"


def test_rows_are_left_out_if_their_number_is_unknown() -> None:
    """Batches of unknown size have no rate in rows. Elements that are not batches are
    rows.
    """
    (job,) = measured(m.DatasetUnits(0, ("rows",))).jobs
    assert (job.unit, job.batch_rows, job.rows_per_second) == ("batches", None, None)
    (job,) = measured(m.DatasetUnits()).jobs
    assert (job.unit, job.rows_per_second) == ("elements", 5.0)
    assert job.splits[0].unit == "splits"


def test_a_job_has_what_its_clients_say_of_its_dataset() -> None:
    """The row of a job names the line and the dataset; none is known of one that older
    clients have registered.
    """
    (job,) = measured(m.DatasetUnits(origin="train.py:12, ImageFolder")).jobs
    assert job.origin == "train.py:12, ImageFolder"
    assert measured().jobs[0].origin == ""


def worker_row(cluster: Cluster) -> dict[str, Any]:
    found = status_of(cluster.core, cluster.now, "", DispatcherConfig(), Counter())
    [row] = found.workers
    return asdict(row)


def test_a_worker_has_the_memory_that_it_reported_last() -> None:
    """The row of a worker has the sizes of its last heartbeat, its limit, and how often
    its process was recycled. What it has not told, or has no limit for, is None.
    """
    cluster = Cluster()
    unknown = {"rss_bytes": None, "memory_bytes": None, "memory_limit_bytes": None, "recycles": 0}
    assert unknown.items() <= worker_row(cluster).items()
    for rss in (100, 300):
        memory = m.MemoryUse(rss=rss, counted=400, limit=500, recycles=2)
        cluster.hear("w", m.WorkerHeartbeat("w", (), (), memory=memory))
    told = {"rss_bytes": 300, "memory_bytes": 400, "memory_limit_bytes": 500, "recycles": 2}
    assert told.items() <= worker_row(cluster).items()
