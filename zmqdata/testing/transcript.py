"""Talking to one core by hand: say something, see what it answers. For tests that state
one fact about one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from zmqdata.core import events as e
from zmqdata.messages import Message

Kind = TypeVar("Kind")
TICK = 0.25


class Core(Protocol):
    """What dispatcher, worker and consumer have in common."""

    def handle(self, now: float, event: Any) -> Sequence[Any]:
        """Takes an event noticed at ``now``; returns what to do."""
        ...


class Transcript:
    """A core, the time that it believes in, and what it last wanted done.

    Args:
        core: the core.

    Example:
        >>> from zmqdata.core.dispatcher.decider import DispatcherCore
        >>> from zmqdata.messages import DescribeDataset, RequestRefused
        >>> transcript = Transcript(DispatcherCore(seed=1))
        >>> transcript.hear("somebody", DescribeDataset("request", "unknown"))
        >>> transcript.sent(RequestRefused).text
        'Dataset id unknown not found.'
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.now = 0.0
        self.commands: list[Any] = []

    def feed(self, event: Any) -> None:
        """Gives the core an event; ``commands`` holds what it makes of it."""
        self.commands = list(self.core.handle(self.now, event))

    def hear(self, peer: e.Peer, message: Message) -> None:
        """Gives the core a control message."""
        self.feed(e.Received(peer, message))

    def wait(self, seconds: float) -> None:
        """Lets time pass, with ticks; ``commands`` holds everything done meanwhile."""
        done: list[Any] = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + TICK)
            self.feed(e.Tick())
            done += self.commands
        self.commands = done

    def all_of(self, kind: type[Kind]) -> list[Kind]:
        """The commands of a kind, or the messages of a kind that were sent, in
        order.
        """
        sent = [command.message for command in self.commands if isinstance(command, e.Send)]
        return [one for one in [*self.commands, *sent] if isinstance(one, kind)]

    def sent(self, kind: type[Kind]) -> Kind:
        """The only command, or message, of a kind."""
        found = self.all_of(kind)
        assert len(found) == 1, f"expected one {kind.__name__}, got {len(found)} in {self.commands}"
        return found[0]
