"""Events and commands that several deciders share, the names of peers, and the tables
that map an event, a message or a command to its handler.

See the page on the design.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from zmqdata.messages import Message
from zmqdata.messages.discreet import Discreet

Peer = Hashable

DISPATCHER: Peer = "dispatcher"
"""The peer name under which workers and clients address their dispatcher."""


class Tick(Discreet, frozen=True):
    """Event: time has passed. Shells send it several times a second."""


class Received(Discreet, frozen=True):
    """Event: a control message has arrived."""

    peer: Peer
    """The sender."""
    message: Message
    """The message."""


class Unreachable(Discreet, frozen=True):
    """Event: a peer has no connection at present."""

    peer: Peer
    """The peer."""


class Send(Discreet, frozen=True):
    """Command: send a control message. The shell reports a failure to send by
    ``Unreachable``; it has no other effect.
    """

    peer: Peer
    """The receiver."""
    message: Message
    """The message."""


class LogLine(Discreet, frozen=True):
    """Command: write a line to the log."""

    level: str
    """Severity: debug, info, warning or error."""
    text: str
    """The line."""
    job: str = ""
    """Name of the job that it concerns; empty if it concerns none."""
    incarnation: int = 0
    """Number of the incarnation of that job."""


class KeepPiece(Discreet, frozen=True):
    """Command: append a piece to a part, and verify the part when it is complete.
    Answered by ``PieceKept``.
    """

    digest: str
    """Digest of the part."""
    size: int
    """Size of the complete part in bytes."""
    offset: int
    """Offset of the piece in the part, in bytes."""
    content: bytes
    """The bytes of the piece."""


class PieceKept(Discreet, frozen=True):
    """Event: a piece of a part was written. A part whose bytes are all written matches
    its digest.
    """

    digest: str
    """Digest of the part."""
    have: int
    """Number of bytes of the part that are written."""
    broken: bool = False
    """True if the complete part did not match its digest and was removed."""
    error: str = ""
    """Reason why the piece could not be written; empty if it was."""


class Finish(Discreet, frozen=True):
    """Command: end the client's iterator. With an error, the training loop gets it at
    that place.
    """

    error: str = ""
    """Class name of the error; empty if the iterator ends without one."""
    text: str = ""
    """Text of the error."""
    failure: bytes = b""
    """Encoded failure of a pipeline, which is raised instead of the error."""


class LinkBroken(Discreet, frozen=True):
    """Event: the connection of a link ended, or delivered a message that cannot be
    decoded.
    """

    link: str
    """Name of the link."""
    reason: str
    """Why the link is broken."""


Kind = TypeVar("Kind")
MessageKind = TypeVar("MessageKind", bound=Message)

# A dict type cannot express that the type of a value follows from its key, so the
# values of these three are `Any`. The signatures of `on` express it, and the type
# checker checks every registration against its handler.


class Handlers(dict[type[object], Callable[[Any, float], object]]):
    """Event handlers by event class. A handler also receives the time."""

    def on(self, kind: type[Kind], handler: Callable[[Kind, float], object]) -> None:
        """Register the handler of an event class."""
        self[kind] = handler


class PeerHandlers(dict[type[Message], Callable[[Peer, Any, float], object]]):
    """Message handlers by message class. A handler receives the sender, the message and
    the time.
    """

    def on(
        self, kind: type[MessageKind], handler: Callable[[Peer, MessageKind, float], object]
    ) -> None:
        """Register the handler of a message class."""
        self[kind] = handler


class Carriers(dict[type[object], Callable[[Any], object]]):
    """Functions of a shell that carry out commands, by command class."""

    def on(self, kind: type[Kind], carry_out: Callable[[Kind], object]) -> None:
        """Register the function that carries out a command class."""
        self[kind] = carry_out
