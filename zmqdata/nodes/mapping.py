"""Variants of map. Running belongs to ``iterators``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.nodes.base import Infer, function_name
from zmqdata.nodes.transforms import Interleave, Map, unless_infinite


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Base to put before the node of a random map: the origin of its draws."""

    seed: int | None = None
    """Seed of the user; None: that of the context."""
    rerandomize_each_iteration: bool = True
    """True to draw anew in each repetition."""
    operation: ClassVar[str] = "random_map"

    @property
    def draws_once(self) -> bool:
        return self.seed is None and not self.rerandomize_each_iteration


@dataclass(frozen=True, kw_only=True)
class RandomMap(Drawing, Map):
    """Calls a function with each element and a random generator that depends on seed,
    repetition and the element's number.
    """

    own_state: ClassVar[int] = 8


@dataclass(frozen=True, kw_only=True)
class MarkingMap(Map):
    """Map by a function of ours, whose results match the spec without a cast."""

    @property
    def declared_spec(self) -> Any:
        return None

    def spec(self, infer: Infer) -> Any:
        return self.output_spec


@dataclass(frozen=True, kw_only=True)
class GuardedMap(Map):
    """Map that retries, or leaves elements out, when its function fails."""

    on_error: str = "raise"
    """``"raise"``, ``"skip"`` or ``"retry"``."""
    retries: int = 0
    """Most retries for an element."""
    max_errors: int | None = None
    """Most elements that may be left out; None: any number."""
    numbered: ClassVar[str] = ""
    """Word for what its function is called for, which errors put before the number, as
    in "batch 3"; "" if errors state no number.
    """
    own_state: ClassVar[int] = 8

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if self.on_error != "skip" or count in (0, INFINITE_CARDINALITY):
            return count
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class GuardedRandomMap(Drawing, GuardedMap):
    """Random map that retries with the same draws, or leaves elements out. Fields as in
    ``RandomMap`` and ``GuardedMap``.
    """


@dataclass(frozen=True, kw_only=True)
class OnThreads:
    """Base to put before the node of an operation on several threads."""

    num_parallel_calls: int
    """Number of concurrent calls; AUTOTUNE lets zmqdata decide."""
    deterministic: bool | None = None
    """True to yield in the order of the input, False in the order of completion; None:
    as the options say.
    """
    pulls_ahead: ClassVar[bool] = True

    @property
    def is_deterministic(self) -> bool:
        return self.deterministic is not False


@dataclass(frozen=True, kw_only=True)
class ParallelMap(OnThreads, GuardedMap):
    """Map on several threads."""

    restoring: ClassVar[str] = "pulls up to 32 elements again, and repeats the calls in flight"
    own_state: ClassVar[int] = 32


@dataclass(frozen=True, kw_only=True)
class Collate(GuardedMap):
    """Calls a function with each list of elements that ``ListBatch`` yields. It is a
    guarded map because guarded maps number their elements, and its errors name a batch.
    """

    operation: ClassVar[str] = "batch"
    numbered: ClassVar[str] = "batch"

    @property
    def argument(self) -> str:
        return f"collate_fn={function_name(self.function)}"


@dataclass(frozen=True, kw_only=True)
class ParallelCollate(Collate, ParallelMap):
    """``Collate`` on several threads."""


@dataclass(frozen=True, kw_only=True)
class ParallelRandomMap(Drawing, ParallelMap):
    """Random map on several threads. Fields as in ``RandomMap`` and ``ParallelMap``."""


@dataclass(frozen=True, kw_only=True)
class ParallelInterleave(OnThreads, Interleave):
    """Interleave whose datasets are read ahead on several threads."""

    restoring: ClassVar[str] = (
        "reopens up to 32 datasets, and pulls up to 32 elements of each again"
    )

    @property
    def cardinality(self) -> int:
        # As in tf.data, which knows it for this interleave only.
        return unless_infinite(self.input)
