"""The transformations of ``Dataset`` that make batches of elements that differ, and
those that take batches apart.

A part of the class in ``surface``; ``batch`` itself is in ``transforms``. How they run
is in ``iterators``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from zmqdata import nodes
from zmqdata.dataset.arguments import at_least, flag, function, integer, optional_spec, refuse
from zmqdata.dataset.parts import D
from zmqdata.dataset.transforms import Transformations
from zmqdata.elements.ragged import RaggedTensorSpec, splits_dtype
from zmqdata.elements.specs import leading_length, map_structure
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.padding import filler_of
from zmqdata.nodes import Padding, known_spec, padding_plan


class Batches(Transformations[D]):
    """Makes datasets (``D``) of other batches out of this one."""

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> D:
        """Stack consecutive elements whose arrays differ in length, padded at the end
        of each axis.

        Args:
            batch_size: how many elements; the last batch may have fewer.
            padded_shapes: a shape for each array, in the nesting of the elements. An
                axis of None (or -1) becomes as long as the longest in the batch. None:
                all axes whose length is not known do.
            padding_values: what to pad with, for each array or one for all; None: 0, or
                the empty text.
            drop_remainder: leave out a last batch that is not full.

        Raises:
            InvalidArgumentError: shapes or values are known not to fit the elements, in
                nesting, axes or dtype.
            TypeError: there are ragged tensors among the elements.

        >>> from zmqdata.dataset import Dataset
        >>> next(iter(Dataset.range(1, 4).map(lambda n: np.full(n, n)).padded_batch(3, padding_values=-1)))
        array([[ 1, -1, -1],
               [ 2,  2, -1],
               [ 3,  3,  3]])

        As ``tf.data.Dataset.padded_batch``; a padding value is converted to the dtype
        of its array if that keeps it.
        """
        size, drop = at_least("batch_size", batch_size, 1), flag("drop_remainder", drop_remainder)
        check_padding("padded_batch", known_spec(self._node), padded_shapes, padding_values)
        return self._then(
            nodes.PaddedBatch,
            batch_size=size,
            drop_remainder=drop,
            padded_shapes=padded_shapes,
            padding_values=padding_values,
        )

    def ragged_batch(
        self, batch_size: int, drop_remainder: bool = False, row_splits_dtype: Any = np.int64
    ) -> D:
        """Stack consecutive elements whose arrays differ in length, without padding.

        Arrays become ``RaggedTensor``, ragged through the last axis whose length is not
        known; those whose shape is known are stacked as in ``batch``. Behind a function
        without ``output_spec`` no length is known.

        Args:
            batch_size: how many elements; the last batch may have fewer.
            drop_remainder: leave out a last batch that is not full.
            row_splits_dtype: int64 or int32.

        >>> from zmqdata.dataset import Dataset
        >>> next(iter(Dataset.range(3).map(np.arange).ragged_batch(3)))
        RaggedTensor([[], [0], [0, 1]], dtype=int64)

        As ``tf.data.Dataset.ragged_batch``.
        """
        size, drop = at_least("batch_size", batch_size, 1), flag("drop_remainder", drop_remainder)
        try:
            splits = splits_dtype(row_splits_dtype).name
        except TypeError:
            refuse("row_splits_dtype", row_splits_dtype, "int64 or int32")
        return self._then(
            nodes.RaggedBatch, batch_size=size, drop_remainder=drop, row_splits_dtype=splits
        )

    def unbatch(self) -> D:
        """The rows of each element, as elements.

        Raises:
            InvalidArgumentError: an array is known to have no axis, or they have
                different numbers of rows.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).batch(2).unbatch()]
        [0, 1, 2, 3, 4]

        As ``tf.data.Dataset.unbatch``.
        """
        check_rows("unbatch()", known_spec(self._node))
        return self._then(nodes.Unbatch)

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False) -> D:
        """The same rows in batches of another size, as ``unbatch().batch(batch_size)``
        but faster.

        Args:
            batch_size: how many rows; of several sizes each has its turn, and one of 0
                makes an empty batch.
            drop_remainder: leave out a last batch that is not full.

        Raises:
            InvalidArgumentError: an array is known to have no axis, or they have
                different numbers of rows.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.range(7).batch(4).rebatch([2, 1]))
        [array([0, 1]), array([2]), array([3, 4]), array([5]), array([6])]

        As ``tf.data.Dataset.rebatch``. In the service each worker has a remainder of
        its own.
        """
        given: Any = batch_size
        if not (
            isinstance(given, (list, tuple)) or (isinstance(given, np.ndarray) and given.ndim == 1)
        ):
            given = [at_least("batch_size", given, 1)]
        sizes = tuple([at_least("batch_size", size, 0) for size in given])
        if not any(sizes):
            raise ValueError(
                f"batch_size must be an int or a sequence with one of at least 1, got {list(given)}"
            )
        check_rows("rebatch()", known_spec(self._node))
        return self._then(
            nodes.Rebatch, batch_sizes=sizes, drop_remainder=flag("drop_remainder", drop_remainder)
        )

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
    ) -> D:
        """Make batches of elements that are about equally long, which need little
        padding.

        Args:
            element_length_func: the length of an element, an int; gets a plain tuple as
                its arguments.
            bucket_boundaries: rising lengths; bucket ``i`` holds those from
                ``bucket_boundaries[i - 1]`` to below ``bucket_boundaries[i]``, the last
                one all others.
            bucket_batch_sizes: how many elements make a batch, for each bucket: one
                more than boundaries.
            padded_shapes: as in ``padded_batch``.
            padding_values: as in ``padded_batch``.
            pad_to_bucket_boundary: pad axes whose length is not known to one less than
                the upper boundary. Where nothing is known of the shapes, that is the
                first axis of each array.
            no_padding: batch without padding; all elements of a bucket must have one
                shape.
            drop_remainder: leave out batches that are not full at the end.

        >>> from zmqdata.dataset import Dataset
        >>> ds = Dataset.from_tensor_slices([1, 5, 2, 6]).map(np.ones)
        >>> [batch.shape for batch in ds.bucket_by_sequence_length(len, [4], [2, 2])]
        [(2, 2), (2, 6)]

        As ``tf.data.Dataset.bucket_by_sequence_length``. In the service each worker has
        buckets of its own.
        """
        boundaries, sizes = buckets(bucket_boundaries, bucket_batch_sizes)
        spec = known_spec(self._node)
        if not flag("no_padding", no_padding):
            check_padding("bucket_by_sequence_length", spec, padded_shapes, padding_values)
        return self._then(
            nodes.BucketBySequenceLength,
            length_function=function("element_length_func", element_length_func),
            boundaries=boundaries,
            batch_sizes=sizes,
            padded_shapes=padded_shapes,
            padding_values=padding_values,
            pad_to_bucket_boundary=flag("pad_to_bucket_boundary", pad_to_bucket_boundary),
            no_padding=bool(no_padding),
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    def map_batches(
        self,
        map_func: Callable[..., Any],
        batch_size: int,
        drop_remainder: bool = False,
        *,
        output_spec: Any = None,
    ) -> D:
        """Apply a vectorised function to stacked elements, and go on with single ones.

        Args:
            map_func: gets a batch as ``batch`` makes it (a plain tuple as its
                arguments), and returns as many rows.
            batch_size: how many elements it gets at a time; the last time it may be
                fewer.
            drop_remainder: leave out the elements that do not fill a batch.
            output_spec: what single elements of the result look like; None: found by
                running a batch, when asked.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).map_batches(lambda rows: rows * 10, 2)]
        [0, 10, 20, 30, 40]

        Ours: ``batch(batch_size).map(map_func).unbatch()`` whose length is known.
        """
        return self._then(
            nodes.MapBatches,
            function=function("map_func", map_func),
            batch_size=at_least("batch_size", batch_size, 1),
            drop_remainder=flag("drop_remainder", drop_remainder),
            output_spec=optional_spec("output_spec", output_spec),
        )


def check_padding(operation: str, spec: Any, padded_shapes: Any, padding_values: Any) -> None:
    """Refuse what can be seen to fail before anything runs. ``spec`` is that of the
    elements, or None when not known.

    >>> check_padding("padded_batch", None, [None], -1)
    """
    if spec is None:
        return

    def check_leaf(leaf: Any, padding: Padding) -> None:
        if isinstance(leaf, RaggedTensorSpec):
            raise TypeError(
                f"{operation}() pads arrays, and the elements have a ragged leaf {leaf}: batch() "
                "stacks ragged "
                "tensors, RaggedTensor.to_tensor() in a map() pads them"
            )
        if (
            leaf.shape is not None
            and padding.shape is not None
            and len(padding.shape) != len(leaf.shape)
        ):
            raise InvalidArgumentError(
                f"padded_shapes must have one length for each axis: {padding.shape} is given for "
                f"{leaf}. None is a "
                "length that is as long as it must be"
            )
        if padding.value is not None and leaf.shape != ():
            filler_of(padding.value, leaf.dtype)

    map_structure(check_leaf, spec, padding_plan(spec, padded_shapes, padding_values))


def check_rows(name: str, spec: Any) -> None:
    """Refuse elements that are known to have no rows.

    >>> from zmqdata.elements.specs import TensorSpec
    >>> check_rows("unbatch()", (TensorSpec((None, 3)), TensorSpec((4,))))
    """
    if spec is None:
        return
    leaves = optree.tree_leaves(spec, none_is_leaf=True)
    if not leaves or any(leaf.shape == () for leaf in leaves):
        raise InvalidArgumentError(
            f"{name} takes arrays apart along their first axis, and there are leaves without one: "
            f"{spec}. Batch them "
            "first, or leave them out in a map()"
        )
    rows = leading_length(spec)
    if any(leaf.shape and leaf.shape[0] not in (None, rows) for leaf in leaves):
        raise InvalidArgumentError(
            f"{name} takes arrays apart that have equally many rows, and these differ: {spec}. "
            "Make them equal in a "
            "map()"
        )


def buckets(boundaries: Any, sizes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Boundaries and batch sizes of buckets, checked.

    >>> buckets([4, 8], [3, 2, 1])
    ((4, 8), (3, 2, 1))
    """
    for name, given in (("bucket_boundaries", boundaries), ("bucket_batch_sizes", sizes)):
        if not isinstance(given, (list, tuple, np.ndarray)):
            refuse(name, given, "a list of ints")
    limits = tuple([integer("bucket_boundaries", one) for one in boundaries])
    counts = tuple([at_least("bucket_batch_sizes", one, 1) for one in sizes])
    if not limits or list(limits) != sorted(set(limits)):
        raise ValueError(
            f"bucket_boundaries must be one or more rising lengths, got {list(limits)}"
        )
    if len(counts) != len(limits) + 1:
        raise ValueError(
            f"len(bucket_batch_sizes) must equal len(bucket_boundaries) + 1, got {len(counts)} for "
            f"{len(limits)}: the "
            "last one is for lengths from the last boundary on"
        )
    return limits, counts
