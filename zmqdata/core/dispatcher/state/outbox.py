"""What a core has decided in the current turn: commands in order, with durable facts
applied as they are made.
"""

from __future__ import annotations

import hashlib

from zmqdata.core.dispatcher.events import Commit, DispatcherCommand, LogLine, Peer, Send
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.messages import Message, RequestRefused
from zmqdata.updates import Update

TICKET = -1


class Outbox:
    """The dispatcher's state together with the commands that the shell will carry out
    after this turn.

    Args:
        seed: decides every random choice that the dispatcher makes.
    """

    def __init__(self, seed: int) -> None:
        # Workers and clients outlive a dispatcher without a journal: its successor must
        # not give the numbers that they know to other tasks and datasets.
        self.state = DispatcherState(seed, 10_000 * (derived(seed) % 1_000_000))
        self.commands: list[DispatcherCommand] = []

    def commit(self, update: Update) -> None:
        """Makes a durable fact true, and has it written before anything that follows is
        sent.
        """
        self.state.apply(update)
        self.commands.append(Commit(update))

    def send(self, peer: Peer | None, message: Message) -> None:
        """Sends a message; to nobody when the peer is not connected (repeated asks make
        up for it).
        """
        if peer is not None:
            self.commands.append(Send(peer, message))

    def refuse(self, peer: Peer | None, request: str, error: type[Exception], text: str) -> None:
        """Tells a peer that its ask can not be granted."""
        self.send(peer, RequestRefused(request, error.__name__, text))

    def note(self, level: str, text: str) -> None:
        """Tells the person who reads the log."""
        self.commands.append(LogLine(level, text))

    def drain(self) -> list[DispatcherCommand]:
        """The commands of this turn; the next turn starts empty."""
        commands, self.commands = self.commands, []
        return commands

    def derive_seed(self, *names: int) -> int:
        """A seed below 2**63 that depends on the dispatcher's seed and the names
        only.
        """
        return derived(self.state.seed, *names)

    def ticket(self, iteration: int) -> int:
        """What shows a worker that a client reads this iteration: nobody can guess it
        who does not know the seed.
        """
        return self.derive_seed(iteration, TICKET)


def derived(*numbers: int) -> int:
    """A seed below 2**63 that depends on these numbers only."""
    return (
        int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "little")
        >> 1
    )
