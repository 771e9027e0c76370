"""Which elements operations have left out, and which not, in the order in which that
was decided: plain data.

An element that raised an exception once may come the next time, and the other way
round. What lies behind it is known by its number, so whoever makes a task again must
leave out the same ones: decisions are lineage, as splits are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct


class Decision(Struct, frozen=True, array_like=True):
    """Of the elements ``first ... stop - 1`` that came to the operation at ``place``,
    it has left these out, in order.

    A ``place`` is that of ``iterators.Context``: the same in every attempt of a task.
    """

    place: str
    first: int
    stop: int
    left_out: tuple[int, ...] = ()


@dataclass
class Decisions:
    """The decisions of a task, numbered for good as the entries of a ledger are.

    Attributes:
        base: so many of the first are not kept: nobody will need them again.
        entries: the others. The newest of them may still grow.
    """

    entries: list[Decision] = field(default_factory=list)
    base: int = 0

    @property
    def length(self) -> int:
        """How many there are, with those that are not kept."""
        return self.base + len(self.entries)

    def since(self, number: int) -> tuple[Decision, ...]:
        """Those from this number on."""
        return tuple(self.entries[max(0, number - self.base) :])

    def take(self, first: int, entries: Sequence[Decision]) -> None:
        """Puts what is known and what is told together: of each decision what says
        more, and what follows.

        >>> known = Decisions([Decision("/0", 0, 5), Decision("/0", 5, 7)])
        >>> known.take(1, [Decision("/0", 5, 9, (8,)), Decision("/0", 9, 10)])
        >>> known.length, known.entries[1]
        (3, Decision(place='/0', first=5, stop=9, left_out=(8,)))
        """
        if first > self.length:  # nobody needs what came before, or it would have been told
            self.base, self.entries = first, list(entries)
            return
        if first + len(entries) < self.base:
            return  # nothing of it is needed any more
        both = entries[max(0, self.base - first) : self.length - first]
        for at, told in enumerate(both, max(first, self.base) - self.base):
            self.entries[at] = max(self.entries[at], told, key=lambda one: one.stop)
        self.entries += entries[self.length - first :]
        if first < self.base:
            self.entries[:0] = entries[: self.base - first]
            self.base = first

    def trim(self, base: int) -> None:
        """Forgets those below this number."""
        count = base - self.base
        if count > 0:
            del self.entries[:count]
            self.base = base
