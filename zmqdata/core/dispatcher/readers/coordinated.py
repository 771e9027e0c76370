"""Coordinated reads: the part of the dispatcher core that deals with numbered consumers
and the steps they may read.

``core.rounds`` computes which step is which round of which task. This module decides
when consumers begin and how far they may read. It also decides which client may take a
consumer's place, and how long the others wait for a missing consumer.

Decisions 0011, 0018 and 0045; protocol 9.1 to 9.12.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.peers.lease import Presence
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.readers.admission import Objection
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.core.rounds import Rounds, steps_ahead
from zmqdata.errors import FailedPreconditionError, UnavailableError

ALL_STEPS = 1 << 53
"""Number of steps by which the horizon moves at once if no further task can join."""
REPEAT = 1.0
"""Seconds between two messages that deal the rest of a task."""
MISSED_BEATS = 3.0
"""Seconds within which every connected client has spoken, whatever ``client_timeout``
is.
"""


class Coordination:
    """Directs the consumers of all coordinated jobs.

    Args:
        out: state and commands.
        hosting: tells clients what has changed.
        clients: the living clients.
        absent: the clients that have been silent for too long.
        presence: finds out which consumers are alive.
    """

    def __init__(
        self,
        out: Outbox,
        hosting: Hosting,
        clients: Roster,
        absent: Collection[str],
        presence: Presence,
    ) -> None:
        self.out = out
        self.hosting = hosting
        self.clients = clients
        self.absent = absent
        self.presence = presence
        self._moved: dict[int, tuple[int, float]] = {}
        self._missing_since: dict[int, float] = {}
        self._dealt_at: dict[int, float] = {}

    # --- who is which consumer

    def holder(self, ask: m.OpenIteration, iteration: Iteration) -> str | None:
        """Return the client that already reads as the consumer that a client asks for;
        None if none does.
        """
        consumer = ask.reader.consumer_index
        return None if consumer is None else iteration.consumers.get(consumer)

    def gives_way(
        self, peer: Peer, ask: m.OpenIteration, iteration: Iteration, holder: str, now: float
    ) -> bool:
        """Return True if a consumer's client is gone, so that another may take its
        place. A living client keeps it.

        A probe determines whether it lives: the successor repeats its request and is
        answered when the result is known. The only consumer may be unreachable for the
        dispatcher and still read on, because workers hear it.
        """
        lives = self.presence.is_any_alive([holder], ask.client, now)
        if lives:
            self.out.refuse(peer, ask.client, FailedPreconditionError, _taken(ask, iteration))
        return lives is False

    def objection(self, ask: m.OpenIteration, iteration: Iteration) -> Objection | None:
        """Return the reason why a consumer that was given up may not continue: another
        client has read in its place. None if it may.
        """
        rounds, consumer = iteration.rounds, ask.reader.consumer_index
        if (
            not ask.former
            or rounds is None
            or consumer is None
            or rounds.seats[consumer] == ask.former
        ):
            return None
        return FailedPreconditionError, (
            f"Consumer {consumer} of job {ask.job.name} was silent for longer than "
            "client_timeout and has been replaced: another client has read as it "
            "since, whose current round has already reached "
            f"{rounds.steps[consumer]}. No element is delivered twice, so this client "
            "has to end. Stop one of the two training processes, and raise "
            "client_timeout_ms of the dispatcher if this one was merely busy."
        )

    def step_of(self, iteration: Iteration, client: str) -> int:
        """Return the step at which a client continues: after the last step reported for
        its consumer.
        """
        consumer = _consumer_of(iteration, client)
        return (
            0 if consumer is None or iteration.rounds is None else iteration.rounds.steps[consumer]
        )

    def count_late(self, client: str, steps: int, now: float) -> None:
        """Count the last report of a consumer that was given up before the report
        arrived, unless another client has read in its place.
        """
        for iteration in list(self.out.state.iterations.values()):
            self.count_steps(iteration, client, steps, 0, now)

    def missing(self, iteration: Iteration) -> tuple[int, ...]:
        """Return the consumers that have no client and have not reached the end."""
        rounds = iteration.rounds
        if rounds is None:
            return ()
        end = iteration.end
        nobody = [index for index in range(len(rounds.steps)) if index not in iteration.consumers]
        return tuple(index for index in nobody if end is None or rounds.steps[index] < end)

    def unwanted(self, tasks: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Return, for each task of an iteration with a consumer that has no client, how
        many rounds are unwanted, per consumer.

        A consumer may have reached the end before a task moved to its present worker.
        Only the dispatcher can tell that worker that rounds for this consumer need no
        room. The consumer's goodbye may be lost. Once the others can read to the end, a
        consumer without a client therefore delays no other. If a client comes after
        all, the rounds it lacks are made again.
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
            everything = task.total if task.total is not None and _may_read_all(iteration) else 0
            found[task.task] = tuple(
                count if index in iteration.consumers else max(count, everything)
                for index, count in enumerate(iteration.passed(task))
            )
        return found

    # --- steps

    def plan(self, iteration: Iteration) -> m.Plan | None:
        """Return the plan for the consumers of an iteration; None if it has no numbered
        consumers.
        """
        rounds = iteration.rounds
        if rounds is None:
            return None
        last = iteration.last_rounds
        indices = {
            task: iteration.tasks[task].index for view in rounds.views for task, _ in view.tasks
        }
        known = tuple(sorted(indices.items()))
        return m.Plan(
            tuple(rounds.views),
            iteration.horizon,
            iteration.full_rounds,
            self.missing(iteration),
            iteration.end,
            known,
            iteration.rests,
            last.first_step if last is not None and last.count else None,
        )

    def count_steps(
        self, iteration: Iteration, client: str, steps: int, near: int, now: float
    ) -> None:
        """Count the steps that a consumer reports, and move the horizon before the
        consumer reaches it.
        """
        rounds, consumer = iteration.rounds, _consumer_of(iteration, client)
        if rounds is None or consumer is None or iteration.failure is not None:
            return
        if rounds.steps[consumer] < steps <= iteration.horizon:
            self.hosting.commit_and_settle(
                iteration, u.PassStepsUpdate(iteration.iteration, consumer, steps)
            )
        if near == rounds.horizon and rounds.views and not self.missing(iteration):
            self._move_on(iteration, rounds, now)

    def _move_on(self, iteration: Iteration, rounds: Rounds, now: float) -> None:
        """Move the horizon. A new view may begin there, because no consumer can have
        passed it yet.
        """
        live = [task.task for task in iteration.live_tasks]
        tasks = rounds.next_tasks(iteration.full_rounds, live)
        if not tasks:
            return
        # With a promised order, a task that ends leaves a gap; the other tasks do not
        # move up.
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
        extended = u.ExtendHorizonUpdate(iteration.iteration, rounds.horizon + steps)
        self.hosting.commit_and_settle(iteration, extended)
        self.hosting.lists.tell(iteration)

    def begin(self, iteration: Iteration, now: float) -> None:
        """Let the consumers of an iteration begin as soon as all of them are present
        and a task exists.
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
        """Begin iterations that are ready, and fail iterations that waited too long."""
        coordinated = [one for one in self.out.state.iterations.values() if one.rounds is not None]
        for iteration in coordinated:
            self.begin(iteration, now)
            if iteration.failure is None:
                self._wait(iteration, now)
                self._deal_rests(iteration, now)
        known = {iteration.iteration for iteration in coordinated}
        for facts in (self._moved, self._missing_since, self._dealt_at):
            for number in [number for number in facts if number not in known]:
                del facts[number]

    def _deal_rests(self, iteration: Iteration, now: float) -> None:
        """Tell the workers now and then which consumers get the rests of their
        tasks.
        """
        last = iteration.last_rounds if iteration.rests else None
        if last is None or now - self._dealt_at.get(iteration.iteration, -math.inf) < REPEAT:
            return
        self._dealt_at[iteration.iteration] = now
        for number, (place, kept) in last.places.items():
            self.hosting.deal_rest(iteration.tasks[number], place % last.num_consumers, kept)

    def _wait(self, iteration: Iteration, now: float) -> None:
        """Count the time for which present consumers wait for missing ones."""
        missing = self.missing(iteration)
        if not missing or not self._somebody_waits(iteration, now) or _may_read_all(iteration):
            self._missing_since.pop(iteration.iteration, None)
            return
        since = self._missing_since.setdefault(iteration.iteration, now)
        if now - since >= iteration.job.consumer_timeout:
            self.hosting.fail(
                iteration, UnavailableError.__name__, _nobody_came(iteration, missing)
            )

    def _somebody_waits(self, iteration: Iteration, now: float) -> bool:
        """Return True if a client waits for others. It may have been silent for a
        while, as between two heartbeats.
        """
        patience = max(iteration.job.consumer_timeout, MISSED_BEATS)
        present = [self.clients.members[name] for name in iteration.clients if name in self.clients]
        return any(
            member.name not in self.absent or now - member.heard < patience for member in present
        )


def _consumer_of(iteration: Iteration, client: str) -> int | None:
    """Return the consumer as which a client reads, or was the last to read."""
    seats = [] if iteration.rounds is None else iteration.rounds.seats
    return seats.index(client) if client in seats else None


def _may_read_all(iteration: Iteration) -> bool:
    """Return True if the present consumers can read to the end without the missing
    ones.
    """
    end = iteration.end
    return end is not None and end <= iteration.horizon


def _nobody_came(iteration: Iteration, missing: tuple[int, ...]) -> str:
    job = iteration.job
    there = (job.num_consumers or 0) - len(missing)
    names = ", ".join(map(str, missing))
    what = "has" if len(missing) == 1 else "have"
    return (
        f"{there} of {job.num_consumers} consumers are present; for "
        f"{job.consumer_timeout:g} s (consumer_timeout) they waited for consumer "
        f"{names}, which {what} not come, or died. All consumers of a coordinated job "
        "read together: start each of them, or restart a dead one, with its "
        "consumer_index."
    )


def _taken(ask: m.OpenIteration, iteration: Iteration) -> str:
    rounds = iteration.rounds
    consumer = ask.reader.consumer_index
    assert rounds is not None
    assert consumer is not None
    if ask.job.num_tasks is not None and ask.job.num_consumers == 1:
        return (
            f"Job {ask.job.name} is read by another client, which has taken "
            f"{rounds.steps[consumer]} elements. A job with a promised order "
            "(deterministic=True) has a single reader at a time. Another client "
            "can read it when that one has closed its iterator or has died. Pass "
            "num_consumers and consumer_index to have several clients read it in "
            "step, or use another job_name to read from the beginning."
        )
    return (
        f"Consumer {consumer} of job {ask.job.name} is read by another client, "
        f"whose current round has already reached {rounds.steps[consumer]}. Each "
        "consumer_index is for a single client at a time. Another client can "
        "take it over when that one has closed its iterator or has died. Use "
        "another job_name to read from the beginning."
    )
