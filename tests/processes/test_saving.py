"""What is on the disk after real workers have saved a dataset, and some of them were killed while they did."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distributed_save
from zmqdata.files import LOCAL
from zmqdata.manifests import committed_chunks, is_done, read_manifest
from zmqdata.testing.cluster import await_condition, descendants

pytestmark = pytest.mark.realprocess

COUNT = 100_000
OPTIONS: dict[str, Any] = {
    "heartbeat_interval_ms": 100,
    "buffer_bytes": 1 << 14,
    "snapshot_max_chunk_size_bytes": 1 << 14,
}


def slowly(x: Any) -> tuple[Any, int]:
    if x % 50 == 0:
        threading.Event().wait(0.006)
    return x, os.getpid()


def chunks(path: Path) -> int:
    return len(committed_chunks(LOCAL, str(path)))


def kill_a_child(cluster: LocalCluster) -> None:
    """Kills the process of a worker that runs pipelines, so that nothing is said; its supervisor is killed before."""
    supervisor = cluster.workers[0].pid  # type: ignore[attr-defined]
    for pid in [supervisor, *descendants(supervisor)]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(120)
def test_a_killed_worker_and_a_new_one_leave_every_element_once(tmp_path: Path) -> None:
    """100,000 elements on three workers, one of which is killed as it writes and replaced by another, come once."""
    saved = tmp_path / "saved"
    with LocalCluster(3, work_dir=str(tmp_path / "work"), **OPTIONS) as cluster:
        distributed_save(Dataset.range(COUNT).map(slowly), str(saved), cluster.target)
        await_condition(lambda: chunks(saved) >= 8, 30.0, "the first chunks")
        kill_a_child(cluster)
        cluster.add_worker()
        assert not is_done(str(saved)), "the worker was killed too late to show anything"
        await_condition(lambda: is_done(str(saved)), 60.0, "the end of the save")
    found = [(int(x), int(pid)) for x, pid in Dataset.load(str(saved))]
    seen = Counter(x for x, _ in found)
    assert len(found) == COUNT
    assert all(seen[x] == 1 for x in range(COUNT))
    assert len({pid for _, pid in found}) == 4
    assert read_manifest(str(saved)).elements == COUNT
    assert sorted(path.name for path in saved.iterdir()) == ["DONE", "chunks", "manifest.json", "save.json"]
