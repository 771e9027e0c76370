"""Facts about the last steps of an iteration: whatever happens there, no element is
left to nobody, and no reader waits for itself.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.full import full, seeds
from tests.kit.aimed import AIMED, CROWDED, SET_BACK, SetBackProgram
from tests.kit.scenario import Scenario

FIRST = int(os.environ.get("ZMQDATA_FIRST_SEED", "0"))
WORLDS = 15


@pytest.mark.parametrize("family", seeds(30, core=1))
def test_readers_end_only_if_somebody_is_there_for_what_is_left(family: int) -> None:
    """Whatever happens within the last steps, a reader that ends leaves nothing that no
    heir is there for, and the first successor gets all that is left.
    """
    for seed in range(FIRST + family * WORLDS, FIRST + (family + 1) * WORLDS):
        Scenario(seed, AIMED).run()


@pytest.mark.parametrize("seed", seeds(200, core=3))
def test_a_journal_that_is_set_back_leaves_nobody_waiting(seed: int) -> None:
    """Readers of a dispatcher whose journal has lost its last records have everything,
    or end with an error.
    """
    Scenario(FIRST + seed, SET_BACK).run()


class Forgotten(SetBackProgram):
    """Last steps in which the journal loses all that a consumer reported to its end,
    and the other consumer is started again.
    """

    def begin(self) -> None:
        super().begin()
        assert self.world.disk is not None
        self.former = self.world.disk.content
        for client in self.world.clients[1:]:
            client.pace = 1.0

    def plan(self) -> list[str]:
        return ["forget"]

    def slow_down(self) -> None:
        self.world.clients[0].pace = 0.01

    def pause(self) -> None:
        """Leave the dispatcher alone until the first consumer has ended."""
        self.reach(lambda: self.world.clients[0].closed, 100.0)

    def forget(self) -> None:
        """Set the journal back, and kill the other consumer."""
        self.world.clients[1].die()
        self.world.restart_dispatcher(0.5)
        assert self.world.disk is not None
        self.world.disk.set_back(self.former)


def test_nobody_waits_forever_for_a_consumer_whose_end_is_forgotten() -> None:
    """A consumer that is started again waits ``consumer_timeout`` for one that has
    ended, if no peer knows of its reports any more. The worlds allow that wait.
    """
    kind = replace(SET_BACK, program=Forgotten)
    scenes = (Scenario(seed, kind) for seed in range(100))
    scene = next(one for one in scenes if one.drawn["way"] == "numbered")
    scene.run()
    assert [one.outcome for one in scene.world.clients] == ["end", "killed", "UnavailableError"]
    assert scene.world.clock.now > scene.world.job.consumer_timeout


@pytest.mark.parametrize("seed", [full(seed) for seed in range(4)])
def test_many_readers_end_as_a_few_do(seed: int) -> None:
    """The laws of the last steps hold among 65 and among 500 readers."""
    Scenario(FIRST + seed, CROWDED).run()
