"""Decisions of operations on which elements to skip, as plain data in the order in
which they were made.

An element that raised an exception once may succeed on the next attempt, and vice
versa. Later elements are addressed by number, so every attempt of a task must skip the
same elements. Decisions are therefore lineage, as splits are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

LEFT_OUT_KEPT = 1_000
"""Number of elements left out that are kept with their errors: the newest."""
LEFT_OUT_REMEMBERED = 100_000
"""Number of elements left out that are recognized when they are left out again."""


class Decision(Struct, frozen=True, array_like=True):
    """The decision of a single operation about elements ``first ... stop - 1`` of its
    input.
    """

    place: str
    """Place of the operation in the pipeline, as in ``iterators.Context``: the same in
    every attempt of a task.
    """
    first: int
    """Number of the first element of the decision."""
    stop: int
    """Number after the last element of the decision."""
    left_out: tuple[int, ...] = ()
    """Numbers of the skipped elements, in order."""


@dataclass
class Decisions:
    """The decisions of a task, with permanent numbers like the entries of a ledger."""

    entries: list[Decision] = field(default_factory=list)
    """The decisions from number ``base`` on. The last decision may still grow."""
    base: int = 0
    """Number of decisions dropped from the beginning, because no attempt needs them
    again.
    """

    @property
    def length(self) -> int:
        """Number of all decisions, including the dropped ones."""
        return self.base + len(self.entries)

    def since(self, number: int) -> tuple[Decision, ...]:
        """Return the decisions from this number on."""
        return tuple(self.entries[max(0, number - self.base) :])

    def take(self, first: int, entries: Sequence[Decision]) -> None:
        """Merge decisions that were received into the known ones.

        For a decision present in both, the version that covers more elements is kept.
        Received decisions after the last known one are appended.

        >>> known = Decisions([Decision("/0", 0, 5), Decision("/0", 5, 7)])
        >>> known.take(1, [Decision("/0", 5, 9, (8,)), Decision("/0", 9, 10)])
        >>> known.length, known.entries[1]
        (3, Decision(place='/0', first=5, stop=9, left_out=(8,)))
        """
        if first > self.length:  # no attempt needs the gap, or it would have been sent
            self.base, self.entries = first, list(entries)
            return
        if first + len(entries) < self.base:
            return  # all of it was dropped before
        both = entries[max(0, self.base - first) : self.length - first]
        for at, told in enumerate(both, max(first, self.base) - self.base):
            self.entries[at] = max(self.entries[at], told, key=lambda one: one.stop)
        self.entries += entries[self.length - first :]
        if first < self.base:
            self.entries[:0] = entries[: self.base - first]
            self.base = first

    def trim(self, base: int) -> None:
        """Drop the decisions below this number."""
        count = base - self.base
        if count > 0:
            del self.entries[:count]
            self.base = base
