"""Events and commands of the worker's decider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from zmqdata.core.events import DISPATCHER as DISPATCHER
from zmqdata.core.events import Carriers as Carriers
from zmqdata.core.events import Finish as Finish
from zmqdata.core.events import Handlers as Handlers
from zmqdata.core.events import KeepPiece as KeepPiece
from zmqdata.core.events import LinkBroken as LinkBroken
from zmqdata.core.events import LogLine as LogLine
from zmqdata.core.events import Peer as Peer
from zmqdata.core.events import PeerHandlers as PeerHandlers
from zmqdata.core.events import PieceKept as PieceKept
from zmqdata.core.events import Received as Received
from zmqdata.core.events import Send as Send
from zmqdata.core.events import Tick as Tick
from zmqdata.decisions import Decision
from zmqdata.messages import Block, Crumb, EndOfTask, Lineage, Memory, TaskDefinition, TaskState
from zmqdata.splits import Split


class TaskKey(NamedTuple):
    """The name of a hosted task: its number, and the attempt under which it is hosted."""

    task: int
    attempt: int


class OfTask(Protocol):
    """An event or a message that concerns a single attempt of a task."""

    @property
    def task(self) -> int: ...

    @property
    def attempt(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Connected:
    """Event: there is a connection to the dispatcher, perhaps a new one, on which it
    has heard nothing yet.
    """


@dataclass(frozen=True, slots=True)
class StartTask:
    """Command: start a task runner for this definition with the packed pipeline, or say
    why there is none.

    An empty pipeline without a reason is to be found among the parts.
    """

    definition: TaskDefinition
    pipeline: bytes = field(repr=False)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """Command: look for a part in the cache, or take it on to fetch it unless another
    process does; ``PartClaimed``.
    """

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class PartClaimed:
    """Event: ``have`` bytes of the part are here; all of them: it is whole, checked,
    and held for the runners.

    ``ours``: nobody else fetches the rest. ``error``: the cache can not keep it.
    """

    digest: str
    have: int
    ours: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseParts:
    """Command: no runner will need any other parts than these; the cache may remove the
    rest when it wants space.
    """

    needed: frozenset[str]


@dataclass(frozen=True, slots=True)
class StopTask:
    """Command: stop the runner of this task and attempt; nothing it says later
    counts.
    """

    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class FeedSplits:
    """Command: give the runner the ledger entries of a source that follow those it
    has.
    """

    task: int
    attempt: int
    source: int
    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class AllowProduction:
    """Command: the runner may produce until its blocks add up to this many bytes since
    its start.

    ``elements``: nor may it make more than this number of elements, or rounds, as
    nobody reads; None: any number. ``few_bytes``: blocks of few large elements are
    filled up to this.
    """

    task: int
    attempt: int
    size: int
    elements: int | None
    few_bytes: int


@dataclass(frozen=True, slots=True)
class FlushTask:
    """Command: a client has nothing in flight; the runner hands over what it has, or
    its next element at once.
    """

    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SplitsWanted:
    """Event: a runner will soon have used up the splits of a source, or has and is
    ``waiting``.

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
    """Command: forget what is not started of a source's ledger; answered by
    ``LedgerCut`` within the same turn.
    """

    task: int
    attempt: int
    source: int


@dataclass(frozen=True, slots=True)
class LedgerCut:
    """Event: a runner keeps ``entries`` of a source's ledger, the last of them up to
    ``stop``.

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
    """Event: a runner has made elements ``first ... first + count - 1``, or a failure
    in place of one.

    ``frames`` are opaque to the core. In coordinated jobs elements are numbered by
    rounds, and ``lane`` is the consumer that they are for.
    """

    task: int
    attempt: int
    first: int
    count: int
    size: int
    meta: bytes = field(repr=False)
    frames: Any = field(repr=False)
    failure: bytes = b""
    lane: int = 0


@dataclass(frozen=True, slots=True)
class SplitsStarted:
    """Event: how far a runner's sources have started their ledgers: per source, whole
    entries and splits of the next.

    It comes before what was made of those splits.
    """

    task: int
    attempt: int
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """Event: a runner's operations have passed over elements, or could have: its
    decisions from number ``first`` on.

    It comes before what was made since.
    """

    task: int
    attempt: int
    first: int
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class StateNoted:
    """Event: a runner has noted where its pipeline is, behind all that it has made
    before this event.
    """

    task: int
    attempt: int
    state: TaskState


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Event: a runner has come to the end after ``total`` elements, or rounds;
    ``dropped`` elements made no round.
    """

    task: int
    attempt: int
    total: int
    dropped: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """Event: a runner can not run its task at all; ``failure`` says why, in the form of
    ``Block.failure``.
    """

    task: int
    attempt: int
    failure: bytes


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Event: the worker shall leave, within ``patience`` seconds, once others have its
    tasks.
    """

    patience: float


@dataclass(frozen=True, slots=True)
class BindLink:
    """Command: bind a PUSH socket for this link; answered by ``LinkBound``.

    ``decompresses``: false if compressed blocks are to be decompressed before they are
    sent on it.
    """

    link: str = field(repr=False)
    host: str
    transports: tuple[str, ...]
    process: str = field(default="", repr=False)
    decompresses: bool = True


@dataclass(frozen=True, slots=True)
class LinkBound:
    """Event: the socket of a link is bound with a one-time secret, or could not be;
    ``kind`` is the error's class.

    ``memory``: what its client may map.
    """

    link: str = field(repr=False)
    address: str
    secret: str = field(repr=False)
    error: str = ""
    kind: str = "ResourceExhaustedError"
    memory: Memory | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ShareMemory:
    """Command: the client of this link has mapped its memory; put large frames
    there.
    """

    link: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnbindLink:
    """Command: close the socket of a link."""

    link: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Push:
    """Command (worker) and fact: send this header with its frames on a link."""

    link: str = field(repr=False)
    header: Block | EndOfTask | Lineage
    frames: Any = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Compressing:
    """Event: what a task's blocks are compressed with now, in words; "" for nothing."""

    task: int
    attempt: int
    compressed: str


@dataclass(frozen=True, slots=True)
class Busy:
    """Event: for so many seconds a runner has been at the same thing; 0: it is not any
    more.
    """

    task: int
    attempt: int
    seconds: float
    crumb: Crumb | None = None


@dataclass(frozen=True, slots=True)
class WriteBlock:
    """Command: append a block to the open chunk of a task that is saved; answered by
    ``BlockWritten``.

    The first block opens the chunk that begins with element ``chunk``.
    """

    task: int
    attempt: int
    chunk: int
    size: int
    meta: bytes = field(repr=False)
    frames: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class BlockWritten:
    """Event: a block of this size is in its chunk."""

    task: int
    attempt: int
    size: int


@dataclass(frozen=True, slots=True)
class CloseChunk:
    """Command: bring the open chunk, which ends before element ``stop``, onto the disk;
    answered by ``ChunkClosed``.
    """

    task: int
    attempt: int
    chunk: int
    stop: int


@dataclass(frozen=True, slots=True)
class ChunkClosed:
    """Event: a chunk is on the disk, in ``size`` bytes."""

    task: int
    attempt: int
    chunk: int
    stop: int
    size: int
    spec: bytes = b""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """Event: a chunk could not be written."""

    task: int
    attempt: int
    error: str
    text: str


WorkerEvent = (
    BlockWritten
    | Busy
    | ChunkClosed
    | Compressing
    | Connected
    | Decided
    | DrainRequested
    | Exhausted
    | LedgerCut
    | LinkBound
    | LinkBroken
    | PartClaimed
    | PieceKept
    | Produced
    | Received
    | SplitsStarted
    | SplitsWanted
    | StateNoted
    | TaskFailed
    | Tick
    | WriteFailed
)
"""All events that the worker's decider receives."""

WorkerCommand = (
    AllowProduction
    | BindLink
    | ClaimPart
    | CloseChunk
    | FeedSplits
    | Finish
    | FlushTask
    | KeepPiece
    | LogLine
    | Push
    | ReleaseParts
    | ReturnSplits
    | Send
    | ShareMemory
    | StartTask
    | StopTask
    | UnbindLink
    | WriteBlock
)
"""All commands that the worker's decider returns."""
