"""Who has how much, kept in the order of that, so that the least and the most busy are
found without looking at all.

Pure bookkeeping; what is counted, and who is chosen, is for
``core.dispatcher.state.state`` and ``core.dispatcher.placement``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Loads:
    """How much each of many has. Among equals, who has come to it first comes first.

    Example:
        >>> loads = Loads()
        >>> for name, load in (("a", 2), ("b", 0), ("c", 2)):
        ...     loads.put(name, load)
        >>> list(loads.lightest()), list(loads.heaviest())
        (['b', 'a', 'c'], ['a', 'c', 'b'])
    """

    _of: dict[str, int] = field(default_factory=dict)
    _by_load: dict[int, dict[str, None]] = field(default_factory=dict)

    def put(self, name: str, load: int) -> None:
        """Notes how much a name has from now on."""
        if self._of.get(name) != load:
            self.remove(name)
            self._of[name] = load
            self._by_load.setdefault(load, {})[name] = None

    def add(self, name: str, more: int) -> None:
        """Notes that a name has so much more than before, at first nothing; who has
        nothing left is forgotten.
        """
        load = self._of.get(name, 0) + more
        if load:
            self.put(name, load)
        else:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Forgets a name."""
        load = self._of.pop(name, None)
        if load is not None:
            alike = self._by_load[load]
            del alike[name]
            if not alike:
                del self._by_load[load]

    def most(self) -> int:
        """How much the one has that has most; 0 where nobody is."""
        return max(self._by_load, default=0)

    def lightest(self) -> Iterator[str]:
        """All names, the one with the least first."""
        for load in sorted(self._by_load):
            yield from self._by_load[load]

    def heaviest(self) -> Iterator[str]:
        """All names, the one with the most first."""
        for load in sorted(self._by_load, reverse=True):
            yield from self._by_load[load]


@dataclass
class Hosts:
    """Which worker hosts which of an iteration's tasks; the worker "" those that have
    no host.

    ``running``: how many tasks each has whose end is not known.
    """

    running: Loads = field(default_factory=Loads)
    _worker: dict[int, str] = field(default_factory=dict)
    _tasks: dict[str, dict[int, bool]] = field(default_factory=dict)

    def place(self, task: int, worker: str) -> None:
        """Notes where a task is from now on."""
        runs = self._leave(task)
        self._worker[task] = worker
        self._tasks.setdefault(worker, {})[task] = runs
        self._count(worker, int(runs))

    def end(self, task: int) -> None:
        """Notes that a task has come to its end."""
        worker = self._worker[task]
        self._count(worker, -int(self._tasks[worker][task]))
        self._tasks[worker][task] = False

    def remove(self, task: int) -> None:
        """Forgets a task."""
        self._leave(task)
        self._worker.pop(task, None)

    def has(self, worker: str) -> bool:
        """Whether a worker hosts any."""
        return worker in self._tasks

    def of(self, worker: str) -> list[int]:
        """The tasks that a worker hosts, in the order of their creation."""
        return sorted(self._tasks.get(worker, ()))

    def running_of(self, worker: str) -> list[int]:
        """Those of them whose end is not known."""
        return sorted(task for task, runs in self._tasks.get(worker, {}).items() if runs)

    def _leave(self, task: int) -> bool:
        """Takes a task from where it is; whether its end is not known."""
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
