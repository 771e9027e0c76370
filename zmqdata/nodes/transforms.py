"""The nodes with one input. Running them belongs to ``iterators``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    TensorSpec,
    with_leading_axis,
)
from zmqdata.nodes.base import NOTHING_AGAIN, Infer, Node, function_name


@dataclass(frozen=True, kw_only=True)
class Unary(Node):
    """An operation with one input whose elements and number it keeps, unless a subclass
    says otherwise.
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
class Map(Unary):
    """A function of each element."""

    function: Callable[..., Any]
    output_spec: Any = None
    operation: ClassVar[str] = "map"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def argument(self) -> str:
        return function_name(self.function)

    def spec(self, infer: Infer) -> Any:
        return self.output_spec


@dataclass(frozen=True, kw_only=True)
class Filter(Unary):
    """The elements for which a predicate is true."""

    predicate: Callable[..., Any]
    operation: ClassVar[str] = "filter"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def argument(self) -> str:
        return function_name(self.predicate)

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class FlatMap(Unary):
    """The elements of the datasets that a function makes of each element, one dataset
    after the other.
    """

    function: Callable[..., Any]
    operation: ClassVar[str] = "flat_map"
    own_state: ClassVar[int] = 16
    state_growth: ClassVar[str] = "that of the dataset being read"
    restoring: ClassVar[str] = (
        "pulls up to 16 elements again, and calls the function for those being read"
    )

    @property
    def argument(self) -> str:
        return function_name(self.function)

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        return None


@dataclass(frozen=True, kw_only=True)
class Interleave(FlatMap):
    """As FlatMap, from ``cycle_length`` datasets in turn, ``block_length`` elements at
    a time.
    """

    cycle_length: int
    block_length: int = 1
    operation: ClassVar[str] = "interleave"
    state_growth: ClassVar[str] = "those of the datasets being read"

    @property
    def state_bytes(self) -> int:
        return 16 * self.cycle_length


@dataclass(frozen=True, kw_only=True)
class Batch(Unary):
    """Stacks consecutive elements."""

    batch_size: int
    drop_remainder: bool = False
    operation: ClassVar[str] = "batch"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def argument(self) -> str:
        return str(self.batch_size)

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        return count // self.batch_size if self.drop_remainder else -(-count // self.batch_size)

    def spec(self, infer: Infer) -> Any:
        return with_leading_axis(
            infer(self.input), self.batch_size if self.drop_remainder else None
        )


@dataclass(frozen=True, kw_only=True)
class Shuffle(Unary):
    """Draws from a buffer of ``buffer_size`` elements; None holds all of them."""

    buffer_size: int | None
    seed: int | None = None
    reshuffle_each_iteration: bool = True
    operation: ClassVar[str] = "shuffle"
    restoring: ClassVar[str] = "pulls up to 6 buffers of elements again"

    @property
    def state_bytes(self) -> int:
        return 16 + 4 * (self.buffer_size or max(0, self.input.cardinality))

    @property
    def argument(self) -> str:
        return "all" if self.buffer_size is None else str(self.buffer_size)


@dataclass(frozen=True, kw_only=True)
class Repeat(Unary):
    """Its input ``count`` times; -1 is for ever."""

    count: int
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
    """At most the first ``count`` elements; -1 is all."""

    count: int
    operation: ClassVar[str] = "take"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return str(self.count)

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if self.count < 0 or count == UNKNOWN_CARDINALITY:
            return count
        return self.count if count == INFINITE_CARDINALITY else min(count, self.count)


@dataclass(frozen=True, kw_only=True)
class Skip(Unary):
    """All but the first ``count`` elements; -1 leaves nothing."""

    count: int
    operation: ClassVar[str] = "skip"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return str(self.count)

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        return 0 if self.count < 0 else max(0, count - self.count)


@dataclass(frozen=True, kw_only=True)
class Enumerate(Unary):
    """Pairs of a running number and the element."""

    start: int = 0
    operation: ClassVar[str] = "enumerate"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return str(self.start)

    def spec(self, infer: Infer) -> Any:
        return (TensorSpec((), np.int64), infer(self.input))


@dataclass(frozen=True, kw_only=True)
class Prefetch(Unary):
    """Prepares up to ``buffer_size`` elements ahead, in a thread; AUTOTUNE leaves the
    number to zmqdata.
    """

    buffer_size: int
    operation: ClassVar[str] = "prefetch"
    restoring: ClassVar[str] = "pulls up to 32 elements again"

    @property
    def argument(self) -> str:
        return str(self.buffer_size)
