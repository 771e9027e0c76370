"""Tests of clients that share a job, on real processes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest

from zmqdata import Dataset, LocalCluster, distribute

pytestmark = pytest.mark.realprocess


def opened(
    cluster: LocalCluster, count: int, mode: str = "distributed_epoch", job: str = "job"
) -> Iterator[int]:
    return iter(Dataset.range(count).apply(distribute(mode, cluster.target, job)))


def work(seconds: float) -> None:
    with contextlib.suppress(Empty):
        SimpleQueue[None]().get(timeout=seconds)


def take_in_step(first: Iterator[int], late: Iterator[int]) -> tuple[list[int], list[int]]:
    """Take four elements of the first for each of the other until one of them has
    ended, then the rest. Return the elements of both.
    """
    found: tuple[list[int], list[int]] = ([], [])
    for number in itertools.cycle((0, 0, 0, 0, 1)):
        element = next((first, late)[number], None)
        if element is None:
            break
        found[number].append(int(element))
        work(0.0 if number else 0.003)
    found[0].extend(map(int, first))
    found[1].extend(map(int, late))
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2) as started:
        yield started


def test_a_slower_loop_that_comes_late_gets_its_share(cluster: LocalCluster) -> None:
    """A loop that comes when another has read for a while gets its share of what is
    left, and an audit counts each element once.
    """
    elements = opened(cluster, 400, job="late")
    found = [int(next(elements)) for _ in range(60)]
    mine, others = take_in_step(elements, opened(cluster, 400, job="late"))
    assert sorted(found + mine + others) == list(range(400))
    assert len(others) >= 40
    [audit] = [one for one in [elements.audit()] if one["job"] == "late"]  # type: ignore[attr-defined]
    assert audit["elements"]["delivered"] == 400
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
