"""Leases of the splits of a source: the position of an iteration in it, and the number
of splits that a task gets at a time.

Pure arithmetic over ``zmqdata.splits``. The dispatcher core receives the requests and
sends the answers.

Decisions 0012 and 0044; protocol 5.1 to 5.3 and 5.6 to 5.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from zmqdata.core.ranges import RangeSet
from zmqdata.splits import ChunkSplits, FileSplits, IndexSplits, Split, SplitSource, chunk_number

RAMP_SECONDS = 0.25
STEADY_SECONDS = 10.0
FIRST_OWN = 64
MOST_REPETITIONS = 16
"""Number of repetitions of a source for which used-up splits are remembered. Of an
older repetition, a task has what it still holds, and the rest counts as used up.
"""
MOST_AHEAD = MOST_REPETITIONS // 2
"""Number of repetitions of which all tasks together are leased splits ahead of time. A
state that is taken meanwhile knows each of them.
"""
MOST_OVER = 64
"""Number of repetitions that one answer marks as over."""


@dataclass
class SpentSplits:
    """The splits of a source whose ledger entries no state needs any more. End marks
    are not counted.

    If each task has every ``step``-th split, only the last split of each task is kept:
    the splits before it belonged to the same task.
    """

    repetitions: dict[int, RangeSet] = field(default_factory=dict)
    """Split numbers by repetition."""

    def add(self, split: Split) -> None:
        """Count an entry that leaves a ledger."""
        if split.is_end:
            return
        spent = self.repetitions.setdefault(split.repetition, RangeSet())
        if split.step == 1:
            spent.add(split.start, split.stop)
            self._forget_old()
            return
        last = split.start + (split.size - 1) * split.step
        newest = {last % split.step: last}
        for number in (number for first, stop in spent for number in range(first, stop)):
            newest[number % split.step] = max(number, newest.get(number % split.step, 0))
        self.repetitions[split.repetition] = RangeSet(
            (number, number + 1) for number in newest.values()
        )
        self._forget_old()

    def restore(self, repetition: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Count splits that are known to be used up."""
        self.repetitions.setdefault(repetition, RangeSet()).update(ranges)
        self._forget_old()

    def _forget_old(self) -> None:
        while len(self.repetitions) > MOST_REPETITIONS:
            del self.repetitions[min(self.repetitions)]


@dataclass
class SplitCursor:
    """The position of an iteration, or of a single task, in a source."""

    source: SplitSource
    """The source."""
    repetition: int = 0
    """The current repetition of the source."""
    next: int = 0
    """Number of the next split: all splits of ``repetition`` below it were handed
    out.
    """
    names: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """File names by repetition, for each repetition that is not over. The cursor of a
    single task shares those of the iteration.
    """
    returned: list[Split] = field(default_factory=list)
    """Ranges that were handed out and taken back. They are handed out before any new
    split.
    """
    first: int = 0
    """First split of this cursor; above 0 only for the cursor of a single task."""
    step: int = 1
    """Distance between two splits of this cursor; above 1 only for the cursor of a
    single task.
    """

    def __post_init__(self) -> None:
        self.next = max(self.next, self.first)

    def advance(self, split: Split) -> None:
        """Count a split, or an end mark, that was handed out."""
        if not split.is_end and self._give_again(split):
            return
        if split.repetition > self.repetition:
            self.restore(split.repetition, self.first, self.returned)
        if split.repetition == self.repetition:
            self.next = max(self.next, split.start + split.size * split.step)

    def _give_again(self, split: Split) -> bool:
        """Remove a split from the returned range that it begins. Return False if it
        begins none.
        """
        for at, whole in enumerate(self.returned):
            if (whole.repetition, whole.start) == (split.repetition, split.start):
                rest = whole.part(split.size, whole.size)
                self.returned[at : at + 1] = [rest] if rest.size else []
                return True
        return False

    def restore(self, repetition: int, number: int, returned: Iterable[Split]) -> None:
        """Set the position: all splits of a repetition below ``number`` were handed
        out, except the ``returned`` ones.
        """
        self.repetition, self.next, self.returned = repetition, number, list(returned)

    def forget_names(self, repetition: int) -> None:
        """Forget the file names of all repetitions before this one."""
        for past in [past for past in self.names if past < repetition]:
            del self.names[past]

    def take_back(self, splits: Iterable[Split]) -> None:
        """Take back ranges that were handed out and not started. End marks among them
        lose their meaning.
        """
        self.returned += [split for split in splits if not split.is_end]

    def list(self, repetition: int, names: tuple[str, ...], more: bool = False) -> None:
        """Store the file names of a repetition, and name the returned splits that lack
        them. Only a save may have ``more`` names to come.
        """
        if repetition >= self.repetition:
            self.names[repetition] = names
        for at, split in enumerate(self.returned):
            if self._is_nameless(split, repetition):
                self.returned[at] = replace(
                    split,
                    stop=min(split.stop, len(names)),
                    names=names[split.start : split.stop : split.step],
                )
        self.returned = [split for split in self.returned if split.start < split.stop]

    def _is_nameless(self, split: Split, repetition: int) -> bool:
        return (
            isinstance(self.source, FileSplits)
            and split.repetition == repetition
            and not split.names
        )

    @property
    def exhausted(self) -> bool:
        """True if no split is left, neither of the current repetition nor among the
        returned ones.
        """
        count = self.count(self.repetition)
        return count is not None and self.next >= count and not self.returned

    def needs_listing(self, repetition: int) -> bool:
        """Return True if the files must be listed before a split of this repetition can
        be handed out.
        """
        if not isinstance(self.source, FileSplits) or repetition in self.names:
            return False
        return repetition >= self.repetition or any(
            self._is_nameless(one, repetition) for one in self.returned
        )

    def count(self, repetition: int) -> int | None:
        """Return the number of splits in a repetition; None if it is endless or not
        listed yet.
        """
        if isinstance(self.source, IndexSplits):
            return self.source.count
        return len(self.names[repetition]) if repetition in self.names else None

    def remaining(self, repetition: int) -> int | None:
        """Return the number of unassigned splits of a repetition; None if it is
        endless.
        """
        returned = sum(split.size for split in self.returned if split.repetition == repetition)
        if repetition < self.repetition:
            return returned
        count = self.count(repetition)
        if count is None:
            return None
        return returned + max(0, -(-(count - self._next_of(repetition)) // self.step))

    def _next_of(self, repetition: int) -> int:
        return self.next if repetition == self.repetition else self.first

    def peek(self, repetition: int, size: int) -> Split:
        """Return the next ``size`` splits of a repetition, or its end mark. The
        position stays as it is: see ``advance``.
        """
        for whole in self.returned:
            if whole.repetition == repetition:
                return whole.part(0, min(size, whole.size))
        start = self._next_of(repetition)
        remaining = self.remaining(repetition)
        if repetition < self.repetition or remaining == 0:
            return Split(repetition, start, start)
        last = start + ((size if remaining is None else min(size, remaining)) - 1) * self.step
        names = self.names.get(repetition, ())[start : last + 1 : self.step]
        return Split(repetition, start, last + 1, names, self.step)


@dataclass
class ChunkCursor(SplitCursor):
    """The position of an iteration in a save that may still be in progress.

    ``returned`` has all chunks that are known and that no task has. ``names`` has the
    repetitions of which all chunks are known.
    """

    def advance(self, split: Split) -> None:
        if split.repetition > self.repetition:
            self.restore(split.repetition, 0, self.returned)
        self._give_again(split)

    def list(self, repetition: int, names: tuple[str, ...], more: bool = False) -> None:
        for name in names:
            number = chunk_number(name)
            assert number is not None, "checked before it was decided"
            self.returned.append(Split(repetition, number, number + 1, (name,)))
        if not more:
            self.names[repetition] = ()

    @property
    def exhausted(self) -> bool:
        return self.repetition in self.names and not self.returned

    def needs_listing(self, repetition: int) -> bool:
        return self.remaining(repetition) is None and not any(
            split.repetition == repetition for split in self.returned
        )

    def count(self, repetition: int) -> int | None:
        return None

    def remaining(self, repetition: int) -> int | None:
        """Return the number of chunks of a repetition that no task has; None if further
        chunks may follow.
        """
        if repetition not in self.names and repetition > self.repetition - MOST_REPETITIONS:
            return None
        return sum(split.size for split in self.returned if split.repetition == repetition)

    def peek(self, repetition: int, size: int) -> Split:
        for split in self.returned:
            if split.repetition == repetition:
                return split
        return Split(repetition, 0, 0)


def cursor_of(source: SplitSource) -> SplitCursor:
    """Return the cursor at the beginning of a source."""
    return (ChunkCursor if isinstance(source, ChunkSplits) else SplitCursor)(source)


def lease_size(previous: int, seconds: float, remaining: int | None, tasks: int) -> int:
    """Return the number of splits to lease to a task now.

    The lease is small at first, so that a few large splits (files) are shared evenly.
    It grows while leases are used up fast, so that many small splits (rows) do not cost
    a message each. It shrinks towards the end, so that tasks end together.

    Args:
        previous: size of the task's last lease, 0 if it had none.
        seconds: how long the last lease lasted.
        remaining: splits left in the repetition, None if endless.
        tasks: number of tasks that share them.
    """
    if previous == 0:
        size = 1
    elif seconds < RAMP_SECONDS:
        size = previous * 8
    elif seconds < STEADY_SECONDS / 2:
        size = previous * 2
    elif seconds > STEADY_SECONDS:
        size = previous // 2
    else:
        size = previous
    if remaining is not None:
        size = min(size, -(-remaining // (2 * max(1, tasks))))
    return max(1, size)


def own_lease_size(previous: int, seconds: float) -> int:
    """Return the number of splits to lease to a task whose splits no other task may
    get. A larger lease only saves messages.

    Args:
        previous: size of the task's last lease, 0 if it had none.
        seconds: how long the last lease lasted.
    """
    return lease_size(previous, seconds, None, 1) if previous else FIRST_OWN


def lease_seconds(previous: int, pace: float, since: float) -> float:
    """Return how long a task's last lease lasts: by the pace that its runner has
    measured, or else by the time since it was given.

    Args:
        previous: its size.
        pace: seconds for each split, 0 if unknown.
        since: seconds from the lease until the next request, which comes before the
            lease is used up.
    """
    return previous * pace if pace > 0 else since


@dataclass
class Ledger:
    """The splits of a source that a task was given, in order, with the end marks. The
    number of an entry never changes.
    """

    entries: list[Split] = field(default_factory=list)
    """The entries that are kept."""
    base: int = 0
    """Number of leading entries that are not kept, because no state needs them."""
    spent: SpentSplits = field(default_factory=SpentSplits, compare=False)
    """The splits of entries that were dropped, counted over all ledgers of the
    source.
    """

    @property
    def length(self) -> int:
        """The number of entries, including those that are not kept."""
        return self.base + len(self.entries)

    def ends(self, repetition: int) -> bool:
        """Return True if the task was given the end mark of a repetition. Its source
        would ignore further splits of it.

        >>> Ledger([Split(0, 0, 2), Split(0, 2, 2)]).ends(0)
        True
        >>> Ledger([Split(0, 0, 2)]).ends(0)
        False
        """
        last = self.entries[-1] if self.entries else None
        return last is not None and last.repetition + last.is_end > repetition

    def since(self, entry: int) -> tuple[Split, ...]:
        """Return the entries from this number on."""
        return tuple(self.entries[max(0, entry - self.base) :])

    def parted(self, entries: int, stop: int) -> tuple[list[Split], list[Split]] | None:
        """Return the entries that stay and those that come back when the ledger is cut
        after ``entries`` entries. See ``cut_ledger``.
        """
        return cut_ledger(self.entries, entries - self.base, stop)

    def trim(self, base: int) -> None:
        """Forget the entries below this number."""
        count = base - self.base
        if count > 0:
            for split in self.entries[:count]:
                self.spent.add(split)
            del self.entries[:count]
            self.base = base


def cut_ledger(
    entries: Sequence[Split], count: int, stop: int
) -> tuple[list[Split], list[Split]] | None:
    """Split a ledger into the entries that stay and the entries that come back; None if
    it cannot be cut there.

    Args:
        entries: the ledger of a source.
        count: the number of entries that stay.
        stop: the new end of the last entry that stays; splits from there on come back
            too.
    """
    if not 0 <= count <= len(entries):
        return None
    kept, back = list(entries[:count]), list(entries[count:])
    if count:
        last = kept[-1]
        if not (last.start < stop <= last.stop or stop == last.stop):
            return None
        if stop < last.stop:
            kept[-1], rest = (
                last.part(0, stop - last.start),
                last.part(stop - last.start, last.size),
            )
            back.insert(0, rest)
    return kept, back
