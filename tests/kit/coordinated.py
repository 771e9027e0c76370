"""Scenarios of coordinated reads: misfortunes of the consumers in a simulated world,
and the end that must be reached.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.kit.runner import SimulatedPipeline
from tests.kit.scenario import NEVER, PATIENCE, RATES, Scenario, deadly_pipeline
from tests.kit.world import World
from zmqdata.core.dispatcher.decider import DispatcherTimes


class CoordinatedScenario(Scenario):
    """A world of numbered consumers with misfortunes. Every consumer that dies has a
    successor sooner or later.

    Args:
        seed: decides everything.

    Example:
        >>> CoordinatedScenario(seed=1).run()
    """

    def _make_world(self, seed: int, pipeline: SimulatedPipeline, **job: Any) -> World:
        draw = self.random
        mode = draw.choice(["DYNAMIC", "DYNAMIC", "OFF", "DATA"])
        return World(
            seed,
            mode,
            pipeline,
            self._faults(),
            DispatcherTimes(client_timeout=draw.choice([2.0, 4.0, 15.0]), gc_timeout=NEVER),
            shards=draw.randint(1, 4) if mode == "DATA" else 0,
            journalled=True,
            num_consumers=draw.choice([1, 2, 3, 4]),
            finite=draw.choice(["drop", "pad"]),
            consumer_timeout=NEVER,
            num_tasks=None if mode == "OFF" else draw.choice([None, 1, 2, 5]),
            **job,
        )

    def _people(self) -> None:
        draw = self.random
        for _ in range(draw.randint(1, 4)):
            self._at(draw.choice([0.0, 0.0, 0.0, draw.uniform(0, 5)]), self.add_worker)
        for consumer in range(self._count):
            self._at(draw.choice([0.0, 0.0, draw.uniform(0, 3)]), self._reader(consumer))

    @property
    def _count(self) -> int:
        return self.world.job.num_consumers or 1

    def _reader(self, consumer: int) -> Callable[[], None]:
        def add() -> None:
            limit = self.random.choice([None, None, 1, 5])
            client = self.world.add_client(limit=limit, consumer=consumer)
            client.rate = self.random.choice(RATES)
            self.world.laws.tell(client.name, f"joins as consumer {consumer}")

        return add

    def add_client(self) -> None:
        """Add a client for a random consumer, even if another client reads as that
        consumer.
        """
        self._reader(self.random.randrange(self._count))()

    def _vacant(self) -> list[int]:
        """Return the consumers that have no client and have not read to the end."""
        filled = {
            client.consumer for client in self.world.clients if client.outcome in (None, "end")
        }
        return [consumer for consumer in range(self._count) if consumer not in filled]

    def _read_to_the_end(self) -> None:
        """Let all consumers read to the end, with a successor for each that dies."""
        world = self.world
        while self._vacant() or not world.all_done:
            for consumer in self._vacant():
                self._reader(consumer)()
            world.run_until(lambda: world.all_done or bool(self._vacant()), PATIENCE)

    def _add_successors(self) -> None:
        for consumer in range(self._count):
            self._reader(consumer)()

    def _check_elements(self) -> None:
        self.world.steps.check_end(self.world.pipeline.names())
        if self.world.job.num_tasks is not None:
            self.world.steps.check_order(self.world.pipeline, self.world.job)


class CoordinatedPoisonScenario(CoordinatedScenario):
    """A ``CoordinatedScenario`` in which some elements kill the worker that produces
    them.

    They are skipped in every consumer's rounds once they are found.

    Example:
        >>> CoordinatedPoisonScenario(seed=1).run()
    """

    def _make_world(self, seed: int, pipeline: SimulatedPipeline, **job: Any) -> World:
        deadly = deadly_pipeline(pipeline, random.Random(f"{seed}/poison"))
        return super()._make_world(seed, deadly, on_poison="skip", **job)
