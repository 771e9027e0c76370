"""Nodes with an input that pass on or drop single elements. Running belongs to
``iterators``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from zmqdata.elements.nesting import leaves_of
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.nodes.base import IN_LABEL, NOTHING_AGAIN, ByIdentity
from zmqdata.nodes.transforms import Calling, Unary
from zmqdata.peeking import peek

SHARD_HINT = -1
"""Value for both arguments of ``shard``: the service replaces it by the number of
workers and the index of the worker.
"""


@dataclass(frozen=True, kw_only=True)
class Shard(Unary):
    """Yields every ``num_shards``-th element, from number ``index`` on."""

    num_shards: int
    """Number of shards, or ``SHARD_HINT``."""
    index: int
    """Index of the shard, or ``SHARD_HINT``."""
    operation: ClassVar[str] = "shard"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return "SHARD_HINT, SHARD_HINT" if self.is_hint else f"{self.num_shards}, {self.index}"

    @property
    def is_hint(self) -> bool:
        return self.num_shards == SHARD_HINT

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        if self.is_hint:
            return UNKNOWN_CARDINALITY
        return len(range(self.index, count, self.num_shards))


@dataclass(frozen=True, kw_only=True)
class StaticShard(Shard):
    """Shard of a worker, inserted into a pipeline by the service under a static
    sharding policy.
    """

    of_files: bool = False
    """True if its elements are file names, of which each shard needs at least one."""
    seed: int | None = None
    """Seed of all operations below it, so that random orders there are the same for all
    shards; None: the seed of the task.
    """


@dataclass(frozen=True, kw_only=True)
class TakeWhile(Unary):
    """Yields the elements before the first element for which a predicate is false."""

    predicate: Callable[..., Any] = field(metadata=IN_LABEL)
    """Takes an element and returns a bool."""
    operation: ClassVar[str] = "take_while"
    cardinality: ClassVar[int] = UNKNOWN_CARDINALITY
    restoring: ClassVar[str] = NOTHING_AGAIN


@dataclass(frozen=True, kw_only=True)
class Unique(Unary):
    """Yields the elements that did not come before."""

    operation: ClassVar[str] = "unique"
    cardinality: ClassVar[int] = UNKNOWN_CARDINALITY
    restoring: ClassVar[str] = NOTHING_AGAIN
    state_growth: ClassVar[str] = "16 bytes for each distinct element"


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan(ByIdentity, Calling):
    """Yields the second result of a function of a running state and the element; the
    first result is the next state.
    """

    initial_state: Any = field(repr=False)
    """State for the first element."""
    function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Takes a state and an element; returns the next state and a result."""
    operation: ClassVar[str] = "scan"
    restoring: ClassVar[str] = (
        "repeats no work if its state consists of arrays, numbers and texts; otherwise runs "
        "everything again"
    )

    @property
    def state_bytes(self) -> int:
        sizes: list[int] = [peek(leaf, "nbytes", 8) for leaf in leaves_of(self.initial_state)]
        return 8 + sum(sizes) + 16 * len(sizes)


@dataclass(frozen=True, kw_only=True)
class IgnoreErrors(Unary):
    """Yields the elements that do not fail."""

    log_warning: bool = False
    """True to log each element that is left out."""
    operation: ClassVar[str] = "ignore_errors"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        return count if count in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class AssertCardinality(Unary):
    """Yields its input, and fails unless it has ``expected`` elements."""

    expected: int = field(metadata=IN_LABEL)
    """Expected number of elements."""
    operation: ClassVar[str] = "assert_cardinality"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        return self.expected


@dataclass(frozen=True, kw_only=True)
class RejectionResample(Calling):
    """Yields pairs of class and element, and drops elements until the classes have the
    target distribution.
    """

    function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Returns the class of an element."""
    target: tuple[float, ...]
    """Wanted probability of each class."""
    initial: tuple[float, ...] | None = None
    """Probability of each class in the input; None: estimated at run time."""
    seed: int | None = None
    """Seed of the user; None: that of the context."""
    operation: ClassVar[str] = "rejection_resample"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def state_bytes(self) -> int:
        return 16 + 4 * len(self.target)

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        return (
            count if self.keeps_all or count in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY
        )

    @property
    def keeps_all(self) -> bool:
        """True if the input has the target distribution, so that no element is
        dropped.
        """
        return self.initial == self.target and all(self.target)
