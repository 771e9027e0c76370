"""Facts about mixtures on real sockets. ``simulated/test_mixtures.py`` states what a
mixture promises.
"""

from __future__ import annotations

import pytest

from tests.service.conftest import Service
from zmqdata import Dataset, LocalCluster, ShardingPolicy
from zmqdata.client.distribute import distribute
from zmqdata.testing.cluster import await_condition

PATIENCE = 30.0
"""Seconds to wait for counts."""


def mixed(count: int) -> Dataset:
    datasets = {"a": Dataset.range(count), "b": Dataset.range(count, count + count // 3)}
    return Dataset.mix(datasets, {"a": 3, "b": 1}, seed=1, stop="all")


def test_counts_arrive_by_name(service: Service) -> None:
    """``stats()`` of a distributed mixture has the elements of each dataset."""
    read = iter(service.read(mixed(1_000_000)))

    def has_counts() -> bool:
        for _ in range(200):
            next(read)
        return read.stats().get("data/mix/b", 0) > 100

    await_condition(has_counts, PATIENCE)
    counts = read.stats()
    assert abs(counts["data/mix/a"] / counts["data/mix/b"] - 3) < 0.2


@pytest.mark.realprocess
def test_a_killed_process_changes_nothing() -> None:
    """The process of a worker that is killed takes no element of a mixture along, and
    the promised order stays.
    """
    dataset = mixed(20_000).map(lambda x: x)
    with LocalCluster(3) as cluster:
        read = iter(
            dataset.apply(
                distribute(
                    ShardingPolicy.DYNAMIC,
                    cluster.target,
                    deterministic=True,
                    num_tasks=3,
                    max_outstanding_requests=64,
                )
            )
        )
        found = [int(next(read)) for _ in range(500)]
        cluster.workers[0].kill()
        found += [int(x) for x in read]
    with LocalCluster(1, in_process=True) as cluster:
        again = dataset.apply(
            distribute(ShardingPolicy.DYNAMIC, cluster.target, deterministic=True, num_tasks=3)
        )
        assert found == [int(x) for x in again]
