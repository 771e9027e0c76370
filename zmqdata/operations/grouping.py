"""Elements grouped into datasets: window and group_by_window.

States of iterators hold the numbers of elements instead of the elements; restoring
pulls the elements again. The distance is the age of the oldest element held, which for
group_by_window is an element of the rarest key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.nesting import map_structure, nesting_of
from zmqdata.elements.specs import DatasetSpec
from zmqdata.errors import InvalidArgumentError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import call, failure, is_end
from zmqdata.iterators.context import Context
from zmqdata.iterators.inference import spec_by_running, spec_of_nested
from zmqdata.iterators.inputs import UnaryIterator, dataset_iterator, followed, marked_input
from zmqdata.iterators.results import as_index
from zmqdata.iterators.trail import Trail
from zmqdata.nodes.base import (
    IN_LABEL,
    Calling,
    Infer,
    Node,
    Unary,
    Wrap,
    known_spec,
    unless_infinite,
)
from zmqdata.operations.sequences import Elements
from zmqdata.operations.sources import nested_node


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
    makes_windows: ClassVar[bool] = True
    batch_rows: ClassVar[None] = None
    restoring: ClassVar[str] = "pulls the elements of a window again, and up to 32 more"
    own_state: ClassVar[int] = 16

    def empty_window(self, spec: Any) -> Any:
        return self.wrap(Elements(elements=(), empty_spec=spec))

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


_MARK_EVERY = 32


@dataclass(frozen=True)
class _Failed:
    error: Exception


class _CatchingIterator(UnaryIterator):
    """Yields failures as elements, so that an operation can hold them like elements."""

    def __next__(self) -> Any:
        try:
            return next(self._input)
        except Exception as error:
            if is_end(error):
                raise
            return _Failed(error)


@make_iterator.register(Window)
class WindowIterator(ElementIterator):
    """Holds the elements that a window spans. A failed element fails every window that
    contains it.
    """

    def __init__(self, node: Window, context: Context) -> None:
        self._node = node
        self._publish_in(context)
        self._trail = Trail(
            _CatchingIterator(node, context), max(_MARK_EVERY, node.reach), self._oldest
        )
        self._buffer: deque[Any] = deque()
        self._ended = False

    def _oldest(self) -> int:
        return self._trail.pulled - len(self._buffer)

    def __next__(self) -> Any:
        buffer, reach = self._buffer, self._node.reach
        self._fill(reach)
        if not buffer or (self._node.drop_remainder and len(buffer) < reach):
            raise StopIteration
        chosen = list(islice(buffer, 0, None, self._node.stride))
        self._shift()
        self._strand.place = self._own_place
        for element in chosen:
            if type(element) is _Failed:
                raise element.error
        try:
            return self._datasets(chosen)
        except FAILURES as error:
            raise failure(self._node, error) from error

    def _fill(self, count: int) -> None:
        try:
            while not self._ended and len(self._buffer) < count:
                self._buffer.append(self._trail.pull())
        except StopIteration:
            self._ended = True

    def _shift(self) -> None:
        shift = self._node.shift
        while shift and self._buffer:
            self._buffer.popleft()
            shift -= 1
        try:
            while shift and not self._ended:
                self._trail.pull()
                shift -= 1
        except StopIteration:
            self._ended = True

    def _datasets(self, elements: list[Any]) -> Any:
        """Return a dataset for each leaf, in the nesting of the elements."""
        structure = nesting_of(elements[0])
        columns = zip(*[structure.flatten_up_to(element) for element in elements], strict=True)
        made = [
            self._node.wrap(Elements(elements=column, site=self._node.site)) for column in columns
        ]
        return structure.unflatten(made)

    def state(self) -> Any:
        return [self._trail.state(), len(self._buffer), self._ended]

    def restore(self, state: Any) -> None:
        trail, held, self._ended = state
        numbers = range(trail[2] - held, trail[2])
        found = self._trail.restore(trail, numbers)
        self._buffer.extend(found[number] for number in numbers)

    def close(self) -> None:
        self._trail.source.close()


@dataclass
class _Group:
    """Elements of a key that wait for their group to be full."""

    size: int
    """Number of elements of a full group."""
    numbers: list[int] = field(default_factory=list)
    """Numbers of the elements in the trail."""
    elements: list[Any] = field(default_factory=list)
    """The elements, in the order of ``numbers``."""


@dataclass
class _Opened:
    """Dataset made from a group, while it is read."""

    key: int
    """Key of the group."""
    numbers: list[int]
    """Numbers of the group's elements in the trail."""
    iterator: ElementIterator
    """Iterator over the dataset."""


@make_iterator.register(GroupByWindow)
class GroupByWindowIterator(ElementIterator):
    """Collects elements by key; makes a dataset of each full group, and reads it before
    it pulls the next element.
    """

    def __init__(self, node: GroupByWindow, context: Context) -> None:
        self._node, self._context = node, context
        self._publish_in(context)
        self._trail = Trail(marked_input(node, context), _MARK_EVERY, self._oldest)
        self._key_function = followed(
            node, context, self._trail.source, partial(call, node.key_function)
        )
        self._groups: dict[int, _Group] = {}
        self._opened: _Opened | None = None
        self._windows = 0  # datasets opened so far
        self._ended = False

    def _oldest(self) -> int:
        # Until the end, groups are in the order of their first elements.
        groups = islice(self._groups.values(), None if self._ended else 1)
        held = [group.numbers[0] for group in groups]
        if self._opened is not None:
            held.append(self._opened.numbers[0])
        return min(held, default=self._trail.pulled)

    def __next__(self) -> Any:
        while True:
            if self._opened is not None:
                try:
                    return next(self._opened.iterator)
                except StopIteration:
                    self._opened.iterator.close()
                    self._opened = None
            if self._ended:
                if not self._groups:
                    raise StopIteration
                self._open(next(iter(self._groups)))
            else:
                self._collect()

    def _collect(self) -> None:
        number = self._trail.pulled
        try:
            element = self._trail.pull()
        except StopIteration:
            self._ended = True
            self._groups = dict(sorted(self._groups.items()))
            return
        self._strand.place = self._own_place
        try:
            key = as_index(self._key_function(element), "key_func")
            group = self._groups.get(key) or _Group(self._size(key))
        except FAILURES as error:
            raise failure(self._node, error) from error
        group.numbers.append(number)
        group.elements.append(element)
        self._groups[key] = group
        if len(group.numbers) >= group.size:
            self._open(key)

    def _size(self, key: int) -> int:
        if self._node.window_size_function is None:
            assert self._node.window_size is not None
            return self._node.window_size
        size = as_index(self._node.window_size_function(np.int64(key)), "window_size_func")
        if size < 1:
            raise InvalidArgumentError(
                f"Window size must be greater than zero, but got {size} from window_size_func for "
                f"the key {key}: return a size of at least 1"
            )
        return size

    def _open(self, key: int) -> None:
        self._strand.place = self._own_place
        group = self._groups.pop(key)
        self._windows += 1
        self._read(key, group.numbers, group.elements)

    def _read(self, key: int, numbers: list[int], elements: list[Any]) -> None:
        dataset = self._node.wrap(Elements(elements=tuple(elements), site=self._node.site))
        try:
            inner = nested_node(
                self._node.function(np.int64(key), dataset), self._node, argument="reduce_func"
            )
            self._opened = _Opened(
                key,
                numbers,
                dataset_iterator(inner, self._context.nested(self._windows, maker=self._node)),
            )
        except FAILURES as error:
            raise failure(self._node, error) from error

    def state(self) -> Any:
        trail = self._trail.state()
        groups = [[key, held.size, held.numbers.copy()] for key, held in self._groups.items()]
        opened = self._opened
        read = opened and [opened.key, opened.numbers, opened.iterator.state()]
        return [trail, groups, read, self._windows, self._ended]

    def restore(self, state: Any) -> None:
        trail, groups, read, self._windows, self._ended = state
        wanted = {number for _, _, numbers in groups for number in numbers}
        found = self._trail.restore(trail, wanted.union(read[1] if read else ()))
        for key, size, numbers in groups:
            self._groups[key] = _Group(size, list(numbers), [found[number] for number in numbers])
        if read:
            self._read(read[0], read[1], [found[number] for number in read[1]])
            assert self._opened is not None
            self._opened.iterator.restore(read[2])

    def close(self) -> None:
        if self._opened is not None:
            self._opened.iterator.close()
        self._trail.source.close()


@spec_by_running.register
def _(node: GroupByWindow, past_failures: bool) -> Any:
    made = partial(_inner_node, node)
    return spec_of_nested(node, made, None if known_spec(node.input) is None else made)


def _inner_node(node: GroupByWindow, *elements: Any) -> Node:
    """Return the node of the dataset that the function makes of a group of an element,
    or of a group without elements.
    """
    try:
        key = np.int64(as_index(call(node.key_function, *elements), "key_func") if elements else 0)
        if node.window_size_function is not None:
            as_index(node.window_size_function(key), "window_size_func")
        group = Elements(elements=elements, empty_spec=known_spec(node.input), site=node.site)
        return nested_node(node.function(key, node.wrap(group)), node, argument="reduce_func")
    except Exception as error:
        raise failure(node, error) from error
