"""Tests of a long task whose worker is killed late: it continues near its last
position, and each element comes once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.client.calls import status

pytestmark = pytest.mark.realprocess

COUNT = 3_500
PACE = 0.001
"""Seconds that each element takes, so that the whole job is about four seconds of
work.
"""
FEW = 2_000
"""Upper bound of the elements made since the last state and held in buffers."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A dispatcher with a journal, and a worker that makes few elements ahead of its
    clients.
    """
    with LocalCluster(1, heartbeat_interval_ms=100, buffer_bytes=1 << 12) as made:
        yield made


def pipeline(calls: Path) -> Dataset:
    """Every kind of buffer, and a step that leaves a trace of each of its calls."""

    def work(x: int) -> int:
        threading.Event().wait(PACE)
        with calls.open("ab") as file:
            file.write(b".")
        return x

    ranges = Dataset.range(COUNT // 10).shuffle(40)
    nested = ranges.interleave(
        lambda x: Dataset.range(10 * int(x), 10 * int(x) + 10), cycle_length=4
    )
    return nested.map(work).shuffle(60).batch(5).prefetch(2)


def read_with(cluster: LocalCluster, calls: Path, misfortune: Callable[[], None]) -> Counter[int]:
    """Read everything, with a misfortune after four fifths of the elements."""
    dataset = pipeline(calls).apply(
        distribute("distributed_epoch", cluster.target, "job", max_outstanding_requests=8)
    )
    seen: Counter[int] = Counter()
    waiting = True
    for batch in dataset:
        seen.update(np.asarray(batch).tolist())
        if waiting and seen.total() >= 0.8 * COUNT:
            waiting = False
            misfortune()
    return seen


def check(seen: Counter[int], calls: Path, cluster: LocalCluster) -> None:
    assert seen == Counter(range(COUNT))
    assert 2 in {task["attempt"] for task in status(cluster.target)["tasks"]}
    assert calls.stat().st_size < COUNT + FEW


def test_a_killed_worker_costs_little(cluster: LocalCluster, tmp_path: Path) -> None:
    """The task of a killed worker is replayed from its last state, not from its
    beginning, and no element is lost or repeated.
    """

    def misfortune() -> None:
        cluster.add_worker()
        cluster.workers[0].kill()

    check(read_with(cluster, tmp_path / "calls", misfortune), tmp_path / "calls", cluster)


@pytest.mark.full
def test_states_outlive_the_dispatcher(cluster: LocalCluster, tmp_path: Path) -> None:
    """A task continues from its state even if the dispatcher dies with the worker: the
    journal holds the states.
    """

    def misfortune() -> None:
        cluster.workers[0].kill()
        cluster.dispatcher.kill()
        cluster.dispatcher.restart()
        cluster.add_worker()

    check(read_with(cluster, tmp_path / "calls", misfortune), tmp_path / "calls", cluster)
