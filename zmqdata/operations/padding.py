"""padded_batch, bucket_by_sequence_length, and the padding of leaves."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np

from zmqdata.elements.fillers import filler_of, zero_of
from zmqdata.elements.nesting import field_names, instance_of, map_structure, tuple_of
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.shapes import Shape, checked_shape
from zmqdata.elements.specs import NoneTensorSpec, TensorSpec, with_leading_axis
from zmqdata.elements.tensors import as_stackable, is_stackable
from zmqdata.elements.unpadded import pad_too_much
from zmqdata.elements.untyped import holds_untyped, is_untyped, retyped_alike
from zmqdata.errors import InvalidArgumentError, WrongTypeError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import failure
from zmqdata.iterators.context import Context
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inputs import followed, input_iterator
from zmqdata.iterators.stacking import check_arrays, mixed, stack, stack_leaves
from zmqdata.iterators.trail import Trail
from zmqdata.nodes.base import IN_LABEL, Infer, Unary, known_spec, unless_infinite
from zmqdata.operations.batch import Batch, BatchIterator
from zmqdata.peeking import peek


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


@make_iterator.register(PaddedBatch)
class PaddedBatchIterator(BatchIterator):
    """Stacks consecutive elements, padded. A batch that fails is dropped, and the next
    batch begins after it.
    """

    def __init__(self, node: PaddedBatch, context: Context) -> None:
        super().__init__(node, context)
        self._stackable = None  # stacked rows have one shape, which may have to grow
        self._shapes, self._values = node.padded_shapes, node.padding_values

    def _join(self, elements: list[Any]) -> Any:
        return pad_stack(elements, self._shapes, self._values)


def pad_stack(
    elements: Sequence[Any], padded_shapes: Any = None, padding_values: Any = None
) -> Any:
    """Stack elements whose arrays may differ in shape.

    Args:
        elements: at least one, of equal nesting, dtypes and numbers of axes.
        padded_shapes: for each leaf a shape to pad to, with None for an axis as long as
            the longest; None: every axis is as long as the longest.
        padding_values: for each leaf the value to pad with, or a single value for all;
            None: 0, the empty text, or what ``zero_of`` says of Python objects.

    Raises:
        InvalidArgumentError: the elements do not fit together, or exceed the shapes.

    >>> pad_stack([np.array([1, 2]), np.array([3])], padding_values=-1)
    array([[ 1,  2],
           [ 3, -1]])
    """
    if padded_shapes is None and padding_values is None:
        return stack(elements, "", pad_leaves)
    return stack(elements, "", pad_leaves, padding_plan(elements[0], padded_shapes, padding_values))


def pad_leaves(elements: Sequence[Any], place: str, padding: Padding | None) -> Any:
    """Stack the values of a leaf into a padded array.

    Raises:
        InvalidArgumentError: a value has another number of axes, another dtype, or is
            larger than the shape.

    >>> pad_leaves([np.zeros((1, 2)), np.ones((2, 1))], "", None).shape
    (2, 2, 2)
    """
    wanted, value = padding or (None, None)
    if is_stackable(type(elements[0])):
        elements = [*map(as_stackable, elements)]
    if is_untyped(elements[0]):
        elements = retyped_alike(elements)
    first = elements[0]
    if isinstance(first, RaggedTensor):
        raise mixed(
            0,
            place,
            "a RaggedTensor",
            "an array",
            "Use batch(), which stacks ragged tensors, or to_tensor(), which pads them",
        )
    if wanted is not None and len(wanted) != peek(first, "ndim", 0):
        _refuse_rank(first, place, wanted)
    if not isinstance(first, np.ndarray) or not first.ndim:
        return stack_leaves(elements, place)
    arrays = check_arrays(elements, place)
    shape = _shape_for_all(arrays, place, wanted)
    if all(array.shape == shape for array in arrays):
        return stack_leaves(arrays, place)
    return _padded(arrays, shape, value, place)


def _refuse_rank(first: Any, place: str, wanted: Shape) -> NoReturn:
    raise InvalidArgumentError(
        "All elements in a batch must have the same rank as the padded shape: element 0 of the "
        f"batch{f' at {place}' if place else ''} has shape {peek(first, 'shape', ())}, its "
        f"padded shape is {wanted}. Give a length, or None, for each axis in padded_shapes"
    )


def _shape_for_all(arrays: Sequence[Any], place: str, wanted: Shape | None) -> tuple[int, ...]:
    longest = tuple(map(max, zip(*[array.shape for array in arrays], strict=True)))
    if wanted is None:
        return longest
    shape = tuple(
        have if want is None else want for want, have in zip(wanted, longest, strict=True)
    )
    for index, array in enumerate(arrays):
        if any(have > want for have, want in zip(array.shape, shape, strict=True)):
            raise InvalidArgumentError(
                f"Attempted to pad to a smaller size than the input element: element {index} of "
                f"the batch{f' at {place}' if place else ''} has shape {array.shape}, its padded "
                f"shape is {wanted}. Cut the element in a map(), filter() it out, or give a "
                "larger length, or None, in padded_shapes"
            )
    return shape


def _padded(arrays: Sequence[Any], shape: tuple[int, ...], value: Any, place: str) -> Any:
    dtype = arrays[0].dtype
    if dtype.kind in "US":
        # The dtype must be wide enough for all texts.
        is_wide = pad_too_much(arrays)
        dtype = np.result_type(*[array.dtype for array in arrays], *[object] * is_wide)
    filler = None if value is None else filler_of(value, dtype, place)
    if filler is not None and dtype.kind in "US":
        dtype = np.result_type(dtype, filler.dtype)
    elif dtype.kind == "O" and filler is None:
        filler = np.array(zero_of(chain.from_iterable(array.flat for array in arrays)), dtype)
    padded: Any = np.zeros((len(arrays), *shape), dtype)
    if filler is not None:
        padded[...] = filler
    if len(shape) == 1:
        for row, array in zip(padded, arrays, strict=True):
            row[: len(array)] = array
    else:
        for row, array in zip(padded, arrays, strict=True):
            row[tuple(map(slice, array.shape))] = array
    return padded


@make_iterator.register(BucketBySequenceLength)
class BucketIterator(ElementIterator):
    """Collects elements by their length. At the end, incomplete batches come in the
    order of the buckets.

    The state holds the numbers of the elements in the buckets, not the elements.
    Restoring pulls them again from the oldest on, which takes long if an element of a
    rare length waits.
    """

    def __init__(self, node: BucketBySequenceLength, context: Context) -> None:
        self._node = node
        self._publish_in(context)
        self._numbers: list[list[int]] = [[] for _ in node.batch_sizes]
        self._buckets: list[list[Any]] = [[] for _ in node.batch_sizes]
        self._trail = Trail(
            input_iterator(node, context), max(16, sum(node.batch_sizes)), self._oldest
        )
        self._length = followed(node, context, self._trail.source, node.length_function)
        self._boundaries = node.boundaries
        self._retyped = ElementMaker(node.input, context).retyped
        self._known = (
            known_spec(node.input)
            if node.pad_to_bucket_boundary and node.padded_shapes is None
            else None
        )
        self._ended = False

    def _oldest(self) -> int:
        return min((numbers[0] for numbers in self._numbers if numbers), default=self._trail.pulled)

    def __next__(self) -> Any:
        trail, sizes = self._trail, self._node.batch_sizes
        while not self._ended:
            number = trail.pulled
            try:
                element = trail.pull()
            except StopIteration:
                self._ended = True
                break
            bucket = self._bucket_of(element)
            elements = self._buckets[bucket]
            elements.append(element)
            self._numbers[bucket].append(number)
            if len(elements) == sizes[bucket]:
                return self._emptied(bucket)
        for bucket, elements in enumerate(self._buckets):
            if elements and not self._node.drop_remainder:
                return self._emptied(bucket)
        raise StopIteration

    def _bucket_of(self, element: Any) -> int:
        self._strand.place = self._own_place
        try:
            length = self._length(*element) if type(element) is tuple else self._length(element)
            bucket = bisect_right(
                self._boundaries, length if type(length) is int else as_length(length)
            )
            if bucket == len(self._boundaries) and self._node.pad_to_bucket_boundary:
                raise InvalidArgumentError(
                    "When pad_to_bucket_boundary=True, elements must have length < "
                    f"max(bucket_boundaries), which is {self._node.boundaries[-1]}; got an "
                    f"element of length {length}. Add a boundary, or filter() it out"
                )
            return bucket
        except FAILURES as error:
            raise failure(self._node, error) from error

    def _emptied(self, bucket: int) -> Any:
        self._strand.place = self._own_place
        elements = self._buckets[bucket]
        self._buckets[bucket], self._numbers[bucket] = [], []
        node = self._node
        try:
            if holds_untyped(elements[0]):
                elements = [*map(self._retyped, elements)]
            if node.no_padding:
                return stack(elements)
            shapes = node.padded_shapes
            if node.pad_to_bucket_boundary:
                shapes = self._shapes_within(elements[0], node.boundaries[bucket] - 1)
            return pad_stack(elements, shapes, node.padding_values)
        except FAILURES as error:
            raise failure(node, error) from error

    def _shapes_within(self, element: Any, length: int) -> Any:
        """Return the shapes to pad to, with the length of the bucket for the axes that
        vary.
        """

        def leaf_shape(padding: Padding, leaf: Any, spec: Any) -> Any:
            if padding.shape is not None:
                shape: Any = padding.shape
            elif spec is not None and spec.shape is not None:
                shape = spec.shape
            else:
                # The spec is unknown; sequences vary along the first axis.
                return (length, *(None,) * (leaf.ndim - 1)) if peek(leaf, "ndim", 0) else ()
            return tuple(length if axis is None else axis for axis in shape)

        plan = padding_plan(element, self._node.padded_shapes, None)
        known = map_structure(lambda _: None, element) if self._known is None else self._known
        return map_structure(
            lambda leaf, padding, spec: leaf_shape(padding, leaf, spec), element, plan, known
        )

    def state(self) -> Any:
        trail = self._trail.state()
        held = [[number - trail[0] for number in numbers] for numbers in self._numbers]
        return [
            trail,
            {str(bucket): offsets for bucket, offsets in enumerate(held) if offsets},
            self._ended,
        ]

    def restore(self, state: Any) -> None:
        trail, held, self._ended = state
        wanted = {
            int(bucket): [trail[0] + offset for offset in offsets]
            for bucket, offsets in held.items()
        }
        found = self._trail.restore(
            trail, {number for numbers in wanted.values() for number in numbers}
        )
        for bucket, numbers in wanted.items():
            self._numbers[bucket] = numbers
            self._buckets[bucket] = [found[number] for number in numbers]

    def close(self) -> None:
        self._trail.source.close()


def as_length(value: Any) -> int:
    """Return the result of an element_length_func as an int.

    Raises:
        TypeError: the result is not a single integer.

    >>> as_length(np.array(3))
    3
    """
    array = np.asarray(value)
    if array.shape == () and array.dtype.kind in "iu":
        return int(array)
    came = (
        f"an array of shape {array.shape} and dtype {array.dtype}"
        if isinstance(value, np.ndarray)
        else repr(value)
    )
    raise TypeError(
        f"element_length_func must return one integer, it returned {came}: use len() or .shape[0]"
    )
