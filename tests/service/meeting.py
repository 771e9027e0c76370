"""Where tasks of a service in this process meet: pipelines wait here for each other,
and say which task ran them.

Everything is a function at module level, so that the copies of a pipeline that the
tasks have share what is here.
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
"""How often at most a task's input goes back, of a hundred or so: each time it gets
half of what another has left.
"""

_places = itertools.count()
_copies = itertools.count(1)
_arrived: dict[int, Counter[int]] = {}
_changed = threading.Condition()


def _task() -> str:
    """The thread of a task has its name; "" anywhere else, as where one element is run
    for its spec.
    """
    name = threading.current_thread().name
    return name if name.startswith("zmqdata-task") else ""


def _one(element: tuple[Any, ...]) -> Any:
    return element[0] if len(element) == 1 else element


class _Copy:
    """Whose copy of a pipeline it stands in: that of task ``number``, or of nobody
    before it has travelled.

    Threads do not tell it: with a parallel map or a prefetch, others than the task's
    ask for elements.
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
    """The same elements; nobody gets on before so many tasks have come so far, so that
    each has a part of them.
    """
    return dataset.map(partial(_arrive, _Copy(), next(_places), tasks, each))


def by_task(service: Service, dataset: Dataset, mode: Any = "distributed_epoch") -> list[list[Any]]:
    """What each task that gave something gave, in its order."""
    found: dict[str, list[Any]] = {}
    for task, element in service.read(dataset.map(_tagged), mode):
        found.setdefault(task, []).append(element)
    return list(found.values())


def together(parts: list[list[Any]]) -> list[Any]:
    """The elements of all tasks, sorted."""
    return sorted(itertools.chain.from_iterable(parts))


def steps_back(values: Sequence[Any]) -> int:
    """How often a value is less than the one before it; about every second time where
    there is no order.
    """
    return sum(after < before for before, after in itertools.pairwise(values))
