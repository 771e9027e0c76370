"""Facts about jobs that resume from saved states in another cluster, while faults occur
there, too.
"""

from __future__ import annotations

import os

import pytest

from tests.full import seeds
from tests.kit.checks import LawBroken, Laws
from tests.kit.resuming import RESUMING
from tests.kit.scenario import Scenario

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 10
ALONE = 2
"""Seed of a world in which one reader resumes, without a promised order, after it has
had elements.
"""


@pytest.mark.parametrize("family", seeds(2, core=1))
def test_what_was_had_before_and_what_comes_after_is_everything(family: int) -> None:
    """Readers, one or several, numbered or not, get each element once and in the
    promised order, and the iteration ends.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, RESUMING).run()


def test_no_late_misfortune_kills_whoever_reads_the_rest() -> None:
    """A misfortune that waits for the last of the first readers does not kill their
    successor.
    """
    Scenario(6101105, RESUMING).run()


def world_of_one() -> tuple[Scenario, Laws]:
    """Return a world in which one reader resumes, and which reader had which element
    before.
    """
    scenario = Scenario(ALONE, RESUMING)
    before = scenario.program.before
    assert not scenario.program.numbered
    assert len(before.clients) == 1
    return scenario, before.laws


def test_an_element_that_comes_again_breaks_a_law() -> None:
    """The laws call an element surplus if it seems to come twice."""
    scenario, laws = world_of_one()
    [task, number], reader = next(iter(laws.owners.items()))
    laws.owners[task, -1], laws.names[task, -1] = reader, laws.names[task, number]
    with pytest.raises(LawBroken, match=r"missing \[\], surplus \[\("):
        scenario.run()


def test_an_element_that_nobody_had_breaks_a_law() -> None:
    """The laws call an element missing if a state says that it was had, and it was
    not.
    """
    scenario, laws = world_of_one()
    laws.owners.popitem()
    with pytest.raises(LawBroken, match=r"missing \[\(.*\], surplus \[\]"):
        scenario.run()


def test_states_of_several_attempts_keep_what_each_of_them_needs() -> None:
    """A later state may need an earlier split that another attempt took, so the
    dispatcher forgets none before it has all states.
    """
    Scenario(719, RESUMING).run()


def test_a_consumer_that_is_ahead_may_have_forgotten_an_empty_task() -> None:
    """A task without elements that the consumer ahead passed and forgot counts as
    ended, although the others do not know its end.
    """
    Scenario(3007362, RESUMING).run()
