"""Tests of ``zmqdata.operations.grouping``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, plain, provided
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import DatasetSpec, TensorSpec
from zmqdata.errors import PipelineError, UnimplementedError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.inference import infer_spec
from zmqdata.nodes.base import Node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.combinations import Zip
from zmqdata.operations.folds import GroupByReducer, Reducer, Scan
from zmqdata.operations.grouping import GroupByWindow, Window
from zmqdata.operations.mapping import Map
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sequences import Elements
from zmqdata.operations.sources import FromGenerator, Range, TensorSlices
from zmqdata.splits import IndexSplits

INT = TensorSpec((), np.int64)


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def picky(stop: int) -> Node:
    return Map(inputs=(count(stop),), function=lambda x: 1 // int(x != 3) and int(x))


def window(source: Node, size: int, shift: int, stride: int = 1, drop: bool = False) -> Window:
    return Window(
        inputs=(source,), size=size, shift=shift, stride=stride, drop_remainder=drop, wrap=Dataset
    )


def lists(node: Node) -> Node:
    """Windows as lists of their elements, for comparison."""
    return Map(inputs=(node,), function=lambda dataset: tuple(map(int, dataset)))


def numbers(read: list[Any]) -> list[Any]:
    return [
        [part[1] for part in outcome[1:]] if outcome[0] == "tuple" else outcome[0]
        for outcome in read
    ]


def expected_windows(count: int, size: int, shift: int, stride: int, drop: bool) -> list[list[int]]:
    found = []
    for start in range(0, count, shift):
        whole = [start + stride * index for index in range(size)]
        kept = [number for number in whole if number < count]
        if len(kept) == size or not drop:
            found.append(kept)
    return found


@given(st.integers(0, 12), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_windows_are_slices(length: int, size: int, shift: int, stride: int, drop: bool) -> None:
    """Windows equal slices of a list, match their cardinality, and can be restored at
    every step.
    """
    node = window(count(length), size, shift, stride, drop)
    assert numbers(check_restore(lists(node))) == (
        expected := expected_windows(length, size, shift, stride, drop)
    )
    assert node.cardinality == len(expected)


def test_windows_of_nested_elements_are_nested_datasets() -> None:
    """Each leaf becomes a dataset of its own, as the spec states."""
    pairs = Zip(inputs=(count(3), count(3)), template={"a": 0, "b": (1,)})
    node = window(pairs, 2, 2)
    first = next(make_iterator(node, Context()))
    assert [list(first["a"]), list(first["b"][0])] == [[0, 1], [0, 1]]
    assert infer_spec(node) == {"a": DatasetSpec(INT), "b": (DatasetSpec(INT),)}


def test_a_failing_element_fails_the_windows_it_is_in() -> None:
    """The other windows are complete. The failure of a skipped element has no
    effect.
    """
    assert numbers(check_restore(lists(window(picky(6), 2, 1)))) == [
        [0, 1],
        [1, 2],
        "raised",
        "raised",
        [4, 5],
        [5],
    ]
    assert numbers(check_restore(lists(window(picky(6), 1, 2)))) == [[0], [2], [4]]


def test_windows_of_mixed_elements_fail() -> None:
    """Elements of different nesting in a window are an error that names the node."""
    mixed = Map(inputs=(count(4),), function=lambda x: (x,) if x == 1 else (x, x))
    read = check_restore(
        Map(inputs=(window(mixed, 2, 2),), function=lambda *datasets: len(datasets))
    )
    assert [outcome[0] for outcome in read] == ["raised", "int"]


def test_windows_can_be_read_by_flat_map() -> None:
    """flat_map batches each window, and can be restored within a window."""
    node = FlatMap(inputs=(window(count(7), 3, 2),), function=lambda dataset: dataset.batch(2))
    assert len(check_restore(node)) == 7


def test_what_windows_hand_out_is_the_receivers() -> None:
    """Writing into an element of a window changes no other window."""
    rows = TensorSlices(tensors=np.zeros((3, 1)))
    iterator = make_iterator(window(rows, 2, 1), Context())
    first, second = next(iterator), next(iterator)
    for row in first:
        row += 1
    assert [row.tolist() for row in second] == [[0], [0]]


def test_held_elements_describe_themselves() -> None:
    """The datasets that functions receive have a cardinality, and a spec that admits
    all of their elements.
    """
    dataset = Dataset(Elements(elements=(np.zeros(1), np.zeros(2))))
    assert len(dataset) == 2
    assert dataset.element_spec == TensorSpec((None,), np.float64)
    assert dataset.node.label == "elements(2)"
    assert check_restore(dataset.node) == [plain(np.zeros(1)), plain(np.zeros(2))]


def grouped(source: Node, function: Any, size: Any = 2, key: Any = lambda x: int(x) % 3) -> Node:
    sizes = {"window_size_function": size} if callable(size) else {"window_size": size}
    return GroupByWindow(
        inputs=(source,), key_function=key, function=function, wrap=Dataset, **sizes
    )


def batched(key: Any, dataset: Dataset) -> Dataset:
    return dataset.batch(10)


def test_groups_come_when_they_are_full() -> None:
    """A full group is yielded at once. Incomplete groups follow at the end, by
    ascending key.
    """
    read = check_restore(grouped(count(10), batched, key=lambda x: -(int(x) % 3)))
    assert [outcome[3] for outcome in read] == [[0, 3], [1, 4], [2, 5], [6, 9], [8], [7]]


def test_groups_may_have_sizes_of_their_own() -> None:
    """A function of the key returns the size, and a size below one is a failure."""
    read = check_restore(
        grouped(count(6), batched, size=lambda key: key + 1, key=lambda x: int(x) % 2)
    )
    assert [outcome[3] for outcome in read] == [[0], [2], [1, 3], [4], [5]]
    bad = check_restore(grouped(count(2), batched, size=lambda key: 0))
    assert "greater than zero, but got 0 from window_size_func for the key 1" in bad[1][2]


def test_groups_can_be_anything() -> None:
    """The function gets the key and may repeat, shuffle and shorten. Restoring works
    within its dataset.
    """

    def thrice(key: Any, dataset: Dataset) -> Dataset:
        assert type(key) is np.int64
        return dataset.shuffle(3).repeat(2).map(lambda x: int(x) + 100 * int(key))

    assert len(check_restore(grouped(count(7), thrice))) == 14
    assert check_restore(grouped(count(7), lambda key, dataset: dataset.take(0))) == []


def test_groups_go_on_after_failures() -> None:
    """A failing element, key or function fails once. Only the elements of a failed
    group are lost.
    """
    read = check_restore(grouped(picky(8), batched))
    assert [outcome[0] for outcome in read].count("raised") == 1
    read = check_restore(grouped(count(6), batched, key=lambda x: 1 // int(x != 2) and 0))
    assert [outcome[0] for outcome in read] == ["ndarray", "raised", "ndarray", "ndarray"]
    wrong = check_restore(
        grouped(count(4), lambda key, dataset: 1 // int(key != 0) and dataset.batch(2))
    )
    assert [outcome[0] for outcome in wrong] == ["raised", "ndarray", "ndarray"]


@pytest.mark.parametrize("key", [lambda x: "a", lambda x: 1.5, lambda x: True])
def test_keys_are_integers(key: Any) -> None:
    """The error shows a key that is not an integer, and the remedy."""
    with pytest.raises(PipelineError, match="key_func must return one integer"):
        next(make_iterator(grouped(count(1), batched, key=key), Context()))


def test_groups_must_become_datasets() -> None:
    """The error names a function that does not return a dataset."""
    with pytest.raises(PipelineError, match="must return a Dataset, it returned a list"):
        next(
            make_iterator(grouped(count(2), lambda key, dataset: list(dataset), size=1), Context())
        )


def test_groups_are_of_the_part_of_a_worker() -> None:
    """The input is split, and the datasets of groups are read in full."""
    node = grouped(
        count(99), lambda key, dataset: Dataset.zip(dataset, Dataset.range(9)), key=lambda x: 0
    )
    read = check_restore(node, provided([[(10, 12), (40, 41)]]))
    assert [outcome[1][3] for outcome in read] == [10, 11, 40]


def test_the_spec_of_groups_follows_from_the_function() -> None:
    """A batch of a group has a length that varies."""
    assert infer_spec(grouped(count(9), batched)) == TensorSpec((None,), np.int64)


def test_closing_reaches_what_is_open() -> None:
    """close() closes the input and the dataset being read."""
    closed = []

    def generate(name: str) -> Any:
        try:
            yield from range(4)
        finally:
            closed.append(name)

    source = FromGenerator(generator=generate, args=("outer",))
    inner = Dataset.from_generator(generate, args=("inner",))
    for node in (grouped(source, lambda key, dataset: inner), window(source, 2, 1)):
        iterator = make_iterator(node, Context())
        next(iterator)
        iterator.close()
    assert sorted(closed) == ["inner", "outer", "outer"]


TEN = Range(start=0, stop=10)
REDUCER = Reducer(int, max, int)


def parse(x: Any) -> Any:
    return x


def infer(node: Node) -> Any:
    return node.spec(infer)


def window_node(source: Node, size: int, shift: int, stride: int = 1, drop: bool = False) -> Window:
    return Window(
        inputs=(source,), size=size, shift=shift, stride=stride, drop_remainder=drop, wrap=parse
    )


@pytest.mark.parametrize(
    ("node", "label", "cardinality"),
    [
        (window_node(TEN, 3, 3), "window(3)", 4),
        (window_node(TEN, 3, 3, drop=True), "window(3)", 3),
        (window_node(TEN, 3, 1, 2, drop=True), "window(3)", 6),
        (window_node(TEN, 20, 1, drop=True), "window(20)", 0),
        (window_node(Repeat(inputs=(TEN,), count=-1), 3, 3), "window(3)", INFINITE),
        (
            GroupByWindow(
                inputs=(TEN,), key_function=parse, function=max, window_size=2, wrap=parse
            ),
            "group_by_window(parse, max)",
            UNKNOWN,
        ),
        (
            GroupByReducer(inputs=(TEN,), key_function=parse, reducer=REDUCER),
            "group_by_reducer(parse)",
            UNKNOWN,
        ),
    ],
)
def test_labels_and_cardinalities(node: Node, label: str, cardinality: int) -> None:
    """Errors use the label of the node, its cardinality is as listed, and its input is
    split.
    """
    assert node.label == label
    assert node.cardinality == cardinality
    assert split_sources(node) == [IndexSplits(10)]


def test_specs() -> None:
    """Windows are datasets with the spec of their input, and functions require a trial
    run.
    """
    assert infer(window_node(TEN, 3, 3)) == DatasetSpec(TensorSpec((), np.int64))
    assert (
        infer(
            GroupByWindow(
                inputs=(TEN,), key_function=parse, function=max, window_size=2, wrap=parse
            )
        )
        is None
    )
    assert infer(GroupByReducer(inputs=(TEN,), key_function=parse, reducer=REDUCER)) is None


def test_held_elements_are_a_source_that_is_not_split() -> None:
    """The number and spec of held elements are known. Splitting them is an error that
    names them.
    """
    node = Elements(elements=(np.zeros(1), np.zeros(2)))
    assert (node.cardinality, node.label) == (2, "elements(2)")
    assert infer(node) == TensorSpec((None,), np.float64)
    assert infer(Elements(elements=())) is None
    with pytest.raises(
        UnimplementedError, match="Cannot create split providers for dataset of type Elements"
    ):
        split_sources(node)


def test_nodes_that_hold_arrays_are_equal_to_themselves_only() -> None:
    """Two nodes with elements, or with a first state, are never equal."""
    pairs = [Elements(elements=(np.zeros(2),)) for _ in range(2)]
    scans = [Scan(inputs=(TEN,), initial_state=np.zeros(2), function=parse) for _ in range(2)]
    for one, other in (pairs, scans):
        assert one == one
        assert one != other
        assert len({one, other}) == 2


@pytest.mark.parametrize("functions", [(1, max, int), (int, 1, int), (int, max, None)])
def test_a_reducer_needs_three_functions(functions: Any) -> None:
    """The error names the missing function."""
    with pytest.raises(TypeError, match=r"_func must be callable, got"):
        Reducer(*functions)
