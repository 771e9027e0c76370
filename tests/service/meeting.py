"""A meeting point for the tasks of a service in this process. Pipelines wait here for
each other, and report which task ran them.

Every function is at module level, so that all tasks' copies of a pipeline share the
state of this module.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from tests.service.conftest import Service
from zmqdata import Dataset

DEADLINE = 20.0
MOST_BACK = 8
"""Maximum number of steps back in the input of a task of about a hundred elements. With
each step back the task gets half of the remaining splits of another task.
"""

_places = itertools.count()
_copies = itertools.count(1)
_arrived: dict[int, Counter[int]] = {}
_changed = threading.Condition()


def _task() -> str:
    """Return the name of the task whose thread this is; "" in any other thread, such as
    the thread that finds the spec.
    """
    name = threading.current_thread().name
    return name if name.startswith("zmqdata-task") else ""


def _one(element: tuple[Any, ...]) -> Any:
    return element[0] if len(element) == 1 else element


class _Copy:
    """Identifies the copy of a pipeline: the copy of task ``number``, or 0 before the
    pipeline was sent.

    The thread does not identify the copy, because a parallel map or a prefetch pulls
    elements in other threads.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _copied, ()


def _copied() -> _Copy:
    return _Copy(next(_copies))


def _arrive(copy: _Copy, place: int, tasks: int, each: int, *element: Any) -> Any:
    task = copy.number
    if task:
        with _changed:
            arrived = _arrived.setdefault(place, Counter())
            arrived[task] += 1
            _changed.notify_all()
            if arrived[task] >= each:
                enough = _changed.wait_for(
                    lambda: sum(n >= each for n in arrived.values()) >= tasks, DEADLINE
                )
                if not enough:
                    raise TimeoutError(f"of {tasks} tasks, only these came: {dict(arrived)}")
    return _one(element)


def _tagged(*element: Any) -> Any:
    return _task(), _one(element)


def meeting(dataset: Dataset, each: int = 1, tasks: int = 2) -> Dataset:
    """Return the same elements. No task continues before so many tasks have come this
    far, so every task gets a share of them.
    """
    return dataset.map(partial(_arrive, _Copy(), next(_places), tasks, each))


def by_task(service: Service, dataset: Dataset, mode: Any = "distributed_epoch") -> list[list[Any]]:
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
