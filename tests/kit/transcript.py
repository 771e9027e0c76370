"""A conversation with a single core, for tests that state a fact about it: feed an
event, and see the commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from zmqdata import messages as m
from zmqdata.core import events as e

Kind = TypeVar("Kind")
TICK = 0.25
"""Seconds between two ticks."""


class Core(Protocol):
    """The interface that all deciders share."""

    def handle(self, now: float, event: Any) -> Sequence[Any]:
        """Handle an event at time ``now`` and return the resulting commands."""
        ...


class Transcript:
    """A core, its time, and the commands that it returned last.

    Args:
        core: the core.

    Attributes:
        asked: newest question of a dispatcher to each peer, which a living client
            repeats.

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
        self.asked: dict[e.Peer, m.Question] = {}

    def feed(self, event: Any) -> None:
        """Feed an event. ``commands`` then contains what the core returned for it."""
        self.commands = list(self.core.handle(self.now, event))
        for command in self.commands:
            message = command.message if isinstance(command, e.Send) else None
            if isinstance(message, m.Probe) and message.question is not None:
                self.asked[command.peer] = message.question

    def hear(self, peer: e.Peer, message: m.Message) -> None:
        """Feed a control message."""
        self.feed(e.Received(peer, message))

    def wait(self, seconds: float) -> None:
        """Let time pass, with ticks. ``commands`` then contains everything returned
        meanwhile.
        """
        done: list[Any] = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + TICK)
            self.feed(e.Tick())
            done += self.commands
        self.commands = done

    def all_of(self, kind: type[Kind]) -> list[Kind]:
        """Return the commands of a kind, or the sent messages of a kind, in order."""
        sent = [command.message for command in self.commands if isinstance(command, e.Send)]
        return [one for one in [*self.commands, *sent] if isinstance(one, kind)]

    def sent(self, kind: type[Kind]) -> Kind:
        """Return the only command, or sent message, of a kind."""
        found = self.all_of(kind)
        assert len(found) == 1, f"expected one {kind.__name__}, got {len(found)} in {self.commands}"
        return found[0]
