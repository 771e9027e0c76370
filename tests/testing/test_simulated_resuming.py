"""Facts about jobs that go on from saved states in another cluster, while things go
wrong there, too.
"""

from __future__ import annotations

import os

import pytest

from tests.full import seeds
from zmqdata.testing import LawBroken, ResumingScenario
from zmqdata.testing.checks import Laws

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 10
ALONE = 2
"""The seed of a world that one reader goes on in, in no promised order, after it has
had something.
"""


@pytest.mark.parametrize("family", seeds(2, core=1))
def test_what_was_had_before_and_what_comes_after_is_everything(family: int) -> None:
    """One reader or several, numbered or not: each element once, in the order promised,
    and the iteration ends.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        ResumingScenario(seed).run()


def world_of_one() -> tuple[ResumingScenario, Laws]:
    """A world in which one reader goes on, and who had which element before."""
    scenario = ResumingScenario(ALONE)
    assert not scenario.numbered
    assert len(scenario.before.clients) == 1
    return scenario, scenario.before.laws


def test_an_element_that_comes_again_breaks_a_law() -> None:
    """What was had twice, as it seems, is surplus."""
    scenario, laws = world_of_one()
    [task, number], reader = next(iter(laws.owners.items()))
    laws.owners[task, -1], laws.names[task, -1] = reader, laws.names[task, number]
    with pytest.raises(LawBroken, match=r"missing \[\], surplus \[\("):
        scenario.run()


def test_an_element_that_nobody_had_breaks_a_law() -> None:
    """What a state says was had, and was not, is missing."""
    scenario, laws = world_of_one()
    laws.owners.popitem()
    with pytest.raises(LawBroken, match=r"missing \[\(.*\], surplus \[\]"):
        scenario.run()


def test_states_of_several_attempts_keep_what_each_of_them_needs() -> None:
    """A later state may need an earlier split, if another attempt took it: none is
    forgotten before all are known.
    """
    ResumingScenario(719).run()
