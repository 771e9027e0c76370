"""The decisions of the current turn: commands in order, with durable facts applied as
they are made.

Protocol 1.5, 5.4 and 6.1.
"""

from __future__ import annotations

import hashlib

from zmqdata.core.dispatcher.events import Commit, DispatcherCommand, LogLine, Peer, Send
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.messages import Message, RequestRefused
from zmqdata.updates import Update

TICKET = -1
"""Name from which tickets are derived."""


class Outbox:
    """The dispatcher's state, with the commands that the shell carries out after this
    turn.

    Args:
        seed: determines every random choice of the dispatcher.
    """

    def __init__(self, seed: int) -> None:
        # Workers and clients outlive a dispatcher without a journal. Its successor must
        # not reuse the numbers that they know for other tasks and datasets.
        self.state = DispatcherState(seed, 10_000 * (derived(seed) % 1_000_000))
        self.commands: list[DispatcherCommand] = []

    def commit(self, update: Update) -> None:
        """Apply a durable fact, and have it written before any later message is
        sent.
        """
        self.state.apply(update)
        self.commands.append(Commit(update))

    def send(self, peer: Peer | None, message: Message) -> None:
        """Send a message, unless the peer is not connected. Repeated requests make up
        for it.
        """
        if peer is not None:
            self.commands.append(Send(peer, message))

    def refuse(self, peer: Peer | None, request: str, error: type[Exception], text: str) -> None:
        """Tell a peer that its request is refused."""
        self.send(peer, RequestRefused(request, error.__name__, text))

    def note(self, level: str, text: str) -> None:
        """Write a line to the log."""
        self.commands.append(LogLine(level, text))

    def drain(self) -> list[DispatcherCommand]:
        """Return the commands of this turn. The next turn starts without any."""
        commands, self.commands = self.commands, []
        return commands

    def derive_seed(self, *names: int) -> int:
        """Return a seed below 2**63 that depends only on the dispatcher's seed and the
        names.
        """
        return derived(self.state.seed, *names)

    def ticket(self, iteration: int) -> int:
        """Return the ticket that proves to a worker that a client reads this iteration.
        Only the seed makes it predictable.
        """
        return self.derive_seed(iteration, TICKET)


def derived(*numbers: int) -> int:
    """Return a seed below 2**63 that depends only on these numbers."""
    return (
        int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "little")
        >> 1
    )
