"""Events that the client's decider receives, and commands that it returns.

Decision 0032.
"""

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
from zmqdata.messages import (
    Block,
    LeftOutElement,
    LoopMeasures,
    Memory,
    OnLink,
    TaskLogged,
)


@dataclass(frozen=True, slots=True)
class Arrived:
    """Event: a message has arrived on a link."""

    link: str = field(repr=False)
    """Name of the link."""
    header: OnLink
    """The message."""
    content: Any = field(default=None, repr=False)
    """The decoded content of a block, opaque to the core."""


@dataclass(frozen=True, slots=True)
class TakenElements:
    """Elements ``first <= n < stop`` of a block that the training loop has taken."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task that sent the block."""
    first: int
    """Number of the first element."""
    stop: int
    """Number after the last element."""
    size: int
    """Bytes of credit of the block once its last element is taken, otherwise 0."""
    oldest: int | None = None
    """Oldest place to which an operation may go back, as a number of handed-out
    elements. None if no operation goes back.
    """


@dataclass(frozen=True, slots=True)
class Wanted:
    """Event: the training loop has asked for its first element."""


@dataclass(frozen=True, slots=True)
class ShutOut:
    """Event: a server does not hear this client and never will, because it does not
    know the client's key or, perhaps, its protocol.
    """

    error: str
    """Name of the error with which the iterator ends."""
    text: str
    """Text of that error."""


@dataclass(frozen=True, slots=True)
class NoteLeftOut:
    """Command: list an element that workers skip in the quarantine of the iterator."""

    element: LeftOutElement
    """The skipped element."""


@dataclass(frozen=True, slots=True)
class ShowTaskLog:
    """Command: show the user what functions of a task have printed and logged."""

    worker: str
    """Address of the worker."""
    logged: TaskLogged
    """The message with the lines and the id of their task."""


@dataclass(frozen=True, slots=True)
class PartsHandedOut:
    """Event: the training loop has taken a delivery, or a part of it, with elements of
    any number of blocks.

    Events are sent in the order in which the elements were delivered.
    """

    parts: tuple[TakenElements, ...]
    """The elements taken, per block and in order. Empty if the loop has only come back
    for more.
    """
    at_work: bool = False
    """True if the loop has not come back for more yet."""


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Event: the user has closed the iterator."""


@dataclass(frozen=True, slots=True)
class ConnectLink:
    """Command: connect a PULL socket, and map the link's memory if it has any.

    ``MemoryMapped`` answers once the memory is mapped.
    """

    link: str = field(repr=False)
    """Name of the link."""
    address: str
    """Address to connect to."""
    secret: str = field(repr=False)
    """Secret of the link, which proves to the worker that this is its client."""
    memory: Memory | None = field(default=None, repr=False)
    """Shared memory that the worker offers, or None."""


@dataclass(frozen=True, slots=True)
class MemoryMapped:
    """Event: the memory of a link can be read."""

    link: str = field(repr=False)
    """Name of the link."""


@dataclass(frozen=True, slots=True)
class DisconnectLink:
    """Command: close the PULL socket of a link."""

    link: str = field(repr=False)
    """Name of the link."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Command: queue elements of a block for the training loop."""

    header: Block
    """Header of the block."""
    content: Any = field(repr=False)
    """The decoded content of the block."""
    skip: int
    """Position of the first element to queue, within the block."""
    stop: int
    """Position after the last element to queue, within the block."""


@dataclass(frozen=True, slots=True)
class Weave:
    """Command: queue an element of each part of a block in turn, until every part is
    used up.

    All parts have equally many elements. The first element of each part is taken in its
    step of ``steps``, the second ``cycle`` steps later, and so on.
    """

    parts: tuple[Deliver, ...]
    """The parts, in the order of their turns."""
    steps: tuple[int, ...]
    """Step of the first element of each part."""
    cycle: int
    """Number of steps from an element of a part to the next."""


@dataclass(frozen=True, slots=True)
class DropUnbegun:
    """Command: drop elements of a task from the end of the queue that the training loop
    has not begun, whole pieces only; answered by ``UnbegunDropped`` within the same
    turn.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt that sent the elements."""
    recall: int
    """Number of the worker's request."""
    count: int
    """Maximum number of elements to drop."""


@dataclass(frozen=True, slots=True)
class UnbegunDropped:
    """Event: elements were dropped from the queue, the last ones of their task."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt that sent the elements."""
    recall: int
    """Number of the worker's request."""
    ranges: tuple[tuple[int, int], ...]
    """Ranges of the numbers of the elements."""


@dataclass(frozen=True, slots=True)
class DropQueued:
    """Command: forget the delivered elements that were not handed out, and the reports
    of them, because they belong to other clients by now.
    """


@dataclass(frozen=True, slots=True)
class Closed:
    """Command: end the shell, because the goodbye was acknowledged or its deadline has
    passed.
    """


@dataclass(frozen=True, slots=True)
class LoopMeasured:
    """Event: it was measured what the training loop does for how long."""

    measures: LoopMeasures
    """The measures."""


ClientEvent = (
    Arrived
    | CloseRequested
    | LinkBroken
    | LoopMeasured
    | MemoryMapped
    | PartsHandedOut
    | Received
    | ShutOut
    | Tick
    | UnbegunDropped
    | Wanted
)
"""All events that the client's decider receives."""

ClientCommand = (
    Closed
    | ConnectLink
    | Deliver
    | DisconnectLink
    | DropQueued
    | DropUnbegun
    | Finish
    | LogLine
    | NoteLeftOut
    | Send
    | ShowTaskLog
    | Weave
)
"""All commands that the client's decider returns."""
