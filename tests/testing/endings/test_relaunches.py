"""Facts about programs that die and are started again while the dispatcher stalls."""

from __future__ import annotations

import os

import pytest

from tests.full import seeds
from tests.kit.checks import LawBroken
from tests.kit.programs import RepetitionRead
from tests.kit.relaunches import RelaunchScenario
from zmqdata.core.ranges import RangeSet

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 5


@pytest.mark.parametrize("family", seeds(60, core=1))
def test_what_is_started_again_shares_nothing_with_the_dead(family: int) -> None:
    """A run or a launch that is started again reads everything, and a rank takes its
    seat, whenever the dispatcher stalls.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        RelaunchScenario(seed).run()


class Ended(RelaunchScenario):
    """A world whose last check can be repeated."""

    def _check(self, again: list[RepetitionRead]) -> None:
        self.again = again
        super()._check(again)

    def check_again(self) -> None:
        """Check once more what was read."""
        super()._check(self.again)


def test_only_a_reader_without_a_dispatcher_leaves_elements() -> None:
    """Elements that no training loop has break a law, unless a reader of the iteration
    has ended without the dispatcher, and with a warning.
    """
    scene = next(one for one in map(Ended, range(20)) if one.way == "rank")
    scene.run()
    scene.check_again()
    iteration = scene.ends.iteration_of(scene.again[0].clients[0])
    assert iteration is not None
    scene.world.laws.owners.clear()
    for task in iteration.tasks.values():
        task.delivered = RangeSet()
    with pytest.raises(LawBroken, match="elements are left"):
        scene.check_again()
    scene.ends.records[scene.world.clients[0].name].unheard = True
    scene.check_again()
