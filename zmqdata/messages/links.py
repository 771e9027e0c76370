"""Messages between clients and workers, and the messages on a link."""

from __future__ import annotations

from msgspec import field

from zmqdata.decisions import Decision
from zmqdata.messages.discreet import Discreet
from zmqdata.messages.measures import Amount, ConsumerPace, Counts, TaskMeasures
from zmqdata.messages.parts import (
    JournalCounts,
    LeftOutElement,
    Message,
    Number,
    Question,
    Reader,
    StreamGrant,
    TaskState,
)
from zmqdata.messages.poison import Place
from zmqdata.splits import Split

# --- client -> worker
# --------------------------------------------------------------------------------------


class Memory(Discreet, frozen=True, array_like=True):
    """A memory that a worker shares with the client of a link: a memfd that begins with
    a token.
    """

    process: int
    """Id of the process that has it open."""
    descriptor: int
    """File descriptor in that process."""
    inode: int
    """Inode of the memfd."""
    size: int
    """Size in bytes."""
    token: bytes
    """Token at its beginning."""


class Slot(Discreet, frozen=True, array_like=True):
    """The place of a block's frames in the shared memory of a link.

    Frames lie in order, each at the next multiple of 64. When the client needs none of
    them any longer, it writes ``turn`` to entry ``number`` of the memory's table.
    """

    number: int
    """Number of the slot."""
    turn: int
    """Number of this use of the slot."""
    start: int
    """Offset of the first frame behind the memory's head."""
    sizes: tuple[int, ...]
    """Size in bytes of each frame of the block; -1 if the frame follows in the
    message.
    """


class OpenLink(Message, frozen=True):
    """Sent by a client that wants blocks. The worker binds a PUSH for it and answers
    ``LinkOpened``; the client repeats this until then.
    """

    client: str
    """Id of the client."""
    link: str
    """Id of the link."""
    replaces: str
    """Id of the broken link before this; empty for the first link."""
    have_through: Number
    """Last message received on the broken link; the worker sends what followed
    again.
    """
    host: str
    """Token of the client's host; equal tokens mean a shared kernel, network and
    files.
    """
    transports: tuple[str, ...]
    """Transports in order of preference."""
    reader: Reader = Reader()
    """Identity under which the client reads; the same for all its links."""
    process: str = ""
    """Secret of the client's process. A worker that knows it, too, hands over the
    elements themselves.
    """
    ticket: int = 0
    """Ticket of the ``TaskList``. A worker sends elements of a task only to clients
    that know it.
    """
    decompresses: bool = True
    """False if the client has no codec. The worker then sends it uncompressed frames.
    """
    shows_task_log: bool = False
    """True if the client shows what functions of the pipeline print and log."""


class Grant(Message, frozen=True):
    """Sent by a client whenever it has consumed, and every second. The worker sends as
    far as the grant permits, drops what was handed out, and may answer
    ``LinkReported``.

    Grants are absolute, so repeated, lost and late grants are harmless: the highest
    counts.
    """

    link: str
    """Id of the link."""
    seen: Number
    """Number of the last message seen on the link."""
    streams: tuple[StreamGrant, ...]
    """Permissions on the streams."""
    links: Number = 1
    """Number of links that the client reads. A single thread decompresses what comes
    over all of them; the worker takes that into account.
    """
    shares: bool = False
    """True if the client has mapped the link's memory, so that blocks may lie in it."""
    asks: Number = 0
    """Number of times that the client has seen clients leave, or has missed something.
    The worker then sends by ``Lineage`` what may have been theirs.
    """
    sent: float = 0.0
    """Time of sending by the client's clock, if the worker is to vouch for the client
    to the dispatcher; else 0.
    """
    pace: float = 0.0
    """Seconds that the client's training loop takes for an element; 0 if unknown."""
    waits: bool = False
    """True if the training loop has nothing left, of any worker."""
    question: Question | None = None
    """The newest question that the client has heard."""
    done: bool = False
    """True if the client is done (``ClientHeartbeat.done``)."""


class CloseLink(Message, frozen=True):
    """Sent by a client that stops reading from this worker. The worker ends its streams
    and does not answer.
    """

    link: str
    """Id of the link."""


# --- worker -> client (control)
# --------------------------------------------------------------------------------------


class LinkOpened(Message, frozen=True):
    """Sent by a worker, answering ``OpenLink``. The client connects a PULL to the
    address with this user name and secret, which are valid once.

    If it maps the shared memory, it says so in its grants.
    """

    link: str
    """Id of the link, and the user name."""
    address: str
    """Address of the worker's PUSH."""
    secret: str
    """Password, or a secret CURVE key."""
    memory: Memory | None = None
    """Shared memory that the client may map."""


class LinkRefused(Message, frozen=True):
    """Sent by a worker that has no such link, or cannot bind a socket for it. The
    client opens another link after a while.
    """

    link: str
    """Id of the link."""
    error: str
    """Name of a class of ``zmqdata.errors``."""
    text: str
    """Text of the error."""


class LinkReported(Message, frozen=True):
    """Sent by a worker, answering a ``Grant`` unless it answered another lately. A
    client that has received fewer messages has lost some, and opens the link anew.
    """

    link: str
    """Id of the link."""
    sent: int
    """Number of messages sent so far."""
    skipped: int = 0
    """Number of elements that the readers with the client's trainer id were too slow
    for; the client warns its user.
    """
    heard: float = 0.0
    """The ``sent`` of the grant. A client that reads alone knows by it that the worker
    will vouch for it.
    """
    tasks: tuple[TaskMeasures, ...] = ()
    """Measures of tasks that the client reads, of many tasks some in turn."""
    paces: tuple[ConsumerPace, ...] = ()
    """The other numbered consumers of these tasks."""
    demand: Amount = 0.0
    """Elements per second that the other clients of these tasks take, if they are no
    numbered consumers, as far as known.
    """
    question: Question | None = None
    """A question of the dispatcher to the client, which may not reach the client. The
    client repeats it in its grants at once.
    """


# --- worker -> client (data)
# --------------------------------------------------------------------------------------


class Block(Message, frozen=True):
    """Sent by a worker as far as grants permit: the header of a block, followed by its
    frames. The client decodes elements ``first ... first + count - 1`` of the task.
    """

    number: int
    """Number of the message on the link, from 1."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    first: int
    """Number of the first element."""
    count: int
    """Number of elements."""
    skip: int
    """Number of leading elements that another client has handed out already."""
    size: int
    """Bytes charged to the credit."""
    meta: bytes = b""
    """Description of the frames."""
    failure: bytes = b""
    """Failure that replaces a single element that could not be made."""
    slot: Slot | None = None
    """Place of frames in shared memory; those do not follow in the message."""
    cut: Number = 0
    """Number of leading elements after which those for other clients begin; 0 if the
    block has none.
    """

    recall: Number = 0
    """Number of the last ``TakeBackElements`` of the stream before it; 0 if there was
    none. The client drops a block that was sent before it gave elements back.
    """
    rest: bool = False
    """True if the element is one after the last full round of its task."""

    @property
    def stop(self) -> int:
        """Number of leading elements up to which they are for this client."""
        return self.cut or self.count


class EndOfTask(Message, frozen=True):
    """Sent by a worker when every element of a task has been sent to some client. The
    client counts the task as ended; blocks may still follow if their receiver dies.
    """

    number: int
    """Number of the message on the link."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    total: int
    """Number of elements of the task."""
    left_out: int = 0
    """Number of elements that failed and that the pipeline skipped; the client tells
    its user.
    """
    held: bool = False
    """True if the client may still get elements: those that others give back, or one
    after the last full round. The task has not ended for it. In the first case the
    client tells this worker at once when its loop waits.
    """
    rest: int = 0
    """Number of elements after the last full round. They count as a round in
    ``total``.
    """
    counts: Counts = field(default_factory=dict)
    """Sums that operations of this attempt counted, as ``TaskMeasures.counts``."""


class TakeBackElements(Message, frozen=True):
    """Sent by a worker at the end of a task, if another client waits. The client keeps
    the first elements of its stream, and at least what its training loop has begun. It
    drops the others, and says so in its grants.
    """

    number: int
    """Number of the message on the link."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    recall: Number
    """Number of this request among those of the stream, from 1."""
    keep: Number
    """Number of elements to keep, counted from the beginning of the stream."""


class Origin(Discreet, frozen=True):
    """The fixed properties of a task, with which its stream begins."""

    index: int
    """Number of the task within its iteration."""
    seed: int
    """Seed of the task."""
    shard: int | None
    """Number of its static shard; None if the iteration has none."""
    iteration_seed: int
    """Seed of the iteration."""
    num_shards: int
    """Number of static shards of the iteration."""
    delivered: int = 0
    """Number of leading elements that were delivered, to any client, when this attempt
    began.
    """
    poisoned: tuple[Place, ...] = ()
    """Elements that operations skip because they have killed their process."""


class ElementsLeftOut(Message, frozen=True):
    """Sent by a worker before the next block of a stream: elements that the task has
    left out since the last such message.
    """

    number: int
    """Number of the message on the link."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    elements: tuple[LeftOutElement, ...]
    """The elements, in the order in which they failed."""


class TaskLine(Discreet, frozen=True, array_like=True):
    """A line that a function of a pipeline has printed, or a log record of it."""

    text: str
    """The line, or the message of the record, which may have several lines."""
    level: int = 0
    """Level of the record; 0 for a printed line."""
    logger: str = ""
    """Logger of the record; empty for a printed line."""


class TaskLogged(Message, frozen=True):
    """Sent by a worker as functions of a task print and log, to one client of the task
    that shows such lines. The client shows them to its user.
    """

    number: int
    """Number of the message on the link."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    lines: tuple[TaskLine, ...]
    """The lines, in the order in which they were printed."""
    suppressed: Number = 0
    """Number of further lines since the last such message, which are not sent because
    they were too many.
    """


class Lineage(Message, frozen=True):
    """Sent by a worker before the messages that depend on it. The client keeps it, so
    that its checkpoints are complete.
    """

    number: int
    """Number of the message on the link."""
    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    bases: tuple[int, ...] = ()
    """Per source, the number of the first entry in ``ledger``."""
    ledger: tuple[tuple[Split, ...], ...] = ()
    """Per source, the entries that the task has started, the last cut at its present
    position. They replace what the client has from there on, unless it has more.
    """
    states: tuple[TaskState, ...] = ()
    """New positions from which the task can be continued."""
    origin: Origin | None = None
    """Fixed properties of the task, in the first message of a stream, which is
    complete.
    """
    first_decision: int = 0
    """Number of the first entry in ``decisions``."""
    decisions: tuple[Decision, ...] = ()
    """Decisions of operations to skip an element or not; they replace what the client
    has from there on.
    """
    asks: int = 0
    """The ``asks`` of the last ``Grant``."""
    upto: int = 0
    """After this message the client has all that elements below this number depend on,
    whichever client holds them.
    """
    written: JournalCounts | None = None
    """Counts of the iteration when the dispatcher last sent the task, or splits of it,
    to the worker.
    """
