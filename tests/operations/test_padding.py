"""Tests of ``zmqdata.operations.padding``: padded batches and buckets against plain
Python loops.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, plain, provided, run
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.mapping import Map
from zmqdata.operations.padding import BucketBySequenceLength, PaddedBatch, as_length, pad_stack
from zmqdata.operations.sources import TensorSlices

LENGTHS = st.lists(st.integers(0, 9), max_size=14)


def filled(length: Any) -> Any:
    return np.full(int(length), length)


def arrays(lengths: list[int], spec: Any = None) -> Node:
    """Return an array of each length, filled with its length."""
    source = TensorSlices(tensors=np.array(lengths, np.int64))
    return Map(inputs=(source,), function=filled, output_spec=spec)


def padded(
    node: Node, size: int, drop: bool = False, shapes: Any = None, values: Any = None
) -> Node:
    return PaddedBatch(
        inputs=(node,),
        batch_size=size,
        drop_remainder=drop,
        padded_shapes=shapes,
        padding_values=values,
        site="train.py:3",
    )


def bucketed(
    node: Node, sizes: tuple[int, ...] = (2, 3, 1), length: Any = len, **parameters: Any
) -> Node:
    boundaries = (3, 6)[: len(sizes) - 1]
    return BucketBySequenceLength(
        inputs=(node,),
        length_function=length,
        boundaries=boundaries,
        batch_sizes=sizes,
        site="train.py:3",
        **parameters,
    )


def by_loop(lengths: list[int], value: int = 0) -> Any:
    longest = max(lengths)
    return plain(
        np.array([[n] * n + [value] * (longest - n) for n in lengths], np.int64).reshape(
            len(lengths), longest
        )
    )


@given(LENGTHS, st.integers(1, 4), st.booleans())
def test_batches_are_as_long_as_their_longest(lengths: list[int], size: int, drop: bool) -> None:
    """Padded batches equal those of a loop, and continue exactly from any step."""
    batches = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    wanted = [by_loop(batch, -1) for batch in batches if len(batch) == size or not drop]
    assert check_restore(padded(arrays(lengths), size, drop, values=-1)) == wanted


def test_rows_in_memory_are_padded_too() -> None:
    """The fast path for rows of a source is not taken if rows have to grow."""
    node = padded(TensorSlices(tensors=np.ones((2, 2), "i1")), 2, shapes=[3])
    assert check_restore(node, provided([[(0, 1), (1, 2)]])) == [
        plain(np.array([[1, 1, 0], [1, 1, 0]], np.int8))
    ]


def test_each_leaf_has_its_own_shape_and_value() -> None:
    """Nested elements are padded leaf by leaf, on all axes, including numbers and
    texts.
    """
    elements = [
        {"m": np.ones((1, 3)), "t": (np.array(["ab"]), 5)},
        {"m": np.ones((2, 1)), "t": (np.array(["c", "def"]), 6)},
    ]
    batch = pad_stack(
        elements, {"m": [3, None], "t": ([None], [])}, {"m": 0.5, "t": ("long", None)}
    )
    assert batch["m"].shape == (2, 3, 3)
    assert batch["m"][1].tolist() == [[1, 0.5, 0.5], [1, 0.5, 0.5], [0.5, 0.5, 0.5]]
    assert batch["t"][0].tolist() == [["ab", "long"], ["c", "def"]]
    assert batch["t"][1].tolist() == [5, 6]
    assert pad_stack(elements)["t"][0].tolist() == [["ab", ""], ["c", "def"]]
    assert pad_stack([np.zeros(1, bool), np.zeros(2, bool)], None, True).tolist() == [
        [False, True],
        [False, False],
    ]
    assert np.isnan(pad_stack([np.zeros(1), np.zeros(2)], None, np.nan)[0, 1])
    assert pad_stack([np.array([None]), np.array([1, 2], object)], None, "x").tolist() == [
        [None, "x"],
        [1, 2],
    ]


@pytest.mark.parametrize(
    ("values", "zero"),
    [
        (["a\0", "b"], ""),
        ([b"a\0", b"b"], b""),
        ([2**64, 1], 0),
        (["a", None], None),
        ([1, None], None),
        ([{}, ()], None),
    ],
    ids=str,
)
def test_objects_are_padded_by_the_empty_value_of_their_sort(values: list[Any], zero: Any) -> None:
    """Texts, bytes and numbers have one; other objects, and those with None among them,
    are padded with None. So does a ragged tensor.
    """
    array = np.empty(2, object)
    array[:] = values
    padded = pad_stack([array, array[:1]])[1, 1]
    ragged = RaggedTensor(array, [0, 0, 2]).to_tensor()[0, 1]
    assert [(type(found), found) for found in (padded, ragged)] == [(type(zero), zero)] * 2


@pytest.mark.parametrize(
    ("elements", "shapes", "values", "text"),
    [
        (
            [np.zeros(3), np.zeros((1, 2))],
            None,
            None,
            r"element 1 of the batch is an array of shape \(1, 2\)",
        ),
        ([np.zeros(3), np.zeros(2, "f4")], None, None, "dtype float32, expected dtype float64"),
        ([np.zeros(3), 1.5], None, None, "a float, expected an array"),
        (
            [np.zeros(1), np.zeros(3)],
            [2],
            None,
            r"smaller size .*element 1 .*shape \(3,\), its padded shape is \(2,\)",
        ),
        ([np.zeros(1)], [2, 2], None, "same rank as the padded shape"),
        ([{"x": 1}], {"x": [2]}, None, r"at \['x'\] has shape \(\)"),
        ([np.zeros(1), np.zeros(2)], {"x": [2]}, None, "padded_shapes must have the nesting"),
        (
            [np.zeros(1, int), np.zeros(2, int)],
            None,
            1.5,
            "padding value 1.5 cannot be represented in dtype int64",
        ),
        (
            [np.zeros(1), np.zeros(2)],
            None,
            "x",
            "padding value 'x' cannot be represented in dtype float64",
        ),
        ([np.zeros(1), np.zeros(2)], None, [1.0], r"values should be scalars, got \[1.0\]"),
        (
            [(np.array(["a"]),), (np.array(["b", "c"]),)],
            None,
            1,
            r"padding value 1 cannot be represented in dtype str, .*\[0\]",
        ),
        ([RaggedTensor([1], [0, 1])], None, None, "a RaggedTensor, expected an array.*batch"),
        ([{"x": 1}, {"y": 1}], None, None, "keys"),
    ],
)
def test_what_does_not_fit_is_an_error_that_teaches(
    elements: Any, shapes: Any, values: Any, text: str
) -> None:
    """The error names what came and what was expected."""
    with pytest.raises(InvalidArgumentError, match=f"(?s){text}"):
        pad_stack(elements, shapes, values)


def test_a_failing_batch_names_its_node() -> None:
    """A batch that does not fit fails, and the next batch follows."""
    node = padded(arrays([1, 9, 2, 2]), 2, shapes=[3])
    assert [outcome[0] for outcome in check_restore(node)] == ["raised", "ndarray"]
    with pytest.raises(
        PipelineError, match=r"padded_batch\(2\) at train.py:3 failed: .*Attempted to pad"
    ):
        next(make_iterator(node, Context()))


def buckets_by_loop(lengths: list[int], sizes: tuple[int, ...], drop: bool) -> list[Any]:
    held: list[list[int]] = [[] for _ in sizes]
    batches = []
    for length in lengths:
        bucket = bisect_right((3, 6), length)
        held[bucket].append(length)
        if len(held[bucket]) == sizes[bucket]:
            batches.append(held[bucket])
            held[bucket] = []
    return [by_loop(batch) for batch in batches + [rest for rest in held if rest and not drop]]


@settings(max_examples=60)
@given(LENGTHS, st.sampled_from([(2, 3, 1), (1, 1, 1), (9, 2, 4)]), st.booleans())
def test_buckets_hold_what_is_equally_long(
    lengths: list[int], sizes: tuple[int, ...], drop: bool
) -> None:
    """Full buckets are emptied at once, and the rest in order at the end. They continue
    exactly from any step.
    """
    node = bucketed(arrays(lengths), sizes, drop_remainder=drop)
    assert check_restore(node) == buckets_by_loop(lengths, sizes, drop)


def shapes_of(node: Node) -> list[Any]:
    return [batch.shape for batch in make_iterator(node, Context())]


def test_padding_to_the_boundary() -> None:
    """Unknown lengths become one less than the boundary, and given lengths stay."""
    lengths = [1, 2, 4, 5]
    assert shapes_of(bucketed(arrays(lengths), (2, 2, 1), pad_to_bucket_boundary=True)) == [
        (2, 2),
        (2, 5),
    ]
    known = arrays(lengths, TensorSpec((None,), np.int64))
    assert shapes_of(bucketed(known, (2, 2, 1), pad_to_bucket_boundary=True)) == [(2, 2), (2, 5)]
    fixed = bucketed(known, (2, 2, 1), pad_to_bucket_boundary=True, padded_shapes=[7])
    assert shapes_of(fixed) == [(2, 7), (2, 7)]
    wide = Map(inputs=(arrays(lengths),), function=lambda x: (np.zeros((len(x), 8)), 1))
    node = bucketed(wide, (2, 2, 1), lambda x, y: len(x), pad_to_bucket_boundary=True)
    assert [part[0].shape for part in make_iterator(node, Context())] == [(2, 2, 8), (2, 5, 8)]


def test_too_long_for_the_last_boundary() -> None:
    """An element beyond the last boundary fails if batches are padded to the boundary,
    and the others are yielded.
    """
    node = bucketed(arrays([1, 9, 2]), (2, 2, 1), pad_to_bucket_boundary=True)
    failed, batch = check_restore(node)
    assert (
        "elements must have length < max(bucket_boundaries), which is 6; got an element of length 9"
        in failed[2]
    )
    assert batch[2] == (2, 2)


def test_without_padding_shapes_must_be_equal() -> None:
    """Differing shapes in a bucket without padding are a failure of the bucket."""
    node = bucketed(arrays([2, 2, 1, 2]), (2, 2, 1), no_padding=True)
    batch, failed = check_restore(node)
    assert batch[2] == (2, 2)
    assert failed[0] == "raised"
    assert "Cannot batch" in failed[2]


def test_failures_below_keep_the_buckets() -> None:
    """A failing element is left out of its bucket, whichever operation fails."""
    source = Map(
        inputs=(arrays([1, 0, 2, 4]),), function=lambda x: x // len(x) if len(x) else [][0]
    )
    node = bucketed(source, (2, 1, 1), lambda x: 1 / (4 - len(x)) and len(x))
    assert [outcome[0] for outcome in check_restore(node)] == ["raised", "ndarray", "raised"]


def test_a_rare_length_is_found_again() -> None:
    """An element that waits in its bucket for long is pulled again when the state is
    restored.
    """
    node = bucketed(arrays([9] + [1] * 400 + [9]), (2, 2, 2))
    assert len(check_restore(node, limit=150)) == 150
    assert run(node, limit=300)[-1] == by_loop([9, 9])


@pytest.mark.parametrize("value", [1.5, "x", np.array([1]), None, True])
def test_lengths_are_single_integers(value: Any) -> None:
    """The error shows a length that is not a single integer."""
    with pytest.raises(TypeError, match="must return one integer, it returned"):
        as_length(value)
