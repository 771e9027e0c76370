"""The nodes that take from several inputs by choice, and the endless sources. Running
them belongs to ``iterators``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    TensorSpec,
    merge_specs,
)
from zmqdata.nodes.base import AT_ITS_PLACE, NOTHING_AGAIN, Infer, Node
from zmqdata.nodes.transforms import Unary
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Counter(Node):
    """``start``, ``start + step`` and so on, without end; each iterator counts for
    itself.
    """

    start: Any = 0
    step: Any = 1
    dtype: str = "int64"
    operation: ClassVar[str] = "counter"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def argument(self) -> str:
        return f"{self.start}, {self.step}"

    @property
    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(None)

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), self.dtype)


@dataclass(frozen=True, kw_only=True)
class RandomChoices(Node):
    """Numbers from 0 on, drawn for ever with these weights."""

    weights: tuple[float, ...]
    seed: int | None = None
    rerandomize: bool = False
    operation: ClassVar[str] = "choices"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.int64)


@dataclass(frozen=True, kw_only=True)
class WeightedChoices(Unary):
    """A number from 0 on for each element of its input, which holds the weights for
    this draw.
    """

    count: int
    seed: int | None = None
    rerandomize: bool = False
    operation: ClassVar[str] = "choices"
    restoring: ClassVar[str] = NOTHING_AGAIN

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.int64)


@dataclass(frozen=True, kw_only=True)
class Choose(Node):
    """From its inputs, one element at a time, the one that ``choices`` names.

    Attributes:
        choices: yields the number of an input. It is no input of its own: it is not
            split, each worker runs all of it.
        stop_on_empty: ends when the chosen input has ended; else that choice is passed
            over.
        name: the operation in the user's code.
    """

    choices: Node
    stop_on_empty: bool
    name: str
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
        return reduce(merge_specs, map(infer, self.inputs))
