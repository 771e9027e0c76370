"""Facts about workers that drain in turn, in simulated worlds: tasks stay few and
evenly spread.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.counts import how_many
from tests.full import full
from tests.kit.runner import SimulatedPipeline
from tests.kit.world import World
from zmqdata.core.worker import events as e
from zmqdata.core.worker.memory import READINGS, MemoryLimit, MemoryWatch

DRAINS, SPLITS = how_many(15, 100), how_many(1600, 4000)


def begun(seed: int, workers: int, splits: int = SPLITS, num_consumers: int | None = None) -> World:
    """Return a world in which workers with little memory make elements for slow
    loops.
    """
    job = {} if num_consumers is None else {"num_consumers": num_consumers, "finite": "drop"}
    world = World(seed, pipeline=SimulatedPipeline(splits=splits, most=1), journalled=True, **job)
    for _ in range(workers):
        world.add_worker(buffer_bytes=2000)
    for index in range(num_consumers or 1):
        client = world.add_client(limit=20, consumer=None if num_consumers is None else index)
        client.pace, client.gulp = 0.05, 3
    world.run_until(lambda: world.clients[0].taken > 20)
    return world


def replace_worker(world: World, draw: random.Random) -> None:
    """Drain a worker, and add another before or after it has left."""
    old = draw.choice([worker for worker in world.workers if worker.alive])
    old.drain()
    if draw.random() < 0.5:
        world.run_until(lambda: not old.alive)
    world.add_worker(buffer_bytes=2000)
    world.run_until(lambda: not old.alive)


def spread(world: World) -> list[int]:
    """Return the number of unfinished tasks that each living worker hosts, in ascending
    order.
    """
    tasks = world.laws.state.tasks.values()
    hosts = Counter(task.worker for task in tasks if not task.removed and task.total is None)
    return sorted(hosts[worker.name] for worker in world.workers if worker.alive)


@pytest.mark.parametrize(("workers", "num_consumers"), [full(2, None), (4, None), (3, 2)])
def test_many_drains_leave_tasks_few_and_spread(workers: int, num_consumers: int | None) -> None:
    """A world never has more tasks than workers at once, new workers get a share, and
    everything comes once.
    """
    world, draw = begun(1, workers, num_consumers=num_consumers), random.Random("drains")
    for _ in range(DRAINS):
        replace_worker(world, draw)
        world.clock.advance(draw.choice([0.1, 1.5]))
        assert len(world.laws.state.tasks) <= workers + 1
    world.clock.advance(2.0)
    assert spread(world)[0] >= 1
    assert spread(world)[-1] <= 2
    finish(world)


def finish(world: World) -> None:
    """Let all clients read to the end, and check that each element came once."""
    for client in world.clients:
        client.pace = 0.001
    world.run_until(lambda: world.all_done)
    world.clock.advance(3.0)
    if world.job.num_consumers is None:
        world.laws.check_end()
    else:
        world.steps.check_end(world.pipeline.names())


@pytest.mark.parametrize(("workers", "num_consumers"), [(1, None), (3, None), full(2, 2)])
@pytest.mark.parametrize("seed", range(how_many(2, 20)))
def test_recycled_workers_lose_and_repeat_nothing(
    seed: int, workers: int, num_consumers: int | None
) -> None:
    """Workers whose memory is full again and again stop between elements, and their
    successors go on: everything comes once, whether or not another worker is there.
    """
    world = begun(seed, workers, splits=SPLITS // 4, num_consumers=num_consumers)
    draw = random.Random(seed)
    for _ in range(DRAINS // 3):
        recycle(world, draw)
        world.clock.advance(draw.choice([0.1, 1.5]))
    finish(world)


def recycle(world: World, draw: random.Random) -> None:
    """Let the memory of a worker's process reach its limit, and replace the process
    when it has ended.
    """
    worker = draw.choice([worker for worker in world.workers if worker.alive])
    worker.core.memory = MemoryWatch(MemoryLimit(1000))
    for _ in range(READINGS):
        worker.feed(e.MemoryRead(rss=1000, counted=1000))
    world.run_until(lambda: not worker.alive)
    assert worker.core.draining.recycled
    world.clock.advance(draw.choice([0.1, 0.5, 3.0]))
    world.add_worker(buffer_bytes=2000)
