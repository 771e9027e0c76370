"""Test the arithmetic of steps and rounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.core.rounds import (
    FEWEST_STEPS,
    MOST_STEPS,
    LastRounds,
    Rounds,
    Run,
    last_step,
    rounds_before,
    run_at,
    steps_ahead,
    turns_at,
)
from zmqdata.messages import View

TURNS = st.lists(
    st.tuples(st.integers(1, 20), st.sets(st.integers(1, 5), min_size=1)), min_size=1, max_size=6
)


def views_of(turns: list[tuple[int, set[int]]]) -> tuple[list[View], int]:
    """Return contiguous views as a dispatcher makes them, and the horizon."""
    rounds = Rounds(1)
    for steps, tasks in turns:
        rounds.begin(
            tuple(
                (task, rounds_before(rounds.views, task, rounds.horizon)) for task in sorted(tasks)
            )
        )
        rounds.extend(rounds.horizon + steps)
    return rounds.views, rounds.horizon


@given(TURNS)
def test_each_round_of_a_task_is_one_step(turns: list[tuple[int, set[int]]]) -> None:
    """Through all views the steps of a task are its rounds 0, 1, 2, ... without
    repetition.
    """
    views, horizon = views_of(turns)
    found: dict[int, list[int]] = {}
    for step in range(horizon):
        run = run_at(views, step, horizon)
        assert run is not None
        assert rounds_before(views, run.task, step) == run.round
        found.setdefault(run.task, []).append(run.round)
    for task, rounds in found.items():
        assert rounds == list(range(len(rounds)))
        assert rounds_before(views, task, horizon) == len(rounds)


@given(TURNS)
def test_a_run_says_what_its_steps_say(turns: list[tuple[int, set[int]]]) -> None:
    """A run of several steps equals its single steps."""
    views, horizon = views_of(turns)
    for step in range(horizon):
        run = run_at(views, step, horizon)
        assert run is not None
        for ahead in range(run.count):
            later = run_at(views, step + ahead, horizon)
            assert later is not None
            assert (later.task, later.round) == (run.task, run.round + ahead)


def test_nothing_lies_at_the_horizon_or_before_the_first_view() -> None:
    """A step at the horizon or before the first view has no element."""
    assert run_at([View(0, ((7, 0),))], 5, 5) is None
    assert run_at([View(3, ((7, 0),))], 2, 5) is None
    assert run_at([], 0, 0) is None


def test_a_task_alone_is_read_in_runs() -> None:
    """A task that has every turn is read in a single run up to the next view."""
    views = [View(0, ((7, 0),)), View(10, ((7, 10), (8, 0)))]
    assert run_at(views, 4, 20) == Run(7, 4, 6)
    assert run_at(views, 10, 20) == Run(7, 10, 1)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(0, 30))
def test_the_last_step_is_where_nobody_has_anything_left(totals: list[int], first: int) -> None:
    """The last step of a view has elements before it and none from it on."""
    view = View(first, tuple((task, 0) for task in range(len(totals))))
    known = dict(enumerate(totals))
    end = last_step(view, known)
    assert end is not None
    left = []
    for step in range(first, first + 50):
        run = run_at([view], step, 1000)
        assert run is not None
        if run.round < known[run.task]:
            left.append(step)
    assert end == (left[-1] + 1 if left else first)


def test_the_horizon_moves_faster_while_steps_are_fast() -> None:
    """The horizon begins with a few steps and doubles while they last less than half a
    minute, and shrinks when they last longer.
    """
    assert steps_ahead(0, 0.0, 1) == FEWEST_STEPS
    assert steps_ahead(0, 0.0, 10) == 20
    assert [steps_ahead(100, seconds, 3) for seconds in (1.0, 20.0, 60.0)] == [200, 100, 50]
    assert steps_ahead(MOST_STEPS, 0.1, 1) == MOST_STEPS
    assert steps_ahead(5, 99.0, 7) == 7


def started(num_consumers: int = 2) -> Rounds:
    rounds = Rounds(num_consumers)
    rounds.begin(((7, 0), (8, 0)))
    rounds.extend(10)
    return rounds


def test_what_all_have_passed_is_counted() -> None:
    """The slowest consumer decides how many rounds of a task all consumers have
    passed.
    """
    rounds = started()
    assert rounds.advance(0, 6) == {7: 0, 8: 0}
    assert rounds.advance(1, 3) == {7: 2, 8: 1}
    assert rounds.advance(1, 2) == {7: 2, 8: 1}
    assert rounds.passed(7, None) == (3, 2)
    assert rounds.passed(7, 2) == (2, 2)


def test_views_that_nobody_needs_are_forgotten() -> None:
    """A view is kept until all consumers have reached the next view."""
    rounds = started()
    rounds.begin(((8, 5), (9, 0)))
    rounds.extend(20)
    rounds.advance(0, 15)
    assert len(rounds.views) == 2
    assert rounds.advance(1, 10) == {7: 5, 8: 5, 9: 0}
    assert rounds.views == [View(10, ((8, 5), (9, 0)))]
    assert rounds_before(rounds.views, 8, 10) == 5
    assert rounds.known == {7, 8, 9}


def test_tasks_come_and_go_at_the_horizon() -> None:
    """A view from the horizon on leaves out tasks that end before it, and adds new
    tasks behind the others.
    """
    rounds = started()
    assert rounds.next_tasks({}, [7, 8]) == ((7, 5), (8, 5))
    assert rounds.has(((7, 5), (8, 5)))
    assert rounds.next_tasks({7: 5, 8: 6, 10: 0}, [7, 8, 9, 10]) == ((8, 5), (9, 0))
    assert not rounds.has(((8, 5), (9, 0)))
    assert not Rounds(1).has(())


@pytest.mark.parametrize(
    ("totals", "end"), [({}, None), ({7: 3}, None), ({7: 3, 8: 4}, 8), ({7: 0, 8: 0}, 0)]
)
def test_the_end_is_known_when_all_tasks_have_ended(
    totals: dict[int, int], end: int | None
) -> None:
    """The end is the last step of the last view, unless some task is in no view yet."""
    rounds = started()
    assert rounds.end(totals, [7, 8]) == end
    assert rounds.end(totals, [7, 8, 9]) is None
    assert rounds.end({**totals, 9: 0}, [7, 8, 9]) == end
    assert Rounds(1).end({}, []) is None


def test_turns_change_with_views() -> None:
    """The number of tasks that take turns is fixed until the next view begins or up to
    the horizon.
    """
    views = (View(5, ((7, 0), (8, 0))), View(10, ((8, 5),)))
    assert [turns_at(views, step, 20) for step in (4, 5, 9, 10, 19)] == [
        (1, 5),
        (2, 10),
        (2, 10),
        (1, 20),
        (1, 20),
    ]


def test_rounds_that_were_restored_are_the_same() -> None:
    """The restored plan has the same steps, views, horizon and totals."""
    rounds, restored = started(), Rounds(2)
    rounds.advance(0, 6)
    assert rounds != restored
    restored.restore(rounds.steps, rounds.views, rounds.horizon, rounds.known)
    assert rounds == restored
    assert rounds != "Rounds"


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=6),
    st.integers(0, 20),
)
def test_the_last_rounds_deal_all_rests_but_less_than_a_round(
    consumers: int, tasks: list[tuple[int, int]], first: int
) -> None:
    """Each consumer gets one element in each of the last rounds, no two get the same,
    and fewer elements than there are consumers are left out.
    """
    rests = tuple(
        (number, full, rest % consumers)
        for number, (full, rest) in enumerate(tasks)
        if rest % consumers
    )
    last = LastRounds(first, rests, consumers)
    given_to = {consumer: dict(last.view(consumer).tasks) for consumer in range(consumers)}
    assert {len(view) for view in given_to.values()} == {last.count}
    assert last.stop == first + last.count
    assert 0 <= sum(rest for _, _, rest in rests) - last.count * consumers < consumers
    for number, full, _ in rests:
        place, kept = last.places[number]
        takers = {(place + at) % consumers for at in range(kept)}
        assert {one for one, view in given_to.items() if number in view} == takers
        assert all(given_to[one][number] == full for one in takers)
        for consumer in range(consumers):
            passed = [
                step
                for step in range(first, last.stop + 1)
                if last.has_passed(number, consumer, step)
            ]
            due = list(given_to[consumer]).index(number) + 1 if consumer in takers else 0
            assert passed == [*range(first + due, last.stop + 1)]
            assert not last.has_passed(number, consumer, first - 1)
