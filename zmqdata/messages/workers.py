"""Messages between workers and the dispatcher."""

from __future__ import annotations

from typing import Any

from msgspec import field

from zmqdata.decisions import Decision
from zmqdata.messages.discreet import Discreet
from zmqdata.messages.parts import (
    JournalCounts,
    MappedFile,
    Message,
    Number,
    Part,
    Question,
    Ranges,
    ReaderSign,
    TaskDefinition,
    TaskReport,
    TaskState,
)
from zmqdata.messages.poison import Death
from zmqdata.splits import Split

# --- worker -> dispatcher
# --------------------------------------------------------------------------------------


class RegisterWorker(Message, frozen=True):
    """Sent by a worker before anything else, and again when the dispatcher does not
    know it. The worker repeats it until ``WorkerRegistered`` or ``RequestRefused``; the
    dispatcher counts each death once.
    """

    worker: str
    """Id of the worker."""
    address: str
    """Address of its control socket, as other machines reach it."""
    tags: tuple[str, ...]
    """Tags of the worker."""
    python: str
    """Version of its Python interpreter."""
    version: str
    """Version of its zmqdata."""
    tasks: tuple[TaskReport, ...]
    """Tasks that it has hosted since before."""
    deaths: tuple[Death, ...] = ()
    """Deaths of the processes that it replaces, as far as they are not reported yet."""
    process: str = ""
    """Its host and process id, as ``"host:pid"``; empty if unknown."""
    name: str = ""
    """Name that its user has given it; empty if it has none."""


class MemoryUse(Discreet, frozen=True):
    """The memory of a worker's process."""

    rss: Number = 0
    """Resident size in bytes, with shared memory; 0 if the system does not tell."""
    counted: Number = 0
    """Bytes of writable memory, as its limit counts them; 0 if the system does not
    tell.
    """
    limit: Number = 0
    """Maximum of ``counted``; 0 means no limit."""
    recycles: Number = 0
    """Number of processes that were recycled in this place before it."""

    def shown(self) -> dict[str, Any]:
        """Return the fields of a status. What is unknown, or not limited, is None."""
        return {
            "rss_bytes": self.rss or None,
            "memory_bytes": self.counted or None,
            "memory_limit_bytes": self.limit or None,
            "recycles": self.recycles,
        }


class WorkerHeartbeat(Message, frozen=True):
    """Sent by a worker every second, or as rarely as the dispatcher asks, and at once
    when a task ends, with all tasks that it hosts.

    The dispatcher answers ``WorkerHeartbeatAnswered``. It also sends ``HostTask`` for
    tasks that are missing, ``DropTask`` for tasks that are out of place, and
    ``ReleaseClient`` for clients that no longer read. So a heartbeat makes up for any
    lost message. A worker with many clients names only some of them at a time.
    """

    worker: str
    """Id of the worker."""
    tasks: tuple[TaskReport, ...]
    """Reports about its tasks."""
    clients: tuple[str, ...]
    """Ids of clients that have links to it."""
    readers: dict[str, ReaderSign] = field(default_factory=dict)
    """Clients that asked it lately to vouch for them, each with what they said."""
    draining: bool = False
    """True if the worker will leave: it gets no more tasks, and its tasks move to other
    workers as soon as possible.
    """
    every: float = 1.0
    """Seconds between two heartbeats."""
    memory: MemoryUse = field(default_factory=MemoryUse)
    """Memory of its process."""
    written: tuple[JournalCounts, ...] = ()
    """Counts of the iterations of its tasks that the worker has heard, by start of a
    dispatcher.
    """
    parcels: tuple[str, ...] = ()
    """Ids of the datasets of which it keeps opened parcels between tasks."""


class RequestSplits(Message, frozen=True):
    """Sent by a worker that will soon need splits. The dispatcher answers
    ``SplitsAssigned`` with the entries that follow ``have``, and extends the ledger if
    it has none.

    So a repeated request gets the same splits. A request with an outdated ``cut`` is
    not answered.
    """

    worker: str
    """Id of the worker."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    source: int
    """Number of the source."""
    repetition: int
    """Repetition that the source reads."""
    have: int
    """Number of ledger entries that the worker already has."""
    cut: int = 0
    """Number of times that the end of the ledger was taken back."""
    waiting: bool = True
    """True if the source has used up all its splits. Only such a source is told the
    end; others ask again once they have used up theirs.
    """
    pace: float = 0.0
    """Seconds that the source takes for a split; 0 if unknown."""
    produced: Number = 0
    """Number of elements that the task has produced so far."""


class SplitsReturned(Message, frozen=True):
    """Sent by a worker, answering ``TakeBackSplits``. The dispatcher cuts the ledger
    accordingly and assigns what was returned to other tasks.
    """

    worker: str
    """Id of the worker."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    source: int
    """Number of the source."""
    cut: int
    """Number of cuts of this ledger in this attempt, including this. The dispatcher
    accepts the next number; the number that it already knows says that everything was
    started.
    """
    entries: int
    """Number of ledger entries that the worker keeps."""
    stop: int
    """New end of the last entry kept. What follows was not started, and will not be
    unless it is assigned again.
    """


class StateTaken(Message, frozen=True):
    """Sent by a worker that has saved a position of a task's pipeline, about once per
    second of work. Sent once and not answered.

    The dispatcher keeps it if the attempt is current, so that another host can continue
    from there. A newer state makes up for a lost message.
    """

    worker: str
    """Id of the worker."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    state: TaskState
    """The position."""


class ElementsDecided(Message, frozen=True):
    """Sent by a worker whose pipeline has skipped elements, or could have. The worker
    repeats it until ``DecisionsKept``; the dispatcher makes the decisions durable.

    The worker sends nothing that it made since until the answer comes, since every
    later attempt must decide the same.
    """

    worker: str
    """Id of the worker."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    report: Number
    """Number of this report; the answer repeats it."""
    first: Number
    """Number of the first decision."""
    decisions: tuple[Decision, ...]
    """The decisions from ``first`` on; they replace what the dispatcher has from there
    on.
    """


class RequestPipeline(Message, frozen=True):
    """Sent by a worker that hosts a task of a dataset it has not seen. The dispatcher
    answers ``PipelineSent``.
    """

    worker: str
    """Id of the worker."""
    dataset_id: str
    """Id of the dataset."""


class MapsChecked(Message, frozen=True):
    """Sent by a worker, answering ``CheckMaps``."""

    worker: str
    """Id of the worker."""
    request: str
    """Id of the request."""
    fault: str
    """Reason why the worker does not see a file, for the user; "" if it sees all."""


class ChunkWritten(Message, frozen=True):
    """Sent by a worker that has closed a chunk of a task that is saved. The worker
    repeats it until ``ChunkCommitted`` or ``DropTask``.

    If the attempt is current and no element before ``first`` is missing, the dispatcher
    commits the chunk and publishes it. The chunk's file name follows from stream,
    attempt and ``first``.
    """

    worker: str
    """Id of the worker."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    first: int
    """Number of the first element in the chunk."""
    stop: int
    """Number behind the last element in the chunk."""
    size: int
    """Size of the file in bytes; it is on the disk."""
    spec: bytes = b""
    """Encoded spec that admits all its elements; empty if unknown."""


class SaveFailed(Message, frozen=True):
    """Sent by a worker that cannot make or write an element of a task that is saved.
    The worker repeats it until ``DropTask``. The dispatcher moves a task whose file
    cannot be written to another worker, once; otherwise it ends the save.
    """

    worker: str
    """Id of the worker."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    error: str
    """Name of a class of ``zmqdata.errors``."""
    text: str
    """Text of the error."""
    failure: bytes = b""
    """The failure that a client would have received instead of the element; empty if a
    file could not be written.
    """


class RequestPiece(Message, frozen=True):
    """Sent by a worker that lacks a part of a pipeline, or by a client whose user runs
    a task again. The dispatcher answers ``PieceSent`` with the bytes from ``offset``
    on.
    """

    worker: str
    """Id of the worker; empty if a client asks."""
    digest: str
    """Digest of the part."""
    offset: int
    """Number of bytes that the sender already has."""
    request: str = ""
    """Id of the request of a client; the answer repeats it."""


class WorkerStopped(Message, frozen=True):
    """Sent by a worker that ends gracefully. The dispatcher may host its tasks
    elsewhere at once.
    """

    worker: str
    """Id of the worker."""


# --- dispatcher -> worker
# --------------------------------------------------------------------------------------


class WorkerRegistered(Message, frozen=True):
    """Sent by the dispatcher, answering ``RegisterWorker``: it knows the worker and
    will give it tasks. The worker stops repeating the request.
    """

    worker: str
    """Id of the worker."""


class WorkerHeartbeatAnswered(Message, frozen=True):
    """Sent by the dispatcher, answering ``WorkerHeartbeat``, and also unasked. The
    worker notes that the dispatcher is alive and follows the fields.
    """

    worker: str
    """Id of the worker."""
    known: bool
    """False if the dispatcher does not know the worker, which must register again."""
    unwanted: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """For coordinated tasks with a consumer without a client: per consumer, the number
    of rounds that no client waits for.
    """
    draining: bool = False
    """True if the worker gets no more tasks; it leaves when its tasks are gone."""
    every: float = 0.0
    """Seconds until the worker's next heartbeat, if it would send one sooner."""
    questions: dict[str, Question] = field(default_factory=dict)
    """Clients that the dispatcher has asked and not heard since, each with the
    question. A worker with a link to such a client passes the question on.
    """
    unused: tuple[str, ...] = ()
    """Those of ``parcels`` that no client uses any more."""


class Probe(Message, frozen=True):
    """Sent by a dispatcher or a worker, to find out whether the receiver is still
    connected. A worker ignores it. A client answers a dispatcher by a heartbeat.
    """

    question: Question | None = None
    """The question that the client repeats from now on."""
    retells: bool = False
    """True if the heartbeat must report all elements that the client ever handed to its
    training loop, whether they were acknowledged or not.
    """


class HostTask(Message, frozen=True):
    """Sent by the dispatcher when it places a task. The worker hosts the task from now
    on, replacing an older attempt of it.
    """

    definition: TaskDefinition
    """Lineage of the task."""


class DealRest(Message, frozen=True):
    """Sent by the dispatcher once all tasks of a coordinated iteration have ended, and
    repeated until the task is settled. The worker gives the elements after the last
    full round of a task to the consumers, from one consumer on. Others are dropped.
    """

    task: int
    """Id of the task."""
    attempt: int
    """Attempt that the worker hosts."""
    consumer: int
    """Consumer that gets the first element; the next consumer gets the next."""
    count: int
    """Number of elements to give away."""


class DropTask(Message, frozen=True):
    """Sent by the dispatcher when a worker is no longer to host a task. The worker
    drops the task if its attempt is this or older.
    """

    task: int
    """Id of the task."""
    attempt: int
    """The newest attempt to drop."""


class DecisionsKept(Message, frozen=True):
    """Sent by the dispatcher, answering ``ElementsDecided``: the decisions are durable.
    The worker sends what it has held back for them.
    """

    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    report: int
    """Number of the report that is answered."""
    needed: int = 0
    """No attempt will need the decisions before this number again; the worker may drop
    them.
    """


class SplitsAssigned(Message, frozen=True):
    """Sent by the dispatcher, answering ``RequestSplits``. The worker appends these
    entries to its ledger; an end mark says that the repetition has no more.

    The worker ignores it if ``cut`` is not the number of times that it has given back
    the end of this ledger.
    """

    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    source: int
    """Number of the source."""
    first: int
    """Number of the first of these entries in the ledger."""
    splits: tuple[Split, ...]
    """The entries."""
    cut: int = 0
    """Number of times that the end of the ledger was taken back."""
    written: JournalCounts | None = None
    """Counts of the iteration."""


class TakeBackSplits(Message, frozen=True):
    """Sent by the dispatcher when another task has run out of splits. The worker gives
    back the splits that this source has not started, and answers ``SplitsReturned``.

    The answer has the number ``cut`` if there was something to give back. A repeated
    request with the same number gets the same answer.
    """

    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    source: int
    """Number of the source."""
    cut: int
    """Number of this cut of the ledger."""


class ChunkCommitted(Message, frozen=True):
    """Sent by the dispatcher, answering ``ChunkWritten``: every element of the task
    before ``stop`` is in a committed chunk. The worker may forget these chunks.
    """

    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    stop: int
    """Number behind the last committed element."""


class PipelineSent(Message, frozen=True):
    """Sent by the dispatcher, answering ``RequestPipeline``. The worker fetches the
    parts that it lacks by ``RequestPiece`` and opens the pipeline.
    """

    dataset_id: str
    """Id of the dataset."""
    digest: str
    """Digest of the packed pipeline."""
    pipeline: bytes
    """The packed pipeline. Empty with a ``reason``: it is not available. Empty without
    a reason: it is one of the parts.
    """
    reason: str = ""
    """Reason why the pipeline is not available."""
    parts: tuple[Part, ...] = ()
    """Parts of the pipeline."""


class CheckMaps(Message, frozen=True):
    """Sent by the dispatcher. The worker looks whether it sees the files of a pipeline,
    and answers ``MapsChecked``.
    """

    request: str
    """Id of the client's request that waits for the answer."""
    maps: tuple[MappedFile, ...]
    """Ranges of the files."""


class PieceSent(Message, frozen=True):
    """Sent by the dispatcher, answering ``RequestPiece``. The receiver appends the
    bytes to the part.
    """

    digest: str
    """Digest of the part."""
    offset: int
    """Offset of these bytes within the part."""
    content: bytes
    """The bytes; empty with a ``reason`` if the part is not available."""
    reason: str = ""
    """Reason why the part is not available."""
    request: str = ""
    """Id of the request of a client."""


class ReleaseClient(Message, frozen=True):
    """Sent by the dispatcher when a client is gone. The worker gives blocks of that
    client that are not in ``delivered`` to other clients of the task, and opens no link
    for it again.

    The worker reports what it cannot give again by ``TaskReport.incomplete``.
    """

    client: str
    """Id of the client."""
    delivered: dict[int, Ranges]
    """Delivered elements of every task that the worker has to host; elements of other
    tasks are not given again.
    """
