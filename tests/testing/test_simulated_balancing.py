"""Facts about tasks that balance their elements, in simulated time."""

from __future__ import annotations

import pytest

from tests.full import seeds
from tests.kit.kinds import KINDS
from tests.kit.scenario import Scenario

WORLDS = 4


@pytest.mark.parametrize("family", seeds(10, core=1))
@pytest.mark.parametrize("kind", ["balance", "balance-resuming"])
def test_whatever_goes_wrong_each_element_comes_once(kind: str, family: int) -> None:
    """Workers and consumers come and die, and jobs are stopped and resume: each element
    comes once, in the batches of its task.
    """
    for seed in range(family * WORLDS, (family + 1) * WORLDS):
        Scenario(seed, KINDS[kind]).run()
