"""Tests of ``zmqdata.nodes.transforms``: label, cardinality and spec of each operation
with a single input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.nodes.samples import INT, STR, empty, endless, infer, parse, slices, ten, unknown
from zmqdata import nodes
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.nodes import Node, split_sources
from zmqdata.splits import MOST_SPLITS, FileSplits


@pytest.mark.parametrize(
    ("node", "label"),
    [
        (nodes.Map(inputs=(ten(),), function=parse), "map(parse)"),
        (nodes.FlatMap(inputs=(ten(),), function=parse), "flat_map(parse)"),
        (nodes.Interleave(inputs=(ten(),), function=parse, cycle_length=2), "interleave(parse)"),
        (unknown(), "filter(parse)"),
        (nodes.Batch(inputs=(ten(),), batch_size=4), "batch(4)"),
        (nodes.Shuffle(inputs=(ten(),), buffer_size=4), "shuffle(4)"),
        (nodes.Shuffle(inputs=(ten(),), buffer_size=None), "shuffle(all)"),
        (endless(), "repeat()"),
        (nodes.Repeat(inputs=(ten(),), count=2), "repeat(2)"),
        (nodes.Take(inputs=(ten(),), count=2), "take(2)"),
        (nodes.Skip(inputs=(ten(),), count=2), "skip(2)"),
        (nodes.Enumerate(inputs=(ten(),)), "enumerate(0)"),
        (nodes.Prefetch(inputs=(ten(),), buffer_size=2), "prefetch(2)"),
    ],
)
def test_labels_say_operation_and_argument(node: Node, label: str) -> None:
    """A label is the method of Dataset and its main argument."""
    assert node.label == label


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (nodes.Map(inputs=(ten(),), function=parse), 10),
        (unknown(), UNKNOWN),
        (nodes.FlatMap(inputs=(ten(),), function=parse), UNKNOWN),
        (nodes.Interleave(inputs=(ten(),), function=parse, cycle_length=1), UNKNOWN),
        (nodes.Shuffle(inputs=(ten(),), buffer_size=2), 10),
        (nodes.Prefetch(inputs=(ten(),), buffer_size=2), 10),
        (nodes.Enumerate(inputs=(ten(),)), 10),
        (nodes.Batch(inputs=(ten(),), batch_size=4), 3),
        (nodes.Batch(inputs=(ten(),), batch_size=4, drop_remainder=True), 2),
        (nodes.Batch(inputs=(endless(),), batch_size=4), INFINITE),
        (nodes.Batch(inputs=(unknown(),), batch_size=4), UNKNOWN),
        (endless(), INFINITE),
        (nodes.Repeat(inputs=(ten(),), count=3), 30),
        (nodes.Repeat(inputs=(ten(),), count=0), 0),
        (nodes.Repeat(inputs=(empty(),), count=-1), 0),
        (nodes.Repeat(inputs=(unknown(),), count=2), UNKNOWN),
        (nodes.Repeat(inputs=(unknown(),), count=-1), INFINITE),
        (nodes.Repeat(inputs=(endless(),), count=2), INFINITE),
        (nodes.Take(inputs=(ten(),), count=3), 3),
        (nodes.Take(inputs=(ten(),), count=30), 10),
        (nodes.Take(inputs=(ten(),), count=-1), 10),
        (nodes.Take(inputs=(endless(),), count=3), 3),
        (nodes.Take(inputs=(endless(),), count=-1), INFINITE),
        (nodes.Take(inputs=(unknown(),), count=3), UNKNOWN),
        (nodes.Skip(inputs=(ten(),), count=3), 7),
        (nodes.Skip(inputs=(ten(),), count=30), 0),
        (nodes.Skip(inputs=(ten(),), count=-1), 0),
        (nodes.Skip(inputs=(endless(),), count=3), INFINITE),
        (nodes.Skip(inputs=(unknown(),), count=3), UNKNOWN),
    ],
)
def test_cardinalities_follow_from_the_input(node: Node, cardinality: int) -> None:
    """The number of elements equals that of tf.data for the same operations."""
    assert node.cardinality == cardinality


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (nodes.Map(inputs=(ten(),), function=parse), None),
        (nodes.Map(inputs=(ten(),), function=parse, output_spec=STR), STR),
        (nodes.FlatMap(inputs=(ten(),), function=parse), None),
        (nodes.Interleave(inputs=(ten(),), function=parse, cycle_length=1), None),
        (
            nodes.Filter(inputs=(slices(1),), predicate=parse),
            {"x": TensorSpec((2,), np.int8), "y": INT},
        ),
        (nodes.Batch(inputs=(ten(),), batch_size=4), TensorSpec((None,), np.int64)),
        (
            nodes.Batch(inputs=(ten(),), batch_size=4, drop_remainder=True),
            TensorSpec((4,), np.int64),
        ),
        (nodes.Enumerate(inputs=(ten(),)), (INT, INT)),
        *(
            (kind(inputs=(slices(1),), count=2), infer(slices(1)))
            for kind in (nodes.Repeat, nodes.Take, nodes.Skip)
        ),
        (nodes.Shuffle(inputs=(slices(1),), buffer_size=2), infer(slices(1))),
        (nodes.Prefetch(inputs=(slices(1),), buffer_size=2), infer(slices(1))),
    ],
)
def test_specs_follow_from_the_input(node: Node, spec: Any) -> None:
    """A spec is that of the input, batched or numbered if the operation does so, and
    None if a function decides.
    """
    assert node.spec(infer) == spec


def test_limits_select_the_names_of_files_below_them() -> None:
    """The splits of listed files are those that take and skip leave of their order,
    however many files the dispatcher will find.
    """
    files = nodes.ListFiles(patterns=("/a/*",), shuffle=False)
    shuffle = nodes.Shuffle(inputs=(files,), buffer_size=9, seed=5, reshuffle_each_iteration=False)
    for order in (files, shuffle):
        (whole,) = split_sources(order)
        part = nodes.Take(inputs=(nodes.Skip(inputs=(order,), count=2),), count=3)
        assert split_sources(part) == [replace(whole, first=2, stop=5)]
        above = nodes.Shuffle(inputs=(part,), buffer_size=9)
        assert split_sources(above) == [replace(whole, first=2, stop=5)]
        nothing = nodes.Skip(inputs=(order,), count=-1)
        assert split_sources(nothing) == [replace(whole, first=MOST_SPLITS)]


def test_a_shuffle_orders_the_names_of_files_below_it() -> None:
    """The splits of listed files come in the order of a shuffle directly above them,
    and of no other.
    """
    files = nodes.ListFiles(patterns=("/a/*",), shuffle=False)
    shuffle = nodes.Shuffle(inputs=(files,), buffer_size=9, seed=5, reshuffle_each_iteration=False)
    drawn = FileSplits(("/a/*",), False, None, drawn_from=9, draw_seed=5, redraws=False)
    assert split_sources(shuffle) == [drawn]
    higher = nodes.Shuffle(inputs=(nodes.Map(inputs=(files,), function=str),), buffer_size=9)
    assert split_sources(higher) == [FileSplits(("/a/*",), False, None)]
    whole = nodes.Shuffle(inputs=(files,), buffer_size=None)
    assert split_sources(whole)[0].drawn_from == MOST_SPLITS  # type: ignore[union-attr]
    both = nodes.Zip(inputs=(files, shuffle), template=(0, 1))
    assert split_sources(both) == [FileSplits(("/a/*",), False, None), drawn]
