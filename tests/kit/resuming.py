"""Scenarios in which a job is stopped and resumes from the states of its readers in
another cluster.

Both clusters have misfortunes. The elements delivered before and after must be all
elements, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.kit.runner import Name, SimulatedPipeline
from tests.kit.scenario import NEVER, PATIENCE, RATES, STORM, Scenario
from tests.kit.world import World
from zmqdata import messages as m
from zmqdata.core.client.decider import ClientCore
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.testing.network import CALM

ANOTHER = 1_000_000_000
"""Difference between the seeds of the stopped cluster and of the cluster in which the
job resumes.
"""
JOINED = 1.0
"""Seconds after which readers begin to take elements. Each knows of the others by
then.
"""


class ResumingScenario(Scenario):
    """A job that is stopped somewhere and resumes in another cluster, both with
    misfortunes.

    Args:
        seed: decides everything.

    Example:
        >>> ResumingScenario(seed=1).run()
    """

    def _make_world(self, seed: int, pipeline: SimulatedPipeline) -> World:
        draw = self.random
        self.mode = draw.choice(["DYNAMIC", "DYNAMIC", "DATA"])
        self.readers = draw.choice([1, 1, 2, 3])
        self.job: dict[str, Any] = {"consumer_timeout": NEVER}
        self.numbered = draw.random() < 0.5
        if self.numbered:
            self.job |= {
                "num_consumers": self.readers,
                "finite": "drop",
                "num_tasks": draw.choice([None, 1, 3, 5]),
            }
        self._interrupt(seed, pipeline)
        return self._cluster(seed + ANOTHER, pipeline, draw.choice([2.0, 4.0, 15.0]))

    def _cluster(self, seed: int, pipeline: SimulatedPipeline, client_timeout: float) -> World:
        times = DispatcherTimes(client_timeout=client_timeout, gc_timeout=NEVER)
        shards = self.random.randint(1, 4) if self.mode == "DATA" else 0
        return World(
            seed,
            self.mode,
            pipeline,
            self._faults(),
            times,
            shards=shards,
            journalled=True,
            **self.job,
        )

    def _interrupt(self, seed: int, pipeline: SimulatedPipeline) -> None:
        """Stop a cluster somewhere, and set ``states`` to the states that its readers
        save.
        """
        draw = self.random
        self.world = self.before = world = self._cluster(seed, pipeline, 15.0)
        faults, world.network.faults = world.network.faults, CALM
        for _ in range(draw.randint(1, 4)):
            self.add_worker()
        for number in range(self.readers):
            client = world.add_client(consumer=number if self.numbered else None)
            client.stalled_until, client.gulp = JOINED, 1
        world.run_until(lambda: self._all_know or self._one_has_ended)
        if not self._all_know:
            # The input was too small to be interrupted. Readers then begin without a
            # state.
            self.before, self.states = self._cluster(seed, pipeline, 15.0), [b""] * self.readers
            return
        world.network.faults = faults
        for _ in range(draw.choice([0, 1, 2, 3])):
            world.clock.after(JOINED + draw.uniform(0.0, 1.0), draw.choice(self._of_servers))
        world.clock.after(STORM, self._calm)
        world.clock.after(STORM, self._keep_a_worker)
        share = int(draw.random() * len(pipeline.names()) / self.readers)
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
        if not cores:
            self.before, self.states = self._cluster(seed, pipeline, 15.0), [b""] * self.readers
            return
        self.readers = len(cores)
        self.states = [
            m.encode_checkpoint(one.standing.checkpoint(one.reading.passed.count)) for one in cores
        ]

    @property
    def _all_know(self) -> bool:
        """True if each reader has begun, and knows of the others if their states are to
        belong together.
        """
        known = 0 if self.numbered else self.readers
        return all(
            one.core.opened and len(one.core.task_list.readers) == known
            for one in self.before.clients
        )

    @property
    def _reading_on(self) -> list[ClientCore]:
        """Cores of the readers that save a state: all that still read, and every
        numbered consumer.
        """
        alive = [
            client.core for client in self.before.clients if client.outcome is None or self.numbered
        ]
        return [core for core in alive if self.numbered or not core.finished]

    @property
    def _states_are_whole(self) -> bool:
        cores = self._reading_on
        known = [len(core.task_list.readers) == len(cores) for core in cores]
        return all(known) and all(core.standing.is_whole for core in cores)

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

    def _calm(self) -> None:
        self.before.network.faults = CALM

    def _people(self) -> None:
        """Schedule workers, and as many readers as before, each with its state."""
        draw = self.random
        if not self.numbered:
            self.ends.elsewhere = {*self._had_before, *self._left_out}
        for _ in range(draw.randint(1, 4)):
            self._at(draw.choice([0.0, 0.0, 0.0, draw.uniform(0, 5)]), self.add_worker)
        for number, state in enumerate(self.states):
            self._at(draw.choice([0.0, 0.0, draw.uniform(0, 3)]), self._reader(number, state))

    def _reader(self, number: int, state: bytes) -> Callable[[], None]:
        def add() -> None:
            client = self.world.add_client(consumer=number if self.numbered else None, resume=state)
            client.rate = self.random.choice(RATES)
            self.world.laws.tell(client.name, f"goes on as reader {number}")

        return add

    @property
    def _of_servers(self) -> list[Callable[[], object]]:
        return [
            self.add_worker,
            self.kill_worker,
            self.kill_worker,
            self.leave_worker,
            self.drain_worker,
            self.slow_worker,
            self.cut_worker,
            self.cut_data,
            self.crash_dispatcher,
            self.crash_both,
        ]

    @property
    def _misfortunes(self) -> list[Callable[[], object]]:
        of_readers = [
            self.stall_client,
            self.cut_client,
            self.freeze_client,
            self.cut_dispatcher,
            self.kill_client,
        ]
        return [*self._of_servers, self.worsen, *map(self._once_begun, of_readers)]

    def _once_begun(self, misfortune: Callable[[], object]) -> Callable[[], object]:
        """Delay a misfortune of a reader until the job has resumed, because until then
        all others need its state.
        """

        def happen() -> None:
            clients = self.world.clients
            if len(clients) > self.readers:
                return  # the successors have come, who must reach the end
            if len(clients) == self.readers and all(
                one.core.opened or one.outcome for one in clients
            ):
                misfortune()
            elif not self.world.all_done or len(clients) < self.readers:
                self.world.clock.after(0.5, happen)

        return happen

    def kill_client(self) -> None:
        """Kill a reader, whose elements others receive."""
        if not self.numbered:
            super().kill_client()

    def _add_successors(self) -> None:
        """Add readers of the remaining elements. They need no state, because the job
        has already resumed.
        """
        if not self.numbered:
            super()._add_successors()
        for consumer in range(self.readers if self.numbered else 0):
            self._reader(consumer, b"")()

    def _check_elements(self) -> None:
        ends = {client.name: client.outcome for client in self.world.clients}
        if not {*ends.values()} <= {"end", "killed"}:
            self.world.laws.fail(f"readers ended with {ends}")
        if self.numbered:
            self._check_steps()
        else:
            self._check_all(Counter(self._had_before) + Counter(self._had_after))

    @property
    def _had_before(self) -> list[Name]:
        if self.numbered:
            return [
                name
                for one in self.before.clients
                for names in one.had.names.values()
                for name in names.values()
            ]
        laws = self.before.laws  # elements of a dead reader that were not reported go to others
        return [laws.names[element] for element in laws.owners]

    @property
    def _had_after(self) -> list[Name]:
        laws = self.world.laws
        return [laws.names[element] for element in laws.owners]

    def _check_all(self, found: Counter[Name]) -> None:
        everything = Counter(self.world.pipeline.names())
        missing, surplus = (
            sorted((everything - found).keys() - self._left_out),
            sorted(found - everything),
        )
        if missing or surplus:
            self.world.laws.fail(f"missing {missing[:9]}, surplus {surplus[:9]}")

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
            laws.fail(
                f"consumers had {ends} steps; {lacking} elements are missing, "
                f"{iteration.dropped} were dropped"
            )
        if self.world.job.num_tasks is not None and not self.world.pipeline.slips:
            # This cluster does not know what was skipped before the states were taken.
            self.world.steps.check_order(self.world.pipeline, self.world.job)
