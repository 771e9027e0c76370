"""Runs: which incarnation and repetition of a job a client reads, and when it has to
wait until that is known.

A run is a training program with all its processes. The first client of a run binds it
to an incarnation of the job, and all others of the run follow. A script that is started
again is another run: it begins anew unless living readers share the job with it. No
decision here takes an element from a reader, so a wrong guess of who lives costs work
and nothing else.

Decision 0033; protocol 3.13 to 3.16.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.lease import Leases
from zmqdata.core.dispatcher.liveness import Roster
from zmqdata.core.dispatcher.placement import Placement
from zmqdata.core.dispatcher.state.outbox import Outbox, derived
from zmqdata.core.dispatcher.state.runs import Binding, Incarnation, RunMember
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.job_rules import ON_EXISTING, is_static
from zmqdata.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError

GRACE = 1.5
"""Seconds without a connection after which a reader counts as gone."""
BINDINGS_KEPT = 10_000
"""Number of bindings beyond which the oldest of a run that reads nothing is
forgotten.
"""
ASKED_KEPT = 60.0
"""Seconds for which the time of a client's first request is remembered."""


@dataclass(frozen=True)
class ReadingPlace:
    """The incarnation and the repetition that a client reads."""

    how: str
    """Reason for this place, as in ``IterationOpened``."""
    incarnation: Incarnation | None
    """The incarnation, or None if it is to begin."""
    base: int
    """The repetition that the first pass of its member reads."""
    number: int
    """Number of its pass among those of its member."""
    member: str
    """Name of its member: a rank, or a process."""
    binds: bool = False
    """True if its run is not bound to the incarnation yet."""

    @property
    def repetition(self) -> int:
        """The repetition that the client reads."""
        return max(0, self.base + self.number)


class Runs:
    """Finds what clients read, and binds their runs.

    Args:
        out: state and commands.
        clients: the living clients.
        absent: the clients that have been silent for too long.
        leases: knows which clients read on without the dispatcher.
        placement: the workers, whose configured order numbers the static shards.
    """

    def __init__(
        self,
        out: Outbox,
        clients: Roster,
        absent: Collection[str],
        leases: Leases,
        placement: Placement,
    ) -> None:
        self.out = out
        self.clients = clients
        self.absent = absent
        self.leases = leases
        self.placement = placement
        self._asked: dict[str, float] = {}
        self._begun: dict[int, float] = {}

    def find(self, ask: m.OpenIteration, now: float) -> ReadingPlace | str:
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
        binding = self.out.state.bindings.get((ask.job.name, who.run))
        found = self._first(ask, now) if binding is None else self._bound(binding, ask, now)
        if not isinstance(found, str):
            self._asked.pop(ask.client, None)
        return found

    def bind(self, ask: m.OpenIteration, place: ReadingPlace, incarnation: int) -> None:
        """Record that a client reads at this place."""
        who, name = ask.affiliation, ask.job.name
        state = self.out.state
        if place.binds:
            self.out.commit(
                u.BindRunUpdate(name, who.run, incarnation, place.base, who.on_existing)
            )
            self._forget_old((name, who.run))
        members = state.bindings[name, who.run].members
        member = place.member
        known = members.get(member)
        part = _pass_of(None if place.how == "restarted" else known, ask, member)
        loaded, used = (0, -1) if known is None else (known.loaded, known.used)
        if place.how == "restarted":
            loaded, used = 0, -1
        is_new = part is not None and part.number > used
        told = u.RunMemberUpdate(
            name,
            who.run,
            member,
            who.process,
            base=place.base,
            used=max(used, place.number),
            loaded=loaded + is_new,
        )
        if known is None or told != _told(name, who.run, member, known):
            self.out.commit(told)
        if part is not None:
            self.out.commit(part)

    def _forget_old(self, own: tuple[str, str]) -> None:
        """Forget the oldest run that reads nothing, if too many are known."""
        state = self.out.state
        if len(state.bindings) <= BINDINGS_KEPT:
            return
        for job, run in state.bindings:
            incarnation = state.incarnations[state.bindings[job, run].incarnation]
            if (job, run) != own and not self._clients_of(incarnation, run):
                self.out.commit(u.UnbindRunUpdate(job, run))
                return

    def _clients_of(self, incarnation: Incarnation, run: str) -> dict[str, str]:
        """Return the clients of a run at an incarnation, with their processes."""
        return {
            client: opening.process
            for one in incarnation.iterations.values()
            for client, opening in one.openings.items()
            if opening.run == run
        }

    def _others(self, incarnation: Incarnation, ask: m.OpenIteration) -> dict[str, str]:
        """Return the clients of other processes of a run, with their processes."""
        found = self._clients_of(incarnation, ask.affiliation.run)
        return {name: one for name, one in found.items() if one != ask.affiliation.process}

    def begin(self, ask: m.OpenIteration, place: ReadingPlace, now: float) -> Iteration:
        """Return the iteration at a place, which begins if nobody has read it. Bind the
        client's run.
        """
        state, incarnation = self.out.state, place.incarnation
        if incarnation is None or incarnation.is_collected:
            number = state.next_incarnation if incarnation is None else incarnation.number
            self.out.commit(u.BeginIncarnationUpdate(number, ask.job))
            incarnation = state.incarnations[number]
        self.bind(ask, place, incarnation.number)
        known = incarnation.iterations.get(place.repetition)
        if known is not None:
            return known
        number = state.next_iteration
        seed = self.out.derive_seed(number)
        num_shards = self.placement.num_shards if is_static(ask.job) else 0
        if ask.job.num_tasks is not None:
            seed, num_shards = derived(ask.job.seed, place.repetition), ask.job.num_tasks
        is_over = place.repetition in incarnation.finished
        self.out.commit(
            u.CreateIterationUpdate(
                number, incarnation.number, place.repetition, seed, 0 if is_over else num_shards
            )
        )
        if is_over:  # it was finished and collected; nothing is left to read
            self.out.commit(u.CloseTaskListUpdate(number))
        self._begun[number] = now
        return state.iterations[number]

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
            )
        )

    def age(self, iteration: Iteration, now: float) -> float:
        """Return the seconds since an iteration began, as far as this dispatcher
        knows.
        """
        return max(0.0, now - self._begun.get(iteration.iteration, now))

    def tick(self, now: float) -> None:
        """Forget clients that no longer ask, and iterations that were collected."""
        self._asked = {
            client: since for client, since in self._asked.items() if now - since < ASKED_KEPT
        }
        for number in self._begun.keys() - self.out.state.iterations.keys():
            del self._begun[number]

    # --- a run that is bound

    def _bound(self, binding: Binding, ask: m.OpenIteration, now: float) -> ReadingPlace | str:
        who, state = ask.affiliation, self.out.state
        incarnation = state.incarnations[binding.incarnation]
        name, known = who.member or who.process, binding.members.get(who.member or who.process)
        number = _number(None, ask)
        if who.member and (known is None or known.process != who.process):
            others = self._others(incarnation, ask)
            former = (
                []
                if known is None
                else [client for client, process in others.items() if process == known.process]
            )
            if former and self.is_any_alive(former, ask.client, now):
                # A child of the process that has this rank, and not its successor.
                name = f"{who.member} {who.process}"
                known = binding.members.get(name)
            elif known is not None or others:
                lives = self.is_any_alive(others, ask.client, now)
                if lives is None:
                    return _awaited(ask.job.name)
                if not lives:
                    return self._first(ask, now)
                if known is not None:
                    base = incarnation.newest - number
                    return ReadingPlace("restarted", incarnation, base, number, name)
        if who.on_existing != binding.on_existing:
            raise InvalidArgumentError(
                f"Processes of one run disagree about job {ask.job.name}: the first passed "
                f"on_existing={binding.on_existing!r}, this one {who.on_existing!r}. Pass the "
                "same value in every process."
            )
        base = binding.base if known is None else known.base
        place = ReadingPlace("follows", incarnation, base, _number(known, ask), name)
        if (
            who.is_fresh
            and known is None
            and incarnation.has_finished(place.repetition)
            and not self._others(incarnation, ask)
        ):
            # A child that begins its own training after all others have ended theirs.
            return self._first(ask, now)
        is_lost = (
            place.repetition in incarnation.begun
            and place.repetition not in incarnation.iterations
            and place.repetition not in incarnation.finished
        )
        # Nothing is left of a repetition that was collected while it was read.
        return replace(place, how="begun", incarnation=None, binds=True) if is_lost else place

    # --- a run that is not bound yet

    def _first(self, ask: m.OpenIteration, now: float) -> ReadingPlace | str:
        job, rule = ask.job, ask.affiliation.on_existing
        number = _number(None, ask)
        member = ask.affiliation.member or ask.affiliation.process
        begins = ReadingPlace("begun", None, 0, number, member, binds=True)
        newest = self.out.state.newest_of(job.name)
        if newest is None or (rule == "new" and newest.job.save is None):
            return begins
        base = newest.newest - number
        joins = ReadingPlace("joined", newest, base, number, member, binds=True)
        if newest.job.save is not None or newest.job.cache:
            # A save refuses a reader by its parameters. Trainers that share a cache
            # always read the same pass.
            return replace(joins, base=0)
        if rule == "error":
            raise AlreadyExistsError(_exists(job.name))
        if rule == "share" and job.num_tasks is not None and job.num_consumers == 1:
            return begins  # a promised order has a single reader
        readers: Iterable[str] = newest.clients
        num_shards = max(one.num_shards for one in newest.iterations.values())
        shards = self.placement.shards_beside(job, ask.local_workers, num_shards)
        if shards and rule == "share":
            if not newest.shards.intersection(shards):
                first = newest.begun.ranges[0][0]
                return replace(joins, how="begun", base=first - number)
            readers = [
                client
                for one in newest.iterations.values()
                for client, opening in one.openings.items()
                if set(opening.shards).intersection(shards)
            ]
        lives = self.is_any_alive(readers, ask.client, now)
        if lives is None:
            return _awaited(job.name)
        if rule == "continue":
            if lives:
                raise FailedPreconditionError(_is_read(job.name))
            return replace(joins, how="continued")
        return joins if lives else begins

    def is_any_alive(self, readers: Iterable[str], asker: str, now: float) -> bool | None:
        """Return True if any of these clients has given a sign since another asked,
        False if all are gone, and None while neither is known.

        A client is gone if it had no connection for a while, or was silent for the
        client time-out, and no worker vouches for it.
        """
        since = self._asked.setdefault(asker, now)
        verdict: bool | None = False
        for name in readers:
            member = self.clients.members.get(name)
            if member is None:
                continue
            is_lost = name in self.absent or (
                member.unreachable is not None and now - member.unreachable >= GRACE
            )
            if is_lost and not self.leases.is_vouched_for(member, now):
                continue
            if self.leases.has_given_sign(member, since, now):
                return True
            verdict = None
            self.out.send(member.peer, m.Probe())
        return verdict


def _told(job: str, run: str, name: str, member: RunMember) -> u.RunMemberUpdate:
    return u.RunMemberUpdate(
        job, run, name, member.process, member.base, member.used, member.loaded
    )


def _number(known: RunMember | None, ask: m.OpenIteration) -> int:
    """Return the number of a client's pass among those of its member."""
    part = _pass_of(known, ask)
    if part is not None:
        return part.number
    return ask.repetition + (0 if known is None else known.loaded)


def _pass_of(
    known: RunMember | None, ask: m.OpenIteration, member: str = ""
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
    number = 0 if known is None else known.used + 1
    for one in reversed([] if known is None else known.passes):
        if (one.seed, one.turn) == (part.seed, part.turn):
            if one.workers.get(part.worker, part.process) == part.process:
                number = one.number
            break
    return u.PassUpdate(
        ask.job.name,
        who.run,
        member,
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
        "them."
    )
