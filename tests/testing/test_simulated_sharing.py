"""Facts about clients that share a job, in simulated time."""

from __future__ import annotations

import pytest

from tests.full import seeds
from tests.kit.kinds import SHARING
from tests.kit.runner import SimulatedPipeline
from tests.kit.scenario import Scenario
from tests.kit.sharing import time_to_share
from tests.kit.world import World

WORLDS = 5


@pytest.mark.parametrize("family", seeds(20, core=2))
def test_whatever_goes_wrong_each_element_is_read_once(family: int) -> None:
    """Clients of unequal pace come late, leave, pause and die, also while they give
    elements back: the laws hold and every end is reached.
    """
    for seed in range(family * WORLDS, (family + 1) * WORLDS):
        Scenario(seed, SHARING).run()


def test_a_reader_that_joins_anew_is_done_anew() -> None:
    """The laws of the end measure the wait of a reader that the dispatcher has given up
    from when its next client is done.
    """
    Scenario(7000227, SHARING).run()


@pytest.mark.parametrize(
    ("elements", "paces", "workers", "late"),
    [
        (100, [0.01, 0.01], 2, 0.0),
        (100, [0.01, 0.1], 1, 0.0),
        (100, [0.05] * 12 + [0.5] * 4, 3, 0.0),
        (1_000, [0.003, 0.003], 2, 0.0),
        (1_000, [0.003, 0.003], 2, 1.0),
        (1_000, [0.02, 0.02, 0.2], 2, 3.0),
        (2_000, [0.001, 0.01], 1, 0.0),
        (40, [0.1, 0.1, 1.0], 2, 0.0),
    ],
)
def test_clients_of_any_pace_end_together(
    elements: int, paces: list[float], workers: int, late: float
) -> None:
    """A shared job ends within a tenth of the ideal, an element of the slowest client
    and a fifth of a second, also if clients come late.
    """
    seconds, ideal = time_to_share(1, elements, paces, workers, late)
    assert seconds <= 1.1 * ideal + max(paces) + 0.2


def test_a_client_that_comes_when_all_is_dealt_gets_its_share() -> None:
    """A client that holds everything and has paused gives up all but what it has begun
    to a client that comes late, and its elements are counted as given back.
    """
    world = World(1, "DYNAMIC", SimulatedPipeline(splits=50, most=1))
    world.add_worker().is_fast = True
    first = world.add_client()
    first.pace, first.gulp = 0.05, 1
    world.run_until(lambda: first.taken == 5)
    first.stalled_until = world.clock.now + 100.0
    late = world.add_client()
    late.pace = 0.001
    world.run_until(lambda: late.outcome is not None)
    assert (first.taken, late.taken >= 43) == (5, True)
    assert world.clock.now < 10.0
    world.run_until(lambda: world.all_done)
    [iteration] = world.dispatcher.core.state.iterations.values()
    assert sum(iteration.tally.given_back.values()) > 0
    world.laws.check_end()


def test_a_single_client_is_never_asked() -> None:
    """Nothing is taken back from a client that reads alone."""
    world = World(1, "DYNAMIC", SimulatedPipeline(splits=200))
    world.add_worker()
    asked: list[str] = []
    world.laws.on_asked_back.append(asked.append)
    client = world.add_client()
    world.run_until(lambda: client.outcome is not None)
    assert (client.outcome, asked) == ("end", [])


def test_readers_of_slow_workers_get_equal_parts() -> None:
    """Readers that are all faster than the workers get equally much."""
    world = World(1, "DYNAMIC", SimulatedPipeline(splits=200, most=1))
    for _ in range(2):
        world.add_worker()
    readers = [world.add_client() for _ in range(3)]
    for reader in readers:
        reader.pace, reader.gulp = 0.0005, 1
    world.run_until(lambda: all(worker.runners for worker in world.workers))
    for worker in world.workers:
        for runner in worker.runners.values():
            runner.pace = 0.1
    world.run_until(lambda: world.all_done)
    parts = [reader.taken for reader in readers]
    assert min(parts) > 0.6 * sum(parts) / 3, parts
