"""Tests of ``zmqdata.dataset.sequences``."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from enum import IntEnum
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.dataset import Dataset
from zmqdata.elements.conversion import as_element
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    TensorSpec,
    merge_specs,
    retyped_by_spec,
    spec_of,
)
from zmqdata.nodes.parts import split_sources
from zmqdata.splits import IndexSplits

Point = namedtuple("Point", ["x", "y"])
Level = IntEnum("Level", ["LOW", "HIGH"])
LEAVES: list[list[Any]] = [
    [True, False],
    [1, -(2**63), 2**63 - 1],
    [1, 2**63],
    [1, -(2**63) - 1],
    [1, Level.LOW, Level.HIGH],
    [1, True],
    [1, np.int64(2)],
    [1.5, float("nan")],
    [1j, 2j],
    ["", "a", "bcd"],
    ["a", type("Word", (str,), {})("b")],
    [b"", b"a\0"],
    [None],
    [np.int8(1), np.int8(2)],
    [np.str_("a"), np.str_("bc")],
    [np.datetime64(1, "s"), np.datetime64(2, "s"), np.datetime64(1, "ns")],
    [np.zeros(2), np.zeros(3), np.zeros((2, 3))],
    [np.zeros(0), np.zeros((0, 2)), np.ones(2, np.int8), np.ones((2, 2), np.int8)],
    [np.array(1), np.array(2), np.array(None), np.array([None])],
    [np.zeros(1, ">i4"), np.zeros(2, "<i4"), np.zeros(2, "i4,f8")],
    [np.array(["a"]), np.array(["bc", "d"])],
    [[1, 2], [3], []],
    [["a"], ["bc", "d"]],
    [OrderedDict(a=1), {"a": 1}, {}],
    [{"a": 1, "b": 2.0}, {"b": 2.0, "a": 1}, {"a": 1, "c": 2.0}],
    [(1, "a"), (2, "b"), (3,), Point(1, "a")],
    [(1,), (1, 2)],
    [{"a": 1}, {"a": 1, "b": 2}],
    [Point(1, 2), Point(3, 4)],
    [RaggedTensor.from_rows([[1]]), RaggedTensor.from_rows([[1], [2, 3]])],
    [(), {}],
]
"""Values for one place of an element; some rows hold values that differ in type."""
nestings = st.recursive(
    st.sampled_from(LEAVES).map(st.sampled_from),
    lambda parts: (
        st.dictionaries(st.sampled_from(["b", "a", 0, (1,)]), parts, max_size=3).map(
            st.fixed_dictionaries
        )
        | st.lists(parts, max_size=3).map(lambda several: st.tuples(*several))
    ),
    max_leaves=4,
)
"""Strategies for elements of one nesting."""
lists = nestings.flatmap(lambda elements: st.lists(elements, min_size=1, max_size=8))


def described_one_by_one(elements: list[Any]) -> tuple[Any, list[Any]]:
    """Return the spec and the elements that from_list should have, or raise its
    error.
    """
    converted = [as_element(element) for element in elements]
    spec = spec_of(converted[0])
    for place, element in enumerate(converted):
        try:
            spec = merge_specs(spec, spec_of(element))
        except TypeError as error:
            raise TypeError(
                f"`elements` must be alike, and elements[{place}] differs: {error}"
            ) from None
    return spec, [map_structure(retyped_by_spec, element, spec) for element in converted]


def outcome(describe: Callable[[list[Any]], tuple[Any, Any]], elements: list[Any]) -> str:
    """Return the text of a spec and of elements, or of an error."""
    try:
        spec, kept = describe(elements)
        return f"{spec} {[*kept]}"
    except (TypeError, ValueError) as error:
        return repr(error)


def described_by_from_list(elements: list[Any]) -> tuple[Any, Any]:
    dataset = Dataset.from_list(elements)
    return dataset.element_spec, dataset.node.sequence


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


def test_an_odd_element_is_named_by_its_number() -> None:
    """The error counts the elements before the odd one, also in a long list."""
    for odd in (True, "a", (1, 2), None, 2.0):
        elements = [(1, "a")] * 2_000 + [(odd, "a")] + [(1, "a")]
        with pytest.raises(TypeError, match=r"elements\[2000\] differs: "):
            Dataset.from_list(elements)


@given(lists)
def test_lists_are_described_as_their_elements_are(elements: list[Any]) -> None:
    """Spec, elements and errors of a list are those that follow from its elements one
    by one.
    """
    assert outcome(described_by_from_list, elements) == outcome(described_one_by_one, elements)


@pytest.mark.parametrize("elements", LEAVES)
@pytest.mark.parametrize("nest", [lambda leaf: leaf, lambda leaf: ({"x": leaf}, 1)])
def test_each_sort_of_leaf_is_described_as_its_elements_are(
    elements: list[Any], nest: Callable[[Any], Any]
) -> None:
    """Spec, elements and errors follow from the elements one by one for each sort of
    leaf, in any order of the leaves, and where each comes twice.
    """
    for one in (elements, elements[::-1], elements * 2, elements[:1]):
        nested = [*map(nest, one)]
        assert outcome(described_by_from_list, nested) == outcome(described_one_by_one, nested)
