"""Tests of elements that kill their process, on real workers: they are found and named,
or skipped, and other jobs continue.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.full import full
from tests.processes.poisons import (
    BAD,
    begetting,
    faulting,
    holding,
    leaving,
    signalled,
    slow,
    starving,
    sticking,
)
from zmqdata import Dataset, LocalCluster, distribute, distributed_save
from zmqdata.errors import PipelineError
from zmqdata.testing.cluster import await_condition, descendants, is_running

pytestmark = [pytest.mark.realprocess, pytest.mark.timeout(120)]

COUNT = 300
REST = [x for x in range(COUNT) if x != BAD]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2, heartbeat_interval_ms=200) as made:
        yield made


WAYS: list[tuple[Callable[[Any], Any], str]] = [
    (leaving, "ended with exit code 0"),
    (faulting, "was killed by SIGSEGV"),
    (starving, "was killed by SIGKILL"),
    (sticking, r"was stuck for ([5-9]|\d\d+) s"),
    (holding, r"was stuck for ([5-9]|\d\d+) s"),
]


def limit_for(function: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the time-out for functions that are stuck.

    Even on a busy machine a new process opens its pipeline within this time.
    """
    return {"task_timeout": 5.0} if function in (sticking, holding) else {}


def read(cluster: LocalCluster, dataset: Dataset, **options: Any) -> list[int]:
    return sorted(
        int(x) for x in dataset.apply(distribute("distributed_epoch", cluster.target, **options))
    )


@pytest.mark.full
@pytest.mark.parametrize(("function", "how"), WAYS)
def test_it_is_found_and_named(
    cluster: LocalCluster, function: Callable[[Any], Any], how: str
) -> None:
    """The job fails after three deaths alone and names node, file, line, and how the
    process ended; the workers live on.
    """
    place = rf"map\({function.__name__}\) at test_poison.py:\d+"
    with pytest.raises(PipelineError, match=rf"came to {place} \(task \d+.* 3 times: it {how}"):
        read(cluster, Dataset.range(COUNT).map(function), **limit_for(function))
    assert read(cluster, Dataset.range(10)) == list(range(10))
    assert all(worker.alive for worker in cluster.workers)


@pytest.mark.full
@pytest.mark.parametrize(
    ("function", "calls"),
    [(function, calls) for function in (leaving, faulting, holding) for calls in (None, 4)],
)
def test_it_is_left_out_on_request(
    cluster: LocalCluster, function: Callable[[Any], Any], calls: int | None
) -> None:
    """``on_poison="skip"`` delivers every other element exactly once, whatever follows
    the map.
    """
    dataset = Dataset.range(COUNT).map(function, num_parallel_calls=calls).shuffle(50).prefetch(4)
    assert read(cluster, dataset, on_poison="skip", **limit_for(function)) == REST


@pytest.mark.full
def test_nested_datasets_leave_it_out_too(cluster: LocalCluster) -> None:
    """A poison element of a nested dataset is found and skipped like any other."""
    dataset = Dataset.range(COUNT // 10).interleave(
        lambda x: Dataset.range(x * 10, x * 10 + 10).map(leaving)
    )
    assert read(cluster, dataset, on_poison="skip") == REST


@pytest.mark.full
@pytest.mark.parametrize("function", [leaving, sticking])
def test_a_save_leaves_it_out_on_request(
    cluster: LocalCluster, function: Callable[[Any], Any], tmp_path: Path
) -> None:
    """``on_poison="skip"`` saves every other element exactly once, and the save
    succeeds.
    """
    dataset, saved = Dataset.range(COUNT).map(function).batch(7), str(tmp_path / "saved")
    distributed_save(dataset, saved, cluster.target, on_poison="skip", **limit_for(function))
    found = Dataset.load(saved, wait=True)
    assert sorted(int(x) for batch in found for x in batch) == REST


def test_a_save_that_meets_it_fails_by_name(tmp_path: Path) -> None:
    """The third death ends the save; its ERROR names the element, and the worker
    continues other saves.
    """
    saved = str(tmp_path / "saved")
    named = r"came to map\(leaving\) at test_poison.py:\d+ \(task \d+.* 3 times: it ended with exit code 0"
    with LocalCluster(1, heartbeat_interval_ms=200) as cluster:
        distributed_save(Dataset.range(COUNT).map(leaving), saved, cluster.target)
        with pytest.raises(PipelineError, match=named):
            list(Dataset.load(saved, wait=True))
        distributed_save(Dataset.range(10), saved + "2", cluster.target)
        assert sorted(int(x) for x in Dataset.load(saved + "2", wait=True)) == list(range(10))


@pytest.mark.parametrize("function", [signalled, full(begetting)])
def test_other_jobs_go_on(cluster: LocalCluster, function: Callable[[Any], Any]) -> None:
    """Another job on the same workers gets each of its elements once, although it was
    making one when the process died.
    """
    healthy = Dataset.range(COUNT).map(slow, num_parallel_calls=2)
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(read, cluster, healthy)
        assert read(cluster, Dataset.range(COUNT).map(function), on_poison="skip") == REST
        assert other.result() == list(range(COUNT))


@pytest.mark.full
def test_people_may_kill_workers(cluster: LocalCluster) -> None:
    """Five processes killed from outside during a job make nothing fail: each element
    comes once.
    """
    dataset = Dataset.range(5_000).map(lambda x: x)
    iterator = iter(
        dataset.apply(distribute("distributed_epoch", cluster.target, max_outstanding_requests=8))
    )
    found = [int(next(iterator)) for _ in range(100)]
    for turn in range(5):
        worker: Any = cluster.workers[turn % 2]
        [child, *_] = await_child(worker)
        os.kill(child, signal.SIGKILL)
        await_condition(lambda child=child: not is_running(child), what="its end")
        found += [int(next(iterator)) for _ in range(100)]
    assert sorted(found + [int(x) for x in iterator]) == list(range(5_000))


def await_child(worker: Any) -> list[int]:
    await_condition(lambda: descendants(worker.pid), what="a child")
    return descendants(worker.pid)


@pytest.mark.full
def test_a_state_says_what_was_left_out(cluster: LocalCluster, tmp_path: Path) -> None:
    """An element skipped before a checkpoint stays skipped after loading it, even if it
    would no longer kill.
    """
    healed = tmp_path / "healed"

    def function(x: Any) -> Any:
        return x if healed.exists() else starving(x)

    dataset = (
        Dataset.range(COUNT)
        .map(function)
        .apply(
            distribute(
                "distributed_epoch", cluster.target, on_poison="skip", max_outstanding_requests=8
            )
        )
    )
    iterator = iter(dataset)
    before: list[int] = []
    while not iterator.quarantine:
        before.append(int(next(iterator)))
    before += [int(next(iterator)) for _ in range(20)]
    state = iterator.state_dict()
    iterator.close()
    healed.touch()
    again = iter(dataset)
    again.load_state_dict(state)
    assert sorted(before + [int(x) for x in again]) == REST
