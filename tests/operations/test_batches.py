"""Tests of ``zmqdata.operations.batches``: labels, cardinalities and specs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from zmqdata.elements.ragged import RaggedTensorSpec
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError
from zmqdata.nodes.base import Node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.batch import Batch, ListBatch, RaggedBatch, ragged_axes
from zmqdata.operations.mapping import Map
from zmqdata.operations.padding import BucketBySequenceLength, PaddedBatch, Padding, padding_plan
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sources import Range
from zmqdata.operations.unbatch import MapBatches, Rebatch, Unbatch
from zmqdata.splits import IndexSplits

INT = np.int64


class Pair(NamedTuple):
    left: Any
    right: Any


def ten() -> Range:
    return Range(start=0, stop=10)


def batches(drop: bool = True, source: Node | None = None) -> Node:
    return Batch(inputs=(source or ten(),), batch_size=4, drop_remainder=drop)


def said(spec: Any) -> Node:
    """Make a node whose spec follows by rule."""
    return Map(inputs=(ten(),), function=len, output_spec=spec)


def unsaid() -> Node:
    return Map(inputs=(ten(),), function=len)


def infer(node: Node) -> Any:
    """Infer a spec with a fixed spec in place of a trial run."""
    spec = node.spec(infer)
    return TensorSpec((3, 2), INT) if spec is None else spec


def unbatch(node: Node) -> Node:
    return Unbatch(inputs=(node,))


def rebatch(node: Node, *sizes: int, drop: bool = False) -> Node:
    return Rebatch(inputs=(node,), batch_sizes=sizes, drop_remainder=drop)


def padded(node: Node, shapes: Any = None, drop: bool = False) -> Node:
    return PaddedBatch(inputs=(node,), batch_size=4, drop_remainder=drop, padded_shapes=shapes)


def rags(node: Node, drop: bool = False) -> Node:
    return RaggedBatch(inputs=(node,), batch_size=4, drop_remainder=drop, row_splits_dtype="int32")


def bucketed(node: Node, *sizes: int, **parameters: Any) -> BucketBySequenceLength:
    return BucketBySequenceLength(
        inputs=(node,), length_function=len, boundaries=(3,), batch_sizes=sizes, **parameters
    )


def listed(node: Node, drop: bool = False) -> Node:
    return ListBatch(inputs=(node,), batch_size=4, drop_remainder=drop)


def mapped(node: Node, drop: bool = False, spec: Any = None) -> Node:
    return MapBatches(
        inputs=(node,), function=len, batch_size=4, drop_remainder=drop, output_spec=spec
    )


def test_a_list_has_no_spec() -> None:
    """Lists are for a function only, which decides what its batches are."""
    assert listed(ten()).spec(infer) is None


@pytest.mark.parametrize(
    ("node", "label", "cardinality"),
    [
        (padded(ten()), "padded_batch(4)", 3),
        (padded(ten(), drop=True), "padded_batch(4)", 2),
        (listed(ten()), "batch(4)", 3),
        (listed(ten(), drop=True), "batch(4)", 2),
        (rags(ten()), "ragged_batch(4)", 3),
        (unbatch(batches()), "unbatch()", 8),
        (unbatch(batches(drop=False)), "unbatch()", UNKNOWN),
        (unbatch(unsaid()), "unbatch()", UNKNOWN),
        (unbatch(Repeat(inputs=(batches(),), count=-1)), "unbatch()", INFINITE),
        (unbatch(Range(start=0, stop=0)), "unbatch()", 0),
        (rebatch(batches(), 3), "rebatch(3)", 3),
        (rebatch(batches(), 3, drop=True), "rebatch(3)", 2),
        (rebatch(batches(), 1, 2), "rebatch(1, 2)", 6),
        (rebatch(batches(), 4, 5, drop=True), "rebatch(4, 5)", 1),
        (rebatch(batches(False), 3), "rebatch(3)", UNKNOWN),
        (bucketed(ten(), 1, 1), "bucket_by_sequence_length(len)", UNKNOWN),
        (mapped(ten()), "map_batches(len)", 10),
        (mapped(ten(), drop=True), "map_batches(len)", 8),
        (mapped(Repeat(inputs=(ten(),), count=-1), drop=True), "map_batches(len)", INFINITE),
    ],
)
def test_labels_and_cardinalities(node: Node, label: str, cardinality: int) -> None:
    """The label names the argument, and the cardinality follows if the number of rows
    is known.
    """
    assert (node.label, node.cardinality) == (label, cardinality)
    assert split_sources(node) in ([IndexSplits(10)], [IndexSplits(0)])


VARYING = said(
    (TensorSpec((None, 2), INT), TensorSpec((3,), "U"), TensorSpec((), INT), TensorSpec(None, INT))
)


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (padded(ten(), drop=True), TensorSpec((4,), INT)),
        (padded(unsaid()), TensorSpec((None, None, None), INT)),
        (padded(unsaid(), [None, 5]), TensorSpec((None, None, 5), INT)),
        (
            padded(VARYING, ([7, -1], [None], [], [None])),
            (
                TensorSpec((None, 7, None), INT),
                TensorSpec((None, None), "U"),
                TensorSpec((None,), INT),
                TensorSpec((None, None), INT),
            ),
        ),
        (
            padded(VARYING),
            (
                TensorSpec((None, None, 2), INT),
                TensorSpec((None, 3), "U"),
                TensorSpec((None,), INT),
                TensorSpec(None, INT),
            ),
        ),
        (
            rags(VARYING, drop=True),
            (
                RaggedTensorSpec((4, None, 2), INT, 1, "int32"),
                TensorSpec((4, 3), "U"),
                TensorSpec((4,), INT),
                TensorSpec(None, INT),
            ),
        ),
        (rags(unsaid()), RaggedTensorSpec((None, None, None), INT, 2, "int32")),
        (
            rags(rags(said(TensorSpec((None,), INT)))),
            RaggedTensorSpec((None, None, None), INT, 2, "int32"),
        ),
        (unbatch(batches()), TensorSpec((), INT)),
        (unbatch(rags(said(TensorSpec((None,), INT)))), TensorSpec((None,), INT)),
        (rebatch(batches(), 3, drop=True), TensorSpec((3,), INT)),
        (rebatch(batches(), 3, 4, drop=True), TensorSpec((None,), INT)),
        (rebatch(rebatch(batches(), 4, drop=True), 2), TensorSpec((2,), INT)),
        (rebatch(rebatch(batches(), 4, drop=True), 3), TensorSpec((None,), INT)),
        (
            rebatch(rags(said(TensorSpec((None,), INT))), 3),
            RaggedTensorSpec((None, None), INT, 1, "int32"),
        ),
        (
            bucketed(said(TensorSpec((None, 2), INT)), 5, 5, drop_remainder=True),
            TensorSpec((5, None, 2), INT),
        ),
        (
            bucketed(said(TensorSpec((None, 2), INT)), 5, 6, drop_remainder=True),
            TensorSpec((None, None, 2), INT),
        ),
        (bucketed(said(TensorSpec((3,), INT)), 5, 5, no_padding=True), TensorSpec((None, 3), INT)),
        (mapped(ten(), spec=TensorSpec((2,), INT)), TensorSpec((2,), INT)),
    ],
)
def test_specs_follow_from_the_input(node: Node, spec: Any) -> None:
    """Known lengths stay known. After a function without a spec no length is known."""
    assert infer(node) == spec


def test_a_part_of_the_padding_may_be_left_out() -> None:
    """None stands for a leaf, or for a part with all of its leaves."""
    element = {"x": 1, "y": (2, {"z": 3}), "w": Pair(4, 5)}
    values = {"x": None, "y": (7, None), "w": Pair(None, 8)}
    plan = padding_plan(element, {"x": None, "y": None, "w": Pair([], None)}, values)
    assert plan["x"] == Padding()
    assert plan["y"] == (Padding(None, 7), {"z": Padding()})
    assert plan["w"] == Pair(Padding((), None), Padding(None, 8))


def test_the_plan_has_a_padding_for_each_leaf() -> None:
    """Shapes and values are assigned to their leaves, a single value to all, and -1
    becomes None.
    """
    element = {"x": np.zeros(2), "y": (np.zeros((1, 2)), 5)}
    plan = padding_plan(element, {"x": 4, "y": ([-1, np.int64(3)], [])}, {"x": None, "y": (1, 2)})
    assert plan == {"x": Padding((4,), None), "y": (Padding((None, 3), 1), Padding((), 2))}
    assert padding_plan(element, None, 7)["y"][1] == Padding(None, 7)
    assert padding_plan((1, 2), (None, []), None) == (Padding(None, None), Padding((), None))


@pytest.mark.parametrize(
    ("shapes", "values", "text"),
    [
        (
            {"x": []},
            None,
            "padded_shapes must have the nesting of the elements, which is {'x': '\\*', 'y': "
            "'\\*'}",
        ),
        ({"x": [], "y": ["a"]}, None, "padded_shapes"),
        (None, {"z": 1}, "padding_values must have the nesting"),
    ],
)
def test_another_nesting_is_refused(shapes: Any, values: Any, text: str) -> None:
    """The error shows the nesting of the elements and the refused nesting."""
    with pytest.raises(InvalidArgumentError, match=text):
        padding_plan({"x": 1, "y": 2}, shapes, values)


def test_the_last_axis_that_varies_is_the_last_ragged_one() -> None:
    """Fixed axes before a varying axis become ragged too, while the axes after it do
    not.
    """
    assert ragged_axes(TensorSpec((3, None, 2)), True) == 2
    assert ragged_axes(TensorSpec((3, 2)), False) == 2
    assert ragged_axes(TensorSpec(()), False) == 0
    assert ragged_axes(RaggedTensorSpec((None, None)), False) == 0
