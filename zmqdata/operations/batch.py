"""Batches of consecutive elements: batch, its collate_fn, and ragged_batch. Stacking is
in ``iterators.stacking``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.nesting import leaves_of, map_arrays, map_structure
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec, concatenate
from zmqdata.elements.specs import with_leading_axis
from zmqdata.elements.tensors import as_stackable, is_stackable
from zmqdata.elements.unpadded import MOST_PADDED, array_of_texts
from zmqdata.elements.untyped import holds_untyped, is_untyped, retyped_alike
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import Stackable, make_iterator
from zmqdata.iterators.calling import failure, is_end
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inputs import UnaryIterator
from zmqdata.iterators.random_access import element_at, element_of_uncounted, name_at
from zmqdata.iterators.stacking import check_arrays, holds_none, stack, stack_leaves
from zmqdata.iterators.states import Bookmark
from zmqdata.nodes.base import IN_LABEL, NOTHING_AGAIN, Infer, Unary, known_spec
from zmqdata.operations.sequences import run_on


@dataclass(frozen=True, kw_only=True)
class Batch(Unary):
    """Stacks consecutive elements."""

    batch_size: int = field(metadata=IN_LABEL)
    """Number of elements in a batch."""
    drop_remainder: bool = False
    """True to drop an incomplete last batch."""
    operation: ClassVar[str] = "batch"
    restoring: ClassVar[str] = NOTHING_AGAIN
    own_state: ClassVar[int] = 0

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        if count < 0:
            return count
        return count // self.batch_size if self.drop_remainder else -(-count // self.batch_size)

    @property
    def batch_rows(self) -> int:
        within = self.input.batch_rows
        return self.batch_size * (1 if within is None else within)

    def spec(self, infer: Infer) -> Any:
        return with_leading_axis(
            infer(self.input), self.batch_size if self.drop_remainder else None
        )


@dataclass(frozen=True, kw_only=True)
class ListBatch(Batch):
    """Yields lists of consecutive elements, which ``Collate`` takes."""

    def spec(self, infer: Infer) -> Any:
        return None


@dataclass(frozen=True, kw_only=True)
class RaggedBatch(Batch):
    """Stacks consecutive elements; arrays whose shape may vary become ragged
    tensors.
    """

    row_splits_dtype: str = "int64"
    """Dtype of the row splits."""
    operation: ClassVar[str] = "ragged_batch"

    def spec(self, infer: Infer) -> Any:
        length = self.batch_size if self.drop_remainder else None
        spec, known = infer(self.input), known_spec(self.input)

        def leaf_spec(leaf: Any) -> Any:
            rank = ragged_axes(leaf, known is not None)
            if not rank:
                return with_leading_axis(leaf, length)
            shape = leaf.shape if known is not None else (None,) * rank
            return RaggedTensorSpec((length, *shape), leaf.dtype, rank, self.row_splits_dtype)

        return map_structure(leaf_spec, spec)


def ragged_axes(spec: Any, by_rule: bool) -> int:
    """Return the number of axes of a leaf that become ragged: through the last axis
    that may vary. Without a rule, every axis may vary.

    >>> from zmqdata.elements.specs import TensorSpec
    >>> shapes = (None, 3), (5, 3), (5, None)
    >>> [ragged_axes(TensorSpec(shape), True) for shape in shapes]
    [1, 0, 2]
    """
    if isinstance(spec, RaggedTensorSpec) or spec.shape is None:
        return 0
    varying = [axis + 1 for axis, length in enumerate(spec.shape) if length is None or not by_rule]
    return max(varying, default=0)


class BatchMaker:
    """Makes batches of lists of elements of an operation's input.

    Args:
        node: the operation.
        context: its context.
    """

    def __init__(self, node: Unary, context: Context) -> None:
        self._node = node
        self._maker = ElementMaker(node.input, context)
        self._has_none = False  # True once a leaf of a batch was None

    def made(
        self, elements: list[Any], join: Callable[[list[Any]], Any], named: Callable[[], str] = str
    ) -> Any:
        """Return the batch of some elements.

        Args:
            elements: the elements.
            join: makes a batch of elements.
            named: returns ``called_for`` of ``failure``.
        """
        try:
            if holds_untyped(elements[0]):
                elements = [*map(self._maker.retyped, elements)]
            batch = join(elements)
            if self._has_none or holds_none(batch):
                self._has_none = True
                self._maker.check_none(batch)
            return batch
        except FAILURES as error:
            raise failure(self._node, error, named()) from error


@make_iterator.register(Batch)
class BatchIterator(UnaryIterator):
    """Stacks consecutive elements; takes rows of an in-memory source together.

    If an element fails, its batch fails, and the next batch begins after that element,
    as in tf.data. If an error ends the input, the elements pulled for the batch are
    kept: the state is that from before the batch, provided that noting it is cheap.
    """

    def __init__(self, node: Batch, context: Context) -> None:
        super().__init__(node, context)
        self._size = min(node.batch_size, sys.maxsize)
        self._least = node.batch_size if node.drop_remainder else 1
        self._stackable = self._input if isinstance(self._input, Stackable) else None
        spec = known_spec(node.input) if self._stackable is not None else None
        has_texts = spec is not None and any(map(_is_text, leaves_of(spec)))
        self._spec = spec if has_texts else None
        self._maker = BatchMaker(node, context)
        self._notes: bool | None = None
        self._broken_off: Bookmark | None = None

    def __next__(self) -> Any:
        if self._stackable is not None:
            return self._next_stacked(self._stackable)
        return self._maker.made(self._next_elements(), self._join)

    def rewind(self, repetition: int) -> bool:
        self._broken_off = None
        return self._input.rewind(repetition)

    def _next_elements(self) -> list[Any]:
        """Return the elements of the next batch, or raise StopIteration if they are too
        few.
        """
        if self._notes is None:
            self._notes = isinstance(self._input.state(), Bookmark)
        before = self._input.state() if self._notes else None
        try:
            elements = list(islice(self._input, self._size))
        except Exception as error:
            if is_end(error):
                self._broken_off = before
            raise
        self._strand.place = self._own_place
        if len(elements) < self._least:
            raise StopIteration
        return elements

    def _join(self, elements: list[Any]) -> Any:
        return stack(elements)

    def state(self) -> Any:
        return super().state() if self._broken_off is None else self._broken_off

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._broken_off = None

    def _next_stacked(self, source: Stackable) -> Any:
        missing, parts = self._size, []
        while missing:
            try:
                count, rows = source.next_stacked(missing)
            except StopIteration:
                break
            missing -= count
            parts.append(rows)
        self._strand.place = self._own_place
        if self._size - missing < self._least:
            raise StopIteration
        batch = parts[0]
        if len(parts) > 1:
            batch = map_arrays(lambda *arrays: concatenate(arrays), *parts)
        return batch if self._spec is None else map_structure(_stacked, self._spec, batch)


def _stacked(spec: Any, rows: Any) -> Any:
    """Return the rows of a source in memory in the form of stacked elements."""
    is_small = rows is None or (rows.dtype.kind in "US" and rows.nbytes <= MOST_PADDED)
    return rows if is_small or not _is_text(spec) else array_of_texts(rows.tolist())


def _is_text(spec: Any) -> bool:
    return spec.shape == () and spec.dtype.kind in "US"


@make_iterator.register(ListBatch)
class ListBatchIterator(BatchIterator):
    """Yields lists of consecutive elements, as they are."""

    def __next__(self) -> Any:
        return self._next_elements()


@make_iterator.register(RaggedBatch)
class RaggedBatchIterator(BatchIterator):
    """Stacks consecutive elements; arrays whose shape may vary become ragged tensors.

    The spec of the input determines which arrays vary, if it is known without running
    anything. Otherwise all arrays become ragged, in all of their axes.
    """

    def __init__(self, node: RaggedBatch, context: Context) -> None:
        super().__init__(node, context)
        known = known_spec(node.input)
        self._ranks = (
            None if known is None else map_structure(lambda leaf: ragged_axes(leaf, True), known)
        )
        self._stackable = self._stackable if known is not None and _is_dense(self._ranks) else None
        self._dtype = np.dtype(node.row_splits_dtype)

    def _join(self, elements: list[Any]) -> Any:
        return stack(elements, "", self._join_leaves, self._ranks)

    def _join_leaves(self, elements: Sequence[Any], place: str, rank: int | None) -> Any:
        return ragged_rows(elements, place, lambda arrays: rank, self._dtype)


def ragged_rows(
    elements: Sequence[Any],
    place: str,
    rank_of: Callable[[Sequence[Any]], int | None],
    dtype: np.dtype[Any],
) -> Any:
    """Return leaves of several elements, arrays as a ragged tensor.

    Args:
        elements: the leaves.
        place: their position in the element, for errors.
        rank_of: returns the number of axes of some arrays that become ragged; None
            stands for all.
        dtype: dtype of the row splits.
    """
    if is_stackable(type(elements[0])):
        elements = [*map(as_stackable, elements)]
    if is_untyped(elements[0]):
        elements = retyped_alike(elements)
    first = elements[0]
    if not isinstance(first, np.ndarray) or not first.ndim:
        return stack_leaves(elements, place)
    rank = rank_of(elements)
    if rank == 0:
        return stack_leaves(elements, place)
    ragged = first.ndim if rank is None else min(rank, first.ndim)
    return RaggedTensor.from_rows(check_arrays(elements, place, first.shape, ragged), dtype, ragged)


def _is_dense(ranks: Any) -> bool:
    found: list[int] = []
    map_structure(found.append, ranks)
    return not any(found)


def batch_elements(node: Batch, index: int) -> list[Any]:
    """Return the elements of batch ``index``."""
    start, count = index * node.batch_size, node.input.cardinality
    if count < 0:
        numbers = range(start, start + node.batch_size)
        return [element_of_uncounted(node.input, number) for number in numbers]
    stop = min(start + node.batch_size, count)
    return [element_at(node.input, number) for number in range(start, stop)]


@element_at.register
def _(node: Batch, index: int) -> Any:
    return run_on(node, batch_elements(node, index))


@name_at.register
def _(node: Batch, index: int) -> Name:
    count, stop = node.input.cardinality, (index + 1) * node.batch_size
    return name_at(node.input, (stop if count < 0 else min(stop, count)) - 1)
