"""A job that is stopped and resumes from the states of its readers in another cluster.

Both clusters have misfortunes. The elements delivered before and after must be all
elements, once.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

from tests.kit.runner import Name
from tests.kit.scenario import (
    ANOTHER,
    NEVER,
    PATIENCE,
    RATES,
    STORM,
    TIMEOUTS,
    Draws,
    Kind,
    Program,
    Scenario,
    weighted,
)
from tests.kit.world import SimulatedClient
from zmqdata import messages as m
from zmqdata.core.client.decider import ClientCore
from zmqdata.testing.network import CALM

JOINED = 1.0
"""Seconds after which readers begin to take elements. Each knows of the others by
then.
"""
CLUSTER: Draws = {"shards": Scenario.draw_shards, "faults": Scenario.draw_faults}
"""Draws of each cluster."""
OF_SERVERS = (
    "add_worker kill_worker*2 leave_worker drain_worker slow_worker cut_worker cut_data "
    "crash_dispatcher crash_both"
)
OF_READERS = "stall_client cut_client freeze_client cut_dispatcher kill_client"
OF_MEMORY = "crash_dispatcher crash_both"
"""Misfortunes after which a dispatcher does not know who has loaded an early state."""


class ResumingProgram(Program):
    """A job that is stopped somewhere and resumes in another cluster.

    Attributes:
        before: the cluster in which it was stopped.
        readers: number of readers.
        numbered: True if they are numbered consumers.
        states: the state of each of them.
        is_early: True if some of them saved before their first element.
        delayed: misfortunes that wait until the job has resumed.
    """

    def prepare(self) -> None:
        """Stop the job in a first cluster, and make the second."""
        scene = self.scene
        self.before = self.world
        self.readers = scene.drawn["readers"]
        self.numbered = self.world.job.num_consumers is not None
        self.states = self._interrupt()
        if not self.states:
            # Readers begin without a state, and count as if they had had nothing.
            scene.draw(CLUSTER)
            self.before, self.states = scene.build(scene.seed), [b""] * self.readers
        self.readers = len(self.states)
        scene.draw({"client_timeout": TIMEOUTS, **CLUSTER})
        self.world = scene.build(scene.seed + ANOTHER)
        self.delayed = OF_READERS.split()
        if self.is_early and not self.numbered:
            self.delayed += OF_MEMORY.split()

    def _interrupt(self) -> list[bytes]:
        """Stop a cluster somewhere, and return the states that its readers save; none
        if the input was too small to be interrupted.
        """
        draw, world = self.random, self.before
        faults, world.network.faults = world.network.faults, CALM
        for _ in range(draw.randint(1, 4)):
            self.add_worker()
        for number in range(self.readers):
            client = world.add_client(consumer=number if self.numbered else None)
            client.stalled_until, client.gulp = JOINED, 1
        early = self.scene.stream("early")
        self.is_early = early.random() < 0.3
        if self.is_early:
            return self._early_states(early)
        world.run_until(lambda: self._all_know or self._one_has_ended)
        if not self._all_know:
            return []
        world.network.faults = faults
        for _ in range(draw.choice([0, 1, 2, 3])):
            moment = JOINED + draw.uniform(0.0, 1.0)
            world.clock.after(moment, getattr(self, draw.choice(weighted(OF_SERVERS))))
        world.clock.after(STORM, self.calm)
        share = int(draw.random() * len(world.pipeline.names()) / self.readers)
        if not self.numbered and draw.random() < 0.5:
            left = JOINED + draw.uniform(0.0, 2.0)
            world.clock.after(left, self._lose_reader)
            if draw.random() < 0.5:
                world.clock.after(left - draw.uniform(0.0, 0.5), self._lose_workers)
        world.run_until(lambda: self._have_read(share), PATIENCE)
        # What readers had that have left, and what other readers had before a reader
        # came, is known after a while.
        world.run_until(lambda: self.numbered or self._states_are_whole, PATIENCE)
        cores = self._reading_on
        states = [core.standing.checkpoint(core.reading.passed.count) for core in cores]
        return [m.encode_checkpoint(state) for state in states]

    def _early_states(self, early: random.Random) -> list[bytes]:
        """Return states of readers, some of which were taken before the dispatcher had
        let the reader in. Some numbered consumers have had a few elements, other
        readers none.
        """
        states: dict[SimulatedClient, m.Checkpoint] = {}

        def save(client: SimulatedClient) -> None:
            core = client.core
            states[client] = core.standing.checkpoint(core.reading.passed.count)

        counts = [0, 0, 0, 1, 3] if self.numbered else [0]
        few = {client: early.choice(counts) for client in self.before.clients}
        for client, count in few.items():
            if not count:
                client.stalled_until = NEVER
                self.before.clock.after(
                    early.choice([0.0, 0.001, 0.01, 0.5]), partial(save, client)
                )

        def are_there() -> bool:
            for client, count in few.items():
                if count and client not in states and client.taken >= count:
                    client.stalled_until = NEVER
                    save(client)
            return all(client in states or client.core.finished for client in few)

        self.before.run_until(are_there, PATIENCE)
        for client in few.keys() - states.keys():
            save(client)
        return [m.encode_checkpoint(states[client]) for client in few]

    @property
    def _all_know(self) -> bool:
        """True if each reader has begun, and knows of the others if their states are to
        belong together.
        """
        known = 0 if self.numbered else self.readers
        cores = [one.core for one in self.before.clients]
        return all(one.opened and len(one.task_list.readers) == known for one in cores)

    @property
    def _reading_on(self) -> list[ClientCore]:
        """Cores of the readers that save a state: all that still read, and every
        numbered consumer.
        """
        return [
            one.core
            for one in self.before.clients
            if self.numbered or (one.outcome is None and not one.core.finished)
        ]

    @property
    def _states_are_whole(self) -> bool:
        cores, count = self._reading_on, len(self._reading_on)
        return all(len(one.task_list.readers) == count and one.standing.is_whole for one in cores)

    def _lose_workers(self) -> None:
        """Kill all workers and add others.

        No worker can then report what a reader had that leaves meanwhile.
        """
        for worker in [one for one in self.before.workers if one.alive]:
            self.before.laws.tell(worker.name, "is killed")
            worker.die()
        for _ in range(self.random.randint(1, 2)):
            self.before.clock.after(self.random.uniform(0.5, 4.0), self.add_worker)

    def _lose_reader(self) -> None:
        """Kill or close a reader if others remain, whose states then say what it
        had.
        """
        alive = [client for client in self.before.clients if client.outcome is None]
        if len(alive) > 1:
            self.before.laws.tell(alive[0].name, "leaves before the states are taken")
            self.random.choice([alive[0].die, alive[0].close])()

    @property
    def _one_has_ended(self) -> bool:
        return any(client.core.finished for client in self.before.clients)

    def _have_read(self, share: int) -> bool:
        """True when it is time to save: numbered consumers save at the same step, other
        readers when all have their share.
        """
        clients = self.before.clients
        if not self.numbered:
            over = all(client.outcome is not None or client.core.finished for client in clients)
            return over or sum(client.taken for client in clients) >= share * self.readers
        for client in clients:
            if client.taken >= share:
                client.stalled_until = NEVER
        return all(client.taken >= share or client.core.finished for client in clients)

    def begin(self) -> None:
        if not self.numbered:
            self.scene.ends.elsewhere = {*self.before.laws.had(), *self._left_out}

    def resume(self, number: int) -> None:
        """Add a reader with its state."""
        self.add_reader(number, resume=self.states[number])

    def befall(self, name: str) -> None:
        """Delay a misfortune of a reader until the job has resumed, because until then
        all others need its state. Readers that read together by early states need what
        the dispatcher remembers.
        """
        clients, missing = self.world.clients, self.readers - len(self.world.clients)
        has_begun = not missing and all(one.core.opened or one.outcome for one in clients)
        if name not in self.delayed or has_begun:
            super().befall(name)
        elif missing > 0 or (missing == 0 and not self.world.all_done):
            # Later the successors have come, who must reach the end.
            self.world.clock.after(0.5, partial(self.befall, name))

    def kill_client(self) -> None:
        """Kill a reader, whose elements others receive."""
        if not self.numbered:
            super().kill_client()

    def check(self) -> None:
        """Check that the elements before and after are all elements."""
        ends = {client.name: client.outcome for client in self.world.clients}
        if not {*ends.values()} <= {"end", "killed"}:
            self.world.laws.fail(f"readers ended with {ends}")
        if self.numbered:
            self._check_steps()
        else:
            everything = Counter(self.world.pipeline.names())
            found = self.before.laws.had() + self.world.laws.had()
            self.world.laws.check_same(found, everything, self._left_out)

    @property
    def _left_out(self) -> set[Name]:
        """Elements that an attempt has skipped in either cluster. No others may be
        missing.
        """
        return {name for world in (self.before, self.world) for name in world.laws.slips.values()}

    def _check_steps(self) -> None:
        """Check that every consumer had every step, before or after, and that only the
        rests of rounds are missing.
        """
        laws, worlds = self.world.laws, (self.before, self.world)
        found: Counter[Name] = Counter()
        ends = set()
        for consumer in range(self.readers):
            paths = [world.steps.of_consumer(consumer) for world in worlds]
            steps = sorted(step for path in paths for step in path)
            if len(steps) != len(set(steps)):
                laws.fail(f"consumer {consumer} had steps twice: {steps}")
            ends.add(len(steps))
            found.update(name for path in paths for _, name in path.values())
        [iteration] = laws.state.iterations.values()
        everything = Counter(self.world.pipeline.names())
        lacking = len((everything - found).keys() - self._left_out)
        if len(ends) != 1 or found - everything or lacking >= self.readers:
            text = f"consumers had {ends} steps; {lacking} elements are missing"
            laws.fail(f"{text}, {iteration.dropped} were dropped")
        if self.world.job.num_tasks is not None and not self.world.pipeline.slips:
            # This cluster does not know what was skipped before the states were taken.
            self.world.steps.check_order(self.world.pipeline, self.world.job)


def draw_consumers(scene: Scenario) -> Draws:
    """Draw whether the readers are numbered consumers."""
    if scene.random.random() >= 0.5:
        return {}
    num_tasks = (None, 1, 3, 5)
    return {"num_consumers": scene.drawn["readers"], "finite": "drop", "num_tasks": num_tasks}


RESUMING = Kind(
    draws=(
        {
            "mode": ("DYNAMIC", "DYNAMIC", "DATA"),
            "readers": (1, 1, 2, 3),
            "consumer_timeout": NEVER,
            "client_timeout": 15.0,
        },
        draw_consumers,
        CLUSTER,
    ),
    joining={
        "add_worker": ((1, 2, 3, 4), (0.0, 0.0, 0.0, 5.0)),
        "resume": (lambda scene: scene.program.readers, (0.0, 0.0, 3.0)),
    },
    misfortunes=f"{OF_SERVERS} worsen {OF_READERS}",
    reader={"rate": RATES},
    program=ResumingProgram,
)
"""A job that is stopped somewhere and resumes in another cluster."""
