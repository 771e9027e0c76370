"""Tests of ``zmqdata.dataset.choices``."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset, set_random_seed
from zmqdata.dataset.seeds import _seeds
from zmqdata.elements.specs import INFINITE_CARDINALITY, TensorSpec
from zmqdata.errors import FailedPreconditionError
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


# --- mix

PARTS = {"web": Dataset.range(90), "code": Dataset.range(100, 130)}


def test_mixtures_follow_weights_and_seed() -> None:
    """The order follows from weights and seed alone: not from the units of the weights,
    nor from the order of the names.
    """
    turned = dict(reversed(PARTS.items()))
    found = ints(Dataset.mix(PARTS, {"web": 0.75, "code": 0.25}, seed=3))
    assert found == ints(Dataset.mix(turned, {"code": 2, "web": np.int32(6)}, seed=3))
    assert [sum(x >= 100 for x in found[:count]) for count in (4, 40, 80)] == [1, 10, 20]
    equal = ints(Dataset.mix(PARTS, seed=3))
    assert equal != ints(Dataset.mix(PARTS, seed=4))
    assert sum(x >= 100 for x in equal[:20]) == 10


def test_weights_change_from_an_element_on() -> None:
    """A list of pairs changes the weights at elements of the mixture."""
    changes = [(0, {"web": 1, "code": 0}), (10, {"web": 1, "code": 1})]
    pairs = [*Dataset.mix(PARTS, changes, names=True).take(30)]
    assert [name for name, _ in pairs[:10]] == ["web"] * 10
    assert [name for name, _ in pairs].count("code") == 10


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no dict": ([ONE, TWO], {}, "must be a dict of datasets by name"),
    "empty": ({}, {}, "should not be empty"),
    "no name": ({1: ONE}, {}, "a name of mix"),
    "no dataset": ({"a": 3}, {}, "3"),
    "no elements": ({"a": Dataset.range(0)}, {}, "the dataset `a` of mix.. has no elements"),
    "other elements": (
        {"a": ONE, "b": ONE, "c": Dataset.from_tensors({"x": 1})},
        {},
        "differ in `a` and `c`",
    ),
    "unknown": (PARTS, {"weights": {"web": 1, "code": 1, "x": 1}}, r"unknown are \['x'\]"),
    "missing": (PARTS, {"weights": {"web": 1}}, r"missing are \['code'\]"),
    "negative": (PARTS, {"weights": {"web": 1, "code": -1}}, "weight of `code` must be a finite"),
    "nan": (PARTS, {"weights": {"web": 1, "code": float("nan")}}, "weight of `code`"),
    "infinite": (PARTS, {"weights": {"web": 1, "code": float("inf")}}, "weight of `code`"),
    "bool": (PARTS, {"weights": {"web": 1, "code": True}}, "weight of `code`"),
    "text": (PARTS, {"weights": {"web": 1, "code": "1"}}, "weight of `code`"),
    "zero": (PARTS, {"weights": {"web": 0, "code": 0.0}}, "must be above 0"),
    "list": (PARTS, {"weights": [1, 2]}, "weights"),
    "no list": (PARTS, {"weights": 3}, "weights"),
    "empty list": (PARTS, {"weights": []}, "weights"),
    "no change": (PARTS, {"weights": [(0, [1, 2])]}, "weights"),
    "late": (PARTS, {"weights": [(1, {"web": 1, "code": 1})]}, "ascend from 0"),
    "twice": (PARTS, {"weights": [(0, {"web": 1, "code": 1})] * 2}, r"ascend from 0, got \[0, 0\]"),
    "many": (
        PARTS,
        {"weights": [(at, {"web": 1, "code": at}) for at in range(101)]},
        "weights has 101 changes, and mix.. takes at most 100",
    ),
    "decimal": (PARTS, {"weights": {"web": 1, "code": Decimal("nan")}}, "weight of `code`"),
    "vast": (PARTS, {"weights": {"web": 1, "code": Decimal("1e9999")}}, "weight of `code`"),
    "below": (PARTS, {"weights": {"web": 1, "code": Fraction(-1, 2)}}, "weight of `code`"),
    "fraction": (PARTS, {"weights": [(0.5, {"web": 1, "code": 1})]}, "number of an element"),
    "stop": (PARTS, {"stop": "last"}, "`stop` must be one of 'first', 'all', 'once'"),
    "seed": (PARTS, {"seed": "x"}, "seed"),
    "names": (PARTS, {"names": 1}, "names"),
    "reweight": (PARTS, {"reweight": None}, "reweight"),
}


@pytest.mark.parametrize("name", BAD)
def test_mix_refuses_bad_arguments(name: str) -> None:
    """Each bad argument is an error at the call, which names it."""
    datasets, options, text = BAD[name]
    with pytest.raises((TypeError, ValueError), match=text):
        Dataset.mix(datasets, **options)


@pytest.mark.parametrize(
    ("web", "code"),
    [
        (np.float32(0.75), 0.25),
        (Fraction(3, 4), Fraction(1, 4)),
        (Decimal("0.3"), 0.1),
        (np.float32(0.3), np.float16(0.1)),
        (3 * 10**400, 10**400),
        (3e23, 10**23),
    ],
)
def test_weights_are_exact(web: Any, code: Any) -> None:
    """A weight is a number of any kind and size, and a float stands for its decimal
    text.
    """
    expected = Dataset.mix(PARTS, {"web": 3, "code": 1}).node.choices.weights
    found = Dataset.mix(PARTS, {"web": web, "code": code}).node.choices.weights
    assert found == expected
    changes = [(0, {"web": 3, "code": 1}), (10, {"web": web, "code": code})]
    assert Dataset.mix(PARTS, changes).node.choices.weights == expected


def test_an_empty_dataset_may_have_weight_zero() -> None:
    """A dataset that is not read may be empty."""
    assert ints(Dataset.mix({"a": ONE, "b": Dataset.range(0)}, {"a": 1, "b": 0})) == ints(ONE)


def test_a_single_dataset_is_a_mixture() -> None:
    """A mixture of one dataset yields that dataset."""
    assert ints(Dataset.mix({"a": ONE})) == ints(ONE)


def test_weights_are_no_part_of_the_fingerprint() -> None:
    """A state of other weights is refused for its weights, and loaded with
    ``reweight=True``.
    """
    first = iter(Dataset.mix(PARTS, {"web": 3, "code": 1}, seed=1))
    before = [int(next(first)) for _ in range(20)]
    other = Dataset.mix(PARTS, {"web": 1, "code": 1}, seed=1)
    with pytest.raises(FailedPreconditionError, match=r"has the weights .'code': 1, 'web': 3"):
        iter(other).load_state_dict(first.state_dict())
    again = iter(Dataset.mix(PARTS, {"web": 1, "code": 1}, seed=1, stop="once", reweight=True))
    with pytest.raises(FailedPreconditionError, match="another pipeline"):
        again.load_state_dict(first.state_dict())
    again = iter(Dataset.mix(PARTS, {"web": 1, "code": 1}, seed=1, reweight=True))
    again.load_state_dict(first.state_dict())
    rest = [int(next(again)) for _ in range(20)]
    assert sum(x >= 100 for x in before) == 5
    assert sum(x >= 100 for x in rest) == 10
    assert len({*before, *rest}) == 40


def test_mixtures_count_by_name() -> None:
    """``stats()`` of a local iterator has the elements of each dataset."""
    iterator = iter(Dataset.mix(PARTS, {"web": 3, "code": 1}))
    for _ in range(8):
        next(iterator)
    assert iterator.stats() == {"data/mix/web": 6.0, "data/mix/code": 2.0}
