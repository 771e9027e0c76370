"""The dispatcher's side of clients' leases: what they are told, and when it is over.
See ``core.client.lease`` for theirs.

Nothing here is durable: a dispatcher that begins anew waits for one time-out before it
gives anybody up.
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqdata.core.dispatcher.liveness import Hearing, Member, Roster
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.job_rules import outlives_host
from zmqdata.messages import ClientHeartbeat, Lease, WorkerHeartbeat

SHARE = 0.9
"""How much of the time-out a client is told, so that a clock which is slow by less than
a tenth does no harm.
"""
USUAL_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds between two heartbeats of a worker: so old is what we know of clients that it
hears, or twice if one is lost.
"""
UNDER_WAY = 2.0
"""Seconds that a worker's word of whom it has heard may be on its way, by which that
seems to be later than it was.
"""


class Leases:
    """Knows which clients know that others read what they read.

    Args:
        timeout: seconds of silence after which a client is given up.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._late = 2 * USUAL_PAUSE
        self._aware: set[str] = set()
        self._anybody = Hearing(timeout / 2)
        self._hearing: dict[int, Hearing] = {}

    def grant(self, iteration: Iteration) -> Lease:
        """What the clients of an iteration are told; a free one where nobody else would
        ever be given what one holds.

        Where every worker gives everything (OFF), and where each trainer reads all of a
        shared cache, a client that is away costs nobody anything; its numbers are no
        promise there.
        """
        job = iteration.job
        if job.cache or not outlives_host(job):
            return Lease(SHARE * self.timeout, free=True)
        alone = len(iteration.clients) <= 1 and job.num_consumers in (None, 1)
        return Lease(SHARE * self.timeout, alone)

    def heard(self, beat: ClientHeartbeat) -> None:
        """Notes whether a client believes to be alone."""
        if beat.alone:
            self._aware.discard(beat.client)
        else:
            self._aware.add(beat.client)

    def tells(self, clients: Roster, beat: WorkerHeartbeat, now: float) -> None:
        """A worker tells which clients it hears."""
        clients.notice({client: now - max(0.0, ago) for client, ago in beat.readers.items()})
        self.expect(beat.every)

    def expect(self, pause: float) -> None:
        """Workers speak as rarely as that, or shall from now on."""
        self._late = max(self._late, 2 * min(pause, LONGEST_PAUSE))

    def is_vouched_for(self, member: Member, now: float) -> bool:
        """Whether a client that believes to be alone goes on without us: a worker has
        heard it lately.
        """
        return member.name not in self._aware and now - member.seen < self._late + UNDER_WAY

    def has_given_sign(self, member: Member, since: float, now: float) -> bool:
        """Whether a client has truly been heard since a moment, by us or by who vouches
        for it.
        """
        return member.spoke > since or (
            self.is_vouched_for(member, now) and member.seen > since + UNDER_WAY
        )

    def spoke(self, iteration: Iteration, now: float) -> float:
        """Notes that a client of an iteration is heard. Returns for how many seconds
        none was, if for too many.

        When all fall silent together it is most likely that we were cut off, or all of
        them by one cable: that time tells of nobody that it is dead.
        """
        quiet = self._hearing_of(iteration).heard(now)
        return 0.0 if self.grant(iteration).free else quiet

    def listen(self, now: float) -> float:
        """A worker or a client speaks. Returns for how many seconds nobody at all did,
        if for too many.

        Where no client is left, only workers speak, however rarely: such pauses are
        none.
        """
        self._anybody.patience = max(self.timeout / 2, self._late)
        quiet = self._anybody.heard(now)
        for hearing in self._hearing.values() if quiet else ():
            hearing.heard(now)
        return quiet

    def hears(self, iteration: Iteration, now: float) -> bool:
        """Whether any client of an iteration is there to be given what silent ones
        hold.
        """
        return self.grant(iteration).free or not self._hearing_of(iteration).is_deaf(now)

    def _hearing_of(self, iteration: Iteration) -> Hearing:
        # Who has a lease speaks three times while it lasts.
        return self._hearing.setdefault(iteration.iteration, Hearing(self.timeout / 2))

    def resume(self, iterations: Iterable[Iteration], now: float) -> None:
        """A former dispatcher has told those that shared an iteration so."""
        self._anybody.heard(now)
        for iteration in iterations:
            self._hearing_of(iteration).heard(now)
            if len(iteration.clients) > 1:
                self._aware |= iteration.clients

    def is_over(self, member: Member, now: float) -> bool:
        """Whether a client hands out nothing any more, as far as its silence tells.

        One that believes to be alone reads on without us: it lives as long as workers
        hear it, which they tell late.
        """
        if member.name in self._aware:
            return now - member.heard >= self.timeout
        return now - member.sign >= self.timeout + self._late

    def forget(self, client: str) -> None:
        """A client is gone."""
        self._aware.discard(client)

    def forget_iteration(self, iteration: int) -> None:
        """Nobody reads an iteration any more."""
        self._hearing.pop(iteration, None)
