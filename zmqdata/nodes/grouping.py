"""Nodes that group elements into datasets or running states. Running belongs to
``iterators``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar

from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import (
    UNKNOWN_CARDINALITY,
    DatasetSpec,
    merge_specs,
    spec_of,
    spec_of_alike,
)
from zmqdata.nodes.base import AT_ITS_PLACE, IN_LABEL, ByIdentity, Infer, Node
from zmqdata.nodes.transforms import Calling, Unary, unless_infinite

Wrap = Callable[[Node], Any]
"""Makes, from a node, the dataset that a user's function receives."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Elements(ByIdentity, Node):
    """Source of the datasets that window and group_by_window make: elements held by an
    iterator.
    """

    elements: tuple[Any, ...] = field(repr=False)
    """The elements."""
    empty_spec: Any = None
    """Spec of the dataset if it has no elements; None: unknown."""
    operation: ClassVar[str] = "elements"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def argument(self) -> str:
        return str(len(self.elements))

    @property
    def cardinality(self) -> int:
        return len(self.elements)

    def spec(self, infer: Infer) -> Any:
        if not self.elements:
            return self.empty_spec
        return spec_of_alike(self.elements) or reduce(merge_specs, map(spec_of, self.elements))


@dataclass(frozen=True, kw_only=True)
class Window(Unary):
    """Yields datasets of ``size`` elements that are ``stride`` apart, each beginning
    ``shift`` elements after the previous.
    """

    size: int = field(metadata=IN_LABEL)
    """Number of elements in a window."""
    shift: int
    """Distance between the beginnings of consecutive windows."""
    stride: int = 1
    """Distance between consecutive elements of a window."""
    drop_remainder: bool = False
    """True to drop incomplete windows at the end."""
    wrap: Wrap = field(repr=False)
    """Makes a dataset from a node."""
    operation: ClassVar[str] = "window"
    batch_rows: ClassVar[None] = None
    restoring: ClassVar[str] = "pulls the elements of a window again, and up to 32 more"
    own_state: ClassVar[int] = 16

    @property
    def reach(self) -> int:
        """Number of elements of the input that a window spans."""
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
class GroupByWindow(Calling):
    """Yields the elements of the datasets that a function makes from each full group of
    elements with the same key.
    """

    key_function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Returns the key of an element."""
    function: Callable[[Any, Any], Any] = field(metadata=IN_LABEL)
    """Makes a dataset from a key and the dataset of a group."""
    window_size: int | None = None
    """Number of elements in a full group; None: ``window_size_function(key)`` returns
    it.
    """
    window_size_function: Callable[[Any], Any] | None = None
    """Returns the number of elements in a full group of a key, or None if
    ``window_size`` is set.
    """
    wrap: Wrap = field(repr=False)
    """Makes a dataset from a node."""
    operation: ClassVar[str] = "group_by_window"
    draws_once: ClassVar[bool] = True
    batch_rows: ClassVar[None] = None
    restoring: ClassVar[str] = (
        "pulls again from the oldest waiting element, which may be far back for a rare key"
    )
    own_state: ClassVar[int] = 24
    state_growth: ClassVar[str] = "16 bytes for each key and 4 for each element that waits"

    @property
    def cardinality(self) -> int:
        return unless_infinite(self.input)


@dataclass(frozen=True)
class Reducer:
    """Functions with which ``group_by_reducer`` folds the elements of a key.

    >>> counter = Reducer(lambda key: 0, lambda count, element: count + 1, int)
    >>> counter.init_func(7)
    0

    As ``tf.data.experimental.Reducer``.
    """

    init_func: Callable[[Any], Any]
    """Makes the first state from a key."""
    reduce_func: Callable[[Any, Any], Any]
    """Makes the next state from a state and an element."""
    finalize_func: Callable[..., Any]
    """Makes the result from the last state; a plain tuple is passed as several
    arguments, as for ``map``.
    """

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not callable(value):
                raise TypeError(
                    f"{name} must be callable, got {value!r} of type {type(value).__name__}"
                )


@dataclass(frozen=True, kw_only=True)
class GroupByReducer(Calling):
    """Yields a result for each key, in ascending order: the fold of all elements of
    that key.
    """

    key_function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Returns the key of an element."""
    reducer: Reducer
    """Folds the elements of a key."""
    operation: ClassVar[str] = "group_by_reducer"
    batch_rows: ClassVar[None] = None
    cardinality: ClassVar[int] = UNKNOWN_CARDINALITY
    restoring: ClassVar[str] = (
        "repeats no work if states consist of arrays, numbers and texts; otherwise folds "
        "everything again"
    )
    state_growth: ClassVar[str] = "the state of each key"
