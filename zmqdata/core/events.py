"""Events and commands that deciders of several roles have in common, and the names of peers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

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
