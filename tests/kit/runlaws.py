"""The laws of runs: which incarnation and repetition of a job a training program may
read, and what it must have had of it in the end.

Decision 0033; protocol 3.13 to 3.16.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.kit.programs import RepetitionRead, TrainingProcess, TrainingProgram, Where
from tests.kit.runner import Name
from tests.kit.world import DISPATCHER, FINE, SimulatedClient, World, was_awake
from zmqdata.updates import OpenClientUpdate

FLIGHT = 5.0
"""Seconds for which a message may be in flight, in the worst network."""
LONGEST_CUT = 30.0
"""Seconds for which a severed connection may keep a message."""
FIRST = ("begun", "joined", "continued", "loaded")
"""Ways in which a run begins to read an incarnation."""
USUAL = 3.0
"""Seconds before a request during which nothing may have gone wrong, for its answer to
be certain.
"""


@dataclass
class Opening:
    """An iterator that was let in."""

    client: SimulatedClient
    """The iterator."""
    process: TrainingProcess
    """Its process."""
    number: int
    """Number of the repetition among those of its process."""
    where: Where
    """The incarnation and the repetition that it reads."""
    how: str
    """Reason for this place."""
    was_finished: bool
    """True if no element was left there."""

    @property
    def program(self) -> TrainingProgram:
        """Its program."""
        return self.process.program


@dataclass
class Outcome:
    """Elements of a repetition of an incarnation."""

    finished: bool = False
    """True if the dispatcher knows that every element was delivered."""
    found: Counter[Name] = field(default_factory=Counter)
    """The elements that training loops took and kept."""
    expected: Counter[Name] = field(default_factory=Counter)
    """The elements that it had to deliver."""
    tasks: set[int] = field(default_factory=set)
    """Its tasks."""


class RunLaws:
    """Observer of the training programs of a world.

    Args:
        world: the world.

    Attributes:
        programs: the programs, which the scenario adds.
        outcomes: what came of each repetition.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.programs: list[TrainingProgram] = []
        self.outcomes: dict[Where, Outcome] = {}
        self.openings: list[Opening] = []
        world.laws.on_opened.append(self._opened)
        world.laws.on_collected.append(self.note_outcomes)

    # --- when an iterator is let in

    def _opened(self, update: OpenClientUpdate) -> None:
        found = [
            (client, process, reading)
            for program in self.programs
            for process in program.processes
            for reading in process.readings
            for client in reading.clients
            if client.core.client == client.name == update.client
        ]
        if not found:
            return  # an iterator that was given up reads on where it was
        client, process, reading = found[0]
        iteration = self.world.laws.state.iterations[update.iteration]
        where = iteration.incarnation, iteration.repetition
        number = self._number_of(process, reading, where[0])
        opening = Opening(client, process, number, where, update.how, iteration.finished)
        self._check_told(opening)
        self._check_rule(opening)
        self._check_reason(opening)
        self._check_shared(opening)
        self._check_place(opening)
        self.openings.append(opening)

    def _number_of(self, process: TrainingProcess, reading: RepetitionRead, at: int) -> int:
        """Return the number of a repetition among those of its process.

        Passes of a data loader count if one of its iterators was let in at this
        incarnation: the dispatcher numbers them as they appear there.
        """
        if process.loader is None:
            return reading.number
        known = {one.client.name for one in self._before(at)}
        former = process.readings[: reading.number]
        return sum(any(client.name in known for client in one.clients) for one in former)

    def _before(self, incarnation: int) -> list[Opening]:
        return [one for one in self.openings if one.where[0] == incarnation]

    def _own(self, new: Opening) -> list[Opening]:
        return [one for one in self.openings if one.program is new.program]

    @property
    def _newest(self) -> int:
        return max((one.where[0] for one in self.openings), default=0)

    @property
    def _living(self) -> set[int]:
        return {one.number for one in self.world.laws.state.living}

    def _check_told(self, new: Opening) -> None:
        """Check that whoever does not begin is told how it came to what others have
        read.
        """
        before = self._before(new.where[0])
        own = [one for one in before if one.program is new.program]
        if not before:
            allowed = {"begun", "loaded"}
        elif not own:
            allowed = {"joined", "continued"}
        else:
            allowed = {"follows", "restarted", "joined", "continued", "loaded"}
        if new.how not in allowed:
            self._fail(new, f"must be one of {sorted(allowed)}")
        rule = new.program.on_existing
        if rule == "new" and new.how in ("joined", "continued"):
            self._fail(new, "was to begin anew")
        is_odd = (new.how == "continued") != (rule == "continue")
        if new.how in ("joined", "continued") and is_odd:
            self._fail(new, f"had asked for {rule!r}")

    def _check_rule(self, new: Opening) -> None:
        """Check that a program which is not to begin beside others does not."""
        rule, newest = new.program.on_existing, self._newest
        begins = new.how == "begun" and not self._own(new)
        if rule in ("continue", "error") and begins and newest in self._living:
            self._fail(new, f"had asked for {rule!r}, and incarnation {newest} exists")

    def _check_reason(self, new: Opening) -> None:
        """Check that nobody reads what only dead processes have read.

        A new rank of a launch cannot be told from one that is late: if the repetition
        is finished, it is empty, and its client warns.
        """
        incarnation = self.world.laws.state.incarnations[new.where[0]]
        is_empty = new.how == "follows" and incarnation.has_finished(new.where[1])
        if new.how in ("begun", "loaded", "continued") or is_empty:
            return
        before = self._before(new.where[0])
        if new.how == "joined":
            reasons = [self._may_live(one.client, new.client.asked) for one in before]
        else:
            reasons = [self._is_reason(one, new) for one in before]
        if not any(reasons):
            self._fail(new, "has no reader that lives")
        if new.how == "restarted" and not self._is_successor(new):
            self._fail(new, "has no predecessor")

    def _is_reason(self, one: Opening, new: Opening) -> bool:
        """Return True if a run may follow its opening."""
        mine, other = new.process, one.process
        if other.program is not mine.program:
            return False
        if other is mine or self._may_live(one.client, new.client.asked):
            return True
        if other.died is None or mine.begun < other.died or other.died > new.client.asked - FLIGHT:
            return True  # it pauses or has read all; or both belong to the same start
        return one.client.outcome != "killed" and not self._is_successor(new)

    def _is_successor(self, new: Opening) -> bool:
        processes = {one.process for one in self._before(new.where[0])} - {new.process}
        return any(one.rank == new.process.rank for one in processes)

    def _may_live(self, client: SimulatedClient, asked: float) -> bool:
        """Return True if a sign of an iterator may have come after another asked."""
        died = client.died
        if died is None:
            return True
        was_cut = self.world.network.was_severed(DISPATCHER, died - FLIGHT)
        return died > asked - (LONGEST_CUT + FLIGHT if was_cut else FLIGHT)

    def _check_shared(self, new: Opening) -> None:
        """Check that a program does not begin anew beside readers that certainly
        live, and that it continues none of them.
        """
        begins = new.how == "begun" and new.program.on_existing == "share"
        if not begins and new.how != "continued":
            return
        own = self._own(new)
        if new.how == "begun" and own and own[-1].where[0] not in self._living:
            return  # nothing was left of what its run was reading
        for one in self._before(self._newest):
            if self._surely_reads(one.client, new.client.asked):
                self._fail(new, f"{one.client.name} reads {one.where} for {one.program.key}")

    def _surely_reads(self, client: SimulatedClient, asked: float) -> bool:
        """Return True if an iterator reads, and nothing can hide that."""
        world, since = self.world, asked - USUAL
        return (
            world.network.is_steady(since)
            and client.core.client in world.laws.state.client_iteration
            and client.asked < since
            and was_awake(client, since)
            and was_awake(world.dispatcher, since)
            and not world.network.was_severed(client.name, since, DISPATCHER)
        )

    def _has_lost(self, incarnation: int) -> bool:
        """Return True if a repetition of an incarnation was collected before it was
        finished.
        """
        found = [one for where, one in self.outcomes.items() if where[0] == incarnation]
        return not all(one.finished for one in found)

    def _check_place(self, new: Opening) -> None:
        """Check that the iterators of a program read the newest incarnation that it
        knows, and count its repetitions alike.
        """
        own = self._own(new)
        if own and new.where[0] < own[-1].where[0] and new.how != "joined":
            self._fail(new, f"had gone on to {own[-1].where}")
        first = [at for at, one in enumerate(own) if one.how in FIRST]
        former, since = own[: max(first, default=0)], own[max(first, default=0) :]
        # A process with the rank of another one was restarted, or counts as its child.
        ranks = {one.process for one in former}
        for one in (*since, new):
            namesakes = {other.process for other in own if other.process.rank == one.process.rank}
            if one.process.rank and namesakes - {one.process}:
                ranks.add(one.process)
        for one in since if new.how not in (*FIRST, "restarted") else []:
            # Ranks that were restarted, or whose run began anew, go on from there.
            is_late = self._has_late_copies(one) or self._has_late_copies(new)
            is_alike = ranks.isdisjoint({one.process, new.process}) and not is_late
            is_mine = one.process is new.process and not new.process.loader
            is_unlike = one.where[1] - one.number != new.where[1] - new.number
            # Processes that find a repetition lost go on with a later one.
            if (is_mine or is_alike) and is_unlike and not self._has_lost(new.where[0]):
                self._fail(new, f"counts unlike {one.client.name}, {one.where} for {one.number}")

    def _has_late_copies(self, last: Opening) -> bool:
        """Return True if the passes of copies may be told apart wrongly.

        Copies that come after the end of their repetition are parted, and the
        dispatcher may not know of an end.
        """
        process, world = last.process, self.world
        own = [one for one in [*self.openings, last] if one.process is process]
        return process.has_copies and (
            any(one.was_finished for one in own)
            or world.network.was_lossy
            or world.network.was_severed(DISPATCHER, process.begun)
            or world.dispatcher.awake_since > process.begun
            or any(client.awake_since > client.asked for client in process.clients)
        )

    def _fail(self, new: Opening, text: str) -> None:
        name, key, process = new.client.name, new.program.key, new.process
        text = f"reads {new.where} as its number {new.number}, how={new.how!r}: {text}"
        text = f"{name} of {key} ({process.name}, rank {process.rank!r}) {text}"
        self.world.laws.fail(text, key, name)

    # --- in the end

    def note_outcomes(self, incarnation: int) -> None:
        """Record what came of the iterations of an incarnation, before it is
        collected.
        """
        laws = self.world.laws
        for iteration in laws.state.incarnations[incarnation].iterations.values():
            outcome = self.outcomes.setdefault((incarnation, iteration.repetition), Outcome())
            outcome.finished |= iteration.finished
            if not iteration.tasks:
                continue
            if not outcome.tasks.issubset(iteration.tasks):
                laws.fail(f"{incarnation, iteration.repetition} began again with all elements")
            outcome.tasks |= iteration.tasks.keys()
            outcome.found = laws.had(iteration.tasks)
            outcome.expected = laws.without_slips(iteration.tasks, self.world.pipeline.names())

    def check_end(self) -> None:
        """Check what came of each repetition, once nobody reads any more.

        Raises:
            LawBroken: an element came twice, or a repetition is not whole although no
                reader of it has left early.
        """
        for incarnation in self.world.laws.state.living:
            self.note_outcomes(incarnation.number)
        for where, outcome in self.outcomes.items():
            self._check_outcome(where, outcome)
        for program in self.programs:
            self._check_ends(program)

    def _check_outcome(self, where: Where, outcome: Outcome) -> None:
        laws = self.world.laws
        surplus = outcome.found - Counter(self.world.pipeline.names())
        missing = outcome.expected - outcome.found
        if surplus:
            laws.fail(f"{where} gave twice {sorted(surplus)[:9]}")
        if outcome.finished and missing:
            laws.fail(f"{where} ended without {sorted(missing)[:9]}")
        readers = [one for one in self.openings if one.where == where]
        unreported = {laws.names[one] for one in laws.lost if one[0] in outcome.tasks}
        never_taken = missing.keys() - unreported
        if never_taken and all(one.client.outcome == "end" for one in readers):
            laws.fail(f"{where} lacks {sorted(never_taken)[:9]}, and all its readers have ended")

    def _check_ends(self, program: TrainingProgram) -> None:
        """Check that no iterator of a program ended with an error that nothing
        explains.
        """
        for process in program.processes:
            for client in process.clients:
                if client.outcome not in FINE and not self.is_explained(process, client):
                    text = f"{client.name} of {program.key} ended with {client.outcome}"
                    self.world.laws.fail(text, client.name)

    def is_explained(self, process: TrainingProcess, client: SimulatedClient) -> bool:
        """Return True if an error of an iterator is what its program has asked for, or
        follows from its absence.
        """
        rule = process.program.on_existing
        was_absent = (
            self.world.network.was_lossy
            or self.world.network.was_severed(client.name, client.asked)
            or client.awake_since > client.asked
            or self.world.dispatcher.awake_since > client.asked
        )
        # A repeated request of a client that was refused may still be let in.
        return {
            "NotFoundError": was_absent,
            "AlreadyExistsError": rule == "error",
            "FailedPreconditionError": rule == "continue"
            and any(self._may_live(one.client, client.asked) for one in self.openings),
        }.get(client.outcome or "", False)
