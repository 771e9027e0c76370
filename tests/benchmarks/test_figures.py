"""Tests of medians, ratios, goals and turns on made-up values."""

from __future__ import annotations

import pytest

from benchmarks.cases import Case, Goal, Way
from benchmarks.figures import Values, Verdict, best, turns, verdict, worth_more

OURS, TCP = Way("zmqdata", "default"), Way("zmqdata", "tcp")
AUTO, PLAIN = Way("tfdata", "AUTO"), Way("tfdata", "uncompressed")
NUMPY = Way("torch", "numpy")


def case(*goals: Goal, measure: str = "rate") -> Case:
    return Case("a case", "images", (OURS, TCP, AUTO, PLAIN, NUMPY), goals, measure)


def test_median_and_spread() -> None:
    """The spread is the range of the values divided by the median."""
    values = Values([8.0, 10.0, 13.0])
    assert (values.median, values.spread) == (10.0, 0.5)


def test_everybody_has_one_turn_in_each_repetition() -> None:
    """Each repetition measures every way once, and starts with a different way."""
    ways = case().ways
    orders = [turns(ways, repetition) for repetition in range(5)]
    assert all(sorted(order) == sorted(ways) for order in orders)
    assert [order[0] for order in orders] == list(ways)
    assert turns(ways, 5) == orders[0]
    assert turns([], 3) == []


def test_the_best_setting_is_that_of_the_best_median() -> None:
    """The best setting has the best median: the largest rate or the smallest time."""
    measured = {AUTO: Values([1.0, 1.0, 90.0]), PLAIN: Values([2.0, 2.0, 2.0])}
    assert best(case(), measured, "tfdata") == PLAIN
    assert best(case(measure="first"), measured, "tfdata") == AUTO
    assert best(case(), measured, "tfdata", ["AUTO"]) == AUTO


def test_what_was_not_measured_to_the_end_is_never_the_best() -> None:
    """A setting that failed or was dropped has fewer values and is never the best."""
    measured = {AUTO: Values([9.0], "killed"), PLAIN: Values([2.0, 2.0])}
    assert best(case(), measured, "tfdata") == PLAIN
    assert best(case(), {AUTO: Values([], "failed")}, "tfdata") is None


def test_everybody_is_tried_before_anybody_is_dropped() -> None:
    """The first two repetitions leave out only settings that failed."""
    assert worth_more(case(), {}, 0) == list(case().ways)
    measured = {AUTO: Values([1.0]), PLAIN: Values([100.0]), NUMPY: Values([], "failed")}
    assert worth_more(case(), measured, 1) == [OURS, TCP, AUTO, PLAIN]


def test_settings_far_behind_another_one_of_their_peer_are_dropped() -> None:
    """A setting below six tenths of its peer's best median is dropped; other peers do
    not matter.
    """
    measured = {
        OURS: Values([900.0, 900.0]),
        TCP: Values([600.0, 600.0]),
        AUTO: Values([1.0, 1.0]),
        PLAIN: Values([2.0, 2.0]),
        NUMPY: Values([0.1, 0.1]),
    }
    assert worth_more(case(), measured, 2) == [OURS, TCP, PLAIN, NUMPY]


def test_slow_settings_are_dropped_where_less_is_better() -> None:
    """A setting that takes twice its peer's best median time is dropped."""
    measured = {AUTO: Values([1.0, 1.0]), PLAIN: Values([2.0, 2.0])}
    two = Case("a case", "scalars", (AUTO, PLAIN), (), "first")
    assert worth_more(two, measured, 2) == [AUTO]


def test_what_a_goal_names_is_never_dropped() -> None:
    """Neither our setting in a goal nor the peer's settings it names are dropped."""
    goal = Goal("tcp", 2, "tfdata", ("AUTO",))
    measured = {
        way: Values([value] * 2)
        for way, value in zip(case().ways, (900.0, 1.0, 1.0, 2.0, 1.0), strict=True)
    }
    assert worth_more(case(goal), measured, 2) == list(case().ways)


def test_one_that_was_dropped_stays_out() -> None:
    """A setting with fewer values than its peer's leader is not measured again."""
    measured = {AUTO: Values([1.9] * 2), PLAIN: Values([2.0] * 3)}
    assert worth_more(Case("a case", "images", (AUTO, PLAIN)), measured, 3) == [PLAIN]


def test_ratios_are_those_of_the_same_repetition() -> None:
    """A machine that is slow for a whole repetition changes no ratio."""
    goal = Goal("default", 3, "tfdata")
    measured = {
        OURS: Values([40.0, 20.0, 10.0]),
        AUTO: Values([1.0, 1.0, 1.0]),
        PLAIN: Values([10.0, 5.0, 2.5]),
    }
    assert verdict(case(goal), measured, goal) == Verdict(goal, PLAIN, 4.0, 4.0, 4.0, True)


@pytest.mark.parametrize(("least", "reached"), [(2.0, True), (2.1, False)])
def test_a_goal_is_reached_by_the_median_ratio(least: float, reached: bool) -> None:
    """The median ratio decides whether a goal is reached; extremes are reported."""
    goal = Goal("default", least, "torch")
    found = verdict(
        case(goal), {OURS: Values([1.0, 2.0, 30.0]), NUMPY: Values([1.0, 1.0, 1.0])}, goal
    )
    assert (found.value, found.lowest, found.highest, found.reached) == (2.0, 1.0, 30.0, reached)


def test_fewer_seconds_are_a_larger_ratio() -> None:
    """Half the seconds count as a ratio of two."""
    goal = Goal("default", 2, "tfdata")
    measured = {OURS: Values([1.0]), AUTO: Values([3.0])}
    assert verdict(case(goal, measure="first"), measured, goal).value == 3.0


@pytest.mark.parametrize(("most", "reached"), [(0.05, True), (0.03, False)])
def test_a_goal_may_be_a_time(most: float, reached: bool) -> None:
    """A goal without a peer compares the median with the allowed seconds."""
    goal = Goal("default", most=most)
    found = verdict(case(goal, measure="first"), {OURS: Values([0.02, 0.04, 0.9])}, goal)
    assert (found.theirs, found.value, found.reached) == (None, 0.04, reached)


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    """A goal without a value on either side has no verdict."""
    goal = Goal("default", 2, "torch")
    assert verdict(case(goal), {NUMPY: Values([1.0])}, goal).reached is None
    assert (
        verdict(case(goal), {OURS: Values([1.0]), NUMPY: Values([], "not installed")}, goal).reached
        is None
    )
