"""Misfortunes of a simulated world, drawn by seed, and the end that must be reached all
the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.kit.endlaws import EndLaws
from tests.kit.runner import SimulatedPipeline
from tests.kit.world import DISPATCHER, SimulatedClient, SimulatedWorker, World
from zmqdata import messages as m
from zmqdata.core import events as e
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.core.job_rules import is_copied
from zmqdata.testing.network import CALM, Faults

STORM = 10.0
"""Seconds for which the world runs on after the last scheduled misfortune."""
PATIENCE = 90.0
"""Seconds without an element, or the finding of a fatal one, after which a run has
failed.
"""
NEVER = 100_000.0
"""Seconds that no run lasts."""
RATES = (1.0, 1.0, 0.95, 0.999, 1.05)
"""Speeds of the clocks of clients."""


class Scenario:
    """A world with misfortunes, and the checks at its end.

    Args:
        seed: decides everything: size, speed, faults, and which process dies when.

    Example:
        >>> Scenario(seed=1).run()
    """

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(f"{seed}/scenario")
        pipeline = SimulatedPipeline(
            splits=draw.choice([0, 1, 7, 30, 60, 100, 200]),
            repetitions=draw.choice([1, 1, 1, 2, 3]),
            most=draw.choice([1, 3, 8]),
            unit=draw.choice([1, 1000, 60_000]),
            fails=draw.choice([0, 0, 9]),
            slips=random.Random(f"{seed}/slips").choice([0, 0, 3, 10]),
        )
        self.world = self._make_world(seed, pipeline)
        self.ends = EndLaws(self.world)
        self.last = 0.0
        self._people()
        span = draw.choice([0.5, 2.0, 5.0, 12.0])
        for _ in range(draw.choice([0, 1, 2, 3, 5, 8, 12])):
            self._at(draw.uniform(0.0, span), draw.choice(self._misfortunes))

    def _make_world(self, seed: int, pipeline: SimulatedPipeline) -> World:
        mode = self.random.choice(["DYNAMIC", "DYNAMIC", "DYNAMIC", "OFF", "DATA"])
        times = DispatcherTimes(
            client_timeout=self.random.choice([2.0, 4.0, 15.0]), gc_timeout=NEVER
        )
        shards = self.random.randint(1, 4) if mode == "DATA" else 0
        return World(seed, mode, pipeline, self._faults(), times, shards=shards, journalled=True)

    def _people(self) -> None:
        """Schedule workers and training loops that join without a fault."""
        draw = self.random
        for _ in range(draw.randint(1, 4)):
            self._at(draw.choice([0.0, 0.0, 0.0, draw.uniform(0, 5)]), self.add_worker)
        for _ in range(draw.choice([1, 2, 2, 3])):
            self._at(draw.choice([0.0, 0.0, draw.uniform(0, 3)]), self.add_client)

    def _faults(self) -> Faults:
        draw = self.random
        return Faults(
            delay=draw.choice([(0.0001, 0.001), (0.0005, 0.005), (0.001, 0.1)]),
            drop=draw.choice([0.0, 0.0, 0.02, 0.2]),
            repeat=draw.choice([0.0, 0.0, 0.02, 0.2]),
            reorder=draw.choice([0.0, 0.0, 0.02, 0.2]),
            break_link=draw.choice([0.0, 0.0, 0.005, 0.05]),
            bind_error=draw.choice([0.0, 0.0, 0.2]),
            hold=draw.choice([0.0, 0.5, 1.0]),
        )

    def _at(self, seconds: float, call: Callable[[], object]) -> None:
        self.last = max(self.last, seconds)
        self.world.clock.after(seconds, call)

    # --- what may happen

    @property
    def _misfortunes(self) -> list[Callable[[], object]]:
        return [
            self.add_worker,
            self.kill_worker,
            self.kill_worker,
            self.kill_worker,
            self.leave_worker,
            self.drain_worker,
            self.drain_worker,
            self.slow_worker,
            self.slow_worker,
            self.add_client,
            self.kill_client,
            self.kill_client,
            self.close_client,
            self.stall_client,
            self.freeze_client,
            self.freeze_client,
            self.cut_worker,
            self.cut_worker,
            self.cut_client,
            self.cut_client,
            self.cut_data,
            self.isolate_client,
            self.cut_dispatcher,
            self.worsen,
            self.crash_dispatcher,
            self.crash_both,
        ]

    def _some_worker(self) -> SimulatedWorker | None:
        alive = [worker for worker in self.world.workers if worker.alive]
        return self.random.choice(alive) if alive else None

    def _some_client(self) -> SimulatedClient | None:
        alive = [client for client in self.world.clients if client.outcome is None]
        return self.random.choice(alive) if alive else None

    def add_worker(self) -> None:
        """Add a worker."""
        worker = self.world.add_worker(self.random.choice([2_000, 300_000, 16 << 20]))
        self.world.laws.tell(worker.name, "joins")

    def add_client(self) -> None:
        """Add a training loop."""
        client = self.world.add_client(limit=self.random.choice([None, None, 1, 5]))
        client.rate = self.random.choice(RATES)
        self.world.laws.tell(client.name, "joins")

    def kill_worker(self) -> None:
        """Kill a worker. Often another takes its place."""
        worker = self._some_worker()
        if worker is not None:
            self.world.laws.tell(worker.name, "is killed")
            worker.die()
        if self.random.random() < 0.6:
            self.world.clock.after(self.random.uniform(0.0, 4.0), self.add_worker)

    def leave_worker(self) -> None:
        """Let a worker end in good order."""
        worker = self._some_worker()
        if worker is not None:
            self.world.laws.tell(worker.name, "leaves")
            worker.leave()

    def drain_worker(self) -> None:
        """Let a worker hand its tasks over and end, told directly or through the
        dispatcher.
        """
        worker = self._some_worker()
        if worker is not None and self.random.random() < 0.5:
            self.world.laws.tell(worker.name, "is drained")
            worker.drain()
        elif worker is not None:
            self.world.dispatcher.feed(
                e.Received("somebody", m.DrainWorker("request", worker.name))
            )

    def slow_worker(self) -> None:
        """Make a worker take a second or two for what it produced at once before."""
        worker = self._some_worker()
        if worker is not None:
            self.world.laws.tell(worker.name, "turns slow")
            for runner in worker.runners.values():
                runner.pace = self.random.choice([0.5, 2.0])

    def kill_client(self) -> None:
        """Kill a client."""
        client = self._some_client()
        if client is not None:
            self.world.laws.tell(client.name, "is killed")
            client.die()

    def close_client(self) -> None:
        """Let a training loop stop early."""
        client = self._some_client()
        if client is not None:
            self.world.laws.tell(client.name, "closes early")
            client.close()

    def stall_client(self) -> None:
        """Let a training loop take nothing for a while, up to a minute."""
        client = self._some_client()
        if client is not None:
            seconds = self.random.choice([2.0, 20.0, 60.0])
            self.world.laws.tell(client.name, f"stalls for {seconds} s")
            client.stalled_until = self.world.clock.now + seconds

    def freeze_client(self) -> None:
        """Stop a client, as by SIGSTOP or with the lid of a laptop, and resume it
        later.
        """
        client = self._some_client()
        if client is not None:
            seconds = self.random.choice([1.0, 6.0, 14.0, 16.0, 30.0])
            self.world.laws.tell(client.name, f"is frozen for {seconds} s")
            client.freeze(seconds)

    def _cut(self, one: str, other: str) -> None:
        seconds = self.random.choice([0.3, 2.0, 5.0, 25.0])
        if self.random.random() < 0.3:
            one, other = other, one
        both_ways = self.random.random() < 0.6
        self.world.laws.tell(
            one, f"is cut off from {other} for {seconds} s{'' if both_ways else ', one way'}"
        )
        self.world.network.sever(one, other, both_ways)
        self.world.clock.after(seconds, lambda: self.world.network.heal(one, other))

    def cut_worker(self) -> None:
        """Sever a worker from the dispatcher."""
        worker = self._some_worker()
        if worker is not None:
            self._cut(worker.name, DISPATCHER)

    def cut_client(self) -> None:
        """Sever a client from the dispatcher."""
        client = self._some_client()
        if client is not None:
            self._cut(client.name, DISPATCHER)

    def cut_dispatcher(self) -> None:
        """Sever the dispatcher from all nodes."""
        seconds = self.random.choice([0.3, 5.0, 25.0])
        self.world.laws.tell(DISPATCHER, f"is cut off for {seconds} s")
        for name in [one.name for one in [*self.world.workers, *self.world.clients] if one.alive]:
            self.world.network.sever(DISPATCHER, name)
            self.world.clock.after(seconds, partial(self.world.network.heal, DISPATCHER, name))

    def cut_data(self) -> None:
        """Sever a worker from a client."""
        worker, client = self._some_worker(), self._some_client()
        if worker is not None and client is not None:
            self._cut(worker.name, client.name)

    def isolate_client(self) -> None:
        """Sever a client's machine from all nodes, while another client joins."""
        client = self._some_client()
        if client is None or client.isolated is not None:
            return
        seconds = self.random.choice([2.0, 6.0, 25.0])
        self.world.laws.tell(client.name, f"is cut off from everybody for {seconds} s")
        client.isolated = self.world.clock.now
        for name in [DISPATCHER, *(worker.name for worker in self.world.workers if worker.alive)]:
            self.world.network.sever(name, client.name)
            self.world.clock.after(seconds, partial(self.world.network.heal, name, client.name))
        self.world.clock.after(seconds, client.rejoin)
        self.add_client()

    def crash_dispatcher(self) -> None:
        """Kill the dispatcher, with what it has not synced, and start another later."""
        seconds = self.random.choice([0.0, 0.05, 0.5, 3.0, 8.0])
        self.world.laws.tell(DISPATCHER, f"is killed for {seconds} s")
        self.world.restart_dispatcher(seconds)

    def crash_both(self) -> None:
        """Kill a worker, and the dispatcher while it handles that."""
        self.kill_worker()
        self.world.clock.after(self.random.uniform(0.0, 3.0), self.crash_dispatcher)

    def worsen(self) -> None:
        """Change the faults of the network."""
        self.world.network.faults = self._faults()

    # --- and how it ends

    def run(self) -> None:
        """Run the scenario, let fresh clients read what dead clients left, and check
        that nothing is left.

        Raises:
            LawBroken: with the story of what went wrong.
        """
        world = self.world
        world.run_until(lambda: world.clock.now > self.last + STORM)
        self._keep_a_worker()
        world.network.faults = CALM
        self._read_to_the_end()
        if is_copied(world.job):
            world.clock.advance(26.0)  # a reader of copies waits for no silent reader
        self._read_the_rest()
        self._check_elements()
        world.laws.check_measures(world.dispatcher.core)
        world.dispatcher.core.jobs.gc_timeout = 1.0
        world.clock.advance(20.0)
        world.laws.check_empty(
            world.dispatcher.core, {one.name: one.core for one in world.workers if one.alive}
        )

    def _keep_a_worker(self) -> None:
        """Add a worker whenever none is left. A worker that was told to leave may do so
        long after the storm.
        """
        if self._some_worker() is None:
            self.add_worker()
        self.world.clock.after(1.0, self._keep_a_worker)

    def _read_to_the_end(self) -> None:
        """Let all remaining clients read to the end."""
        self.world.run_until(lambda: self.world.all_done, PATIENCE)

    def _read_the_rest(self) -> None:
        self._add_successors()
        self.world.run_until(lambda: self.world.all_done, PATIENCE)
        self.world.clock.advance(20.0)

    def _add_successors(self) -> None:
        """Add the client that must read all that dead clients have left."""
        self.world.add_client()

    def _check_elements(self) -> None:
        """Check that every client received what was promised."""
        self.world.laws.check_end()


def deadly_pipeline(pipeline: SimulatedPipeline, draw: random.Random) -> SimulatedPipeline:
    """Return the same pipeline with up to three splits whose first element kills, in
    each repetition.
    """
    # Each death makes a task begin anew. A larger pipeline would exceed every patience.
    splits = min(30, pipeline.splits)
    return replace(pipeline, splits=splits, kills=max(2, splits // draw.choice([1, 2, 3])))


class PoisonScenario(Scenario):
    """A ``Scenario`` in which some elements kill the worker that produces them, and are
    skipped once they are found.

    Example:
        >>> PoisonScenario(seed=1).run()
    """

    def _make_world(self, seed: int, pipeline: SimulatedPipeline) -> World:
        draw = random.Random(f"{seed}/poison")
        mode, deadly = (
            draw.choice(["DYNAMIC", "DYNAMIC", "DATA", "OFF"]),
            deadly_pipeline(pipeline, draw),
        )
        times = DispatcherTimes(gc_timeout=NEVER)
        shards = draw.randint(1, 3) if mode == "DATA" else 0
        return World(
            seed,
            mode,
            deadly,
            self._faults(),
            times,
            shards=shards,
            journalled=True,
            on_poison="skip",
        )
