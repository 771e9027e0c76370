"""The kinds of map beside the plain one. Running them belongs to ``iterators``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.nodes.base import NOTHING_AGAIN, Infer, function_name
from zmqdata.nodes.transforms import Interleave, Map, Unary


@dataclass(frozen=True, kw_only=True)
class RandomMap(Unary):
    """A function of each element and a random generator that follows from seed,
    repetition and number.
    """

    function: Callable[..., Any]
    seed: int | None = None
    rerandomize_each_iteration: bool = True
    output_spec: Any = None
    operation: ClassVar[str] = "random_map"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def argument(self) -> str:
        return function_name(self.function)

    def spec(self, infer: Infer) -> Any:
        return self.output_spec


@dataclass(frozen=True, kw_only=True)
class GuardedMap(Map):
    """A map that calls again, or leaves elements out, when its function fails.

    Attributes:
        on_error: ``"raise"``, ``"skip"`` or ``"retry"``.
        retries: how often the function is called again for an element.
        max_errors: how many elements may be left out; None is any number.
    """

    on_error: str = "raise"
    retries: int = 0
    max_errors: int | None = None
    own_state: ClassVar[int] = 8

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if self.on_error != "skip" or count in (0, INFINITE_CARDINALITY):
            return count
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class GuardedRandomMap(GuardedMap):
    """A random map that calls again, with the same draws, or leaves elements out;
    attributes as both have them.
    """

    seed: int | None = None
    rerandomize_each_iteration: bool = True
    operation: ClassVar[str] = "random_map"


@dataclass(frozen=True, kw_only=True)
class ParallelMap(GuardedMap):
    """A map on several threads.

    Attributes:
        num_parallel_calls: how many; AUTOTUNE leaves it to zmqdata.
        deterministic: in the order of the input; False: as the calls return. None: what
            the options say.
    """

    num_parallel_calls: int
    deterministic: bool | None = None
    restoring: ClassVar[str] = "pulls up to 32 elements again, and calls again for those under way"
    own_state: ClassVar[int] = 32

    @property
    def is_deterministic(self) -> bool:
        return self.deterministic is not False


@dataclass(frozen=True, kw_only=True)
class ParallelRandomMap(ParallelMap):
    """A random map on several threads; attributes as ``RandomMap`` and
    ``ParallelMap``.
    """

    seed: int | None = None
    rerandomize_each_iteration: bool = True
    operation: ClassVar[str] = "random_map"


@dataclass(frozen=True, kw_only=True)
class ParallelInterleave(Interleave):
    """An interleave whose datasets are read ahead on several threads; attributes as
    ``ParallelMap``.
    """

    num_parallel_calls: int
    deterministic: bool | None = None
    restoring: ClassVar[str] = (
        "opens up to 32 datasets again, and pulls up to 32 elements of each again"
    )

    @property
    def is_deterministic(self) -> bool:
        return self.deterministic is not False

    @property
    def state_bytes(self) -> int:
        return 16 * self.cycle_length
