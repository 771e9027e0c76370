"""The tasks of a simulated service, and the part of each: all tasks of a job begin at the
same moment and are as fast, so each has a part.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

from zmqdata import Dataset
from zmqdata.testing import SimulatedService

MOST_BACK = 8
"""The most steps back in the input of a task, of a hundred or so elements: with each, it
gets half of what another task has left.
"""


def _tagged(*element: Any) -> Any:
    """The element with the name of the thread of its task."""
    return threading.current_thread().name, element[0] if len(element) == 1 else element


def by_task(
    service: SimulatedService, dataset: Dataset, mode: Any = "distributed_epoch"
) -> list[list[Any]]:
    """Return what each task gave, in its order; nothing for a task that gave nothing."""
    found: dict[str, list[Any]] = {}
    for task, element in service.read(dataset.map(_tagged), mode):
        found.setdefault(task, []).append(element)
    return list(found.values())


def together(parts: list[list[Any]]) -> list[Any]:
    """Return the elements of all tasks, sorted."""
    return sorted(itertools.chain.from_iterable(parts))


def steps_back(values: Sequence[Any]) -> int:
    """Count the values that are less than their predecessor: about every second value
    where there is no order.
    """
    return sum(after < before for before, after in itertools.pairwise(values))
