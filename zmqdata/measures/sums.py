"""Sums of what happened, and the same sums in which the last seconds count most.

Decision 0046; protocol 11.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from zmqdata.messages import LoopSums, TaskSums

HALVED = 10.0
"""Seconds after which what was measured counts half in the recent sums: long enough for
a mean of slow steps, short enough that a verdict follows a change within a minute.
"""
PIECE_SECONDS = 1.0
"""Least seconds of a piece of a loop's time of which the pace is known."""
PIECES = 3
"""Number of newest pieces whose median is the pace. A change of pace shows with the
second whole piece, and a single pause does not.
"""
MOST_COUNTS = 1000
"""Number of names up to which counts are told apart."""
RATIOS: dict[str, tuple[str, str]] = {
    "pack/fill": ("pack/tokens", "pack/room"),
    "pack/padding": ("pack/padded", "pack/room"),
    "pack/sequences_per_bin": ("pack/sequences", "pack/bins"),
    "balance": ("balance/dearest", "balance/means"),
    "balance_in_order": ("balance/in_order", "balance/means"),
    "balance_bound": ("balance/bound", "balance/means"),
    "balance_fill": ("balance/filled", "balance/room"),
}
"""Ratios of sums that operations count: the names of both sums, by the name of the
ratio.
"""
Sums = TypeVar("Sums", TaskSums, LoopSums)


class OperationCounts(dict[str, float]):
    """Named sums of what the operations of a pipeline did, such as the elements that a
    mixture took from each of its datasets.

    An operation that runs again after a restore counts again. A single thread adds to
    each name.

    Example:
        >>> counts = OperationCounts()
        >>> for name in ("mix/web", "mix/code", "mix/web"):
        ...     counts.add(name)
        >>> counts
        {'mix/web': 2.0, 'mix/code': 1.0}
    """

    def add(self, name: str, amount: float = 1.0) -> None:
        """Add to a sum.

        Args:
            name: name of the operation, a slash, and what is counted. Names beyond
                ``MOST_COUNTS`` are counted together, as ``"others"``.
            amount: what to add, at least 0.
        """
        if name not in self and len(self) >= MOST_COUNTS:
            name = f"{name.partition('/')[0]}/others"
        self[name] = self.get(name, 0.0) + amount


def ratio_of(counts: Mapping[str, float], name: str) -> float:
    """Return a ratio of ``RATIOS``; 0 if nothing was counted.

    Example:
        >>> ratio_of({"balance/dearest": 3.0, "balance/means": 2.0}, "balance")
        1.5
    """
    part, whole = (counts.get(one, 0.0) for one in RATIOS[name])
    return part / whole if whole else 0.0


def counted_together(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of counts by name.

    Example:
        >>> counted_together([{"a": 1.0}, {"a": 2.0, "b": 1.0}])
        {'a': 3.0, 'b': 1.0}
    """
    found: dict[str, float] = {}
    for one in counts:
        for name, amount in dict(one).items():  # a copy: a pipeline may add names
            found[name] = found.get(name, 0.0) + amount
    return found


def kept(seconds: float) -> float:
    """Return the share that counts of what was measured so many seconds ago.

    Example:
        >>> kept(0.0), kept(10.0), kept(20.0)
        (1.0, 0.5, 0.25)
    """
    return float(0.5 ** (max(0.0, seconds) / HALVED))


class Recent:
    """Turns growing sums into sums in which the last seconds count most.

    Args:
        width: how many sums there are.

    Example:
        >>> recent = Recent(1)
        >>> looks = ((0.0, 0.0), (10.0, 8.0), (20.0, 8.0))
        >>> [recent.look(now, (made,)) for now, made in looks]
        [(0.0,), (8.0,), (4.0,)]
    """

    def __init__(self, width: int) -> None:
        self._sums = [0.0] * width
        self._last: tuple[float, ...] = (0.0,) * width
        self._looked: float | None = None

    def look(self, now: float, totals: Sequence[float]) -> tuple[float, ...]:
        """Take the present sums, and return the recent ones.

        Args:
            now: present time.
            totals: sums since the beginning; none of them shrinks.
        """
        share = 1.0 if self._looked is None else kept(now - self._looked)
        for at, (total, last) in enumerate(zip(totals, self._last, strict=True)):
            self._sums[at] = self._sums[at] * share + max(0.0, total - last)
        self._last, self._looked = tuple(totals), now
        return tuple(self._sums)


class RecentLoop(Recent):
    """Turns the growing sums of a loop into recent ones, and knows its pace.

    Attributes:
        pace: median of the seconds that the loop takes for an element itself, over
            pieces of its time; 0 if unknown.
        idle: seconds since it last took an element or waited for one.

    Example:
        >>> recent = RecentLoop()
        >>> for now in (0.0, 1.0, 2.0, 3.0, 9.0):  # steps of a second, and a pause
        ...     _ = recent.look(now, (now, 0.0, min(now, 3.0), 0.0))
        >>> recent.pace, recent.idle
        (1.0, 6.0)
    """

    def __init__(self) -> None:
        super().__init__(len(values_of(LoopSums())))
        self._pieces: deque[float] = deque(maxlen=PIECES)
        self._piece = (0.0, 0.0, 0.0)  # when it began, and the sums at that time
        self._moved = self.pace = self.idle = 0.0

    def look(self, now: float, totals: Sequence[float]) -> tuple[float, ...]:
        seconds, waiting, elements, _ = totals
        is_fresh = elements != self._last[2]
        if is_fresh or not elements or waiting != self._last[1]:
            self._moved = now
        self.idle = max(0.0, now - self._moved)
        # At an element that was just taken: a step in progress would count in part.
        began, worked, taken = self._piece
        if is_fresh and (not taken or now - began >= PIECE_SECONDS):
            if taken and elements > taken:
                self._pieces.append(max(0.0, seconds - waiting - worked) / (elements - taken))
                self.pace = sorted(self._pieces)[(len(self._pieces) - 1) // 2]
            self._piece = now, seconds - waiting, elements
        return super().look(now, totals)


def values_of(sums: TaskSums | LoopSums) -> tuple[float, ...]:
    """Return the values of sums, in the order of their fields.

    Example:
        >>> values_of(LoopSums(seconds=2.0, waiting=1.0))
        (2.0, 1.0, 0.0, 0.0)
    """
    return structs.astuple(sums)


def task_sums(values: Sequence[float]) -> TaskSums:
    """Return sums of a task with these values, in the order of the fields.

    Example:
        >>> task_sums((2.0, 1.0)).making
        1.0
    """
    return TaskSums(*values)


def added(sums: Iterable[Sums], nothing: Sums) -> Sums:
    """Return the sums of sums.

    Args:
        sums: the sums to add.
        nothing: the result if there are none.

    Example:
        >>> added([LoopSums(1.0, 0.5), LoopSums(2.0, 1.0)], LoopSums())
        LoopSums(seconds=3.0, waiting=1.5, elements=0.0, late=0.0)
    """
    columns = list(zip(*map(values_of, sums), strict=True))
    return type(nothing)(*map(sum, columns)) if columns else nothing
