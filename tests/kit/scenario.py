"""A simulated world with misfortunes, as its kind declares it, and the end that it must
reach all the same.

``tests.kit.kinds`` lists the kinds of worlds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.kit.endlaws import EndLaws
from tests.kit.misfortunes import Misfortunes, draw_faults
from tests.kit.runner import SimulatedPipeline
from tests.kit.world import SimulatedClient, World
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
ANOTHER = 1_000_000_000
"""Difference between the seeds of two worlds that are made from one seed."""
RATES = (1.0, 1.0, 0.95, 0.999, 1.05)
"""Speeds of the clocks of clients."""
TIMEOUTS = (2.0, 4.0, 15.0)
"""Seconds after which a silent client is given up."""
FACTS = ("way", "readers")
"""Names of draws that are facts for the program, and parameters of nothing."""

Draws = Mapping[str, Any]
"""Choices by name, drawn in this order. One of a tuple is drawn; a function draws with
the scenario; any other value is taken as it is.
"""
PIPELINE: Draws = {
    "splits": (0, 1, 7, 30, 60, 100, 200),
    "repetitions": (1, 1, 1, 2, 3),
    "most": (1, 3, 8),
    "unit": (1, 1000, 60_000),
    "fails": (0, 0, 9),
    "slips": lambda scene: scene.stream("slips").choice([0, 0, 3, 10]),
}
"""Parameters of the pipeline, which each world draws first."""


class Program(Misfortunes):
    """Behaviour of the readers beside the misfortunes, and the end that they reach.

    Here they read everything, with a successor for each numbered consumer that dies.
    A subclass may do more and check more.

    Args:
        scene: the scenario.
        world: its world.
    """

    allowed: frozenset[str | None] = frozenset()
    """Errors with which readers may end."""

    def __init__(self, scene: Scenario, world: World) -> None:
        super().__init__(world, scene.random)
        self.scene = scene

    def prepare(self) -> None:
        """Prepare the world before anything happens in it, or replace it."""

    def begin(self) -> None:
        """Start what does not join by a schedule."""

    def befall(self, name: str) -> None:
        """Let a misfortune happen."""
        getattr(self, name)()

    def let_be(self) -> None:
        """Do nothing."""

    def add_client(self) -> None:
        """Add a reader; a random consumer if the job is coordinated, even if another
        client reads as that consumer.
        """
        count = self.world.job.num_consumers
        self.add_reader(self.random.randrange(count) if count else 0)

    def add_reader(self, number: int, **options: Any) -> SimulatedClient:
        """Add a reader of this number, which only coordinated jobs heed."""
        drawn = {name: self.scene.pick(one) for name, one in self.scene.kind.reader.items()}
        count = self.world.job.num_consumers
        consumer = number % count if count else None
        client = self.world.add_client(limit=drawn.pop("limit", None), consumer=consumer, **options)
        for name, value in drawn.items():
            setattr(client, name, value)
        text = "joins" if consumer is None else f"joins as consumer {consumer}"
        self.world.laws.tell(client.name, text)
        return client

    # --- and how it ends

    def run(self) -> None:
        """Let the misfortunes happen, reach the end, and check that nothing is left."""
        world = self.world
        world.run_until(lambda: world.clock.now > self.scene.last + STORM)
        self.calm()
        self.end()
        world.dispatcher.core.jobs.gc_timeout = 1.0
        world.clock.advance(20.0)
        world.laws.check_empty(
            world.dispatcher.core, {one.name: one.core for one in world.workers if one.alive}
        )

    def calm(self) -> None:
        """End the storm, and add a worker whenever none is left from now on."""
        self._keep_a_worker()
        self.world.network.faults = CALM

    def _keep_a_worker(self) -> None:
        """Keep a worker. One that was told to leave may do so long after the storm."""
        if self.some_worker() is None:
            self.add_worker()
        self.world.clock.after(1.0, self._keep_a_worker)

    def end(self) -> None:
        """Let all readers read to the end, and fresh ones what dead readers left."""
        world = self.world
        self.read_to_the_end()
        if is_copied(world.job):
            world.clock.advance(26.0)  # a reader of copies waits for no silent reader
        for consumer in range(world.job.num_consumers or 0):
            self.add_reader(consumer)
        if not world.job.num_consumers:
            world.add_client()
        world.run_until(lambda: world.all_done, PATIENCE)
        world.clock.advance(20.0)
        self.check()
        world.laws.check_measures(world.dispatcher.core)

    def read_to_the_end(self) -> None:
        """Let all readers read to the end, with a successor for each consumer that
        dies.
        """
        while self.vacant() or not self.world.all_done:
            for consumer in self.vacant():
                self.add_reader(consumer)
            self.wait(PATIENCE)

    def wait(self, patience: float) -> None:
        """Wait until all readers have ended, or a consumer needs a successor."""
        self.world.run_until(lambda: self.world.all_done or bool(self.vacant()), patience)

    def vacant(self) -> list[int]:
        """Return the consumers that have neither a reader nor reached the end, or an
        error with which readers may end.
        """
        over = {None, "end", *self.allowed}
        filled = {one.consumer for one in self.world.clients if one.outcome in over}
        return [one for one in range(self.world.job.num_consumers or 0) if one not in filled]

    def check(self) -> None:
        """Check that every client received what was promised."""
        world = self.world
        if not world.job.num_consumers:
            world.laws.check_end()
            return
        world.steps.check_end(world.pipeline.names())
        if world.job.num_tasks is not None:
            world.steps.check_order(world.pipeline, world.job)


@dataclass(frozen=True)
class Kind:
    """Declaration of a kind of worlds.

    Example:
        >>> Kind(draws=(), misfortunes="bill_worker")
        Traceback (most recent call last):
        AttributeError: type object 'Program' has no attribute 'bill_worker'
    """

    draws: tuple[Draws | Callable[[Scenario], Draws], ...]
    """Parameters of the pipeline, the job, the dispatcher's times and the world."""
    joining: Mapping[str, tuple[Any, tuple[float, ...]]] = field(default_factory=dict)
    """The nodes that join without a fault, by the method of the program that adds one:
    their number, as a draw, and limits of its time, of which one is drawn for each.
    """
    misfortunes: str = "let_be"
    """Names of methods of the program that may happen, as in ``kill_worker*3``."""
    reader: Draws = field(default_factory=dict)
    """Attributes of each reader."""
    program: type[Program] = Program
    """Decides what readers do, and what they must reach."""
    cluster: type[World] = World
    """The simulated cluster."""
    offset: int = 0
    """Difference between the seeds of its worlds and the given seeds."""

    def __post_init__(self) -> None:
        for name in (*self.joining, *weighted(self.misfortunes)):
            getattr(self.program, name)  # a mistyped name fails here, not in some world


def weighted(text: str) -> list[str]:
    """Return names, each as often as its weight says.

    Example:
        >>> weighted("kill_worker*2 cut_data")
        ['kill_worker', 'kill_worker', 'cut_data']
    """
    pairs = [word.partition("*") for word in text.split()]
    return [name for name, _, weight in pairs for _ in range(int(weight or 1))]


def from_poison(scene: Scenario, *values: Any) -> Any:
    """Return a value that is drawn apart, as whatever concerns elements that kill."""
    return scene.stream("poison").choice(values)


DEADLY: Draws = {
    # Each death makes a task begin anew. A larger pipeline would exceed every patience.
    "splits": lambda scene: min(30, scene.drawn["splits"]),
    "kills": lambda scene: max(2, scene.drawn["splits"] // from_poison(scene, 1, 2, 3)),
}
"""Up to three splits whose first element kills, in each repetition."""


class Scenario:
    """A world with misfortunes, and the checks at its end.

    Args:
        seed: decides everything: size, speed, faults, and which process dies when.
        kind: declares what is drawn.

    Attributes:
        drawn: all drawn parameters.
        last: when the last scheduled misfortune happens.

    Example:
        >>> from tests.kit.kinds import PLAIN
        >>> Scenario(1, PLAIN).run()
    """

    def __init__(self, seed: int, kind: Kind) -> None:
        self.seed, self.kind, self.last = seed + kind.offset, kind, 0.0
        self._streams: dict[str, random.Random] = {}
        self.random = draw = self.stream("scenario")
        self.drawn: dict[str, Any] = {"gc_timeout": NEVER}
        for draws in (PIPELINE, *kind.draws):
            self.draw(draws)
        self.program: Any = kind.program(self, self.build(self.seed))
        self.program.prepare()
        self.ends = EndLaws(self.world)
        for name, (count, within) in kind.joining.items():
            for number in range(self.pick(count)):
                moments = [draw.uniform(0.0, one) if one else 0.0 for one in within]
                self._at(draw.choice(moments), partial(getattr(self.program, name), number))
        self.program.begin()
        span, misfortunes = draw.choice([0.5, 2.0, 5.0, 12.0]), weighted(kind.misfortunes)
        for _ in range(draw.choice([0, 1, 2, 3, 5, 8, 12])):
            moment = draw.uniform(0.0, span)
            self._at(moment, partial(self.program.befall, draw.choice(misfortunes)))

    def _at(self, seconds: float, call: Callable[[], object]) -> None:
        self.last = max(self.last, seconds)
        self.world.clock.after(seconds, call)

    @property
    def world(self) -> World:
        """The world, in which a program may have replaced another."""
        world: World = self.program.world
        return world

    def stream(self, name: str) -> random.Random:
        """Return a source of chance, by its name."""
        return self._streams.setdefault(name, random.Random(f"{self.seed}/{name}"))

    def pick(self, one: Any) -> Any:
        """Return a value that is drawn as declared."""
        if callable(one):
            return one(self)
        return self.random.choice(one) if isinstance(one, tuple) else one

    def draw(self, draws: Draws | Callable[[Scenario], Draws]) -> None:
        """Draw parameters."""
        for name, one in (draws(self) if callable(draws) else draws).items():
            self.drawn[name] = self.pick(one)

    def draw_faults(self) -> Faults:
        """Return faults of the network."""
        return draw_faults(self.random)

    def draw_shards(self, most: int = 4) -> int:
        """Return the number of configured workers, if the mode is static."""
        return self.random.randint(1, most) if self.drawn["mode"] == "DATA" else 0

    def build(self, seed: int) -> World:
        """Return a world with the drawn parameters."""
        drawn = {name: value for name, value in self.drawn.items() if name not in FACTS}

        def take(names: Iterable[str]) -> dict[str, Any]:
            return {name: drawn.pop(name) for name in names if name in drawn}

        pipeline = SimulatedPipeline(**take(SimulatedPipeline.__dataclass_fields__))
        times = DispatcherTimes(**take(DispatcherTimes.__dataclass_fields__))
        return self.kind.cluster(seed, pipeline=pipeline, times=times, journalled=True, **drawn)

    def run(self) -> None:
        """Run the program, with its misfortunes and checks.

        Raises:
            LawBroken: with the story of what went wrong.
        """
        self.program.run()
