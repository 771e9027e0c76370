"""Runs: which incarnation and repetition of a job a client reads, and when it has to
wait until that is known.

A run is a training program with all its processes. Its first client decides which
incarnation of the job the run reads, and all others of the run follow. A script that is
started again is another run: it begins anew unless living readers share the job with
it. No decision here takes an element from a reader, so a wrong guess of who lives costs
work and nothing else.

Decision 0033; protocol 3.13 to 3.16.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from msgspec import structs

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.passes.copies import Copies, CopiesPass
from zmqdata.core.dispatcher.peers.lease import GRACE, Presence
from zmqdata.core.dispatcher.state.outbox import Outbox, derived
from zmqdata.core.dispatcher.state.runs import Incarnation, KnownRun
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.dispatcher.tasks.placement import Placement
from zmqdata.core.job_rules import ON_EXISTING, is_seeded, is_static
from zmqdata.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError

RUNS_KEPT = 10_000
"""Number of runs beyond which the oldest that reads nothing is forgotten."""


@dataclass(frozen=True)
class ClientPass:
    """The pass that a client reads, and how it came to it."""

    how: str
    """Reason for this pass, as in ``IterationOpened``."""
    incarnation: Incarnation | None
    """The incarnation, or None if it is to begin."""
    base: int
    """The repetition that the first pass of its member reads."""
    repetition: int
    """The repetition that the client reads."""
    members: dict[str, u.MemberUpdate]
    """Its member and the copies through which it reads, as known from now on."""
    of_loader: u.PassUpdate | None = None
    """The pass of a data loader to which the client belongs."""
    is_first: bool = False
    """True if its run does not read the incarnation yet."""


class Runs:
    """Finds what clients read, and remembers it for their runs.

    Args:
        out: state and commands.
        presence: finds out which readers are alive.
        placement: the workers, whose configured order numbers the static shards.
    """

    def __init__(self, out: Outbox, presence: Presence, placement: Placement) -> None:
        self.out = out
        self.presence = presence
        self.placement = placement
        self.copies = Copies()
        self._begun: dict[int, float] = {}

    def find(self, ask: m.OpenIteration, now: float) -> ClientPass | str:
        """Return what a client reads, or what must be awaited until that is known.

        Raises:
            AlreadyExistsError: the job exists, and the run is not to join it.
            FailedPreconditionError: living readers do not let the run continue the job.
            InvalidArgumentError: members of the run disagree.
        """
        who = ask.affiliation
        if who.on_existing not in ON_EXISTING:
            raise InvalidArgumentError(
                f"on_existing must be one of {', '.join(ON_EXISTING)}, got {who.on_existing!r}."
            )
        run = self.out.state.runs.get((ask.job.name, who.run))
        return self._first(ask, now) if run is None else self._following(run, ask, now)

    def record(self, ask: m.OpenIteration, found: ClientPass, incarnation: int, now: float) -> None:
        """Record that a client reads this pass."""
        name, key, rule = ask.job.name, ask.affiliation.run, ask.affiliation.on_existing
        runs = self.out.state.runs
        if found.is_first:
            again = (name, key) in runs
            self.out.commit(u.RunUpdate(name, key, incarnation, found.base, rule, again))
            self._forget_old((name, key))
        members = runs[name, key].members
        for one, member in found.members.items():
            before = members.get(one)
            if member != before:
                self.out.commit(member)
            if before is not None and before.loaded != member.loaded:
                self.copies.record_count((name, key, one), before.loaded, now)
        if found.of_loader is not None:
            self.out.commit(found.of_loader)

    def record_loaded(self, ask: m.OpenIteration, iteration: Iteration, now: float) -> None:
        """Record that a client reads an iteration that began from states."""
        run = self.out.state.runs.get((ask.job.name, ask.affiliation.run))
        if run is not None and run.reads.incarnation != iteration.incarnation:
            run = None
        base = iteration.repetition - _number(ask)
        found = self._pass("loaded", ask, run, _member_of(ask), None, base, now)
        self.record(ask, replace(found, is_first=run is None), iteration.incarnation, now)

    def _forget_old(self, own: tuple[str, str]) -> None:
        """Forget the oldest run that reads nothing, if too many are known."""
        state = self.out.state
        if len(state.runs) <= RUNS_KEPT:
            return
        for (job, key), run in state.runs.items():
            incarnation = state.incarnations[run.reads.incarnation]
            if (job, key) != own and not _clients_of(incarnation, key):
                self.out.commit(u.ForgetRunUpdate(job, key))
                return

    def begin(self, ask: m.OpenIteration, found: ClientPass, now: float) -> Iteration:
        """Return the iteration that a client reads, which begins if nobody has read it,
        and record that.
        """
        state, incarnation = self.out.state, found.incarnation
        if incarnation is None or incarnation.is_collected:
            number = state.next_incarnation if incarnation is None else incarnation.number
            self.out.commit(u.BeginIncarnationUpdate(number, ask.job))
            incarnation = state.incarnations[number]
        self.record(ask, found, incarnation.number, now)
        known = incarnation.iterations.get(found.repetition)
        if known is not None:
            return known
        number = state.next_iteration
        seed, num_shards = self.draw(ask.job, number, found.repetition)
        is_over = found.repetition in incarnation.finished
        self.out.commit(
            u.CreateIterationUpdate(
                number, incarnation.number, found.repetition, seed, 0 if is_over else num_shards
            )
        )
        if is_over:  # it was finished and collected; nothing is left to read
            self.out.commit(u.CloseTaskListUpdate(number))
        else:
            how = f"begins: {m.shown_name(ask.client)} reads dataset {ask.job.dataset_id}"
            self.out.note_begin(state.iterations[number], how)
        self._begun[number] = now
        return state.iterations[number]

    def draw(self, job: m.JobParameters, iteration: int, repetition: int) -> tuple[int, int]:
        """Return the seed and the number of static shards of a new iteration."""
        is_drawn = not is_seeded(job)
        seed = self.out.derive_seed(iteration) if is_drawn else derived(job.seed, repetition)
        num_shards = self.placement.num_shards if is_static(job) else 0
        return seed, num_shards if job.num_tasks is None else job.num_tasks

    def open(self, ask: m.OpenIteration, iteration: Iteration, how: str) -> None:
        """Record that a client reads an iteration, and how it came there."""
        who = ask.affiliation
        beside = self.placement.shards_beside(ask.job, ask.local_workers, iteration.num_shards)
        self.out.commit(
            u.OpenClientUpdate(
                ask.client,
                iteration.iteration,
                local_workers=ask.local_workers,
                consumer=ask.reader.consumer_index,
                run=who.run,
                member=who.member,
                process=who.process,
                how=how,
                shards=beside,
                owners=tuple(_owners(ask)),
                script=who.script,
            )
        )
        iteration.traceparent = iteration.traceparent or ask.traceparent
        self._note_reading(iteration, iteration.openings[ask.client])

    def _note_reading(self, iteration: Iteration, opening: u.OpenClientUpdate) -> None:
        """Note which passes of copies a client reads."""
        run = self.out.state.runs.get((iteration.job.name, opening.run))
        passes = []
        for name in opening.owners:
            owner = None if run is None else run.members.get(name)
            one = CopiesPass(iteration.incarnation, opening.run, name, iteration.repetition)
            was_over = owner is not None and iteration.repetition - owner.base <= owner.ended
            if not was_over or self.copies.over_since(one) is not None:
                passes.append(one)  # otherwise it was over before this dispatcher began
        self.copies.record_opening(opening.client, passes)

    def resume(self) -> None:
        """Continue where a former dispatcher left off: passes of copies that are
        finished are over.
        """
        for run in self.out.state.runs.values():
            incarnation = self.out.state.incarnations[run.reads.incarnation]
            for member in list(run.members.values()):
                is_over = incarnation.has_finished(member.base + member.copied)
                if member.copied > member.ended and is_over:
                    self.out.commit(structs.replace(member, ended=member.copied))
        for iteration in self.out.state.iterations.values():
            for opening in iteration.openings.values():
                self._note_reading(iteration, opening)

    def leave(self, job: str, client: str, at_end: bool, now: float) -> None:
        """Record that a client has left, or was given up.

        Args:
            job: name of its job.
            client: the client.
            at_end: True if it has read its repetition to the end.
            now: the time.
        """
        for one in self.copies.record_leaving(client, at_end, now):
            run = self.out.state.runs.get((job, one.run))
            owner = None if run is None else run.members.get(one.owner)
            if run is None or owner is None or run.reads.incarnation != one.incarnation:
                continue
            ended = max(owner.ended, one.repetition - owner.base)
            if ended != owner.ended:
                self.out.commit(structs.replace(owner, ended=ended))

    def has_copies(self, incarnation: Incarnation) -> bool:
        """Return True if copies of the dataset in other processes have read an
        incarnation, so that others of them may still come.
        """
        job, runs = incarnation.job.name, self.out.state.runs
        return any(
            member.copied >= 0
            for key in incarnation.runs
            for member in runs[job, key].members.values()
        )

    def age(self, iteration: Iteration, now: float) -> float:
        """Return the seconds since an iteration began, as far as this dispatcher
        knows.
        """
        return max(0.0, now - self._begun.get(iteration.iteration, now))

    def tick(self, now: float) -> None:
        """Forget iterations that were collected."""
        for number in self._begun.keys() - self.out.state.iterations.keys():
            del self._begun[number]

    # --- a run that reads an incarnation

    def _following(self, run: KnownRun, ask: m.OpenIteration, now: float) -> ClientPass | str:
        who, members = ask.affiliation, run.members
        incarnation = self.out.state.incarnations[run.reads.incarnation]
        name = _member_of(ask)
        others = _others(incarnation, ask)
        is_child = self._is_child_of_rank(members.get(name), others, ask, now)
        if is_child:
            name = f"{who.member} {who.process}"
        known = members.get(name)
        is_new = known is None or known.process != who.process
        if is_new and (who.member or who.is_fresh):
            # Only a known rank in a new process is a sign of a restart.
            is_patient = known is None and not who.is_fresh
            patience = self.presence.leases.timeout if is_patient else GRACE
            lives = self.presence.is_any_alive(others, ask.client, now, patience)
            if lives is None:
                return _awaited(ask.job.name)
            if not lives and (known is not None or others or self._is_left(incarnation, ask)):
                return self._first(ask, now)
        if who.on_existing != run.reads.on_existing:
            raise InvalidArgumentError(
                f"Processes of one run disagree about job {ask.job.name}: the first passed "
                f"on_existing={run.reads.on_existing!r}, this one {who.on_existing!r}. Pass the "
                "same value in every process."
            )
        how, base = "follows", run.reads.base
        if is_new and known is not None and who.member:
            how, base = "restarted", incarnation.newest - _number(ask)
            run = _without(run, name)
        elif is_new and (who.is_fresh or is_child):
            base = incarnation.newest - _number(ask)
        elif known is None and run.reads.again and _number(ask) > 0:
            # Its run began anew while it was between two passes.
            newest = incarnation.newest if others else incarnation.next
            base = newest - _number(ask)
        if self._awaits_siblings(incarnation, run.members, ask, now):
            return _awaited(ask.job.name)
        found = self._pass(how, ask, run, name, incarnation, base, now)
        is_lost = (
            found.repetition in incarnation.begun
            and found.repetition not in incarnation.iterations
            and found.repetition not in incarnation.finished
        )
        if not is_lost:
            return found
        # Nothing is left of a repetition that was collected while it was read.
        if incarnation.is_read:
            base = incarnation.newest - _number(ask)
            return self._pass(how, ask, _without(run, name), name, incarnation, base, now)
        return replace(found, how="begun", incarnation=None, is_first=True)

    def _awaits_siblings(
        self,
        incarnation: Incarnation,
        known: dict[str, u.MemberUpdate],
        ask: m.OpenIteration,
        now: float,
    ) -> bool:
        """Return True if a new copy must wait until it is known whether the copies that
        read before it are alive. If all are dead, their pass is over.
        """
        copies, owner = ask.affiliation.copies, _owners(ask)[-1:]
        if not copies or copies[-1].name in known or not owner or owner[0] not in known:
            return False
        member = known[owner[0]]
        one = CopiesPass(
            incarnation.number, ask.affiliation.run, owner[0], member.base + member.copied
        )
        readers = self.copies.readers(one)
        if not readers:
            return False
        lives = self.presence.is_any_alive(readers, ask.client, now)
        if lives is False:
            for reader in readers:
                self.leave(ask.job.name, reader, at_end=False, now=-math.inf)
        return lives is None

    def _is_child_of_rank(
        self, known: u.MemberUpdate | None, others: dict[str, str], ask: m.OpenIteration, now: float
    ) -> bool:
        """Return True if a client has the rank of a process that reads: then it is a
        child of that process, and not its successor.
        """
        who = ask.affiliation
        if not who.member or known is None or known.process == who.process:
            return False
        former = [client for client, process in others.items() if process == known.process]
        return bool(former) and bool(self.presence.is_any_alive(former, ask.client, now))

    def _is_left(self, incarnation: Incarnation, ask: m.OpenIteration) -> bool:
        """Return True if a client that its run does not know begins anew, because
        nobody reads for the run.

        A rank may be late: it reads what its run has finished, which is nothing. A
        child that makes its own dataset begins a training of its own.
        """
        run = ask.affiliation.run
        if _clients_of(incarnation, run):
            return False
        repetition = self.out.state.runs[ask.job.name, run].reads.base + _number(ask)
        is_begun = repetition in incarnation.begun
        return ask.affiliation.is_fresh or (is_begun and not incarnation.has_finished(repetition))

    # --- a run that is not known yet

    def _first(self, ask: m.OpenIteration, now: float) -> ClientPass | str:
        job, rule = ask.job, ask.affiliation.on_existing
        number, name = _number(ask), _member_of(ask)

        def reading(how: str, incarnation: Incarnation | None, base: int) -> ClientPass:
            found = self._pass(how, ask, None, name, incarnation, base, now)
            return replace(found, is_first=True)

        newest = self.out.state.newest_of(job.name)
        if newest is None or (rule == "new" and newest.job.save is None):
            return reading("begun", None, 0)
        if newest.job.save is not None or newest.job.cache:
            # A save refuses a reader by its parameters. Trainers that share a cache
            # always read the same pass.
            return reading("joined", newest, 0)
        if rule == "error":
            raise AlreadyExistsError(_exists(job.name))
        if rule == "share" and job.num_tasks is not None and job.num_consumers == 1:
            return reading("begun", None, 0)  # a promised order has a single reader
        readers: Iterable[str] = newest.clients
        num_shards = max(one.num_shards for one in newest.iterations.values())
        shards = self.placement.shards_beside(job, ask.local_workers, num_shards)
        if shards and rule == "share":
            if not newest.shards.intersection(shards):
                return reading("begun", newest, newest.begun.ranges[0][0] - number)
            readers = [
                client
                for one in newest.iterations.values()
                for client, opening in one.openings.items()
                if set(opening.shards).intersection(shards)
            ]
        lives = self.presence.is_any_alive(readers, ask.client, now)
        if lives is None:
            return _awaited(job.name)
        if rule == "continue":
            if lives:
                raise FailedPreconditionError(_is_read(job.name))
            return reading("continued", newest, newest.newest - number)
        if lives:
            return reading("joined", newest, newest.newest - number)
        return reading("begun", None, 0)

    # --- which pass it is

    def _pass(
        self,
        how: str,
        ask: m.OpenIteration,
        run: KnownRun | None,
        name: str,
        incarnation: Incarnation | None,
        base: int,
        now: float,
    ) -> ClientPass:
        """Return the pass of a client in an incarnation.

        Args:
            how: as in ``ClientPass``.
            ask: the client's request.
            run: its run with the members that are known; None if none is.
            name: its member.
            incarnation: the incarnation, or None if it is to begin.
            base: the repetition that the first pass of the member reads, if the member
                is not known.
            now: the time.
        """
        who = ask.affiliation
        known = {} if run is None else run.members

        def member_of(name: str, base: int) -> u.MemberUpdate:
            return u.MemberUpdate(ask.job.name, who.run, name, who.process, base=base, used=-1)

        line = {name: known.get(name) or member_of(name, base)}
        for copy in who.copies:
            owner = line[name]
            found = known.get(copy.name)
            if found is None:
                made = now - max(0.0, copy.age)
                first = self._pass_after(incarnation, ask, name, owner, made)
                # Passes of a data loader are counted from 0, iterators from those that
                # were made before the object was copied.
                is_loaders = who.reading_pass is not None and copy is who.copies[-1]
                base = owner.base + first - (0 if is_loaders else ask.repetition)
                found = member_of(copy.name, base)
            name, line[copy.name] = copy.name, found
        passes = [] if run is None else run.passes.get(name, [])
        reader, part = line[name], _pass_of(line[name], passes, ask)
        if part is None:
            number = self._pass_after(incarnation, ask, name, reader, now)
            added = number - ask.repetition - reader.loaded
        else:
            number = part.number
            added = int(number > reader.used)
        repetition = max(0, reader.base + number)
        owners = _owners(ask, line)
        members = {
            one: structs.replace(
                member,
                used=max(member.used, repetition - member.base),
                loaded=member.loaded + (added if one == name else 0),
                copied=max(member.copied, repetition - member.base if one in owners else -1),
            )
            for one, member in line.items()
        }
        first_base = next(iter(line.values())).base
        return ClientPass(how, incarnation, first_base, repetition, members, part)

    def _pass_after(
        self,
        incarnation: Incarnation | None,
        ask: m.OpenIteration,
        owner: str,
        member: u.MemberUpdate,
        made: float,
    ) -> int:
        """Return the number of the first pass of a member's iterator or copy that its
        copies had not ended when it was made.
        """
        run = ask.affiliation.run
        loaded = self.copies.count_at((ask.job.name, run, owner), made, member.loaded)
        number = ask.repetition + loaded
        while incarnation is not None and number <= member.copied:
            repetition = member.base + number
            where = CopiesPass(incarnation.number, run, owner, repetition)
            since = self.copies.over_since(where)
            # Without a time, a former dispatcher let the copies in.
            if (number > member.ended) if since is None else (since > made):
                break
            number += 1
        return number


def _member_of(ask: m.OpenIteration) -> str:
    """Return the member that made the dataset object: its rank, or its process."""
    return ask.affiliation.member or ask.affiliation.process


def _owners(ask: m.OpenIteration, line: Iterable[str] = ()) -> list[str]:
    """Return the members of which a client reads a copy, or whose data loader it
    serves.
    """
    who = ask.affiliation
    line = list(line) or [_member_of(ask), *(copy.name for copy in who.copies)]
    return line if who.reading_pass is not None else line[:-1]


def _clients_of(incarnation: Incarnation, run: str) -> dict[str, str]:
    """Return the clients of a run at an incarnation, with their processes."""
    return {
        client: opening.process
        for one in incarnation.iterations.values()
        for client, opening in one.openings.items()
        if opening.run == run
    }


def _others(incarnation: Incarnation, ask: m.OpenIteration) -> dict[str, str]:
    """Return the clients of other processes of a run, with their processes."""
    found = _clients_of(incarnation, ask.affiliation.run)
    return {name: one for name, one in found.items() if one != ask.affiliation.process}


def _number(ask: m.OpenIteration) -> int:
    """Return the number of a client's pass if its member was not known before."""
    is_loaded = ask.affiliation.reading_pass is not None and not ask.affiliation.copies
    return 0 if is_loaded else ask.repetition


def _without(run: KnownRun, member: str) -> KnownRun:
    """Return a run that does not know a member."""
    rest = {one: known for one, known in run.members.items() if one != member}
    return KnownRun(run.reads, rest, {one: run.passes.get(one, []) for one in rest})


def _pass_of(
    known: u.MemberUpdate, passes: list[u.PassUpdate], ask: m.OpenIteration
) -> u.PassUpdate | None:
    """Return the pass of a data loader that a client belongs to, with this client; None
    outside of data loaders.

    Workers with the same seed and the same turn read together. A worker that has begun
    the pass in another process begins the next one: a data loader may use the same seed
    in every epoch.
    """
    who, part = ask.affiliation, ask.affiliation.reading_pass
    if part is None:
        return None
    number = known.used + 1
    for one in reversed(passes):
        if (one.seed, one.turn) == (part.seed, part.turn):
            if one.workers.get(part.worker, part.process) == part.process:
                number = one.number
            break
    return u.PassUpdate(
        ask.job.name,
        who.run,
        known.member,
        number=number,
        seed=part.seed,
        turn=part.turn,
        workers={part.worker: part.process},
    )


def _awaited(job: str) -> str:
    return f"it to be known whether readers of job {job} are alive"


def _exists(job: str) -> str:
    return (
        f"Job {job} exists, and on_existing='error' refuses that. Probably another run uses the "
        "name, or an earlier one did. Choose another job_name, or pass on_existing='new' to begin "
        "anew."
    )


def _is_read(job: str) -> str:
    return (
        f"Job {job} has living readers, and on_existing='continue' takes over what readers have "
        "left that are gone. Stop their programs first, or pass on_existing='share' to read with "
        "them. Processes that continue together belong to one run: set ZMQDATA_RUN_ID to the same "
        "text in all of them."
    )
