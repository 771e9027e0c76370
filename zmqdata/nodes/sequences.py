"""Sources made of Python objects and of random numbers. Reading belongs to
``iterators``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.nodes.base import AT_ITS_PLACE, ByIdentity, Infer, Node, Ordinal
from zmqdata.nodes.sources import FromGenerator
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Random(Node):
    """Yields random integers below 2**32, without end. A split is an index, so no two
    workers draw the same number.
    """

    seed: int | None = None
    """Seed of the user; None: that of the context."""
    rerandomize_each_iteration: bool = False
    """True to draw anew in each repetition."""
    operation: ClassVar[str] = "random"
    cardinality: ClassVar[int] = INFINITE_CARDINALITY
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def argument(self) -> str:
        return "" if self.seed is None else f"seed={self.seed}"

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(None)

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class FromSource(ByIdentity, Node):
    """Yields ``sequence[i]`` for each i below its length, in order or in a
    permutation.
    """

    sequence: Any = field(repr=False)
    """Object with a length, indexed by integers."""
    shuffle: bool = False
    """True to yield in a permutation."""
    seed: int | None = None
    """Seed of the permutation; None: that of the context."""
    reshuffle_each_iteration: bool = True
    """True to permute anew in each repetition."""
    ordinal: Ordinal = field(default_factory=Ordinal, compare=False, repr=False)
    """Number of its order among those of the program, if it is drawn once."""
    operation: ClassVar[str] = "from_source"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def kept_order(self) -> Ordinal | None:
        is_kept = self.shuffle and self.seed is None and not self.reshuffle_each_iteration
        return self.ordinal if is_kept else None

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
    """Yields the elements of a list."""

    elements_spec: Any
    """Spec of the elements, found when the list was checked."""
    operation: ClassVar[str] = "from_list"

    @property
    def argument(self) -> str:
        return f"{len(self.sequence)} elements"

    def spec(self, infer: Infer) -> Any:
        return self.elements_spec


@dataclass(frozen=True)
class Reiterated:
    """Callable that begins anew with an iterable on each call."""

    iterable: Iterable[Any]
    """The iterable."""

    def __call__(self) -> Iterable[Any]:
        return iter(self.iterable)

    @property
    def __name__(self) -> str:
        return type(self.iterable).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class FromIterable(ByIdentity, FromGenerator):
    """Yields the elements of an iterable, each time from its beginning."""

    operation: ClassVar[str] = "from_iterable"

    @property
    def cardinality(self) -> int:
        iterable = self.generator.iterable if isinstance(self.generator, Reiterated) else None
        return len(iterable) if isinstance(iterable, Sized) else UNKNOWN_CARDINALITY
