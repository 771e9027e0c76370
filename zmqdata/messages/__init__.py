"""All messages between processes, as frozen structs. These are descriptions only: no
behaviour lives here.

``clients`` and ``workers`` hold the messages to and from the dispatcher, ``links``
the messages between clients and workers. ``diagnosis`` and ``trace`` hold the messages
for people who look at a service, ``parts`` the structs that several messages carry,
``checkpoints`` what a client keeps to open an iteration again.

Each docstring says which process sends the message, when, and what the receiver must
do. Requests are verb + noun (``RequestSplits``), reports noun + participle
(``SplitsAssigned``). The page on the protocol describes the same for other
implementations. Every request may be repeated: a receiver answers a repeated request
the same way.

Workers and clients identify themselves by a random id that is never used again. The
dispatcher numbers datasets, jobs, iterations and tasks. Ranges of elements are
half-open pairs ``(first, stop)``.
"""

from __future__ import annotations

from typing import Any

from zmqdata.messages.checkpoints import (
    CHECKPOINT_VERSION,
    Checkpoint,
    SourcePart,
    TaskPart,
    decode_checkpoint,
    encode_checkpoint,
)
from zmqdata.messages.clients import (
    MOST_INTERVAL,
    AuditReported,
    ClientHeartbeat,
    ClientHeartbeatAnswered,
    CloseIteration,
    DatasetDescribed,
    DatasetRegistered,
    DescribeDataset,
    DispatcherClosed,
    DrainStarted,
    DrainWorker,
    HoldingsReported,
    IterationClosed,
    IterationOpened,
    MayEnd,
    OpenAwaited,
    OpenIteration,
    PieceStored,
    RegisterDataset,
    RequestAudit,
    RequestHoldings,
    RequestPart,
    RequestRefused,
    RequestScale,
    RequestStatus,
    SaveStarted,
    ScaleDecided,
    StartSave,
    StatusReported,
    StorePiece,
    TasksChanged,
)
from zmqdata.messages.diagnosis import (
    MOST_ECHO_BYTES,
    EchoSent,
    RequestEcho,
    RequestTask,
    TaskDescribed,
)
from zmqdata.messages.discreet import shown_name
from zmqdata.messages.links import (
    Block,
    CloseLink,
    ElementsLeftOut,
    EndOfTask,
    Grant,
    Lineage,
    LinkOpened,
    LinkRefused,
    LinkReported,
    Memory,
    OpenLink,
    Origin,
    Slot,
    TakeBackElements,
    TaskLine,
    TaskLogged,
)
from zmqdata.messages.measures import (
    ConsumerPace,
    LoopMeasures,
    LoopSums,
    NodeTime,
    TaskMeasures,
    TaskSums,
)
from zmqdata.messages.parts import (
    MOST_PIECE_BYTES,
    MOST_WHOLE_BYTES,
    PIECE_BYTES,
    PROTOCOL_VERSION,
    Affiliation,
    DatasetCopy,
    DatasetDescription,
    DatasetUnits,
    IdleWorkers,
    JobParameters,
    JournalCounts,
    Lease,
    LeftOutElement,
    MappedFile,
    Message,
    Part,
    Plan,
    Question,
    Ranges,
    Reader,
    ReaderSign,
    ReadingPass,
    SaveParameters,
    SplitLosses,
    StreamGrant,
    TaskDefinition,
    TaskList,
    TaskPlace,
    TaskReport,
    TaskState,
    View,
    is_digest,
)
from zmqdata.messages.poison import OPENING, Death, Place, Work
from zmqdata.messages.status import (
    EventStatus,
    IterationStatus,
    JobStatus,
    MovedStatus,
    NodeSeconds,
    OperationStatus,
    ReaderStatus,
    ServiceStatus,
    SplitsStatus,
    TaskStatus,
    TotalsStatus,
    WorkerStatus,
    known_status,
)
from zmqdata.messages.trace import (
    MOST_LABEL,
    MOST_SPANS_TOLD,
    MOST_TRACE_SECONDS,
    RecordSpans,
    RequestTrace,
    Span,
    SpansReported,
    TraceRecorded,
    Track,
)
from zmqdata.messages.workers import (
    CheckMaps,
    ChunkCommitted,
    ChunkWritten,
    DealRest,
    DecisionsKept,
    DropTask,
    ElementsDecided,
    HostTask,
    MapsChecked,
    MemoryUse,
    PieceSent,
    PipelineSent,
    Probe,
    RegisterWorker,
    ReleaseClient,
    RequestPiece,
    RequestPipeline,
    RequestSplits,
    SaveFailed,
    SplitsAssigned,
    SplitsReturned,
    StateTaken,
    TakeBackSplits,
    WorkerHeartbeat,
    WorkerHeartbeatAnswered,
    WorkerRegistered,
    WorkerStopped,
)

FromClient = (
    RegisterDataset
    | StorePiece
    | DescribeDataset
    | OpenIteration
    | ClientHeartbeat
    | HoldingsReported
    | CloseIteration
    | RequestStatus
    | DrainWorker
    | RequestScale
    | RequestAudit
    | StartSave
    | RequestEcho
    | RequestTask
    | RequestTrace
    | SpansReported
    | RequestPiece
)
FromWorker = (
    RegisterWorker
    | WorkerHeartbeat
    | RequestSplits
    | SplitsReturned
    | StateTaken
    | ElementsDecided
    | RequestPipeline
    | MapsChecked
    | ChunkWritten
    | SaveFailed
    | RequestPiece
    | WorkerStopped
)
ToDispatcher = FromClient | FromWorker
ToClient = (
    DatasetRegistered
    | RequestPart
    | PieceStored
    | DatasetDescribed
    | RequestRefused
    | IterationOpened
    | OpenAwaited
    | ClientHeartbeatAnswered
    | MayEnd
    | TasksChanged
    | RequestHoldings
    | IterationClosed
    | DispatcherClosed
    | StatusReported
    | DrainStarted
    | AuditReported
    | ScaleDecided
    | SaveStarted
    | LinkOpened
    | LinkRefused
    | LinkReported
    | Probe
    | EchoSent
    | TaskDescribed
    | RecordSpans
    | TraceRecorded
    | PieceSent
)
ToWorker = (
    RequestRefused
    | WorkerRegistered
    | WorkerHeartbeatAnswered
    | Probe
    | HostTask
    | DealRest
    | DropTask
    | SplitsAssigned
    | DecisionsKept
    | TakeBackSplits
    | PipelineSent
    | CheckMaps
    | ChunkCommitted
    | PieceSent
    | ReleaseClient
    | OpenLink
    | Grant
    | CloseLink
    | RequestStatus
    | RequestEcho
    | RequestTrace
)
SAYS: dict[str, Any] = {
    "client": FromClient | OpenLink | Grant | CloseLink,
    "worker": FromWorker,
    "dispatcher": (),
}
"""The messages that the holder of a role's key may send to a server. Dispatchers
connect to no server.
"""
OnLink = Block | ElementsLeftOut | EndOfTask | Lineage | TakeBackElements | TaskLogged


def request_of(message: Message) -> str:
    """Return the id under which the sender of a request waits for its answer; "" if it
    waits for none.
    >>> request_of(RequestStatus("request")), request_of(Probe())
    ('request', '')
    """
    names = (getattr(message, name, "") for name in ("request", "client", "worker"))
    return next((str(name) for name in names if name), "")
