"""Tests of ``zmqdata.dataset.choices``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset, set_random_seed
from zmqdata.dataset.seeds import _seeds
from zmqdata.elements.specs import INFINITE_CARDINALITY, TensorSpec
from zmqdata.nodes.parts import split_sources

ONE, TWO = Dataset.range(4), Dataset.range(10, 14)
ENDLESS = [ONE.repeat(), TWO.repeat()]


@pytest.fixture(autouse=True)
def _unseeded() -> Any:
    """Leave no seed behind for other tests."""
    yield
    _seeds.seed = None


def ints(dataset: Dataset) -> list[int]:
    return [int(x) for x in dataset]


def test_samples_follow_a_seed() -> None:
    """A seed fixes the draws in each iteration and repetition, unless they are to
    vary.
    """
    fixed = Dataset.sample_from_datasets(ENDLESS, seed=3).take(40)
    assert ints(fixed) == ints(fixed)
    twice = Dataset.sample_from_datasets([ONE, TWO], seed=3).repeat(2)
    assert ints(twice)[:8] == ints(twice)[8:]
    varying = Dataset.sample_from_datasets(ENDLESS, seed=3, rerandomize_each_iteration=True).take(
        40
    )
    assert ints(varying) != ints(varying)
    set_random_seed(1)
    free = Dataset.sample_from_datasets(ENDLESS).take(40)
    assert ints(free) != ints(free)
    same = Dataset.sample_from_datasets(ENDLESS, rerandomize_each_iteration=False).take(40)
    assert ints(same) == ints(same)


def test_weights_decide() -> None:
    """A dataset of weight 0 is left out, without a provider, and the others are drawn
    by their weights.
    """
    only = Dataset.sample_from_datasets([ONE, TWO], [0.0, 2])
    assert ints(only) == [10, 11, 12, 13]
    assert len(split_sources(only.node)) == 1
    assert ints(Dataset.sample_from_datasets([ONE, TWO], [0, 0])) == []
    mostly = ints(Dataset.sample_from_datasets(ENDLESS, np.array([0.9, 0.1]), seed=1).take(500))
    assert 400 < sum(x < 10 for x in mostly) < 490


def test_weights_may_be_a_dataset() -> None:
    """The elements of the dataset are the weights of a single draw each, and its end is
    the end of the sample.
    """
    weights = Dataset.from_tensor_slices([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert ints(Dataset.sample_from_datasets(ENDLESS, weights)) == [0, 10, 11]


def test_samples_may_stop_early() -> None:
    """The end of any dataset ends the sample if ``stop_on_empty_dataset`` is set."""
    short = Dataset.sample_from_datasets([ONE, ENDLESS[1]], seed=2, stop_on_empty_dataset=True)
    assert sum(x < 10 for x in ints(short)) == 4
    assert short.cardinality() < 0
    assert Dataset.sample_from_datasets(ENDLESS).cardinality() == INFINITE_CARDINALITY


def test_choices_stop_or_pass_over() -> None:
    """The end of any dataset ends the choice by default."""
    choices = Dataset.range(2).repeat(6)
    assert ints(Dataset.choose_from_datasets([ONE.take(1), TWO], choices)) == [0, 10]
    assert ints(Dataset.choose_from_datasets([ONE.take(1), TWO], choices, False)) == [
        0,
        10,
        11,
        12,
        13,
    ]


def test_counters_are_endless() -> None:
    """A counter accepts numbers of numpy, and its dtype is its spec."""
    assert Dataset.counter().cardinality() == INFINITE_CARDINALITY
    assert ints(Dataset.counter(np.int8(3), np.int64(-1)).take(3)) == [3, 2, 1]
    assert Dataset.counter(0.5, 1, np.float32).element_spec == TensorSpec((), np.float32)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Dataset.sample_from_datasets([]), ValueError, "no datasets"),
        (lambda: Dataset.sample_from_datasets([1]), TypeError, "must be a Dataset, got 1"),
        (
            lambda: Dataset.sample_from_datasets([ONE, Dataset.from_tensors("a")]),
            TypeError,
            "do not fit together",
        ),
        (
            lambda: Dataset.sample_from_datasets([ONE], [1, 2]),
            ValueError,
            "a number for each of the 1 datasets",
        ),
        (lambda: Dataset.sample_from_datasets([ONE, TWO], [1, -2]), ValueError, "at least 0"),
        (lambda: Dataset.sample_from_datasets([ONE, TWO], [1, np.inf]), ValueError, "finite"),
        (lambda: Dataset.sample_from_datasets([ONE], seed="x"), TypeError, "seed must be an int"),
        (
            lambda: Dataset.sample_from_datasets([ONE], stop_on_empty_dataset=1),
            TypeError,
            "must be a bool",
        ),
        (
            lambda: Dataset.sample_from_datasets([ONE], rerandomize_each_iteration=1),
            TypeError,
            "must be a bool",
        ),
        (lambda: Dataset.choose_from_datasets([], ONE), ValueError, "no datasets"),
        (lambda: Dataset.choose_from_datasets([ONE], 1), TypeError, "must be a Dataset, got 1"),
        (
            lambda: Dataset.choose_from_datasets([ONE], ONE.batch(2)),
            TypeError,
            "must yield integers",
        ),
        (
            lambda: Dataset.choose_from_datasets([ONE], ONE.enumerate()),
            TypeError,
            "must yield integers",
        ),
        (
            lambda: Dataset.choose_from_datasets([ONE], Dataset.from_tensors(0.5)),
            TypeError,
            "must yield integers",
        ),
        (lambda: Dataset.counter(dtype=str), TypeError, "integer or float dtype"),
        (lambda: Dataset.counter(0.5), TypeError, "start must be a number that fits dtype int64"),
        (lambda: Dataset.counter(0, True), TypeError, "step must be a number"),
    ],
)
def test_arguments_are_checked_at_the_call(make: Any, error: type[Exception], text: str) -> None:
    """The error names what came and what was expected."""
    with pytest.raises(error, match=text):
        make()
