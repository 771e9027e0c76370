"""Nodes with an input. Running belongs to ``iterators``."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import replace

from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    TensorSpec,
    with_leading_axis,
)
from zmqdata.nodes.base import IN_LABEL, NOTHING_AGAIN, Infer, Node, Ordinal, lineage
from zmqdata.peeking import peek
from zmqdata.splits import MOST_SPLITS, FileSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Unary(Node):
    """Operation with an input that preserves its spec and cardinality, unless a
    subclass overrides them.
    """

    @property
    def input(self) -> Node:
        return self.inputs[0]

    @property
    def cardinality(self) -> int:
        return self.input.cardinality

    def spec(self, infer: Infer) -> Any:
        return infer(self.input)


@dataclass(frozen=True, kw_only=True)
class Calling(Unary):
    """Operation whose elements a function of the user makes, so that their spec is the
    declared one, or follows from running the function.
    """

    def spec(self, infer: Infer) -> Any:
        return self.declared_spec


def unless_infinite(node: Node) -> int:
    """Return the cardinality of an operation that yields an unknown number of elements
    for a finite input, and never ends before an infinite one.

    >>> from zmqdata.nodes.sources import Range
    >>> numbers = Range(start=0, stop=3)
    >>> unless_infinite(numbers), unless_infinite(Repeat(inputs=(numbers,), count=-1))
    (-2, -1)
    """
    endless = node.cardinality == INFINITE_CARDINALITY
    return INFINITE_CARDINALITY if endless else UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class Map(Calling):
    """Calls a function with each element."""

    function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Takes an element and returns an element."""
    output_spec: Any = None
    """Spec of the results; None: inferred."""
    operation: ClassVar[str] = "map"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def batch_rows(self) -> int | None:
        return _rows_made(self.function, self.input.batch_rows)

    @property
    def declared_spec(self) -> Any:
        return self.output_spec


ROWS_MADE = "zmqdata_batch_rows"
"""Attribute of a function that makes batches: their number of rows, 0 if it varies."""


def _rows_made(function: Callable[..., Any], otherwise: int | None) -> int | None:
    """Return ``Node.batch_rows`` for the results of a function."""
    rows = peek(function, ROWS_MADE)
    return rows if isinstance(rows, int) else otherwise


@dataclass(frozen=True, kw_only=True)
class Filter(Unary):
    """Yields the elements for which a predicate is true."""

    predicate: Callable[..., Any] = field(metadata=IN_LABEL)
    """Takes an element and returns a bool."""
    operation: ClassVar[str] = "filter"
    cardinality: ClassVar[int] = UNKNOWN_CARDINALITY
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True)
class FlatMap(Calling):
    """Yields the elements of the datasets that a function makes from each element, one
    dataset after the other.
    """

    function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Takes an element and returns a dataset."""
    operation: ClassVar[str] = "flat_map"
    draws_once: ClassVar[bool] = True
    own_state: ClassVar[int] = 16
    state_growth: ClassVar[str] = "the state of the dataset being read"
    restoring: ClassVar[str] = (
        "pulls up to 16 elements again, and calls the function for the elements being read"
    )

    @property
    def batch_rows(self) -> int | None:
        return _rows_made(self.function, None)

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class Interleave(FlatMap):
    """``FlatMap`` that reads ``cycle_length`` datasets in turn, ``block_length``
    elements at a time.
    """

    cycle_length: int
    """Number of datasets read in turn."""
    block_length: int = 1
    """Number of consecutive elements from a dataset."""
    operation: ClassVar[str] = "interleave"
    state_growth: ClassVar[str] = "the states of the datasets being read"

    @property
    def state_bytes(self) -> int:
        return 16 * self.cycle_length


@dataclass(frozen=True, kw_only=True)
class Batch(Unary):
    """Stacks consecutive elements."""

    batch_size: int = field(metadata=IN_LABEL)
    """Number of elements in a batch."""
    drop_remainder: bool = False
    """True to drop an incomplete last batch."""
    operation: ClassVar[str] = "batch"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        return count // self.batch_size if self.drop_remainder else -(-count // self.batch_size)

    @property
    def batch_rows(self) -> int:
        within = self.input.batch_rows
        return self.batch_size * (1 if within is None else within)

    def spec(self, infer: Infer) -> Any:
        return with_leading_axis(
            infer(self.input), self.batch_size if self.drop_remainder else None
        )


@dataclass(frozen=True, kw_only=True)
class Shuffle(Unary):
    """Draws from a buffer of elements."""

    buffer_size: int | None
    """Number of elements in the buffer; None holds all."""
    seed: int | None = None
    """Seed of the order; None: that of the context."""
    reshuffle_each_iteration: bool = True
    """True to shuffle anew in each repetition."""
    ordinal: Ordinal = field(default_factory=Ordinal, compare=False, repr=False)
    """Number of its order among those of the program, if it is drawn once."""
    operation: ClassVar[str] = "shuffle"
    restoring: ClassVar[str] = "pulls up to 6 buffers of elements again"

    @property
    def kept_order(self) -> Ordinal | None:
        return None if self.reshuffle_each_iteration or self.seed is not None else self.ordinal

    @property
    def state_bytes(self) -> int:
        return 16 + 4 * (self.buffer_size or max(0, self.input.cardinality))

    @property
    def argument(self) -> str:
        return "all" if self.buffer_size is None else str(self.buffer_size)

    def ordered_splits(self, source: SplitSource, fixed_seed: int) -> SplitSource:
        if not isinstance(source, FileSplits):
            return source
        return self.drawn_names(source, fixed_seed, (lineage(self), self.ordinal.number))

    def drawn_names(
        self, source: FileSplits, fixed_seed: int, place: tuple[int, ...]
    ) -> FileSplits:
        """Return the splits of listed files in the order in which it draws their names.

        Args:
            source: the splits of the files.
            fixed_seed: seed of the orders that are drawn once.
            place: what tells its order from the others that are drawn once.
        """
        drawn = self.seed
        if self.kept_order is not None:
            drawn = zlib.crc32(",".join(map(str, (fixed_seed, *place))).encode())
        return replace(
            source,
            drawn_from=self.buffer_size or MOST_SPLITS,
            draw_seed=drawn,
            redraws=self.reshuffle_each_iteration,
        )


@dataclass(frozen=True, kw_only=True)
class Repeat(Unary):
    """Yields its input several times."""

    count: int
    """Number of passes; -1 repeats without end."""
    operation: ClassVar[str] = "repeat"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return "" if self.count < 0 else str(self.count)

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count == 0 or self.count == 0:
            return 0
        if self.count < 0 or count == INFINITE_CARDINALITY:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if count == UNKNOWN_CARDINALITY else count * self.count


@dataclass(frozen=True, kw_only=True)
class Take(Unary):
    """Yields the first elements."""

    count: int = field(metadata=IN_LABEL)
    """Most elements to yield; -1 yields all."""
    operation: ClassVar[str] = "take"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if self.count < 0 or count == UNKNOWN_CARDINALITY:
            return count
        return self.count if count == INFINITE_CARDINALITY else min(count, self.count)


@dataclass(frozen=True, kw_only=True)
class Skip(Unary):
    """Drops the first elements."""

    count: int = field(metadata=IN_LABEL)
    """Number of elements to drop; -1 drops all."""
    operation: ClassVar[str] = "skip"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        return 0 if self.count < 0 else max(0, count - self.count)


@dataclass(frozen=True, kw_only=True)
class Enumerate(Unary):
    """Yields pairs of a running number and the element."""

    start: int = field(default=0, metadata=IN_LABEL)
    """First number."""
    operation: ClassVar[str] = "enumerate"
    restoring: ClassVar[str] = NOTHING_AGAIN

    def spec(self, infer: Infer) -> Any:
        return (TensorSpec((), np.int64), infer(self.input))


@dataclass(frozen=True, kw_only=True)
class Prefetch(Unary):
    """Prepares elements ahead, on a thread."""

    buffer_size: int = field(metadata=IN_LABEL)
    """Most elements ahead; AUTOTUNE lets zmqdata decide, 0 disables prefetching."""
    operation: ClassVar[str] = "prefetch"
    pulls_ahead: ClassVar[bool] = True
    restoring: ClassVar[str] = "pulls up to 32 elements again"
