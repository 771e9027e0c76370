"""The number of worker processes that feed all jobs, decided again and again.

Only the needs of jobs come in, and one number with its reason goes out. Who starts and
stops processes lives elsewhere, and so do minimum and maximum.

Decision 0054.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from zmqdata.measures.verdict import COMPUTE_BOUND, INPUT_BOUND
from zmqdata.peeking import counted

DOWN_AFTER = 60.0
"""Seconds for which a number that was wanted holds the decisions up."""
PAUSE_KEPT = 600.0
"""Seconds for which a paused job keeps its need."""
GROWTH = 4
"""Factor by which the number grows at most in one decision."""
MEASURED = (INPUT_BOUND, COMPUTE_BOUND)
"""Words with which the need of a job counts. With any other, more or fewer workers
would not end its waits, or too little is known.
"""


@dataclass(frozen=True)
class JobNeed:
    """The need of a job at a moment, counted in worker processes."""

    needed: int
    """Processes that would feed its loops; 0 if unknown."""
    word: str
    """Its verdict, as ``INPUT-BOUND``."""
    readers: int
    """Number of training loops that read it now."""
    paused: bool
    """True if its loops take nothing although elements have arrived, or if its run is
    between two passes.
    """
    most: int | None
    """Processes that its input could occupy: its tasks, or the splits left. None if
    there is no such limit.
    """
    job: str = ""
    """Name by which it is found again at the next decision; empty for its place in the
    sequence.
    """


@dataclass(frozen=True)
class ScalingDecision:
    """A number of worker processes."""

    workers: int
    """The number. A host with k processes in each worker starts ceil(workers / k)."""
    reason: str
    """The evidence for it, in a sentence."""


@dataclass
class _KnownJob:
    """A job, from the first decision that it was part of."""

    need: int = 0
    """Its last known need; 0 if none was ever known."""
    paused_since: float | None = None
    """Time since which it pauses; None if it does not."""


class Scaling:
    """Decides how many worker processes there should be, from 0 and without a maximum.

    The number rises at once, fourfold at most. It falls to the largest number that was
    wanted in the last ``down_after`` seconds. So a short lull stops no worker.

    Args:
        down_after: seconds for which a number that was wanted holds the decisions up.

    Example:
        >>> scaling = Scaling()
        >>> needs = [JobNeed(6, "INPUT-BOUND", 1, False, None)]
        >>> [scaling.decide(needs, 0, float(now)).workers for now in range(3)]
        [1, 4, 6]
        >>> [scaling.decide([], 6, now).workers for now in (3.0, 61.9, 62.0)]
        [6, 6, 0]
    """

    def __init__(self, down_after: float = DOWN_AFTER) -> None:
        self._down_after = down_after
        self._workers = 0
        self._known: dict[str, _KnownJob] = {}
        self._wanted: deque[tuple[float, int]] = deque()  # falling numbers

    def decide(self, jobs: Sequence[JobNeed], present: int, now: float) -> ScalingDecision:
        """Return the number of worker processes from now on.

        Args:
            jobs: the jobs that are read, and those whose run is between two passes.
            present: number of worker processes that are there and do not drain.
            now: present time.
        """
        named = {one.job or str(at): one for at, one in enumerate(jobs)}
        self._known = {name: self._known.get(name, _KnownJob()) for name in named}
        wanted, reason = self._sum(named, present, now)
        while self._wanted and self._wanted[-1][1] <= wanted:
            self._wanted.pop()
        self._wanted.append((now, wanted))
        while now - self._wanted[0][0] >= self._down_after:
            self._wanted.popleft()
        last, highest = self._workers, self._wanted[0][1]
        if wanted > last:
            self._workers = min(wanted, max(1, GROWTH * last, present))
            if self._workers < wanted:
                reason += f"; the number grows at most {GROWTH} times at once"
        else:
            self._workers = min(last, highest)
            if self._workers > wanted:
                reason += f"; {highest} were wanted in the last {self._down_after:.0f} s"
        return ScalingDecision(self._workers, f"{reason}.")

    def _sum(self, jobs: dict[str, JobNeed], present: int, now: float) -> tuple[int, str]:
        """Return the number that all jobs together want now, and why."""
        whole, room, kept, unknown, count = 0, 0.0, 0, 0, 0
        for name, job in jobs.items():
            need = self._need(name, job, now)
            most = math.inf if job.most is None else job.most
            if need is None:
                unknown, room = unknown + 1, room + most
            elif need:
                whole, count = whole + int(min(need, most)), count + 1
                kept += job.paused or not _is_measured(job)
        if unknown:
            # Nothing says that one of those that are there could be spared.
            held = max(0, max(1, self._workers, present) - whole)
            have = "job has" if unknown == 1 else "jobs have"
            reason = f"{unknown} {have} no known need yet, so no worker is taken away"
            return whole + int(min(held, room)), reason
        if not count:
            return 0, "No training loop reads a job"
        need_them = "job needs" if count == 1 else "jobs need"
        reason = f"{count} {need_them} {counted(whole, 'worker')}"
        if kept:
            reason += f"{f', {kept} of the jobs' if kept < count else ''} as last measured"
        return whole, reason

    def _need(self, name: str, job: JobNeed, now: float) -> int | None:
        """Return what a job needs, whatever its input could occupy; None if it is read
        and its need was never known.
        """
        known = self._known[name]
        if job.paused:
            known.paused_since = now if known.paused_since is None else known.paused_since
            if now - known.paused_since >= PAUSE_KEPT or not (known.need or job.readers):
                return 0
            return known.need or None
        known.paused_since = None
        if not job.readers:
            known.need = 0
            return 0
        if _is_measured(job):
            known.need = job.needed
        return known.need or None


def _is_measured(job: JobNeed) -> bool:
    return job.word in MEASURED and job.needed > 0
