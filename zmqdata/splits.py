"""Splits and descriptions of sources, as plain data that the dispatcher uses without
running user code.

The order of a source's splits is computed here from its description and a seed, for the
dispatcher and for local iterators.

Leasing belongs to ``core.ledger``, and reading sources belongs to ``operations``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from msgspec import Struct

MOST_SPLITS = 1 << 53
"""Maximum number of splits of a source; stands for any number."""


class Split(Struct, frozen=True, array_like=True):
    """A range of consecutive splits of one source or, when ``start == stop``, the end
    of a repetition.

    A split is an index into its source: a row, value or file number
    ``start <= i < stop``. With a ``step``, only every ``step``-th index belongs to the
    range.
    """

    repetition: int
    """Number of the repetition of the source."""
    start: int
    """The first index."""
    stop: int
    """The index after the last index."""
    names: tuple[str, ...] = ()
    """Names of the splits, in order, for a source with named splits (``FileSplits``,
    ``ChunkSplits``), in the portable form of ``filenames``.
    """
    step: int = 1
    """Distance between consecutive indices of the range."""

    @property
    def is_end(self) -> bool:
        return self.start == self.stop

    """True if this marks the end of a repetition."""

    @property
    def size(self) -> int:
        return -(-(self.stop - self.start) // self.step)

    def part(self, first: int, stop: int) -> Split:
        """Return the splits ``first <= i < stop`` of this range, counted from its
        beginning, with their names.

        >>> Split(0, 10, 13, ("a", "b", "c")).part(1, 3)
        Split(repetition=0, start=11, stop=13, names=('b', 'c'), step=1)
        >>> Split(0, 10, 19, step=4).part(1, 3)
        Split(repetition=0, start=14, stop=19, names=(), step=4)
        """
        start, end = self.start + first * self.step, min(self.stop, self.start + stop * self.step)
        return Split(self.repetition, start, max(start, end), self.names[first:stop], self.step)


class IndexSplits(Struct, frozen=True, tag="index"):
    """A source whose splits are the indices ``0 .. count - 1``."""

    count: int | None
    """Number of splits, or None for an infinite source."""


class FileSplits(Struct, frozen=True, tag="files"):
    """A source whose splits are the files that match patterns, or a part of them,
    listed again for each repetition.
    """

    patterns: tuple[str, ...]
    """File names and glob patterns, in the portable form of ``filenames``."""
    shuffle: bool
    """True if each repetition has its own order."""
    seed: int | None
    """The user's seed, or None."""
    drawn_from: int = 0
    """Size of the buffer of a shuffle that reads the names; 0 if none does."""
    draw_seed: int | None = None
    """The user's seed of that shuffle, or None."""
    redraws: bool = True
    """True if that shuffle has another order in each repetition."""
    first: int = 0
    """First place, in the order of a repetition, of the part that is read."""
    stop: int = MOST_SPLITS
    """The place after the last place of this part."""
    options: str = ""
    """Arguments of the client of a store, as JSON; "" for none."""

    def ordered(self, names: Iterable[str], seed: int, turn: int) -> tuple[str, ...]:
        """Return the part of the names in the order of a turn: sorted by name or, with
        ``shuffle``, permuted, and then drawn from the buffer of a shuffle that reads
        them.

        The permutation follows from the user's seed, or else from ``seed``, and from
        the ``turn`` as returned by ``turn_of``. Dispatchers and local iterators both
        call this, so both give the same order.

        >>> files = FileSplits(("*.txt",), shuffle=False, seed=None)
        >>> files.ordered(["b.txt", "a.txt"], seed=1, turn=0)
        ('a.txt', 'b.txt')
        """
        found = sorted(names)
        if self.shuffle:
            base = seed if self.seed is None else self.seed
            random.Random(base * 1_000_003 + turn).shuffle(found)  # noqa: S311 - an order, not a secret
        if self.drawn_from:
            base = seed if self.draw_seed is None else self.draw_seed
            own = base * 1_000_003 + (turn if self.redraws else 0)
            found = list(_drawn(found, self.drawn_from, random.Random(f"draws {own}")))  # noqa: S311 - an order, not a secret
        return tuple(found[self.first : self.stop])


class ChunkSplits(Struct, frozen=True, tag="chunks"):
    """A source whose splits are the chunks of a distributed save, which may still be in
    progress. A chunk is handed out once it is committed. A repetition ends once the
    save has ended.
    """

    path: str
    """Folder of the save."""
    save_id: str
    """Id of the save, to detect that it was replaced."""


MOST_STREAMS = 1 << 20
"""Maximum number of streams of a save whose chunks are splits."""
FIRST_CHUNK = 1 << 52
"""Number of the first chunk of the first stream. No other split of a save has a number
that large, so no state of one kind passes for a state of the other.
"""
_CHUNK = re.compile("chunk_(0|[1-9][0-9]{0,6})_(0|[1-9][0-9]{0,8})_(?:0|[1-9][0-9]{0,17})")


def chunk_number(name: str) -> int | None:
    """Return the number of the split that is a chunk, from the chunk's name; None if
    the name is not that of a chunk, or has a number beyond the limits.

    Every dispatcher gives a chunk the same number, whenever it finds the chunk.

    >>> chunk_number("chunk_3_1_25"), chunk_number("chunk_3")
    (4503599628419075, None)
    """
    found = _CHUNK.fullmatch(name)
    if found is None or int(found[1]) >= MOST_STREAMS:
        return None
    return FIRST_CHUNK + int(found[2]) * MOST_STREAMS + int(found[1])


def _drawn(names: list[str], size: int, draw: random.Random) -> Iterator[str]:
    """Yield names as they are drawn from a buffer of this size."""
    buffer, rest = names[:size], names[size:]
    for name in rest:
        at = draw.randrange(size)
        yield buffer[at]
        buffer[at] = name
    draw.shuffle(buffer)
    yield from buffer


def turn_of(iteration: int, repetition: int) -> int:
    """Return a single number for a repetition within an iteration.

    Everything that is drawn again in each repetition mixes this number into its seed.

    >>> turn_of(0, 3), turn_of(1, 0) == turn_of(0, 1)
    (3, False)
    """
    return repetition + (iteration << 32)


SplitSource = IndexSplits | FileSplits | ChunkSplits


class SplitProvider(Protocol):
    """The provider of splits for a source iterator. Each source has its own provider,
    in left-to-right order of the pipeline.
    """

    def next_split(self) -> Split | None:
        """Return the next range of splits of the current repetition; None at its end,
        on every call until ``reset``.

        The splits and their order are exactly the ledger's. The provider chooses how
        many splits a range holds, and may choose differently when the same splits are
        requested again.
        """

    def reset(self) -> None:
        """Advance to the next repetition; the remaining splits of the current
        repetition are skipped.
        """

    def state(self) -> Any:
        """Return the exact position in the ledger. After ``restore(state())``, a
        provider with the same ledger continues at this position.
        """

    def restore(self, state: Any) -> None:
        """Continue at the position that ``state`` returned."""
