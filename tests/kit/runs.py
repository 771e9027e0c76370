"""Training programs that start, crash, overlap and start again under one job name.

``tests.kit.runlaws`` checks what each of them reads.
"""

from __future__ import annotations

from functools import partial

from tests.kit.programs import SimulatedLoader, TrainingProcess, TrainingProgram
from tests.kit.runlaws import RunLaws
from tests.kit.scenario import NEVER, PATIENCE, RATES, STORM, TIMEOUTS, Kind, Program, Scenario


class RunsProgram(Program):
    """Several training programs, and the laws of runs.

    Attributes:
        laws: the laws, with the training programs.
    """

    def begin(self) -> None:
        self.laws = RunLaws(self.world)

    # --- what runs do

    def start_run(self, number: int = 0) -> None:
        """Start a training program, of one process, of several ranks, or with a data
        loader.
        """
        draw = self.random
        rule = draw.choice(["share"] * 6 + ["new", "new", "continue", "error"])
        program = TrainingProgram(self.world, f"run {len(self.laws.programs)}", rule)
        self.laws.programs.append(program)
        kind = draw.choice(["single", "ranks", "loaders", "ranks with loaders"])
        ranks = draw.randint(2, 3) if kind.startswith("ranks") else 1
        loader = self._some_loader() if kind.endswith("loaders") else None
        repetitions = draw.choice([1, 1, 2, 3])
        for rank in range(ranks):
            name = str(rank) if ranks > 1 else ""
            self._train(program.start(name, loader=loader), repetitions)

    def _some_loader(self) -> SimulatedLoader:
        draw = self.random
        return SimulatedLoader(
            draw.randint(2, 3),
            is_persistent=draw.choice([False, False, True]),
            is_seeded=draw.choice([False, True]),
            has_copies=draw.choice([False, False, True]),
        )

    def _train(self, process: TrainingProcess, repetitions: int) -> None:
        draw = self.random
        process.rate = draw.choice(RATES)
        process.train(
            repetitions,
            pause=lambda: draw.choice([0.0, 0.1, draw.uniform(0.0, 30.0)]),
            late=draw.choice([0.0, draw.uniform(0.0, 2.0), draw.uniform(0.0, 20.0)]),
        )

    def _replace(self, process: TrainingProcess) -> None:
        """Start a process that has been killed again."""
        successor = process.program.start(process.rank, former=process, loader=process.loader)
        self._train(successor, process.repetitions)

    def _some_run(self) -> TrainingProgram | None:
        living = [program for program in self.laws.programs if program.living]
        return self.random.choice(living) if living else None

    def close_client(self) -> None:
        """Let a training loop leave a repetition early, with all workers of its data
        loader.
        """
        processes = [one for program in self.laws.programs for one in program.living]
        begun = [one.readings[-1] for one in processes if one.readings]
        open_now = [one for one in begun if len(one.opened) == len(one.clients)]
        for client in self.random.choice(open_now).clients if open_now else []:
            self.world.laws.tell(client.name, "closes early")
            client.close()

    def crash_run(self) -> None:
        """Kill all processes of a run. Often its program is started again soon."""
        program = self._some_run()
        if program is None:
            return
        program.kill()
        if self.random.random() < 0.7:
            self.world.clock.after(self.random.uniform(0.0, 5.0), self.start_run)

    def restart_run(self) -> None:
        """Kill all ranks of a run, and start them again under the same key, as torchrun
        does.
        """
        program = self._some_run()
        if program is None or not program.is_ranked:
            return
        former = {process.rank: process for process in program.processes}
        program.kill()
        pause = self.random.choice([0.0, self.random.uniform(0.0, 20.0)])
        for process in former.values():
            self.world.clock.after(pause, partial(self._replace, process))

    def restart_member(self) -> None:
        """Kill a rank of a run, and start it again while the others read on."""
        program = self._some_run()
        living = [] if program is None else program.living
        if program is not None and program.is_ranked and len(living) > 1:
            process = self.random.choice(living)
            process.kill()
            self._replace(process)

    # --- and how it ends

    def end(self) -> None:
        """Let all programs end, and check what each of them had."""
        world, quiet = self.world, self.scene.last + STORM + 25.0
        world.run_until(
            lambda: world.clock.now > quiet and not any(one.living for one in self.laws.programs),
            PATIENCE,
        )
        world.clock.advance(5.0)
        self.laws.check_end()
        world.dispatcher.core.jobs.gc_timeout = 1.0
        world.clock.advance(2 * world.times.client_timeout + 20.0)


RUNS = Kind(
    draws=(
        {
            "mode": "DYNAMIC",
            "client_timeout": TIMEOUTS,
            "gc_timeout": (NEVER, 3.0, 20.0),
            "faults": Scenario.draw_faults,
        },
    ),
    joining={
        "add_worker": ((1, 2, 3), (0.0, 0.0, 5.0)),
        "start_run": ((1, 2, 2, 3), (0.0, 3.0, 20.0)),
    },
    misfortunes="add_worker kill_worker drain_worker slow_worker stall_client freeze_client "
    "cut_client cut_worker cut_dispatcher crash_dispatcher worsen start_run crash_run restart_run "
    "restart_member close_client crash_run restart_run restart_member close_client",
    program=RunsProgram,
)
"""Runs under one job name."""
