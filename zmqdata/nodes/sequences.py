"""The sources made of Python objects and of random numbers. Reading them belongs to
``iterators``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.nodes.base import AT_ITS_PLACE, ByIdentity, Infer, Node, function_name
from zmqdata.nodes.sources import FromGenerator
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Random(Node):
    """Random integers below 2**32, without end. A split is an index: no two workers
    draw the same number.
    """

    seed: int | None = None
    rerandomize_each_iteration: bool = False
    operation: ClassVar[str] = "random"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def argument(self) -> str:
        return "" if self.seed is None else f"seed={self.seed}"

    @property
    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(None)

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class FromSource(ByIdentity, Node):
    """``sequence[i]`` for each i below its length, in order or in a permutation."""

    sequence: Any = field(repr=False)
    shuffle: bool = False
    seed: int | None = None
    reshuffle_each_iteration: bool = True
    operation: ClassVar[str] = "from_source"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def argument(self) -> str:
        return type(self.sequence).__name__ + (", shuffle" if self.shuffle else "")

    @property
    def cardinality(self) -> int:
        return len(self.sequence)

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(len(self.sequence))


@dataclass(frozen=True, kw_only=True, eq=False)
class FromList(FromSource):
    """The elements of a list, whose spec was found when it was checked."""

    elements_spec: Any
    operation: ClassVar[str] = "from_list"

    @property
    def argument(self) -> str:
        return f"{len(self.sequence)} elements"

    def spec(self, infer: Infer) -> Any:
        return self.elements_spec


@dataclass(frozen=True)
class Reiterated:
    """A function that begins anew with an iterable each time it is called."""

    iterable: Iterable[Any]

    def __call__(self) -> Iterable[Any]:
        return iter(self.iterable)

    @property
    def __name__(self) -> str:
        return type(self.iterable).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class FromIterable(ByIdentity, FromGenerator):
    """What an iterable yields, each time from its beginning."""

    generator: Callable[..., Iterable[Any]]
    operation: ClassVar[str] = "from_iterable"

    @property
    def argument(self) -> str:
        return function_name(self.generator)

    @property
    def cardinality(self) -> int:
        iterable = self.generator.iterable if isinstance(self.generator, Reiterated) else None
        return len(iterable) if isinstance(iterable, Sized) else UNKNOWN_CARDINALITY
