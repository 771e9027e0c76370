"""Facts about the end of an iteration in simulated worlds: the last reader has had what
dead readers held.
"""

from __future__ import annotations

import pytest

from tests.full import seeds
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.testing import SimulatedPipeline, World
from zmqdata.testing.world import SimulatedClient

TIMEOUT = 5.0
PIPELINE = SimulatedPipeline(splits=300, most=1)


def make_world(seed: int, mode: str) -> World:
    times = DispatcherTimes(client_timeout=TIMEOUT)
    world = World(
        seed, mode, PIPELINE, times=times, shards=2 if mode == "DATA" else 0, journalled=True
    )
    for _ in range(2):
        world.add_worker()
    return world


def add_reader(world: World, gulp: int = 5) -> SimulatedClient:
    client = world.add_client(limit=40)
    client.pace, client.gulp = 0.02, gulp
    return client


@pytest.mark.parametrize("seed", seeds(20, core=3))
@pytest.mark.parametrize("mode", ["DYNAMIC", "DATA"])
def test_who_ends_last_has_what_a_dead_reader_held(seed: int, mode: str) -> None:
    """A reader dies before or after the other reader has nothing left, and the other
    gets what it held; no third must come.
    """
    world = make_world(seed, mode)
    first, second = add_reader(world), add_reader(world, gulp=1)
    goal = world.random.randrange(100, 299)
    world.run_until(lambda: first.taken + second.taken >= goal)
    world.random.choice([first, second]).die()
    died = world.clock.now
    world.run_until(lambda: world.all_done)
    if world.clock.now - died < TIMEOUT:
        # The death is unknown when the other reader ends: the next reader gets what is
        # left.
        add_reader(world)
        world.run_until(lambda: world.all_done)
    world.clock.advance(1.0)
    world.laws.check_end()


@pytest.mark.parametrize("seed", seeds(20, core=3))
@pytest.mark.parametrize("mode", ["DYNAMIC", "DATA"])
def test_a_successor_waits_for_what_its_predecessor_held(seed: int, mode: str) -> None:
    """A training loop that dies near the end and restarts at once reads the rest within
    the timeout.
    """
    world = make_world(seed, mode)
    first = add_reader(world)
    goal = world.random.randrange(1, 299)
    world.run_until(lambda: first.taken >= goal)
    first.die()
    world.clock.advance(world.random.choice([0.1, 1.0, 4.0]))
    add_reader(world)
    died = world.clock.now
    world.run_until(lambda: world.all_done)
    assert world.clock.now - died < 2 * TIMEOUT + 10.0
    world.clock.advance(1.0)
    world.laws.check_end()


@pytest.mark.parametrize("seed", seeds(10, core=3))
def test_nobody_waits_for_a_slow_loop(seed: int) -> None:
    """A reader with nothing left ends within a second, though another reader is busy
    with the elements that it holds.
    """
    world = make_world(seed, "DYNAMIC")
    fast, slow = add_reader(world), add_reader(world)
    world.run_until(lambda: slow.taken > 5)
    slow.stalled_until = world.clock.now + 1000.0
    world.run_until(lambda: fast.core.ending.has_begun or fast.outcome is not None)
    began = world.clock.now
    world.run_until(lambda: fast.outcome is not None)
    assert world.clock.now - began < 1.0
    assert slow.outcome is None
