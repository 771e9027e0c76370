"""Facts about splits on real sockets and in threads, with concurrent tasks on each
worker. ``simulated`` states how sources, operations and repetitions are split.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Service, wait_until
from tests.service.meeting import MOST_BACK, by_task, meeting, steps_back, together
from zmqdata import Dataset, TextLineDataset

COUNT = 200


def test_what_has_indices_is_split_by_them(service: Service) -> None:
    """Each element goes to one worker, and every worker gets some."""
    parts = by_task(service, meeting(Dataset.range(100)))
    assert len(parts) == 2
    assert together(parts) == list(range(100))


def test_workers_share_one_order(service: Service) -> None:
    """A task's part of a sequence in a random order is in that order, except for splits
    that another task has returned.
    """
    order = list(map(int, Dataset.from_source(range(100), shuffle=True, seed=5)))
    for part in by_task(service, meeting(Dataset.from_source(range(100), shuffle=True, seed=5))):
        assert steps_back([order.index(element) for element in part]) <= MOST_BACK


def test_files_are_splits(service: Service, tmp_path: Path) -> None:
    """A file goes whole and in order to one worker, and every worker gets some."""
    for number in range(7):
        (tmp_path / f"{number}").write_text("".join(f"{number}:{line}\n" for line in range(20)))
    files = meeting(Dataset.list_files(f"{tmp_path}/*")).flat_map(TextLineDataset)
    parts = by_task(service, files)
    assert len(parts) == 2
    for number in range(7):
        lines = [f"{number}:{line}" for line in range(20)]
        assert (
            sum([one for one in part if one.startswith(f"{number}:")] == lines for part in parts)
            == 1
        )


THREADED: dict[str, Callable[[Dataset], Dataset]] = {
    "interleave": lambda ds: ds.interleave(
        lambda x: Dataset.from_tensors(x), cycle_length=3, num_parallel_calls=2
    ),
    "map": lambda ds: ds.map(lambda x: x, num_parallel_calls=4),
    "map in any order": lambda ds: ds.map(lambda x: x, num_parallel_calls=4, deterministic=False),
    "prefetch": lambda ds: ds.prefetch(10),
}


@pytest.mark.parametrize("name", THREADED)
def test_splits_go_through_threads(service: Service, name: str) -> None:
    """Every worker's part goes through its own copy of an operation that has threads;
    together the parts are complete.
    """
    parts = by_task(service, THREADED[name](meeting(Dataset.range(COUNT), each=3)))
    assert len(parts) == 2
    assert together(parts) == list(range(COUNT))


def test_repetitions_are_split_anew(service: Service) -> None:
    """Each repetition is split anew among the tasks, which together have all its
    elements.
    """
    parts = by_task(service, meeting(Dataset.range(60)).repeat(3))
    assert together(parts) == sorted([*range(60)] * 3)


def test_no_files_are_left_behind(service: Service, tmp_path: Path) -> None:
    """A task that ends deletes the files of its cache."""
    dataset = meeting(Dataset.range(60)).cache(str(tmp_path / "cache")).repeat(2)
    elements: Any = iter(service.read(dataset))
    next(elements)
    assert any((tmp_path / "cache").glob("task-*"))
    assert len(list(elements)) == 2 * 60 - 1
    wait_until(lambda: not any((tmp_path / "cache").glob("task-*")), "no folder of a task is left")
