"""Tests of ``zmqdata.operations.choices``."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, plain, provided, run
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.choices import (
    Choose,
    Counter,
    RandomChoices,
    RejectionResample,
    WeightedChoices,
    acceptance,
)
from zmqdata.operations.limits import Take
from zmqdata.operations.mapping import Map
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.selections import Shard
from zmqdata.operations.sources import FromGenerator, Range, Tensors, TensorSlices
from zmqdata.splits import IndexSplits


def count(start: int, stop: int) -> Range:
    return Range(start=start, stop=stop)


def slices(values: Any) -> Node:
    return TensorSlices(tensors=np.asarray(values))


def choose(choices: Node, *inputs: Node, stop: bool = False) -> Choose:
    return Choose(
        inputs=inputs,
        choices=choices,
        stop="first" if stop else "once",
        name="choose_from_datasets",
        site="t.py:1",
    )


def draw(*weights: float, seed: int | None = None, anew: bool = True) -> Node:
    return RandomChoices(weights=weights, seed=seed, rerandomize=anew)


def numbers(read: list[Any]) -> list[Any]:
    return [outcome[3] if outcome[0] == "int64" else outcome[0] for outcome in read]


@given(st.lists(st.integers(0, 2), max_size=12), st.booleans())
def test_choices_are_followed(chosen: list[int], stop: bool) -> None:
    """Elements come from the inputs in the chosen order. An exhausted input ends the
    dataset or is skipped.
    """
    inputs = [list(range(10 * index, 10 * index + 3)) for index in range(3)]
    expected: list[int] = []
    for number in chosen:
        if inputs[number]:
            expected.append(inputs[number].pop(0))
        elif stop:
            break
    node = choose(
        slices(np.array(chosen, np.int64)), count(0, 3), count(10, 13), count(20, 23), stop=stop
    )
    assert numbers(check_restore(node)) == expected


def test_choosing_ends_when_nothing_is_left() -> None:
    """Endless choices end with the last input."""
    node = choose(Repeat(inputs=(count(0, 2),), count=-1), count(0, 1), count(10, 13))
    assert numbers(check_restore(node)) == [0, 10, 11, 12]


@pytest.mark.parametrize(
    ("choice", "text"), [(2, "expected a number from 0 to 1"), (-1, "yielded -1"), (1.5, "integer")]
)
def test_other_choices_fail_one_element(choice: Any, text: str) -> None:
    """A choice that names no input is a failure, and the next choice is followed."""
    values = Map(inputs=(slices([0, 1, 0]),), function=lambda x: choice if x else 0)
    read = check_restore(choose(values, count(0, 3), count(10, 13)))
    assert numbers(read) == [0, "raised", 1]
    assert text in read[1][2]


def test_a_choice_out_of_range_is_an_invalid_argument() -> None:
    """The error of a choice that names no input has tf.data's class and words."""
    node = choose(slices([2]), count(0, 3), count(10, 13))
    with pytest.raises(InvalidArgumentError, match="out of range"):
        next(make_iterator(node, Context()))


def test_inputs_are_split_and_choices_are_not() -> None:
    """Each input has a provider, the choices run in full on each worker."""
    node = choose(Repeat(inputs=(count(0, 2),), count=-1), count(0, 99), count(0, 99))
    assert numbers(check_restore(node, provided([[(5, 7)]], [[(50, 53)]]))) == [5, 50, 6, 51, 52]


def test_choices_repeat_with_their_inputs() -> None:
    """Each repetition reads its own splits, even if an input has ended early."""
    node = choose(draw(1.0, 1.0), count(0, 9), count(10, 19))
    ranges = [[(0, 2), (5, 8)], [(3, 4)], [(1, 2)]]
    others = [[(0, 1)], [(3, 8)], [(1, 2)]]
    assert len(check_restore(Repeat(inputs=(node,), count=3), provided(ranges, others))) == 14


def test_draws_follow_weights() -> None:
    """Two thousand draws come close to the weights."""
    found = collections.Counter(run(draw(1.0, 3.0), limit=2000))
    assert abs(found[("int", 1)] - 1500) < 100


def test_draws_restore_and_vary() -> None:
    """Draws continue from a state. They differ by place in the tree and, if requested,
    by repetition.
    """
    check_restore(draw(1.0, 1.0, 1.0), limit=50)
    for anew in (True, False):
        runs = [run(draw(1, 1, seed=3, anew=anew), Context(repetition=n), 60) for n in (0, 1)]
        assert (runs[0] != runs[1]) is anew
    node = draw(1, 1, anew=False)
    assert run(node, Context(fixed_seed=4), 60) == run(
        node, Context(fixed_seed=4, seed=9, repetition=1), 60
    )


def test_sampling_takes_everything_once() -> None:
    """Sampling yields each element of each input once and in order, for any draws."""
    read = numbers(check_restore(choose(draw(5.0, 1.0), count(0, 6), count(10, 16))))
    assert [x for x in read if x < 10] == list(range(6))
    assert [x for x in read if x >= 10] == list(range(10, 16))


def test_weights_may_come_from_a_dataset() -> None:
    """Each draw uses the next weights; weights of another form are failures."""
    weights = WeightedChoices(inputs=(slices([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),), count=2)
    assert [outcome[1] for outcome in check_restore(weights)] == [0, 1, 1]
    for rows in ([[1.0]], [[0.0, 0.0]], [[-1.0, 2.0]]):
        read = check_restore(WeightedChoices(inputs=(slices(rows),), count=2))
        assert "weights" in read[0][2]


def test_counters_count() -> None:
    """A counter has a start, a step and a dtype, and wraps around the limits of
    integers.
    """
    node = Take(inputs=(Counter(start=5, step=-2),), count=3)
    assert check_restore(node) == [plain(np.int64(value)) for value in (5, 3, 1)]
    halves = Take(inputs=(Counter(start=0, step=0.5, dtype="float32"),), count=3)
    assert check_restore(halves) == [plain(np.float32(value)) for value in (0, 0.5, 1)]
    small = Take(inputs=(Counter(start=126, dtype="int8"),), count=3)
    assert check_restore(small) == [plain(np.int8(value)) for value in (126, 127, -128)]


def test_counters_count_per_worker() -> None:
    """Splits only permit further numbers: each worker counts for itself."""
    assert numbers(check_restore(Counter(), provided([[(7, 9), (30, 31)]]))) == [0, 1, 2]


def resampled(
    target: Any, initial: Any = None, source: Node | None = None, function: Any = int, **more: Any
) -> Node:
    known = None if initial is None else tuple(initial)
    inputs = (source or Map(inputs=(count(0, 60),), function=lambda x: int(x) % len(target)),)
    return RejectionResample(
        inputs=inputs, function=function, target=tuple(target), initial=known, **more
    )


@pytest.mark.parametrize("initial", [None, [0.25] * 4])
def test_resampling_reaches_the_target(initial: Any) -> None:
    """Classes are yielded with the target probabilities, whether those of the input are
    known or estimated.
    """
    source = Map(inputs=(count(0, 8000),), function=lambda x: int(x) % 4)
    found = collections.Counter(
        value
        for value, _ in make_iterator(resampled([0.5, 0.25, 0.25, 0.0], initial, source), Context())
    )
    shares = [found[number] / sum(found.values()) for number in range(4)]
    assert np.allclose(shares, [0.5, 0.25, 0.25, 0.0], atol=0.03)


def test_resampling_to_what_is_there_keeps_all() -> None:
    """Resampling to equal distributions skips no element."""
    assert len(run(resampled([0.5, 0.5], [0.5, 0.5]))) == 60


@pytest.mark.parametrize("initial", [None, [0.2, 0.8], [0.0, 1.0]])
@pytest.mark.parametrize("seed", [None, 3])
def test_resampling_restores_at_every_step(initial: Any, seed: int | None) -> None:
    """The state holds draws, estimates and the decision for the next element."""
    assert check_restore(resampled([0.6, 0.4], initial, seed=seed))


def test_resampling_goes_on_after_failures() -> None:
    """A failing function, and a class that the target does not have, fail a single
    element each.
    """
    source = Map(inputs=(count(0, 4),), function=lambda x: int(x))
    read = check_restore(
        resampled([1.0], [1.0], source, lambda x: 1 // int(x != 1) and (7 if x == 2 else 0))
    )
    assert [outcome[0] for outcome in read] == ["tuple", "raised", "raised", "tuple"]
    with pytest.raises(PipelineError, match="expected a class from 0 to 0"):
        next(make_iterator(resampled([1.0], [1.0], source, lambda x: 7), Context()))


def test_acceptance_gives_the_target_and_passes_as_many_as_possible() -> None:
    """The acceptance probabilities give the target, and one class always passes."""
    chances = acceptance([0.25, 0.75], [0.5, 0.5])
    passed = [have * chance for have, chance in zip([0.25, 0.75], chances, strict=True)]
    assert np.allclose(np.array(passed) / sum(passed), [0.5, 0.5])
    assert max(chances) == 1.0
    assert acceptance([0.5, 0.5], [0.5, 0.5]) == [1.0, 1.0]


def test_whether_an_element_passes_depends_on_no_other() -> None:
    """The elements of a part that pass are those that pass in the whole, if the
    distribution is given.
    """
    whole = Map(inputs=(count(0, 400),), function=int)
    part = Shard(inputs=(whole,), num_shards=2, index=0)  # all of one class
    passing = [
        {int(value) for _, value in make_iterator(resampled([0.1, 0.9], [0.5, 0.5], source,
         lambda x: x % 2, seed=3), Context())}
        for source in (whole, part)
    ]  # fmt: skip
    assert 0 < len(passing[1]) < 100
    assert passing[1] == {value for value in passing[0] if value % 2 == 0}


def test_closing_reaches_all_inputs() -> None:
    """close() closes the choices and each input once."""
    closed = []

    def generate(name: str) -> Any:
        try:
            yield from range(2)
        finally:
            closed.append(name)

    def source(name: str) -> Node:
        return FromGenerator(generator=generate, args=(name,))

    iterator = make_iterator(
        choose(Repeat(inputs=(source("c"),), count=-1), source("a"), source("b")), Context()
    )
    next(iterator), next(iterator)
    iterator.close()
    assert closed == ["c", "a", "b"]


TEN = Range(start=0, stop=10)
ENDLESS = Repeat(inputs=(TEN,), count=-1)
DRAWS = RandomChoices(weights=(1.0, 1.0))


def infer(node: Node) -> Any:
    return node.spec(infer)


def chosen_node(*inputs: Node, choices: Node = DRAWS, stop: bool = False) -> Choose:
    return Choose(
        inputs=inputs,
        choices=choices,
        stop="first" if stop else "once",
        name="choose_from_datasets",
        site="t.py:1",
    )


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (chosen_node(TEN, TEN), UNKNOWN),
        (chosen_node(ENDLESS, ENDLESS), INFINITE),
        (chosen_node(ENDLESS, ENDLESS, stop=True), INFINITE),
        (chosen_node(ENDLESS, TEN), INFINITE),
        (chosen_node(ENDLESS, TEN, stop=True), UNKNOWN),
        (chosen_node(ENDLESS, ENDLESS, choices=TEN), UNKNOWN),
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
    assert chosen_node(TEN, TEN).label == "choose_from_datasets(2 datasets) at t.py:1"
    assert Choose(inputs=(TEN,), choices=DRAWS, stop="first", name="x").label == "x(1 datasets)"
    assert Counter(start=3, step=2).label == "counter(3, 2)"


def test_nodes_split_inputs_and_not_choices() -> None:
    """Each input has a provider, left to right, and the choices have none. Counters
    have endless splits.
    """
    assert split_sources(chosen_node(TEN, Counter(), choices=TEN)) == [
        IndexSplits(10),
        IndexSplits(None),
    ]


def test_specs() -> None:
    """The spec of a choice admits the elements of all inputs, and choices are
    integers.
    """
    rows = [Tensors(tensors=np.zeros(length)) for length in (1, 2)]
    assert infer(chosen_node(*rows)) == TensorSpec((None,), np.float64)
    whole = TensorSpec((), np.int64)
    assert (
        infer(DRAWS) == infer(WeightedChoices(inputs=(TEN,), count=2)) == infer(Counter()) == whole
    )


def test_the_only_input_that_is_drawn_tells_the_cardinality() -> None:
    """Draws from a single input yield all of its elements. Choices by number may end
    before it, or skip it.
    """
    assert chosen_node(TEN, choices=RandomChoices(weights=(1.0,))).cardinality == 10
    assert chosen_node(TEN, choices=TEN).cardinality == UNKNOWN
