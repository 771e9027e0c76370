"""Facts about programs that die and are started again while the dispatcher stalls."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.full import seeds
from tests.kit.checks import LawBroken
from tests.kit.programs import RepetitionRead
from tests.kit.relaunches import RELAUNCH, RelaunchProgram
from tests.kit.scenario import Scenario
from zmqdata.core.ranges import RangeSet

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 5


@pytest.mark.parametrize("family", seeds(60, core=1))
def test_what_is_started_again_shares_nothing_with_the_dead(family: int) -> None:
    """A run or a launch that is started again reads everything, and a rank takes its
    seat, whenever the dispatcher stalls.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, RELAUNCH).run()


class Ended(RelaunchProgram):
    """A program whose last check can be repeated."""

    def check_again(self, again: list[RepetitionRead]) -> None:
        self.again = again
        super().check_again(again)


def test_only_a_reader_without_a_dispatcher_leaves_elements() -> None:
    """Elements that no training loop has break a law, unless a reader of the iteration
    has ended without the dispatcher, and with a warning.
    """
    kind = replace(RELAUNCH, program=Ended)
    scenes = (Scenario(seed, kind) for seed in range(20))
    scene = next(one for one in scenes if one.drawn["way"] == "rank")
    scene.run()
    program, again = scene.program, scene.program.again
    program.check_again(again)
    iteration = scene.ends.iteration_of(again[0].clients[0])
    assert iteration is not None
    scene.world.laws.owners.clear()
    for task in iteration.tasks.values():
        task.delivered = RangeSet()
    with pytest.raises(LawBroken, match="elements are left"):
        program.check_again(again)
    scene.ends.records[scene.world.clients[0].name].unheard = True
    program.check_again(again)
