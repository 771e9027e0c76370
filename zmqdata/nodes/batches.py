"""Nodes that make batches with padding or ragged leaves, and nodes that take batches
apart.

``Batch`` itself is in ``transforms``. Running belongs to ``iterators``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from zmqdata.elements.fillers import filler_of
from zmqdata.elements.nesting import field_names, instance_of, map_structure, tuple_of
from zmqdata.elements.ragged import RaggedTensorSpec
from zmqdata.elements.shapes import Shape, checked_shape
from zmqdata.elements.specs import (
    UNKNOWN_CARDINALITY,
    NoneTensorSpec,
    TensorSpec,
    leading_length,
    with_leading_axis,
    with_leading_length,
    without_leading_axis,
)
from zmqdata.errors import InvalidArgumentError, WrongTypeError
from zmqdata.nodes.base import IN_LABEL, Infer, Node, function_name, known_spec
from zmqdata.nodes.transforms import Batch, Calling, Unary, unless_infinite


class Padding(NamedTuple):
    """Padding of a leaf."""

    shape: Shape | None = None
    """Shape to pad to; None: the longest in the batch."""
    value: Any = None
    """Value to pad with; None: zeros."""


def padding_plan(structure: Any, padded_shapes: Any, padding_values: Any) -> Any:
    """Return a ``Padding`` for each leaf of an element or spec.

    Args:
        structure: an element, or its spec.
        padded_shapes: a shape for each leaf, in the same nesting; None: no shape is
            given.
        padding_values: a value for each leaf, or a single value for all, or None. In
            both, None may also stand for a part of the element.

    Raises:
        InvalidArgumentError: the nesting differs.

    >>> padding_plan({"x": 1, "y": 2}, {"x": [], "y": [None, 3]}, -1)["y"]
    Padding(shape=(None, 3), value=-1)
    """
    shapes = _for_each_leaf("padded_shapes", structure, padded_shapes)
    values = _for_each_leaf("padding_values", structure, padding_values)
    return map_structure(lambda _, shape, value: Padding(shape, value), structure, shapes, values)


def _for_each_leaf(name: str, structure: Any, given: Any) -> Any:
    nested = isinstance(given, (dict, tuple)) or field_names(type(given)) is not None
    if name == "padding_values" and not nested:
        return map_structure(lambda _: given, structure)
    try:
        return map_structure(
            lambda _, one: _shape(one) if name == "padded_shapes" else one,
            structure,
            _with_all_parts(structure, given),
        )
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError) as error:
        nesting = map_structure(lambda _: "*", structure)
        raise InvalidArgumentError(
            f"{name} must have the nesting of the elements, which is {nesting}; got {given!r} "
            f"({error}). Give a value for each leaf"
        ) from None


def _with_all_parts(structure: Any, given: Any) -> Any:
    """Return ``given`` with None for each leaf of a part that it leaves out by None."""
    if given is None:
        return map_structure(lambda _: None, structure)
    if isinstance(structure, dict) and isinstance(given, dict):
        return {
            key: _with_all_parts(structure[key], part) if key in structure else part
            for key, part in given.items()
        }
    if isinstance(structure, tuple) and isinstance(given, tuple) and len(structure) == len(given):
        parts = map(_with_all_parts, structure, given)
        return tuple_of(type(given), parts)
    names = field_names(type(structure))
    if names is not None and type(given) is type(structure):
        values = [_with_all_parts(getattr(structure, name), getattr(given, name)) for name in names]
        return instance_of(type(given), names, values)
    return given


def _shape(given: Any) -> Shape | None:
    if given is None:
        return None
    if isinstance(given, dict):
        raise TypeError("a dict is no shape")
    axes = [given] if isinstance(given, (int, np.integer)) else given
    try:
        lengths = [None if length is None or length == -1 else length for length in axes]
        return checked_shape(lengths)
    except (TypeError, ValueError):
        found = np.asarray(given, None if isinstance(given, np.ndarray) else object)
        was = f"shape was {found.shape}" if found.ndim > 1 else f"elements were {found.tolist()}"
        raise WrongTypeError(
            f"Padded shape {given!r} must be a 1-D array of integers, but its {was}. Entries of "
            "padded_shapes are lists of lengths of at least 0, with None or -1 for an axis as long "
            "as the longest"
        ) from None


def padded_spec(
    spec: Any, known: Any, padded_shapes: Any, padding_values: Any, length: int | None
) -> Any:
    """Return the spec of padded batches of ``length`` elements.

    Args:
        spec: spec of the elements.
        known: the same spec if it follows by rule; None: it was found by running an
            element, so its lengths may vary.
        padded_shapes: shapes given by the user.
        padding_values: values given by the user.
        length: length of the batches; None if it varies.

    Raises:
        WrongTypeError: a leaf has a dtype that cannot be padded with its value.

    >>> padded_spec(TensorSpec((3, 2)), None, None, None, 4)
    TensorSpec(shape=(4, None, None), dtype=float32)
    """

    def leaf_spec(leaf: Any, padding: Padding) -> Any:
        if isinstance(leaf, NoneTensorSpec):
            return leaf
        shape = padding.shape
        if padding.value is not None and leaf.shape != ():
            filler_of(padding.value, leaf.dtype)
        if shape is None and leaf.shape is not None:
            shape = leaf.shape if known is not None else (None,) * len(leaf.shape)
        return TensorSpec(None if shape is None else (length, *shape), leaf.dtype)

    return map_structure(leaf_spec, spec, padding_plan(spec, padded_shapes, padding_values))


@dataclass(frozen=True, kw_only=True)
class PaddedBatch(Batch):
    """Stacks consecutive elements whose arrays are padded to the same shape."""

    padded_shapes: Any = None
    """Shape for each leaf; None: the longest of each batch."""
    padding_values: Any = None
    """Value for each leaf, or a single value for all; None: zeros."""
    operation: ClassVar[str] = "padded_batch"

    def spec(self, infer: Infer) -> Any:
        length = self.batch_size if self.drop_remainder else None
        spec, known = infer(self.input), known_spec(self.input)
        return padded_spec(spec, known, self.padded_shapes, self.padding_values, length)


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

    >>> shapes = (None, 3), (5, 3), (5, None)
    >>> [ragged_axes(TensorSpec(shape), True) for shape in shapes]
    [1, 0, 2]
    """
    if isinstance(spec, RaggedTensorSpec) or spec.shape is None:
        return 0
    varying = [axis + 1 for axis, length in enumerate(spec.shape) if length is None or not by_rule]
    return max(varying, default=0)


@dataclass(frozen=True, kw_only=True)
class Unbatch(Unary):
    """Yields the rows of its elements."""

    operation: ClassVar[str] = "unbatch"
    batch_rows: ClassVar[None] = None
    restoring: ClassVar[str] = "pulls up to 16 batches again"
    own_state: ClassVar[int] = 16

    @property
    def cardinality(self) -> int:
        return row_count(self.input)

    def spec(self, infer: Infer) -> Any:
        return without_leading_axis(infer(self.input))


def row_count(node: Node) -> int:
    """Return the number of rows of all elements of a node together, UNKNOWN_CARDINALITY
    or INFINITE_CARDINALITY.

    >>> from zmqdata.nodes.sources import Range
    >>> numbers = Range(start=0, stop=7)
    >>> row_count(Batch(inputs=(numbers,), batch_size=2, drop_remainder=True))
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

    batch_sizes: tuple[int, ...]
    """Sizes of the batches, repeated."""
    drop_remainder: bool = False
    """True to drop an incomplete last batch."""
    operation: ClassVar[str] = "rebatch"
    restoring: ClassVar[str] = "pulls up to 16 batches again"
    own_state: ClassVar[int] = 24

    @property
    def argument(self) -> str:
        return ", ".join(map(str, self.batch_sizes))

    @property
    def batch_rows(self) -> int:
        return self.batch_sizes[0] if len(set(self.batch_sizes)) == 1 else 0

    @property
    def cardinality(self) -> int:
        rows = row_count(self.input)
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
class BucketBySequenceLength(Unary):
    """Batches elements of similar length."""

    length_function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Returns the length of an element."""
    boundaries: tuple[int, ...]
    """Bucket ``i`` holds lengths below ``boundaries[i]`` that no lower bucket holds;
    the last bucket holds all others.
    """
    batch_sizes: tuple[int, ...]
    """Batch size of each bucket."""
    padded_shapes: Any = None
    """Shape for each leaf; None: see ``pad_to_bucket_boundary``."""
    padding_values: Any = None
    """Value for each leaf, or a single value for all; None: zeros."""
    pad_to_bucket_boundary: bool = False
    """True to pad to the greatest length of the bucket, False to the longest element of
    the batch.
    """
    no_padding: bool = False
    """True to stack without padding."""
    drop_remainder: bool = False
    """True to drop incomplete batches at the end."""
    operation: ClassVar[str] = "bucket_by_sequence_length"
    restoring: ClassVar[str] = (
        "pulls again from the oldest waiting element, which may be far back for a rare length"
    )

    @property
    def batch_rows(self) -> int:
        return self.batch_sizes[0] if len(set(self.batch_sizes)) == 1 else 0

    @property
    def state_bytes(self) -> int:
        return 16 + 4 * sum(self.batch_sizes)

    @property
    def cardinality(self) -> int:
        return unless_infinite(self.input)

    def spec(self, infer: Infer) -> Any:
        same = self.drop_remainder and len(set(self.batch_sizes)) == 1
        length = self.batch_sizes[0] if same else None
        spec = infer(self.input)
        if self.no_padding:
            return with_leading_axis(spec, length)
        known = known_spec(self.input)
        return padded_spec(spec, known, self.padded_shapes, self.padding_values, length)


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
    restoring: ClassVar[str] = "calls the function again for up to 16 batches"
    own_state: ClassVar[int] = 16

    @property
    def argument(self) -> str:
        return function_name(self.function)

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        return count - count % self.batch_size if count > 0 and self.drop_remainder else count

    @property
    def declared_spec(self) -> Any:
        return self.output_spec
