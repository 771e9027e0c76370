"""Tests of clients that share a job, on real processes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess


def opened(
    cluster: LocalCluster, count: int, mode: str = "distributed_epoch", job: str = "job"
) -> Iterator[int]:
    return iter(Dataset.range(count).apply(distribute(mode, cluster.target, job)))


def work(seconds: float) -> None:
    with contextlib.suppress(Empty):
        SimpleQueue[None]().get(timeout=seconds)


class Loop(threading.Thread):
    """A training loop in a thread, which takes equally long for each element."""

    def __init__(self, elements: Iterator[int], pace: float) -> None:
        super().__init__()
        self.found: list[int] = []
        self.end = 0.0
        self._elements, self._pace = elements, pace
        self.start()

    def run(self) -> None:
        for element in self._elements:
            self.found.append(int(element))
            work(self._pace)
        self.end = time.monotonic()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2) as started:
        yield started


def test_loops_of_unequal_pace_end_together_although_one_comes_late(
    cluster: LocalCluster,
) -> None:
    """A loop that comes when another has all elements gets its share of them, and an
    audit counts what was given back.
    """
    elements = opened(cluster, 400, job="late")
    first = Loop(elements, 0.003)
    await_condition(lambda: len(first.found) >= 60)
    late = Loop(opened(cluster, 400, job="late"), 0.012)
    first.join(60)
    late.join(60)
    assert sorted(first.found + late.found) == list(range(400))
    assert len(late.found) >= 40
    # An ideal end is equal; one element of the slower loop, and a fifth of a second.
    assert abs(first.end - late.end) < 0.3 + 0.012
    [audit] = [one for one in [elements.audit()] if one["job"] == "late"]  # type: ignore[attr-defined]
    assert audit["elements"]["delivered"] == 400
    assert audit["elements"]["given_back"] > 0
    assert audit["elements"]["duplicates_dropped"] == 0


def test_two_iterators_of_one_small_job_get_elements(cluster: LocalCluster) -> None:
    """Each of two iterators of the same job gets an element, however few there are, and
    both together get each element once.
    """
    first, second = (opened(cluster, 10, job="small") for _ in range(2))
    found = [int(next(first)), int(next(second))]
    found += [int(x) for x in second]
    assert sorted(found + [int(x) for x in first]) == list(range(10))


def test_a_single_outstanding_request_is_one_for_all_workers(cluster: LocalCluster) -> None:
    """A client with ``max_outstanding_requests=1`` has at most one element of all
    workers in its queue, and gets all of them.
    """
    options = distribute("distributed_epoch", cluster.target, "single", max_outstanding_requests=1)
    elements = iter(Dataset.range(60).apply(options))
    found = []
    for element in elements:
        found.append(int(element))
        tasks = elements._shell.core.reading.tasks.values()  # type: ignore[attr-defined]
        assert sum(task.waiting for task in tasks) <= 1
    assert sorted(found) == list(range(60))


@pytest.mark.parametrize("restarts", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_worker_that_comes_begins_a_copy_while_another_is_read(restarts: bool) -> None:
    """A worker that joins a job of copies, or is restarted, takes part as long as a
    client has not read all that was made.
    """
    with LocalCluster(1) as cluster:
        elements = opened(cluster, 50, mode="parallel_epochs")
        found = [int(next(elements)) for _ in range(5)]
        if restarts:
            cluster.workers[0].kill()
            cluster.workers[0].restart()
        else:
            cluster.add_worker()
        found += [int(x) for x in elements]
        if restarts:
            assert len(found) <= 100, "some of the first copy may be lost"
            assert found[-50:] == list(range(50))
        else:
            assert sorted(found) == sorted([*range(50), *range(50)])
