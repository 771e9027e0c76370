"""Events and commands of the client's decider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zmqdata.core.events import DISPATCHER as DISPATCHER
from zmqdata.core.events import Carriers as Carriers
from zmqdata.core.events import Finish as Finish
from zmqdata.core.events import Handlers as Handlers
from zmqdata.core.events import LinkBroken as LinkBroken
from zmqdata.core.events import LogLine as LogLine
from zmqdata.core.events import Peer as Peer
from zmqdata.core.events import Received as Received
from zmqdata.core.events import Send as Send
from zmqdata.core.events import Tick as Tick
from zmqdata.messages import Block, LeftOutElement, Memory, OnLink


@dataclass(frozen=True, slots=True)
class Arrived:
    """Event: a message has arrived on a link. ``content`` is what it decodes to, opaque
    to the core.
    """

    link: str = field(repr=False)
    header: OnLink
    content: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TakenElements:
    """The training loop has taken elements ``first <= n < stop`` of a block of this
    task and attempt.

    ``size`` is the block's credit once its last element is taken, else 0. ``oldest``:
    somebody may go back to the place where so many elements had been handed out; None:
    nobody goes back.
    """

    task: int
    attempt: int
    first: int
    stop: int
    size: int
    oldest: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Event: the training loop has asked for its first element."""


@dataclass(frozen=True, slots=True)
class ShutOut:
    """Event: a server does not hear us, and will not: it knows neither our key nor,
    perhaps, our protocol.

    ``error`` and ``text``: with what to end.
    """

    error: str
    text: str


@dataclass(frozen=True, slots=True)
class NoteLeftOut:
    """Command: have an element that workers leave out in the quarantine of the
    iterator.
    """

    element: LeftOutElement


@dataclass(frozen=True, slots=True)
class PartsHandedOut:
    """Event: the training loop has taken a delivery, or some of it, in which are
    elements of one block or of several.

    Events come in the order in which the elements were delivered.
    """

    parts: tuple[TakenElements, ...]


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Event: the user is done with the iterator."""


@dataclass(frozen=True, slots=True)
class ConnectLink:
    """Command: connect a PULL socket, and map the link's memory if there is any;
    answered by ``MemoryMapped`` then.
    """

    link: str = field(repr=False)
    address: str
    secret: str = field(repr=False)
    memory: Memory | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MemoryMapped:
    """Event: the memory of a link can be read."""

    link: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DisconnectLink:
    """Command: close the PULL socket of a link."""

    link: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deliver:
    """Command: queue the elements of a block from the ``skip``-th to before the
    ``stop``-th for the training loop.
    """

    header: Block
    content: Any = field(repr=False)
    skip: int
    stop: int


@dataclass(frozen=True, slots=True)
class Weave:
    """Command: queue one element of each of these parts of blocks in turn, until all of
    them have none left.

    All have equally many. The first element of each part is taken in its one of the
    ``steps``, the second one ``cycle`` steps later, and so on.
    """

    parts: tuple[Deliver, ...]
    steps: tuple[int, ...]
    cycle: int


@dataclass(frozen=True, slots=True)
class DropQueued:
    """Command: what was delivered and not handed out belongs to others by now; forget
    it, the reports of it too.
    """


@dataclass(frozen=True, slots=True)
class Closed:
    """Command: the goodbye is said, or its deadline has passed; the shell may end."""


ClientEvent = (
    Arrived
    | CloseRequested
    | LinkBroken
    | MemoryMapped
    | PartsHandedOut
    | Received
    | ShutOut
    | Tick
    | Wanted
)
"""All events that the client's decider receives."""

ClientCommand = (
    Closed
    | ConnectLink
    | Deliver
    | DisconnectLink
    | DropQueued
    | Finish
    | LogLine
    | NoteLeftOut
    | Send
    | Weave
)
"""All commands that the client's decider returns."""
