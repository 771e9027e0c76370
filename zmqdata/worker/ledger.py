"""The splits of a task as its sources get them: out of the ledger, piece by piece, so that the rest can be given back.

User code runs in the thread that asks for pieces; the worker's loop feeds the ledger and takes its end away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from zmqdata.splits import Split

PIECE_SECONDS = 0.05
GROWTH = 8


class Stopped(Exception):
    """The task was taken away from this runner; not an error."""


class Pacer:
    """How many splits a source is given at a time: what it uses up in about ``PIECE_SECONDS``, at first one.

    ``pace`` are the seconds that it takes for a split, 0 until known.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.size = 1
        self.pace = 0.0
        self._clock = clock
        self._given = 0
        self._since = 0.0

    def give(self, size: int) -> None:
        """Notes that a piece of so many splits was given."""
        self._given, self._since = size, self._clock()

    def use_up(self) -> None:
        """Notes that the piece is used up."""
        if self._given:
            pace = max(self._clock() - self._since, 1e-9) / self._given
            self.pace = (self.pace + pace) / 2 if self.pace else pace
            self.size = max(1, min(self.size * GROWTH, int(PIECE_SECONDS / self.pace)))
            self._given = 0


class LedgerProvider:
    """The splits of one source, from the task's ledger, which grows on request (a ``SplitProvider``).

    It asks for more when the last piece but one is given, and again when it waits.

    Args:
        entries: the ledger so far. It stays: an earlier attempt may have used it.
        want: called with (repetition, entries had, whether the source waits, seconds for a split or 0).
        clock: the time in seconds.
    """

    def __init__(
        self,
        entries: Sequence[Split],
        want: Callable[[int, int, bool, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries = list(entries)
        self._fixed = len(self._entries)
        self._want = want
        self._pacer = Pacer(clock)
        self._at = self._offset = 0
        self._used = (0, 0)  # the furthest place reached: a cache may go back to an earlier one
        self._repetition = 0
        self._ended = self._waiting = self._asked = self._stopped = False
        self._changed = threading.Condition()

    def next_split(self) -> Split | None:
        """The next piece of this repetition; None at its end. Waits for the dispatcher if it must."""
        self._pacer.use_up()
        while not self._ended:
            piece = self._next_piece()
            if piece.repetition < self._repetition:
                continue
            if not piece.is_end:
                self._pacer.give(piece.size)
                return piece
            self._ended = True
        return None

    def _next_piece(self) -> Split:
        """Up to ``Pacer.size`` splits of an entry, all of one that is not wanted any more, or an end mark.

        Sources know nothing of steps: they get such splits one by one.
        """
        with self._changed:
            self._await_entry()
            entry = self._entries[self._at]
            wanted = entry.repetition >= self._repetition
            most = self._pacer.size if entry.step == 1 else 1
            stop = min(self._offset + most, entry.size) if wanted else entry.size
            piece = entry.part(self._offset, stop)
            if piece.size == 1:
                piece = replace(piece, stop=piece.start + 1, step=1)
            self._offset = stop
            self._turn_over()
            self._used = max(self._used, (self._at, self._offset))
            if wanted and not entry.is_end:
                self._ask_ahead(piece.size)
            return piece

    def _turn_over(self) -> None:
        if self._at < len(self._entries) and self._offset >= self._entries[self._at].size:
            self._at, self._offset = self._at + 1, 0

    def _await_entry(self) -> None:
        if self._offset:
            self._turn_over()  # what followed was given back
        if self._at == len(self._entries):
            self._waiting = True
            self._want(self._repetition, self._at, True, self._pacer.pace)
        while self._at == len(self._entries):
            if self._stopped:
                raise Stopped
            self._changed.wait()
        self._waiting = False

    def _ask_ahead(self, size: int) -> None:
        """Asks for the next entry while there is work for about another piece."""
        count = len(self._entries)
        rest = self._entries[self._at].size - self._offset if self._at < count else 0
        if self._at + 1 >= count and rest <= size and self._pacer.pace and not self._asked:
            self._asked = True
            self._want(self._repetition, count, False, self._pacer.pace)

    def reset(self) -> None:
        """Goes on to the next repetition."""
        self._repetition += 1
        self._ended = self._asked = False

    def state(self) -> list[int]:
        """The place reached: the number of entries used up, and of splits of the next one."""
        with self._changed:
            if self._offset:
                self._turn_over()
            return [self._at, self._offset]

    def restore(self, state: Sequence[int]) -> None:
        """Continues at the place that ``state`` told."""
        with self._changed:
            self._at, self._offset = state
            before = self._entries[self._at - (not self._offset)] if self._at or self._offset else None
            self._repetition = before.repetition if before is not None else 0
            self._ended = before is not None and before.is_end
            self._used = max(self._used, (self._at, self._offset))

    # --- from the worker's loop

    def feed(self, splits: Sequence[Split]) -> None:
        """Adds entries that the dispatcher has assigned."""
        with self._changed:
            self._entries.extend(splits)
            self._asked = False
            self._changed.notify_all()

    def give_back(self) -> tuple[int, int, bool]:
        """Forgets what no source has started, and says what stays.

        Returns:
            the number of entries that stay, where the last of them ends from now on, and whether that is less than
            there was. A source that waits keeps at least one split of what has come for it.
        """
        with self._changed:
            entries, stop = self._kept()
            changed = entries < len(self._entries) or (entries > 0 and stop < self._entries[-1].stop)
            if changed:
                del self._entries[entries:]
                if entries:
                    self._entries[-1] = self._entries[-1].part(0, stop - self._entries[-1].start)
                self._asked = False
            return entries, stop, changed

    def _kept(self) -> tuple[int, int]:
        at, offset = self._used
        if self._waiting and self._at < len(self._entries):
            at, offset = max((at, offset), (self._at, 1))
        if at < self._fixed:
            at, offset = self._fixed, 0
        if not offset:
            return at, self._entries[at - 1].stop if at else 0
        return at + 1, min(self._entries[at].start + offset, self._entries[at].stop)

    def stop(self) -> None:
        """Ends every wait for splits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
