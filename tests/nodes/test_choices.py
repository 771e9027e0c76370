"""Tests of ``zmqdata.nodes.choices``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.nodes.base import Node
from zmqdata.nodes.choices import Choose, Counter, RandomChoices, WeightedChoices
from zmqdata.nodes.parts import split_sources
from zmqdata.nodes.sources import Range, Tensors
from zmqdata.nodes.transforms import Repeat
from zmqdata.splits import IndexSplits

TEN = Range(start=0, stop=10)
ENDLESS = Repeat(inputs=(TEN,), count=-1)
DRAWS = RandomChoices(weights=(1.0, 1.0))


def infer(node: Node) -> Any:
    return node.spec(infer)


def choose(*inputs: Node, choices: Node = DRAWS, stop: bool = False) -> Choose:
    return Choose(
        inputs=inputs,
        choices=choices,
        stop_on_empty=stop,
        name="choose_from_datasets",
        site="t.py:1",
    )


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (choose(TEN, TEN), UNKNOWN),
        (choose(ENDLESS, ENDLESS), INFINITE),
        (choose(ENDLESS, ENDLESS, stop=True), INFINITE),
        (choose(ENDLESS, TEN), INFINITE),
        (choose(ENDLESS, TEN, stop=True), UNKNOWN),
        (choose(ENDLESS, ENDLESS, choices=TEN), UNKNOWN),
        (Counter(), INFINITE),
        (DRAWS, INFINITE),
        (WeightedChoices(inputs=(TEN,), count=2), 10),
    ],
)
def test_cardinalities(node: Node, cardinality: int) -> None:
    """A choice is endless if the choices and every input that they can select are
    endless.
    """
    assert node.cardinality == cardinality


def test_labels() -> None:
    """Errors name the nodes by these labels."""
    assert choose(TEN, TEN).label == "choose_from_datasets(2 datasets) at t.py:1"
    assert (
        Choose(inputs=(TEN,), choices=DRAWS, stop_on_empty=True, name="x").label == "x(1 datasets)"
    )
    assert Counter(start=3, step=2).label == "counter(3, 2)"


def test_inputs_are_split_and_choices_are_not() -> None:
    """Each input has a provider, left to right, and the choices have none. Counters
    have endless splits.
    """
    assert split_sources(choose(TEN, Counter(), choices=TEN)) == [
        IndexSplits(10),
        IndexSplits(None),
    ]


def test_specs() -> None:
    """The spec of a choice admits the elements of all inputs, and choices are
    integers.
    """
    rows = [Tensors(tensors=np.zeros(length)) for length in (1, 2)]
    assert infer(choose(*rows)) == TensorSpec((None,), np.float64)
    whole = TensorSpec((), np.int64)
    assert (
        infer(DRAWS) == infer(WeightedChoices(inputs=(TEN,), count=2)) == infer(Counter()) == whole
    )


def test_the_only_input_that_is_drawn_tells_the_cardinality() -> None:
    """Draws from a single input yield all of its elements. Choices by number may end
    before it, or skip it.
    """
    assert choose(TEN, choices=RandomChoices(weights=(1.0,))).cardinality == 10
    assert choose(TEN, choices=TEN).cardinality == UNKNOWN
