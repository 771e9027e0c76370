"""A run, a launch or one of its ranks that dies and is started again, while the
dispatcher stalls at some moment from the death to the answer.
"""

from __future__ import annotations

from tests.kit.misfortunes import stall
from tests.kit.programs import RepetitionRead, TrainingProcess, TrainingProgram
from tests.kit.scenario import PATIENCE, Kind, Program
from zmqdata.testing.network import CALM

WAYS = ("run", "run", "launch", "rank", "seat", "seat", "consumers")
"""Parts of a program that die and are started again: a run of one process; all ranks of
a launch, or one of them; one numbered consumer, or all of them.
"""
WAITS = (0.0, 0.0, 0.05, 0.3, 1.0, 3.0)
"""Seconds from the death to the next start."""
LONG_STALLS = (0.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
"""Seconds for which the dispatcher stalls."""
COLLECTIVE = 20.0
"""Seconds for which the other ranks wait for one that died."""
MOMENTS = (0.0, 0.0, 0.0005, 0.002, 0.02, 0.1, 0.5)
"""Seconds between a death or a start and a stall."""


class RelaunchProgram(Program):
    """A training program that dies and is started again.

    Attributes:
        way: the part of the program that dies and is started again.
    """

    stall_dispatcher = stall(LONG_STALLS)

    def begin(self) -> None:
        """Start the workers and the first program."""
        self.way = self.scene.drawn["way"]
        for _ in range(self.random.choice([1, 2])):
            self.add_worker()
        self.world.clock.advance(self.random.choice([0.0, 1.0]))
        self.program = TrainingProgram(self.world, "run 0")
        ranks = [""] if self.way == "run" else ["0", "1"]
        self.readings = {rank: self._begin(self.program, rank) for rank in ranks}

    def _begin(
        self, program: TrainingProgram, rank: str, former: TrainingProcess | None = None
    ) -> RepetitionRead:
        draw = self.random
        consumer = None if self.world.job.num_consumers is None else int(rank)
        # Consumers take each step together.
        pace = 0.05 if consumer is not None else draw.choice([0.05, 0.1])
        reading = program.start(rank, former=former, consumer=consumer).read()
        for client in reading.clients:
            client.pace, client.gulp = pace, 1
        return reading

    # --- death and return

    def run(self) -> None:
        """Let a program die somewhere, start it again, and check what it gets."""
        world, draw = self.world, self.random
        total = len(world.pipeline.names())
        goal = draw.choice([draw.randint(1, total - 1), total - draw.randint(1, 6)])
        world.run_until(lambda: sum(one.taken for one in world.clients) >= goal, PATIENCE)
        moments = [draw.choice(MOMENTS) for _ in range(3)]
        stall = draw.choice([0, 1, 2, 2])  # before the death, after it, or after the next start
        self._stall_if(stall == 0, moments[0])
        if any(client.outcome is not None for client in world.clients):
            return  # a run that has ended in part is another one
        dead = self._kill()
        self._stall_if(stall == 1, moments[1])
        world.clock.advance(draw.choice(WAITS))
        again = self._start_again(dead)
        self._stall_if(stall == 2, moments[2])
        fresh = [client for reading in again for client in reading.clients]
        world.run_until(lambda: all(one.opened or one.outcome for one in fresh), PATIENCE)
        others = [client for client in world.clients if client not in fresh]
        is_beside = any(client.alive and not client.core.finished for client in others)
        if self.way in ("seat", "rank") and not is_beside:
            return  # the others have ended meanwhile, so that its launch begins anew
        world.run_until(lambda: world.all_done, PATIENCE)
        world.clock.advance(3.0)
        self.check_again(again)

    def _stall_if(self, is_due: bool, wait: float) -> None:
        self.world.clock.advance(wait)
        if is_due:
            self.stall_dispatcher()

    def _kill(self) -> list[TrainingProcess]:
        """Kill a process, or all, and return those that died."""
        processes = self.program.processes
        dead = processes[-1:] if self.way in ("rank", "seat") else list(processes)
        for process in dead:
            process.kill()
        for client in self.world.clients:
            # The others wait for the dead rank in their next collective.
            client.stall(COLLECTIVE)
        return dead

    def _start_again(self, dead: list[TrainingProcess]) -> list[RepetitionRead]:
        if self.way == "run":
            return [self._begin(TrainingProgram(self.world, "run 1"), "")]
        self.random.shuffle(dead)
        readings = []
        for process in dead:
            readings.append(self._begin(self.program, process.rank, process))
            self.world.clock.advance(self.random.choice([0.0, 0.01, 0.3]))
        return readings

    # --- what it gets

    def check_again(self, again: list[RepetitionRead]) -> None:
        """Check what was read by what was started again."""
        world, laws, ends = self.world, self.world.laws, self.scene.ends
        outcomes = set().union(*[one.outcomes for one in again])
        if outcomes != {"end"}:
            laws.fail(f"{self.way}: what was started again ends with {outcomes}")
        before = set().union(*[one.places for one in self.readings.values()])
        after = set().union(*[one.places for one in again])
        begins_anew = self.way in ("run", "launch", "consumers")
        if len(after) != 1 or (begins_anew and before & after):
            laws.fail(f"{self.way}: reads {after} after {before}")
        if not begins_anew and after != before:
            laws.fail(f"{self.way}: reads {after} beside {before}")
        if world.job.num_consumers is not None:
            world.steps.check_end(world.pipeline.names())
            return
        iteration = ends.iteration_of(again[0].clients[0])
        assert iteration is not None
        left = ends.owed(iteration)
        if begins_anew:
            left = set(world.pipeline.names()) - {name for one in again for name in one.had}
        readers = {one.name for one in world.clients if ends.iteration_of(one) is iteration}
        if left and not any(ends.records[name].unheard for name in readers):
            laws.fail(f"{self.way}: {len(left)} elements are left, {sorted(left)[:9]}")


RELAUNCH = Kind(
    draws=(
        {
            "way": WAYS,
            "mode": "DYNAMIC",
            "splits": (30, 60, 200),
            "repetitions": 1,
            "most": 1,
            "unit": 1,
            "fails": 0,
            "slips": 0,
            "faults": CALM,
            "client_timeout": (4.0, 15.0, 60.0),
        },
        lambda scene: (
            {"num_consumers": 2, "finite": "drop"}
            if scene.drawn["way"] in ("seat", "consumers")
            else {}
        ),
    ),
    program=RelaunchProgram,
)
"""A training program that dies and is started again."""
