"""What a worker knows of the ledgers that it feeds to its runners: how long they are,
and what it asks for.

Pure bookkeeping of one source of one task; the talk with the dispatcher is the worker
core's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from zmqdata import messages as m
from zmqdata.splits import Split


@dataclass
class SplitFeed:
    """The copy of one source's ledger that a runner has.

    ``have``: its entries; ``cut``: how often its end was given back, the last time
    leaving ``kept`` entries, the last of them up to ``stop``; ``ask``: what the
    dispatcher is asked for, last at ``asked``. ``entries`` are those from number
    ``base`` on, and ``reached`` how far the source has started them: as many whole
    ones, and splits of the next.
    """

    have: int
    cut: int = 0
    kept: int = 0
    stop: int = 0
    ask: m.RequestSplits | None = None
    asked: float = 0.0
    base: int = 0
    entries: list[Split] = field(default_factory=list)
    reached: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, base: int, entries: Sequence[Split]) -> SplitFeed:
        """The copy that comes with a task. Nothing of it can be given back: a host
        before this one may have started it.

        What is before it is not needed.
        """
        length = base + len(entries)
        return cls(length, base=base, entries=list(entries), reached=(length, 0))

    def started(self, first: int) -> tuple[Split, ...]:
        """The entries from this number on that were started, the last of them as far as
        it was.

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
        """Whether an ask must be sent: it is not the one that is under way already."""
        before = self.ask
        if before is not None and msgspec.structs.replace(ask, pace=before.pace) == before:
            return False
        self.ask, self.asked = ask, now
        return True

    def repeated(self, now: float, after: float) -> m.RequestSplits | None:
        """The ask that had no answer for so long, as it has to be sent again."""
        if self.ask is None or now - self.asked < after:
            return None
        self.asked = now
        return self.ask

    def take(self, message: m.SplitsAssigned) -> tuple[Split, ...]:
        """The entries that are new, from now on counted as fed; none when a cut or
        other entries came between.
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
        """Counts a cut."""
        self.cut += 1
        self.have = self.kept = entries
        self.stop = stop
        del self.entries[max(0, entries - self.base) :]
        if self.entries:
            self.entries[-1] = self.entries[-1].part(0, stop - self.entries[-1].start)
        if self.ask is not None:
            self.ask = msgspec.structs.replace(self.ask, have=entries, cut=self.cut)
