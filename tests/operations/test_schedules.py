"""Tests of ``zmqdata.operations.schedules``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context, mixed_seed
from zmqdata.operations.schedules import (
    DueChoices,
    DueSchedule,
    Weights,
    parsed_weights,
    usable_weights,
    weights_text,
)

ENDLESS = 10**30
QUARTERS = ((0, (50,) * 3 + (1,) * 50),)
"""Three weights of .25 and fifty of .005."""


def schedule(weights: Weights, seed: int = 0, number: int = 0) -> DueSchedule:
    count = len(weights[0][1])
    ties = [(mixed_seed(seed, index), mixed_seed(index) | 1) for index in range(count)]
    return DueSchedule(weights, ties, number, [0] * count)


def shares(weights: Weights, count: int) -> list[Fraction]:
    """Return the share of each dataset in the first ``count`` elements."""
    found = [Fraction(0)] * len(weights[0][1])
    for (start, rates), (stop, _) in pairwise([*weights, (ENDLESS, ())]):
        length = max(0, min(count, stop) - start)
        parts = [Fraction(length * rate, sum(rates)) for rate in rates]
        found = [have + part for have, part in zip(found, parts, strict=True)]
    return found


def distances(weights: Weights, count: int, seed: int = 0) -> Iterator[Fraction]:
    """Yield, after each element, how far a dataset is from its share at most."""
    made = schedule(weights, seed)
    for number in range(1, count + 1):
        made.take()
        pairs = zip(shares(weights, number), made.counts, strict=True)
        yield max(abs(share - have) for share, have in pairs)


def changing(least: int, most: int, changes: int) -> st.SearchStrategy[Weights]:
    """Return a strategy of weights of some datasets, with some changes."""

    def of(count: int) -> st.SearchStrategy[Weights]:
        rates = st.lists(st.integers(least, most), min_size=count, max_size=count)
        starts = st.lists(st.integers(1, 60), max_size=changes, unique=True).map(sorted)
        return starts.flatmap(
            lambda found: st.tuples(
                *[st.tuples(st.just(start), rates.filter(any).map(tuple)) for start in [0, *found]]
            )
        )

    return st.integers(1, 8).flatmap(of)


@given(changing(1, 50, 0), st.integers(0, 9))
def test_each_dataset_is_within_one_of_its_share(weights: Weights, seed: int) -> None:
    """After any number of elements, each dataset is less than one from its share."""
    assert max(distances(weights, 80, seed)) < 1


@given(changing(1, 50, 8))
def test_known_changes_keep_the_bound(weights: Weights) -> None:
    """The schedule knows the changes in advance, so the bound of one holds across
    them.
    """
    assert max(distances(weights, 90)) < 1


@given(changing(0, 9, 1))
def test_a_weight_of_zero_keeps_two(weights: Weights) -> None:
    """If the change makes weights 0, or more than 0, each dataset stays within two."""
    assert max(distances(weights, 90)) < 2


@given(changing(0, 9, 6))
def test_weight_zero_is_never_read(weights: Weights) -> None:
    """No element comes from a dataset whose weight is 0 there."""
    made = schedule(weights)
    for number in range(90):
        now = [rates for start, rates in weights if start <= number][-1]
        assert now[made.take()] > 0


def test_large_and_small_weights_hold_at_each_prefix() -> None:
    """Three weights of .25 and fifty of .005 hold after each of 400 elements."""
    assert max(distances(QUARTERS, 400)) < 1


@pytest.mark.parametrize("number", [10**9, 10**15])
def test_nothing_is_rounded(number: int) -> None:
    """Far in the mixture, the schedule continues as it does at the beginning of a
    period.
    """
    periods = number // 200
    far = DueSchedule(
        QUARTERS, [(0, 0)] * 53, periods * 200, [rate * periods for rate in QUARTERS[0][1]]
    )
    near = DueSchedule(QUARTERS, [(0, 0)] * 53, 0, [0] * 53)
    assert [far.take() for _ in range(200)] == [near.take() for _ in range(200)]


def test_the_earliest_deadline_comes_first() -> None:
    """The next dataset is the due dataset with the least (count + 1) / weight."""
    weights = (0, (5, 3, 2, 7))
    made, counts = schedule((weights,)), [0] * 4
    for number in range(200):
        due = [
            index
            for index, rate in enumerate(weights[1])
            if counts[index] < Fraction((number + 1) * rate, 17)
        ]
        least = min(Fraction(counts[index] + 1, weights[1][index]) for index in due)
        chosen = made.take()
        assert chosen in due
        assert Fraction(counts[chosen] + 1, weights[1][chosen]) == least
        counts[chosen] += 1


@given(changing(0, 9, 3), st.integers(0, 60))
def test_a_schedule_continues_from_its_counts(weights: Weights, number: int) -> None:
    """A schedule made from the counts at an element continues as the first."""
    first = schedule(weights)
    for _ in range(number):
        first.take()
    again = DueSchedule(weights, first._ties, number, [*first.counts])
    assert [first.take() for _ in range(30)] == [again.take() for _ in range(30)]


def test_ties_follow_from_the_seed() -> None:
    """Equal weights take turns, in an order that follows from the seed."""
    orders = set()
    for seed in range(6):
        made = schedule(((0, (1, 1, 1)),), seed)
        rounds = [tuple(made.take() for _ in range(3)) for _ in range(4)]
        assert all(set(one) == {0, 1, 2} for one in rounds)
        orders.add(tuple(rounds))
    assert len(orders) > 1


def test_weights_travel_as_text() -> None:
    """The text of weights has numbers of any size."""
    weights = ((0, (1, 10**40)), (7, (0, 1)))
    assert parsed_weights(weights_text(weights)) == weights


def test_weights_of_datasets_that_have_left_are_passed_over() -> None:
    """If none of the datasets that are left has a weight, the next weights begin."""
    weights = ((0, (1, 0, 1)), (5, (0, 1, 0)), (9, (1, 1, 1)))
    assert usable_weights(weights, 0, {0, 2}) == ((0, (1, 0, 1)), (5, (1, 0, 1)))
    assert usable_weights(weights, 2, {1}) == ((2, (0, 1, 0)), (9, (0, 1, 0)))
    assert usable_weights(weights[:1], 2, {1}) == ()


# --- the choices


def due(weights: Weights, reweight: bool = False) -> DueChoices:
    return DueChoices(weights=weights, seed=3, reweight=reweight)


def test_choices_continue_with_other_weights() -> None:
    """New weights begin at the element of the state, with the bound of one from
    there.
    """
    first = make_iterator(due(((0, (3, 1)),)), Context())
    taken = [next(first) for _ in range(9)]
    again = make_iterator(due(((0, (1, 9)),), reweight=True), Context())
    again.restore(first.state())
    rest = [next(again) for _ in range(10)]
    assert sorted(taken).count(1) in (2, 3)
    assert rest.count(0) == 1
    third = make_iterator(due(((0, (1, 9)),)), Context())
    third.restore(again.state())
    assert [next(third) for _ in range(9)] == [next(again) for _ in range(9)]


def test_choices_refuse_other_weights() -> None:
    """Without ``reweight``, a state of other weights is refused, which names both."""
    first = make_iterator(due(((0, (3, 1)),)), Context())
    next(first)
    again = make_iterator(due(((0, (1, 1)),)), Context())
    with pytest.raises(
        FailedPreconditionError,
        match=r"has the weights \{0: 3, 1: 1\}, and this dataset has \{0: 1, 1: 1\}",
    ):
        again.restore(first.state())
