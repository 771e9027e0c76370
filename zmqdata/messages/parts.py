"""The base of all messages, and the structs that several messages carry."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, field

from zmqdata.decisions import Decision
from zmqdata.messages.discreet import Discreet
from zmqdata.messages.measures import TaskMeasures
from zmqdata.messages.poison import Place, Work
from zmqdata.splits import Split, SplitSource

PROTOCOL_VERSION = 7
"""Major version of the protocol. A peer of another version is refused; unknown fields
of the same version are ignored.
"""

MOST_NUMBER = 1 << 53
Number = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]
"""A count or a number. The limit keeps sums of thousands of them exact in other
languages, too.
"""
Ranges = tuple[tuple[Number, Number], ...]
"""Sorted, disjoint, half-open ranges of element numbers."""


class Message(Discreet, frozen=True, tag=True):
    """Base of all messages."""


DIGEST = re.compile("[0-9a-f]{64}")
"""A SHA-256 in hexadecimal."""

PIECE_BYTES = 2 << 20
"""Size limit of the pieces in which parts travel."""
MOST_PIECE_BYTES = 16 << 20
"""Size limit of the pieces that are accepted."""
MOST_WHOLE_BYTES = 32 << 10
"""A packed pipeline longer than this travels as a part, in pieces. No dispatcher
refuses messages of this size.
"""


def is_digest(text: str) -> bool:
    """Return True if a text is a digest of 64 hexadecimal characters, and so may name a
    file.
    """
    return DIGEST.fullmatch(text) is not None


class Question(Discreet, frozen=True, array_like=True):
    """A question of the dispatcher. A client that repeats it was alive after it was
    asked.
    """

    mark: int
    """Random mark of the dispatcher's start."""
    count: Number
    """Number of the question since that start."""

    def follows(self, known: Question | None) -> bool:
        """Return True if a client that knows another question adopts this one."""
        return known is None or self.mark != known.mark or self.count > known.count


class JournalCounts(Discreet, frozen=True, array_like=True):
    """Counts of the facts of an iteration that a dispatcher had written when it sent a
    message. A later start that finds fewer in its journal has lost some.
    """

    mark: int
    """Random mark of the dispatcher's start."""
    iteration: int
    """Id of the iteration."""
    records: Number
    """Number of facts."""
    firm: Number
    """Number of facts that no peer can tell again."""
    proof: int = 0
    """Derived from the counts and a secret of the journal, so that no peer can make up
    counts and end an iteration.
    """


class ReaderSign(Discreet, frozen=True, array_like=True):
    """Words of a client that reads from a worker, as the worker passes them on."""

    ago: float
    """Seconds since the client last asked the worker to vouch for it."""
    question: Question | None = None
    """The newest question that the client itself has repeated; None if it has repeated
    none.
    """
    done: bool = False
    """True if the client was done (``ClientHeartbeat.done``) when it last spoke."""


class Part(Discreet, frozen=True):
    """A part of a pipeline's content."""

    digest: str
    """SHA-256 of its bytes, in 64 hexadecimal characters."""
    size: int
    """Number of its bytes."""


class MappedFile(Discreet, frozen=True):
    """A range of a file that a pipeline maps."""

    path: str
    """Absolute path of the file, in the portable form."""
    start: Number
    """Number of the first byte of the range."""
    size: Number
    """Number of its bytes."""
    samples: str
    """SHA-256 of samples of the range, by which a worker recognizes the file."""


class SplitLosses(Discreet, frozen=True):
    """Losses of a reading under ``ShardingPolicy.DYNAMIC``, where each source of the
    pipeline is split by itself.
    """

    partners: tuple[str, ...] = ()
    """Warnings of zips and choices that lose elements if no order is promised."""
    refusal: str = ""
    """Reason why no order of several tasks can be promised; empty if one can."""
    selection: str = ""
    """Warning of a selection of chunks that tasks share; empty if there is none."""


class DatasetUnits(Discreet, frozen=True):
    """The words for a dataset and for what it counts, for statuses."""

    batch_rows: Number | None = None
    """Number of rows in an element that is a full batch; 0 if it varies or is unknown.
    None: the elements are not batches.
    """
    splits: tuple[str, ...] = ()
    """Unit of the splits of each source, such as ``"rows"`` or ``"files"``."""
    origin: str = ""
    """Line of the user's program that made the dataset, and what it reads, such as
    ``"train.py:12, ImageFolder"``.
    """
    consumers: Number | None = None
    """Number of consumers among whom the pipeline deals its elements, step by step;
    None: any number.
    """
    weights: str = ""
    """Weights of its mixtures, which are no part of the fingerprint."""


class DatasetDescription(Discreet, frozen=True):
    """The properties of a pipeline that the dispatcher and clients need without opening
    it.
    """

    digest: str
    """Digest of the packed pipeline."""
    fingerprint: str
    """Fingerprint of the pipeline's content, by which clients recognize the same
    dataset.
    """
    sources: tuple[SplitSource, ...] | None
    """The sources in left-to-right order; None if they cannot be split."""
    unsplittable: str
    """Reason why ``sources`` is None."""
    element_spec: bytes | None
    """The encoded spec of the elements; None if unknown."""
    cardinality: int
    """Cardinality of the dataset."""
    compression: str | None
    """Compression with which the dataset was registered."""
    python: str
    """Version of the client's Python interpreter."""
    version: str
    """Version of the client's zmqdata."""
    parts: tuple[Part, ...] = ()
    """Large arrays and shipped code that the packed pipeline refers to; they are stored
    and sent separately. A pipeline too large for ``RegisterDataset`` is a part itself.
    """
    fixed_seed: int = 0
    """Seed of the program for what it draws once, without a seed of the user; 0 if the
    pipeline draws nothing once.
    """
    orders: tuple[int, ...] = ()
    """Numbers of the orders that the program draws once, among all of its orders."""
    process: str = ""
    """Name of the process that built the pipeline, which no other process has; empty if
    the pipeline draws nothing once.
    """
    losses: SplitLosses = SplitLosses()
    """Losses of readers under ``ShardingPolicy.DYNAMIC``."""
    units: DatasetUnits = DatasetUnits()
    """The words for its elements and splits."""
    parcel_key: str = ""
    """Key under which workers keep opened parcels between tasks: the id of a dataset,
    "/", and which process reads; "" if they keep none.
    """
    outline: tuple[str, ...] = ()
    """Its operations for errors, inputs first: ``"range(50) at train.py:12"``. Those of
    a long pipeline end early.
    """


class SaveParameters(Discreet, frozen=True):
    """The destination of ``distributed_save``: workers write the job's elements to
    files, and no client reads them.
    """

    path: str
    """Path of the saved dataset."""
    save_id: str
    """Id that tells this save from every other save."""


class JobParameters(Discreet, frozen=True):
    """The definition of a job. A second client that opens the same name must bring
    equal parameters.
    """

    name: str
    """Name of the job; clients that give the same name share the job."""
    dataset_id: str
    """Id of the registered dataset."""
    processing_mode: str
    """Sharding policy, as in tf.data."""
    num_consumers: int | None = None
    """Number of consumers of a coordinated job; None for other jobs."""
    target_workers: str = "AUTO"
    """Workers to read from, as in tf.data: any, or only workers of the client's
    process.
    """
    compression: str | None = "AUTO"
    """Compression of the elements on links."""
    anonymous: bool = False
    """True if the client has invented the name, so that no other client joins."""
    max_outstanding_requests: int | None = None
    """Most elements in flight to the client, if it wants few. That of the job's first
    client limits the elements of a block. Not compared.
    """
    cache: bool = False
    """True if every trainer reads all elements, out of a window that workers keep."""
    finite: str | None = None
    """Treatment of a last round that is not full, "drop" or "pad", if a coordinated job
    may end.
    """
    by_reference: bool = False
    """True if all clients run in their workers' processes and receive elements without
    a copy.
    """
    consumer_timeout: float = 300.0
    """Seconds for which the consumers of a coordinated job wait for a missing consumer.
    Not compared.
    """
    save: SaveParameters | None = None
    """If set, workers write the elements to files, and no client reads the job."""
    num_tasks: int | None = None
    """If set, the order is promised. The iteration has this many tasks on whatever
    workers, and each has every ``num_tasks``-th split. Consumers read from the tasks in
    turn, and all randomness follows from ``seed``.
    """
    seed: int = 0
    """Seed from which those of iterations and tasks follow, in a job with
    ``num_tasks``, or whose client has set one for its program; 0: the dispatcher draws
    them. Compared only with ``num_tasks``.
    """
    on_poison: str = "fail"
    """Treatment of an element that kills its process repeatedly, "fail" or "skip"."""
    task_timeout: float | None = None
    """Limit in seconds of a call of a user's function. Not compared."""
    fingerprint: str = ""
    """Fingerprint that the client expects under ``dataset_id``; it must match the
    dispatcher's. Not compared with other clients'.
    """


class Reader(Discreet, frozen=True):
    """The identity under which a client reads: a numbered consumer of a coordinated
    job, or a trainer that shares a cache.
    """

    consumer_index: int | None = None
    """Number of the consumer; None in an uncoordinated job."""
    trainer_id: str = ""
    """Id of the trainer; empty without a shared cache."""


class ReadingPass(Discreet, frozen=True):
    """The pass of a data loader's workers to which a client belongs. Together they read
    one repetition.
    """

    seed: int
    """Seed of the data loader's epoch."""
    turn: Number
    """Number of this pass among those of the worker, from 0."""
    worker: Number
    """Number of the worker in the data loader."""
    process: str
    """The worker's process."""


class DatasetCopy(Discreet, frozen=True):
    """A copy of a dataset object in another process, such as a child process or a task
    of a pool.
    """

    name: str
    """Name of the copy, which no other copy has."""
    age: float
    """Seconds since the copy was made."""


class Affiliation(Discreet, frozen=True):
    """The run to which a client belongs, and its place there."""

    run: str = ""
    """Key of the run: equal in all processes of a training program, and different in
    another run of it.
    """
    member: str = ""
    """Rank of the training process, or empty if it is unknown."""
    process: str = ""
    """The process that made the dataset object."""
    reading_pass: ReadingPass | None = None
    """The pass of a data loader's workers, or None outside of them."""
    on_existing: str = "share"
    """Reaction if the run is new and the name of the job is in use: "share", "new",
    "continue" or "error".
    """
    is_fresh: bool = False
    """True if the client's dataset was made in its own process, and nothing but its
    family says to which run that belongs. If all others of the run have ended, such a
    process begins a training of its own.
    """
    copies: tuple[DatasetCopy, ...] = ()
    """The copy of that object that the client reads. If that is a copy of another copy,
    the first copy comes first. Workers of a data loader name the copy that the data
    loader has.
    """
    script: str = ""
    """Path of the script that the client's process runs; empty if it runs none."""


class TaskPlace(Discreet, frozen=True):
    """The present host of a task."""

    task: int
    """Id of the task."""
    attempt: int
    """Current attempt of the task."""
    worker: str
    """Id of the worker; empty while the task moves between hosts: then the client
    waits.
    """
    address: str
    """Address of the worker."""
    index: int = -1
    """Number of the task within its iteration."""


class View(Discreet, frozen=True):
    """A stretch of coordinated steps: from ``first_step`` until the next view, each
    step is a round of one of these tasks, in turn.
    """

    first_step: int
    """First step of the view."""
    tasks: tuple[tuple[int, int], ...]
    """For each task its id, and its round at its first step in the view."""


class Plan(Discreet, frozen=True):
    """The steps that the consumers of a coordinated job may read, and their content."""

    views: tuple[View, ...]
    """The views, in order."""
    horizon: int
    """Steps below it may be read; their content never changes."""
    full: dict[int, int]
    """Number of full rounds of each task that has ended."""
    missing: tuple[int, ...] = ()
    """Consumers that no client reads as at present; the other consumers wait for
    them.
    """
    end: int | None = None
    """The step behind the last; None until it is known."""
    indices: tuple[tuple[int, int], ...] = ()
    """For each task in the views its id, and its number within the iteration."""
    rests: dict[int, int] = field(default_factory=dict)
    """Number of elements after the full rounds of each task that has any."""
    last: int | None = None
    """Step at which the last rounds begin, which are made of the rests; None until it
    is known.
    """


class LeftOutElement(Discreet, frozen=True, array_like=True):
    """An element that a node of a task skips, because its function raised an error, or
    because it has killed its worker.
    """

    index: int
    """Number of the task within its iteration."""
    place: str
    """Place of the node in the pipeline, with the repetition and the element that a
    nested dataset was made from.
    """
    number: int
    """Number of the element among the inputs of the node at this place."""
    label: str
    """Name of the node in errors."""
    error: str
    """Class and text of the error, or how the worker died."""
    split: tuple[int, int] | None = None
    """The split of the element if it is known; of an element that killed its worker,
    the last split that the task had begun.
    """
    traceback: str = ""
    """Traceback as Python prints it; empty without an error."""


class TaskList(Discreet, frozen=True):
    """All tasks of an iteration that may still yield elements.

    A list replaces the list before. A list of the same start with a lower version than
    the last seen is out of date and ignored.
    """

    version: int
    """Version of the list; it grows with each change."""
    tasks: tuple[TaskPlace, ...]
    """The tasks and their hosts."""
    closed: bool
    """True if no task will be added."""
    plan: Plan | None = None
    """The plan of a coordinated job; None in other jobs."""
    readers: tuple[str, ...] = ()
    """Ids of all clients that read the iteration, in uncoordinated jobs."""
    left_out: tuple[LeftOutElement, ...] = ()
    """Elements skipped by all tasks of the iteration, for the reader's quarantine."""
    left_out_of: dict[int, int] = field(default_factory=dict)
    """Number of elements that ended tasks have left out, by task, without tasks that
    have left out none. A reader that has not heard the end of such a task awaits it.
    """
    ticket: int = 0
    """Secret that a reader presents to workers, which send elements to no other
    client.
    """
    owed_elsewhere: tuple[int, ...] = ()
    """Tasks that still owe elements, of which none comes to this reader now: other
    clients have, or had, all of them, or the task is hosted by a worker that it does
    not read.
    """
    written: JournalCounts | None = None
    """Counts of the iteration when the dispatcher made the list."""

    @property
    def start(self) -> int:
        """Mark of the dispatcher's start that made the list; 0 if it is unknown."""
        return 0 if self.written is None else self.written.mark


class IdleWorkers(Discreet, frozen=True, array_like=True):
    """The registered workers of a dispatcher, none of which hosts a task of an
    iteration. The clients of the iteration tell their users why they wait.
    """

    registered: int
    """Number of registered workers."""
    able: int
    """Number of those that stay and may host tasks of the iteration."""


class TaskState(Discreet, frozen=True, array_like=True):
    """A position in a task, from which its pipeline can be continued."""

    number: int
    """Number of the element (or round) that the pipeline makes next."""
    content: bytes
    """State of the pipeline's iterator, in msgpack. Only workers interpret it."""
    needs: tuple[int, ...] = ()
    """Per source, the first ledger entry that continuing requires."""
    decisions: int = 0
    """Number of the first decision that continuing requires."""


class TaskDefinition(Discreet, frozen=True):
    """The lineage of a task: all that a worker needs to host it.

    Random draws follow from ``seed``, or from ``iteration_seed`` where all tasks of the
    iteration must draw the same. A seed in the pipeline is combined with ``repetition``
    and, where an element has no name, ``stream``.
    """

    task: int
    """Id of the task."""
    attempt: int
    """Number of this attempt; messages of older attempts are ignored."""
    iteration: int
    """Id of the iteration."""
    job: JobParameters
    """Parameters of the job."""
    digest: str
    """Digest of the packed pipeline."""
    seed: int
    """Seed of the task."""
    ledger: tuple[tuple[Split, ...], ...]
    """Per source, the splits handed out so far, without the first ``bases`` entries."""
    skip: Ranges
    """Elements that consumers already have. They are made again but not sent."""
    num_shards: int = 0
    """Number of static shards; 0 if the job has none."""
    shard: int = 0
    """Number of the task's shard."""
    passed: tuple[int, ...] = ()
    """Number of rounds that each consumer has completed."""
    iteration_seed: int = 0
    """Seed of the iteration."""
    fixed_seed: int = 0
    """Seed of what the program draws once; that of the dataset."""
    repetition: int = 0
    """The job's repetition."""
    stream: int = 0
    """Number of the task within its iteration, and of the stream under
    ``save_path``.
    """
    delivered: int = 0
    """Number of leading elements that were all delivered."""
    bases: tuple[int, ...] = ()
    """Per source, the number of leading ledger entries that are no longer needed."""
    states: tuple[TaskState, ...] = ()
    """Positions, oldest first. The pipeline continues from a position only if all
    elements before its number are in ``skip``; else it starts from the beginning.
    """
    first_decision: int = 0
    """Number of the first entry in ``decisions``."""
    decisions: tuple[Decision, ...] = ()
    """Earlier decisions of operations to skip an element or not; this attempt must
    repeat them.
    """
    poisoned: tuple[Place, ...] = ()
    """Elements that nodes must skip."""
    suspects: tuple[Place, ...] = ()
    """Elements at which a process may have died. The worker runs no other task then,
    and calls for nothing else while it makes one of them.
    """
    traceparent: str = ""
    """Span of OpenTelemetry that is the parent of those of this task, in the form of
    W3C Trace Context; empty if there is none.
    """
    ticket: int = 0
    """Secret of the iteration. Only clients that present it with their link get
    elements.
    """
    written: JournalCounts | None = None
    """Counts of the iteration when the task was sent."""

    @property
    def save_path(self) -> str:
        """Path to which the worker writes the elements; empty if it sends them to
        clients.
        """
        return self.job.save.path if self.job.save is not None else ""


class Lease(Discreet, frozen=True):
    """A client's right to hand out the elements that it holds, for some time after the
    heartbeat that is answered.
    """

    seconds: float
    """Duration of the lease."""
    alone: bool = False
    """True if no other client reads. The client then needs no further answer unless it
    was itself kept from running.
    """
    free: bool = False
    """True if no other client can get what it holds. The client may hand it out at any
    time, but must still send a heartbeat this often.
    """


class TaskReport(Discreet, frozen=True):
    """A worker's report about a task that it hosts."""

    task: int
    """Id of the task."""
    attempt: int
    """Attempt that the worker hosts."""
    produced: Number
    """Number of elements produced."""
    total: Number | None
    """Number of elements in all, or of rounds; None until known. A rest counts as a
    round.
    """
    idle: float = 0.0
    """Seconds without progress."""
    incomplete: bool = False
    """True if a dead client was handed elements that it did not report, and the worker
    has dropped them. The dispatcher then begins a new attempt, which makes them again.
    """
    skipped: dict[str, int] = field(default_factory=dict)
    """Per trainer of a shared cache, the elements that it was too slow for."""
    rest: int = 0
    """Number of elements after the last full round."""
    failure: bytes = b""
    """Failure of the task as a whole, in the form of ``Block.failure``. Such a task has
    no end.
    """
    busy: float = 0.0
    """Seconds spent so far in a call of a user's function, or in making an element."""
    work: Work | None = None
    """The call or the element that ``busy`` refers to."""
    left_out: int = 0
    """Number of elements that failed and that the pipeline skipped; known at the
    end.
    """
    compressed: str = ""
    """Compression of the blocks and its savings, for people."""
    waits: bool = False
    """True if the task has produced all that it may before its readers take some."""
    measures: TaskMeasures | None = None
    """Measures of the attempt; None if this report omits them. A worker with many tasks
    sends some of them in turn.
    """
    tried: bool = False
    """True if every suspect of the task was made and the process lives."""


class StreamGrant(Discreet, frozen=True):
    """Absolute permission on a stream, counted from the stream's start under the client
    of this link.
    """

    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    elements: Number
    """The stream may send up to this many elements in all."""
    bytes: Number
    """The stream may send up to this many bytes in all."""
    handed_out: Number
    """This many elements, in the order sent, have reached the training loop. The worker
    may drop them.
    """
    reported: Number = 0
    """The dispatcher has acknowledged reports of this many elements."""
    first: Number = 0
    """Round at which the stream of a numbered consumer begins."""
    recall: Number = 0
    """Number of the last ``TakeBackElements`` of the stream; 0 for none. Counts are
    comparable between grants of the same number.
    """
    kept: Number = 0
    """Number of elements of the stream that the client kept then."""
