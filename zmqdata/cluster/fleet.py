"""Decisions of a host: which workers to start and to stop, so that the wanted ones run.
It has no clock, and knows no engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count, islice

QUEUED, STARTING, RUNNING, DRAINING = "queued", "starting", "running", "draining"
"""States of a worker, as its engine reports them."""
HEALTHY_AFTER = 10.0
"""Seconds of running after which the end of a worker is no failed start."""
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 60.0
"""Seconds until the next start after a failed start, doubled with each failure in a
row. After ten of them the pause is the longest.
"""
_STOPPED_FIRST = (QUEUED, STARTING, RUNNING)


@dataclass
class _Member:
    """A worker that is wanted."""

    is_started: bool = False
    """True if the engine has accepted it since it ended last."""
    runs_since: float | None = None
    """Time since which it runs; None if it has not been seen running."""
    is_healthy: bool = False
    """True if it has run for long enough."""


@dataclass(frozen=True)
class FleetActions:
    """Actions of a host at one moment."""

    start: tuple[str, ...]
    """Names of the workers to start."""
    stop: tuple[str, ...]
    """Names of the workers to drain and end."""
    ended: tuple[str, ...]
    """Names of wanted workers that have ended by themselves."""


def pause_after(failures: int) -> float:
    """Return the seconds until the next attempt, after a failure and ``failures`` more
    in a row before it.

    Example:
        >>> [pause_after(failures) for failures in (0, 1, 2, 8)]
        [0.25, 0.5, 1.0, 60.0]
    """
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 30))


class Fleet:
    """Workers that a host is to keep running, by name.

    Args:
        prefix: beginning of all names.

    Example:
        >>> fleet = Fleet("local")
        >>> fleet.resize(2, {})
        >>> fleet.decide(0.0, {}).start
        ('local-0', 'local-1')
        >>> fleet.accepted("local-0")
        >>> fleet.refused(0.0)  # by the engine
        >>> fleet.decide(0.1, {"local-0": "running"}).start
        ()
        >>> fleet.decide(1.0, {"local-0": "running"}).start
        ('local-1',)
    """

    def __init__(self, prefix: str) -> None:
        self._names = (f"{prefix}-{number}" for number in count())
        self._members: dict[str, _Member] = {}
        self._stopping: set[str] = set()
        self._failures = 0
        self._next_start = 0.0

    @property
    def wanted(self) -> list[str]:
        """Names of the workers that are wanted."""
        return list(self._members)

    def grow(self, number: int) -> list[str]:
        """Want more workers, and return their names."""
        names = list(islice(self._names, number))
        self._members |= {name: _Member() for name in names}
        return names

    def shrink(self, names: Iterable[str]) -> None:
        """Want these workers no longer."""
        for name in names:
            self._members.pop(name, None)

    def resize(self, number: int, states: Mapping[str, str]) -> None:
        """Want a number of workers. Those that work least are given up first: queued
        ones, then starting ones, then the newest.

        Args:
            number: the number.
            states: states of the workers that the engine has, by name.
        """
        surplus = len(self._members) - number
        if surplus < 0:
            self.grow(-surplus)
        ranks = {state: rank for rank, state in enumerate(_STOPPED_FIRST)}
        newest = list(self._members)[::-1]
        newest.sort(key=lambda name: ranks.get(states.get(name, QUEUED), 0))
        self.shrink(newest[: max(0, surplus)])

    def decide(self, now: float, states: Mapping[str, str]) -> FleetActions:
        """Return what is to be done.

        Args:
            now: present time.
            states: states of the workers that the engine has, by name.
        """
        ended, is_early = [], False
        for name, member in self._members.items():
            if name in states:
                if states[name] == RUNNING and member.runs_since is None:
                    member.runs_since = now
                if not member.is_healthy and self._is_old(member, now):
                    member.is_healthy, self._failures = True, 0
            elif member.is_started:
                ended.append(name)
                is_early |= not (member.is_healthy or self._is_old(member, now))
                self._members[name] = _Member()
        if is_early:  # whatever their number: one cause may have ended all
            self.refused(now)
        is_due = now >= self._next_start
        start = [name for name, member in self._members.items() if not member.is_started]
        stop = states.keys() - self._members.keys() - self._stopping
        self._stopping = (self._stopping | stop) & states.keys()
        return FleetActions(tuple(start if is_due else ()), tuple(sorted(stop)), tuple(ended))

    @staticmethod
    def _is_old(member: _Member, now: float) -> bool:
        return member.runs_since is not None and now - member.runs_since >= HEALTHY_AFTER

    def accepted(self, name: str) -> None:
        """Record that the engine has accepted a worker."""
        if name in self._members:
            self._members[name].is_started = True

    def stay(self, names: Iterable[str]) -> None:
        """Record that workers were not told to end after all. They are told again."""
        self._stopping -= set(names)

    def refused(self, now: float) -> None:
        """Record that a start has failed. The next one waits."""
        self._next_start = now + pause_after(self._failures)
        self._failures += 1
