"""Section 2.3: dispatchers that are killed and restarted on the same work folder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, joined, numbers, read, some, status, together
from zmqdata import Dataset, ShardingPolicy
from zmqdata.errors import InvalidArgumentError
from zmqdata.testing.cluster import await_condition

BIG = Dataset.range(20_000)


@pytest.fixture
def durable(
    make_cluster: Callable[..., zmqdata.LocalCluster], tmp_path: Path
) -> Callable[..., zmqdata.LocalCluster]:
    """Return a factory of clusters whose dispatcher keeps a journal."""
    return lambda workers=2, **options: make_cluster(
        workers, work_dir=str(tmp_path / "work"), **options
    )


def again(cluster: zmqdata.LocalCluster) -> None:
    """Kill the dispatcher and restart it at its port."""
    cluster.dispatcher.kill()
    cluster.dispatcher.restart()


@pytest.mark.claim("2.3b")
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.full)])
def test_jobs_survive_their_dispatcher(
    durable: Callable[..., zmqdata.LocalCluster], times: int
) -> None:
    """A DYNAMIC job delivers each element once and ends, although its dispatcher is
    killed in the middle of it.
    """
    cluster = durable()
    it = iter(read(BIG, cluster, max_outstanding_requests=200))
    found: list[int] = []
    for _ in range(times):
        found += some(it, 1000)
        again(cluster)
    assert sorted(found + numbers(it)) == list(range(20_000))


@pytest.mark.claim("2.3b")
def test_dispatcher_and_worker_are_killed(durable: Callable[..., zmqdata.LocalCluster]) -> None:
    """A job delivers each element once, although dispatcher and worker are killed
    together.
    """
    cluster = durable()
    it = iter(read(BIG, cluster, max_outstanding_requests=200))
    found = some(it, 1000)
    cluster.workers[0].kill()
    again(cluster)
    assert sorted(found + numbers(it)) == list(range(20_000))


@pytest.mark.claim("2.3b")
def test_readers_share_across_a_restart(durable: Callable[..., zmqdata.LocalCluster]) -> None:
    """Two readers of a job and a third that joins after a restart share it."""
    cluster = durable()
    its = [
        iter(read(BIG, cluster, job_name="shared", max_outstanding_requests=100)) for _ in range(2)
    ]
    found = joined(together(*(lambda it=it: some(it, 300) for it in its)))
    again(cluster)
    its.append(iter(read(BIG, cluster, job_name="shared")))
    found += joined(together(*(lambda it=it: numbers(it) for it in its)))
    assert sorted(found) == list(range(20_000))


@pytest.mark.claim("2.3d", "7.53")
def test_parameters_are_remembered(durable: Callable[..., zmqdata.LocalCluster]) -> None:
    """A job keeps its parameters through a restart of the dispatcher."""
    cluster = durable()
    it = iter(read(Dataset.counter(), cluster, OFF, job_name="test"))
    next(it)
    again(cluster)
    text = "Tried to create job with name test, but found an existing job with different parameters"
    with pytest.raises(InvalidArgumentError, match=text):
        next(iter(read(Dataset.counter(), cluster, DYNAMIC, job_name="test")))
    assert len(some(it, 100)) == 100
    it.close()


@pytest.mark.claim("2.3e")
def test_what_ended_stays_ended(durable: Callable[..., zmqdata.LocalCluster]) -> None:
    """A finished job stays finished through two restarts."""
    cluster = durable()
    first, *others = (read(Dataset.range(100), cluster, job_name="done") for _ in range(3))
    assert len(numbers(first)) == 100
    await_condition(
        lambda: all(one["finished"] for one in status(cluster)["iterations"]),
        what="the end to be known",
    )
    for other in others:
        again(cluster)
        assert numbers(other) == []


@pytest.mark.claim("2.3f")
def test_what_was_collected_stays_collected(durable: Callable[..., zmqdata.LocalCluster]) -> None:
    """A collected job stays collected through a restart, so the next reader starts it
    anew.
    """
    cluster = durable(1, job_gc_timeout_ms=0, job_gc_check_interval_ms=20)
    it = iter(read(Dataset.range(100), cluster, job_name="gone"))
    some(it, 10)
    it.close()
    await_condition(lambda: not status(cluster)["tasks"], what="the job to be collected")
    again(cluster)
    assert sorted(numbers(read(Dataset.range(100), cluster, job_name="gone"))) == list(range(100))


@pytest.mark.claim("2.3a")
def test_ids_are_not_given_twice(durable: Callable[..., zmqdata.LocalCluster]) -> None:
    """A restarted dispatcher keeps dataset ids and chooses new ids."""
    cluster = durable(1)
    first = zmqdata.register_dataset(cluster.target, Dataset.range(5))
    zmqdata.register_dataset(cluster.target, Dataset.range(6), dataset_id="mine")
    again(cluster)
    other = zmqdata.register_dataset(cluster.target, Dataset.range(7))
    assert len({first, other, "mine"}) == 3
    for dataset_id, count in ((first, 5), ("mine", 6), (other, 7)):
        assert len(numbers(zmqdata.from_dataset_id(DYNAMIC, cluster.target, dataset_id))) == count
    with pytest.raises(InvalidArgumentError, match="same structure"):
        zmqdata.register_dataset(cluster.target, Dataset.range(8), dataset_id="mine")


@pytest.mark.claim("2.3g")
def test_static_jobs_survive(durable: Callable[..., zmqdata.LocalCluster]) -> None:
    """A static job continues after a restart, because workers keep their places."""
    cluster = durable(2, worker_addresses=["127.0.0.1"] * 2)
    it = iter(read(BIG, cluster, ShardingPolicy.DATA, max_outstanding_requests=200))
    found = some(it, 1000)
    again(cluster)
    assert sorted(found + numbers(it)) == list(range(20_000))


@pytest.mark.claim("2.3g", "4.4h")
def test_consumers_stay_in_step(durable: Callable[..., zmqdata.LocalCluster]) -> None:
    """Consumers stay in step through a restart of the dispatcher, and no round is
    missing.
    """
    cluster = durable(1)
    options = {"job_name": "steps", "num_consumers": 2}
    its = [
        iter(read(Dataset.counter(), cluster, OFF, consumer_index=index, **options))
        for index in range(2)
    ]
    taken = together(*(lambda it=it: some(it, 20) for it in its))
    again(cluster)
    more = together(*(lambda it=it: some(it, 200) for it in its))
    steps = list(zip(taken[0] + more[0], taken[1] + more[1], strict=True))
    assert steps == [(2 * n, 2 * n + 1) for n in range(220)]


@pytest.mark.claim("4.5c")
def test_what_workers_have_is_read_without_a_dispatcher(
    durable: Callable[..., zmqdata.LocalCluster],
) -> None:
    """Under OFF all elements arrive while the dispatcher is down, and the end arrives
    after its restart.
    """
    cluster = durable()
    it = iter(read(Dataset.range(2000), cluster, OFF, max_outstanding_requests=50))
    found = some(it, 100)
    await_condition(lambda: len(status(cluster)["tasks"]) == 2, what="a task on each worker")
    while len(set(found)) == len(found):  # until both workers are read
        found += some(it, 100)
    cluster.dispatcher.kill()
    found += [int(x) for x in islice(it, 4000 - len(found))]
    cluster.dispatcher.restart()
    assert numbers(it) == []
    assert sorted(found) == sorted([*range(2000)] * 2)


@pytest.mark.claim("2.3h")
def test_a_work_folder_has_one_dispatcher(tmp_path: Path) -> None:
    """A second dispatcher on the same work folder is refused."""
    config: Any = zmqdata.DispatcherConfig(work_dir=str(tmp_path))
    with (
        zmqdata.DispatchServer(config),
        pytest.raises((RuntimeError, OSError), match=str(tmp_path)),
    ):
        zmqdata.DispatchServer(config)
    zmqdata.DispatchServer(config).stop()
