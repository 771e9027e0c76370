"""Scenarios of clients of unequal pace that share a job: misfortunes in the middle of
giving elements back, and how long a job takes that nothing disturbs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.kit.runner import SimulatedPipeline
from tests.kit.scenario import NEVER, Scenario
from tests.kit.world import World
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.testing.network import CALM

PACES = (0.0005, 0.005, 0.05, 0.05, 0.5)
"""Seconds that a training loop takes for an element."""
UNLUCKY = 0.2
"""Share of the requests to give elements back at which something happens."""


class SharingScenario(Scenario):
    """A world of clients that share a job, which come late, leave, pause and die, often
    while they are asked to give elements back.

    Args:
        seed: decides everything.

    Example:
        >>> SharingScenario(seed=1).run()
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._moments = random.Random(f"{seed}/moments")
        self.world.laws.on_asked_back.append(self._asked_back)

    def _make_world(self, seed: int, pipeline: SimulatedPipeline) -> World:
        draw = self.random
        pipeline = SimulatedPipeline(
            splits=draw.choice([3, 20, 60, 150]),
            most=draw.choice([1, 3, 8]),
            unit=draw.choice([1, 1000, 60_000]),
            fails=draw.choice([0, 0, 9]),
        )
        times = DispatcherTimes(client_timeout=draw.choice([2.0, 4.0, 15.0]), gc_timeout=NEVER)
        mode = draw.choice(["DYNAMIC", "DYNAMIC", "DYNAMIC", "OFF", "DATA"])
        shards = draw.randint(1, 3) if mode == "DATA" else 0
        return World(seed, mode, pipeline, self._faults(), times, shards=shards, journalled=True)

    def _people(self) -> None:
        draw = self.random
        for _ in range(draw.randint(1, 3)):
            self._at(draw.choice([0.0, 0.0, draw.uniform(0, 3)]), self.add_worker)
        for _ in range(draw.randint(2, 5)):
            self._at(draw.choice([0.0, 0.0, draw.uniform(0, 5)]), self.add_client)

    def add_client(self) -> None:
        """Add a training loop with a pace of its own."""
        super().add_client()
        client = self.world.clients[-1]
        client.pace, client.gulp = self.random.choice(PACES), self.random.choice([1, 1, 4])

    def _asked_back(self, name: str) -> None:
        """Now and then, let something happen to a client that is asked to give elements
        back, before it hears of it or after its answer.
        """
        draw = self._moments
        found = [one for one in self.world.clients if name in one.known_as]
        if not found or draw.random() >= UNLUCKY or self.world.network.faults == CALM:
            return
        [client] = found
        ways: list[Callable[[], None]] = [
            client.die,
            client.close,
            lambda: client.freeze(draw.choice([0.5, 3.0, 16.0])),
            lambda: self.world.network.cut_links(client.name),
            self.kill_worker,
            self.drain_worker,
        ]
        way = draw.choice(ways)
        self.world.laws.tell(name, "meets a misfortune when it is asked to give elements back")
        self.world.clock.after(
            draw.choice([0.0, 0.001, 0.01, 0.1]),
            lambda: way() if client.outcome is None else None,
        )


def time_to_share(
    seed: int, elements: int, paces: list[float], workers: int = 2, late: float = 0.0
) -> tuple[float, float]:
    """Let undisturbed clients read a job in a simulated world.

    Args:
        seed: decides delays, and how workers make blocks.
        elements: number of elements.
        paces: seconds that each client takes for an element.
        workers: number of workers.
        late: seconds after which all clients but the first begin.

    Returns:
        Seconds until the last client has read its last element, and the ideal: the
        elements, divided by the speed of all clients together.

    Example:
        >>> seconds, ideal = time_to_share(seed=1, elements=200, paces=[0.01, 0.1])
        >>> seconds < 1.1 * ideal + 0.1 + 0.2
        True
    """
    world = World(seed, "DYNAMIC", SimulatedPipeline(splits=elements, most=1))
    for _ in range(workers):
        world.add_worker().is_fast = True
    world.clock.advance(1.0)
    began = world.clock.now

    def come(pace: float) -> None:
        client = world.add_client()
        client.pace, client.gulp, client.is_steady = pace, 1, True

    for number, pace in enumerate(paces):
        world.clock.after(late if number else 0.0, partial(come, pace))
    world.run_until(lambda: len(world.clients) == len(paces) and world.all_done)
    world.laws.check_end()
    total = len(world.pipeline.names())
    first = min(late, total * paces[0])
    left = total - first / paces[0]
    ideal = first + left / sum(1 / pace for pace in paces)
    return world.progress - began, ideal
