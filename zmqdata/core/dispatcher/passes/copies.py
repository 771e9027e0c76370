"""Passes that copies of a dataset make in other processes: whether a pass was over when
a copy was made.

A program that gives its dataset to new child processes in each epoch says nothing of
epochs. A child that was made before its siblings had ended belongs to their pass, even
if it comes late; a child that was made afterwards begins the next.

Times are not durable. ``Runs`` decides once for each copy, and that is durable.

Decision 0033; protocol 3.15.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field

PASSES_TIMED = 10_000
"""Number of passes whose end is remembered."""
COUNTS_KEPT = 64
"""Number of earlier counts that are remembered for a member."""


@dataclass(frozen=True)
class CopiesPass:
    """A pass of the copies of one member."""

    incarnation: int
    """Number of the incarnation."""
    run: str
    """Key of the run."""
    owner: str
    """The member of which these are copies."""
    repetition: int
    """The repetition that they read."""


@dataclass
class _Progress:
    readers: set[str] = field(default_factory=set)
    over: float = math.inf
    is_read: bool = False


class Copies:
    """Remembers when the passes of copies were over: when a copy had read the
    repetition to its end, or when all copies had left it.

    Example:
        >>> copies, epoch = Copies(), CopiesPass(1, "run", "process", 0)
        >>> copies.record_opening("client", [epoch])
        >>> ended = copies.record_leaving("client", at_end=True, now=7.0)
        >>> copies.over_since(epoch)
        7.0
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], deque[tuple[float, int]]] = {}
        self._passes: OrderedDict[CopiesPass, _Progress] = OrderedDict()
        self._read_by: dict[str, list[CopiesPass]] = {}

    def record_opening(self, client: str, passes: list[CopiesPass]) -> None:
        """Note that the client of a copy reads."""
        if not passes:
            return
        self._read_by[client] = passes
        for one in passes:
            progress = self._passes.setdefault(one, _Progress())
            progress.readers.add(client)
            if not progress.is_read:
                progress.over = math.inf
        while len(self._passes) > PASSES_TIMED:
            self._passes.popitem(last=False)

    def record_leaving(self, client: str, at_end: bool, now: float) -> list[CopiesPass]:
        """Note that a client has left, or was given up. Return the passes that are over
        now.

        Args:
            client: the client.
            at_end: True if it has read its repetition to the end.
            now: the time.
        """
        ended = []
        for one in self._read_by.pop(client, []):
            progress = self._passes.get(one)
            if progress is None:
                continue
            progress.readers.discard(client)
            if not progress.is_read and (at_end or not progress.readers):
                progress.over, progress.is_read = now, at_end
                ended.append(one)
        return ended

    def readers(self, one: CopiesPass) -> list[str]:
        """Return the clients that read a pass now, in the order of their names."""
        progress = self._passes.get(one)
        return [] if progress is None else sorted(progress.readers)

    def over_since(self, one: CopiesPass) -> float | None:
        """Return when a pass was over, infinity if it is not over, and None if this
        dispatcher does not know the pass.
        """
        progress = self._passes.get(one)
        return None if progress is None else progress.over

    def record_count(self, member: tuple[str, str, str], before: int, now: float) -> None:
        """Note that the number of passes that a member's iterators skip was raised.

        Args:
            member: name of the job, key of the run and name of the member.
            before: the number until now.
            now: the time.
        """
        if member not in self._counts and len(self._counts) >= PASSES_TIMED:
            del self._counts[next(iter(self._counts))]
        self._counts.setdefault(member, deque(maxlen=COUNTS_KEPT)).append((now, before))

    def count_at(self, member: tuple[str, str, str], made: float, present: int) -> int:
        """Return the number of passes that a member's iterators skipped at a time, as
        far as that is known; ``present`` otherwise.
        """
        later = (count for when, count in self._counts.get(member, ()) if when > made)
        return next(later, present)
