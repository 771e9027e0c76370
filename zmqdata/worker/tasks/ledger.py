"""The splits of a task as its sources receive them: taken from the ledger piece by
piece, so that the rest can be returned.

The thread that asks for pieces runs user code. The worker's loop extends the ledger and
removes its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from msgspec.structs import replace

from zmqdata.iterators.deciding import DECIDED
from zmqdata.splits import Split

PIECE_SECONDS = 0.05
"""Seconds of work in a piece."""
GROWTH = 8
"""Maximum factor by which the size of pieces grows."""

PLACE = "zmqdata.ledger"
"""Marks a position in a ledger within a state of a pipeline: the position follows it in
a list.
"""


def needs_of(state: Any, sources: int) -> tuple[int, ...]:
    """Return, for each source, the first entry of its ledger that a state needs; 0 if
    the state has no position in that ledger.

    >>> needs_of([[PLACE, 0, 7, 2], {"input": [PLACE, 1, 5, 0]}, 3, "text"], 3)
    (7, 4, 0)
    """
    needs: list[int | None] = [None] * sources
    for source, at, offset in _marked(state, PLACE, 3):
        if source < sources:
            # At the start of an entry, the entry before it tells the repetition.
            need, before = max(0, at - (not offset)), needs[source]
            needs[source] = need if before is None else min(before, need)
    return tuple(need or 0 for need in needs)


def decisions_needed(state: Any) -> int:
    """Return the number of the first decision after a state; 0 if the state has none,
    so that all decisions follow.

    >>> decisions_needed([[DECIDED, 7], {"input": [[DECIDED, 5], 0]}])
    5
    >>> decisions_needed(["text", 3])
    0
    """
    return min((at for (at,) in _marked(state, DECIDED, 1)), default=0)


def _marked(state: Any, mark: str, count: int) -> Iterator[Sequence[int]]:
    """Yield the ``count`` numbers that follow a mark in a list, wherever it occurs in a
    state.
    """
    rest = [state]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            rest += part.values()
        elif isinstance(part, (list, tuple)):
            if len(part) == count + 1 and isinstance(part[0], str) and part[0] == mark:
                yield part[1:]
            else:
                rest += part


class Stopped(Exception):
    """Raised when the task was taken from this runner. It is not an error."""


class Pacer:
    """The number of splits that a source is given at a time: what it uses up in about
    ``PIECE_SECONDS``, starting with a single split.

    Attributes:
        size: number of splits in the next piece.
        pace: seconds that the source takes for a split; 0 until known.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.size = 1
        self.pace = 0.0
        self._clock = clock
        self._given = 0
        self._since = 0.0

    def give(self, size: int) -> None:
        """Record that a piece of ``size`` splits was given."""
        self._given, self._since = size, self._clock()

    def use_up(self) -> None:
        """Record that the piece is used up."""
        if self._given:
            pace = max(self._clock() - self._since, 1e-9) / self._given
            self.pace = (self.pace + pace) / 2 if self.pace else pace
            self.size = max(1, min(self.size * GROWTH, int(PIECE_SECONDS / self.pace)))
            self._given = 0


class LedgerProvider:
    """A ``SplitProvider`` for a source, backed by the task's ledger, which grows on
    request.

    It requests more entries when little more than the current piece is left, and again
    when it waits.

    Args:
        entries: the ledger so far. It cannot be returned, because an earlier attempt
            may have used it.
        want: called with the repetition, the number of entries, True if the source
            waits, and the seconds for a split or 0.
        clock: returns the time in seconds.
        source: index of the source among the task's sources, as its states contain it.
        base: number of the first entry; earlier entries are no longer needed.
        away: context manager that is entered while a source waits for splits.
    """

    def __init__(
        self,
        entries: Sequence[Split],
        want: Callable[[int, int, bool, float], None],
        clock: Callable[[], float] = time.monotonic,
        source: int = 0,
        base: int = 0,
        away: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._away = away
        self._entries = list(entries)
        self._base = base
        self._source = source
        self._fixed = self.length
        self._want = want
        self._pacer = Pacer(clock)
        self._at, self._offset = base, 0
        self._used = (base, 0)  # the furthest position reached: a cache may go back
        self._repetition = 0
        self._ended = self._waiting = self._asked = self._stopped = False
        self._changed = threading.Condition()

    @property
    def length(self) -> int:
        """Number of entries, including those before ``base``."""
        return self._base + len(self._entries)

    def _entry(self, number: int) -> Split:
        return self._entries[number - self._base]

    def next_split(self) -> Split | None:
        """Return the next piece of this repetition, waiting for the dispatcher if
        necessary. Return None at the end of the repetition.
        """
        self._pacer.use_up()
        while not self._ended:
            piece = self._next_piece()
            if piece is None:
                with self._away():
                    self._await_entry()
            elif piece.repetition < self._repetition:
                continue
            elif piece.is_end:
                self._ended = True
            else:
                self._pacer.give(piece.size)
                return piece
        return None

    def _next_piece(self) -> Split | None:
        """Return up to ``Pacer.size`` splits of an entry, all splits of an entry that
        is no longer needed, or an end mark. Return None if the ledger has no further
        entry yet.
        """
        with self._changed:
            if self._offset:
                self._turn_over()  # the rest of the entry was returned
            if self._at == self.length:
                return None
            self._waiting = False
            entry = self._entry(self._at)
            wanted = entry.repetition >= self._repetition
            stop = min(self._offset + self._pacer.size, entry.size) if wanted else entry.size
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
        if self._at < self.length and self._offset >= self._entry(self._at).size:
            self._at, self._offset = self._at + 1, 0

    def _await_entry(self) -> None:
        with self._changed:
            if self._at == self.length:
                self._waiting = True
                self._want(self._repetition, self._at, True, self._pacer.pace)
            while self._at == self.length:
                if self._stopped:
                    raise Stopped
                self._changed.wait()

    def _ask_ahead(self, size: int) -> None:
        """Request the next entry while about another piece of work is left."""
        count = self.length
        rest = self._entry(self._at).size - self._offset if self._at < count else 0
        sent_end = (
            count > self._base
            and self._entries[-1].is_end
            and self._entries[-1].repetition >= self._repetition
        )
        if (
            self._at + 1 >= count
            and rest <= size
            and self._pacer.pace
            and not self._asked
            and not sent_end
        ):
            self._asked = True
            self._want(self._repetition, count, False, self._pacer.pace)

    def reset(self) -> None:
        """Advance to the next repetition."""
        self._repetition += 1
        self._ended = self._asked = False

    def state(self) -> list[Any]:
        """Return the position: ``PLACE``, the source, the number of entries used up,
        and the number of splits used up in the next entry.
        """
        with self._changed:
            if self._offset:
                self._turn_over()
            return [PLACE, self._source, self._at, self._offset]

    def rewind(self) -> None:
        """Return to the start, for a pipeline that is created anew and then
        restored.
        """
        with self._changed:
            self._at, self._offset, self._repetition, self._ended = self._base, 0, 0, False

    def restore(self, state: Sequence[Any]) -> None:
        """Continue at the position in ``state``."""
        with self._changed:
            _, _, self._at, self._offset = state
            before = (
                self._entry(self._at - (not self._offset)) if self._at or self._offset else None
            )
            self._repetition = before.repetition if before is not None else 0
            self._ended = before is not None and before.is_end
            self._used = max(self._used, (self._at, self._offset))

    # --- from any thread

    @property
    def started(self) -> tuple[int, int]:
        """Furthest position that was ever reached in the ledger: the number of complete
        entries, and the number of splits in the next entry.
        """
        with self._changed:
            return self._used

    # --- from the worker's loop

    def feed(self, splits: Sequence[Split]) -> None:
        """Append entries that the dispatcher has assigned."""
        with self._changed:
            self._entries.extend(splits)
            self._asked = False
            self._changed.notify_all()

    def give_back(self) -> tuple[int, int, bool]:
        """Remove what no source has started, and return what remains.

        A source that waits keeps at least one split of what has arrived for it.

        Returns:
            The number of remaining entries, the new end of the last entry, and True if
            anything was removed.
        """
        with self._changed:
            entries, stop = self._kept()
            changed = entries < self.length or (
                entries > self._base and stop < self._entries[-1].stop
            )
            if changed:
                del self._entries[entries - self._base :]
                if self._entries:
                    self._entries[-1] = self._entries[-1].part(0, stop - self._entries[-1].start)
                self._asked = False
            return entries, stop, changed

    def _kept(self) -> tuple[int, int]:
        at, offset = self._used
        if self._waiting and self._at < self.length:
            at, offset = max((at, offset), (self._at, 1))
        if at < self._fixed:
            at, offset = self._fixed, 0
        if not offset:
            return at, self._entry(at - 1).stop if at > self._base else 0
        return at + 1, min(self._entry(at).start + offset, self._entry(at).stop)

    def stop(self) -> None:
        """End every wait for splits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
