"""A disk in memory that keeps a dispatcher's journal, and loses of a crash's last
writes what a real one could lose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from zmqdata.journal import JournalEncoder, read_journal
from zmqdata.testing.clock import Clock
from zmqdata.updates import Update

SLOW = 0.02
STALL = 0.7


class SimulatedDisk:
    """Outlives the dispatchers that write to it. What was written counts once it is
    synced, which takes a while.

    Args:
        clock: the time on which it works.
        seed: decides how long it takes, and how much a crash leaves.

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
        self._encoder = JournalEncoder(0)
        self._waiting: list[tuple[int, bytes]] = []
        self._writing: list[tuple[int, bytes]] = []
        self._written: Callable[[int], None] = lambda turn: None
        self._life = 0

    def begin(self, snapshot: Sequence[Update]) -> None:
        """Replaces everything by a snapshot."""
        self._encoder = JournalEncoder(self.random.getrandbits(32))
        self.content = self._encoder.begin(snapshot)

    @property
    def idle(self) -> bool:
        """Whether everything written is synced."""
        return not self._waiting and not self._writing

    def write(self, turn: int, updates: Sequence[Update], written: Callable[[int], None]) -> None:
        """Takes a turn; ``written`` hears the number of the last one that is synced,
        some time later.
        """
        self._written = written
        self._waiting.append((turn, self._encoder.turn(updates)))
        if not self._writing:
            self._sync()

    def _sync(self) -> None:
        self._writing, self._waiting = self._waiting, []
        if self._writing:
            life = self._life
            seconds = self.random.uniform(0.0, SLOW) if self.random.random() < 0.98 else STALL
            self.clock.after(seconds, lambda: self._synced(life))

    def _synced(self, life: int) -> None:
        if life != self._life:
            return
        last = self._writing[-1][0]
        self.content += b"".join(record for _, record in self._writing)
        self._sync()
        self._written(last)

    def crash(self) -> int:
        """The writer dies: of what was not synced a part is there all the same, cut off
        anywhere.

        Returns:
            How many turns were not synced and are there.
        """
        records = [record for _, record in (*self._writing, *self._waiting)]
        self._life += 1
        self._writing, self._waiting = [], []
        left = b"".join(records)
        cut = self.random.choice([0, len(left), self.random.randint(0, len(left))])
        there = left[:cut] + bytes(self.random.choice([0, 0, 7, 900]))
        self.content += there
        ends = [sum(map(len, records[: at + 1])) for at in range(len(records))]
        # Compared, as zeros behind the cut may be just those that a record ends with.
        return sum(there[:end] == left[:end] for end in ends)

    def read(self, apply: Callable[[Update], object]) -> bool:
        """Replays what is there; False when that is nothing."""
        if not self.content:
            return False
        read_journal(self.content, "the simulated journal", apply)
        return True
