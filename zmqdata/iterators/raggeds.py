"""Iterator of ragged_batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zmqdata.elements.nesting import map_structure
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.tensors import as_stackable, is_stackable
from zmqdata.elements.untyped import is_untyped, retyped_alike
from zmqdata.iterators.base import Context, make_iterator
from zmqdata.iterators.batch import BatchIterator, check_arrays, stack, stack_leaves
from zmqdata.nodes.base import known_spec
from zmqdata.nodes.batches import RaggedBatch, ragged_axes


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
        if is_stackable(type(elements[0])):
            elements = [*map(as_stackable, elements)]
        if is_untyped(elements[0]):
            elements = retyped_alike(elements)
        first = elements[0]
        if not isinstance(first, np.ndarray) or not first.ndim or rank == 0:
            return stack_leaves(elements, place)
        ragged = first.ndim if rank is None else min(rank, first.ndim)
        return RaggedTensor.from_rows(
            check_arrays(elements, place, first.shape, ragged), self._dtype, ragged
        )


def _is_dense(ranks: Any) -> bool:
    found: list[int] = []
    map_structure(found.append, ranks)
    return not any(found)
