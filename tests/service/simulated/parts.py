"""The tasks of a simulated service, and the elements that each task makes. All tasks of
a job start at the same moment and are equally fast, so each gets a share.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from tests.kit.service import WatchedService
from zmqdata import Dataset

MOST_BACK = 8
"""Maximum number of steps back in the input of a task of about a hundred elements. With
each step back the task gets half of the remaining splits of another task.
"""


def tagged(dataset: Dataset) -> Dataset:
    """Return the elements of the dataset, each with the name of its task's thread."""
    return dataset.map(_tagged)


def _tagged(*element: Any) -> Any:
    return threading.current_thread().name, element[0] if len(element) == 1 else element


def grouped(elements: Iterable[Any], tasks: int = 2, each: int = 1) -> list[list[Any]]:
    """Return the tagged elements of each task, in the order of that task.

    Raises:
        AssertionError: if not exactly ``tasks`` tasks made elements, or a task made
            fewer than ``each``. A test of a job that is shared proves nothing then.
    """
    found: dict[str, list[Any]] = {}
    for task, element in elements:
        found.setdefault(task, []).append(element)
    counts = {task: len(part) for task, part in found.items()}
    assert len(counts) == tasks, f"expected elements of {tasks} tasks, got {counts}"
    assert min(counts.values()) >= each, f"expected {each} elements of each task, got {counts}"
    return list(found.values())


def by_task(
    service: WatchedService, dataset: Dataset, tasks: int = 2, each: int = 1
) -> list[list[Any]]:
    """Return the elements of each task, in the order of that task. ``grouped`` checks
    how many tasks made elements, and how many.
    """
    return grouped(service.read(tagged(dataset)), tasks, each)


def moved_tasks(service: WatchedService) -> list[dict[str, Any]]:
    """Return the status of each unfinished task that continues on another worker."""
    tasks = service.status()["tasks"]
    return [task for task in tasks if task["attempt"] > 1 and task["total"] is None]


def together(parts: list[list[Any]]) -> list[Any]:
    """Return the elements of all tasks, sorted."""
    return sorted(itertools.chain.from_iterable(parts))


def steps_back(values: Sequence[Any]) -> int:
    """Count the values that are less than their predecessor; in a random order about
    every second value is.
    """
    return sum(after < before for before, after in itertools.pairwise(values))
