"""The transformations of ``Dataset`` that batch elements of different shapes, and the
transformations that split batches again.

A mixin of the class in ``surface``; ``batch`` itself is in ``transforms``.
``iterators`` runs these operations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from zmqdata import operations
from zmqdata.config.checks import (
    at_least,
    function,
    integer,
    optional_seed,
    positive,
    refuse,
    word_of,
)
from zmqdata.dataset.arguments import call_site, flag, number, optional_spec
from zmqdata.dataset.parts import D
from zmqdata.dataset.refusals import check_collate_call, check_cost, check_padding, check_rows
from zmqdata.dataset.transforms import Transformations
from zmqdata.elements.ragged import splits_dtype
from zmqdata.nodes.base import known_spec
from zmqdata.operations.balance_plan import MOST_COST


class Batches(Transformations[D]):
    """Methods that create datasets (``D``) of other batches."""

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> D:
        """Stack consecutive elements whose arrays differ in length, with padding at the
        end of each axis.

        Args:
            batch_size: number of elements in a batch; the last batch may have fewer.
            padded_shapes: a shape for each array, in the nesting of the elements. An
                axis of None (or -1) is padded to the longest in the batch. None: this
                applies to all axes of unknown length.
            padding_values: the padding for each array, or a single value for all. None,
                for all or for a part of the element: 0, the empty text, or None beside
                Python objects that are no texts or numbers.
            drop_remainder: drop a last batch that is not full.

        Raises:
            InvalidArgumentError: shapes or values are known not to match the elements,
                in nesting, axes or dtype.
            TypeError: the elements contain ragged tensors.

        >>> from zmqdata.dataset import Dataset
        >>> rows = Dataset.range(1, 4).map(lambda n: np.full(n, n))
        >>> next(iter(rows.padded_batch(3, padding_values=-1)))
        array([[ 1, -1, -1],
               [ 2,  2, -1],
               [ 3,  3,  3]])

        Equivalent of ``tf.data.Dataset.padded_batch``. A padding value is converted to
        the dtype of its array if the conversion preserves the value.
        """
        size, drop = (
            positive("Batch size", "batch_size", batch_size),
            flag("drop_remainder", drop_remainder),
        )
        check_padding("padded_batch", known_spec(self._node), padded_shapes, padding_values)
        return self._then(
            operations.padding.PaddedBatch,
            batch_size=size,
            drop_remainder=drop,
            padded_shapes=padded_shapes,
            padding_values=padding_values,
        )

    def ragged_batch(
        self, batch_size: int, drop_remainder: bool = False, row_splits_dtype: Any = np.int64
    ) -> D:
        """Stack consecutive elements whose arrays differ in length, without padding.

        Arrays become ``RaggedTensor``, ragged up to the last axis of unknown length.
        Arrays of known shape are stacked as in ``batch``. After a function without
        ``output_spec``, all lengths are unknown.

        Args:
            batch_size: number of elements in a batch; the last batch may have fewer.
            drop_remainder: drop a last batch that is not full.
            row_splits_dtype: int64 or int32.

        >>> from zmqdata.dataset import Dataset
        >>> next(iter(Dataset.range(3).map(np.arange).ragged_batch(3)))
        RaggedTensor([[], [0], [0, 1]], dtype=int64)

        Equivalent of ``tf.data.Dataset.ragged_batch``.
        """
        size, drop = (
            positive("Batch size", "batch_size", batch_size),
            flag("drop_remainder", drop_remainder),
        )
        try:
            splits = splits_dtype(row_splits_dtype).name
        except TypeError:
            refuse("row_splits_dtype", row_splits_dtype, "int64 or int32")
        return self._then(
            operations.batch.RaggedBatch,
            batch_size=size,
            drop_remainder=drop,
            row_splits_dtype=splits,
        )

    def unbatch(self) -> D:
        """Yield the rows of each element as elements.

        Raises:
            InvalidArgumentError: an array is known to have no axis, or the arrays have
                different numbers of rows.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).batch(2).unbatch()]
        [0, 1, 2, 3, 4]

        Equivalent of ``tf.data.Dataset.unbatch``.
        """
        check_rows("unbatch()", known_spec(self._node))
        return self._then(operations.unbatch.Unbatch)

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False) -> D:
        """Yield the same rows in batches of another size. This is faster than
        ``unbatch().batch(batch_size)``.

        Args:
            batch_size: number of rows in a batch. Several sizes are used in turn, and a
                size of 0 gives an empty batch.
            drop_remainder: drop a last batch that is not full.

        Raises:
            InvalidArgumentError: an array is known to have no axis, or the arrays have
                different numbers of rows.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.range(7).batch(4).rebatch([2, 1]))
        [array([0, 1]), array([2]), array([3, 4]), array([5]), array([6])]

        Equivalent of ``tf.data.Dataset.rebatch``. With the service, each worker has its
        own remainder.
        """
        given: Any = batch_size
        if not (
            isinstance(given, (list, tuple)) or (isinstance(given, np.ndarray) and given.ndim == 1)
        ):
            given = [positive("Batch size", "batch_size", given)]
        sizes = tuple([at_least("batch_size", size, 0) for size in given])
        if not any(sizes):
            raise ValueError(
                "batch_size must be an int or a sequence with an entry of at least "
                f"1, got {list(given)}"
            )
        check_rows("rebatch()", known_spec(self._node))
        return self._then(
            operations.unbatch.Rebatch,
            batch_sizes=sizes,
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    def pack(
        self,
        length: int | Mapping[str, int],
        *,
        bins: int = 64,
        policy: Literal["first_fit", "next_fit", "concat"] = "first_fit",
        overflow: Literal["error", "split", "truncate", "drop"] | None = None,
        max_sequences: int | None = None,
        pad: int | Mapping[str, int] = 0,
        bos: int | Mapping[str, int] | None = None,
        eos: int | Mapping[str, int] | None = None,
        meta: Sequence[str] = (),
        rest: Literal["yield", "drop"] = "yield",
    ) -> D:
        """Pack sequences of tokens side by side into rows of a fixed length.

        For each leaf ``x`` of ``length``, an element has ``x`` (its tokens),
        ``x_segment_ids`` (the number of each token's sequence in the row, from 1 on; 0
        for padding) and ``x_positions`` (places within the document). Each has shape
        ``[length]``; segment ids and positions are int32. The tokens have the dtype of
        the first document, and documents of another dtype are errors.

        Args:
            length: number of tokens of a row: a number for the leaf ``"tokens"``, or a
                dict by leaf. An element that is an array is the leaf ``"tokens"``. The
                leaves are arrays of integers or bools with a single axis, and may
                differ in length.
            bins: with ``"first_fit"``, the number of rows that are filled at the same
                time. More rows leave less padding, and hold more sequences. Other
                policies ignore it.
            policy: ``"first_fit"``: into the oldest open row with room; if no row has
                room, the oldest row is output and a new row is opened. ``"next_fit"``:
                a single row at a time, in order. ``"concat"``: the same, and each
                document is cut where the row is full. A row that is full comes out at
                once.
            overflow: the fate of a document that is longer than a row: ``"error"`` (an
                error for this document), ``"split"`` (pieces in several rows),
                ``"truncate"`` (its beginning) or ``"drop"``. None: ``"error"``, or
                ``"split"`` with ``"concat"``, which allows only this value.
            max_sequences: number of segments of a row at most.
            pad: value of the places that are left; a number, or a dict by leaf.
            bos: value put before each document; a number, a dict by leaf, or None.
            eos: value put behind each document, as ``bos``.
            meta: names of leaves of which a row has a value for each segment: an
                array of single values, or a ``RaggedTensor`` of arrays. Rows then
                differ, and ``ragged_batch`` makes batches of them in which the tokens
                are ragged, too; ``to_tensor()`` gives these ``[batch, length]`` again.
            rest: ``"yield"``, or ``"drop"`` to leave out the rows that are open at the
                end of each repetition and task.

        Raises:
            InvalidArgumentError: a number is out of its range, or the elements are
                known not to be packable. Elements found while reading raise a
                PipelineError, and the next elements follow.
            TypeError: an argument has another type, or a value does not fit the dtype
                of its leaf.

        >>> from zmqdata.dataset import Dataset
        >>> rows = Dataset.range(1, 5).map(lambda n: np.full(n, n)).pack(6)
        >>> for row in rows:
        ...     print(row["tokens"], row["tokens_segment_ids"], row["tokens_positions"])
        [1 2 2 3 3 3] [1 2 2 3 3 3] [0 0 1 0 1 2]
        [4 4 4 4 0 0] [1 1 1 1 0 0] [0 1 2 3 0 0]

        Has no counterpart in tf.data. The names of the leaves are those of Grain's
        packing. Documents without tokens in every leaf are passed over. ``stats()``
        counts them, and what was dropped or truncated. With the service, each task
        packs its own sequences, before ``distribute``.
        """
        names = packed_lengths(length)
        word_of(("first_fit", "next_fit", "concat"))("policy", policy)
        concat = policy == "concat"
        fates = ("split",) if concat else ("error", "split", "truncate", "drop")
        fate = fates[0] if overflow is None else word_of(fates)("overflow", overflow)
        if type(meta) not in (list, tuple) or not all(isinstance(one, str) for one in meta):
            refuse("meta", meta, "a list or tuple of names of leaves")
        family = operations.packing
        ends = ("", family.SEGMENTS, family.POSITIONS)
        outputs = [one + end for one in names for end in ends]
        double = {one for one in (*outputs, *meta) if [*outputs, *meta].count(one) > 1}
        if double:
            raise ValueError(f"pack() would give two leaves the names {sorted(double)}: rename one")
        count = positive("Number of bins", "bins", bins)
        parameters: dict[str, Any] = {
            "lengths": tuple(names.items()),
            "bins": count if policy == "first_fit" else 1,
            "concat": concat,
            "overflow": fate,
            "max_sequences": None
            if max_sequences is None
            else positive("Number of sequences", "max_sequences", max_sequences),
            "pad": by_leaf("pad", pad, names, 0),
            "bos": by_leaf("bos", bos, names),
            "eos": by_leaf("eos", eos, names),
            "meta": tuple(meta),
            "drops_rest": word_of(("yield", "drop"))("rest", rest) == "drop",
        }
        known = known_spec(self._node)
        if known is not None:
            family.packed_spec(family.Pack(**parameters), known, by_rule=True)
        return self._then(family.Pack, **parameters)

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
        """Batch elements of similar length, which need little padding.

        Args:
            element_length_func: returns the length of an element, an int; a plain tuple
                is passed as several arguments.
            bucket_boundaries: ascending lengths. Bucket ``i`` holds lengths from
                ``bucket_boundaries[i - 1]`` to ``bucket_boundaries[i]``, exclusive; the
                last bucket holds all greater lengths.
            bucket_batch_sizes: number of elements in a batch, for each bucket; the list
                has another entry than ``bucket_boundaries``.
            padded_shapes: as in ``padded_batch``.
            padding_values: as in ``padded_batch``.
            pad_to_bucket_boundary: pad axes of unknown length to the upper boundary
                minus 1. If the shapes are unknown, this applies to the first axis of
                each array.
            no_padding: batch without padding; all elements of a bucket must have the
                same shape.
            drop_remainder: drop batches that are not full at the end.

        >>> from zmqdata.dataset import Dataset
        >>> ds = Dataset.from_tensor_slices([1, 5, 2, 6]).map(np.ones)
        >>> [batch.shape for batch in ds.bucket_by_sequence_length(len, [4], [2, 2])]
        [(2, 2), (2, 6)]

        Equivalent of ``tf.data.Dataset.bucket_by_sequence_length``. With the service,
        each worker has its own buckets.
        """
        boundaries, sizes = buckets(bucket_boundaries, bucket_batch_sizes)
        spec = known_spec(self._node)
        if not flag("no_padding", no_padding):
            check_padding("bucket_by_sequence_length", spec, padded_shapes, padding_values)
        return self._then(
            operations.padding.BucketBySequenceLength,
            length_function=self._called("element_length_func", element_length_func),
            boundaries=boundaries,
            batch_sizes=sizes,
            padded_shapes=padded_shapes,
            padding_values=padding_values,
            pad_to_bucket_boundary=flag("pad_to_bucket_boundary", pad_to_bucket_boundary),
            no_padding=bool(no_padding),
            drop_remainder=flag("drop_remainder", drop_remainder),
        )

    def balance(
        self,
        num_consumers: int,
        *,
        cost: Callable[..., Any] | str,
        batch_size: int | None = None,
        max_cost: float | None = None,
        window: int = 16,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        oversize: Literal["error", "alone", "drop"] = "error",
        steps: bool = False,
        drop_remainder: bool = False,
        seed: int | None = None,
    ) -> D:
        """Make batches of nearly equal cost for consumers that read in step, such as
        the ranks of a training: a step is as slow as its dearest batch.

        ``num_consumers`` batches in a row are a step, and batch i is for consumer i, as
        ``distribute`` and ``zmqdata.torch.Loader`` deal them. Elements of like cost
        meet in a step, unless ``window=1``.

        Args:
            num_consumers: number of consumers, and of batches in a step.
            cost: called with each element on the worker, a plain tuple as several
                arguments; returns a number from 0 to 1e100, and for the same element
                the same. Or the name of a leaf of a dict, whose length counts.
            batch_size: number of elements in a batch.
            max_cost: maximum cost of a batch; the batches of a step then differ in
                number. Either is given, not both. At most 1e100.
            window: number of steps that are balanced together. A window ends early at
                256 MB or 100,000 elements, and has at least a step.
            collate_fn: makes a batch of the list of its elements, as in ``batch``.
                None: elements are stacked; arrays of different lengths, and the leaf
                that ``cost`` names, become a ``RaggedTensor``, unless their shape is
                known.
            oversize: fate of an element dearer than ``max_cost``: ``"error"``;
                ``"alone"`` makes a batch of it, in a step of such batches if the window
                has enough; ``"drop"`` leaves it out and counts it.
            steps: True to yield each step as a tuple, for a program that deals the
                batches itself.
            drop_remainder: True to leave out, and count, the elements at the end that
                make no full step. False: if they suffice for a batch each, they make a
                last step, whose batches differ by at most one element. Otherwise each
                is a batch of its own, which ``finite`` of ``distribute`` deals, drops
                or pads.
            seed: fixes the order of steps and batches; None: drawn for each iterator,
                by ``set_random_seed``, or for the service's job.

        Raises:
            ValueError: an argument has an invalid value, or neither or both of
                ``batch_size`` and ``max_cost`` are given.
            InvalidArgumentError: the dataset is distributed already, or its elements
                are known to have no leaf of the name ``cost``.
            PipelineError: (from iterators) ``cost`` or ``collate_fn`` fails, or an
                element is too dear. The text names the number of the element, or the
                numbers of the elements of the batch, and of its step with ``steps``.

        >>> from zmqdata.dataset import Dataset
        >>> lengths = Dataset.from_tensor_slices([9, 1, 5, 4])
        >>> pairs = lengths.balance(2, cost=int, batch_size=2, seed=1)
        >>> sorted(int(batch.sum()) for batch in pairs)
        [9, 10]

        Has no counterpart in tf.data. With the service, each task balances its own
        elements. Iterator states hold numbers, not elements: restoring reads up to two
        windows again, and calls ``cost`` again for elements that wait for a batch.
        """
        if (batch_size is None) == (max_cost is None):
            raise ValueError(
                "balance() takes either batch_size, the number of elements of each batch, or "
                f"max_cost, their cost; got batch_size={batch_size!r} and max_cost={max_cost!r}. "
                "Pass exactly one of them"
            )
        if oversize not in ("error", "alone", "drop") or (max_cost is None and oversize != "error"):
            raise ValueError(
                "oversize must be 'error', 'alone' or 'drop', and the latter two need `max_cost`; "
                f"got {oversize!r}"
            )
        budget = None if max_cost is None else number("max_cost", max_cost)
        if budget == 0:
            raise ValueError(f"max_cost must be above 0, got {max_cost!r}")
        if budget is not None and budget > MOST_COST:
            raise ValueError(f"max_cost must be at most {MOST_COST:g}, got {max_cost!r}")
        check_cost(self._node, cost)
        parameters: dict[str, Any] = {
            "num_consumers": positive("Number of consumers", "num_consumers", num_consumers),
            "cost": cost if isinstance(cost, str) else self._called("cost", cost),
            "batch_size": None
            if batch_size is None
            else positive("Batch size", "batch_size", batch_size),
            "max_cost": budget,
            "window": positive("Window", "window", window),
            "oversize": oversize,
            "steps": flag("steps", steps),
            "drop_remainder": flag("drop_remainder", drop_remainder),
            "seed": optional_seed(seed),
        }
        family = operations.balancing
        if collate_fn is None:
            return self._then(family.Balance, **parameters)
        check_collate_call(function("collate_fn", collate_fn))
        lists = family.Balance(inputs=(self._node,), site=call_site(), in_lists=True, **parameters)
        made = family.OfEach(collate_fn, steps)
        return self._wrap(family.BalancedCollate(inputs=(lists,), site=lists.site, function=made))

    def map_batches(
        self,
        map_func: Callable[..., Any],
        batch_size: int,
        drop_remainder: bool = False,
        *,
        output_spec: Any = None,
    ) -> D:
        """Apply a vectorised function to stacked elements, and yield the rows of its
        results.

        Args:
            map_func: gets a batch as ``batch`` makes it (a plain tuple as several
                arguments), and returns as many rows.
            batch_size: number of elements that it gets at a time; the last batch may
                have fewer.
            drop_remainder: drop the elements that do not fill a batch.
            output_spec: spec of single elements of the result; None: found by running a
                batch on request.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).map_batches(lambda rows: rows * 10, 2)]
        [0, 10, 20, 30, 40]

        Has no counterpart in tf.data: ``batch(batch_size).map(map_func).unbatch()``
        with known length.
        """
        return self._then(
            operations.unbatch.MapBatches,
            function=self._called("map_func", map_func),
            batch_size=positive("Batch size", "batch_size", batch_size),
            drop_remainder=flag("drop_remainder", drop_remainder),
            output_spec=optional_spec("output_spec", output_spec),
        )


def packed_lengths(length: Any) -> dict[str, int]:
    """Return the length of a row of each leaf that ``pack`` packs.

    >>> packed_lengths(8), packed_lengths({"x": 4})
    ({'tokens': 8}, {'x': 4})
    """
    if not isinstance(length, Mapping):
        length = {operations.packing.TOKENS: length}
    if not length or not all(isinstance(name, str) for name in length):
        refuse("length", length, "an int, or a dict with an int for each leaf to pack")
    most = np.iinfo(np.int32).max
    return {name: positive("Length of a row", "length", n, most) for name, n in length.items()}


def by_leaf(
    name: str, value: Any, leaves: Collection[str], default: int | None = None
) -> tuple[int | None, ...]:
    """Return a value for each leaf that ``pack`` packs, from a value or a dict.

    >>> by_leaf("bos", {"x": 1}, ["x", "y"]), by_leaf("pad", 3, ["x", "y"])
    ((1, None), (3, 3))
    """
    given = value if isinstance(value, Mapping) else dict.fromkeys(leaves, value)
    unknown = sorted(map(str, given.keys() - set(leaves)))
    if unknown:
        raise ValueError(f"{name} has values for {unknown}, and `length` has only {[*leaves]}")
    kept = (bool, type(default))
    found = [given.get(leaf, default) for leaf in leaves]
    return tuple([one if isinstance(one, kept) else integer(name, one) for one in found])


def buckets(boundaries: Any, sizes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return boundaries and batch sizes of buckets after checking them.

    >>> buckets([4, 8], [3, 2, 1])
    ((4, 8), (3, 2, 1))
    """
    for name, given in (("bucket_boundaries", boundaries), ("bucket_batch_sizes", sizes)):
        if not isinstance(given, (list, tuple, np.ndarray)):
            refuse(name, given, "a list of ints")
    limits = tuple([integer("bucket_boundaries", one) for one in boundaries])
    counts = tuple([positive("Window size", "bucket_batch_sizes", one) for one in sizes])
    if not limits or list(limits) != sorted(set(limits)):
        raise ValueError(
            f"bucket_boundaries must be one or more ascending lengths, got {list(limits)}"
        )
    if len(counts) != len(limits) + 1:
        raise ValueError(
            "len(bucket_batch_sizes) must equal len(bucket_boundaries) + 1, got "
            f"{len(counts)} for {len(limits)}. The last size is for lengths from the "
            "last boundary on"
        )
    return limits, counts
