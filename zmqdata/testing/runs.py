"""Scenarios in which training programs start, crash, overlap and start again under one
job name.

No run may get less than an epoch without being told, and no element may come twice
within an incarnation of the job.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.dispatcher.decider import DispatcherTimes
from zmqdata.testing.network import CALM
from zmqdata.testing.runner import Name, SimulatedPipeline
from zmqdata.testing.scenario import NEVER, PATIENCE, RATES, STORM, Scenario
from zmqdata.testing.world import SimulatedClient, World

TOLD = {"joined", "restarted", "continued"}
"""Ways to come to an iteration that the client's log tells."""
Where = tuple[int, int]
"""An incarnation and a repetition."""
LOOKS = 0.25
"""Seconds between two looks at whether a member has read its epoch."""


@dataclass
class SimulatedMember:
    """A training process of a run."""

    rank: str
    """Its rank, or empty."""
    process: str
    """The operating system's process."""
    loaders: int
    """Number of workers of its data loader; 0 if it reads by itself."""
    repetition: int = 0
    """Number of the repetition that it reads."""
    reading: list[SimulatedClient] = field(default_factory=list)
    """The clients that read the repetition."""
    is_over: bool = False
    """True if it has read all repetitions, or is dead."""


@dataclass
class SimulatedRun:
    """A training program."""

    key: str
    """Key of the run."""
    repetitions: int
    """Number of repetitions that each member reads."""
    on_existing: str
    """Requested reaction if the name is in use."""
    members: list[SimulatedMember] = field(default_factory=list)
    """Its processes."""
    clients: list[SimulatedClient] = field(default_factory=list)
    """All clients that it ever had."""
    has_lost: bool = False
    """True if a process of it died or left early."""


@dataclass
class Outcome:
    """Outcome of an iteration."""

    finished: bool
    """True if the dispatcher knows that every element was delivered."""
    found: Counter[Name]
    """The elements that training loops took and kept."""
    expected: Counter[Name]
    """The elements that it had to deliver."""


class RunsScenario(Scenario):
    """Runs under one job name, with misfortunes.

    Args:
        seed: decides everything.

    Example:
        >>> RunsScenario(seed=1).run()
    """

    def _make_world(self, seed: int, pipeline: SimulatedPipeline) -> World:
        draw = self.random
        self.runs: list[SimulatedRun] = []
        self.outcomes: dict[Where, Outcome] = {}
        self._numbers = itertools.count()
        self.times = DispatcherTimes(
            client_timeout=draw.choice([2.0, 4.0, 15.0]),
            gc_timeout=draw.choice([NEVER, 3.0, 20.0]),
        )
        world = World(seed, "DYNAMIC", pipeline, self._faults(), self.times, journalled=True)
        world.laws.on_collected.append(self._note_outcomes)
        return world

    def _people(self) -> None:
        """Schedule workers, and one to three runs."""
        draw = self.random
        for _ in range(draw.randint(1, 3)):
            self._at(draw.choice([0.0, 0.0, draw.uniform(0, 5)]), self.add_worker)
        for _ in range(draw.choice([1, 2, 2, 3])):
            self._at(draw.choice([0.0, draw.uniform(0, 3), draw.uniform(0, 20)]), self.start_run)

    @property
    def _misfortunes(self) -> list[Callable[[], object]]:
        return [
            self.add_worker,
            self.kill_worker,
            self.drain_worker,
            self.slow_worker,
            self.stall_client,
            self.freeze_client,
            self.cut_client,
            self.cut_worker,
            self.cut_dispatcher,
            self.crash_dispatcher,
            self.worsen,
            self.start_run,
            *[self.crash_run, self.restart_run, self.restart_member] * 2,
        ]

    # --- what runs do

    def start_run(self) -> None:
        """Start a training program, of one process, of several ranks, or with a data
        loader.
        """
        draw = self.random
        kind = draw.choice(["single", "ranks", "loaders", "ranks with loaders"])
        ranks = draw.randint(2, 3) if kind.startswith("ranks") else 1
        loaders = draw.randint(2, 3) if kind.endswith("loaders") else 0
        run = SimulatedRun(
            f"run {len(self.runs)}",
            repetitions=draw.choice([1, 1, 2, 3]),
            on_existing=draw.choice(["share", "share", "share", "new"]),
        )
        self.runs.append(run)
        for rank in range(ranks):
            name = str(rank) if ranks > 1 else ""
            self._start_member(run, SimulatedMember(name, self._new_process(), loaders))

    def _new_process(self) -> str:
        return f"process {next(self._numbers)}"

    def _start_member(self, run: SimulatedRun, member: SimulatedMember) -> None:
        run.members.append(member)
        self.world.laws.tell(run.key, f"starts {member.process} as rank {member.rank!r}")
        late = self.random.choice([0.0, self.random.uniform(0.0, 2.0)])
        self.world.clock.after(late, lambda: self._begin_repetition(run, member))

    def _begin_repetition(self, run: SimulatedRun, member: SimulatedMember) -> None:
        if member.is_over:
            return
        seed = self.random.choice([7, self.random.getrandbits(31)])
        member.reading = []
        for worker in range(max(1, member.loaders)):
            part = m.ReadingPass(seed, 0, worker, self._new_process()) if member.loaders else None
            client = self.world.add_client(
                repetition=member.repetition,
                affiliation=m.Affiliation(
                    run.key, member.rank, member.process, part, run.on_existing
                ),
            )
            client.rate = self.random.choice(RATES)
            self.world.laws.tell(client.name, f"reads repetition {member.repetition} of {run.key}")
            member.reading.append(client)
        run.clients += member.reading
        self._look(run, member)

    def _look(self, run: SimulatedRun, member: SimulatedMember) -> None:
        """Begin the next repetition once this one is read."""
        if member.is_over:
            return
        ends = {client.outcome for client in member.reading}
        if None in ends:
            self.world.clock.after(LOOKS, lambda: self._look(run, member))
            return
        if ends - {"end", "NotFoundError"}:
            self.world.laws.fail(f"a member of {run.key} ended with {ends}", run.key)
        # A client that was silent until its job was collected gets an error.
        run.has_lost |= "NotFoundError" in ends
        member.repetition += 1
        if member.repetition == run.repetitions:
            member.is_over = True
            return
        pause = self.random.choice([0.0, 0.1, self.random.uniform(0.0, 30.0)])
        self.world.clock.after(pause, lambda: self._begin_repetition(run, member))

    def _kill_member(self, run: SimulatedRun, member: SimulatedMember) -> None:
        self.world.laws.tell(run.key, f"loses {member.process}")
        member.is_over = run.has_lost = True
        for client in member.reading:
            if client.outcome is None:
                client.die()

    def _some_run(self) -> SimulatedRun | None:
        living = [run for run in self.runs if any(not one.is_over for one in run.members)]
        return self.random.choice(living) if living else None

    def crash_run(self) -> None:
        """Kill all processes of a run. Often its program is started again soon."""
        run = self._some_run()
        if run is None:
            return
        for member in run.members:
            self._kill_member(run, member)
        if self.random.random() < 0.7:
            self.world.clock.after(self.random.uniform(0.0, 5.0), self.start_run)

    def restart_run(self) -> None:
        """Kill all ranks of a run, and start them again under the same key, as torchrun
        does.
        """
        run = self._some_run()
        if run is None or not all(member.rank for member in run.members):
            return
        former = {member.rank: member for member in run.members}
        for member in run.members:
            self._kill_member(run, member)
        for rank, member in former.items():
            self._start_member(run, SimulatedMember(rank, self._new_process(), member.loaders))

    def restart_member(self) -> None:
        """Kill a rank of a run, and start it again while the others read on."""
        run = self._some_run()
        living = [] if run is None else [one for one in run.members if not one.is_over]
        if run is None or len(living) < 2:
            return
        member = self.random.choice(living)
        self._kill_member(run, member)
        self._start_member(run, SimulatedMember(member.rank, self._new_process(), member.loaders))

    # --- and how it ends

    def run(self) -> None:
        """Run the scenario, and check what each run had.

        Raises:
            LawBroken: with the story of what went wrong.
        """
        world = self.world
        world.run_until(lambda: world.clock.now > self.last + STORM)
        self._keep_a_worker()
        world.network.faults = CALM
        world.run_until(lambda: self._is_over, PATIENCE)
        world.clock.advance(5.0)
        for incarnation in world.laws.state.living:
            self._note_outcomes(incarnation.number)
        self.check_elements()
        world.dispatcher.core.jobs.gc_timeout = 1.0
        world.clock.advance(2 * self.times.client_timeout + 40.0)
        world.laws.check_empty(
            world.dispatcher.core, {one.name: one.core for one in world.workers if one.alive}
        )

    @property
    def _is_over(self) -> bool:
        return all(member.is_over for run in self.runs for member in run.members)

    def _note_outcomes(self, incarnation: int) -> None:
        """Record what came of the iterations of an incarnation, before it is
        collected.
        """
        laws = self.world.laws
        for iteration in laws.state.incarnations[incarnation].iterations.values():
            tasks, where = iteration.tasks.keys(), (incarnation, iteration.repetition)
            if where in self.outcomes:
                continue  # begun again for a late reader, although it was finished
            found = Counter(laws.names[one] for one in laws.owners if one[0] in tasks)
            names = self.world.pipeline.names()
            expected = laws.without_slips(tasks, names) if tasks else Counter()
            self.outcomes[where] = Outcome(iteration.finished, found, expected)

    def check_elements(self) -> None:
        """Check what came of each repetition, and what each run had.

        Raises:
            LawBroken: an element came twice, or a run was silently short of one.
        """
        for where, outcome in self.outcomes.items():
            surplus = outcome.found - Counter(self.world.pipeline.names())
            if surplus:
                self.world.laws.fail(f"{where} gave twice {sorted(surplus)[:9]}")
            if outcome.finished and outcome.expected - outcome.found:
                missing = sorted(outcome.expected - outcome.found)
                self.world.laws.fail(f"{where} ended without {missing[:9]}")
        for run in self.runs:
            if not run.has_lost:
                self.check_run(run)

    def check_run(self, run: SimulatedRun) -> None:
        """Check that a run of which no process died had whole repetitions, unless its
        clients were told otherwise.
        """
        laws = self.world.laws
        read: dict[Where, set[str]] = {}
        for client in run.clients:
            if client.opened is not None:
                read.setdefault(_where(client.opened), set()).add(client.opened.how)
        for where, hows in read.items():
            if hows & TOLD or self.is_shared(where, run):
                continue
            outcome = self.outcomes.get(where)
            if outcome is None or not outcome.finished or outcome.expected - outcome.found:
                laws.fail(f"{run.key} was not told that it had less of {where}: {hows}")
        # Each pass is a repetition of its own: none was read twice or left out.
        if len(read) != run.repetitions:
            laws.fail(f"{run.key} read {sorted(read)} in {run.repetitions} repetitions")

    def is_shared(self, where: Where, run: SimulatedRun) -> bool:
        """Return True if another run has read a repetition, too."""
        return any(
            client.opened is not None and _where(client.opened) == where
            for other in self.runs
            if other is not run
            for client in other.clients
        )


def _where(opened: m.IterationOpened) -> Where:
    return opened.incarnation, opened.repetition
