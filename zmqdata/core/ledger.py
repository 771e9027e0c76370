"""How splits of one source are leased: where the iteration stands in it, and how many a
task gets at a time.

Pure arithmetic over ``zmqdata.splits``; who asks and who answers is the dispatcher
core's affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from zmqdata.core.ranges import RangeSet
from zmqdata.splits import FileSplits, IndexSplits, Split, SplitSource

RAMP_SECONDS = 0.25
STEADY_SECONDS = 10.0
FIRST_OWN = 64
MOST_REPETITIONS = 16
"""Of a source, those with splits that were used up: so many are told apart, older ones
are over.
"""


@dataclass
class SpentSplits:
    """The splits of one source whose ledger entries nobody needs any more, by
    repetition; ends count for nothing.

    Where each task has every ``step``-th split, only the last one of each: those before
    it were its, too.
    """

    repetitions: dict[int, RangeSet] = field(default_factory=dict)

    def add(self, split: Split) -> None:
        """Counts an entry that leaves a ledger."""
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
        """Counts splits that are known to be used up."""
        self.repetitions.setdefault(repetition, RangeSet()).update(ranges)
        self._forget_old()

    def _forget_old(self) -> None:
        while len(self.repetitions) > MOST_REPETITIONS:
            del self.repetitions[min(self.repetitions)]


@dataclass
class SplitCursor:
    """The position of one iteration in one source: all splits below ``next`` of
    ``repetition`` were handed out.

    ``names`` are the files found for each repetition that is not over. ``returned`` are
    ranges that were handed out and taken back; they come before anything new. A cursor
    of a single task has only each ``step``-th split, from number ``first`` on, and its
    ``names`` are those of the iteration's.
    """

    source: SplitSource
    repetition: int = 0
    next: int = 0
    names: dict[int, tuple[str, ...]] = field(default_factory=dict)
    returned: list[Split] = field(default_factory=list)
    first: int = 0
    step: int = 1

    def __post_init__(self) -> None:
        self.next = max(self.next, self.first)

    def advance(self, split: Split) -> None:
        """Counts a split, or an end mark, that was handed out."""
        if not split.is_end and self._give_again(split):
            return
        if split.repetition > self.repetition:
            self.restore(split.repetition, self.first, self.returned)
        if split.repetition == self.repetition:
            self.next = max(self.next, split.start + split.size * split.step)

    def _give_again(self, split: Split) -> bool:
        """Whether the split begins a range that was taken back, from which it is
        removed then.
        """
        for at, whole in enumerate(self.returned):
            if (whole.repetition, whole.start) == (split.repetition, split.start):
                rest = whole.part(split.size, whole.size)
                self.returned[at : at + 1] = [rest] if rest.size else []
                return True
        return False

    def restore(self, repetition: int, number: int, returned: Iterable[Split]) -> None:
        """Puts it where it was: all splits below ``number`` of a repetition were handed
        out, but for some.
        """
        self.repetition, self.next, self.returned = repetition, number, list(returned)

    def forget_names(self, repetition: int) -> None:
        """Forgets the files of all repetitions before this one."""
        for past in [past for past in self.names if past < repetition]:
            del self.names[past]

    def take_back(self, splits: Iterable[Split]) -> None:
        """Takes ranges that were handed out and not started; end marks among them mean
        nothing any more.
        """
        self.returned += [split for split in splits if not split.is_end]

    def list(self, repetition: int, names: tuple[str, ...]) -> None:
        """Takes the files found for a repetition, and names those that are to be handed
        out again.
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
        """Whether the current repetition has no split left, nor any other that was
        taken back.
        """
        count = self.count(self.repetition)
        return count is not None and self.next >= count and not self.returned

    def needs_listing(self, repetition: int) -> bool:
        """Whether the files must be listed before a split of this repetition can be
        handed out.
        """
        if not isinstance(self.source, FileSplits) or repetition in self.names:
            return False
        return repetition >= self.repetition or any(
            self._is_nameless(one, repetition) for one in self.returned
        )

    def count(self, repetition: int) -> int | None:
        """The number of splits in a repetition; None when endless or not listed yet."""
        if isinstance(self.source, IndexSplits):
            return self.source.count
        return len(self.names[repetition]) if repetition in self.names else None

    def remaining(self, repetition: int) -> int | None:
        """The number of splits of a repetition that nobody has; None when endless."""
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
        """The next ``size`` splits of a repetition, or its end mark. Counts nothing:
        see ``advance``.
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


def lease_size(previous: int, seconds: float, remaining: int | None, tasks: int) -> int:
    """How many splits a task gets now.

    Small at first, so that a few large splits (files) are shared evenly, and growing
    while they are used up fast, so that many small ones (rows) cost no message each.
    Towards the end it shrinks, so that tasks end together.

    Args:
        previous: size of the task's last lease, 0 for none.
        seconds: how long the last lease lasted.
        remaining: splits left in the repetition, None when endless.
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
    """How many splits a task gets now that nobody else may get: there is nothing to
    share, only messages to save.

    Args:
        previous: size of the task's last lease, 0 for none.
        seconds: how long the last lease lasted.
    """
    return lease_size(previous, seconds, None, 1) if previous else FIRST_OWN


def lease_seconds(previous: int, pace: float, since: float) -> float:
    """How long a task's last lease lasts: by the pace that its runner has measured, or
    else by when it was given.

    Args:
        previous: its size.
        pace: seconds for each split, 0 when unknown.
        since: seconds from then until the next ask, which comes before the lease is
            used up.
    """
    return previous * pace if pace > 0 else since


@dataclass
class Ledger:
    """The splits of one source that a task was given, in order, with the end marks.
    Entries are numbered for good.

    ``base``: so many of the first entries are not kept: nobody will need them again.
    ``spent`` counts what is in these, of all ledgers of the source.
    """

    entries: list[Split] = field(default_factory=list)
    base: int = 0
    spent: SpentSplits = field(default_factory=SpentSplits, compare=False)

    @property
    def length(self) -> int:
        """The number of entries, with those that are not kept."""
        return self.base + len(self.entries)

    def ends(self, repetition: int) -> bool:
        """Whether the task was told that a repetition is over; what came of it then,
        its source would not look at.

        >>> Ledger([Split(0, 0, 2), Split(0, 2, 2)]).ends(0), Ledger([Split(0, 0, 2)]).ends(0)
        (True, False)
        """
        last = self.entries[-1] if self.entries else None
        return last is not None and last.repetition + last.is_end > repetition

    def since(self, entry: int) -> tuple[Split, ...]:
        """The entries from this number on."""
        return tuple(self.entries[max(0, entry - self.base) :])

    def parted(self, entries: int, stop: int) -> tuple[list[Split], list[Split]] | None:
        """What is kept of it and what comes back when only so many entries stay. See
        ``cut_ledger``.
        """
        return cut_ledger(self.entries, entries - self.base, stop)

    def trim(self, base: int) -> None:
        """Forgets the entries below this number."""
        count = base - self.base
        if count > 0:
            for split in self.entries[:count]:
                self.spent.add(split)
            del self.entries[:count]
            self.base = base


def cut_ledger(
    entries: Sequence[Split], count: int, stop: int
) -> tuple[list[Split], list[Split]] | None:
    """Parts a ledger into what stays and what comes back; None when it has no such
    place.

    Args:
        entries: the ledger of one source.
        count: the number of entries that stay.
        stop: where the last one of these ends from now on; what is behind comes back,
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
