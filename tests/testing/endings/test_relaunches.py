"""Facts about programs that die and are started again while the dispatcher stalls."""

from __future__ import annotations

import os

import pytest

from tests.full import seeds
from tests.testing.endings.relaunches import RelaunchScenario

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 5


@pytest.mark.parametrize("family", seeds(60, core=1))
def test_what_is_started_again_shares_nothing_with_the_dead(family: int) -> None:
    """A run or a launch that is started again reads everything, and a rank takes its
    seat, whenever the dispatcher stalls.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        RelaunchScenario(seed).run()
