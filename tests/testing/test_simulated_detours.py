"""Facts about clients and workers that cannot reach each other while the dispatcher
reaches both, in simulated worlds.
"""

from __future__ import annotations

import pytest

from tests.full import seeds
from tests.kit.runner import SimulatedPipeline
from tests.kit.world import World

PIPELINE = SimulatedPipeline(splits=200, most=3)


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("mode", ["DYNAMIC", "DATA"])
@pytest.mark.parametrize("seed", seeds(2, core=1))
def test_a_task_goes_where_its_reader_can_get_it(seed: int, mode: str, both_ways: bool) -> None:
    """A cable between the two that is cut for good costs less than a minute, and no
    element.
    """
    world = World(seed, mode, PIPELINE, shards=2 if mode == "DATA" else 0, journalled=True)
    worker, _ = (world.add_worker() for _ in range(2))
    client = world.add_client(limit=20)
    world.run_until(lambda: client.taken > 20)
    began = world.clock.now
    world.network.sever(client.name, worker.name, both_ways)
    world.run_until(lambda: world.all_done)
    world.clock.advance(3.0)
    world.laws.check_end()
    assert (client.outcome, client.taken) == ("end", len(PIPELINE.names()))
    assert world.clock.now - began < 60.0


def test_a_task_that_nobody_can_reach_waits_where_it_is() -> None:
    """Tasks stay where they are while a client reaches no worker, and it reads on after
    the repair.
    """
    world = World(1, "DYNAMIC", PIPELINE, journalled=True)
    workers = [world.add_worker() for _ in range(3)]
    client = world.add_client(limit=20)
    world.run_until(lambda: client.taken > 20)
    for worker in workers:
        world.network.sever(client.name, worker.name)
    world.clock.advance(300.0)
    assert max(task.attempt for task in world.dispatcher.core.state.tasks.values()) <= 4
    for worker in workers:
        world.network.heal(client.name, worker.name)
    world.run_until(lambda: world.all_done)
    world.clock.advance(3.0)
    world.laws.check_end()
