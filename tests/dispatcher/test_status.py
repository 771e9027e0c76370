"""Tests of the status of a dispatcher."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.core.dispatcher.test_decider import Cluster
from zmqdata import DispatcherConfig
from zmqdata import messages as m
from zmqdata.dispatcher.status import status_of


def worker_row(cluster: Cluster) -> dict[str, Any]:
    found = status_of(cluster.core, cluster.now, "", DispatcherConfig(), Counter())
    [row] = found["workers"]
    return dict(row)


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
