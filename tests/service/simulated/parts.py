"""The tasks of a simulated service, and the elements that each task makes. All tasks of
a job start at the same moment and are equally fast, so each gets a share.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

from zmqdata import Dataset
from zmqdata.testing import SimulatedService

MOST_BACK = 8
"""Maximum number of steps back in the input of a task of about a hundred elements. With
each step back the task gets half of the remaining splits of another task.
"""


def _tagged(*element: Any) -> Any:
    """Return the element with the name of its task's thread."""
    return threading.current_thread().name, element[0] if len(element) == 1 else element


def by_task(
    service: SimulatedService, dataset: Dataset, mode: Any = "distributed_epoch"
) -> list[list[Any]]:
    """Return the elements of each task that made any, in the order of that task."""
    found: dict[str, list[Any]] = {}
    for task, element in service.read(dataset.map(_tagged), mode):
        found.setdefault(task, []).append(element)
    return list(found.values())


def together(parts: list[list[Any]]) -> list[Any]:
    """Return the elements of all tasks, sorted."""
    return sorted(itertools.chain.from_iterable(parts))


def steps_back(values: Sequence[Any]) -> int:
    """Count the values that are less than their predecessor; in a random order about
    every second value is.
    """
    return sum(after < before for before, after in itertools.pairwise(values))
