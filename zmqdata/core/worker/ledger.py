"""The worker's copies of ledgers: their length, and the open requests for more entries.

Pure bookkeeping of a single source of a task. ``core.worker.splits`` exchanges the
messages with the dispatcher.

Decision 0012; protocol 5.1, 5.2 and 5.7 to 5.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from zmqdata import messages as m
from zmqdata.splits import Split


@dataclass
class SplitFeed:
    """The copy of a source's ledger that a runner has."""

    have: int
    """Number of entries."""
    cut: int = 0
    """Number of cuts, that is, how often the end of the ledger was returned."""
    kept: int = 0
    """Number of entries that remained after the last cut."""
    stop: int = 0
    """End of the last entry that remained after the last cut."""
    ask: m.RequestSplits | None = None
    """The open request for more entries; None if there is none."""
    asked: float = 0.0
    """Time at which ``ask`` was last sent."""
    base: int = 0
    """Number of the first entry in ``entries``."""
    entries: list[Split] = field(default_factory=list)
    """The entries from number ``base`` on."""
    reached: tuple[int, int] = (0, 0)
    """Position of the source: the number of entries that are completely started, and
    the number of started splits in the next entry.
    """

    @classmethod
    def of(cls, base: int, entries: Sequence[Split]) -> SplitFeed:
        """Return the copy that comes with a task.

        None of its entries can be returned, because an earlier host may have started
        them. Entries before ``base`` are not needed.
        """
        length = base + len(entries)
        return cls(length, base=base, entries=list(entries), reached=(length, 0))

    def started(self, first: int) -> tuple[Split, ...]:
        """Return the started entries from number ``first`` on. The last of them ends
        where it was started.

        >>> feed = SplitFeed.of(5, [Split(0, 10, 20)])
        >>> feed.entries.append(Split(0, 40, 50))
        >>> feed.reached = (6, 3)
        >>> feed.started(6)
        (Split(repetition=0, start=40, stop=43, names=(), step=1),)
        """
        at, offset = self.reached
        begun = self.entries[max(0, first - self.base) : at - self.base]
        if offset and at - self.base < len(self.entries):
            begun.append(self.entries[at - self.base].part(0, offset))
        return tuple(begun)

    def want(self, ask: m.RequestSplits, now: float) -> bool:
        """Record a request, and return True if it must be sent. An equal request that
        is still unanswered is not sent again.
        """
        before = self.ask
        same = {} if before is None else {"pace": before.pace, "produced": before.produced}
        if msgspec.structs.replace(ask, **same) == before:
            return False
        self.ask, self.asked = ask, now
        return True

    def overdue_request(self, now: float, after: float) -> m.RequestSplits | None:
        """Return the request if it had no answer for ``after`` seconds and must be
        resent.
        """
        if self.ask is None or now - self.asked < after:
            return None
        self.asked = now
        return self.ask

    def append(self, message: m.SplitsAssigned) -> tuple[Split, ...]:
        """Append the new entries of a message and return them. Return no entries if a
        cut or other entries came between.
        """
        if message.cut != self.cut or message.first > self.have:
            return ()
        fresh = message.splits[self.have - message.first :]
        if fresh:
            self.have += len(fresh)
            self.entries += fresh
            self.ask = None
        return fresh

    def shorten(self, entries: int, stop: int) -> None:
        """Count a cut, and remove the entries after it."""
        self.cut += 1
        self.have = self.kept = entries
        self.stop = stop
        del self.entries[max(0, entries - self.base) :]
        if self.entries:
            self.entries[-1] = self.entries[-1].part(0, stop - self.entries[-1].start)
        if self.ask is not None:
            self.ask = msgspec.structs.replace(self.ask, have=entries, cut=self.cut)
