"""What a split is and how a source describes its splits: plain data that the dispatcher
can use without running code.

Also how a source's description and a seed order its splits, for those who hand them out
and those who read all.

No logic of leasing lives here (that is ``core.ledger``), and no reading of sources
(that is ``iterators``).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import Struct


class Split(Struct, frozen=True, array_like=True):
    """A range of consecutive splits of one source, or, when ``start == stop``, the end
    of a repetition.

    A split is an index into what its source describes: row, value or file number
    ``start <= i < stop``, of these with a ``step`` each so many-th. Sources whose
    splits are named (``FileSplits``) get the names along, in order.
    """

    repetition: int
    start: int
    stop: int
    names: tuple[str, ...] = ()
    step: int = 1

    @property
    def is_end(self) -> bool:
        return self.start == self.stop

    @property
    def size(self) -> int:
        return -(-(self.stop - self.start) // self.step)

    def part(self, first: int, stop: int) -> Split:
        """The splits ``first <= i < stop`` of this range, counted from its beginning,
        with their names.

        >>> Split(0, 10, 13, ("a", "b", "c")).part(1, 3)
        Split(repetition=0, start=11, stop=13, names=('b', 'c'), step=1)
        >>> Split(0, 10, 19, step=4).part(1, 3)
        Split(repetition=0, start=14, stop=19, names=(), step=4)
        """
        start, end = self.start + first * self.step, min(self.stop, self.start + stop * self.step)
        return Split(self.repetition, start, max(start, end), self.names[first:stop], self.step)


class IndexSplits(Struct, frozen=True, tag="index"):
    """A source whose splits are the indices ``0 .. count - 1``; ``count=None`` never
    ends.
    """

    count: int | None


class FileSplits(Struct, frozen=True, tag="files"):
    """A source whose splits are the files that match the patterns, listed anew for each
    repetition.

    ``seed`` is the user's, or None.
    """

    patterns: tuple[str, ...]
    shuffle: bool
    seed: int | None

    def ordered(self, names: Iterable[str], seed: int, turn: int) -> tuple[str, ...]:
        """The order of the files that were found: by name or, with ``shuffle``, a
        permutation.

        It follows from the user's seed, or else from ``seed``, and from the ``turn``,
        as in ``turn_of``. Dispatchers and local iterators call this, so that both give
        the same order.

        >>> FileSplits(("*.txt",), shuffle=False, seed=None).ordered(["b.txt", "a.txt"], seed=1, turn=0)
        ('a.txt', 'b.txt')
        """
        found = sorted(names)
        if self.shuffle:
            base = seed if self.seed is None else self.seed
            random.Random(base * 1_000_003 + turn).shuffle(found)  # noqa: S311 - an order, not a secret
        return tuple(found)


def turn_of(iteration: int, repetition: int) -> int:
    """One number for a repetition within an iteration: what is drawn anew each time
    mixes it into its seed.

    >>> turn_of(0, 3), turn_of(1, 0) == turn_of(0, 1)
    (3, False)
    """
    return repetition + (iteration << 32)


SplitSource = IndexSplits | FileSplits


class SplitProvider(Protocol):
    """Where a source iterator gets its splits from. One provider per source, in
    left-to-right order of the pipeline.
    """

    def next_split(self) -> Split | None:
        """The next range of splits of the current repetition; None at its end, again
        and again until ``reset``.

        The splits and their order are those of the ledger. How many come at a time is
        the provider's to say, and may differ when they are asked for again.
        """

    def reset(self) -> None:
        """Go on to the next repetition; what is left of the current one is skipped."""

    def state(self) -> Any:
        """The exact place in the ledger; ``restore(state())`` on a provider with the
        same ledger continues here.
        """

    def restore(self, state: Any) -> None:
        """Continue at the place that ``state`` told."""
