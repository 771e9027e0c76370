"""Misfortunes of a simulated world, each alone or while another goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tests.kit.world import DISPATCHER, SimulatedClient, SimulatedWorker, World
from zmqdata import messages as m
from zmqdata.core import events as e
from zmqdata.testing.network import Faults
from zmqdata.testing.nodes import SimulatedNode

FAULTS: dict[str, tuple[Any, ...]] = {
    "delay": ((0.0001, 0.001), (0.0005, 0.005), (0.001, 0.1)),
    "drop": (0.0, 0.0, 0.02, 0.2),
    "repeat": (0.0, 0.0, 0.02, 0.2),
    "reorder": (0.0, 0.0, 0.02, 0.2),
    "break_link": (0.0, 0.0, 0.005, 0.05),
    "bind_error": (0.0, 0.0, 0.2),
    "hold": (0.0, 0.5, 1.0),
}
"""Faults of the network, of which one each is drawn."""
Find = Callable[[Any], Any]
"""Returns a node of a program's world, or None."""


def draw_faults(draw: random.Random) -> Faults:
    """Return faults of the network."""
    return Faults(**{name: draw.choice(values) for name, values in FAULTS.items()})


def strike(
    find: Find,
    text: str,
    act: Callable[..., object],
    seconds: tuple[float, ...] = (),
    is_replaced: bool = False,
) -> Callable[[Any], None]:
    """Return a misfortune of a single node, as a method of a program.

    Args:
        find: returns the node.
        text: what happens to it, for the story.
        act: what happens to it, called with the node and the seconds, if any.
        seconds: for how long it happens, of which one is drawn.
        is_replaced: True if the program may let another worker take its place.
    """

    def happen(self: Misfortunes) -> None:
        node = find(self)
        if is_replaced:
            self.replace_worker(node)
        if node is not None:
            drawn = [self.random.choice(seconds)] if seconds else []
            self.world.laws.tell(node.name, text.format(*drawn))
            act(node, *drawn)

    return happen


def cut(find: Find, find_other: Find = lambda self: self.world.dispatcher) -> Callable[[Any], None]:
    """Return a misfortune that severs two nodes for a while, or one way only."""

    def happen(self: Misfortunes) -> None:
        found, draw = (find(self), find_other(self)), self.random
        if None in found:
            return
        seconds = draw.choice([0.3, 2.0, 5.0, 25.0])
        one, other = [node.name for node in (found[::-1] if draw.random() < 0.3 else found)]
        both_ways = draw.random() < 0.6
        text = f"is cut off from {other} for {seconds} s{'' if both_ways else ', one way'}"
        self.world.laws.tell(one, text)
        self.sever([(one, other)], seconds, both_ways)

    return happen


def stall(seconds: tuple[float, ...]) -> Callable[[Any], None]:
    """Return a misfortune that stops the dispatcher for a while."""
    freeze = SimulatedNode.freeze
    return strike(lambda self: self.world.dispatcher, "stalls for {} s", freeze, seconds)


class Misfortunes:
    """The misfortunes of a world, as methods, by whose names kinds declare them.

    Args:
        world: the world.
        draw: decides what happens to whom, and for how long.
    """

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world = world
        self.random = draw

    def some_worker(self) -> SimulatedWorker | None:
        """Return a worker that is alive, or None."""
        alive = [worker for worker in self.world.workers if worker.alive]
        return self.random.choice(alive) if alive else None

    def some_client(self) -> SimulatedClient | None:
        """Return a client that reads, or None."""
        alive = [client for client in self.world.clients if client.outcome is None]
        return self.random.choice(alive) if alive else None

    def add_worker(self, number: int = 0) -> None:
        """Add a worker. Its buffer may have no room for any element."""
        small = random.Random(f"{self.world.seed}/buffers").choice([1, 2_000])
        worker = self.world.add_worker(self.random.choice([small, 300_000, 16 << 20]))
        self.world.laws.tell(worker.name, "joins")

    def add_client(self) -> None:
        """Add a reader."""
        raise NotImplementedError

    def replace_worker(self, worker: SimulatedWorker | None) -> None:
        """Often let another worker take the place of one that is killed."""
        if self.random.random() < 0.6:
            self.world.clock.after(self.random.uniform(0.0, 4.0), self.add_worker)

    kill_worker = strike(some_worker, "is killed", SimulatedWorker.die, is_replaced=True)
    leave_worker = strike(some_worker, "leaves", SimulatedWorker.leave)
    kill_client = strike(some_client, "is killed", SimulatedClient.die)
    close_client = strike(some_client, "closes early", SimulatedClient.close)
    stall_client = strike(some_client, "stalls for {} s", SimulatedClient.stall, (2.0, 20.0, 60.0))
    freeze_client = strike(  # as by SIGSTOP, or with the lid of a laptop
        some_client, "is frozen for {} s", SimulatedClient.freeze, (1.0, 6.0, 14.0, 16.0, 30.0)
    )
    cut_worker = cut(some_worker)
    cut_client = cut(some_client)
    cut_data = cut(some_worker, some_client)

    def drain_worker(self) -> None:
        """Let a worker hand its tasks over and end, told directly or through the
        dispatcher.
        """
        worker = self.some_worker()
        if worker is not None and self.random.random() < 0.5:
            self.world.laws.tell(worker.name, "is drained")
            worker.drain()
        elif worker is not None:
            request = m.DrainWorker("request", worker.name)
            self.world.dispatcher.feed(e.Received("somebody", request))

    def slow_worker(self) -> None:
        """Make a worker take a second or two for what it produced at once before."""
        worker = self.some_worker()
        if worker is not None:
            self.world.laws.tell(worker.name, "turns slow")
            for runner in worker.runners.values():
                runner.pace = self.random.choice([0.5, 2.0])

    def sever(
        self, pairs: Iterable[tuple[str, str]], seconds: float, both_ways: bool = True
    ) -> None:
        """Sever pairs of nodes for a while."""
        network = self.world.network
        for one, other in pairs:
            network.sever(one, other, both_ways)
            self.world.clock.after(seconds, partial(network.heal, one, other))

    def cut_dispatcher(self) -> None:
        """Sever the dispatcher from all nodes."""
        world, seconds = self.world, self.random.choice([0.3, 5.0, 25.0])
        world.laws.tell(DISPATCHER, f"is cut off for {seconds} s")
        nodes = [one for one in [*world.workers, *world.clients] if one.alive]
        self.sever([(DISPATCHER, one.name) for one in nodes], seconds)

    def isolate_client(self) -> None:
        """Sever a client's machine from all nodes, while another client joins."""
        world, client = self.world, self.some_client()
        if client is None or client.isolated is not None:
            return
        seconds = self.random.choice([2.0, 6.0, 25.0])
        world.laws.tell(client.name, f"is cut off from everybody for {seconds} s")
        client.isolated = world.clock.now
        names = [DISPATCHER, *[worker.name for worker in world.workers if worker.alive]]
        self.sever([(name, client.name) for name in names], seconds)
        world.clock.after(seconds, client.rejoin)
        self.add_client()

    def worsen(self) -> None:
        """Change the faults of the network."""
        self.world.network.faults = draw_faults(self.random)

    def crash_dispatcher(self) -> None:
        """Kill the dispatcher, with what it has not synced, and start another later."""
        seconds = self.random.choice([0.0, 0.05, 0.5, 3.0, 8.0])
        self.world.laws.tell(DISPATCHER, f"is killed for {seconds} s")
        self.world.restart_dispatcher(seconds)

    def crash_both(self) -> None:
        """Kill a worker, and the dispatcher while it handles that."""
        self.kill_worker()
        self.world.clock.after(self.random.uniform(0.0, 3.0), self.crash_dispatcher)
