"""Facts about training programs that start, crash, overlap and start again under one
job name, in simulated worlds.
"""

from __future__ import annotations

import os

import pytest

from tests.full import seeds
from zmqdata.testing import LawBroken, RunsScenario

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 20
CALM = 4
"""Seed of a world with a run that reads by itself and of which no process dies."""


@pytest.mark.parametrize("family", seeds(10, core=2))
def test_no_run_is_silently_less_than_an_iteration(family: int) -> None:
    """Each run reads whole repetitions or is told that it has less, and no element
    comes twice within an incarnation.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        RunsScenario(seed).run()


def test_a_run_that_silently_has_less_breaks_a_law() -> None:
    """The laws call a run short of an element that it was not told of."""
    scenario = RunsScenario(CALM)
    scenario.run()
    checked = [
        (run, (client.opened.incarnation, client.opened.repetition))
        for run in scenario.runs
        if not run.has_lost
        for client in run.clients
        if client.opened is not None
    ]
    run, where = next(
        (run, where)
        for run, where in checked
        if scenario.outcomes[where].found and not scenario.is_shared(where, run)
    )
    scenario.outcomes[where].found.popitem()
    with pytest.raises(LawBroken, match="was not told that it had less"):
        scenario.check_run(run)


def test_an_element_that_comes_twice_breaks_a_law() -> None:
    """The laws call an element surplus that an incarnation gave twice."""
    scenario = RunsScenario(CALM)
    scenario.run()
    outcome = next(one for one in scenario.outcomes.values() if one.found)
    outcome.found[next(iter(outcome.found))] += 1
    with pytest.raises(LawBroken, match="gave twice"):
        scenario.check_elements()
