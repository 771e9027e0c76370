"""Tests of pipelines that are split among real processes: each process has a part, and
files of its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, TextLineDataset, distribute
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess

DEADLINE = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two workers for all of these tests; a killed process is replaced."""
    with LocalCluster(2, heartbeat_interval_ms=100, buffer_bytes=1 << 16) as made:
        yield made


def meeting(folder: Path, processes: int = 2) -> Callable[[Any], Any]:
    """Return a function that returns its input once ``processes`` processes have called
    it.
    """
    place = folder / "meeting"
    place.mkdir()

    def arrive(element: Any) -> Any:
        (place / str(os.getpid())).touch()
        await_condition(
            lambda: len(list(place.iterdir())) >= processes,
            DEADLINE,
            f"all of {processes} processes",
        )
        return element

    return arrive


def by_process(cluster: LocalCluster, dataset: Dataset) -> list[list[Any]]:
    """Return the elements of each process, in its order."""
    found: dict[int, list[Any]] = {}
    read = distribute("distributed_epoch", cluster.target)
    for process, element in dataset.map(lambda *parts: (os.getpid(), parts[-1])).apply(read):
        found.setdefault(int(process), []).append(element)
    return list(found.values())


def test_files_go_to_processes(cluster: LocalCluster, tmp_path: Path) -> None:
    """A single process reads each whole file, and both processes read some files."""
    (tmp_path / "files").mkdir()
    for number in range(8):
        (tmp_path / "files" / str(number)).write_text(
            "".join(f"{number}:{line}\n" for line in range(50))
        )
    names = Dataset.list_files(f"{tmp_path}/files/*").map(meeting(tmp_path))
    first, second = by_process(cluster, names.flat_map(TextLineDataset))
    parts = [{text.partition(":")[0] for text in part} for part in (first, second)]
    assert not parts[0] & parts[1]
    assert Counter([*first, *second]) == Counter(
        f"{number}:{line}" for number in range(8) for line in range(50)
    )


def test_a_generator_runs_in_one_process(cluster: LocalCluster) -> None:
    """A single process runs a generator to its end and in order."""
    assert by_process(cluster, Dataset.from_generator(lambda: iter(range(500)))) == [
        list(range(500))
    ]


def test_processes_cache_their_parts_in_files(cluster: LocalCluster, tmp_path: Path) -> None:
    """Two processes of one machine cache under the same file name without conflict."""
    made = Dataset.range(200).map(meeting(tmp_path)).map(lambda x: (int(x), time.monotonic_ns()))
    dataset = made.cache(str(tmp_path / "cache")).map(lambda *pair: pair).repeat(3)
    found = Counter(
        (int(x), int(when))
        for part in by_process(cluster, dataset.map(lambda x, when: [x, when]))
        for x, when in part
    )
    assert sorted(x for x, _ in found) == list(range(200))
    assert set(found.values()) == {3}


def test_files_of_a_killed_process_go(cluster: LocalCluster, tmp_path: Path) -> None:
    """The files of a killed process lose no element; the next process that caches there
    removes them, and leaves none.
    """
    cache = tmp_path / "cache"
    vectors = (
        Dataset.range(2_000).map(meeting(tmp_path)).map(lambda x: x).cache(str(cache)).repeat(4)
    )
    read = distribute("distributed_epoch", cluster.target, max_outstanding_requests=64)
    elements = iter(vectors.map(lambda x: (x, os.getpid())).apply(read))
    found = [next(elements) for _ in range(500)]
    os.kill(int(found[-1][1]), signal.SIGKILL)
    found += elements
    assert Counter(int(x) for x, _ in found) == dict.fromkeys(range(2_000), 4)
    again = Dataset.range(10).cache(str(cache)).repeat(2).apply(read)
    assert Counter(map(int, again)) == dict.fromkeys(range(10), 2)
    await_condition(lambda: not [*cache.glob("task-*")], what="the end of all folders of tasks")


def picky(x: Any) -> Any:
    if x == 7:
        raise ValueError("seven is bad")
    return x


def test_what_is_left_out_is_in_the_log_of_the_worker(cluster: LocalCluster) -> None:
    """A line of the worker's log names element and operation, with the traceback."""
    read = distribute("distributed_epoch", cluster.target)
    assert len(list(Dataset.range(20).map(picky, on_error="skip").apply(read))) == 19

    def logs() -> str:
        return "".join(worker.log for worker in cluster.workers)

    await_condition(lambda: "ValueError: seven is bad" in logs(), what="the warning")
    assert "map(picky) at test_splitting.py:" in logs()
    assert "in picky" in logs()
