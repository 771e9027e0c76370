"""Tests of ``zmqdata.operations.folds``."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, plain, run
from zmqdata.errors import PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.folds import GroupByReducer, Reducer, Scan
from zmqdata.operations.sources import Range, TensorSlices

Point = namedtuple("Point", ["x", "y"])


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def scan(initial: Any, function: Any, stop: int = 5) -> Node:
    return Scan(inputs=(count(stop),), initial_state=initial, function=function, site="t.py:1")


def add(total: Any, x: Any) -> Any:
    if x == 2:
        raise ValueError("two")
    return total + x, int(total)


class Total:
    """A running state that is not a plain value."""

    def __init__(self, value: int) -> None:
        self.value = value


def add_total(total: Total, x: Any) -> Any:
    number = int(add(total.value, x)[0])
    return Total(number), number


@pytest.mark.parametrize("initial", [0, np.int64(0)])
def test_scan_carries_a_state(initial: Any) -> None:
    """The state passes from element to element, and a failing element leaves it
    unchanged.
    """
    read = check_restore(scan(initial, add))
    assert [outcome[-1] if outcome[0] == "int" else outcome[0] for outcome in read] == [
        0,
        0,
        "raised",
        1,
        4,
    ]


def test_scan_takes_nested_states() -> None:
    """Dicts, tuples, namedtuples and arrays are states; a list becomes an array."""

    def step(state: Any, x: Any) -> Any:
        return {"n": state["n"] + 1, "p": (state["p"][0] + x,)}, [state["n"], 1]

    read = check_restore(scan({"n": 0, "p": (np.zeros(2),)}, step))
    assert read[3] == plain(np.array([3, 1]))
    points = scan(Point(0, 1), lambda point, x: (Point(point.x + 1, point.y), point.x))
    assert [outcome[-1] for outcome in check_restore(points)] == [0, 1, 2, 3, 4]


def test_scan_replays_what_is_not_plain() -> None:
    """If the state is an object, restoring runs the function again, past failures."""
    node = scan(Total(0), add_total)
    assert [outcome[0] for outcome in check_restore(node)] == ["int", "int", "raised", "int", "int"]
    iterator = make_iterator(node, Context())
    next(iterator)
    assert iterator.state()[0] is None


def test_scan_does_not_change_the_first_state() -> None:
    """A function that writes into its state writes into a copy that belongs to its
    iterator.
    """

    def grow(total: Any, x: Any) -> Any:
        total += 1
        return total, int(total[0])

    node = scan(np.zeros(1), grow)
    assert run(node) == run(node) == [("int", number) for number in range(1, 6)]


@pytest.mark.parametrize("result", [1, (1,), (1, 2, 3), "ab", None])
def test_scan_wants_two_results(result: Any) -> None:
    """The error shows any result other than a state and an element."""
    with pytest.raises(
        PipelineError, match=r"scan\(<lambda>\) at t.py:1 .*a tuple of the new state and an element"
    ):
        next(make_iterator(scan(0, lambda state, x: result), Context()))


@pytest.mark.parametrize(
    ("initial", "later"), [(0, (1,)), ((0,), 1), ((0,), (1, 2)), ({"a": 0}, {"b": 0})]
)
def test_scan_wants_states_of_one_nesting(initial: Any, later: Any) -> None:
    """The error shows both nestings if the state changes its nesting."""
    with pytest.raises(PipelineError, match="nested like initial_state"):
        next(make_iterator(scan(initial, lambda state, x: (later, x)), Context()))


def reduced(reducer: Reducer, key: Any = lambda x: -(int(x) % 3), stop: int = 8) -> Node:
    return GroupByReducer(inputs=(count(stop),), key_function=key, reducer=reducer)


def test_functions_of_a_state_are_told_what_they_get() -> None:
    """A function that unpacks the element of a tuple learns that it gets it whole."""
    pairs = TensorSlices(tensors=(np.arange(2), np.arange(2)))

    def unpack(state: Any, left: Any, right: Any) -> Any:
        return state, left

    scanned = Scan(inputs=(pairs,), initial_state=0, function=unpack)
    folded = GroupByReducer(inputs=(pairs,), key_function=max, reducer=Reducer(int, unpack, int))
    for node in (scanned, folded):
        with pytest.raises(PipelineError, match="the state and the element as two arguments"):
            next(make_iterator(node, Context()))


def test_reducers_give_one_result_a_key() -> None:
    """Results come by ascending key. Each is the fold of its elements from the initial
    state of the key.
    """
    reducer = Reducer(
        lambda key: 100 * int(key), lambda total, x: total + int(x), lambda total: (total,)
    )
    read = check_restore(reduced(reducer))
    assert [outcome[1][1] for outcome in read] == [-200 + 2 + 5, -100 + 1 + 4 + 7, 0 + 3 + 6]
    assert check_restore(reduced(reducer, stop=0)) == []


@pytest.mark.parametrize("kind", [int, Total])
def test_reducers_go_on_after_failures(kind: Any) -> None:
    """A failing key, fold or end fails once and loses a single element or result, even
    if restoring replays it.
    """

    def key(x: Any) -> Any:
        return [0, 1, 2][int(x)] if x != 3 else "three"

    def fold(state: Any, x: Any) -> Any:
        return kind(getattr(state, "value", state) + 1)

    def end(state: Any) -> Any:
        return 6 // (getattr(state, "value", state) - 2)

    def picked(x: Any) -> Any:
        return key(x) if x < 4 else int(x) % 3

    read = check_restore(reduced(Reducer(lambda key: kind(0), fold, end), picked))
    assert [outcome[0] for outcome in read] == ["raised", "raised", "int", "raised"]
