"""What is seen of a long task whose worker is killed late: it goes on near where it
was, each element comes once.
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

COUNT = 5_000
PACE = 0.001
"""Seconds that each element takes, so that the whole is about five seconds of work."""
FEW = 2_500
"""More than what is made in the seconds since the last state, and what buffers held."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A dispatcher with a journal and one worker, which keeps little ahead of its
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
    """Reads everything, with a misfortune when four fifths were read."""
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
    """Its task is made again from its last state, not from its beginning, and nothing
    is lost or repeated.
    """

    def misfortune() -> None:
        cluster.add_worker()
        cluster.workers[0].kill()

    check(read_with(cluster, tmp_path / "calls", misfortune), tmp_path / "calls", cluster)


@pytest.mark.full
def test_states_outlive_the_dispatcher(cluster: LocalCluster, tmp_path: Path) -> None:
    """So it is when the dispatcher dies together with the worker: states are in its
    journal.
    """

    def misfortune() -> None:
        cluster.workers[0].kill()
        cluster.dispatcher.kill()
        cluster.dispatcher.restart()
        cluster.add_worker()

    check(read_with(cluster, tmp_path / "calls", misfortune), tmp_path / "calls", cluster)
