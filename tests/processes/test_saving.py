"""Tests of the files on disk after real workers have saved a dataset, some of them
killed meanwhile.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distributed_save
from zmqdata.errors import DataLossError
from zmqdata.storage.files import LOCAL
from zmqdata.storage.manifests import committed_chunks, is_done, read_manifest
from zmqdata.testing.cluster import await_condition, descendants

pytestmark = pytest.mark.realprocess

COUNT = 40_000
OPTIONS: dict[str, Any] = {
    "heartbeat_interval_ms": 100,
    "buffer_bytes": 1 << 14,
    "snapshot_max_chunk_size_bytes": 1 << 14,
}


def slow_until(path: Path) -> Callable[[Any], tuple[Any, int]]:
    """Return a function that is slow until a file exists, for over half a minute of
    work of two or three workers.
    """

    def slowly(x: Any) -> tuple[Any, int]:
        if x % 20 == 0 and not path.exists():
            threading.Event().wait(0.05)
        return x, os.getpid()

    return slowly


def streams(path: Path) -> set[int]:
    return {chunk.stream for chunk in committed_chunks(LOCAL, str(path))}


def has_chunks(path: Path, count: int) -> bool:
    return len(committed_chunks(LOCAL, str(path))) >= count


def kill_a_worker(cluster: LocalCluster) -> list[int]:
    """Kill a supervisor and then its child, so that neither unregisters; return the
    processes.
    """
    supervisor = cluster.workers[0].pid  # type: ignore[attr-defined]
    killed = [supervisor, *descendants(supervisor)]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    return killed


@pytest.mark.full
@pytest.mark.timeout(120)
def test_a_killed_worker_and_a_new_one_leave_every_element_once(tmp_path: Path) -> None:
    """Each of 40,000 elements is saved once if a worker of three is killed as it
    writes, and replaced.
    """
    saved, survived = tmp_path / "saved", tmp_path / "survived"
    with LocalCluster(3, work_dir=str(tmp_path / "work"), **OPTIONS) as cluster:
        distributed_save(Dataset.range(COUNT).map(slow_until(survived)), str(saved), cluster.target)
        await_condition(lambda: len(streams(saved)) == 3, 30.0, "a chunk of each worker")
        killed = kill_a_worker(cluster)
        cluster.add_worker()
        assert not is_done(str(saved)), "the worker was killed too late to show anything"
        survived.touch()
        await_condition(lambda: is_done(str(saved)), 60.0, "the end of the save")
    found = [(int(x), int(pid)) for x, pid in Dataset.load(str(saved))]
    seen = Counter(x for x, _ in found)
    assert len(found) == COUNT
    assert all(seen[x] == 1 for x in range(COUNT))
    assert {pid for _, pid in found} & set(killed), (
        "what counted of the killed worker was made again"
    )
    assert read_manifest(str(saved)).elements == COUNT
    assert sorted(path.name for path in saved.iterdir()) == [
        "DONE",
        "chunks",
        "manifest.json",
        "save.json",
    ]


@pytest.mark.full
@pytest.mark.timeout(120)
def test_a_killed_dispatcher_goes_on_with_the_save(tmp_path: Path) -> None:
    """A dispatcher that is killed twice while two workers save finishes the save, each
    element once.
    """
    saved, survived = tmp_path / "saved", tmp_path / "survived"
    with LocalCluster(2, work_dir=str(tmp_path / "work"), **OPTIONS) as cluster:
        distributed_save(Dataset.range(COUNT).map(slow_until(survived)), str(saved), cluster.target)
        for chunks in (4, 12):
            await_condition(partial(has_chunks, saved, chunks), 30.0, "chunks that count")
            cluster.dispatcher.kill()
            assert not is_done(str(saved)), "the dispatcher was killed too late to show anything"
            cluster.dispatcher.restart()
        survived.touch()
        await_condition(lambda: is_done(str(saved)), 60.0, "the end of the save")
    seen = Counter(int(x) for x, _ in Dataset.load(str(saved)))
    assert seen == Counter(range(COUNT))


@pytest.mark.full
@pytest.mark.timeout(120)
def test_a_folder_that_was_removed_does_not_keep_a_dispatcher_from_beginning_anew(
    tmp_path: Path,
) -> None:
    """A running save fails if its folder is gone when the dispatcher restarts; another
    running save ends.
    """
    saved, removed, survived = tmp_path / "saved", tmp_path / "removed", tmp_path / "survived"
    with LocalCluster(2, work_dir=str(tmp_path / "work"), **OPTIONS) as cluster:
        for path in (saved, removed):
            distributed_save(
                Dataset.range(COUNT).map(slow_until(survived)), str(path), cluster.target
            )
            await_condition(partial(has_chunks, path, 1), 30.0, "a chunk that counts")
        cluster.dispatcher.kill()
        removed.rename(tmp_path / "away")
        cluster.dispatcher.restart()
        with pytest.raises(
            DataLossError,
            match=r"Found conflict: there is .* in .*/removed.* Save again to another",
        ):
            list(Dataset.load(str(removed), wait=True))
        survived.touch()
        await_condition(lambda: is_done(str(saved)), 60.0, "the end of the save")
    assert Counter(int(x) for x, _ in Dataset.load(str(saved))) == Counter(range(COUNT))
