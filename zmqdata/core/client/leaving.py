"""How a client takes its leave: its last report is repeated until the dispatcher has counted it. No clock.

When a client leaves is the consumer core's affair.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata.core.client.tasks import Reading

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
        closing: since when the iterator is closed, if it is: whoever has closed it is told when the goodbye is over.
    """

    def __init__(
        self, client: str, reading: Reading, patience: float, counts: bool, do: Callable[[object], None]
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
            self._do(c.Closed())

    def begin(self, now: float) -> None:
        """Leaves with a goodbye."""
        self.has_begun = True
        self._say(now)

    def omit(self) -> None:
        """Leaves without a word, or says no more: nobody knows this client, or listens to it."""
        self.has_begun = True
        if not self.is_over:
            self.is_over = True
            if self.closing is not None:
                self._do(c.Closed())

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
        goodbye = m.CloseIteration(self._client, *self._reading.next_report(), self._reading.repeats)
        self._do(c.Send(c.DISPATCHER, goodbye))
