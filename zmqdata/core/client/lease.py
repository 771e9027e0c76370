"""The client's side of its lease: until when it may hand out what it holds. No clock:
times are those of its caller.

When a lease is over at the dispatcher's side, and who gets what its client held, is
``core.dispatcher.jobs``'s affair.
"""

from __future__ import annotations

import math

from zmqdata.messages import Lease

PATIENCE_ALONE = 1.0
"""Seconds without an answer after which a client that reads alone goes on by itself."""
BEATS_KEPT = 100
PART = 3
"""A lease is renewed so many times while it lasts."""


class ClientLease:
    """Until when a client may hand out elements: ``until``, compared with its own
    clock.

    A lease counts from the moment at which the client *sent* what was answered, so it
    is over here before it is over there. Who reads alone needs no dispatcher: what a
    worker has heard counts as well, since workers tell the dispatcher. When nobody
    hears it, or it was stopped or asleep, others may have come.

    Example:
        >>> lease = ClientLease()
        >>> beat = lease.speak(10.0)
        >>> lease.answered(beat, Lease(15.0), 10.2)
        >>> lease.holds(24.9), lease.holds(25.0)
        (True, False)
    """

    def __init__(self) -> None:
        self.until = math.inf
        self.alone = False
        self._seconds = 0.0
        self._since = math.inf
        self._beat = self._answered = 0
        self._sent: dict[int, float] = {}

    def speak(self, now: float) -> int:
        """Notes that something is said to the dispatcher now; returns the number by
        which it is answered.
        """
        self._beat += 1
        self._sent[self._beat] = now
        if len(self._sent) > BEATS_KEPT:
            del self._sent[next(iter(self._sent))]
        return self._beat

    def opened(self, lease: Lease | None, asked: float, now: float) -> None:
        """The iteration is open; it was first asked for at ``asked``."""
        self._take(lease, asked, now)

    def heard(self, sent: float, now: float) -> None:
        """A worker has heard what was sent at a time. A lease that is over is for the
        dispatcher to renew.
        """
        if self.alone and self.holds(now) and sent <= now:
            self.until = max(self.until, sent + self._seconds)

    def answered(self, beat: int, lease: Lease | None, now: float) -> None:
        """Takes an answer to what was said under a number; one to something older
        changes nothing.
        """
        sent = self._sent.get(beat)
        if sent is None or beat <= self._answered:
            return
        self._answered = beat
        for number in [number for number in self._sent if number <= beat]:
            del self._sent[number]
        self._take(lease, sent, now)

    def _take(self, lease: Lease | None, since: float, now: float) -> None:
        if lease is None:
            self.until, self.alone, self._seconds = math.inf, False, 0.0
            return
        self._since = since
        # What workers have heard since then counts only while nobody else reads.
        goes_on = self.alone and lease.alone and self.holds(now)
        self.alone, self._seconds = lease.alone, lease.seconds
        until = math.inf if lease.free else since + lease.seconds
        self.until = max(self.until, until) if goes_on else until

    def holds(self, now: float) -> bool:
        """Whether elements may be handed out."""
        return now < self.until

    def is_unanswered(self, now: float) -> bool:
        """Whether the dispatcher has not answered for half of the lease: it may not
        hear us, and workers have to tell.

        Much sooner than it gives anybody up, and later than it answers when it is only
        slow.
        """
        return self._seconds > 0 and now - self._since >= self._seconds / 2

    @property
    def is_free(self) -> bool:
        """Whether nobody is ever given what another one holds."""
        return self.until == math.inf

    @property
    def patience(self) -> float:
        """Seconds without an answer after which a client goes on by itself at the
        latest.
        """
        return PATIENCE_ALONE if self.alone else max(self._seconds, PATIENCE_ALONE)

    def pause(self, usual: float) -> float:
        """Seconds between two signs of life: as usual, or so few that the lease
        lasts.
        """
        return min(usual, self._seconds / PART) if self._seconds else usual

    def free(self) -> None:
        """Nothing that is held here will ever be anybody else's."""
        self.until, self.alone, self._seconds = math.inf, False, 0.0

    def end(self) -> None:
        """What is held here belongs to others by now."""
        self.until, self.alone = -math.inf, False
