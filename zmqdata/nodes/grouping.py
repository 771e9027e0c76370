"""The nodes that put elements together in datasets or running states. Running them
belongs to ``iterators``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar

from zmqdata.elements.specs import (
    UNKNOWN_CARDINALITY,
    DatasetSpec,
    map_structure,
    merge_specs,
    spec_of,
)
from zmqdata.nodes.base import AT_ITS_PLACE, Infer, Node, function_name
from zmqdata.nodes.transforms import Unary

Wrap = Callable[[Node], Any]
"""Makes the dataset that a user's function sees out of a node."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Elements(Node):
    """Elements that an iterator holds: the source of the datasets that window and
    group_by_window make.
    """

    elements: tuple[Any, ...] = field(repr=False)
    operation: ClassVar[str] = "elements"
    restoring: ClassVar[str] = AT_ITS_PLACE

    # Arrays have no single answer to whether they are equal: each node is equal to
    # itself only.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def argument(self) -> str:
        return str(len(self.elements))

    @property
    def cardinality(self) -> int:
        return len(self.elements)

    def spec(self, infer: Infer) -> Any:
        return reduce(merge_specs, map(spec_of, self.elements)) if self.elements else None


@dataclass(frozen=True, kw_only=True)
class Window(Unary):
    """Datasets of ``size`` elements that lie ``stride`` apart, each beginning ``shift``
    after the one before.
    """

    size: int
    shift: int
    stride: int = 1
    drop_remainder: bool = False
    wrap: Wrap = field(repr=False)
    operation: ClassVar[str] = "window"
    restoring: ClassVar[str] = "pulls the elements of a window again, and up to 32 more"
    own_state: ClassVar[int] = 16

    @property
    def argument(self) -> str:
        return str(self.size)

    @property
    def reach(self) -> int:
        """How many elements of the input a window spans."""
        return (self.size - 1) * self.stride + 1

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        first_without = max(0, count - self.reach + 1) if self.drop_remainder else count
        return -(-first_without // self.shift)

    def spec(self, infer: Infer) -> Any:
        return map_structure(DatasetSpec, infer(self.input))


@dataclass(frozen=True, kw_only=True)
class GroupByWindow(Unary):
    """The elements of the datasets that a function makes of each full group of elements
    of the same key.

    Attributes:
        window_size: when a group is full; None: ``window_size_function(key)`` tells.
    """

    key_function: Callable[..., Any]
    function: Callable[[Any, Any], Any]
    window_size: int | None = None
    window_size_function: Callable[[Any], Any] | None = None
    wrap: Wrap = field(repr=False)
    operation: ClassVar[str] = "group_by_window"
    restoring: ClassVar[str] = (
        "pulls again from the oldest element that waits, which a rare key makes long ago"
    )
    own_state: ClassVar[int] = 24
    state_growth: ClassVar[str] = "16 bytes for each key and 4 for each element that waits"

    @property
    def argument(self) -> str:
        return f"{function_name(self.key_function)}, {function_name(self.function)}"

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        return None


@dataclass(frozen=True)
class Reducer:
    """How ``group_by_reducer`` folds the elements of a key.

    Args:
        init_func: from a key to the first state.
        reduce_func: from a state and an element to the next state.
        finalize_func: from the last state to what is handed out.

    >>> Reducer(lambda key: 0, lambda count, element: count + 1, lambda count: count).init_func(7)
    0

    As ``tf.data.experimental.Reducer``.
    """

    init_func: Callable[[Any], Any]
    reduce_func: Callable[[Any, Any], Any]
    finalize_func: Callable[[Any], Any]

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not callable(value):
                raise TypeError(
                    f"{name} must be callable, got {value!r} of type {type(value).__name__}"
                )


@dataclass(frozen=True, kw_only=True)
class GroupByReducer(Unary):
    """One result for each key, by rising keys: all elements of that key, folded."""

    key_function: Callable[..., Any]
    reducer: Reducer
    operation: ClassVar[str] = "group_by_reducer"
    restoring: ClassVar[str] = (
        "does nothing again, but folds all again if states are no arrays, numbers and texts"
    )
    own_state: ClassVar[int] = 8
    state_growth: ClassVar[str] = "what is carried for each key"

    @property
    def argument(self) -> str:
        return function_name(self.key_function)

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        return None
