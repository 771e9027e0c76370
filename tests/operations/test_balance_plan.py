"""Tests of dealing by cost: every element once, whole steps, counts and budgets, and
how equal steps are.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import how_many
from zmqdata.operations.balance_plan import (
    BalanceRules,
    Costs,
    WindowSteps,
    dealt,
    exchanged,
    shuffled,
    spread,
    step_costs,
)

CAP = 32_768
COSTS = st.lists(st.integers(0, 50), max_size=60)


def lengths(seed: int, count: int, median: float) -> Costs:
    """Return lognormal lengths of sequences, cut at 32,768."""
    drawn = np.random.default_rng(seed).lognormal(np.log(median), 1, count)
    return np.minimum(drawn, CAP).astype(np.int64).astype(np.float64)


def places(plan: WindowSteps) -> list[int]:
    """Return all positions that a plan uses or leaves, in order."""
    return sorted([place for step in plan.steps for one in step for place in one] + plan.left)


@settings(max_examples=how_many(100, 500), deadline=None)
@given(COSTS, st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_equal_counts(drawn: list[int], consumers: int, size: int, is_last: bool) -> None:
    """All elements that make whole steps are in batches of the same size, and the
    others are left. At the end, enough for a batch each make a step, whose batches
    differ by at most one element.
    """
    costs, rules = np.array(drawn, np.float64), BalanceRules(consumers, 3, batch_size=size)
    plan = rules.plan(costs, is_last=is_last)
    assert places(plan) == [*range(len(drawn))]
    assert all(len(step) == consumers for step in plan.steps)
    sizes = [len(batch) for step in plan.steps for batch in step]
    whole = len(drawn) // (consumers * size)
    if whole or not is_last or len(drawn) < consumers:
        assert sizes == [size] * (whole * consumers)
        assert len(plan.left) == len(drawn) % (consumers * size)
    else:
        assert max(sizes) - min(sizes) <= 1
        assert plan.left == []


@settings(max_examples=how_many(200, 1000), deadline=None)
@given(COSTS, st.integers(1, 4), st.integers(0, 60), st.integers(0, 3), st.booleans())
def test_budgets(drawn: list[int], consumers: int, most: int, waiting: int, is_last: bool) -> None:
    """No batch of several elements costs more than the budget, no batch is empty, and
    at the end fewer elements are left than there are consumers.
    """
    costs = np.array(drawn, np.float64)
    rules = BalanceRules(consumers, 2, max_cost=float(most or 1))
    plan = rules.plan(costs, waiting, is_last=is_last)
    assert places(plan) == [*range(len(drawn))]
    batches = [batch for step in plan.steps for batch in step]
    assert all(len(step) == consumers for step in plan.steps)
    assert all(
        batch and (costs[batch].sum() <= (most or 1) or len(batch) == 1) for batch in batches
    )
    if is_last:
        assert len(plan.left) < consumers


def test_oversized_elements_share_steps() -> None:
    """Elements above the budget are alone, in steps of such batches. An element without
    company waits for a window, and then shares a step with the dearest batches.
    """
    rules = BalanceRules(2, 8, max_cost=4.0)
    costs = np.array([9.0, 1, 1, 8, 1, 7, 1])
    plan = rules.plan(costs)
    assert plan.steps[0] == [[0], [3]]
    assert plan.left == [5]
    again = rules.plan(np.array([7.0, 1, 3, 1, 2]), waiting=1)
    assert [0] in again.steps[0]
    assert again.left == []


def test_elements_that_no_budget_joins_are_alone() -> None:
    """If each element needs a batch, as many as fill steps leave, and the last of the
    others wait.
    """
    plan = BalanceRules(4, 1, max_cost=3.0).plan(np.array([3.0, 3, 2, 3, 3, 3]), is_last=True)
    assert sorted(plan.steps[0]) == [[0], [1], [2], [3]]
    assert plan.left == [4, 5]


def test_costs_of_nothing_make_whole_steps() -> None:
    """Elements that cost nothing are spread over all batches."""
    for rules in (BalanceRules(3, 2, batch_size=2), BalanceRules(3, 2, max_cost=1.0)):
        assert [len(batch) for step in rules.plan(np.zeros(6)).steps for batch in step] == [2] * 3


@pytest.mark.parametrize(("median", "power"), [(2000, 2), (1000, 1)])
@pytest.mark.parametrize("consumers", [8, 64])
def test_steps_of_like_cost(median: int, power: int, consumers: int) -> None:
    """Batches of eight lognormal sequences, balanced over windows of 16 steps, cost at
    most 3 % more than their mean, where a random dealing costs up to six times as much.
    """
    rules, totals = BalanceRules(consumers, 16, batch_size=8), np.zeros(6)
    for seed in range(how_many(4, 20)):
        costs = lengths(seed, 16 * consumers * 8, median) ** power
        totals += step_costs(costs, rules.plan(costs).steps)
    dearest, means, in_order, bound, _, _ = totals
    assert dearest <= 1.03 * means
    assert means <= bound <= dearest
    assert in_order > 1.5 * means


def test_budgets_are_filled() -> None:
    """Windows of 16 steps fill a budget of the dearest sequence's cost by 90 %, and
    their steps cost at most 1 % more than the mean.
    """
    most, totals, left = float(CAP) ** 2, np.zeros(6), list[float]()
    rules, stream = BalanceRules(8, 16, max_cost=most), iter(lengths(1, 40_000, 2000) ** 2)
    for _ in range(4):
        costs = [*left]
        while sum(costs) < rules.whole:
            costs.append(float(next(stream)))
        window = np.array(costs)
        plan = rules.plan(window)
        left = [costs[place] for place in plan.left]
        totals += step_costs(window, plan.steps, most)
    dearest, means, _, _, filled, room = totals
    assert dearest <= 1.01 * means
    assert filled >= 0.9 * room


def test_one_step_at_a_time() -> None:
    """A window of one step deals the elements that the step would have in order, better
    than in order.
    """
    costs = lengths(3, 64, 1000)
    plan = BalanceRules(8, 1, batch_size=8).plan(costs)
    assert len(plan.steps) == 1
    found = step_costs(costs, plan.steps)
    assert found.bound <= found.dearest < found.in_order


def test_exchanges_keep_sizes() -> None:
    """Exchanges keep the number of elements of each batch, also of unequal batches, and
    never make a step worse.
    """
    costs = lengths(5, 11, 1000)
    step = dealt(costs, range(11), 4)
    before = [(len(batch), float(costs[batch].sum())) for batch in step]
    after = exchanged(costs, [list(batch) for batch in step])
    assert [len(batch) for batch in after] == [size for size, _ in before]
    assert max(float(costs[batch].sum()) for batch in after) <= max(cost for _, cost in before)


@settings(max_examples=how_many(60, 300), deadline=None)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=20), st.data())
def test_an_exchange_is_the_best(drawn: list[int], data: st.DataObject) -> None:
    """The first exchange of two batches makes the dearer one as cheap as any exchange
    of two of their elements can.
    """
    costs, at = np.array(drawn, np.float64), data.draw(st.integers(1, len(drawn) - 1))
    step = [[*range(at)], [*range(at, len(drawn))]]
    sums = sorted(float(costs[batch].sum()) for batch in step)
    high, low = sorted(step, key=lambda batch: -costs[batch].sum())
    amounts = [costs[one] - costs[other] for one in high for other in low]
    best = min([sums[1], *[max(sums[1] - amount, sums[0] + amount) for amount in amounts]])
    found = exchanged(costs, [list(batch) for batch in step])
    enough = 1.002 * max(sum(sums) / 2, costs.max())
    assert max(costs[batch].sum() for batch in found) <= max(best, enough)


def test_large_batches_are_exchanged_in_little_memory() -> None:
    """Exchanges between batches of 20,000 elements hold no table of their pairs."""
    costs = lengths(0, 40_000, 2000)
    tracemalloc.start()
    try:
        exchanged(costs, [[*range(20_000)], [*range(20_000, 40_000)]])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20


def test_a_budget_that_does_not_suffice() -> None:
    """Too few batches for a budget are none."""
    costs: Any = np.array([3.0, 3, 3])
    assert spread(costs, np.arange(3), 2, 5.0) is None


def test_order_follows_from_the_seed() -> None:
    """Steps and their batches are in an order of the seed, and each step stays
    whole.
    """
    steps = [[[3 * step + at] for at in range(3)] for step in range(20)]
    first, again, other = (shuffled(steps, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(map(sorted, first)) == steps
    assert any(step != sorted(step) for step in first)
