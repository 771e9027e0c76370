"""Coordinated reads: the part of the dispatcher core that deals with numbered consumers
and the steps they may read.

Which step is which round of which task is arithmetic (``core.rounds``); here is decided
when consumers begin, how far they may go, who may take a consumer's place, and for how
long the others wait for one that is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.admission import Objection
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.hosting import Hosting
from zmqdata.core.dispatcher.lease import Leases
from zmqdata.core.dispatcher.liveness import Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.rounds import Rounds, steps_ahead
from zmqdata.errors import FailedPreconditionError, UnavailableError

ALL_STEPS = 1 << 53
"""So far may be read at once where no task will come."""
MISSED_BEATS = 3.0
"""Seconds in which a client that is there has spoken, whatever ``client_timeout`` is.
"""


class Coordination:
    """Leads the consumers of all coordinated jobs.

    Args:
        out: state and commands.
        hosting: tells clients of what has changed.
        clients: the living clients.
        absent: the clients that have been silent for too long.
        leases: knows who reads on without us.
        grace: seconds without a connection after which a consumer gives way to its
            successor.
    """

    def __init__(
        self,
        out: Outbox,
        hosting: Hosting,
        clients: Roster,
        absent: Collection[str],
        leases: Leases,
        grace: float = 1.5,
    ) -> None:
        self.out = out
        self.hosting = hosting
        self.clients = clients
        self.absent = absent
        self.leases = leases
        self.grace = grace
        self._moved: dict[int, tuple[int, float]] = {}
        self._missing_since: dict[int, float] = {}
        self._successors: dict[str, float] = {}

    # --- who is which consumer

    def holder(self, ask: m.OpenIteration) -> str | None:
        """The client that reads already as whom this one wants to read."""
        iteration = self.out.state.passes.get(ask.job.name, {}).get(ask.repetition)
        if iteration is None or ask.reader.consumer_index is None:
            return None
        return iteration.consumers.get(ask.reader.consumer_index)

    def gives_way(self, peer: Peer, ask: m.OpenIteration, holder: str, now: float) -> bool:
        """Whether a consumer's client is gone, so that another may take its place; one
        that lives keeps it.

        Whether it lives is found out by asking it: the successor is answered when that
        is known, and asks until then. The only consumer may be out of our reach, and go
        on by what workers hear.
        """
        member = self.clients.members.get(holder)
        unreachable = None if member is None else member.unreachable
        lost = holder in self.absent or (
            unreachable is not None and now - unreachable >= self.grace
        )
        if member is None or (lost and not self.leases.is_vouched_for(member, now)):
            self._successors.pop(ask.client, None)
            return True
        since = self._successors.setdefault(ask.client, now)
        if self.leases.has_given_sign(member, since, now):
            del self._successors[ask.client]
            self.out.refuse(peer, ask.client, FailedPreconditionError, self._taken(ask))
        else:
            self.out.send(member.peer, m.Probe())
        return False

    def _taken(self, ask: m.OpenIteration) -> str:
        rounds = self.out.state.passes[ask.job.name][ask.repetition].rounds
        consumer = ask.reader.consumer_index
        assert rounds is not None
        assert consumer is not None
        if ask.job.num_tasks is not None and ask.job.num_consumers == 1:
            return (
                f"Job {ask.job.name} is read by another client, which has taken "
                f"{rounds.steps[consumer]} elements. One "
                "client at a time reads a job whose order is promised (deterministic=True): "
                "another one can when that "
                "one has closed its iterator or has died. Give num_consumers and consumer_index to "
                "have several read "
                "it in step, or another job_name to read from the beginning."
            )
        return (
            f"Consumer {consumer} of job {ask.job.name} is read by another client, whose current "
            "round has already "
            f"reached {rounds.steps[consumer]}. Each consumer_index is for one client at a time: "
            "it can be taken over "
            "when that one has closed its iterator or has died. Use another job_name to read from "
            "the beginning."
        )

    def objection(self, ask: m.OpenIteration) -> Objection | None:
        """Why a consumer that was given up may not go on: somebody else has read what
        it would read.
        """
        iteration = self.out.state.passes.get(ask.job.name, {}).get(ask.repetition)
        rounds, consumer = (
            None if iteration is None else iteration.rounds,
            ask.reader.consumer_index,
        )
        if (
            not ask.former
            or rounds is None
            or consumer is None
            or rounds.seats[consumer] == ask.former
        ):
            return None
        return FailedPreconditionError, (
            f"Consumer {consumer} of job {ask.job.name} was silent for longer than client_timeout "
            "and has been "
            "replaced: another client has read as it since, whose current round has already "
            "reached "
            f"{rounds.steps[consumer]}. Nothing is handed out twice, so this one has to end. Stop "
            "one of the two "
            "training processes, and raise client_timeout_ms of the dispatcher if this one was "
            "merely busy."
        )

    def step_of(self, iteration: Iteration, client: str) -> int:
        """Where a client goes on: behind what was reported for its consumer."""
        consumer = _consumer_of(iteration, client)
        return (
            0 if consumer is None or iteration.rounds is None else iteration.rounds.steps[consumer]
        )

    def missing(self, iteration: Iteration) -> tuple[int, ...]:
        """The consumers that nobody is, and whose part is not over."""
        rounds = iteration.rounds
        if rounds is None:
            return ()
        end = _end_of(iteration, rounds)
        nobody = [index for index in range(len(rounds.steps)) if index not in iteration.consumers]
        return tuple(index for index in nobody if end is None or rounds.steps[index] < end)

    def unwanted(self, tasks: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Of tasks of which a consumer has no client: how many rounds nobody waits for,
        per consumer.

        A consumer may have been to the end before a task came to where it is now, and
        nobody else tells that worker that what it makes for this consumer needs no
        room. Its goodbye may be lost: so once the others can read to the end, a
        consumer without a client holds nobody up. If one comes after all, what it lacks
        is made again.
        """
        found = {}
        for task in [
            self.out.state.tasks[number]
            for number in sorted(tasks)
            if number in self.out.state.tasks
        ]:
            iteration = self.out.state.iterations[task.iteration]
            rounds = iteration.rounds
            if rounds is None or len(iteration.consumers) == len(rounds.steps):
                continue
            passed = rounds.passed(task.task, task.total)
            rest = task.total if task.total is not None and _may_read_all(iteration, rounds) else 0
            found[task.task] = tuple(
                count if index in iteration.consumers else max(count, rest)
                for index, count in enumerate(passed)
            )
        return found

    # --- steps

    def plan(self, iteration: Iteration) -> m.Plan | None:
        """What the consumers of an iteration are told; None where there are none."""
        rounds = iteration.rounds
        if rounds is None:
            return None
        end = _end_of(iteration, rounds)
        indices = {
            task: iteration.tasks[task].index for view in rounds.views for task, _ in view.tasks
        }
        known = tuple(sorted(indices.items()))
        return m.Plan(
            tuple(rounds.views),
            rounds.horizon,
            iteration.totals,
            self.missing(iteration),
            end,
            known,
        )

    def take(self, iteration: Iteration, client: str, steps: int, near: int, now: float) -> None:
        """Counts what a consumer reports, and moves the horizon before it gets
        there.
        """
        rounds, consumer = iteration.rounds, _consumer_of(iteration, client)
        if rounds is None or consumer is None or iteration.failure is not None:
            return
        if rounds.steps[consumer] < steps <= rounds.horizon:
            before = [task for task in iteration.live_tasks if not task.settled]
            self.out.commit(u.PassStepsUpdate(iteration.iteration, consumer, steps))
            for task in [task for task in before if task.settled]:
                self.hosting.settle(task)
        if near == rounds.horizon and rounds.views and not self.missing(iteration):
            self._move_on(iteration, rounds, now)

    def _move_on(self, iteration: Iteration, rounds: Rounds, now: float) -> None:
        """Moves the horizon. Tasks come and go there, where nobody can have been
        yet.
        """
        tasks = rounds.next_tasks(iteration.totals, [task.task for task in iteration.live_tasks])
        if not tasks:
            return
        # Where the order is promised, a task that ends leaves a gap in it; the others
        # do not move up.
        if iteration.job.num_tasks is None and not rounds.has(tasks):
            self.out.commit(u.CreateViewUpdate(iteration.iteration, tasks))
        self._extend(iteration, rounds, len(tasks), now)

    def _extend(self, iteration: Iteration, rounds: Rounds, tasks: int, now: float) -> None:
        previous, since = self._moved.get(iteration.iteration, (0, now))
        steps = (
            steps_ahead(previous, now - since, tasks)
            if iteration.job.num_tasks is None
            else ALL_STEPS
        )
        self._moved[iteration.iteration] = (steps, now)
        self.out.commit(u.ExtendHorizonUpdate(iteration.iteration, rounds.horizon + steps))
        self.hosting.lists.tell(iteration)

    def begin(self, iteration: Iteration, now: float) -> None:
        """Lets the consumers of an iteration begin as soon as all are there, and
        anything to read.
        """
        rounds = iteration.rounds
        if (
            rounds is None
            or rounds.views
            or iteration.failure is not None
            or not iteration.live_tasks
        ):
            return
        if self.missing(iteration):
            return
        tasks = tuple((task.task, 0) for task in iteration.live_tasks)
        self.out.commit(u.CreateViewUpdate(iteration.iteration, tasks))
        self._extend(iteration, rounds, len(tasks), now)

    # --- time

    def tick(self, now: float) -> None:
        """Begins what can begin, and ends what has waited in vain."""
        coordinated = [
            (one, one.rounds)
            for one in self.out.state.iterations.values()
            if one.rounds is not None
        ]
        for iteration, rounds in coordinated:
            self.begin(iteration, now)
            if iteration.failure is None:
                self._wait(iteration, rounds, now)
        known = {iteration.iteration for iteration, _ in coordinated}
        for facts in (self._moved, self._missing_since):
            for number in [number for number in facts if number not in known]:
                del facts[number]

    def _wait(self, iteration: Iteration, rounds: Rounds, now: float) -> None:
        """Counts the time for which consumers that are there wait for others."""
        missing = self.missing(iteration)
        if (
            not missing
            or not self._somebody_waits(iteration, now)
            or _may_read_all(iteration, rounds)
        ):
            self._missing_since.pop(iteration.iteration, None)
            return
        since = self._missing_since.setdefault(iteration.iteration, now)
        if now - since >= iteration.job.consumer_timeout:
            self.hosting.fail(
                iteration, UnavailableError.__name__, _nobody_came(iteration, missing)
            )

    def _somebody_waits(self, iteration: Iteration, now: float) -> bool:
        """Whether a client waits for others: it may have said nothing for a while, as
        between two of its heartbeats.
        """
        patience = max(iteration.job.consumer_timeout, MISSED_BEATS)
        present = [self.clients.members[name] for name in iteration.clients if name in self.clients]
        return any(
            member.name not in self.absent or now - member.heard < patience for member in present
        )


def _consumer_of(iteration: Iteration, client: str) -> int | None:
    return next((index for index, name in iteration.consumers.items() if name == client), None)


def _end_of(iteration: Iteration, rounds: Rounds) -> int | None:
    return (
        rounds.end(iteration.totals, [task.task for task in iteration.live_tasks])
        if iteration.closed
        else None
    )


def _may_read_all(iteration: Iteration, rounds: Rounds) -> bool:
    """Whether the consumers that are there can read to the end without those that are
    missing.
    """
    end = _end_of(iteration, rounds)
    return end is not None and end <= rounds.horizon


def _nobody_came(iteration: Iteration, missing: tuple[int, ...]) -> str:
    job = iteration.job
    there = (job.num_consumers or 0) - len(missing)
    names = ", ".join(map(str, missing))
    what = "has" if len(missing) == 1 else "have"
    return (
        f"{there} of {job.num_consumers} consumers are there; for {job.consumer_timeout:g} s "
        "(consumer_timeout) they "
        f"waited for consumer {names}, which {what} not come, or died. All consumers of a "
        "coordinated job read "
        "together: start each of them, or restart one that died, with its consumer_index."
    )
