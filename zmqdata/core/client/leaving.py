"""The end of a client's part in an iteration: when it may end, and how it leaves.

``ReadingEnd`` decides when a client may end while other clients hold elements.
``Goodbye`` repeats the last report until the dispatcher has counted it. Neither has a
clock. When a client leaves is decided in ``core.client.decider``, and which clients may
go in ``core.dispatcher.leaving``.

Decision 0026; protocol 3.4 and 3.5.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.lease import ClientLease
from zmqdata.core.client.notices import Notices
from zmqdata.core.client.tasks import Reading
from zmqdata.messages import MayEnd

REPEAT = 0.5
"""Seconds between two repetitions of the goodbye."""
COPIES_PATIENCE = 3.0
"""Seconds without an answer after which a client ends that has read copies of the
input.
"""
PATIENCE = 2.0
"""Seconds after which a goodbye without an unreported element is given up."""
LAST_REPORT = 300.0
"""Seconds after which even a report that other clients depend on is given up."""


class Goodbye:
    """The last message of a client, sent under a single name.

    Args:
        client: name of the client.
        reading: the elements that it has handed out.
        patience: seconds to continue without a dispatcher.
        counts: True if other clients would receive the unreported elements again.
        do: receives the resulting commands.

    Attributes:
        has_begun: True if the client is leaving.
        is_over: True if nothing more is sent.
        closing: time at which the user closed the iterator, or None. ``Closed`` is then
            returned when the goodbye is over.
    """

    def __init__(
        self,
        client: str,
        reading: Reading,
        patience: float,
        counts: bool,
        do: Callable[[e.ClientCommand], None],
    ) -> None:
        self.has_begun = self.is_over = False
        self.closing: float | None = None
        self._client = client
        self._reading = reading
        self._longest = max(PATIENCE, min(LAST_REPORT, patience)) if counts else PATIENCE
        self._do = do
        self._said = 0.0
        self._is_at_end = False

    def close(self, now: float) -> None:
        """Record that the user has closed the iterator."""
        self.closing = now
        if self.is_over:
            self._do(e.Closed())

    def begin(self, now: float, at_end: bool) -> None:
        """Leave with a goodbye.

        Args:
            now: present time.
            at_end: True if the training loop has read everything.
        """
        self.has_begun, self._is_at_end = True, at_end
        self._say(now)

    def omit(self) -> None:
        """Leave without a goodbye, or stop repeating it.

        The dispatcher does not know this client, does not listen to it, or has counted
        its goodbye.
        """
        self.has_begun = True
        if not self.is_over:
            self.is_over = True
            if self.closing is not None:
                self._do(e.Closed())

    def heard(self, answer: m.IterationClosed) -> None:
        """Stop repeating the goodbye, because the dispatcher has counted the last
        report.
        """
        if self.has_begun and answer.client == self._client:
            self.omit()

    def tick(self, now: float) -> None:
        """Repeat the goodbye, for a limited time if a caller waits for the iterator to
        close.
        """
        if self.closing is not None and now - self.closing >= self._patience:
            self.omit()
        elif not self.is_over and now - self._said >= REPEAT:
            self._say(now)

    @property
    def _patience(self) -> float:
        return self._longest if self._reading.unreported else PATIENCE

    def _say(self, now: float) -> None:
        self._said = now
        report, delivered, steps = self._reading.next_report()
        goodbye = m.CloseIteration(
            self._client,
            report,
            delivered,
            steps,
            repeats=self._reading.repeats,
            given_back=self._reading.given_back,
            at_end=self._is_at_end,
            measures=self._reading.measures,
        )
        self._do(e.Send(e.DISPATCHER, goodbye))


class ReadingEnd:
    """The time since which a client is done, and whether the dispatcher has found
    another client that stays.

    Args:
        client: name of the client.
        speak: sends a heartbeat at a given time and returns its number.
        reading: the elements that the client has handed out.
        notices: notices to the user, which also measure the silence of the dispatcher.

    Attributes:
        has_begun: True if the client has no element left to hand out.
    """

    def __init__(
        self, client: str, speak: Callable[[float], int], reading: Reading, notices: Notices
    ) -> None:
        self._client = client
        self._speak = speak
        self._reading = reading
        self._notices = notices
        self.revoke()

    def revoke(self) -> None:
        """Record that the client has elements to hand out, still or again."""
        self.has_begun, self._since, self._beat, self._is_granted = False, 0.0, 0, False

    def may_end(self, answer: MayEnd) -> None:
        """Take the dispatcher's permission to end.

        An answer to a heartbeat that the client sent before it was done does not count.
        """
        if answer.client == self._client and self._beat and answer.beat >= self._beat:
            self._is_granted = True

    def forgive(self, seconds: float) -> None:
        """Discount time in which no peer could have answered."""
        self._since += seconds

    def has_come(self, now: float, lease: ClientLease, of_copies: bool = False) -> bool:
        """True if a client that is done may end: with the dispatcher's permission, or
        without any answer for too long.

        Args:
            now: present time.
            lease: lease of the client.
            of_copies: True if it has read copies of the input to their ends. A
                dispatcher that does not answer begins no other copy.
        """
        if not self.has_begun:
            self.has_begun, self._since = True, now
            self._beat = self._speak(now)
        silence = now - max(self._since, self._notices.heard)
        patience = COPIES_PATIENCE if of_copies else lease.patience
        if not self._is_granted and silence < min(patience, self._notices.patience):
            return False
        if not self._is_granted and not lease.alone and not of_copies:
            self._notices.ended_alone(silence, self._reading.count_unreported())
        return True
