"""Scenarios that act within the last steps of an iteration, when little is left and
readers are about to end.

``tests.kit.endlaws`` has the laws that they may break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.kit.runner import SimulatedPipeline
from tests.kit.scenario import NEVER, PATIENCE, RATES, Scenario
from tests.kit.world import DISPATCHER, SimulatedClient, SimulatedWorker, World
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.testing.network import CALM

JOBS = (
    *["named"] * 5,
    *["anonymous", "copies", "static", "beside"] * 2,
    *["copied", "ordered", "numbered"],
    *["local"] * 2,
)
"""Kinds of jobs: with a name; without one, read by one process or by several copies;
static shards, for all readers or for those beside their workers; copies of the input
(OFF); in promised order; with numbered consumers; a shared input of which each reader
reads only what workers beside it make.
"""
PAUSES = (0.0, 0.0, 0.0, 0.003, 0.02, 0.1, 0.5, 1.0, 3.0)
"""Seconds between two acts."""
STALLS = (0.3, 2.0, 4.0, 8.0, 10.0)
"""Seconds for which the dispatcher stalls."""
LAST_STEPS = 16
"""Most elements that are left when the acts begin."""
BESIDE = frozenset({"beside", "local"})
"""The kinds of jobs whose readers read only from workers beside them."""
AWAY = frozenset({"UnavailableError", "InvalidArgumentError"})
"""Errors of such a reader while its worker is away."""
CROWDS = (65,) * 39 + (500,)
"""Numbers of readers of the few worlds that have many. One of 500 takes a minute."""


class AimedScenario(Scenario):
    """A world that acts within the last steps of an iteration.

    Args:
        seed: decides everything.

    Attributes:
        job: kind of its job.
        places: number of workers that are started again at their addresses when they
            end; 0 if others take their places.
        acts: what was done, for the story.

    Example:
        >>> AimedScenario(seed=1).run()
    """

    crowd = 0
    """Number of readers; 0: a few."""
    allowed: frozenset[str | None] = frozenset()
    """Errors with which readers may end."""

    def _make_world(self, seed: int, pipeline: SimulatedPipeline) -> World:
        draw = self.random
        self.job = "named" if self.crowd else draw.choice(JOBS)
        self.acts: list[str] = []
        pipeline = SimulatedPipeline(
            splits=2 * self.crowd or draw.choice([7, 30, 60, 100]),
            repetitions=1 if self.crowd else draw.choice([1, 1, 1, 2]),
            most=1 if self.crowd else draw.choice([1, 3]),
            unit=draw.choice([1, 1, 1000]),
        )
        self.times = DispatcherTimes(client_timeout=draw.choice([4.0, 15.0]), gc_timeout=NEVER)
        # Most losses need no bad network, which would hide the second law.
        # A link that breaks at one block in twenty never gets a long task through.
        bad = self._faults()
        faults = replace(bad, break_link=bad.break_link / 10) if draw.random() < 0.2 else CALM
        all_options: dict[str, dict[str, Any]] = {
            "anonymous": {"anonymous": True},
            "copies": {"anonymous": True},
            "ordered": {"num_consumers": 1, "num_tasks": 2, "finite": "drop"},
            "numbered": {"num_consumers": 2, "finite": draw.choice(["drop", "pad"])},
            "beside": {"target_workers": "LOCAL"},
            "local": {"target_workers": "LOCAL"},
        }
        options = all_options.get(self.job, {})
        mode = {"static": "DATA", "beside": "DATA", "copied": "OFF"}.get(self.job, "DYNAMIC")
        shards = 2 if mode == "DATA" else 0
        return World(
            seed, mode, pipeline, faults, self.times, shards=shards, journalled=True, **options
        )

    def _people(self) -> None:
        """Start the workers, and then the readers."""
        draw, world = self.random, self.world
        if world.disk is not None and world.network.faults is CALM:
            world.disk.stalls = 0.0  # hides the second law
        self.places = 2 if self.job == "local" else world.shards
        for _ in range(self.places or draw.choice([1, 2, 2])):
            self.add_worker()
        world.clock.advance(1.0)
        numbers = {"anonymous": 1, "ordered": 1, "numbered": 2, "copies": draw.choice([2, 2, 3])}
        numbers |= dict.fromkeys(BESIDE, draw.choice([2, 3, 3, 4]))
        count = self.crowd or numbers.get(self.job, draw.choice([1, 2, 2, 3]))
        for number in range(count):
            self.add_reader(number)
            world.clock.advance(0.0 if self.crowd else draw.choice([0.0, 0.0, 0.3]))

    @property
    def _misfortunes(self) -> list[Callable[[], object]]:
        return [lambda: None]  # nothing happens before the last steps

    def add_reader(self, number: int) -> SimulatedClient:
        """Add a reader: a numbered consumer, or one beside a worker, if the job has
        such.
        """
        world, draw = self.world, self.random
        consumer = number % world.job.num_consumers if world.job.num_consumers else None
        beside = tuple([worker.name for worker in world.workers[: self.places]])
        if self.job not in BESIDE:
            beside = ()
        elif self.job == "beside" or number != len(beside):  # else beside all of them
            beside = (beside[number % len(beside)],)
        client = world.add_client(consumer=consumer, local_workers=beside)
        client.pace, client.gulp = draw.choice([0.01, 0.05]), 1
        client.rate = draw.choice(RATES)
        world.laws.tell(client.name, "joins")
        return client

    def add_client(self) -> None:
        """Add another reader."""
        self.add_reader(self.random.randrange(4))

    # --- the last steps

    def run(self) -> None:
        """Read until little is left, act, and check what the first successor gets.

        Raises:
            LawBroken: with the story of what went wrong.
        """
        world, draw = self.world, self.random
        total = self._total()
        goal = total - draw.randint(1, min(LAST_STEPS, total))
        world.run_until(lambda: self._taken() >= goal or world.all_done, PATIENCE)
        self._slow_down()
        for act in self._plan():
            self._pause()
            if not self._reading():
                break
            self.acts.append(act.__name__)
            world.laws.tell("somebody", f"acts: {act.__name__}")
            act()
        self._end()

    def _plan(self) -> list[Callable[[], object]]:
        """Return what is done, one after the other: at random, or in an order in which
        much depends on what the dispatcher knows.
        """
        draw = self.random
        at_random = draw.sample(self._acts(), draw.choice([1, 2, 2, 3, 4]))
        of_worker = draw.choice([self.kill_worker, self.drain_worker, self.leave_worker])
        of_holder = [self.kill_holder, self.kill_holder, self.freeze_holder, self.cut_holder]
        after = [self.stall_dispatcher, self.crash_dispatcher, self.lose_permission]
        return draw.choice(
            [
                at_random,
                [*at_random, self.kill_all],
                [of_worker, self.let_pass, self.kill_all],
                [of_worker, self.let_pass, self.kill_holder, draw.choice(after)],
                [draw.choice(of_holder), self.await_done, draw.choice(after)],
            ]
        )

    def _slow_down(self) -> None:
        """Let some readers keep the last elements that they have received."""
        draw, readers = self.random, self._reading()
        readers.sort(key=lambda client: len(client.queue), reverse=True)
        holders = readers[: max(bool(self.crowd), draw.choice([0, 1, 1, 2, 2, 3]))]
        for client in readers:
            client.pace = draw.choice([0.3, 0.5, 1.0, 5.0, 30.0]) if client in holders else 0.01
            if self.crowd and client in holders:  # which have a single element or two
                client.stalled_until = self.world.clock.now + 20.0

    def _total(self) -> int:
        names = len(self.world.pipeline.names())
        if self.job == "copied":
            return names * sum(worker.alive for worker in self.world.workers)
        return max(1, names)

    def _taken(self) -> int:
        return sum(client.taken for client in self.world.clients)

    def _reading(self) -> list[SimulatedClient]:
        return [client for client in self.world.clients if client.outcome is None]

    def _done(self) -> list[SimulatedClient]:
        records = self.ends.records
        return [one for one in self._reading() if one.name in records and records[one.name].done]

    def _reach(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until the condition holds, or for so many seconds. Return True
        if it holds.
        """
        world = self.world
        limit = world.clock.now + seconds
        while not condition() and world.clock.now < limit:
            world.clock.run_next()
        return condition()

    def _pause(self) -> None:
        """Let some time pass, or wait for a reader that is done or ends. Meanwhile the
        dispatcher stalls now and then.
        """
        draw, world = self.random, self.world
        if draw.random() < 0.2:
            self.stall_dispatcher()
        ended = sum(client.outcome == "end" for client in world.clients)
        done = len(self._done())
        moments: list[Callable[[], bool]] = [
            lambda: len(self._done()) > done,
            lambda: sum(client.outcome == "end" for client in world.clients) > ended,
        ]
        if draw.random() < 0.4:
            self._reach(draw.choice(moments), 1.0)
        else:
            world.clock.advance(draw.choice(PAUSES) * draw.uniform(0.5, 1.5))

    # --- what may happen

    def _acts(self) -> list[Callable[[], object]]:
        # A second reader of a seat would rightly be refused.
        is_shared = not self.world.job.num_consumers and self.job != "anonymous"
        others = [self.isolate_client, self.add_client] if is_shared else []
        return [
            *others,
            *[self.kill_worker, self.drain_worker, self.leave_worker] * 2,
            *[self.kill_client, *[self.kill_holder, self.replace_client] * 4],
            self.freeze_client,
            self.freeze_holder,
            self.cut_client,
            self.cut_holder,
            self.cut_data,
            self.cut_worker,
            self.crash_dispatcher,
            self.crash_both,
            self.close_heir,
            self.end_dispatcher,
            self.lose_permission,
            self.stall_dispatcher,
            self.stall_client,
        ]

    def kill_worker(self) -> None:
        """Kill a worker, and often start another."""
        worker = self._some_worker()
        if worker is not None:
            self.world.laws.tell(worker.name, "is killed")
            self._replace_worker(worker)
            worker.die()

    def leave_worker(self) -> None:
        """Let a worker end, and often start another."""
        worker = self._some_worker()
        if worker is not None:
            self.world.laws.tell(worker.name, "leaves")
            self._replace_worker(worker)
            worker.leave()

    def drain_worker(self) -> None:
        """Let a worker hand its tasks over, and often start another."""
        worker = self._some_worker()
        if worker is not None:
            self.world.laws.tell(worker.name, "is drained")
            self._replace_worker(worker)
            worker.drain()

    def _replace_worker(self, worker: SimulatedWorker) -> None:
        """Often start another worker, before this one ends or later.

        A worker with a static shard, or beside a reader, is started again at its
        address.
        """
        draw, world = self.random, self.world
        wait = draw.choice([0.3, 0.3, 1.0, 3.0])

        def start_again() -> None:
            if worker.alive:
                world.clock.after(0.2, start_again)
            else:
                self._add_worker_at(worker.core.profile.address)

        if self.places:
            world.clock.after(wait, start_again)
        elif draw.random() < 0.7:
            world.clock.after(wait - 0.3, self.add_worker)

    def _add_worker_at(self, address: str) -> None:
        """Start a worker at the address of one that has ended, unless it is taken."""
        if any(one.alive and one.core.profile.address == address for one in self.world.workers):
            return
        worker = self.world.add_worker()
        worker.core.profile.address = address
        self.world.network.aliases[address] = worker.name

    def let_pass(self) -> None:
        """Let some seconds pass, in which tasks find their next host."""
        self.world.clock.advance(self.random.uniform(0.5, 6.0))

    def await_done(self) -> None:
        """Wait until a reader is done."""
        self._reach(lambda: bool(self._done()), 3.0)
        self.world.clock.advance(self.random.choice([0.0, 0.001, 0.01, 0.5]))

    def _holder(self) -> SimulatedClient | None:
        """Return the reader that holds the most elements which it has not handed
        out.
        """
        held = [(sum(one.stop - one.at for one in each.queue), each) for each in self._reading()]
        return max(held, key=lambda pair: pair[0])[1] if held else None

    def kill_holder(self) -> None:
        """Kill the reader that holds the most elements."""
        holder = self._holder()
        if holder is not None:
            self._kill(holder)

    def freeze_holder(self) -> None:
        """Stop the reader that holds the most elements, for a while."""
        holder = self._holder()
        if holder is not None:
            seconds = self.random.choice([1.0, 6.0, 30.0])
            self.world.laws.tell(holder.name, f"is frozen for {seconds} s")
            holder.freeze(seconds)

    def cut_holder(self) -> None:
        """Sever the reader that holds the most elements from the dispatcher."""
        holder = self._holder()
        if holder is not None:
            self._cut(holder.name, DISPATCHER)

    def replace_client(self) -> None:
        """Kill a reader, and start it again."""
        client = self._some_client()
        if client is not None:
            self._kill(client)
            if self.job == "anonymous":
                return  # a new process has a job of its own
            wait = self.random.choice([0.0, 0.05, 0.5, 2.0])
            number = self.world.clients.index(client)
            self.world.clock.after(wait, lambda: self._add_again(number))

    def _add_again(self, number: int) -> None:
        consumer = number % (self.world.job.num_consumers or 1)
        if not self.world.job.num_consumers or consumer in self._vacant():
            self.add_reader(number)

    def _kill(self, client: SimulatedClient) -> None:
        self.world.laws.tell(client.name, "is killed")
        client.die()

    def close_heir(self) -> None:
        """Let the only reader that is not done close its iterator, once others are
        done.
        """
        self._reach(lambda: bool(self._done()), 3.0)
        heirs = [one for one in self._reading() if one not in self._done()]
        if len(heirs) == 1:
            self.world.laws.tell(heirs[0].name, "closes early")
            heirs[0].close()

    def end_dispatcher(self) -> None:
        """Close the dispatcher as soon as the first reader ends, for longer than any
        reader waits.
        """
        before = len(self._reading())
        self._reach(lambda: len(self._reading()) < before, 5.0)
        self.world.laws.tell(DISPATCHER, "is closed")
        self.world.restart_dispatcher(40.0)

    def lose_permission(self) -> None:
        """Cut the way from the dispatcher to the first reader that is done, for a
        while.
        """
        self._reach(lambda: bool(self._done()), 3.0)
        network = self.world.network
        for client in self._done()[:1]:
            network.sever(DISPATCHER, client.name, both_ways=False)
            seconds = self.random.choice([0.01, 0.3, 3.0])
            self.world.clock.after(seconds, partial(network.heal, DISPATCHER, client.name))

    def stall_dispatcher(self) -> None:
        """Stop the dispatcher for some seconds."""
        seconds = self.random.choice(STALLS)
        self.world.laws.tell(DISPATCHER, f"stalls for {seconds} s")
        self.world.dispatcher.freeze(seconds)

    def kill_all(self) -> None:
        """Kill all readers."""
        for client in self._reading():
            self._kill(client)

    # --- and how it ends

    def _end(self) -> None:
        """Let all readers end, and check that the first successor gets all that is
        left.
        """
        world = self.world
        self._keep_a_worker()
        world.network.faults = CALM
        while self._vacant() or not world.all_done:
            for consumer in self._vacant():
                self.add_reader(consumer)
            self._wait(PATIENCE)
        if not self._is_abandoned():
            self._check_elements()

    def _wait(self, patience: float) -> None:
        """Wait until all readers have ended, or a consumer must be started again."""
        world = self.world
        world.run_until(lambda: world.all_done or bool(self._vacant()), patience)

    def _is_abandoned(self) -> bool:
        """Return True if no successor may come: the job has ended with its readers, or
        the journal has lost more than can be told again.
        """
        world = self.world
        failed = {client.outcome for client in self.world.clients} - {
            "end",
            "killed",
            "closed early",
        }
        # The worker beside a reader may be away for too long, or when the reader comes.
        if self.job in BESIDE:
            failed -= AWAY
        if world.job.anonymous:
            failed -= {"NotFoundError"}  # the job has ended while a reader was stopped
        if failed - self.allowed:
            world.laws.fail(f"readers end with {sorted(map(str, failed))}")
        return bool(failed) or world.job.anonymous

    def _has_places(self) -> bool:
        """Return True if a worker is at each place that needs one."""
        placement, workers = self.world.dispatcher.core.hosting.placement, self.world.workers
        places = [one.name for one in workers[: self.places]]
        return all(placement.is_at(address) for address in places)

    def _vacant(self) -> list[int]:
        """Return the numbered consumers that have neither a reader nor reached the
        end, or an error with which readers may end.
        """
        over = {None, "end", *self.allowed}
        filled = {one.consumer for one in self.world.clients if one.outcome in over}
        return [one for one in range(self.world.job.num_consumers or 0) if one not in filled]

    def _check_elements(self) -> None:
        world, job = self.world, self.world.job
        count = job.num_consumers or (2 if self.job in BESIDE else 1)
        outcomes = self._succeed(count)
        if self.job in BESIDE and AWAY.intersection(outcomes):
            world.clock.advance(20.0)
            outcomes = self._succeed(count)
        if self.allowed.intersection(outcomes):
            return  # the iteration has failed, which its next readers are told, too
        if outcomes != ["end"] * count:
            world.laws.fail(f"the successors end with {outcomes}")
        if job.num_consumers:
            world.clock.advance(3.0)
            world.steps.check_end(world.pipeline.names())
        elif self.job != "copied":
            for iteration in world.laws.state.iterations.values():
                left = self.ends.owed(iteration)
                if left:
                    world.laws.fail(f"the first successor leaves {sorted(left)[:9]}")

    def _succeed(self, count: int) -> list[str | None]:
        """Let so many readers, one for each seat or shard, read the rest, and return
        how they end. Those that rightly end without the dispatcher, with a warning,
        leave the rest to the next ones.
        """
        world = self.world
        while True:
            world.run_until(lambda: world.dispatcher.alive and self._has_places(), PATIENCE)
            successors = [self.add_reader(number) for number in range(count)]
            world.run_until(lambda: world.all_done, PATIENCE)
            if not any(self.ends.records[client.name].unheard for client in successors):
                return [client.outcome for client in successors]


class SetBackScenario(AimedScenario):
    """An ``AimedScenario`` whose dispatcher restarts with a journal that lacks its last
    records.

    Args:
        seed: decides everything.
    """

    allowed = frozenset({"DataLossError"})

    def _wait(self, patience: float) -> None:
        """Also wait as long as consumers may wait for one that has ended, if the
        journal has lost its last report.
        """
        self.world.run_until(lambda: self.world.dispatcher.alive, patience)
        if self._is_forgotten():
            self.allowed |= {"UnavailableError"}
            patience += self.world.job.consumer_timeout
        super()._wait(patience)

    def _is_forgotten(self) -> bool:
        """Return True if the journal lacks steps of a consumer that is gone for good:
        no peer can tell them again.
        """
        rounds = [one.rounds for one in self.world.laws.state.iterations.values()]
        return any(
            one.outcome == "end"
            and not one.alive
            and one.consumer is not None
            and not any(
                each and each.steps[one.consumer] >= one.core.reading.steps for each in rounds
            )
            for one in self.world.clients
        )

    def _acts(self) -> list[Callable[[], object]]:
        return [*[self.set_journal_back] * 12, *super()._acts()]

    def set_journal_back(self) -> None:
        """Restart the dispatcher with the journal that it had some seconds ago."""
        draw, world = self.random, self.world
        assert world.disk is not None
        former = world.disk.content
        world.clock.advance(draw.choice([0.05, 0.5, 1.0, 2.0, 10.0]))
        world.laws.tell(DISPATCHER, "loses the end of its journal")
        if world.dispatcher.alive:
            world.restart_dispatcher(draw.choice([0.01, 0.5, 3.0]))
            world.disk.set_back(former)


class CrowdedScenario(AimedScenario):
    """An ``AimedScenario`` of 65 readers, or of 500, which is dear.

    Example:
        >>> CrowdedScenario(seed=1).run()
    """

    def __init__(self, seed: int) -> None:
        self.crowd = CROWDS[seed % len(CROWDS)]
        super().__init__(seed)
