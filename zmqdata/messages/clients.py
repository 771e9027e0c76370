"""What clients and the dispatcher say to each other."""

from __future__ import annotations

from msgspec import field

from zmqdata.messages.checkpoints import SourcePart
from zmqdata.messages.links import Origin
from zmqdata.messages.parts import (
    PIECE_BYTES,
    DatasetDescription,
    JobParameters,
    Lease,
    Message,
    Number,
    Ranges,
    Reader,
    TaskList,
)

# --- client -> dispatcher
# -----------------------------------------------------------------------------------------


class RegisterDataset(Message, frozen=True):
    """From a client before its first read. The dispatcher stores the pipeline and
    answers ``DatasetRegistered``, or ``RequestPart`` while it lacks a part; the client
    sends that and then registers again.

    ``dataset_id=None`` lets the dispatcher choose. Repeating it with the same digest
    yields the same id. A dataset without a chosen id is removed when no job has read it
    for long, unless somebody has asked to ``keep`` it. ``pipeline`` is empty where it
    is one of the description's parts.
    """

    request: str
    dataset_id: str | None
    description: DatasetDescription
    pipeline: bytes
    keep: bool = False


class StorePiece(Message, frozen=True):
    """From a client that was asked for a part: its bytes from ``offset`` on, answered
    ``PieceStored``.

    A few pieces may be on their way at a time. When no answer comes, the client
    registers again.
    """

    request: str
    digest: str
    size: int
    offset: int
    content: bytes


class DescribeDataset(Message, frozen=True):
    """From a client that knows only a dataset id. The dispatcher answers
    ``DatasetDescribed``.
    """

    request: str
    dataset_id: str


class OpenIteration(Message, frozen=True):
    """From a client that starts to read a repetition of a job, repeated until
    ``IterationOpened`` or refused.

    ``local_workers``: the addresses of workers in its own process. ``iteration``: from
    one that was given up and joins again, under another name; refused when it is not
    this iteration any more. ``resume``: an encoded ``Checkpoint``, from which the
    iteration is to begin, never one that runs already; ``ResumeAwaited`` is the answer
    until it has. ``step``: of a numbered consumer that joins again; its training loop
    has what there is in all steps below. ``former``: the name that it had; it is
    refused if somebody else has read as this consumer since.
    """

    client: str
    job: JobParameters
    repetition: Number
    reader: Reader = Reader()
    local_workers: tuple[str, ...] = ()
    iteration: int | None = None
    resume: bytes = b""
    step: Number = 0
    former: str = ""


class ClientHeartbeat(Message, frozen=True):
    """From a client every second, and at once when it has something to say; answered
    ``ClientHeartbeatAnswered``.

    ``delivered``: ranges per task handed to the training loop, each sent again until
    its ``report`` number is acknowledged. ``task_version`` is the last task list seen.
    A numbered consumer reports ``steps`` instead: its training loop has taken what
    there is in all steps below. ``near``: the horizon that it will reach soon. ``beat``
    numbers heartbeats. ``alone``: it believes that nobody else reads (``Lease``).
    ``repeats``: so many elements have come to it again, and were dropped.
    ``unreached``: the addresses of workers from which nothing has come for long.
    ``done``: it has handed out all that came and knows of nothing that will come to it,
    but elements are still owed to somebody; it ends when none are, or with ``MayEnd``.
    """

    client: str
    task_version: int
    report: Number
    delivered: dict[int, Ranges]
    steps: Number = 0
    near: Number = 0
    beat: Number = 0
    alone: bool = False
    repeats: Number = 0
    unreached: tuple[str, ...] = ()
    done: bool = False


class HoldingsReported(Message, frozen=True):
    """From a client, answering ``RequestHoldings``: every element of the task it has
    received, handed out or not.
    """

    client: str
    task: int
    attempt: int
    ranges: Ranges


class CloseIteration(Message, frozen=True):
    """From a client that stops reading, with its last report. What it holds unreported
    goes to other clients.
    """

    client: str
    report: Number
    delivered: dict[int, Ranges]
    steps: Number = 0
    repeats: Number = 0


class StartSave(Message, frozen=True):
    """From a client that wants workers to write a registered dataset to files; answered
    ``SaveStarted`` or refused.

    ``run`` tells this save from every other: repeating the ask with the same one does
    not begin a second. ``on_poison`` and ``task_timeout`` are as in ``JobParameters``.
    """

    request: str
    dataset_id: str
    path: str
    run: str
    compression: str | None = "AUTO"
    on_poison: str = "fail"
    task_timeout: float | None = None


class DrainWorker(Message, frozen=True):
    """From anybody who wants a worker to leave in good order; answered
    ``DrainStarted``, or refused if there is none.

    ``worker`` is its name or its address, or a host: then all workers there are meant.
    """

    request: str
    worker: str


class RequestAudit(Message, frozen=True):
    """From anybody who wants to know what became of a job's elements; answered
    ``AuditReported`` or refused.
    """

    request: str
    job: str


class RequestStatus(Message, frozen=True):
    """From anybody who wants to know how things stand at a dispatcher or a worker;
    answered ``StatusReported``.
    """

    request: str


# --- dispatcher -> client
# -----------------------------------------------------------------------------------------


class DatasetRegistered(Message, frozen=True):
    """The dataset is stored under this id."""

    request: str
    dataset_id: str


class SaveStarted(Message, frozen=True):
    """The save has begun, durably: it goes on without the client, to the marker that
    ends it.
    """

    request: str


class RequestPart(Message, frozen=True):
    """The dispatcher needs a part before it can register the dataset, from byte
    ``have`` on.

    Larger pieces than ``piece_bytes`` are not taken.
    """

    request: str
    digest: str
    have: int
    piece_bytes: int = PIECE_BYTES


class PieceStored(Message, frozen=True):
    """So many bytes of the part are kept; all of them once the whole part has proved to
    be what its digest says.

    Fewer than before: it has not, and begins anew.
    """

    request: str
    digest: str
    have: int


class DatasetDescribed(Message, frozen=True):
    """The description of a registered dataset."""

    request: str
    dataset_id: str
    description: DatasetDescription


class RequestRefused(Message, frozen=True):
    """An ask can not be granted, now or ever. ``request`` is the ask's request, client
    or worker id.

    ``error`` names a class of ``zmqdata.errors``; the receiver raises it at the user's
    call. Where a pipeline is at fault, ``failure`` has all that is known, in the form
    of ``Block.failure``, and is raised instead. ``given_up``: what the client held was
    given to others; while its ``iteration`` goes on it may join that again.
    """

    request: str
    error: str
    text: str
    failure: bytes = b""
    given_up: bool = False
    iteration: int | None = None


class IterationOpened(Message, frozen=True):
    """The client is part of the iteration and may open links to its workers.

    ``delivered``: so many elements training loops have taken already; ``finished``:
    these were all; ``shared``: other clients read it too. ``step``: where a numbered
    consumer begins. ``lease``: None where it needs none. For a checkpoint of it: the
    ``seed`` and ``num_shards`` of the iteration, the ``fingerprint`` of its dataset,
    the splits that no task needs any more per source, what was ``delivered_before`` of
    each task that is not settled, and the ``totals`` of those that are. ``over`` says
    what these were where each has a static part, as no source tells of it. Repeated to
    a client that asks again, as others have left whose elements it must know.
    """

    client: str
    iteration: int
    task_list: TaskList
    delivered: int = 0
    finished: bool = False
    shared: bool = False
    step: int = 0
    lease: Lease | None = None
    seed: int = 0
    num_shards: int = 0
    fingerprint: str = ""
    sources: tuple[SourcePart, ...] = ()
    delivered_before: dict[int, Ranges] = field(default_factory=dict)
    totals: dict[int, int] = field(default_factory=dict)
    over: dict[int, Origin] = field(default_factory=dict)


class ResumeAwaited(Message, frozen=True):
    """An iteration that is to begin from a checkpoint waits for ``missing``; the client
    asks on, and tells its user.
    """

    client: str
    missing: str


class ClientHeartbeatAnswered(Message, frozen=True):
    """Acknowledges reports up to ``report``; carries the task list when the client's is
    out of date.

    ``lease`` counts from the sending of heartbeat ``beat``; None: the client may hand
    out what it has at any time.
    """

    client: str
    report: int
    task_list: TaskList | None
    beat: int = 0
    lease: Lease | None = None


class MayEnd(Message, frozen=True):
    """To a client that said in heartbeat ``beat`` that it is ``done``: another one
    reads on, and is there for the rest.

    What others hold and do not hand out, as they die, is then given to that one.
    """

    client: str
    beat: int


class TasksChanged(Message, frozen=True):
    """Pushed when tasks come, move or go. Lost ones are made up for by the next
    heartbeat.
    """

    client: str
    task_list: TaskList


class RequestHoldings(Message, frozen=True):
    """A task lost its host. From now on the client drops blocks of older attempts and
    says what it has.

    Repeated until ``HoldingsReported`` arrives; the task gets a new host when every
    live client has answered.
    """

    client: str
    task: int
    attempt: int


class IterationClosed(Message, frozen=True):
    """The client is forgotten; its last report has been counted."""

    client: str


class DrainStarted(Message, frozen=True):
    """These workers, by address, get no more tasks and will leave. Whether they have
    says the dispatcher's status.
    """

    request: str
    workers: tuple[str, ...]


class AuditReported(Message, frozen=True):
    """What became of splits and elements, in a JSON array with an object for each
    repetition of the job.
    """

    request: str
    audit: bytes


class StatusReported(Message, frozen=True):
    """How things stand, as a JSON document (``docs/protocol.md``)."""

    request: str
    status: bytes
