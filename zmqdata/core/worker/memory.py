"""The memory of a worker's process, and when the process is recycled because of it. It
has no clock.

A pipeline that leaks fills any memory. At nine tenths of its limit the process
therefore stops between two elements and hands its tasks over, and another process
replaces it. At the limit itself the system refuses memory, and the process dies within
an element.

A pipeline that needs more than nine tenths at once would have each process recycled
right after its start. After a few such processes, each further one makes the next wait
longer. Meanwhile a process that leaks fast may reach the limit and die.

Protocol 4.10.
"""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata.core.worker import events as e
from zmqdata.messages import MemoryUse
from zmqdata.printable import shown_bytes

RECYCLED_AT = 0.9
"""Share of the limit at which a process is recycled."""
READINGS = 2
"""Number of successive readings that must reach this share. A single element may need
much memory for a moment.
"""
EARLY_SECONDS = 10.0
"""A process that reaches this share within so many seconds of its start is over
early.
"""
EARLY_ALLOWED = 3
"""Number of processes in a row that may be over early before the next one waits."""
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 600.0


def recycle_pause(early: int) -> float:
    """Return the seconds for which a process must live before it is recycled.

    Args:
        early: number of processes in a row, before it, that were over early.

    Example:
        >>> [recycle_pause(early) for early in (0, 2, 3, 4, 50)]
        [0.0, 0.0, 10.0, 20.0, 600.0]
    """
    if early < EARLY_ALLOWED:
        return 0.0
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(early - EARLY_ALLOWED, 30))


@dataclass(frozen=True)
class MemoryLimit:
    """The limit of a process, and how its predecessors fared with it."""

    size: int = 0
    """Number of bytes; 0 means no limit."""
    recycles: int = 0
    """Number of processes that were recycled in this place before this one."""
    early: int = 0
    """Number of them in a row that were over early."""


NO_LIMIT = MemoryLimit()


class MemoryWatch:
    """Compares the memory of a process with its limit.

    Args:
        limit: limit of the process.

    Attributes:
        use: the last reading.

    Example:
        >>> watch = MemoryWatch(MemoryLimit(1000))
        >>> for now, counted in ((0.0, 500), (60.0, 900), (60.25, 910)):
        ...     watch.record(now, e.MemoryRead(rss=400, counted=counted))
        >>> watch.may_recycle(60.25), watch.is_early
        (True, False)
    """

    def __init__(self, limit: MemoryLimit = NO_LIMIT) -> None:
        self.use = MemoryUse(limit=limit.size, recycles=limit.recycles)
        self._early = limit.early
        self._began: float | None = None
        self._over_since: float | None = None
        self._readings = 0
        self._warned = self._spared = False

    def record(self, now: float, reading: e.MemoryRead) -> None:
        """Record a reading."""
        limit = self.use.limit
        self.use = MemoryUse(reading.rss, reading.counted, limit, self.use.recycles)
        if self._began is None:
            self._began = now
        if not limit or reading.counted < RECYCLED_AT * limit:
            self._readings, self._over_since, self._spared = 0, None, False
            return
        self._readings += 1
        if self._over_since is None:
            self._over_since = now

    def spare(self) -> str:
        """Begin to count anew, because opened datasets are dropped. Return the notice;
        "" if that has not helped before.
        """
        if self._spared:
            return ""
        self._readings, self._over_since, self._spared = 0, None, True
        return (
            f"the process uses {shown_bytes(self.use.counted)} of its limit of "
            f"{shown_bytes(self.use.limit)}: the opened datasets that it keeps for the next passes "
            "of loaders with persistent_workers=True are dropped, and opened again then"
        )

    @property
    def wants_another(self) -> bool:
        """True if another reading must soon confirm the last one."""
        return 0 < self._readings < READINGS

    @property
    def is_over(self) -> bool:
        """True if the process is to be recycled."""
        return self._readings >= READINGS

    @property
    def is_early(self) -> bool:
        """True if the process was over right after its start."""
        return (
            self._over_since is not None
            and self._began is not None
            and self._over_since - self._began < EARLY_SECONDS
        )

    def may_recycle(self, now: float) -> bool:
        """Return True if the process is to be recycled, and has lived long enough."""
        return self.is_over and now - (self._began or 0.0) >= recycle_pause(self._early)

    def notice(self, now: float, copies: int) -> str:
        """Return the warning of a process that is over its limit; "" if it has warned
        before and is not recycled now.

        Args:
            now: the time.
            copies: number of hosted copies of the input (mode OFF), which must end
                before the process is recycled.
        """
        if not self.is_over or (self._warned and not (self.may_recycle(now) and not copies)):
            return ""
        self._warned = True
        use = self.use
        text = (
            f"This process has {shown_bytes(use.counted)} of memory, at least "
            f"{RECYCLED_AT:.0%} of its limit of {shown_bytes(use.limit)} (`memory_limit`)."
        )
        if self._early and self.is_early:
            text += (
                f" It is process {self._early + 1} in a row to need that within "
                f"{EARLY_SECONDS:.0f} s of its start: the limit is too small for its "
                "pipelines, or they leak fast. Raise it, or mend them."
            )
        if copies:
            return f"{text} It is recycled when its {copies} copies of the input have ended."
        if not self.may_recycle(now):
            wait = recycle_pause(self._early) - now + (self._began or 0.0)
            return f"{text} It goes on, and is recycled in {wait:.0f} s at the earliest."
        return (
            f"{text} It stops between elements and hands its tasks over, and another "
            "process replaces it."
        )
