"""What goes into a core and what comes out of it, beside messages: events and commands. Descriptions only.

A shell feeds events with the time they were noticed, and carries out commands in their order. ``peer`` is whatever a
shell needs to reach somebody (a routing id, a socket, a name in a simulation): cores compare and store it, no more.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from zmqdata.messages import Block, EndOfTask, Message, Part, TaskDefinition
from zmqdata.splits import FileSplits, Split
from zmqdata.updates import Update

Peer = Hashable

DISPATCHER: Peer = "dispatcher"
"""The peer by which workers and clients know their dispatcher."""

# --- events and commands of every core ----------------------------------------------------------------------------


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
    """Command: send a control message. Not being able to is reported by ``Unreachable`` and otherwise harmless."""

    peer: Peer
    message: Message


@dataclass(frozen=True, slots=True)
class Note:
    """Command: tell the person who reads the log. ``level`` is one of debug, info, warning, error."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class KeepPiece:
    """Command: write a piece of a part behind those before it, and check the part when it is whole; ``PieceKept``."""

    digest: str
    size: int
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class PieceKept:
    """Event: so many bytes of a part are written. All of them: the part is whole and what its digest says.

    ``broken``: it was whole and something else, and is removed. ``error``: it can not be written.
    """

    digest: str
    have: int
    broken: bool = False
    error: str = ""


# --- dispatcher ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Commit:
    """Command: write this fact before any later command of the same turn is carried out."""

    update: Update


@dataclass(frozen=True, slots=True)
class StorePipeline:
    """Command: keep these bytes under their digest."""

    digest: str
    pipeline: bytes


@dataclass(frozen=True, slots=True)
class DropPipeline:
    """Command: the bytes kept under this digest are not needed any more."""

    digest: str


@dataclass(frozen=True, slots=True)
class SendPipeline:
    """Command: answer ``RequestPipeline`` with the bytes kept under this digest, unless it is one of the parts."""

    peer: Peer
    dataset_id: str
    digest: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class SendPiece:
    """Command: answer ``RequestPiece`` with the bytes of a part from ``offset`` on."""

    peer: Peer
    digest: str
    offset: int


@dataclass(frozen=True, slots=True)
class PartLost:
    """Event: a part that was kept can not be read any more."""

    digest: str


@dataclass(frozen=True, slots=True)
class ListFiles:
    """Command: find the files of a source; answered by ``FilesListed``."""

    iteration: int
    source: int
    repetition: int
    files: FileSplits


@dataclass(frozen=True, slots=True)
class FilesListed:
    """Event: the files of a source, unordered, or the error that kept them from being listed."""

    iteration: int
    source: int
    repetition: int
    names: tuple[str, ...]
    error: str = ""


# --- worker -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartTask:
    """Command: start a task runner for this definition with the packed pipeline, or say why there is none.

    An empty pipeline without a reason is to be found among the parts.
    """

    definition: TaskDefinition
    pipeline: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """Command: look for a part in the cache, or take it on to fetch it unless another process does; ``PartClaimed``."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class PartClaimed:
    """Event: ``have`` bytes of the part are here; all of them: it is whole, checked, and held for the runners.

    ``ours``: nobody else fetches the rest. ``error``: the cache can not keep it.
    """

    digest: str
    have: int
    ours: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseParts:
    """Command: no runner will need any other parts than these; the cache may remove the rest when it wants space."""

    needed: frozenset[str]


@dataclass(frozen=True, slots=True)
class StopTask:
    """Command: stop the runner of this task and attempt; nothing it says later counts."""

    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class FeedSplits:
    """Command: give the runner the ledger entries of a source that follow those it has."""

    task: int
    attempt: int
    source: int
    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class AllowProduction:
    """Command: the runner may produce until its blocks add up to this many bytes since its start.

    ``elements``: nor may it make more than this number of elements, or rounds, as nobody reads; None: any number.
    """

    task: int
    attempt: int
    size: int
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class FlushTask:
    """Command: a client has nothing in flight; the runner hands over what it has, or its next element at once."""

    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SplitsWanted:
    """Event: a runner will soon have used up the splits of a source, or has and is ``waiting``.

    ``pace``: seconds that it takes for a split, 0 when unknown.
    """

    task: int
    attempt: int
    source: int
    repetition: int
    have: int
    waiting: bool = True
    pace: float = 0.0


@dataclass(frozen=True, slots=True)
class ReturnSplits:
    """Command: forget what is not started of a source's ledger; answered by ``LedgerCut`` within the same turn."""

    task: int
    attempt: int
    source: int


@dataclass(frozen=True, slots=True)
class LedgerCut:
    """Event: a runner keeps ``entries`` of a source's ledger, the last of them up to ``stop``.

    ``changed``: whether it has forgotten anything.
    """

    task: int
    attempt: int
    source: int
    entries: int
    stop: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Produced:
    """Event: a runner has made elements ``first ... first + count - 1``, or a failure in place of one.

    ``frames`` are opaque to the core. In coordinated jobs elements are numbered by rounds, and ``lane`` is the consumer
    that they are for.
    """

    task: int
    attempt: int
    first: int
    count: int
    size: int
    meta: bytes
    frames: Any
    failure: bytes = b""
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Event: a runner has come to the end after ``total`` elements, or rounds; ``dropped`` elements made no round."""

    task: int
    attempt: int
    total: int
    dropped: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """Event: a runner can not run its task at all; ``failure`` says why, in the form of ``Block.failure``."""

    task: int
    attempt: int
    failure: bytes


@dataclass(frozen=True, slots=True)
class BindLink:
    """Command: bind a PUSH socket for this link; answered by ``LinkBound``."""

    link: str
    host: str
    transports: tuple[str, ...]
    process: str = ""


@dataclass(frozen=True, slots=True)
class LinkBound:
    """Event: the socket of a link is bound with a one-time secret, or could not be; ``kind`` is the error's class."""

    link: str
    address: str
    secret: str
    error: str = ""
    kind: str = "ResourceExhaustedError"


@dataclass(frozen=True, slots=True)
class UnbindLink:
    """Command: close the socket of a link."""

    link: str


@dataclass(frozen=True, slots=True)
class Push:
    """Command (worker) and fact: send this header with its frames on a link."""

    link: str
    header: Block | EndOfTask
    frames: Any = ()


# --- consumer -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """Event: a message has arrived on a link. ``content`` is what it decodes to, opaque to the core."""

    link: str
    header: Block | EndOfTask
    content: Any = None


@dataclass(frozen=True, slots=True)
class LinkBroken:
    """Event: the connection of a link ended, or brought what cannot be decoded."""

    link: str
    reason: str


@dataclass(frozen=True, slots=True)
class HandedOut:
    """Event: the training loop has taken elements ``first <= n < stop`` of a block of this task and attempt.

    Events come in the order in which the elements were delivered.

    ``size`` is the block's credit once its last element is taken, else 0.
    """

    task: int
    attempt: int
    first: int
    stop: int
    size: int


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Event: the user is done with the iterator."""


@dataclass(frozen=True, slots=True)
class ConnectLink:
    """Command: connect a PULL socket."""

    link: str
    address: str
    secret: str


@dataclass(frozen=True, slots=True)
class DisconnectLink:
    """Command: close the PULL socket of a link."""

    link: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Command: queue the elements of a block from the ``skip``-th to before the ``stop``-th for the training loop."""

    header: Block
    content: Any
    skip: int
    stop: int


@dataclass(frozen=True, slots=True)
class Weave:
    """Command: queue one element of each of these parts of blocks in turn, until all of them have none left.

    All have equally many. The first element of each part is taken in its one of the ``steps``, the second one ``cycle``
    steps later, and so on.
    """

    parts: tuple[Deliver, ...]
    steps: tuple[int, ...]
    cycle: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Command: nothing more will come. With an error, the training loop gets it at that place.

    ``failure``: a pipeline's failure, to raise in place of the error.
    """

    error: str = ""
    text: str = ""
    failure: bytes = b""


@dataclass(frozen=True, slots=True)
class Closed:
    """Command: the goodbye is said, or its deadline has passed; the shell may end."""


