"""Loads of workers, kept in order, so that the least and the most busy are found
without a scan.

Pure bookkeeping. ``core.dispatcher.state.state`` counts, and
``core.dispatcher.tasks.placement`` chooses.

See the page on the design.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Loads:
    """The load of each name. Among equal loads, the name that reached it first comes
    first.

    Example:
        >>> loads = Loads()
        >>> for name, load in (("a", 2), ("b", 0), ("c", 2)):
        ...     loads.put(name, load)
        >>> list(loads.lightest()), list(loads.heaviest())
        (['b', 'a', 'c'], ['a', 'c', 'b'])
    """

    _of: dict[str, int] = field(default_factory=dict)
    """Load by name."""
    _by_load: dict[int, dict[str, None]] = field(default_factory=dict)
    """Names by load, in the order in which they reached it."""

    def put(self, name: str, load: int) -> None:
        """Set the load of a name."""
        if self._of.get(name) != load:
            self.remove(name)
            self._of[name] = load
            self._by_load.setdefault(load, {})[name] = None

    def add(self, name: str, more: int) -> None:
        """Add to the load of a name, which is zero at first. A name without load is
        forgotten.
        """
        load = self._of.get(name, 0) + more
        if load:
            self.put(name, load)
        else:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Forget a name."""
        load = self._of.pop(name, None)
        if load is not None:
            alike = self._by_load[load]
            del alike[name]
            if not alike:
                del self._by_load[load]

    def most(self) -> int:
        """Return the highest load; 0 if no name has any."""
        return max(self._by_load, default=0)

    def lightest(self) -> Iterator[str]:
        """Yield all names, the least loaded first."""
        for load in sorted(self._by_load):
            yield from self._by_load[load]

    def heaviest(self) -> Iterator[str]:
        """Yield all names, the most loaded first."""
        for load in sorted(self._by_load, reverse=True):
            yield from self._by_load[load]


@dataclass
class Hosts:
    """The worker that hosts each task of an iteration; the worker "" has the tasks
    without a host.
    """

    running: Loads = field(default_factory=Loads)
    """Number of tasks with an unknown total, by worker."""
    _worker: dict[int, str] = field(default_factory=dict)
    """Worker by task."""
    _tasks: dict[str, dict[int, bool]] = field(default_factory=dict)
    """Tasks by worker; True if the total of the task is unknown."""

    def place(self, task: int, worker: str) -> None:
        """Set the worker that hosts a task."""
        runs = self._leave(task)
        self._worker[task] = worker
        self._tasks.setdefault(worker, {})[task] = runs
        self._count(worker, int(runs))

    def end(self, task: int) -> None:
        """Note that a task has reached its end."""
        worker = self._worker[task]
        self._count(worker, -int(self._tasks[worker][task]))
        self._tasks[worker][task] = False

    def remove(self, task: int) -> None:
        """Forget a task."""
        self._leave(task)
        self._worker.pop(task, None)

    def has(self, worker: str) -> bool:
        """Return True if a worker hosts any task."""
        return worker in self._tasks

    @property
    def count(self) -> int:
        """Number of workers that host any task."""
        return len(self._tasks) - ("" in self._tasks)

    def of(self, worker: str) -> list[int]:
        """Return the tasks that a worker hosts, in the order of their creation."""
        return sorted(self._tasks.get(worker, ()))

    def running_of(self, worker: str) -> list[int]:
        """Return the tasks of a worker whose total is unknown."""
        return sorted(task for task, runs in self._tasks.get(worker, {}).items() if runs)

    def _leave(self, task: int) -> bool:
        """Take a task from its worker. Return True if its total is unknown."""
        worker = self._worker.get(task)
        if worker is None:
            return True
        runs = self._tasks[worker].pop(task)
        self._count(worker, -int(runs))
        if not self._tasks[worker]:
            del self._tasks[worker]
        return runs

    def _count(self, worker: str, more: int) -> None:
        if worker and more:
            self.running.add(worker, more)
