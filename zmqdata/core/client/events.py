"""Events that the client's decider receives, and commands that it returns.

Decision 0032.
"""

from __future__ import annotations

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
from zmqdata.messages.discreet import Discreet


class Arrived(Discreet, frozen=True):
    """Event: a message has arrived on a link."""

    link: str
    """Name of the link."""
    header: OnLink
    """The message."""
    content: Any = None
    """The decoded content of a block, opaque to the core."""


class TakenElements(Discreet, frozen=True):
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


class Wanted(Discreet, frozen=True):
    """Event: the training loop has asked for its first element."""


class ShutOut(Discreet, frozen=True):
    """Event: a server does not hear this client and never will, because it does not
    know the client's key or, perhaps, its protocol.
    """

    error: str
    """Name of the error with which the iterator ends."""
    text: str
    """Text of that error."""


class NoteLeftOut(Discreet, frozen=True):
    """Command: list an element that workers skip in the quarantine of the iterator."""

    element: LeftOutElement
    """The skipped element."""


class ShowTaskLog(Discreet, frozen=True):
    """Command: show the user what functions of a task have printed and logged."""

    worker: str
    """Address of the worker."""
    logged: TaskLogged
    """The message with the lines and the id of their task."""


class PartsHandedOut(Discreet, frozen=True):
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


class CloseRequested(Discreet, frozen=True):
    """Event: the user has closed the iterator."""


class ConnectLink(Discreet, frozen=True):
    """Command: connect a PULL socket, and map the link's memory if it has any.

    ``MemoryMapped`` answers once the memory is mapped.
    """

    link: str
    """Name of the link."""
    address: str
    """Address to connect to."""
    secret: str
    """Secret of the link, which proves to the worker that this is its client."""
    memory: Memory | None = None
    """Shared memory that the worker offers, or None."""


class MemoryMapped(Discreet, frozen=True):
    """Event: the memory of a link can be read."""

    link: str
    """Name of the link."""


class DisconnectLink(Discreet, frozen=True):
    """Command: close the PULL socket of a link."""

    link: str
    """Name of the link."""


class Deliver(Discreet, frozen=True):
    """Command: queue elements of a block for the training loop."""

    header: Block
    """Header of the block."""
    content: Any
    """The decoded content of the block."""
    skip: int
    """Position of the first element to queue, within the block."""
    stop: int
    """Position after the last element to queue, within the block."""


class Weave(Discreet, frozen=True):
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


class DropUnbegun(Discreet, frozen=True):
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


class UnbegunDropped(Discreet, frozen=True):
    """Event: elements were dropped from the queue, the last ones of their task."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt that sent the elements."""
    recall: int
    """Number of the worker's request."""
    ranges: tuple[tuple[int, int], ...]
    """Ranges of the numbers of the elements."""


class DropQueued(Discreet, frozen=True):
    """Command: forget the delivered elements that were not handed out, and the reports
    of them, because they belong to other clients by now.
    """


class Closed(Discreet, frozen=True):
    """Command: end the shell, because the goodbye was acknowledged or its deadline has
    passed.
    """


class LoopMeasured(Discreet, frozen=True):
    """Event: the training loop has new measures."""

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
