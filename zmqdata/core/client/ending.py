"""The client's side of an iteration's end: nothing more comes, but what others hold may yet. No clock.

Who may go, and why not everybody at once, is ``core.dispatcher.leaving``'s affair.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqdata.core.client.lease import ClientLease
from zmqdata.core.client.notices import Telling
from zmqdata.core.client.tasks import Reading
from zmqdata.messages import MayEnd


class Ending:
    """Since when a client is done, and whether the dispatcher says that somebody else stays.

    Args:
        client: its name.
        speak: has it report at a time, and returns the number of that heartbeat.
        reading: what it has handed out.
        telling: who knows how long the dispatcher has been silent.

    Attributes:
        has_begun: whether the client has nothing left to hand out.
    """

    def __init__(self, client: str, speak: Callable[[float], int], reading: Reading, telling: Telling) -> None:
        self._client = client
        self._speak = speak
        self._reading = reading
        self._telling = telling
        self.revoke()

    def revoke(self) -> None:
        """There is something to hand out, after all or still."""
        self.has_begun, self._since, self._beat, self._is_granted = False, 0.0, 0, False

    def may_end(self, answer: MayEnd) -> None:
        """The dispatcher answers to a heartbeat; what was said before the client was done does not count."""
        if answer.client == self._client and self._beat and answer.beat >= self._beat:
            self._is_granted = True

    def forgive(self, seconds: float) -> None:
        """Discounts time in which nobody could have answered."""
        self._since += seconds

    def has_come(self, now: float, lease: ClientLease) -> bool:
        """Whether a client that is done may end: with the dispatcher's word, or when there is none for too long."""
        if not self.has_begun:
            self.has_begun, self._since = True, now
            self._beat = self._speak(now)
        silence = now - max(self._since, self._telling.heard)
        if not self._is_granted and silence < min(lease.patience, self._telling.patience):
            return False
        if not self._is_granted and not lease.alone:
            self._telling.ended_alone(silence, self._reading.count_unreported())
        return True
