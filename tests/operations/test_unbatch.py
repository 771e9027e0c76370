"""Tests of ``zmqdata.operations.unbatch``: rows of batches, batches of other sizes,
vectorised functions.
"""

from __future__ import annotations

import time
from collections import namedtuple
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elements.attrs_classes import Marked
from tests.iterators.checks import check_restore, plain, provided
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.stacking import stack
from zmqdata.nodes.base import Node
from zmqdata.operations.batch import Batch
from zmqdata.operations.mapping import Map
from zmqdata.operations.sources import Range, TensorSlices
from zmqdata.operations.unbatch import (
    COPY_BELOW,
    MapBatches,
    Rebatch,
    Unbatch,
    joined,
    row_count,
    rows,
)

Point = namedtuple("Point", ["x", "y"])
SIZES = st.lists(st.integers(0, 5), max_size=9)


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def batches(sizes: list[int], make: Any = lambda rows: rows) -> Node:
    """Make a batch of each size, with consecutive numbers."""
    stops = np.cumsum(sizes, dtype=np.int64)
    source = TensorSlices(tensors=(stops - np.array(sizes, np.int64), stops))
    return Map(inputs=(source,), function=lambda start, stop: make(np.arange(start, stop)))


def unbatch(node: Node) -> Node:
    return Unbatch(inputs=(node,), site="train.py:3")


def rebatch(node: Node, *sizes: int, drop: bool = False) -> Node:
    return Rebatch(inputs=(node,), batch_sizes=sizes, drop_remainder=drop, site="train.py:3")


def map_batches(node: Node, function: Any, size: int = 3, drop: bool = False) -> Node:
    return MapBatches(
        inputs=(node,), function=function, batch_size=size, drop_remainder=drop, site="train.py:3"
    )


def nested(numbers: Any) -> Any:
    lists = RaggedTensor.from_row_lengths(np.arange(int(numbers.sum())), numbers)
    deep = RaggedTensor.from_row_lengths(lists, np.ones(len(numbers), int))
    return {
        "n": numbers,
        "p": Point(np.stack([numbers] * 2, 1), (lists, deep)),
        "s": numbers.astype(str),
    }


def row_of(n: int, row: Any) -> bool:
    """True if this is the row of number n of the result of ``nested``."""
    assert type(row["p"]) is Point
    return bool(
        row["n"] == n
        and row["p"].x.tolist() == [n, n]
        and len(row["p"].y[0]) == n
        and [len(inner) for inner in row["p"].y[1]] == [n]
        and row["s"] == str(n)
    )


@given(SIZES)
def test_unbatch_gives_the_rows_in_order(sizes: list[int]) -> None:
    """Rows of batches of any size come singly, and continue exactly from any step."""
    assert check_restore(unbatch(batches(sizes))) == [plain(np.int64(n)) for n in range(sum(sizes))]


def slices(tensors: Any) -> Node:
    return TensorSlices(tensors=tensors)


def batches_of(tensors: Any) -> Node:
    return Batch(inputs=(slices(tensors),), batch_size=2)


def test_rows_keep_the_nesting() -> None:
    """Dicts, tuples, namedtuples, texts and ragged leaves are taken apart together."""
    node = unbatch(batches([2, 3], nested))
    for n, row in enumerate(make_iterator(node, Context())):
        assert row_of(n, row)
    check_restore(node)


def test_unbatch_undoes_batch_in_splits() -> None:
    """The rows over a provider are the rows of its splits."""
    node = unbatch(Batch(inputs=(count(9),), batch_size=2))
    assert check_restore(node, provided([[(0, 2), (4, 9)]])) == [
        plain(np.int64(n)) for n in (0, 1, 4, 5, 6, 7, 8)
    ]


def test_rows_of_none_are_none() -> None:
    """None stays None in each row, and attrs classes are structures."""
    batch = {"m": Marked(np.arange(3), (None,)), "n": None}
    assert row_count(batch) == 3
    assert list(rows(batch, 1)) == [{"m": Marked(n, (None,)), "n": None} for n in (1, 2)]
    assert plain(joined([batch, batch])["m"].x) == plain(np.array([0, 1, 2, 0, 1, 2]))
    assert joined([batch, batch])["n"] is None
    with pytest.raises(InvalidArgumentError, match="an array in one and None in another"):
        joined([(np.arange(3),), (None,)])
    for size in (1, 2, 4):
        node = TensorSlices(tensors=batch)
        stacked = Batch(inputs=(node,), batch_size=2)
        for made in (stacked, rebatch(stacked, size), unbatch(rebatch(stacked, size))):
            check_restore(made)
        assert len(list(make_iterator(unbatch(stacked), Context()))) == 3


def test_empty_structures_have_any_number_of_rows() -> None:
    """An empty dict or tuple in a batch is in each of its rows, and loses none."""
    batch = ({}, np.arange(4), {"e": ((), {})})
    assert [int(number) for _, number, _ in rows(batch)] == [0, 1, 2, 3]
    for row in (list(rows(batch))[3], list(make_iterator(slices(batch), Context()))[3]):
        assert row == ({}, 3, {"e": ((), {})})
    first, second, *_ = rows(batch)
    assert first[0] is not second[0]
    for size in (1, 3):
        read = make_iterator(unbatch(rebatch(batches_of(batch), size)), Context())
        assert len(list(read)) == 4


def test_rows_belong_to_their_receiver() -> None:
    """Small rows own their memory, and large rows share none with other rows."""
    small, large = np.zeros((2, 3)), np.zeros((2, COPY_BELOW))
    for row in (
        *rows(small),
        *rows(large),
        *rows(RaggedTensor(large.reshape(-1), [0, COPY_BELOW, 2 * COPY_BELOW])),
    ):
        row[...] = 1
    assert small.sum() == 0
    assert large.sum() == large.size
    records = np.zeros(2, "i4,f8")
    next(rows(records))["f0"] = 7
    assert records["f0"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (5, "the element has no axis: got a int 5"),
        (
            {"x": np.zeros(2), "y": (np.zeros(3),)},
            r"different numbers of rows: the array at \['x'\] has 2, the array at \['y'\]\[0\] has 3",
        ),
        ({"x": np.array(1.5)}, r"\['x'\] has no axis: got a ndarray"),
        ((), "it contains no array"),
        ((None,), "it contains no array"),
        ((5,), r"\[0\] has no axis: got a int"),
    ],
)
def test_what_has_no_rows_is_an_error_that_teaches(batch: Any, text: str) -> None:
    """The error names the place, what came, and what to do in a map."""
    with pytest.raises(InvalidArgumentError, match=rf"(?s){text}.*map\(\)"):
        row_count(batch)


def odd_one(numbers: Any) -> Any:
    return 5 if len(numbers) == 1 else numbers


def failing(numbers: Any) -> Any:
    return [][0] if len(numbers) == 1 else numbers


@pytest.mark.parametrize("make", [odd_one, failing])
def test_failures_come_at_their_place(make: Any) -> None:
    """A batch that fails, or has no rows, fails once, and the rows around it come."""
    node = unbatch(batches([2, 1, 2], make))
    assert [outcome[0] for outcome in check_restore(node)] == [
        "int64",
        "int64",
        "raised",
        "int64",
        "int64",
    ]
    iterator = make_iterator(unbatch(batches([1], odd_one)), Context())
    with pytest.raises(PipelineError, match=r"unbatch\(\) at train.py:3 failed: "):
        next(iterator)
    iterator.close()


@given(SIZES, st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any), st.booleans())
def test_rebatch_equals_a_loop(given_sizes: list[int], sizes: list[int], drop: bool) -> None:
    """Batches of the given sizes in turn, including empty batches, hold all rows in
    order, and continue exactly from any step.
    """
    left, wanted = list(range(sum(given_sizes))), []
    for size in cycle(sizes):
        if (size and not left) or not given_sizes:
            break
        part, left = left[:size], left[size:]
        if len(part) == size or not drop:
            wanted.append(plain(np.array(part, np.int64)))
        if len(part) < size:
            break
    assert check_restore(rebatch(batches(given_sizes), *sizes, drop=drop)) == wanted


@given(
    st.integers(1, 9),
    st.integers(1, 4),
    st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any),
    st.booleans(),
)
def test_rebatch_has_as_many_batches_as_it_says(
    stop: int, size: int, sizes: list[int], drop: bool
) -> None:
    """If the number of rows is known, so is the number of batches."""
    node = rebatch(
        Batch(inputs=(count(stop * size),), batch_size=size, drop_remainder=True),
        *sizes,
        drop=drop,
    )
    assert len(list(make_iterator(node, Context()))) == node.cardinality


def test_rebatch_keeps_the_nesting() -> None:
    """Nested and ragged leaves are cut and joined together."""
    node = rebatch(batches([2, 1, 4], nested), 3)
    read = [row for batch in make_iterator(node, Context()) for row in rows(batch)]
    assert all(map(row_of, range(7), read))
    check_restore(node)


def test_rebatch_gives_up_the_batch_that_fails() -> None:
    """If the input fails, the collected rows are discarded, as in batch, and the next
    size follows.
    """
    read = check_restore(rebatch(batches([2, 1, 2, 2], failing), 3, 2))
    assert [outcome[0] for outcome in read] == ["raised", "ndarray", "ndarray"]
    assert [outcome[3] for outcome in read[1:]] == [[3, 4], [5, 6]]


def test_batches_that_do_not_join_are_an_error_that_teaches() -> None:
    """Other dtypes, shapes or keys in the next batch are a failure of rebatch."""
    node = rebatch(batches([2, 1], lambda x: x if len(x) == 2 else x.astype(float)), 3)
    assert "dtypes float64 and int64" in check_restore(node)[0][2]
    with pytest.raises(InvalidArgumentError, match="consecutive batches differ"):
        joined([np.zeros((1, 2)), np.zeros((1, 3))])
    with pytest.raises(InvalidArgumentError, match="consecutive batches differ"):
        joined([{"a": np.zeros(1)}, {"b": np.zeros(1)}])


@given(st.integers(0, 12), st.integers(1, 5), st.booleans())
def test_map_batches_equals_map(stop: int, size: int, drop: bool) -> None:
    """A vectorised function gives the results of single calls, and continues exactly
    from any step.
    """
    node = map_batches(count(stop), lambda x: x * x, size, drop)
    assert check_restore(node) == [plain(np.int64(n * n)) for n in range(node.cardinality)]


def test_map_batches_calls_once_per_batch() -> None:
    """The function gets stacked elements, with a tuple as its arguments, and may return
    lists.
    """
    calls = []

    def add(a: Any, b: Any) -> Any:
        calls.append((a, b))
        return {"sum": (a + b).tolist()}

    pairs = TensorSlices(tensors=(np.arange(5), np.arange(5) * 10))
    assert [row["sum"] for row in make_iterator(map_batches(pairs, add), Context())] == [
        0,
        11,
        22,
        33,
        44,
    ]
    assert [part[0].tolist() for part in calls] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x[:1] if x[0] == 3 else x, "returned 1 rows for a batch of 3"),
        (lambda x: 5 if x[0] == 3 else x, "has no axis"),
        (lambda x: [][0] if x[0] == 3 else x, "IndexError"),
    ],
)
def test_a_failing_batch_is_given_up(function: Any, text: str) -> None:
    """A batch on which the function fails is a single failure with the node's name, and
    the next batch follows.
    """
    read = check_restore(map_batches(count(9), function))
    assert [outcome[0] for outcome in read] == ["int64"] * 3 + ["raised"] + ["int64"] * 3
    assert "at train.py:3 failed: " in read[3][2]
    assert text in read[3][2]


def test_states_stay_small() -> None:
    """States hold numbers, not the rows of the current batch."""
    wide = Map(inputs=(count(3),), function=lambda n: np.zeros((4, 9999)))
    for node in (
        unbatch(wide),
        rebatch(wide, 3),
        map_batches(count(3), lambda x: np.zeros((3, 9999))),
    ):
        iterator = make_iterator(node, Context())
        next(iterator)
        assert len(str(iterator.state())) < 60


def test_struct_sequences_are_structures() -> None:
    """A struct sequence, such as ``os.stat_result``, is stacked and taken apart like a
    namedtuple.
    """
    moment = time.gmtime(0)
    batch = stack([moment, moment])
    assert type(batch) is type(moment)
    assert batch.tm_year.tolist() == [1970, 1970]
    assert list(rows(batch)) == [moment, moment]
