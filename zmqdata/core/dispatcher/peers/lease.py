"""The dispatcher's side of clients' leases: the lease that a client is granted, when it
is over, and which clients are alive. ``core.client.lease`` has the clients' side.

Nothing here is durable: a restarted dispatcher gives no client up before one time-out
has passed.

Decision 0017; protocol 3.6 to 3.8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from zmqdata.core.dispatcher.peers.liveness import Hearing, Member, Questions, Roster
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.job_rules import outlives_host
from zmqdata.messages import ClientHeartbeat, Lease, WorkerHeartbeat

SHARE = 0.9
"""Fraction of the time-out that a client is granted. A clock that is slow by less than
a tenth then does no harm.
"""
USUAL_PAUSE = 1.0
"""Usual number of seconds between two heartbeats of a worker."""
LONGEST_PAUSE = 60.0
"""Maximum number of seconds between two heartbeats of a worker. The dispatcher's
knowledge of clients that a worker hears is at most this old, or twice as old if a
heartbeat is lost.
"""
GRACE = 1.5
"""Seconds without a connection after which a client counts as gone."""
ASKED_KEPT = 60.0
"""Seconds after which a client that has not asked again begins anew."""
MOST_ASKING = 10_000
"""Maximum number of clients whose requests are remembered. The oldest is forgotten."""
ASKED = 8
"""Maximum number of readers that are asked at a time on behalf of a client."""
RENEWED = 2.0
"""Seconds after which a client that still asks causes a new question. What was answered
before proves nothing twice as long afterwards.
"""
UNDER_WAY = 2.0
"""Seconds for which a worker's heartbeat may be in flight. The clients it has heard
seem to be heard that much later.
"""


class Leases:
    """Tracks which clients have been told that their iteration is shared.

    Args:
        timeout: seconds of silence after which a client is given up.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._late = 2 * USUAL_PAUSE
        self._aware: set[str] = set()
        self._anybody = Hearing(timeout / 2)
        self._hearing: dict[int, Hearing] = {}

    def grant(self, iteration: Iteration, client: str) -> Lease:
        """Return the lease of a client. It is free if no other client would ever be
        given what a client holds.

        In mode OFF every worker produces everything, and each trainer of a shared cache
        reads all of it. There an absent client costs the others nothing, and the
        numbers of the lease are no promise.
        """
        if self._is_free(iteration):
            return Lease(SHARE * self.timeout, free=True)
        alone = not iteration.shares(client) and iteration.job.num_consumers in (None, 1)
        return Lease(SHARE * self.timeout, alone)

    def _is_free(self, iteration: Iteration) -> bool:
        return iteration.job.cache or not outlives_host(iteration.job)

    def record_belief(self, beat: ClientHeartbeat) -> None:
        """Note whether a client believes that it reads alone."""
        if beat.alone:
            self._aware.discard(beat.client)
        else:
            self._aware.add(beat.client)

    def tells(self, clients: Roster, beat: WorkerHeartbeat, now: float) -> None:
        """Note which clients a worker hears."""
        clients.notice({client: now - max(0.0, sign.ago) for client, sign in beat.readers.items()})
        self.expect(beat.every)

    def expect(self, pause: float) -> None:
        """Note that workers may pause for this long between heartbeats."""
        self._late = max(self._late, 2 * min(pause, LONGEST_PAUSE))

    def is_vouched_for(self, member: Member, now: float) -> bool:
        """Return True if a client that believes to read alone continues without the
        dispatcher: a worker has heard it lately.
        """
        return member.name not in self._aware and now - member.seen < self._late + UNDER_WAY

    def spoke(self, iteration: Iteration, now: float) -> float:
        """Note that a client of an iteration is heard. Return the seconds for which
        none was; 0 if they are few.

        If all clients fall silent together, most likely the dispatcher was cut off, or
        one cable cut off all of them. That time does not count as silence of any
        client.
        """
        quiet = self._hearing_of(iteration).hear(now)
        return 0.0 if self._is_free(iteration) else quiet

    def listen(self, now: float) -> float:
        """Note that a worker or a client is heard. Return the seconds for which no peer
        was; 0 if they are few.

        If no client is left, only workers speak, however rarely. Their pauses do not
        count.
        """
        self._anybody.patience = max(self.timeout / 2, self._late)
        quiet = self._anybody.hear(now)
        for hearing in self._hearing.values() if quiet else ():
            hearing.hear(now)
        return quiet

    def hears(self, iteration: Iteration, now: float) -> bool:
        """Return True if any client of an iteration is present to be given what silent
        clients hold.
        """
        return self._is_free(iteration) or not self._hearing_of(iteration).is_deaf(now)

    def _hearing_of(self, iteration: Iteration) -> Hearing:
        # A client speaks three times during its lease.
        return self._hearing.setdefault(iteration.iteration, Hearing(self.timeout / 2))

    def resume(self, iterations: Iterable[Iteration], now: float) -> None:
        """Record that a former dispatcher has told the clients of shared iterations
        that they are shared.
        """
        self._anybody.hear(now)
        for iteration in iterations:
            self._hearing_of(iteration).hear(now)
            self._aware |= {client for client in iteration.clients if iteration.shares(client)}

    def is_over(self, member: Member, now: float) -> bool:
        """Return True if a client's silence shows that it no longer hands out elements.

        A client that believes to read alone continues without the dispatcher. It lives
        as long as workers hear it, which they report late.
        """
        if member.name in self._aware:
            return now - member.heard >= self.timeout
        return now - member.sign >= self.timeout + self._late

    def forget(self, client: str) -> None:
        """Forget a client that is gone."""
        self._aware.discard(client)

    def forget_iteration(self, iteration: int) -> None:
        """Forget an iteration that no client reads any more."""
        self._hearing.pop(iteration, None)


@dataclass
class Request:
    """The request of a client that would read in place of others, or with them."""

    since: float
    """When it was first made."""
    question: int
    """Number of the newest question that was posed because of it."""
    former: int
    """Number of the question before. A client that has answered it is alive."""
    posed: float
    """When the newest question was posed."""


class Presence:
    """Finds out which readers are alive, on behalf of a client that would read in their
    place or with them.

    Args:
        questions: asks the readers.
        clients: the living clients.
        workers: the living workers.
        absent: the clients that have been silent for too long.
        leases: knows which clients read on without the dispatcher.
    """

    def __init__(
        self,
        questions: Questions,
        clients: Roster,
        workers: Roster,
        absent: Collection[str],
        leases: Leases,
    ) -> None:
        self.questions = questions
        self.clients = clients
        self.workers = workers
        self.absent = absent
        self.leases = leases
        self._asked: dict[str, Request] = {}

    def is_any_alive(
        self, readers: Iterable[str], asker: str, now: float, patience: float = GRACE
    ) -> bool | None:
        """Return True if any of these clients has answered a question that was posed
        since another asked, False if all are gone, and None while neither is known.

        A client is gone if it has had no connection for ``patience`` seconds, or was
        silent for the client time-out, and no worker vouches for it. If no worker was
        heard meanwhile, it has time from when the other asked: the dispatcher may have
        been cut off, and the other may be the first that comes back.
        """
        request = self._asked.get(asker)
        if request is None or now - request.posed >= ASKED_KEPT:
            question = self.questions.pose()
            request = self._asked[asker] = Request(now, question, question, now)
            if len(self._asked) > MOST_ASKING:
                del self._asked[next(iter(self._asked))]
        elif now - request.posed >= RENEWED:
            request.former, request.posed = request.question, now
            request.question = self.questions.pose()
        verdict: bool | None = False
        doubtful: list[str] = []
        for name in readers:
            member = self.clients.members.get(name)
            if member is None:
                continue
            lost = member.unreachable
            if name in self.absent:
                is_lost = self._has_heard_workers(member.heard) or now - request.since >= GRACE
            elif lost is None:
                is_lost = False
            else:
                begun = lost if self._has_heard_workers(lost) else max(request.since, lost)
                is_lost = now - begun >= patience
            if self.questions.has_answered(name, request.former):
                verdict = True
            if self.questions.has_answered(name, request.question):
                return True
            if is_lost and not self.leases.is_vouched_for(member, now):
                continue
            verdict = verdict or None
            doubtful.append(name)
        # One answer is enough. When many join, each of them must not ask all others.
        self.questions.ask_some(doubtful, ASKED, request.question, now, request.since)
        return verdict

    def _has_heard_workers(self, since: float) -> bool:
        """Return True if a worker was heard after a time."""
        newest = next(reversed(self.workers.members.values()), None)
        return newest is not None and newest.spoke > since
