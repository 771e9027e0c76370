"""Balanced batches of a real worker whose process is killed in the middle of a step."""

from __future__ import annotations

import os
import signal
from itertools import islice
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import descendants

pytestmark = pytest.mark.realprocess

COUNT = 6_000


def cost(row: Any) -> float:
    return float(row["x"][0] * 7919 % 50)


def test_a_killed_process_costs_no_element_and_no_step() -> None:
    """Two consumers get the same number of batches of equal size, and each element
    once, when a worker's process is killed in the middle of a step.
    """
    rows = Dataset.range(COUNT).map(lambda x: {"x": np.full(100, x)})
    balanced = rows.balance(2, cost=cost, batch_size=5, window=4)
    with LocalCluster(2, heartbeat_interval_ms=100, buffer_bytes=1 << 16) as cluster:
        read = [
            distribute(
                "distributed_epoch",
                cluster.target,
                "job",
                consumer_index=index,
                num_consumers=2,
                finite="drop",
            )
            for index in range(2)
        ]
        first, second = [iter(balanced.apply(one)) for one in read]
        found = [[*islice(first, 81)], [*islice(second, 80)]]
        worker = cluster.workers[0]
        assert isinstance(worker, ServerProcess)
        [child] = descendants(worker.pid)
        os.kill(child, signal.SIGKILL)
        for mine, theirs in zip(first, second, strict=False):
            found[0].append(mine)
            found[1].append(theirs)
        found[1] += second
    assert len(found[0]) == len(found[1])
    numbers = [int(x) for batches in found for batch in batches for x in batch["x"][:, 0]]
    assert len(numbers) == len(set(numbers)) >= COUNT - 1
    unequal = [pair for pair in zip(*found, strict=True) if {len(one["x"]) for one in pair} != {5}]
    assert len(unequal) <= 4  # the ends of two tasks
