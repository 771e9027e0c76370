"""Tests of ``zmqdata.iterators.grouping``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, plain, provided
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import DatasetSpec, TensorSpec
from zmqdata.errors import PipelineError
from zmqdata.iterators import Context, infer_spec, make_iterator
from zmqdata.nodes.base import Node
from zmqdata.nodes.combinations import Zip
from zmqdata.nodes.grouping import Elements, GroupByWindow, Window
from zmqdata.nodes.sources import FromGenerator, Range, TensorSlices
from zmqdata.nodes.transforms import FlatMap, Map

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
