"""Tests of ``zmqdata.nodes.selections``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.nodes.base import Node
from zmqdata.nodes.parts import split_sources
from zmqdata.nodes.selections import (
    SHARD_HINT,
    AssertCardinality,
    IgnoreErrors,
    RejectionResample,
    Scan,
    Shard,
    TakeWhile,
    Unique,
)
from zmqdata.nodes.sources import Range
from zmqdata.nodes.transforms import Filter, Repeat
from zmqdata.splits import IndexSplits

TEN = Range(start=0, stop=10)
ENDLESS = Repeat(inputs=(TEN,), count=-1)
EMPTY = Range(start=0, stop=0)
SOME = Filter(inputs=(TEN,), predicate=bool)


def parse(x: Any) -> Any:
    return x


def shard(source: Node, count: int = 3, index: int = 1) -> Node:
    return Shard(inputs=(source,), num_shards=count, index=index)


def resample(source: Node) -> Node:
    return RejectionResample(inputs=(source,), function=parse, target=(1.0,))


@pytest.mark.parametrize(
    ("node", "label", "cardinality"),
    [
        (shard(TEN), "shard(3, 1)", 3),
        (shard(TEN, 20, 12), "shard(20, 12)", 0),
        (shard(ENDLESS), "shard(3, 1)", INFINITE),
        (shard(SOME), "shard(3, 1)", UNKNOWN),
        (shard(TEN, SHARD_HINT, SHARD_HINT), "shard(SHARD_HINT, SHARD_HINT)", UNKNOWN),
        (TakeWhile(inputs=(ENDLESS,), predicate=parse), "take_while(parse)", UNKNOWN),
        (Unique(inputs=(TEN,)), "unique()", UNKNOWN),
        (Scan(inputs=(TEN,), initial_state=0, function=parse), "scan(parse)", 10),
        (IgnoreErrors(inputs=(TEN,)), "ignore_errors()", UNKNOWN),
        (IgnoreErrors(inputs=(ENDLESS,)), "ignore_errors()", INFINITE),
        (IgnoreErrors(inputs=(EMPTY,)), "ignore_errors()", 0),
        (AssertCardinality(inputs=(SOME,), expected=4), "assert_cardinality(4)", 4),
        (resample(TEN), "rejection_resample(parse)", UNKNOWN),
        (resample(ENDLESS), "rejection_resample(parse)", INFINITE),
        (replace(resample(TEN), initial=(1.0,)), "rejection_resample(parse)", 10),
        (
            replace(resample(TEN), target=(1.0, 0.0), initial=(1.0, 0.0)),
            "rejection_resample(parse)",
            UNKNOWN,
        ),
    ],
)
def test_labels_and_cardinalities(node: Node, label: str, cardinality: int) -> None:
    """Errors use the label of the node, and its cardinality is as listed."""
    assert node.label == label
    assert node.cardinality == cardinality
    assert split_sources(node)[0] == IndexSplits(
        0 if "ignore" in label and cardinality == 0 else 10
    )


def test_specs() -> None:
    """Selections keep the spec, while the results of a function require a trial run."""

    def infer(node: Node) -> Any:
        return node.spec(infer)

    spec = TensorSpec((), np.int64)
    assert {infer(node) for node in (shard(TEN), Unique(inputs=(TEN,)))} == {spec}
    assert infer(Scan(inputs=(TEN,), initial_state=0, function=parse)) is None
    assert infer(resample(TEN)) is None
