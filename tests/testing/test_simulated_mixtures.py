"""Facts about tasks that mix their elements, in simulated time."""

from __future__ import annotations

import pytest

from tests.full import seeds
from tests.kit.kinds import KINDS
from tests.kit.scenario import Scenario

WORLDS = 4
MIXING = [name for name in KINDS if name.startswith("mixing")]


@pytest.mark.parametrize("family", seeds(10, core=1))
@pytest.mark.parametrize("kind", MIXING)
def test_whatever_goes_wrong_each_element_comes_once(kind: str, family: int) -> None:
    """Workers and readers come and die, and jobs are stopped and resume: each element
    comes once, also under other weights.
    """
    for seed in range(family * WORLDS, (family + 1) * WORLDS):
        Scenario(seed, KINDS[kind]).run()
