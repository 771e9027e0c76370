"""Messages between clients and the dispatcher."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from zmqdata.messages.checkpoints import SourcePart
from zmqdata.messages.links import Origin
from zmqdata.messages.measures import LoopMeasures
from zmqdata.messages.parts import (
    PIECE_BYTES,
    Affiliation,
    DatasetDescription,
    IdleWorkers,
    JobParameters,
    JournalCounts,
    Lease,
    MappedFile,
    Message,
    Number,
    Question,
    Ranges,
    Reader,
    TaskList,
)

TraceParent = Annotated[str, Meta(max_length=128)]
"""A span in the form of W3C Trace Context, which takes 55 characters."""
MOST_INTERVAL = 3600
"""Maximum number of seconds between two questions of a program that scales."""

# --- client -> dispatcher
# --------------------------------------------------------------------------------------


class RegisterDataset(Message, frozen=True):
    """Sent by a client before its first read. The dispatcher stores the pipeline and
    answers ``DatasetRegistered``, or ``RequestPart`` if it lacks a part. The client
    then sends the part and registers again.

    Repeating it with the same digest yields the same id. A dataset without a chosen id
    is removed when no job has read it for long.
    """

    request: str
    """Id of the request."""
    dataset_id: str | None
    """The chosen id; None lets the dispatcher choose."""
    description: DatasetDescription
    """Description of the dataset."""
    pipeline: bytes
    """The packed pipeline; empty if it is a part of the description."""
    keep: bool = False
    """True to keep the dataset even if no job reads it."""
    maps: tuple[MappedFile, ...] = ()
    """Ranges of files that the pipeline maps, and which each worker must see."""


class StorePiece(Message, frozen=True):
    """Sent by a client that was asked for a part. The dispatcher appends the bytes and
    answers ``PieceStored``.

    A few pieces may be in flight at a time. If no answer comes, the client registers
    again.
    """

    request: str
    """Id of the request."""
    digest: str
    """Digest of the part."""
    size: int
    """Size of the whole part."""
    offset: int
    """Offset of these bytes within the part."""
    content: bytes
    """The bytes."""


class DescribeDataset(Message, frozen=True):
    """Sent by a client that knows only a dataset id. The dispatcher answers
    ``DatasetDescribed``, or ``RequestRefused`` if it does not know the id.
    """

    request: str
    """Id of the request."""
    dataset_id: str
    """Id of the dataset."""


class OpenIteration(Message, frozen=True):
    """Sent by a client that starts to read a repetition of a job. It repeats this until
    the dispatcher answers ``IterationOpened`` or ``RequestRefused``.
    """

    client: str
    """Id of the client."""
    job: JobParameters
    """Definition of the job."""
    repetition: Number
    """Number of the repetition among those that the client's dataset has begun to read,
    from 0. The dispatcher ignores it in a data loader's worker.
    """
    reader: Reader = Reader()
    """Identity under which the client reads."""
    local_workers: tuple[str, ...] = ()
    """Addresses of workers in the client's process."""
    iteration: int | None = None
    """Iteration that the client joins again, under another id, after it was given up.
    The dispatcher refuses if this is no longer the iteration.
    """
    resume: bytes = b""
    """An encoded ``Checkpoint`` from which the iteration is to begin; never for an
    iteration that runs already. Until the iteration has begun, the dispatcher answers
    ``OpenAwaited``.
    """
    step: Number = 0
    """Step at which a numbered consumer joins again; its training loop has all steps
    below.
    """
    former: str = ""
    """The client's former id, if it joins again. The dispatcher refuses if another
    client has read as this consumer since.
    """
    affiliation: Affiliation = Affiliation()
    """The run to which the client belongs."""
    traceparent: TraceParent = ""
    """Span of the client's read, as a W3C ``traceparent``; empty if it has none. The
    iteration's tasks have the first one as their parent.
    """


class ClientHeartbeat(Message, frozen=True):
    """Sent by a client every second, and at once when it has news. The dispatcher
    answers ``ClientHeartbeatAnswered``.
    """

    client: str
    """Id of the client."""
    task_version: int
    """Version of the last task list seen."""
    report: Number
    """Number of this report."""
    delivered: dict[int, Ranges]
    """Per task, ranges handed to the training loop; sent again until their report is
    acknowledged.
    """
    steps: Number = 0
    """Reported instead by a numbered consumer: its training loop has taken all steps
    below.
    """
    near: Number = 0
    """The horizon that the client will soon reach."""
    beat: Number = 0
    """Number of this heartbeat."""
    alone: bool = False
    """True if the client believes that no other client reads (``Lease``)."""
    repeats: Number = 0
    """Number of elements that came again and were dropped."""
    given_back: Number = 0
    """Number of elements that were given back for other clients."""
    unreached: tuple[str, ...] = ()
    """Addresses of workers from which nothing has come for long."""
    done: Number = 0
    """Number of the heartbeat that first said that the client is done: it has handed
    out everything it received and expects no more, while other clients still owe
    elements. It ends when they owe none, or with ``MayEnd``. 0: it is not done.
    """
    question: Question | None = None
    """The newest question that the client has heard."""
    retold: Question | None = None
    """The newest question for which the client has reported everything again that it
    ever handed out (``Probe.retells``).
    """
    task_mark: int = 0
    """Mark of the start that made the last task list seen."""
    written: tuple[JournalCounts, ...] = ()
    """Counts of the iteration that the client has heard, by start of a dispatcher."""
    measures: LoopMeasures | None = None
    """Measures of the training loop; None before it reads."""


class HoldingsReported(Message, frozen=True):
    """Sent by a client, answering ``RequestHoldings``. The dispatcher waits for it
    before it gives the task a new host.
    """

    client: str
    """Id of the client."""
    task: int
    """Id of the task."""
    attempt: int
    """The attempt that ``RequestHoldings`` named."""
    ranges: Ranges
    """All elements of the task that the client has received, handed out or not."""


class CloseIteration(Message, frozen=True):
    """Sent by a client that stops reading, with its last report. The dispatcher counts
    the report, gives what the client holds unreported to other clients, and answers
    ``IterationClosed``.
    """

    client: str
    """Id of the client."""
    report: Number
    """Number of this report."""
    delivered: dict[int, Ranges]
    """Per task, the ranges handed to the training loop that are not yet
    acknowledged.
    """
    steps: Number = 0
    """The steps that a numbered consumer has taken."""
    repeats: Number = 0
    """Number of elements that came again and were dropped."""
    given_back: Number = 0
    """Number of elements that were given back for other clients."""
    at_end: bool = False
    """True if the client has read its iteration to the end."""
    measures: LoopMeasures | None = None
    """Measures of the training loop; None if it did not read."""


class StartSave(Message, frozen=True):
    """Sent by a client that wants workers to write a registered dataset to files. The
    dispatcher answers ``SaveStarted`` or ``RequestRefused``.
    """

    request: str
    """Id of the request."""
    dataset_id: str
    """Id of the dataset."""
    path: str
    """Path of the saved dataset."""
    save_id: str
    """Id of this save. Repeating the request with the same id starts no second save."""
    compression: str | None = "AUTO"
    """Compression of the files."""
    on_poison: str = "fail"
    """As in ``JobParameters``."""
    task_timeout: float | None = None
    """As in ``JobParameters``."""


class DrainWorker(Message, frozen=True):
    """Sent by a client or an operator, to make a worker leave gracefully. The
    dispatcher answers ``DrainStarted``, or ``RequestRefused`` if it has no such worker.
    """

    request: str
    """Id of the request."""
    worker: str
    """The worker's id or address, or a host, which means all workers there."""


class RequestScale(Message, frozen=True):
    """Sent by a program that starts and stops workers, to learn how many there should
    be. The dispatcher answers ``ScaleDecided``, or ``RequestRefused`` while another
    program scales.
    """

    request: str
    """Id of the request."""
    scaler: str
    """Unique name of the program."""
    interval: Annotated[float, Meta(ge=0, le=MOST_INTERVAL)]
    """Seconds until it asks again; 0 if it stops scaling."""


class RequestAudit(Message, frozen=True):
    """Sent by a client or an operator, to learn what became of a job's elements. The
    dispatcher answers ``AuditReported`` or ``RequestRefused``.
    """

    request: str
    """Id of the request."""
    job: str
    """Name of the job."""


class RequestStatus(Message, frozen=True):
    """Sent by a client or an operator, to learn the status of a dispatcher or a worker.
    The receiver answers ``StatusReported``.
    """

    request: str
    """Id of the request."""


# --- dispatcher -> client
# --------------------------------------------------------------------------------------


class DatasetRegistered(Message, frozen=True):
    """Sent by the dispatcher, answering ``RegisterDataset``: the dataset is stored. The
    client reads it by this id.
    """

    request: str
    """Id of the request."""
    dataset_id: str
    """Id of the dataset."""


class SaveStarted(Message, frozen=True):
    """Sent by the dispatcher, answering ``StartSave``: the save has begun, durably. It
    runs to its end without the client, which may watch for the marker that ends it.
    """

    request: str
    """Id of the request."""


class RequestPart(Message, frozen=True):
    """Sent by the dispatcher if it lacks a part of a dataset being registered. The
    client sends the part from byte ``have`` on by ``StorePiece``.
    """

    request: str
    """Id of the request."""
    digest: str
    """Digest of the part."""
    have: int
    """Number of bytes that the dispatcher already has."""
    piece_bytes: int = PIECE_BYTES
    """Size limit of a piece."""


class PieceStored(Message, frozen=True):
    """Sent by the dispatcher, answering ``StorePiece``. The client sends what follows
    byte ``have``.
    """

    request: str
    """Id of the request."""
    digest: str
    """Digest of the part."""
    have: int
    """Number of bytes stored; it reaches the size only if the whole part matches its
    digest. Fewer than before: the part did not match, and the client starts again.
    """


class DatasetDescribed(Message, frozen=True):
    """Sent by the dispatcher, answering ``DescribeDataset``. The client builds its
    dataset from it.
    """

    request: str
    """Id of the request."""
    dataset_id: str
    """Id of the dataset."""
    description: DatasetDescription
    """Description of the dataset."""


class RequestRefused(Message, frozen=True):
    """Sent by the dispatcher or a worker, if it cannot grant a request, now or ever.
    The receiver raises the error at the user's call.
    """

    request: str
    """The request's id, or the id of the client or worker that sent it."""
    error: str
    """Name of a class of ``zmqdata.errors``."""
    text: str
    """Text of the error."""
    failure: bytes = b""
    """Failure of a pipeline, in the form of ``Block.failure``; if set, it is raised
    instead.
    """
    given_up: bool = False
    """True if what the client held was given to other clients."""
    iteration: int | None = None
    """The iteration that a client that was given up may join again, while it runs."""


class IterationOpened(Message, frozen=True):
    """Sent by the dispatcher, answering ``OpenIteration``: the client now takes part in
    the iteration. It opens links to the workers of its tasks.

    The dispatcher repeats it to a client that asks again, since clients may have left
    whose elements the client must know.
    """

    client: str
    """Id of the client."""
    iteration: int
    """Id of the iteration."""
    task_list: TaskList
    """The tasks of the iteration."""
    delivered: int = 0
    """Number of elements that training loops have taken so far."""
    finished: bool = False
    """True if the iteration has no more elements."""
    shared: bool = False
    """True if other clients read the iteration, too."""
    step: int = 0
    """Step at which a numbered consumer begins."""
    lease: Lease | None = None
    """The client's first lease; None if it needs none."""
    seed: int = 0
    """Seed of the iteration, for checkpoints."""
    num_shards: int = 0
    """Number of static shards, for checkpoints."""
    fingerprint: str = ""
    """Fingerprint of the dataset, for checkpoints."""
    sources: tuple[SourcePart, ...] = ()
    """Per source, the splits that no task needs any longer, for checkpoints."""
    delivered_before: dict[int, Ranges] = field(default_factory=dict)
    """Elements delivered so far of each unsettled task, for checkpoints."""
    totals: dict[int, int] = field(default_factory=dict)
    """Number of elements of each settled task, for checkpoints."""
    over: dict[int, Origin] = field(default_factory=dict)
    """Origins of the settled tasks, if tasks have static parts or are copies, since no
    source records them then.
    """
    repetition: Number = 0
    """Repetition of the job."""
    incarnation: Number = 0
    """Number of the incarnation of the job."""
    how: str = "begun"
    """Reason why the client reads this iteration: it has "begun" the incarnation,
    "follows" its run, has "joined" another run, takes the place of a "restarted"
    member, "continued" what a former run has left, or "loaded" a state.
    """
    age: float = 0.0
    """Seconds since the iteration began, as far as this dispatcher knows."""


class OpenAwaited(Message, frozen=True):
    """Sent by the dispatcher, answering ``OpenIteration`` while it cannot tell yet what
    the client reads, or while states are missing. The client keeps asking, and tells
    its user what is missing.
    """

    client: str
    """Id of the client."""
    missing: str
    """Description of what is missing."""


class ClientHeartbeatAnswered(Message, frozen=True):
    """Sent by the dispatcher, answering ``ClientHeartbeat``. The client drops the
    acknowledged reports and adopts the task list.
    """

    client: str
    """Id of the client."""
    report: int
    """Reports up to this number are acknowledged."""
    task_list: TaskList | None
    """The current task list, if the client's is out of date."""
    beat: int = 0
    """Number of the heartbeat that is answered."""
    lease: Lease | None = None
    """A lease that counts from the sending of that heartbeat; None: the client may hand
    out what it holds at any time.
    """
    idle: IdleWorkers | None = None
    """The registered workers if none of them hosts a task of the iteration."""
    written: JournalCounts | None = None
    """Counts of the iteration."""


class MayEnd(Message, frozen=True):
    """Sent by the dispatcher to a client that is ``done``: for each task that still
    owes elements, another client that may read it was alive and not done afterwards.
    The client ends its iteration.

    If clients die before they hand out what they hold, the dispatcher gives it to those
    other clients.
    """

    client: str
    """Id of the client."""
    beat: int
    """Number of the heartbeat that first said so, as in ``ClientHeartbeat.done``."""


class TasksChanged(Message, frozen=True):
    """Sent by the dispatcher when tasks are added, move or end. The client adopts the
    list; the next heartbeat makes up for a lost message.
    """

    client: str
    """Id of the client."""
    task_list: TaskList
    """The current task list."""


class RequestHoldings(Message, frozen=True):
    """Sent by the dispatcher when a task has lost its host. The client drops blocks of
    older attempts from now on, and answers ``HoldingsReported``.

    It is repeated until the answer arrives. The task gets a new host when every live
    client has answered.
    """

    client: str
    """Id of the client."""
    task: int
    """Id of the task."""
    attempt: int
    """The next attempt of the task."""


class DispatcherClosed(Message, frozen=True):
    """Sent by a dispatcher to its clients when it is closed in order and no successor
    can continue their iterations. They do not wait for another answer.
    """


class IterationClosed(Message, frozen=True):
    """Sent by the dispatcher, answering ``CloseIteration``: it has counted the last
    report and forgotten the client. The client need not repeat the request.
    """

    client: str
    """Id of the client."""


class DrainStarted(Message, frozen=True):
    """Sent by the dispatcher, answering ``DrainWorker``: these workers get no more
    tasks and will leave. The status of the dispatcher shows when they have left.
    """

    request: str
    """Id of the request."""
    workers: tuple[str, ...]
    """Addresses of the workers."""


class ScaleDecided(Message, frozen=True):
    """Sent by the dispatcher, answering ``RequestScale``. The receiver starts or stops
    workers.
    """

    request: str
    """Id of the request."""
    workers: int
    """Number of worker processes that would feed all jobs together."""
    reason: str
    """The reason for this number, in a sentence."""
    processes: int
    """Median number of processes that have registered under one name; 1 if no worker
    has a name.
    """


class AuditReported(Message, frozen=True):
    """Sent by the dispatcher, answering ``RequestAudit``. The receiver decodes and
    shows it.
    """

    request: str
    """Id of the request."""
    audit: bytes
    """Accounts of splits and elements, as a JSON array with an object for each
    repetition.
    """


class StatusReported(Message, frozen=True):
    """Sent by a dispatcher or a worker, answering ``RequestStatus``. The receiver
    decodes and shows it.
    """

    request: str
    """Id of the request."""
    status: bytes
    """The status as a JSON document of the protocol."""
