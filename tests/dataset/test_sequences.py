"""Tests of ``zmqdata.dataset.sequences``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.nodes import split_sources
from zmqdata.splits import IndexSplits


def test_random_is_endless() -> None:
    """Random numbers have no end, are int64 scalars, and each is a split."""
    numbers = Dataset.random(seed=1)
    assert numbers.cardinality() == INFINITE_CARDINALITY
    assert numbers.element_spec == TensorSpec((), np.int64)
    assert split_sources(numbers.node) == [IndexSplits(None)]
    assert list(islice(numbers, 3)) == list(islice(numbers, 3))
    anew = Dataset.random(seed=1, rerandomize_each_iteration=True)
    assert list(islice(anew, 3)) != list(islice(anew, 3))
    assert "random(seed=1)" in numbers.node.label
    assert "random()" in Dataset.random().node.label


def test_random_numbers_without_a_seed_differ() -> None:
    """Without a seed, two datasets and two iterators have different numbers, and two
    repetitions have the same.
    """
    one, other = Dataset.random(), Dataset.random()
    passes = [list(islice(numbers, 5)) for numbers in (one, one, other)]
    assert len(set(map(tuple, passes))) == 3
    repeated = list(one.take(3).repeat(2))
    assert repeated[:3] == repeated[3:]
    first, second = zip(*Dataset.zip(one, one).take(3), strict=True)
    assert first != second


def test_lists_know_their_spec() -> None:
    """The spec of a list admits all of its elements, and each element is a split."""
    dataset = Dataset.from_list([{"x": [1, 2]}, {"x": [3]}])
    assert dataset.element_spec == {"x": TensorSpec((None,), np.int64)}
    assert len(dataset) == 2
    assert split_sources(dataset.node) == [IndexSplits(2)]
    assert "from_list(2 elements)" in dataset.node.label


def test_sources_and_iterables_describe_themselves() -> None:
    """Sequences and sized iterables have a cardinality. An iterable is a single split,
    and each index of a sequence is a split.
    """
    source = Dataset.from_source(range(5), shuffle=True)
    assert (len(source), split_sources(source.node)) == (5, [IndexSplits(5)])
    assert "from_source(range, shuffle)" in source.node.label
    assert source.element_spec == TensorSpec((), np.int64)
    sized = Dataset.from_iterable([1, 2])
    assert (len(sized), split_sources(sized.node)) == (2, [IndexSplits(1)])
    assert "from_iterable(list)" in sized.node.label
    made = Dataset.from_iterable(lambda: range(3))
    assert made.cardinality() == UNKNOWN_CARDINALITY
    assert list(made) == list(made) == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Dataset.random(seed="x"), TypeError, "seed must be an int"),
        (lambda: Dataset.random(rerandomize_each_iteration=1), TypeError, "must be a bool"),
        (lambda: Dataset.from_list((1, 2)), ValueError, "`elements` must be a list, got a tuple"),
        (lambda: Dataset.from_list([]), ValueError, "must not be empty"),
        (lambda: Dataset.from_list([1, "a"]), TypeError, "specs do not fit together"),
        (lambda: Dataset.from_iterable(iter([1])), TypeError, "run only once"),
        (lambda: Dataset.from_iterable(7), TypeError, "an iterable or a function"),
        (lambda: Dataset.from_source(7), TypeError, "__len__ and __getitem__"),
        (lambda: Dataset.from_source({"a": 1}), TypeError, "__len__ and __getitem__"),
        (lambda: Dataset.from_source([1], shuffle=1), TypeError, "shuffle must be a bool"),
        (lambda: Dataset.from_source([1], seed=1), ValueError, "without shuffle=True"),
    ],
)
def test_bad_arguments_are_refused_at_the_call(
    make: Callable[[], Any], error: type[Exception], text: str
) -> None:
    """Each error names what came and what was expected."""
    with pytest.raises(error, match=text):
        make()


def test_the_odd_element_of_a_list_is_named() -> None:
    """The error names the place of the first element that differs from its
    predecessors.
    """
    with pytest.raises(TypeError, match=r"elements\[2\] differs: .*dtype int64 and dtype str"):
        Dataset.from_list([1, 2, "a", 3])
