"""Facts about the last steps of an iteration: whatever happens there, no element is
left to nobody, and no reader waits for itself.
"""

from __future__ import annotations

import os

import pytest

from tests.full import full, seeds
from tests.testing.endings.aimed import AimedScenario, CrowdedScenario, SetBackScenario

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 15


@pytest.mark.parametrize("family", seeds(30, core=1))
def test_readers_end_only_if_somebody_is_there_for_what_is_left(family: int) -> None:
    """Whatever happens within the last steps, a reader that ends leaves nothing that no
    heir is there for, and the first successor gets all that is left.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        AimedScenario(seed).run()


@pytest.mark.parametrize("seed", seeds(200, core=3))
def test_a_journal_that_is_set_back_leaves_nobody_waiting(seed: int) -> None:
    """Readers of a dispatcher whose journal has lost its last records have everything,
    or end with an error.
    """
    SetBackScenario(FIRST + seed).run()


@pytest.mark.parametrize("seed", [full(seed) for seed in range(4)])
def test_many_readers_end_as_a_few_do(seed: int) -> None:
    """The laws of the last steps hold among 65 and among 500 readers."""
    CrowdedScenario(FIRST + seed).run()
