"""The nodes with one input that pass elements on or not, one by one. Running them
belongs to ``iterators``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import optree

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, is_list
from zmqdata.nodes.base import NOTHING_AGAIN, Infer, function_name
from zmqdata.nodes.transforms import Unary

SHARD_HINT = -1
"""In the place of both arguments of ``shard``: the number of workers and the index of
this one, where the service says so.
"""


@dataclass(frozen=True, kw_only=True)
class Shard(Unary):
    """Every ``num_shards``-th element, from number ``index`` on; ``SHARD_HINT`` for
    both leaves it to the service.
    """

    num_shards: int
    index: int
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
    """The shard of one worker, which the service puts into a pipeline under a static
    sharding policy.

    Attributes:
        of_files: whether its elements are names of files, of which each shard must get
            one at least.
        seed: of all that lies under it, so that random orders there are the same for
            all shards; None: the task's.
    """

    of_files: bool = False
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class TakeWhile(Unary):
    """The elements before the first one for which a predicate is false."""

    predicate: Callable[..., Any]
    operation: ClassVar[str] = "take_while"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return function_name(self.predicate)

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class Unique(Unary):
    """The elements that did not come before."""

    operation: ClassVar[str] = "unique"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 8
    state_growth: ClassVar[str] = "16 bytes for each distinct element"

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan(Unary):
    """The second results of a function of a running state and the element; the first is
    the next state.
    """

    initial_state: Any = field(repr=False)
    function: Callable[..., Any]
    operation: ClassVar[str] = "scan"
    restoring: ClassVar[str] = (
        "does nothing again, but runs all again if its state is no arrays, numbers and texts"
    )

    # Arrays have no single answer to whether they are equal: each node is equal to
    # itself only.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def argument(self) -> str:
        return function_name(self.function)

    @property
    def state_bytes(self) -> int:
        leaves = optree.tree_leaves(self.initial_state, is_leaf=is_list, none_is_leaf=True)
        return 8 + sum(16 + getattr(leaf, "nbytes", 8) for leaf in leaves)

    def spec(self, infer: Infer) -> Any:
        return None


@dataclass(frozen=True, kw_only=True)
class IgnoreErrors(Unary):
    """The elements that do not fail."""

    log_warning: bool = False
    operation: ClassVar[str] = "ignore_errors"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        return count if count in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class AssertCardinality(Unary):
    """Its input, which fails if it has not this many elements."""

    expected: int
    operation: ClassVar[str] = "assert_cardinality"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return str(self.expected)

    @property
    def cardinality(self) -> int:
        return self.expected


@dataclass(frozen=True, kw_only=True)
class RejectionResample(Unary):
    """Pairs of class and element, of which as many are left out as it takes to get the
    target distribution.

    Attributes:
        target: the wanted probability of each class.
        initial: the probability of each class in the input; None: estimated while
            running.
    """

    function: Callable[..., Any]
    target: tuple[float, ...]
    initial: tuple[float, ...] | None = None
    seed: int | None = None
    operation: ClassVar[str] = "rejection_resample"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return function_name(self.function)

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
        """Whether the classes come as they are wanted, so that nothing is left out."""
        return self.initial == self.target and all(self.target)

    def spec(self, infer: Infer) -> Any:
        return None
