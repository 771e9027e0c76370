"""The client's side of its lease: until when it may hand out the elements that it
holds.

No clock: callers pass the time. The dispatcher's side, which decides when a lease is
over and who receives the elements, is ``core.dispatcher.readers.jobs``.

Decision 0017; protocol 3.7 and 3.8.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from zmqdata.messages import Lease

PATIENCE_ALONE = 1.0
"""Seconds without an answer after which a client that reads alone decides by itself."""
BEATS_KEPT = 100
"""Number of unanswered heartbeats whose sending times are kept."""
PART = 3
"""A lease is renewed this many times while it lasts."""


class ClientLease:
    """The time until which a client may hand out elements.

    A lease counts from the moment at which the client *sent* the message that was
    answered. It therefore expires here before it expires at the dispatcher.

    A client that reads alone needs no dispatcher. A message that a worker has heard
    renews its lease as well, because workers report to the dispatcher. If no peer hears
    the client, or its process was stopped or asleep, other clients may have joined.

    Attributes:
        until: time at which the lease expires, by the client's own clock.
        alone: True if no other client reads the iteration.
        seconds: length of the lease; 0 if it never ends.

        >>> lease = ClientLease()
        >>> beat = lease.speak(10.0)
        >>> lease.record_answer(beat, Lease(15.0), 10.2)
        True
        >>> lease.holds(24.9), lease.holds(25.0)
        (True, False)
    """

    def __init__(self) -> None:
        self.until = math.inf
        self.alone = self._is_kept = False
        self.seconds = 0.0
        self._since = math.inf
        self._beat = self._answered = 0
        self._sent: dict[int, float] = {}
        self._readers: set[str] = set()

    def speak(self, now: float) -> int:
        """Record that a message is sent to the dispatcher now, and return the number by
        which it is answered.
        """
        self._beat += 1
        self._sent[self._beat] = now
        if len(self._sent) > BEATS_KEPT:
            del self._sent[next(iter(self._sent))]
        return self._beat

    def read_with(self, readers: Collection[str]) -> None:
        """Note which clients read the iteration. A client that another one has joined
        is alone only if the dispatcher says so again.
        """
        if self._readers and not self._readers.issuperset(readers):
            self.alone = False
        self._readers = set(readers)

    def begin(self, lease: Lease | None, asked: float, now: float) -> None:
        """Record the lease of an iteration that was opened, and first requested at time
        ``asked``.
        """
        self._record(lease, asked, now)

    def renew(self, sent: float, now: float) -> None:
        """Renew the lease of a client that reads alone, because a worker has heard what
        was sent at time ``sent``; 0 if it was not asked to vouch for the client.

        Only the dispatcher renews a lease that has expired.
        """
        if self.alone and self.holds(now) and sent <= now:
            self.until = max(self.until, sent + self.seconds)

    def record_answer(self, beat: int, lease: Lease | None, now: float) -> bool:
        """Record the lease in the answer to the message of this number. An answer to an
        older message changes nothing. Return True if it is the newest answer.
        """
        sent = self._sent.get(beat)
        if sent is None or beat <= self._answered:
            return False
        self._answered = beat
        for number in [number for number in self._sent if number <= beat]:
            del self._sent[number]
        self._record(lease, sent, now)
        return True

    def _record(self, lease: Lease | None, since: float, now: float) -> None:
        if lease is None:
            self.until, self.alone, self.seconds = math.inf, False, 0.0
            return
        self._since = since
        # What workers have heard since then counts only while no other client reads.
        goes_on = self.alone and lease.alone and self.holds(now)
        self.alone, self.seconds = lease.alone, lease.seconds
        until = math.inf if lease.free else since + lease.seconds
        self.until = max(self.until, until) if goes_on else until

    def holds(self, now: float) -> bool:
        """True if elements may be handed out."""
        return self._is_kept or now < self.until

    def keep(self) -> None:
        """Let the lease hold from now on, because its dispatcher has closed for good. A
        lease that was ended is not revived: the elements belong to other clients.
        """
        self._is_kept = self.until > -math.inf

    def is_unanswered(self, now: float) -> bool:
        """True if the dispatcher has not answered for half of the lease.

        It may then not hear this client, and workers have to vouch for the client. Half
        of a lease is far less than the time after which the dispatcher gives up a
        client, and longer than a slow answer takes.
        """
        return self.seconds > 0 and now - self._since >= self.seconds / 2

    @property
    def is_free(self) -> bool:
        """True if no client ever receives the elements that another client holds."""
        return self.until == math.inf

    def pause(self, usual: float) -> float:
        """Return the seconds between two heartbeats: ``usual``, or fewer if the lease
        would otherwise expire.
        """
        return min(usual, self.seconds / PART) if self.seconds else usual

    def free(self) -> None:
        """Make the lease last for ever, because no element held here will be given to
        another client.
        """
        self.until, self.alone, self.seconds = math.inf, False, 0.0

    def end(self) -> None:
        """End the lease, because the elements held here belong to other clients by
        now.
        """
        self.until, self.alone = -math.inf, False
