"""Facts about training programs that start, crash, overlap and start again under one
job name, in simulated worlds.
"""

from __future__ import annotations

import os

import pytest

from tests.full import seeds
from tests.kit.checks import LawBroken
from tests.kit.programs import TrainingProgram
from tests.kit.runlaws import Outcome, RunLaws
from tests.kit.runner import SimulatedPipeline
from tests.kit.runs import RUNS
from tests.kit.scenario import Scenario
from tests.kit.world import World
from zmqdata import updates as u

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 5
CALM = 4
"""Seed of a world in which a repetition ends."""


@pytest.mark.parametrize("family", seeds(40, core=1))
def test_no_run_is_silently_less_than_an_iteration(family: int) -> None:
    """Each run reads whole repetitions or is told that it has less, and no element
    comes twice within an incarnation.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, RUNS).run()


def test_a_message_lost_before_the_network_was_calm_may_delay_an_end() -> None:
    """The laws of the end judge no reader that spoke before the network lost no more
    messages.
    """
    Scenario(6000520, RUNS).run()


def finished(scenario: Scenario) -> Outcome:
    """Return what came of a repetition that ended with elements."""
    scenario.run()
    return next(
        one for one in scenario.program.laws.outcomes.values() if one.finished and one.found
    )


def test_a_repetition_that_ends_too_early_breaks_a_law() -> None:
    """The laws miss an element that no training loop has had."""
    scenario = Scenario(CALM, RUNS)
    finished(scenario).found.popitem()
    with pytest.raises(LawBroken, match="ended without"):
        scenario.program.laws.check_end()


def test_an_element_that_comes_twice_breaks_a_law() -> None:
    """The laws call an element surplus that an incarnation gave twice."""
    scenario = Scenario(CALM, RUNS)
    found = finished(scenario).found
    found[next(iter(found))] += 1
    with pytest.raises(LawBroken, match="gave twice"):
        scenario.program.laws.check_end()


class Forgery:
    """A world in which a run has read, and another one asks. What the dispatcher would
    commit then is forged.
    """

    def __init__(self) -> None:
        self.world = World(1, pipeline=SimulatedPipeline(splits=400))
        self.laws = RunLaws(self.world)
        self.world.add_worker()
        self.laws.programs += [TrainingProgram(self.world, key) for key in ("first", "second")]
        self.first = self.laws.programs[0].start().read().clients[0]
        self.world.run_until(lambda: self.first.taken > 3)
        self.iteration = self.world.laws.state.client_iteration[self.first.name]
        self.first.pace, self.first.gulp = 0.1, 1

    def wait(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    def open(self, how: str, incarnation: int) -> None:
        """Open an iterator of the second run, without the dispatcher."""
        [client] = self.laws.programs[1].start().read().clients
        iteration, seed = 100 + incarnation, 0
        laws = self.world.laws
        if incarnation == 1:
            iteration = self.iteration
        else:
            laws.state.apply(u.BeginIncarnationUpdate(incarnation, self.world.job))
            laws.state.apply(u.CreateIterationUpdate(iteration, incarnation, 0, seed, 0))
        laws.on_opened(u.OpenClientUpdate(client.name, iteration, run="second", how=how))


def test_a_run_that_takes_over_what_the_dead_have_left_breaks_a_law() -> None:
    """The laws want a living reader behind each run that joins."""
    forgery = Forgery()
    forgery.first.die()
    forgery.wait(60.0)
    with pytest.raises(LawBroken, match="has no reader that lives"):
        forgery.open("joined", 1)


def test_a_run_that_is_not_told_breaks_a_law() -> None:
    """The laws refuse that a run follows another without a word."""
    with pytest.raises(LawBroken, match="must be one of"):
        Forgery().open("follows", 1)


def test_a_run_that_does_not_share_breaks_a_law() -> None:
    """The laws refuse that a run begins anew beside a reader that certainly lives."""
    forgery = Forgery()
    forgery.wait(5.0)
    with pytest.raises(LawBroken, match="reads \\(1, 0\\) for first"):
        forgery.open("begun", 2)
