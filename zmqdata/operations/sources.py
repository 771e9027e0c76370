"""Sources in memory, and generators. Files are in ``files``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import length_hint
from typing import Any, ClassVar

import numpy as np

from zmqdata.blocks import copied
from zmqdata.elements.nesting import (
    field_names,
    instance_of,
    leaves_of,
    map_arrays,
    map_structure,
    tuple_of,
)
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.shapes import dtype_of_items
from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    DatasetSpec,
    TensorSpec,
    merge_specs,
    spec_of,
    without_leading_axis,
)
from zmqdata.elements.tensors import sort_of
from zmqdata.errors import WrongTypeError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import END, Stackable, Steps, make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.callsites import call_site
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.indexed import FixedIterator, PartsIterator
from zmqdata.iterators.random_access import element_at
from zmqdata.iterators.results import GeneratedElements, check_new
from zmqdata.nodes.base import AT_ITS_PLACE, IN_LABEL, ByIdentity, Infer, Node
from zmqdata.peeking import peek, shown
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Range(Node):
    """Yields the integers from ``start`` to ``stop``, exclusive, by ``step``."""

    start: int
    """First integer."""
    stop: int
    """End, exclusive."""
    step: int = 1
    """Difference between consecutive integers."""
    dtype: str = "int64"
    """Dtype of the elements."""
    operation: ClassVar[str] = "range"
    is_indexed: ClassVar[bool] = True
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def argument(self) -> str:
        return (
            f"{self.start}, {self.stop}, {self.step}"
            if (self.start, self.step) != (0, 1)
            else str(self.stop)
        )

    @property
    def count(self) -> int:
        """Number of the integers."""
        return max(0, -((self.start - self.stop) // self.step))

    @property
    def cardinality(self) -> int:
        # Nobody reads the end of a larger range, and no message can carry its number.
        return self.count if self.count <= 1 << 62 else INFINITE_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), self.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensors(ByIdentity, Node):
    """Yields a single element: the structure itself."""

    tensors: Any = field(repr=False)
    """The structure."""
    operation: ClassVar[str] = "from_tensors"
    cardinality: ClassVar[int] = 1
    split_unit: ClassVar[str] = "elements"
    restoring: ClassVar[str] = AT_ITS_PLACE

    split_source: ClassVar[SplitSource] = IndexSplits(1)

    def spec(self, infer: Infer) -> Any:
        return map_structure(partial(_leaf_spec, infer), self.tensors)


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorSlices(ByIdentity, Node):
    """Yields the rows of a structure of arrays that all have the same first length."""

    tensors: Any = field(repr=False)
    """The structure of arrays."""
    operation: ClassVar[str] = "from_tensor_slices"
    is_indexed: ClassVar[bool] = True
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def cardinality(self) -> int:
        return next(len(leaf) for leaf in leaves_of(self.tensors) if leaf is not None)

    def spec(self, infer: Infer) -> Any:
        return map_structure(partial(_row_spec, infer), self.tensors)


def _leaf_spec(infer: Infer, leaf: Any) -> Any:
    """Return the spec of a leaf, which may be a dataset: its functions are not run
    where ``infer`` runs none.
    """
    if _is_dataset(leaf):
        return DatasetSpec(infer(leaf.node))
    return spec_of(leaf)


def _row_spec(infer: Infer, rows: Any) -> Any:
    """Return the spec of the rows of a leaf, which may be datasets."""
    is_list = isinstance(rows, np.ndarray) and rows.dtype == object and rows.ndim == 1
    if is_list and len(rows) and all(map(_is_dataset, rows)):
        try:
            return reduce(merge_specs, [_leaf_spec(infer, row) for row in rows])
        except TypeError:  # datasets of different elements are objects
            pass
    return without_leading_axis(spec_of(rows))


def _is_dataset(leaf: Any) -> bool:
    return isinstance(peek(leaf, "node"), Node)


@dataclass(frozen=True, kw_only=True)
class FromGenerator(Node):
    """Yields the elements of ``generator(*args)``."""

    generator: Callable[..., Iterable[Any]] = field(metadata=IN_LABEL)
    """Returns an iterable."""
    args: tuple[Any, ...] = ()
    """Arguments of ``generator``."""
    output_signature: Any = None
    """Spec of the elements; None: unchecked."""
    operation: ClassVar[str] = "from_generator"
    spec_option: ClassVar[str] = "output_signature"
    split_unit: ClassVar[str] = "generators"
    restoring: ClassVar[str] = "runs the generator again up to its position"
    own_state: ClassVar[int] = 16

    split_source: ClassVar[SplitSource] = IndexSplits(1)


AHEAD = 256
"""Numbers that a range makes at once."""


class AheadIterator(FixedIterator):
    """Base of the sources that make many elements at once. The elements in ``_ready``
    do not count as read.
    """

    def __init__(self, context: Context, count: int) -> None:
        self._ready: Iterator[Any] = iter(())
        self._behind = 0  # index behind the last element in ``_ready``
        super().__init__(context, count)

    @property
    def _next(self) -> int:
        return self._behind - length_hint(self._ready) * self._stride

    @_next.setter
    def _next(self, index: int) -> None:
        self._ready, self._behind = iter(()), index

    @abstractmethod
    def _more(self) -> list[Any]:
        """Return the next elements, at least one, and mark them as read."""

    def __next__(self) -> Any:
        for value in self._ready:
            return value
        self._ready = iter(self._more())
        return next(self._ready)

    def steps(self) -> Steps:
        return self._steps()  # type: ignore[return-value]  # the type of all generators

    def _steps(self) -> Generator[Any, None, object]:
        try:
            while True:
                yield from self._ready
                self._ready = iter(self._more())
        except StopIteration:
            return END

    def _name(self) -> Name:
        # The same as the base, for which ``_next`` would be computed more slowly.
        place = self._behind - (length_hint(self._ready) + 1) * self._stride
        group = self._named_in
        if group is None:
            group = self._group()
        return group, place if self._order is None else self._order[place]


@make_iterator.register(Range)
class RangeIterator(AheadIterator, Stackable):
    """Yields the integers of a range. Making many at a time takes half as long."""

    def __init__(self, node: Range, context: Context) -> None:
        super().__init__(context, node.count)
        self._start, self._step = node.start, node.step
        self._kind = np.dtype(node.dtype).type
        self._all: list[Any] = []  # all integers, if they are few and were made before

    def _more(self) -> list[Any]:
        if self._provider is None and self._behind >= self._stop:
            raise StopIteration
        rows = self.next_rows(AHEAD)
        if self._provider is None and len(rows) == self._stop:
            self._all = rows
        return rows

    def rewind(self, repetition: int) -> bool:
        if self._all:
            self._ready, self._behind = iter(self._all), len(self._all)
            return True
        return self._to_beginning(repetition)

    def next_stacked(self, count: int) -> tuple[int, Any]:
        self._strand.place = self._own_place
        indices = self._next_range(count)
        start, step = self._start, self._step
        if self._order is not None:
            numbers = start + step * self._order.many(indices)
            return len(indices), numbers.astype(self._kind, copy=False)
        limits = start + indices.start * step, start + indices.stop * step, indices.step * step
        return len(indices), np.arange(*limits, dtype=np.int64).astype(self._kind, copy=False)


@make_iterator.register(Tensors)
class TensorsIterator(FixedIterator):
    """Yields a structure once, as a copy: a delivered element belongs to its
    receiver.
    """

    def __init__(self, node: Tensors, context: Context) -> None:
        super().__init__(context, 1)
        self._tensors = node.tensors

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        while self._next >= self._stop:
            self._advance()
        self._next += self._stride
        return copied(self._tensors)


def _own(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, (np.ndarray, RaggedTensor)) else leaf


@make_iterator.register(TensorSlices)
class TensorSlicesIterator(FixedIterator, Stackable):
    """Yields copies of rows."""

    def __init__(self, node: TensorSlices, context: Context) -> None:
        super().__init__(context, node.cardinality)
        self._tensors = node.tensors
        self._row = _row_getter(node.tensors)

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        index = self._next
        while index >= self._stop:
            self._advance()
            index = self._next
        self._next = index + self._stride
        row, order = self._row, self._order  # Python 3.11 is slow to call attributes
        return row(index if order is None else order[index])

    def next_stacked(self, count: int) -> tuple[int, Any]:
        self._strand.place = self._own_place
        indices = self._next_range(count if self._order_of is None else min(count, AHEAD))
        if self._order is not None:
            return len(indices), _rows_at(self._order.many(indices).tolist(), self._tensors)
        part = slice(indices.start, indices.stop, indices.step)
        return len(indices), map_arrays(lambda array: _copied_rows(array[part]), self._tensors)


def _copied_rows(rows: Any) -> Any:
    """Return a copy of rows; single items get the byte order of their scalars."""
    if rows.ndim > 1 or isinstance(rows, RaggedTensor) or rows.dtype.isnative:
        return rows.copy()
    return rows.astype(dtype_of_items(rows.dtype))


def _rows_at(numbers: list[int], tensors: Any) -> Any:
    """Return copies of rows of a structure of arrays, stacked."""

    def rows(array: Any) -> Any:
        if isinstance(array, RaggedTensor):
            return array.at(numbers)
        found = array[numbers]
        return found if found.dtype.isnative or found.ndim > 1 else _copied_rows(found)

    return map_arrays(rows, tensors)


def _row_getter(tensors: Any) -> Callable[[int], Any]:
    """Return a function from a row number to that row of each array, in the nesting of
    the structure.
    """
    if isinstance(tensors, np.ndarray):
        if tensors.ndim == 1 and tensors.dtype.names is None:
            return tensors.__getitem__
        return lambda index: tensors[index].copy()
    if isinstance(tensors, RaggedTensor):
        return lambda index: tensors[index].copy()
    if isinstance(tensors, dict):
        by_key = [(key, _row_getter(part)) for key, part in tensors.items()]
        return lambda index: {key: row(index) for key, row in by_key}
    if tensors is None:
        return lambda index: None
    names = field_names(type(tensors))
    if names is not None:
        fields = [_row_getter(getattr(tensors, name)) for name in names]
        return lambda index: instance_of(type(tensors), names, [row(index) for row in fields])
    parts = [_row_getter(part) for part in tensors]
    if type(tensors) is tuple:
        return lambda index: tuple([row(index) for row in parts])
    kind = type(tensors)
    return lambda index: tuple_of(kind, [row(index) for row in parts])


@make_iterator.register(FromGenerator)
class GeneratorIterator(PartsIterator):
    """Runs a generator once, as one split. Its state is a count: restoring runs the
    generator again up to it.
    """

    def __init__(self, node: FromGenerator, context: Context) -> None:
        super().__init__(context, 1)
        self._node = node
        self._made = ElementMaker(node, context).element
        self._values: Iterator[Any] | None = None
        self._count = 0
        self._site = call_site(node, context, skippable=False)
        self._seed_for = context.seeder(node)

    def __next__(self) -> Any:
        value = self._pull()
        try:
            element = self._made(value)
            # Copy, since a generator may refill the same array, and elements already
            # yielded must not change.
            return (
                element
                if isinstance(element, (int, float, str, np.generic))
                else map_structure(_own, element)
            )
        except FAILURES as error:
            raise failure(self._node, error) from error

    def _open(self) -> None:
        self._begin_part()
        if self._seed_for is not None:
            self._seed_for(self._next)
        try:
            made: Any = self._node.generator(*self._node.args)
            if not isinstance(made, Iterable) and not hasattr(made, "__getitem__"):
                raise TypeError(
                    f"the generator function must return an iterable, it returned {shown(made)} of "
                    f"type {type(made).__name__}: yield the elements, or return a list of them"
                )
            if sort_of(type(made)) == "frame":
                raise TypeError(
                    f"the generator function returned a {type(made).__name__}, of which a loop "
                    "yields columns: yield its rows, as frame.itertuples() or table.to_pylist() do"
                )
            values = iter(made)
            check_new(made, values, self._node)
            self._values = values
        except FAILURES as error:
            self._end_part()
            raise failure(self._node, error) from error

    def _pull(self) -> Any:
        self._strand.place = self._own_place
        while True:
            if self._values is None:
                self._open()
            assert self._values is not None
            try:
                value = (
                    next(self._values)
                    if self._site is None
                    else self._site.call(self._count, next, self._values)
                )
            except StopIteration:
                self._end_part()
                continue
            except FAILURES as error:
                self._end_part()
                raise failure(self._node, error) from error
            self._count += 1
            return value

    @property
    def in_part(self) -> bool:
        return self._values is not None

    @property
    def _position(self) -> int:
        return self._count

    def _end_part(self) -> None:
        self._values, self._count = None, 0
        self._next += 1

    def state(self) -> Any:
        return [super().state(), self._count]

    def restore(self, state: Any) -> None:
        position, count = state
        super().restore(position)
        for _ in range(count):
            self._pull()

    def rewind(self, repetition: int) -> bool:
        if self._site is not None:
            return False
        self.close()
        self._count = self.begun = 0
        return self._to_beginning(repetition)

    def close(self) -> None:
        values = self._values
        self._values, self._next = None, self._stop
        closer = getattr(values, "close", None)
        # A generator that another thread runs is closed when that thread drops it.
        if callable(closer) and not getattr(values, "gi_running", False):
            closer()


def nested_node(
    result: Any,
    node: Node,
    again: Callable[[], Any] | None = None,
    argument: str = "map_func",
) -> Node:
    """Return the node of the dataset that a user's function returned. The values that a
    generator function yields are the elements of its dataset. Other iterators are
    refused: a generator is new at each call, unless a function holds it.

    Args:
        result: what the function returned.
        node: the operation.
        again: calls the function again, for another pass; None: generators are refused.
        argument: argument of the operation that is the function.

    Raises:
        WrongTypeError: the function returned something else.
    """
    inner = peek(result, "node")
    if isinstance(inner, Node):
        return inner
    if again is not None and isinstance(result, Generator):
        generator = GeneratedElements(result, again, node)
        return FromGenerator(generator=generator, site=node.site)
    if isinstance(result, Iterator):
        why = ", an iterator. A second pass, or `element_spec`, would miss what was taken of it"
        remedy = "wrap a list of its elements, for example with Dataset.from_list(...)"
    else:
        why = ""
        remedy = "wrap the result, for example with Dataset.from_tensor_slices(...)"
    if again is not None:
        remedy += ", write a generator function, which yields the elements,"
    raise WrongTypeError(
        f"The function of {node.operation} must return a Dataset, it returned a "
        f"{type(result).__name__}{why}. The `{argument}` argument must return a `Dataset` object: "
        f"{remedy} or use map()"
    )


@element_at.register
def _(node: Range, index: int) -> Any:
    return np.int64(node.start + index * node.step).astype(node.dtype)


@element_at.register
def _(node: Tensors, index: int) -> Any:
    return copied(node.tensors)


@element_at.register
def _(node: TensorSlices, index: int) -> Any:
    return copied(map_arrays(lambda array: array[index], node.tensors))
