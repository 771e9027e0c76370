"""How a client takes its leave: its last report is repeated until the dispatcher has
counted it. No clock.

When a client leaves is the consumer core's affair.

The client's side of an iteration's end: nothing more comes, but what others hold may
yet. No clock.

Who may go, and why not everybody at once, is ``core.dispatcher.leaving``'s affair.
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
PATIENCE = 2.0
LAST_REPORT = 300.0
"""Seconds after which even a report that others depend on is given up."""


class Goodbye:
    """What a client says last, under one name.

    Args:
        client: its name.
        reading: what it has handed out.
        patience: seconds to do without a dispatcher.
        counts: whether others would get again what the last report does not tell of.
        do: takes the commands that result.

    Attributes:
        has_begun: whether the client leaves.
        is_over: whether nothing more is said.
        closing: since when the iterator is closed, if it is: whoever has closed it is
            told when the goodbye is over.
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

    def close(self, now: float) -> None:
        """The iterator is closed."""
        self.closing = now
        if self.is_over:
            self._do(e.Closed())

    def begin(self, now: float) -> None:
        """Leaves with a goodbye."""
        self.has_begun = True
        self._say(now)

    def omit(self) -> None:
        """Leaves without a word, or says no more: nobody knows this client, or listens
        to it.
        """
        self.has_begun = True
        if not self.is_over:
            self.is_over = True
            if self.closing is not None:
                self._do(e.Closed())

    def heard(self, answer: m.IterationClosed) -> None:
        """The dispatcher has counted the last report."""
        if self.has_begun and answer.client == self._client:
            self.omit()

    def tick(self, now: float) -> None:
        """Says it again, but not for ever while somebody waits for it."""
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
        goodbye = m.CloseIteration(self._client, report, delivered, steps, self._reading.repeats)
        self._do(e.Send(e.DISPATCHER, goodbye))


class ReadingEnd:
    """Since when a client is done, and whether the dispatcher says that somebody else
    stays.

    Args:
        client: its name.
        speak: has it report at a time, and returns the number of that heartbeat.
        reading: what it has handed out.
        telling: who knows how long the dispatcher has been silent.

    Attributes:
        has_begun: whether the client has nothing left to hand out.
    """

    def __init__(
        self, client: str, speak: Callable[[float], int], reading: Reading, telling: Notices
    ) -> None:
        self._client = client
        self._speak = speak
        self._reading = reading
        self._telling = telling
        self.revoke()

    def revoke(self) -> None:
        """There is something to hand out, after all or still."""
        self.has_begun, self._since, self._beat, self._is_granted = False, 0.0, 0, False

    def may_end(self, answer: MayEnd) -> None:
        """The dispatcher answers to a heartbeat; what was said before the client was
        done does not count.
        """
        if answer.client == self._client and self._beat and answer.beat >= self._beat:
            self._is_granted = True

    def forgive(self, seconds: float) -> None:
        """Discounts time in which nobody could have answered."""
        self._since += seconds

    def has_come(self, now: float, lease: ClientLease) -> bool:
        """Whether a client that is done may end: with the dispatcher's word, or when
        there is none for too long.
        """
        if not self.has_begun:
            self.has_begun, self._since = True, now
            self._beat = self._speak(now)
        silence = now - max(self._since, self._telling.heard)
        if not self._is_granted and silence < min(lease.patience, self._telling.patience):
            return False
        if not self._is_granted and not lease.alone:
            self._telling.ended_alone(silence, self._reading.count_unreported())
        return True
