"""Tests of ``zmqdata.dataset.grouping``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, Reducer
from zmqdata.elements.specs import INFINITE_CARDINALITY, DatasetSpec, TensorSpec
from zmqdata.errors import InvalidArgumentError, WrongTypeError
from zmqdata.pipelines import fingerprint, open_pipeline, pack_pipeline

TEN = Dataset.range(10)
COUNT = Reducer(lambda key: 0, lambda count, x: count + 1, lambda count: count)


def batched(key: Any, group: Dataset) -> Dataset:
    return group.batch(4)


def lists(dataset: Dataset) -> list[Any]:
    return [batch.tolist() for batch in dataset]


def test_windows_shift_by_their_size() -> None:
    """Without a shift, windows do not overlap, and their spec is a public
    DatasetSpec.
    """
    dataset = TEN.window(4)
    assert [[int(x) for x in window] for window in dataset] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert dataset.element_spec == DatasetSpec(TensorSpec((), np.int64))
    assert dataset.element_spec.element_spec == TensorSpec((), np.int64)
    assert lists(TEN.window(3, 1, 4, True).flat_map(lambda window: window.batch(3))) == [
        [0, 4, 8],
        [1, 5, 9],
    ]


def test_windows_of_tuples_are_tuples_of_datasets() -> None:
    """A function gets a dataset for each part."""
    pairs = (
        Dataset.zip(TEN, TEN).window(5).flat_map(lambda a, b: Dataset.zip(a.batch(5), b.batch(5)))
    )
    assert [(a.tolist(), b.tolist()) for a, b in pairs][1] == ([5, 6, 7, 8, 9],) * 2


def test_windows_and_groups_of_nothing() -> None:
    """Empty input has no windows and no groups, and the spec of its groups is that of
    an empty group.
    """
    nothing = Dataset.range(0)
    assert list(nothing.window(2)) == []
    assert list(nothing.group_by_window(int, batched, 2)) == []
    assert nothing.group_by_window(int, batched, 2).element_spec == TensorSpec((None,), np.int64)
    groups = nothing.group_by_window(int, lambda key, group: group.window(key + 1), 2)
    assert groups.element_spec == DatasetSpec(TensorSpec((), np.int64))
    none = TEN.filter(lambda x: x > 10).group_by_window(int, batched, 2)
    assert none.element_spec == TensorSpec((None,), np.int64)
    with pytest.raises(InvalidArgumentError, match="the pipeline yields none"):
        _ = nothing.map(float).group_by_window(int, batched, 2).element_spec
    with pytest.raises(WrongTypeError, match="must return a Dataset"):
        _ = nothing.group_by_window(int, lambda key, group: key, 2).element_spec


def test_groups_of_endless_input_never_end() -> None:
    """Groups and buckets of endless input are endless; of other input, their number is
    unknown.
    """
    for input_ in (TEN.repeat(), TEN):
        endless = input_.cardinality() == INFINITE_CARDINALITY
        for made in (
            input_.group_by_window(int, batched, 2),
            input_.bucket_by_sequence_length(int, [5], [2, 2]),
            input_.interleave(Dataset.range, num_parallel_calls=2),
        ):
            assert made.batch(2).cardinality() == (-1 if endless else -2)


def test_a_tuple_of_a_reducer_is_unpacked_at_its_end() -> None:
    """The last function of a reducer gets a tuple as several arguments, as in map. The
    second gets state and element as they are.
    """

    def mean(state: Any, element: Any) -> Any:
        return state[0] + element[0], state[1] + 1

    reducer = Reducer(lambda key: (0, 0), mean, lambda total, count: total / count)
    assert list(Dataset.zip(TEN, TEN).group_by_reducer(lambda a, b: b % 2, reducer)) == [4.0, 5.0]


def test_groups_by_a_size_or_a_function() -> None:
    """A size or a function decides when a group is full."""
    assert lists(TEN.group_by_window(lambda x: x % 2, batched, window_size=4)) == [
        [0, 2, 4, 6],
        [1, 3, 5, 7],
        [8],
        [9],
    ]
    assert (
        len(
            lists(
                TEN.group_by_window(lambda x: x % 2, batched, window_size_func=lambda key: key + 1)
            )
        )
        == 8
    )


def test_reducers_fold_by_key() -> None:
    """A reducer yields a single result for each key."""
    assert list(TEN.group_by_reducer(lambda x: x % 3, COUNT)) == [4, 3, 3]


def test_groups_can_be_shipped() -> None:
    """Pipelines with windows and groups can be packed and opened, and have a stable
    fingerprint.
    """
    dataset = TEN.window(3).flat_map(lambda w: w.batch(3)).map(len).group_by_window(int, batched, 2)
    opened = Dataset(open_pipeline(pack_pipeline(dataset.node)))
    assert lists(opened) == lists(dataset)
    assert fingerprint(dataset.node) == fingerprint(dataset.node)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: TEN.window(0), InvalidArgumentError, "Window size must be greater than zero"),
        (lambda: TEN.window(2, shift=0), InvalidArgumentError, "shift must be at least 1"),
        (lambda: TEN.window(2, stride=0), InvalidArgumentError, "stride must be at least 1"),
        (lambda: TEN.window(2, drop_remainder=1), TypeError, "drop_remainder must be a bool"),
        (lambda: TEN.group_by_window(int, batched), ValueError, "pass exactly one of them"),
        (lambda: TEN.group_by_window(int, batched, 2, int), ValueError, "pass exactly one of them"),
        (lambda: TEN.group_by_window(1, batched, 2), TypeError, "key_func must be callable"),
        (lambda: TEN.group_by_window(int, 1, 2), TypeError, "reduce_func must be callable"),
        (
            lambda: TEN.group_by_window(int, batched, 0),
            InvalidArgumentError,
            "Window size must be greater than zero, but got 0: window_size must be at least 1",
        ),
        (
            lambda: TEN.group_by_window(int, batched, None, 7),
            TypeError,
            "window_size_func must be callable",
        ),
        (lambda: TEN.group_by_reducer(int, max), TypeError, "reducer must be a Reducer"),
        (lambda: TEN.group_by_reducer(7, COUNT), TypeError, "key_func must be callable"),
    ],
)
def test_arguments_are_checked_at_the_call(make: Any, error: type[Exception], text: str) -> None:
    """The error names what came and what was expected."""
    with pytest.raises(error, match=text):
        make()
