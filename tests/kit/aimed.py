"""A program that acts within the last steps of an iteration, when little is left and
readers are about to end.

``tests.kit.endlaws`` has the laws that they may break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.kit.misfortunes import cut, stall, strike
from tests.kit.scenario import PATIENCE, RATES, Draws, Kind, Program, Scenario, weighted
from tests.kit.world import DISPATCHER, FINE, SimulatedClient, SimulatedWorker
from zmqdata.testing.network import CALM, Faults

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
OF_SHARED = "isolate_client add_client "
ACTS = (
    "kill_worker drain_worker leave_worker kill_worker drain_worker leave_worker kill_client "
    "kill_holder replace_client kill_holder replace_client kill_holder replace_client kill_holder "
    "replace_client freeze_client freeze_holder cut_client cut_holder cut_data cut_worker "
    "crash_dispatcher crash_both close_heir end_dispatcher lose_permission stall_dispatcher "
    "stall_client"
)
CROWDS = (65,) * 39 + (500,)
"""Numbers of readers of the few worlds that have many. One of 500 takes a minute."""


class LastStepsProgram(Program):
    """A program that acts within the last steps of an iteration.

    Attributes:
        job: kind of its job.
        crowd: number of readers; 0: a few.
        places: number of workers that are started again at their addresses when they
            end; 0 if others take their places.
    """

    def begin(self) -> None:
        """Start the workers, and then the readers."""
        draw, world, scene = self.random, self.world, self.scene
        self.job, self.crowd = scene.drawn["way"], scene.drawn.get("readers", 0)
        if world.disk is not None and world.network.faults is CALM:
            world.disk.stalls = 0.0  # hides the second law
        self.places = 2 if self.job == "local" else world.shards
        for _ in range(self.places or draw.choice([1, 2, 2])):
            self.add_worker()
        world.clock.advance(1.0)
        numbers = {"anonymous": 1, "ordered": 1, "numbered": 2, "copies": draw.choice([2, 2, 3])}
        numbers |= dict.fromkeys(BESIDE, draw.choice([2, 3, 3, 4]))
        for number in range(self.crowd or numbers.get(self.job, draw.choice([1, 2, 2, 3]))):
            self.add_reader(number)
            world.clock.advance(0.0 if self.crowd else draw.choice([0.0, 0.0, 0.3]))

    def add_client(self) -> None:
        self.add_reader(self.random.randrange(4))

    def add_reader(self, number: int, **options: Any) -> SimulatedClient:
        """Add a reader: a numbered consumer, or one beside a worker, if the job has
        such.
        """
        beside = tuple([worker.name for worker in self.world.workers[: self.places]])
        if self.job not in BESIDE:
            beside = ()
        elif self.job == "beside" or number != len(beside):  # else beside all of them
            beside = (beside[number % len(beside)],)
        return super().add_reader(number, local_workers=beside)

    # --- the last steps

    def run(self) -> None:
        """Read until little is left, act, and check what the first successor gets."""
        world, draw = self.world, self.random
        total = self._total
        goal = total - draw.randint(1, min(LAST_STEPS, total))
        world.run_until(
            lambda: sum(one.taken for one in world.clients) >= goal or world.all_done, PATIENCE
        )
        self.slow_down()
        for act in self.plan():
            self.pause()
            if not self.reading:
                break
            world.laws.tell("somebody", f"acts: {act}")
            self.befall(act)
        self.calm()
        self.read_to_the_end()
        if not self._is_abandoned():
            self.check()

    def plan(self) -> list[str]:
        """Return what is done, one after the other: at random, or in an order in which
        much depends on what the dispatcher knows.
        """
        draw = self.random
        at_random = draw.sample(self.acts(), draw.choice([1, 2, 2, 3, 4]))
        of_worker = draw.choice(["kill_worker", "drain_worker", "leave_worker"])
        of_holder = ["kill_holder", "kill_holder", "freeze_holder", "cut_holder"]
        after = ["stall_dispatcher", "crash_dispatcher", "lose_permission"]
        return draw.choice(
            [
                at_random,
                [*at_random, "kill_all"],
                [of_worker, "let_pass", "kill_all"],
                [of_worker, "let_pass", "kill_holder", draw.choice(after)],
                [draw.choice(of_holder), "await_done", draw.choice(after)],
            ]
        )

    def slow_down(self) -> None:
        """Let some readers keep the last elements that they have received."""
        draw, readers = self.random, self.reading
        readers.sort(key=lambda client: len(client.queue), reverse=True)
        holders = readers[: max(bool(self.crowd), draw.choice([0, 1, 1, 2, 2, 3]))]
        for client in readers:
            client.pace = draw.choice([0.3, 0.5, 1.0, 5.0, 30.0]) if client in holders else 0.01
            if self.crowd and client in holders:  # which have a single element or two
                client.stall(20.0)

    @property
    def _total(self) -> int:
        names = len(self.world.pipeline.names())
        if self.job == "copied":
            return names * sum(worker.alive for worker in self.world.workers)
        return max(1, names)

    @property
    def reading(self) -> list[SimulatedClient]:
        """The readers that have not ended."""
        return [client for client in self.world.clients if client.outcome is None]

    @property
    def _done(self) -> list[SimulatedClient]:
        records = self.scene.ends.records
        return [one for one in self.reading if one.name in records and records[one.name].done]

    def reach(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until the condition holds, or for so many seconds. Return True
        if it holds.
        """
        clock, limit = self.world.clock, self.world.clock.now + seconds
        while not condition() and clock.now < limit:
            clock.run_next()
        return condition()

    def pause(self) -> None:
        """Let some time pass, or wait for a reader that is done or ends. Meanwhile the
        dispatcher stalls now and then.
        """
        draw, world = self.random, self.world
        if draw.random() < 0.2:
            self.stall_dispatcher()
        ended = sum(client.outcome == "end" for client in world.clients)
        done = len(self._done)
        moments: list[Callable[[], bool]] = [
            lambda: len(self._done) > done,
            lambda: sum(client.outcome == "end" for client in world.clients) > ended,
        ]
        if draw.random() < 0.4:
            self.reach(draw.choice(moments), 1.0)
        else:
            world.clock.advance(draw.choice(PAUSES) * draw.uniform(0.5, 1.5))

    # --- what may happen

    def acts(self) -> list[str]:
        """Return what may be done, more often if it is likelier."""
        # A second reader of a seat would rightly be refused.
        is_shared = not self.world.job.num_consumers and self.job != "anonymous"
        return weighted(OF_SHARED * is_shared + ACTS)

    def holder(self) -> SimulatedClient | None:
        """Return the reader that holds the most elements which it has not handed
        out.
        """

        def held(client: SimulatedClient) -> int:
            return sum(one.stop - one.at for one in client.queue)

        return max(self.reading, key=held, default=None)

    leave_worker = strike(Program.some_worker, "leaves", SimulatedWorker.leave, (), True)
    drain_worker = strike(Program.some_worker, "is drained", SimulatedWorker.drain, (), True)

    def heir(self) -> SimulatedClient | None:
        """Return the only reader that is not done, once others are done."""
        self.reach(lambda: bool(self._done), 3.0)
        heirs = [one for one in self.reading if one not in self._done]
        return heirs[0] if len(heirs) == 1 else None

    close_heir = strike(heir, "closes early", SimulatedClient.close)
    kill_holder = strike(holder, "is killed", SimulatedClient.die)
    freeze_holder = strike(holder, "is frozen for {} s", SimulatedClient.freeze, (1.0, 6.0, 30.0))
    cut_holder = cut(holder)
    stall_dispatcher = stall(STALLS)

    def replace_worker(self, worker: SimulatedWorker | None) -> None:
        """Often start another worker, before this one ends or later.

        A worker with a static shard, or beside a reader, is started again at its
        address.
        """
        if worker is None:
            return
        draw, clock = self.random, self.world.clock
        wait = draw.choice([0.3, 0.3, 1.0, 3.0])
        if self.places:
            clock.after(wait, partial(self._start_again, worker))
        elif draw.random() < 0.7:
            clock.after(wait - 0.3, self.add_worker)

    def _start_again(self, former: SimulatedWorker) -> None:
        """Start a worker at the address of another once that has ended, unless it is
        taken.
        """
        world, address = self.world, former.core.profile.address
        if former.alive:
            world.clock.after(0.2, partial(self._start_again, former))
        elif not any(one.alive and one.core.profile.address == address for one in world.workers):
            worker = world.add_worker()
            worker.core.profile.address = address
            world.network.aliases[address] = worker.name

    def let_pass(self) -> None:
        """Let some seconds pass, in which tasks find their next host."""
        self.world.clock.advance(self.random.uniform(0.5, 6.0))

    def await_done(self) -> None:
        """Wait until a reader is done."""
        self.reach(lambda: bool(self._done), 3.0)
        self.world.clock.advance(self.random.choice([0.0, 0.001, 0.01, 0.5]))

    def replace_client(self) -> None:
        """Kill a reader, and start it again."""
        client = self.some_client()
        if client is not None:
            self._kill(client)
            if self.job == "anonymous":
                return  # a new process has a job of its own
            wait = self.random.choice([0.0, 0.05, 0.5, 2.0])
            number = self.world.clients.index(client)
            self.world.clock.after(wait, lambda: self._add_again(number))

    def _add_again(self, number: int) -> None:
        consumer = number % (self.world.job.num_consumers or 1)
        if not self.world.job.num_consumers or consumer in self.vacant():
            self.add_reader(number)

    def _kill(self, client: SimulatedClient) -> None:
        self.world.laws.tell(client.name, "is killed")
        client.die()

    def end_dispatcher(self) -> None:
        """Close the dispatcher as soon as the first reader ends, for longer than any
        reader waits.
        """
        before = len(self.reading)
        self.reach(lambda: len(self.reading) < before, 5.0)
        self.world.laws.tell(DISPATCHER, "is closed")
        self.world.restart_dispatcher(40.0)

    def lose_permission(self) -> None:
        """Cut the way from the dispatcher to the first reader that is done, for a
        while.
        """
        self.reach(lambda: bool(self._done), 3.0)
        for client in self._done[:1]:
            seconds = self.random.choice([0.01, 0.3, 3.0])
            self.sever([(DISPATCHER, client.name)], seconds, both_ways=False)

    def kill_all(self) -> None:
        """Kill all readers."""
        for client in self.reading:
            self._kill(client)

    # --- and how it ends

    def _is_abandoned(self) -> bool:
        """Return True if no successor may come: the job has ended with its readers, or
        the journal has lost more than can be told again.
        """
        world = self.world
        failed = {client.outcome for client in world.clients} - FINE
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
        placement = self.world.dispatcher.core.hosting.placement
        return all(placement.is_at(one.name) for one in self.world.workers[: self.places])

    def check(self) -> None:
        """Check that the first successors get all that is left."""
        world, job = self.world, self.world.job
        count = job.num_consumers or (2 if self.job in BESIDE else 1)
        outcomes = self._outcomes(count)
        if self.job in BESIDE and AWAY.intersection(outcomes):
            world.clock.advance(20.0)
            outcomes = self._outcomes(count)
        if self.allowed.intersection(outcomes):
            return  # the iteration has failed, which its next readers are told, too
        if outcomes != ["end"] * count:
            world.laws.fail(f"the successors end with {outcomes}")
        if job.num_consumers:
            world.clock.advance(3.0)
            world.steps.check_end(world.pipeline.names())
        elif self.job != "copied":
            for iteration in world.laws.state.iterations.values():
                left = self.scene.ends.owed(iteration)
                if left:
                    world.laws.fail(f"the first successor leaves {sorted(left)[:9]}")

    def _outcomes(self, count: int) -> list[str | None]:
        """Let so many readers, one for each seat or shard, read the rest, and return
        how they end. Those that rightly end without the dispatcher, with a warning,
        leave the rest to the next ones.
        """
        world = self.world
        while True:
            world.run_until(lambda: world.dispatcher.alive and self._has_places(), PATIENCE)
            successors = [self.add_reader(number) for number in range(count)]
            world.run_until(lambda: world.all_done, PATIENCE)
            if not any(self.scene.ends.records[client.name].unheard for client in successors):
                return [client.outcome for client in successors]


class SetBackProgram(LastStepsProgram):
    """Last steps in which the dispatcher restarts with a journal that lacks its last
    records.
    """

    allowed = frozenset({"DataLossError"})

    def wait(self, patience: float) -> None:
        """Also wait as long as consumers may wait for one that has ended, if the
        journal has lost its last report.
        """
        self.world.run_until(lambda: self.world.dispatcher.alive, patience)
        if self._is_forgotten():
            self.allowed |= {"UnavailableError"}
            patience += self.world.job.consumer_timeout
        super().wait(patience)

    def _is_forgotten(self) -> bool:
        """Return True if the journal lacks steps of a consumer that is gone for good:
        no peer can tell them again.
        """
        rounds = [one.rounds for one in self.world.laws.state.iterations.values()]
        gone = [one for one in self.world.clients if one.outcome == "end" and not one.alive]

        def is_known(number: int, steps: int) -> bool:
            return any(each and each.steps[number] >= steps for each in rounds)

        return any(
            one.consumer is not None and not is_known(one.consumer, one.core.reading.steps)
            for one in gone
        )

    def acts(self) -> list[str]:
        return [*["set_journal_back"] * 12, *super().acts()]

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


def seldom_bad(scene: Scenario) -> Faults:
    """Draw the faults of the network.

    Most losses need no bad network, which would hide the second law. A link that breaks
    at one block in twenty never gets a long task through.
    """
    bad = scene.draw_faults()
    return replace(bad, break_link=bad.break_link / 10) if scene.random.random() < 0.2 else CALM


def draw_job(scene: Scenario) -> Draws:
    """Draw the parameters of a kind of jobs."""
    finite = scene.random.choice(["drop", "pad"])
    parameters: dict[str, Draws] = {
        "anonymous": {"anonymous": True},
        "copies": {"anonymous": True},
        "ordered": {"num_consumers": 1, "num_tasks": 2, "finite": "drop"},
        "numbered": {"num_consumers": 2, "finite": finite},
        "static": {"mode": "DATA", "shards": 2},
        "beside": {"mode": "DATA", "shards": 2, "target_workers": "LOCAL"},
        "local": {"target_workers": "LOCAL"},
        "copied": {"mode": "OFF"},
    }
    return {"mode": "DYNAMIC", **parameters.get(scene.drawn["way"], {})}


DRAWS: Draws = {
    "way": JOBS,
    "splits": (7, 30, 60, 100),
    "repetitions": (1, 1, 1, 2),
    "most": (1, 3),
    "unit": (1, 1, 1000),
    "fails": 0,
    "slips": 0,
    "client_timeout": (4.0, 15.0),
    "faults": seldom_bad,
}
AIMED = Kind(
    draws=(DRAWS, draw_job),
    reader={"pace": (0.01, 0.05), "gulp": 1, "rate": RATES},
    program=LastStepsProgram,
)
"""A world that acts within the last steps of an iteration."""
SET_BACK = replace(AIMED, program=SetBackProgram)
"""Such a world whose dispatcher restarts with an older journal."""
CROWDED = replace(
    AIMED,
    draws=(
        {
            "readers": lambda scene: CROWDS[scene.seed % len(CROWDS)],
            **DRAWS,
            "way": "named",
            "splits": lambda scene: 2 * scene.drawn["readers"],
            "repetitions": 1,
            "most": 1,
        },
        draw_job,
    ),
)
"""Such a world of 65 readers, or of 500, which is dear."""
