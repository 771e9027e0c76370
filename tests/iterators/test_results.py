"""Tests of ``zmqdata.iterators.results``: functions return what their operations
take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import PipelineError, WrongTypeError
from zmqdata.iterators.results import as_bool, as_index
from zmqdata.operations.folds import Reducer

INT = TensorSpec((), np.int64)
TEN = Dataset.range(10)


@pytest.mark.parametrize("value", [3, np.int8(3), np.array(3)])
def test_integers_of_all_kinds_are_indices(value: Any) -> None:
    """Integers of Python and numpy, and integer arrays without axes, are indices."""
    assert as_index(value, "key_func") == 3


@pytest.mark.parametrize("value", [True, np.bool_(True), 1.0, "1", None, np.array([1, 2])])
def test_nothing_else_is_an_index(value: Any) -> None:
    """The refusal names the function, its result and the remedy."""
    with pytest.raises(TypeError, match=r"key_func must return one integer, it returned .*int\(\)"):
        as_index(value, "key_func")


@pytest.mark.parametrize("value", [1, np.int64(1), None, "yes", np.array([True, False]), [True]])
def test_nothing_else_is_a_bool(value: Any) -> None:
    """The refusal shows what a predicate returned, and the remedy."""
    with pytest.raises(WrongTypeError, match=r"a predicate must return one bool, .*\.all\(\)"):
        as_bool(value)


WRONG = {
    "scan of one result": (
        lambda: TEN.scan(0, lambda state, x: state),
        "`scan_func` should return a pair consisting of new state and the output value",
    ),
    "scan of another dtype": (
        lambda: TEN.scan(np.int32(1), lambda state, x: (np.int64(1), state)),
        "The element types for the new state must match the initial state",
    ),
    "scan of another nesting": (
        lambda: TEN.scan(0, lambda state, x: ((state, state), x)),
        "must return a state nested like initial_state",
    ),
    "flat_map": (
        lambda: TEN.flat_map(lambda x: x),
        "The `map_func` argument must return a `Dataset` object",
    ),
    "interleave": (
        lambda: TEN.interleave(lambda x: [x]),
        "The `map_func` argument must return a `Dataset` object",
    ),
    "interleave on threads": (
        lambda: TEN.interleave(lambda x: None, num_parallel_calls=2),
        "must return a Dataset, it returned a NoneType",
    ),
    "filter below a function": (
        lambda: TEN.filter(lambda x: x).map(float),
        "`predicate` must return a `bool` scalar",
    ),
    "take_while below a function": (
        lambda: TEN.batch(2).take_while(lambda x: x > 1).map(len),
        "it returned an array of shape \\(2,\\) and dtype bool",
    ),
    "key of a window": (
        lambda: TEN.group_by_window(lambda x: np.array([0, 0]), lambda key, group: group, 2),
        "`key_func` must return a single `int64` scalar",
    ),
    "text as a key of a window": (
        lambda: TEN.group_by_window(lambda x: "3", lambda key, group: group, 2),
        "`key_func` must return a single `int64` scalar",
    ),
    "window size": (
        lambda: TEN.group_by_window(
            lambda x: x, lambda key, group: group, window_size_func=lambda key: "a"
        ),
        "`window_size_func` must return a single `int64` scalar",
    ),
    "window": (
        lambda: TEN.group_by_window(lambda x: x, lambda key, group: key, 2),
        "The `reduce_func` argument must return a `Dataset` object",
    ),
    "key of a reducer": (
        lambda: TEN.group_by_reducer(lambda x: "wrong", Reducer(lambda key: 0, max, int)),
        "`key_func` must return a single `int64` scalar",
    ),
    "state of a reducer": (
        lambda: TEN.group_by_reducer(
            lambda x: 0, Reducer(lambda key: np.int32(0), lambda state, x: np.int64(0), int)
        ),
        "Expected int32, got int64",
    ),
    "class": (
        lambda: TEN.rejection_resample(lambda x: 0.5, [0.5, 0.5]),
        "`class_func` must return a single `int64` scalar",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_refused_with_the_spec(name: str) -> None:
    """A wrong result of a function is refused when the spec is asked, with the
    operation, as the TypeError or ValueError of tf.data; an iterator fails with it.
    """
    make, words = WRONG[name]
    dataset = make()
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match=rf"\w+\(.*\) at test_results.py:\d+: .*{words}"):
            dataset.element_spec  # noqa: B018 - asking is all that is wanted
    with pytest.raises(PipelineError, match=words) as caught:
        next(iter(dataset))
    assert isinstance(caught.value.__cause__, WrongTypeError)


def test_reduce_refuses_a_state_of_another_kind() -> None:
    """``reduce`` ends with the first state that differs in nesting or dtype."""
    with pytest.raises(TypeError, match="Expected int32, got int64"):
        TEN.reduce(np.int32(1), lambda state, x: x)
    with pytest.raises(TypeError, match="must return a state nested like initial_state"):
        TEN.reduce((0, 0), lambda state, x: x)
    with pytest.raises(TypeError, match=r"Expected int, got NoneType.*forget to return"):
        TEN.reduce(0, lambda state, x: None)
    assert TEN.reduce(0, lambda state, x: state + float(x)) == 45
    assert TEN.reduce([], lambda seen, x: [*seen, int(x)]) == list(range(10))
    assert TEN.reduce(None, lambda last, x: x) == 9


def test_building_runs_nothing_and_the_spec_runs_once() -> None:
    """Building calls no function; asking for specs calls each once, whatever is built
    upon it.
    """
    calls: list[str] = []

    def note(name: str, result: Any) -> Any:
        calls.append(name)
        return result

    mapped = TEN.map(lambda x: note("map", float(x)))
    made = mapped.flat_map(lambda x: note("flat_map", Dataset.range(2))).batch(2)
    assert calls == []
    assert mapped.element_spec == TensorSpec((), np.float64)
    assert mapped.batch(2).element_spec == TensorSpec((None,), np.float64)
    assert calls == ["map"]
    calls.clear()
    for _ in range(2):
        assert made.element_spec == made.element_spec == TensorSpec((None,), np.int64)
    assert calls == ["map", "flat_map"]
    folded = TEN.repeat().group_by_reducer(
        lambda x: note("key", 0),
        Reducer(
            lambda key: note("init", 0),
            lambda state, x: note("reduce", state + x),
            lambda state: note("finalize", state),
        ),
    )
    calls.clear()
    assert folded.element_spec == INT
    assert calls == ["key", "init", "reduce", "finalize"]
