"""Nodes without inputs: the sources of elements. Reading belongs to ``iterators``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.nesting import leaves_of, map_structure
from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    DatasetSpec,
    TensorSpec,
    merge_specs,
    spec_of,
    without_leading_axis,
)
from zmqdata.files.filenames import portable
from zmqdata.files.matching import matching_files
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.nodes.base import AT_ITS_PLACE, IN_LABEL, ByIdentity, Infer, Node
from zmqdata.peeking import peek
from zmqdata.splits import FileSplits, IndexSplits, SplitSource


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

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(None if self.cardinality == INFINITE_CARDINALITY else self.count)

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

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(1)

    def spec(self, infer: Infer) -> Any:
        return map_structure(partial(_leaf_spec, infer), self.tensors)


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorSlices(ByIdentity, Node):
    """Yields the rows of a structure of arrays that all have the same first length."""

    tensors: Any = field(repr=False)
    """The structure of arrays."""
    operation: ClassVar[str] = "from_tensor_slices"
    restoring: ClassVar[str] = AT_ITS_PLACE

    @property
    def cardinality(self) -> int:
        return next(len(leaf) for leaf in leaves_of(self.tensors) if leaf is not None)

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(self.cardinality)

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
    split_unit: ClassVar[str] = "generators"
    restoring: ClassVar[str] = "runs the generator again up to its position"
    own_state: ClassVar[int] = 16

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(1)

    @property
    def declared_spec(self) -> Any:
        return self.output_signature


@dataclass(frozen=True, kw_only=True)
class ListFiles(Node):
    """Yields the names of the files that match absolute patterns, listed anew in each
    repetition.
    """

    patterns: tuple[str, ...]
    """Absolute glob patterns."""
    shuffle: bool
    """True to shuffle the names."""
    seed: int | None = None
    """Seed of the order; None: that of the context."""
    operation: ClassVar[str] = "list_files"
    split_unit: ClassVar[str] = "files"
    restoring: ClassVar[str] = "lists the files again"

    @property
    def argument(self) -> str:
        return ", ".join(map(repr, self.patterns[:1])) + (", ..." if len(self.patterns) > 1 else "")

    @property
    def cardinality(self) -> int:
        return len(self._names())

    @property
    def split_source(self) -> FileSplits:
        return FileSplits(tuple(map(portable, self.patterns)), self.shuffle, self.seed)

    def ordered(self, seed: int, turn: int, splits: FileSplits | None = None) -> tuple[str, ...]:
        """Return the portable names of the files that match now, in the order of a
        turn, see ``FileSplits.ordered``.

        Args:
            seed: seed of what has none of the user.
            turn: the turn.
            splits: the splits of these files, as a shuffle draws them; None: their own
                order.
        """
        return (splits or self.split_source).ordered(map(portable, self._names()), seed, turn)

    def _names(self) -> list[str]:
        with shortage_explained("list_files"):
            return matching_files(self.patterns)

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.str_)
