"""Events and commands that several deciders share, the names of peers, and the tables
that connect an event, a message or a command with its handler.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from zmqdata.messages import Message

Peer = Hashable

DISPATCHER: Peer = "dispatcher"
"""The peer by which workers and clients know their dispatcher."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed. Shells send it a few times a second."""


@dataclass(frozen=True, slots=True)
class Received:
    """Event: a control message has arrived from ``peer``."""

    peer: Peer
    message: Message


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Event: ``peer`` has no connection at present."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Send:
    """Command: send a control message. Not being able to is reported by ``Unreachable``
    and otherwise harmless.
    """

    peer: Peer
    message: Message


@dataclass(frozen=True, slots=True)
class LogLine:
    """Command: tell the person who reads the log. ``level`` is one of debug, info,
    warning, error.
    """

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class KeepPiece:
    """Command: write a piece of a part behind those before it, and check the part when
    it is whole; ``PieceKept``.
    """

    digest: str
    size: int
    offset: int
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PieceKept:
    """Event: so many bytes of a part are written. All of them: the part is whole and
    what its digest says.

    ``broken``: it was whole and something else, and is removed. ``error``: it can not
    be written.
    """

    digest: str
    have: int
    broken: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """Command: nothing more will come. With an error, the training loop gets it at that
    place.

    ``failure``: a pipeline's failure, to raise in place of the error.
    """

    error: str = ""
    text: str = ""
    failure: bytes = b""


@dataclass(frozen=True, slots=True)
class LinkBroken:
    """Event: the connection of a link ended, or brought what cannot be decoded."""

    link: str = field(repr=False)
    reason: str


Kind = TypeVar("Kind")
MessageKind = TypeVar("MessageKind", bound=Message)

# A dict cannot say that the type of a value follows from its key, so the values of these
# three are `Any`. The methods that fill them say it, and the type checker holds every
# registration against the handler.


class Handlers(dict[type[object], Callable[[Any, float], object]]):
    """Handlers of events, by the class of the event. A handler also receives the time."""

    def on(self, kind: type[Kind], handler: Callable[[Kind, float], object]) -> None:
        """Register the handler of a class of events."""
        self[kind] = handler


class PeerHandlers(dict[type[Message], Callable[[Peer, Any, float], object]]):
    """Handlers of messages, by the class of the message. A handler receives the sender,
    the message and the time.
    """

    def on(
        self, kind: type[MessageKind], handler: Callable[[Peer, MessageKind, float], object]
    ) -> None:
        """Register the handler of a class of messages."""
        self[kind] = handler


class Carriers(dict[type[object], Callable[[Any], object]]):
    """Functions of a shell that carry out commands, by the class of the command."""

    def on(self, kind: type[Kind], carry_out: Callable[[Kind], object]) -> None:
        """Register the function that carries out a class of commands."""
        self[kind] = carry_out
