"""Nodes that take from several inputs by choice, and endless sources. Running belongs
to ``iterators``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    TensorSpec,
    merge_joined_specs,
)
from zmqdata.nodes.base import AT_ITS_PLACE, IN_LABEL, NOTHING_AGAIN, Infer, Node
from zmqdata.nodes.transforms import Unary
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Counter(Node):
    """Yields ``start``, ``start + step`` and so on, without end; each iterator counts
    for itself.
    """

    start: Any = field(default=0, metadata=IN_LABEL)
    """First number."""
    step: Any = field(default=1, metadata=IN_LABEL)
    """Difference between consecutive numbers."""
    dtype: str = "int64"
    """Dtype of the numbers."""
    operation: ClassVar[str] = "counter"
    cardinality: ClassVar[int] = INFINITE_CARDINALITY
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(None)

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), self.dtype)


@dataclass(frozen=True, kw_only=True)
class DrawnChoices(Node):
    """Base of the nodes that draw numbers from 0 on."""

    seed: int | None = None
    """Seed of the user; None: that of the context."""
    rerandomize: bool = False
    """True to draw anew in each repetition."""

    @property
    def draws_once(self) -> bool:
        return self.seed is None and not self.rerandomize

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.int64)


@dataclass(frozen=True, kw_only=True)
class RandomChoices(DrawnChoices):
    """Draws without end, with fixed weights."""

    weights: tuple[float, ...]
    """Weight of each number."""
    operation: ClassVar[str] = "choices"
    cardinality: ClassVar[int] = INFINITE_CARDINALITY
    restoring: ClassVar[str] = AT_ITS_PLACE


@dataclass(frozen=True, kw_only=True)
class WeightedChoices(DrawnChoices, Unary):
    """Draws a number for each element of its input, which holds the weights for this
    draw.
    """

    count: int
    """Number of weights."""
    operation: ClassVar[str] = "choices"
    batch_rows: ClassVar[None] = None
    restoring: ClassVar[str] = NOTHING_AGAIN


@dataclass(frozen=True, kw_only=True)
class Choose(Node):
    """Takes the next element from the input that ``choices`` names."""

    choices: Node
    """Yields the number of an input. It is not an input itself: it is never split, and
    each worker runs all of it.
    """
    stop_on_empty: bool
    """True to end when the chosen input has ended; False to skip that choice."""
    name: str
    """Name of the operation in the user's code."""
    operation: ClassVar[str] = "choose_from_datasets"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def label(self) -> str:
        return f"{self.name}({len(self.inputs)} datasets)" + (
            f" at {self.site}" if self.site else ""
        )

    @property
    def apart(self) -> tuple[Node, ...]:
        return (self.choices,)

    @property
    def state_bytes(self) -> int:
        return 8 + 2 * len(self.inputs)

    @property
    def cardinality(self) -> int:
        counts = [node.cardinality for node in self.inputs]
        if len(counts) == 1 and isinstance(self.choices, RandomChoices):
            return counts[0]
        endless = [count == INFINITE_CARDINALITY for count in counts]
        if self.choices.cardinality == INFINITE_CARDINALITY and (
            all(endless) or (any(endless) and not self.stop_on_empty)
        ):
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        specs = map(infer, self.inputs)
        return merge_joined_specs(specs, lambda: [node.cardinality for node in self.inputs])
