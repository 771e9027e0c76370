"""Batches taken apart: unbatch, rebatch and map_batches; and the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.nesting import field_names, instance_of, map_arrays, tuple_of
from zmqdata.elements.ragged import RaggedTensor, concatenate
from zmqdata.elements.specs import (
    UNKNOWN_CARDINALITY,
    leading_length,
    with_leading_length,
    without_leading_axis,
)
from zmqdata.elements.subclasses import is_masked, plain_array
from zmqdata.elements.unpadded import dtypes_in_spec
from zmqdata.elements.untyped import is_untyped, retyped_alike
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import call, failure
from zmqdata.iterators.context import Context, Name, Namer, subgroup
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inputs import followed, input_iterator
from zmqdata.iterators.random_access import element_at, name_at
from zmqdata.iterators.trail import Trail
from zmqdata.nodes.base import Calling, Infer, Node, Unary, function_name, in_label, known_spec
from zmqdata.operations.batch import Batch, BatchIterator, batch_elements
from zmqdata.operations.sequences import run_on
from zmqdata.peeking import shown


@dataclass(frozen=True, kw_only=True)
class Unbatch(Unary):
    """Yields the rows of its elements."""

    operation: ClassVar[str] = "unbatch"
    batch_rows: ClassVar[None] = None
    restoring: ClassVar[str] = "pulls up to 16 batches again"
    own_state: ClassVar[int] = 16

    @property
    def cardinality(self) -> int:
        return known_rows(self.input)

    def spec(self, infer: Infer) -> Any:
        return without_leading_axis(infer(self.input))


def known_rows(node: Node) -> int:
    """Return the number of rows of all elements of a node together, UNKNOWN_CARDINALITY
    or INFINITE_CARDINALITY.

    >>> from zmqdata.operations.sources import Range
    >>> numbers = Range(start=0, stop=7)
    >>> known_rows(Batch(inputs=(numbers,), batch_size=2, drop_remainder=True))
    6
    """
    count = node.cardinality
    if count <= 0:
        return count
    spec = known_spec(node)
    rows = None if spec is None else leading_length(spec)
    return UNKNOWN_CARDINALITY if rows is None else count * rows


@dataclass(frozen=True, kw_only=True)
class Rebatch(Unary):
    """Yields the rows of its elements in batches of other sizes, used in turn."""

    batch_sizes: tuple[int, ...] = field(
        metadata=in_label(lambda sizes: ", ".join(map(str, sizes)))
    )
    """Sizes of the batches, repeated."""
    drop_remainder: bool = False
    """True to drop an incomplete last batch."""
    operation: ClassVar[str] = "rebatch"
    restoring: ClassVar[str] = "pulls up to 16 batches again"
    own_state: ClassVar[int] = 24

    @property
    def batch_rows(self) -> int:
        return self.batch_sizes[0] if len(set(self.batch_sizes)) == 1 else 0

    @property
    def cardinality(self) -> int:
        rows = known_rows(self.input)
        if rows <= 0:
            return rows
        turns, rest = divmod(rows, sum(self.batch_sizes))
        count = turns * len(self.batch_sizes)
        for size in self.batch_sizes:
            if size > rest:
                count += rest > 0 and not self.drop_remainder
                break
            count += 1
            rest -= size
        return count

    def spec(self, infer: Infer) -> Any:
        rows, size = infer(self.input), self.batch_sizes[0]
        length = leading_length(rows)
        full = self.drop_remainder or (length is not None and size > 0 and length % size == 0)
        return with_leading_length(rows, size if full and len(set(self.batch_sizes)) == 1 else None)


@dataclass(frozen=True, kw_only=True)
class MapBatches(Calling, Batch):
    """Yields the rows that a function returns for batches of ``batch_size`` elements; a
    batch keeps its number of rows.
    """

    function: Callable[..., Any]
    """Takes a batch and returns a batch."""
    output_spec: Any = None
    """Spec of the rows; None: inferred."""
    operation: ClassVar[str] = "map_batches"
    spec_option: ClassVar[str] = "output_spec"
    restoring: ClassVar[str] = "calls the function again for up to 16 batches"
    own_state: ClassVar[int] = 16

    @property
    def argument(self) -> str:
        return function_name(self.function)

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        return count - count % self.batch_size if count > 0 and self.drop_remainder else count


_MARK_EVERY = 16
COPY_BELOW = 16 * 1024
"""Rows of fewer bytes are copied out of their batch, so that a row does not keep its
batch alive.
"""


def row_count(batch: Any) -> int:
    """Return the number of rows of the arrays of a batch.

    Raises:
        InvalidArgumentError: a leaf has no rows, or the numbers differ.

    >>> row_count({"x": np.zeros((2, 3)), "y": np.zeros(2)})
    2
    """
    kind = type(batch)
    if kind is np.ndarray and batch.ndim:
        return len(batch)
    counts: dict[str, int] = {}
    _collect_counts(batch, "", counts)
    found = set(counts.values())
    if len(found) == 1:
        return found.pop()
    if not counts:
        raise InvalidArgumentError(
            f"Cannot take {shown(batch)} apart: it contains no array. Make an array in a map()"
        )
    came = ", ".join(f"the array at {place} has {count}" for place, count in counts.items())
    raise InvalidArgumentError(
        f"Cannot take a batch apart whose arrays have different numbers of rows: {came}. Make "
        "them equal in a map()"
    )


def _collect_counts(part: Any, place: str, counts: dict[str, int]) -> None:
    if isinstance(part, dict):
        for key, value in part.items():
            _collect_counts(value, f"{place}[{key!r}]", counts)
    elif isinstance(part, tuple):
        for index, value in enumerate(part):
            _collect_counts(value, f"{place}[{index}]", counts)
    elif isinstance(part, RaggedTensor) or (isinstance(part, np.ndarray) and part.ndim):
        counts[place or "element"] = len(part)
    elif (names := field_names(type(part))) is not None:
        for name in names:
            _collect_counts(getattr(part, name), f"{place}.{name}", counts)
    elif part is not None:
        raise InvalidArgumentError(
            f"Cannot take a batch apart in which {place or 'the element'} has no axis: got a "
            f"{type(part).__name__} {shown(part)}, expected an array of one axis or more. Leave it "
            "out, or give it rows, in a map()"
        )


def rows(batch: Any, start: int = 0) -> Iterator[Any]:
    """Return an iterator over the rows of a batch from ``start`` on, in the nesting of
    the batch. The rows belong to the caller. The parts have the same number of rows,
    which ``row_count`` checks; None and empty structures have any number.

    >>> list(rows((np.array([1, 2]), {"y": np.array([3, 4])}), 1))
    [(np.int64(2), {'y': np.int64(4)})]
    """
    if isinstance(batch, np.ndarray):
        return _array_rows(batch[start:])
    if isinstance(batch, dict):
        if not batch:
            return ({} for _ in repeat(None))
        values = zip(*[rows(part, start) for part in batch.values()], strict=False)
        return map(dict, map(zip, repeat(tuple(batch)), values))
    if isinstance(batch, RaggedTensor):
        part = batch[start:] if start else batch
        return map(_copied, part) if part.nbytes < COPY_BELOW * max(1, len(part)) else iter(part)
    if batch is None or (isinstance(batch, tuple) and not batch):
        return repeat(batch)
    names = field_names(type(batch))
    if names is not None:
        values = zip(*[rows(getattr(batch, name), start) for name in names], strict=False)
        return map(partial(instance_of, type(batch), names), values)
    parts = zip(*[rows(part, start) for part in batch], strict=False)
    return parts if type(batch) is tuple else map(tuple_of, repeat(type(batch)), parts)


def _copied(row: Any) -> Any:
    return row.copy()


def _array_rows(array: Any) -> Iterator[Any]:
    if type(array) is not np.ndarray and not is_masked(array):
        array = plain_array(array)  # each row of a matrix is another matrix
    if array.ndim > 1:
        small = array.nbytes < COPY_BELOW * len(array)
        return map(np.ndarray.copy, array) if small else iter(array)
    return map(_copied, array) if array.dtype.kind == "V" else iter(array)


def cut(batch: Any, start: int, stop: int) -> Any:
    """Return some consecutive rows of a batch, as a batch.

    >>> cut((np.arange(5),), 1, 3)
    (array([1, 2]),)
    """
    return map_arrays(lambda leaf: leaf[start:stop], batch)


def joined(parts: Sequence[Any]) -> Any:
    """Concatenate batches.

    Raises:
        InvalidArgumentError: the batches differ in nesting, dtypes or shapes.

    >>> joined([np.arange(2), np.arange(1)])
    array([0, 1, 0])
    """
    if len(parts) == 1:
        return parts[0]
    try:
        return map_arrays(_joined_leaves, *parts)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "Cannot batch tensors with different shapes, dtypes or structures: consecutive "
            f"batches differ ({error}). Make them equal in a map()"
        ) from None


def _joined_leaves(*leaves: Any) -> Any:
    if any(leaf is None for leaf in leaves):
        raise TypeError("an array in one and None in another")
    if any(map(is_untyped, leaves)):
        leaves = tuple(retyped_alike(leaves))
    if len({leaf.dtype for leaf in leaves}) > 1:
        dtypes = dtypes_in_spec([getattr(leaf, "flat_values", leaf) for leaf in leaves])
        if len(dtypes) > 1:
            raise TypeError(f"dtypes {' and '.join(sorted(map(str, dtypes)))}")
    return concatenate(leaves)


class RowsIterator(ElementIterator):
    """Base of the iterators that hold a batch of their input and the number of its rows
    taken.

    The state holds the number of that batch; restoring pulls up to 16 batches again.
    """

    def __init__(self, node: Node, context: Context, source: ElementIterator) -> None:
        self._node = node
        self._publish_in(context)
        self._trail = Trail(source, _MARK_EVERY, self._oldest)
        self._batch: Any = None
        self._number = 0  # number of the batch
        self._count = 0  # rows in the batch
        self._taken = 0
        self._batch_name: Name | None = None
        self._group = 0  # group of the names of rows; 0: not computed yet

    def namer(self) -> Namer | None:
        return self._name

    def _name(self) -> Name | None:
        if self._batch_name is None:
            return None
        if not self._group:
            outer, position = self._batch_name
            self._group = subgroup(subgroup(outer, position), 0)
        return self._group, self._taken

    def _oldest(self) -> int:
        return self._number if self._holds() else self._trail.pulled

    def _holds(self) -> bool:
        """Return True if the batch is still needed."""
        return self._taken < self._count

    def _open(self) -> None:
        """Go to the next batch; raise StopIteration at the end."""
        number = self._trail.pulled
        batch = self._trail.pull()
        self._strand.place = self._own_place
        self._batch, self._count, self._taken = None, 0, 0
        try:
            self._enter(number, batch, 0, self._trail.name())
        except FAILURES as error:
            raise failure(self._node, error) from error

    def _enter(self, number: int, batch: Any, taken: int, name: Name | None) -> None:
        count = row_count(batch)
        self._batch_name, self._group = name, 0
        self._batch, self._number, self._count, self._taken = batch, number, count, taken

    def state(self) -> Any:
        held = [self._number, self._taken] if self._holds() else None
        return [self._trail.state(), held]

    def restore(self, state: Any) -> None:
        trail, held = state
        number, taken = held or (-1, 0)
        found = self._trail.restore(trail, (number,))
        if held:
            self._enter(number, found[number], taken, found.names[number])

    def current_split(self) -> tuple[int, int] | None:
        return self._trail.source.current_split()

    def close(self) -> None:
        self._trail.source.close()


@make_iterator.register(Unbatch)
class UnbatchIterator(RowsIterator):
    """Yields the rows of each element. An element that cannot be taken apart fails
    once, and the next element follows.
    """

    def __init__(
        self, node: Unary, context: Context, source: ElementIterator | None = None
    ) -> None:
        super().__init__(node, context, source or input_iterator(node, context))
        self._rows: Iterator[Any] = iter(())

    def __next__(self) -> Any:
        while True:
            for row in self._rows:
                self._taken += 1
                return row
            self._open()

    def _enter(self, number: int, batch: Any, taken: int, name: Name | None) -> None:
        super()._enter(number, batch, taken, name)
        self._rows = rows(batch, taken)
        self._batch = None


@make_iterator.register(Rebatch)
class RebatchIterator(RowsIterator):
    """Splits and joins batches. If its input fails, the incomplete batch is dropped, as
    in batch.
    """

    def __init__(self, node: Rebatch, context: Context) -> None:
        super().__init__(node, context, input_iterator(node, context))
        self._sizes, self._drop = node.batch_sizes, node.drop_remainder
        self._turn = 0
        self._ended = False

    def _holds(self) -> bool:
        # A batch size of 0 still needs the batch, to take an empty batch from it.
        return super()._holds() or (0 in self._sizes and self._batch is not None)

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        if self._ended:
            raise StopIteration
        size = self._sizes[self._turn]
        try:
            missing, parts = self._collect(size)
        finally:
            self._pass_turn()
        if not parts or (missing and self._drop):
            raise StopIteration
        try:
            return joined(parts)
        except FAILURES as error:
            raise failure(self._node, error) from error

    def _collect(self, missing: int) -> tuple[int, list[Any]]:
        """Collect slices of up to ``missing`` rows; return the number still missing,
        and the slices.
        """
        parts: list[Any] = []
        while missing or not parts:
            if self._batch is None or (missing and self._taken == self._count):
                try:
                    self._open()
                except StopIteration:
                    self._ended = True
                    break
                continue
            stop = min(self._taken + missing, self._count)
            whole = stop - self._taken == self._count and missing > 0
            parts.append(self._batch if whole else cut(self._batch, self._taken, stop))
            missing -= stop - self._taken
            self._taken = stop
        return missing, parts

    def _pass_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._sizes)

    def state(self) -> Any:
        return [*super().state(), self._turn, self._ended]

    def restore(self, state: Any) -> None:
        *held, self._turn, self._ended = state
        super().restore(held)


class _MappedBatches(BatchIterator):
    """Yields the result of the function of map_batches for each batch."""

    def __init__(self, node: MapBatches, context: Context) -> None:
        super().__init__(node, context)
        self._function = followed(node, context, self._input, partial(call, node.function))
        self._made = ElementMaker(node, context, is_batch=True).element

    def __next__(self) -> Any:
        batch = super().__next__()
        try:
            count = row_count(batch)
            result = self._made(self._function(batch))
            found = row_count(result)
            if found != count:
                raise InvalidArgumentError(
                    f"The function of map_batches returned {found} rows for a batch of {count}: "
                    "return a row for each row of the batch, or use batch().map().unbatch(), "
                    "where the number may change"
                )
            return result
        except FAILURES as error:
            raise failure(self._node, error) from error


@make_iterator.register(MapBatches)
class MapBatchesIterator(UnbatchIterator):
    """Yields the rows of a function's result for each batch.

    The state holds no results: restoring calls the function again, for up to 16
    batches. If the function fails, its whole batch is dropped.
    """

    def __init__(self, node: MapBatches, context: Context) -> None:
        super().__init__(node, context, _MappedBatches(node, context))


@element_at.register
def _(node: MapBatches, index: int) -> Any:
    batch, row = divmod(index, node.batch_size)
    return run_on(node, batch_elements(node, batch), number=row)


@element_at.register
def _(node: Unbatch, index: int) -> Any:
    spec = known_spec(node.input)
    rows = None if spec is None else leading_length(spec)
    if not rows:
        raise FailedPreconditionError(
            f"Dataset of type Unbatch has unknown cardinality which does not support random "
            f"access: {node.label} cannot compute element {index}, as batches may differ in "
            "length. Remedy: batch(n, drop_remainder=True) makes them equal, and after a function "
            "map(..., output_spec=) states their shape"
        )
    batch, row = divmod(index, rows)
    return run_on(node, [element_at(node.input, batch)], number=row)


@name_at.register
def _(node: MapBatches, index: int) -> Name:
    batch, row = divmod(index, node.batch_size)
    return _row_name(Batch(inputs=node.inputs, batch_size=node.batch_size), batch, row)


@name_at.register
def _(node: Unbatch, index: int) -> Name:
    rows = leading_length(known_spec(node.input))
    assert rows  # otherwise the element has no random access
    return _row_name(node.input, *divmod(index, rows))


def _row_name(batches: Node, batch: int, row: int) -> Name:
    group, position = name_at(batches, batch)
    return subgroup(subgroup(group, position), 0), row + 1
