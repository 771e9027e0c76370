"""A disk in memory that keeps a dispatcher's journal. In a crash it loses what a real
disk could lose of the last writes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from zmqdata.journal import JournalEncoder, read_journal
from zmqdata.testing.clock import Clock
from zmqdata.updates import Update

SLOW = 0.02
"""Most seconds that a sync usually takes."""
STALL = 0.7
"""Seconds that a slow sync takes."""


class SimulatedDisk:
    """A disk that outlives the dispatchers that write to it.

    A write counts once it is synced, which takes a while.

    Args:
        clock: the clock by which it works.
        seed: decides how long syncs take and how much a crash leaves.

    Attributes:
        stalls: share of the syncs that are slow.
        stalled: when the last slow sync began.
        is_set_back: True if the last crash has lost synced content.

    Example:
        >>> from zmqdata.updates import CloseTaskListUpdate
        >>> clock = Clock()
        >>> disk = SimulatedDisk(clock, seed=1)
        >>> disk.begin([])
        >>> disk.write(1, [CloseTaskListUpdate(2000)], print)
        >>> clock.advance(1.0)
        1
        >>> disk.crash(), disk.read(print)
        CloseTaskListUpdate(iteration=2000)
        (0, True)
    """

    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock = clock
        self.random = random.Random(seed)
        self.content = b""
        self.stalls, self.stalled = 0.02, -math.inf
        self.is_set_back = False
        self._encoder = JournalEncoder(0)
        self._waiting: list[tuple[int, bytes]] = []
        self._writing: list[tuple[int, bytes]] = []
        self._written: Callable[[int], None] = lambda turn: None
        self._life = 0

    def begin(self, snapshot: Sequence[Update]) -> None:
        """Replace all content by a snapshot."""
        self._encoder = JournalEncoder(self.random.getrandbits(32))
        self.content = self._encoder.begin(snapshot)

    @property
    def idle(self) -> bool:
        """True if everything written is synced."""
        return not self._waiting and not self._writing

    def write(self, turn: int, updates: Sequence[Update], written: Callable[[int], None]) -> None:
        """Write the updates of a turn. ``written`` later receives the number of the
        last synced turn.
        """
        self._written = written
        self._waiting.append((turn, self._encoder.turn(updates)))
        if not self._writing:
            self._sync()

    def _sync(self) -> None:
        self._writing, self._waiting = self._waiting, []
        if self._writing:
            life = self._life
            is_usual = self.random.random() < 1.0 - self.stalls
            seconds = self.random.uniform(0.0, SLOW) if is_usual else STALL
            self.stalled = self.clock.now if seconds == STALL else self.stalled
            self.clock.after(seconds, lambda: self._synced(life))

    def _synced(self, life: int) -> None:
        if life != self._life:
            return
        last = self._writing[-1][0]
        self.content += b"".join(record for _, record in self._writing)
        self._sync()
        self._written(last)

    def crash(self) -> int:
        """Crash the writer. A part of what was not synced is kept all the same, cut off
        anywhere.

        Returns:
            The number of unsynced turns that were kept.
        """
        records = [record for _, record in (*self._writing, *self._waiting)]
        self._life += 1
        self._writing, self._waiting = [], []
        left = b"".join(records)
        cut = self.random.choice([0, len(left), self.random.randint(0, len(left))])
        there = left[:cut] + bytes(self.random.choice([0, 0, 7, 900]))
        self.content += there
        ends = [sum(map(len, records[: at + 1])) for at in range(len(records))]
        # Compared, because zeros after the cut may be exactly those with which a record
        # ends.
        return sum(there[:end] == left[:end] for end in ends)

    def set_back(self, content: bytes) -> None:
        """Return to former content, as a disk that lies about syncs does."""
        self.content, self.is_set_back = content, True

    def read(self, apply: Callable[[Update], object]) -> bool:
        """Replay the content. Return False if the disk is empty."""
        if not self.content:
            return False
        read_journal(self.content, "the simulated journal", apply)
        return True
