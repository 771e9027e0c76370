"""Tests of ``zmqdata.nodes.transforms``: label, cardinality and spec of each operation
with a single input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.nodes.samples import INT, STR, empty, endless, infer, parse, slices, ten, unknown
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.nodes import transforms
from zmqdata.nodes.base import Node
from zmqdata.nodes.combinations import Zip
from zmqdata.nodes.parts import split_sources
from zmqdata.nodes.sources import ListFiles
from zmqdata.splits import MOST_SPLITS, FileSplits


@pytest.mark.parametrize(
    ("node", "label"),
    [
        (transforms.Map(inputs=(ten(),), function=parse), "map(parse)"),
        (transforms.FlatMap(inputs=(ten(),), function=parse), "flat_map(parse)"),
        (
            transforms.Interleave(inputs=(ten(),), function=parse, cycle_length=2),
            "interleave(parse)",
        ),
        (unknown(), "filter(parse)"),
        (transforms.Batch(inputs=(ten(),), batch_size=4), "batch(4)"),
        (transforms.Shuffle(inputs=(ten(),), buffer_size=4), "shuffle(4)"),
        (transforms.Shuffle(inputs=(ten(),), buffer_size=None), "shuffle(all)"),
        (endless(), "repeat()"),
        (transforms.Repeat(inputs=(ten(),), count=2), "repeat(2)"),
        (transforms.Take(inputs=(ten(),), count=2), "take(2)"),
        (transforms.Skip(inputs=(ten(),), count=2), "skip(2)"),
        (transforms.Enumerate(inputs=(ten(),)), "enumerate(0)"),
        (transforms.Prefetch(inputs=(ten(),), buffer_size=2), "prefetch(2)"),
    ],
)
def test_labels_say_operation_and_argument(node: Node, label: str) -> None:
    """A label is the method of Dataset and its main argument."""
    assert node.label == label


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (transforms.Map(inputs=(ten(),), function=parse), 10),
        (unknown(), UNKNOWN),
        (transforms.FlatMap(inputs=(ten(),), function=parse), UNKNOWN),
        (transforms.Interleave(inputs=(ten(),), function=parse, cycle_length=1), UNKNOWN),
        (transforms.Shuffle(inputs=(ten(),), buffer_size=2), 10),
        (transforms.Prefetch(inputs=(ten(),), buffer_size=2), 10),
        (transforms.Enumerate(inputs=(ten(),)), 10),
        (transforms.Batch(inputs=(ten(),), batch_size=4), 3),
        (transforms.Batch(inputs=(ten(),), batch_size=4, drop_remainder=True), 2),
        (transforms.Batch(inputs=(endless(),), batch_size=4), INFINITE),
        (transforms.Batch(inputs=(unknown(),), batch_size=4), UNKNOWN),
        (endless(), INFINITE),
        (transforms.Repeat(inputs=(ten(),), count=3), 30),
        (transforms.Repeat(inputs=(ten(),), count=0), 0),
        (transforms.Repeat(inputs=(empty(),), count=-1), 0),
        (transforms.Repeat(inputs=(unknown(),), count=2), UNKNOWN),
        (transforms.Repeat(inputs=(unknown(),), count=-1), INFINITE),
        (transforms.Repeat(inputs=(endless(),), count=2), INFINITE),
        (transforms.Take(inputs=(ten(),), count=3), 3),
        (transforms.Take(inputs=(ten(),), count=30), 10),
        (transforms.Take(inputs=(ten(),), count=-1), 10),
        (transforms.Take(inputs=(endless(),), count=3), 3),
        (transforms.Take(inputs=(endless(),), count=-1), INFINITE),
        (transforms.Take(inputs=(unknown(),), count=3), UNKNOWN),
        (transforms.Skip(inputs=(ten(),), count=3), 7),
        (transforms.Skip(inputs=(ten(),), count=30), 0),
        (transforms.Skip(inputs=(ten(),), count=-1), 0),
        (transforms.Skip(inputs=(endless(),), count=3), INFINITE),
        (transforms.Skip(inputs=(unknown(),), count=3), UNKNOWN),
    ],
)
def test_cardinalities_follow_from_the_input(node: Node, cardinality: int) -> None:
    """The number of elements equals that of tf.data for the same operations."""
    assert node.cardinality == cardinality


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (transforms.Map(inputs=(ten(),), function=parse), None),
        (transforms.Map(inputs=(ten(),), function=parse, output_spec=STR), STR),
        (transforms.FlatMap(inputs=(ten(),), function=parse), None),
        (transforms.Interleave(inputs=(ten(),), function=parse, cycle_length=1), None),
        (
            transforms.Filter(inputs=(slices(1),), predicate=parse),
            {"x": TensorSpec((2,), np.int8), "y": INT},
        ),
        (transforms.Batch(inputs=(ten(),), batch_size=4), TensorSpec((None,), np.int64)),
        (
            transforms.Batch(inputs=(ten(),), batch_size=4, drop_remainder=True),
            TensorSpec((4,), np.int64),
        ),
        (transforms.Enumerate(inputs=(ten(),)), (INT, INT)),
        *(
            (kind(inputs=(slices(1),), count=2), infer(slices(1)))
            for kind in (transforms.Repeat, transforms.Take, transforms.Skip)
        ),
        (transforms.Shuffle(inputs=(slices(1),), buffer_size=2), infer(slices(1))),
        (transforms.Prefetch(inputs=(slices(1),), buffer_size=2), infer(slices(1))),
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
    files = ListFiles(patterns=("/a/*",), shuffle=False)
    shuffle = transforms.Shuffle(
        inputs=(files,), buffer_size=9, seed=5, reshuffle_each_iteration=False
    )
    for order in (files, shuffle):
        (whole,) = split_sources(order)
        part = transforms.Take(inputs=(transforms.Skip(inputs=(order,), count=2),), count=3)
        assert split_sources(part) == [replace(whole, first=2, stop=5)]
        above = transforms.Shuffle(inputs=(part,), buffer_size=9)
        assert split_sources(above) == [replace(whole, first=2, stop=5)]
        nothing = transforms.Skip(inputs=(order,), count=-1)
        assert split_sources(nothing) == [replace(whole, first=MOST_SPLITS)]


def test_a_shuffle_orders_the_names_of_files_below_it() -> None:
    """The splits of listed files come in the order of a shuffle directly above them,
    and of no other.
    """
    files = ListFiles(patterns=("/a/*",), shuffle=False)
    shuffle = transforms.Shuffle(
        inputs=(files,), buffer_size=9, seed=5, reshuffle_each_iteration=False
    )
    drawn = FileSplits(("/a/*",), False, None, drawn_from=9, draw_seed=5, redraws=False)
    assert split_sources(shuffle) == [drawn]
    higher = transforms.Shuffle(
        inputs=(transforms.Map(inputs=(files,), function=str),), buffer_size=9
    )
    assert split_sources(higher) == [FileSplits(("/a/*",), False, None)]
    whole = transforms.Shuffle(inputs=(files,), buffer_size=None)
    assert split_sources(whole)[0].drawn_from == MOST_SPLITS  # type: ignore[union-attr]
    both = Zip(inputs=(files, shuffle), template=(0, 1))
    assert split_sources(both) == [FileSplits(("/a/*",), False, None), drawn]
