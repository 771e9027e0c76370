"""Events and commands of the worker's decider.

Decision 0032; see the page on the design.
"""

from __future__ import annotations

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
from zmqdata.messages import (
    LeftOutElement,
    MappedFile,
    Memory,
    OnLink,
    TaskDefinition,
    TaskLine,
    TaskMeasures,
    TaskState,
    Work,
)
from zmqdata.messages.discreet import Discreet
from zmqdata.splits import Split


class TaskKey(NamedTuple):
    """The identity of a hosted task."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt under which the task is hosted."""


class OfTask(Protocol):
    """An event or a message that concerns a single attempt of a task."""

    @property
    def task(self) -> int: ...

    @property
    def attempt(self) -> int: ...


class Connected(Discreet, frozen=True):
    """Event: the worker has a connection to the dispatcher. The connection may be new,
    in which case the dispatcher has received nothing on it yet.
    """


class Disconnected(Discreet, frozen=True):
    """Event: the worker has lost its connection to the dispatcher, or could not make
    one. It tries again by itself.
    """


class StartTask(Discreet, frozen=True):
    """Command: start a task runner for this definition, or report why the task cannot
    run.
    """

    definition: TaskDefinition
    """Definition of the task."""
    pipeline: bytes
    """The packed pipeline. If it is empty and ``reason`` is too, the packed pipeline is
    one of the parts.
    """
    reason: str = ""
    """Reason why the worker has no pipeline; "" if it has one."""


class CheckFiles(Discreet, frozen=True):
    """Command: look whether the worker sees the files that a pipeline maps; answered by
    ``FilesChecked``.
    """

    request: str
    """Id of the request, which the answer repeats."""
    maps: tuple[MappedFile, ...]
    """The mapped ranges."""


class FilesChecked(Discreet, frozen=True):
    """Event: the files that a pipeline maps were looked at."""

    request: str
    """Id of the request."""
    fault: str
    """Error of a task that needs a file; "" if the worker sees all."""


class ClaimPart(Discreet, frozen=True):
    """Command: look for a part in the cache. If it is incomplete and no other process
    fetches it, claim it; answered by ``PartClaimed``.
    """

    digest: str
    """Digest of the part."""
    size: int
    """Size of the part in bytes."""


class PartClaimed(Discreet, frozen=True):
    """Event: the cache was searched for a part."""

    digest: str
    """Digest of the part."""
    have: int
    """Number of bytes present. If this is the size of the part, the part is complete,
    verified, and held for the runners.
    """
    ours: bool
    """True if this worker fetches the rest and no other process does."""
    error: str = ""
    """Reason why the cache cannot keep the part; "" if it can."""


class ReleaseParts(Discreet, frozen=True):
    """Command: the cache may remove all other parts when it needs space, because no
    runner will need them.
    """

    needed: frozenset[str]
    """Digests of the parts that runners may still need."""


class DropParcels(Discreet, frozen=True):
    """Command: drop the opened parcels that are kept for these datasets."""

    datasets: frozenset[str]
    """Ids of the datasets."""


class StopTask(Discreet, frozen=True):
    """Command: stop the runner of this task and attempt. Later events from it are
    ignored.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""


class FeedSplits(Discreet, frozen=True):
    """Command: give the runner the next ledger entries of a source."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    source: int
    """Index of the source."""
    splits: tuple[Split, ...]
    """The entries."""


class AllowProduction(Discreet, frozen=True):
    """Command: the runner may produce up to these limits."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    size: int
    """Maximum total size of the runner's blocks since its start, in bytes."""
    elements: int | None
    """Maximum number of elements, or rounds, while no client reads the task; None if it
    is unlimited.
    """
    few_bytes: int
    """Size up to which blocks of few large elements are filled, in bytes."""


class FlushTask(Discreet, frozen=True):
    """Command: the runner hands over what it has, or its next element at once, because
    a client has nothing in flight.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""


class SplitsWanted(Discreet, frozen=True):
    """Event: a runner has nearly or completely used up the splits of a source."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    source: int
    """Index of the source."""
    repetition: int
    """Repetition of the source."""
    have: int
    """Number of ledger entries that the runner has."""
    waiting: bool = True
    """True if the splits are used up and the source waits."""
    pace: float = 0.0
    """Seconds that the source takes for a split; 0 if unknown."""
    produced: int = 0
    """Number of elements that the pipeline has produced so far."""


class ReturnSplits(Discreet, frozen=True):
    """Command: remove the entries of a source's ledger that are not started; answered
    by ``LedgerCut`` within the same turn.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    source: int
    """Index of the source."""


class LedgerCut(Discreet, frozen=True):
    """Event: a runner has shortened the ledger of a source to what was started."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    source: int
    """Index of the source."""
    entries: int
    """Number of entries that remain."""
    stop: int
    """End of the last remaining entry."""
    changed: bool
    """True if the runner has removed anything."""


class Produced(Discreet, frozen=True):
    """Event: a runner has produced consecutive elements, or a failure in place of a
    single element.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    first: int
    """Number of the first element. In coordinated jobs elements are numbered by rounds.
    """
    count: int
    """Number of elements."""
    size: int
    """Size of the block in bytes."""
    meta: bytes
    """Encoded description of the frames."""
    frames: Any
    """The encoded elements, opaque to the core."""
    failure: bytes = b""
    """Encoded error that stands for the element; empty if none."""
    lane: int = 0
    """Index of the consumer that the elements are for, in coordinated jobs."""


class SplitsStarted(Discreet, frozen=True):
    """Event: a runner has advanced in the ledgers of its sources. It precedes
    everything that was produced from those splits.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    places: tuple[tuple[int, int], ...]
    """Position of each source: the number of entries that are completely started, and
    the number of started splits in the next entry.
    """


class Decided(Discreet, frozen=True):
    """Event: the runner's operations have decided whether elements are skipped. It
    precedes everything that was produced since.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    first: int
    """Number of the first decision."""
    decisions: tuple[Decision, ...]
    """The decisions."""


class StateNoted(Discreet, frozen=True):
    """Event: a runner has taken a state of its pipeline, after everything that it
    produced before this event.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    state: TaskState
    """The state."""


class Exhausted(Discreet, frozen=True):
    """Event: a runner has reached the end of its task."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    total: int
    """Number of elements, or rounds, that the task has. A rest counts as a round."""
    left_out: int = 0
    """Number of elements that failed and that the pipeline skipped."""
    rest: tuple[Produced, ...] = ()
    """The elements after the last full round, each as a block for no lane yet."""
    measures: TaskMeasures | None = None
    """The last measures of the attempt; None if it has never run."""


class Quarantined(Discreet, frozen=True):
    """Event: the pipeline of a task has left out an element that failed."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    element: LeftOutElement
    """The element."""


class LinesCollected(Discreet, frozen=True):
    """Event: functions of a task have printed or logged lines."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    lines: tuple[TaskLine, ...]
    """The lines, in the order in which they were printed."""
    suppressed: int = 0
    """Number of further lines since the last such event, which were too many."""


class TaskFailed(Discreet, frozen=True):
    """Event: a runner cannot run its task at all."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    failure: bytes
    """The error, in the form of ``Block.failure``."""
    measures: TaskMeasures | None = None
    """The last measures of the attempt; None if it has never run."""


class DrainRequested(Discreet, frozen=True):
    """Event: the worker is asked to leave as soon as other workers have its tasks."""

    patience: float
    """Maximum number of seconds until it leaves."""


class MemoryRead(Discreet, frozen=True):
    """Event: the memory of the worker's process was read."""

    rss: int
    """Resident size in bytes."""
    counted: int
    """Bytes of writable memory, as its limit counts them."""
    parcels: frozenset[str] = frozenset()
    """Ids of the datasets of which it keeps opened parcels between tasks."""


class FallQuiet(Discreet, frozen=True):
    """Command: end production between elements. Produced elements are still sent."""


class BindLink(Discreet, frozen=True):
    """Command: bind a PUSH socket for this link; answered by ``LinkBound``."""

    link: str
    """Name of the link."""
    host: str
    """Token of the client's host."""
    transports: tuple[str, ...]
    """Transports that the client supports, in order of preference."""
    process: str = ""
    """Secret of the client's process."""
    decompresses: bool = True
    """False if the client cannot decompress. The shell then decompresses blocks before
    it sends them on this link.
    """


class LinkBound(Discreet, frozen=True):
    """Event: the socket of a link is bound with a one-time secret, or could not be
    bound.
    """

    link: str
    """Name of the link."""
    address: str
    """Address of the socket."""
    secret: str
    """The one-time secret."""
    error: str = ""
    """Reason why the socket could not be bound; "" if it is bound."""
    kind: str = "ResourceExhaustedError"
    """Name of the error's class."""
    memory: Memory | None = None
    """Shared memory that the client may map; None if there is none."""


class ShareMemory(Discreet, frozen=True):
    """Command: place large frames in the memory of this link, because its client has
    mapped it.
    """

    link: str
    """Name of the link."""


class UnbindLink(Discreet, frozen=True):
    """Command: close the socket of a link."""

    link: str
    """Name of the link."""


class Push(Discreet, frozen=True):
    """Command: send this header with its frames on a link."""

    link: str
    """Name of the link."""
    header: OnLink
    """The header."""
    frames: Any = ()
    """The frames of a block; empty for other headers."""


class Compressing(Discreet, frozen=True):
    """Event: the compression of a task's blocks has changed."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    compressed: str
    """Description of the compression for humans; "" for none."""


class TaskMeasured(Discreet, frozen=True):
    """Event: it was measured what an attempt of a task does for how long."""

    measures: TaskMeasures
    """The measures, with the numbers of the task and the attempt."""

    @property
    def task(self) -> int:
        """Number of the task."""
        return self.measures.task

    @property
    def attempt(self) -> int:
        """Attempt of the task."""
        return self.measures.attempt


class Busy(Discreet, frozen=True):
    """Event: a runner has been working on the same thing for some time, or has finished
    it.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    seconds: float
    """Seconds that it has been working on the thing; 0 if it has finished."""
    work: Work | None = None
    """The thing that it is working on; None if unknown or finished."""


class SuspectsTried(Discreet, frozen=True):
    """Event: a runner has made every suspect of its task, and the process lives."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""


class WriteBlock(Discreet, frozen=True):
    """Command: append a block to the open chunk of a task that is saved; answered by
    ``BlockWritten``. The first block opens the chunk.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    chunk: int
    """Number of the chunk's first element."""
    size: int
    """Size of the block in bytes."""
    meta: bytes
    """Encoded description of the frames."""
    frames: Any
    """The encoded elements."""


class BlockWritten(Discreet, frozen=True):
    """Event: a block was written to its chunk."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    size: int
    """Size of the block in bytes."""


class CloseChunk(Discreet, frozen=True):
    """Command: flush the open chunk to disk and close it; answered by
    ``ChunkClosed``.
    """

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    chunk: int
    """Number of the chunk's first element."""
    stop: int
    """Number after the chunk's last element."""


class ChunkClosed(Discreet, frozen=True):
    """Event: a chunk is closed and on disk."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    chunk: int
    """Number of the chunk's first element."""
    stop: int
    """Number after the chunk's last element."""
    size: int
    """Size of the file in bytes."""
    spec: bytes = b""
    """Encoded element spec of the chunk; empty if unknown."""


class WriteFailed(Discreet, frozen=True):
    """Event: a chunk could not be written."""

    task: int
    """Number of the task."""
    attempt: int
    """Attempt of the task."""
    error: str
    """Name of the error's class."""
    text: str
    """Text of the error."""


Noticed = Busy | Compressing | Quarantined | SuspectsTried | TaskMeasured
"""Observations of a runner, besides the elements that it makes."""

WorkerEvent = (
    BlockWritten
    | Busy
    | SuspectsTried
    | Quarantined
    | ChunkClosed
    | Compressing
    | TaskMeasured
    | Connected
    | Decided
    | Disconnected
    | DrainRequested
    | Exhausted
    | FilesChecked
    | LedgerCut
    | LinesCollected
    | LinkBound
    | LinkBroken
    | MemoryRead
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
    | CheckFiles
    | ClaimPart
    | CloseChunk
    | FallQuiet
    | FeedSplits
    | Finish
    | FlushTask
    | KeepPiece
    | LogLine
    | Push
    | DropParcels
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
