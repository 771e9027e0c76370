"""Tests of ``zmqdata.nodes.sequences``."""

from __future__ import annotations

import numpy as np

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.nodes.base import Node
from zmqdata.nodes.sequences import FromIterable, FromList, FromSource, Random, Reiterated
from zmqdata.splits import IndexSplits

INT = TensorSpec((), np.int64)


def infer(node: Node) -> object:
    return node.spec(infer)


def test_random_numbers_have_no_end() -> None:
    """A random source is endless, yields int64 scalars, and has an endless number of
    places as splits.
    """
    node = Random(seed=4)
    assert (node.label, Random().label) == ("random(seed=4)", "random()")
    assert (node.cardinality, node.split_source, infer(node)) == (
        INFINITE_CARDINALITY,
        IndexSplits(None),
        INT,
    )
    assert Random(seed=4) == node


def test_sequences_are_split_by_index() -> None:
    """A sequence has its length and as many splits. Only a list reveals the spec of its
    elements.
    """
    node = FromSource(sequence=range(3), shuffle=True)
    assert (node.label, node.cardinality, node.split_source) == (
        "from_source(range, shuffle)",
        3,
        IndexSplits(3),
    )
    assert infer(node) is None
    listed = FromList(sequence=(1, 2), elements_spec=INT)
    assert (listed.label, listed.cardinality, infer(listed)) == ("from_list(2 elements)", 2, INT)


def test_iterables_are_one_split() -> None:
    """An iterable has a cardinality if it has a length, and begins anew each time."""
    node = FromIterable(generator=Reiterated([1, 2]))
    assert (node.label, node.cardinality, node.split_source) == (
        "from_iterable(list)",
        2,
        IndexSplits(1),
    )
    assert [list(node.generator()) for _ in range(2)] == [[1, 2], [1, 2]]
    assert FromIterable(generator=list).cardinality == UNKNOWN_CARDINALITY


def test_nodes_of_objects_are_equal_to_themselves_only() -> None:
    """Two sequences with the same content differ, as their elements may not be
    comparable.
    """
    first, second = (FromSource(sequence=np.zeros(2)) for _ in range(2))
    assert first == first
    assert first != second
    assert len({first, second}) == 2
