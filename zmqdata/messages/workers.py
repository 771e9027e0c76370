"""What workers and the dispatcher say to each other."""

from __future__ import annotations

from msgspec import field

from zmqdata.decisions import Decision
from zmqdata.messages.deaths import Death
from zmqdata.messages.parts import (
    Message,
    Number,
    Part,
    Ranges,
    TaskDefinition,
    TaskReport,
    TaskState,
)
from zmqdata.splits import Split

# --- worker -> dispatcher
# -----------------------------------------------------------------------------------------


class RegisterWorker(Message, frozen=True):
    """From a worker before anything else, and again when the dispatcher does not know
    it; until registered or refused.

    ``address`` is its control socket as others reach it; ``tasks`` what it hosts from
    before; ``deaths`` are those of processes whose place it has taken, which nobody has
    told yet. The dispatcher counts each once.
    """

    worker: str
    address: str
    tags: tuple[str, ...]
    python: str
    version: str
    tasks: tuple[TaskReport, ...]
    deaths: tuple[Death, ...] = ()


class WorkerHeartbeat(Message, frozen=True):
    """From a worker every second, or as rarely as it is told, and at once when a task
    ends, with everything it hosts.

    The dispatcher answers ``WorkerHeartbeatAnswered`` and sends ``HostTask`` for tasks
    that are missing in it and ``DropTask`` for tasks that should not be there, and
    ``ReleaseClient`` for ``clients`` that read no more: a lost message heals with the
    next heartbeat, or with one of the next where a worker has many clients, since it
    names some at a time. ``readers`` asked it in the last seconds to tell that it hears
    them, each with how many seconds ago. ``draining``: it will leave; it gets no more
    tasks, and what it has goes to others as soon as there are any. ``every``: seconds
    between two of them.
    """

    worker: str
    tasks: tuple[TaskReport, ...]
    clients: tuple[str, ...]
    readers: dict[str, float] = field(default_factory=dict)
    draining: bool = False
    every: float = 1.0


class RequestSplits(Message, frozen=True):
    """From a worker that will soon need splits. ``have``: entries of this source's
    ledger it has already.

    The dispatcher answers ``SplitsAssigned`` with what follows, extending the ledger if
    there is nothing yet; so a repeated ask gets the same splits. ``repetition`` is the
    one that the source reads, ``cut`` the number of times that the end of the ledger
    was taken back; an ask that does not know of the last time is not answered.
    ``waiting``: the source has used up everything; others are not told the end, but
    asked again when they have. ``pace``: seconds that the source takes for a split, 0
    when unknown.
    """

    worker: str
    task: int
    attempt: int
    source: int
    repetition: int
    have: int
    cut: int = 0
    waiting: bool = True
    pace: float = 0.0


class SplitsReturned(Message, frozen=True):
    """From a worker that was asked ``TakeBackSplits``: of this source's ledger it keeps
    ``entries``.

    The last of them ends at ``stop`` from now on; what is behind was not started, and
    never will be without being assigned again. ``cut`` counts how often that has
    happened in this attempt. The dispatcher takes the next number as true; the one it
    knows says that everything is started.
    """

    worker: str
    task: int
    attempt: int
    source: int
    cut: int
    entries: int
    stop: int


class StateTaken(Message, frozen=True):
    """From a worker that has noted where a task's pipeline is: about once per second of
    work. Sent once, not answered.

    The dispatcher keeps it if the attempt is the current one, so that another host goes
    on from there. If it is lost, a newer one will do.
    """

    worker: str
    task: int
    attempt: int
    state: TaskState


class ElementsDecided(Message, frozen=True):
    """From a worker whose pipeline has passed over elements, or could have; repeated
    until ``DecisionsKept``.

    ``decisions``: those of the task from number ``first`` on. They take the place of
    what is known from there on. What was made since waits for the answer, which repeats
    the number ``report``: every later attempt must decide the same.
    """

    worker: str
    task: int
    attempt: int
    report: Number
    first: Number
    decisions: tuple[Decision, ...]


class RequestPipeline(Message, frozen=True):
    """From a worker that hosts a task of a dataset it has not seen; answered
    ``PipelineSent``.
    """

    worker: str
    dataset_id: str


class ChunkWritten(Message, frozen=True):
    """From a worker that has closed a chunk of a task that is saved; repeated until
    ``ChunkCommitted`` or ``DropTask``.

    The chunk holds elements ``first ... stop - 1`` in ``size`` bytes, and is on the
    disk under a name that follows from stream, attempt and ``first``. ``spec`` admits
    all of them; empty where it could not be told. If the attempt is the current one and
    nothing is missing before ``first``, the dispatcher commits the chunk: it counts,
    and is published.
    """

    worker: str
    task: int
    attempt: int
    first: int
    stop: int
    size: int
    spec: bytes = b""


class SaveFailed(Message, frozen=True):
    """From a worker that can not make or write an element of a task that is saved;
    repeated until ``DropTask``.

    ``failure`` is what a client would have got in place of the element, empty when a
    file could not be written. The dispatcher ends the save.
    """

    worker: str
    task: int
    attempt: int
    error: str
    text: str
    failure: bytes = b""


class RequestPiece(Message, frozen=True):
    """From a worker that lacks a part of a pipeline; answered ``PieceSent`` with what
    follows byte ``offset``.
    """

    worker: str
    digest: str
    offset: int


class WorkerStopped(Message, frozen=True):
    """From a worker that ends in good order: its tasks may be hosted elsewhere at
    once.
    """

    worker: str


# --- dispatcher -> worker
# -----------------------------------------------------------------------------------------


class WorkerRegistered(Message, frozen=True):
    """The worker is known and will be given tasks."""

    worker: str


class WorkerHeartbeatAnswered(Message, frozen=True):
    """The dispatcher is alive. ``known=False``: it does not know the worker, which
    registers again.

    ``unwanted``: of coordinated tasks of which a consumer has no client: how many
    rounds nobody waits for, per consumer. ``draining``: the worker gets no more tasks;
    it leaves when those that it has are gone. ``every``: seconds until its next
    heartbeat, if it would send one sooner. Also sent without being asked.
    """

    worker: str
    known: bool
    unwanted: dict[int, tuple[int, ...]] = field(default_factory=dict)
    draining: bool = False
    every: float = 0.0


class Probe(Message, frozen=True):
    """Sent to find out whether the peer is still connected. Needs no answer."""


class HostTask(Message, frozen=True):
    """The worker hosts this task from now on, replacing an older attempt of it."""

    definition: TaskDefinition


class DropTask(Message, frozen=True):
    """The worker forgets the task if its attempt is this one or older."""

    task: int
    attempt: int


class DecisionsKept(Message, frozen=True):
    """Answers ``ElementsDecided`` of that number: what was decided is durable.

    Nobody will need the decisions before number ``needed`` any more to make the task
    again.
    """

    task: int
    attempt: int
    report: int
    needed: int = 0


class SplitsAssigned(Message, frozen=True):
    """Ledger entries ``first ...`` of one source of a task. An end mark says that the
    repetition has no more.

    A worker ignores it when ``cut`` is not the number of times that it has given back
    the end of this ledger.
    """

    task: int
    attempt: int
    source: int
    first: int
    splits: tuple[Split, ...]
    cut: int = 0


class TakeBackSplits(Message, frozen=True):
    """Somebody else has nothing to do: the worker gives back what its source has not
    started of its ledger.

    It answers ``SplitsReturned``, with the number ``cut`` if there was something to
    give back, and in the same way when it is asked again for the same number.
    """

    task: int
    attempt: int
    source: int
    cut: int


class ChunkCommitted(Message, frozen=True):
    """Every element of the task before ``stop`` is in a chunk that counts; the worker
    may forget those chunks.
    """

    task: int
    attempt: int
    stop: int


class PipelineSent(Message, frozen=True):
    """A packed pipeline, or an empty one with the reason why there is none.

    The worker fetches each of the ``parts`` that it does not have by ``RequestPiece``;
    where the packed pipeline is empty without a reason, it is one of them.
    """

    dataset_id: str
    digest: str
    pipeline: bytes
    reason: str = ""
    parts: tuple[Part, ...] = ()


class PieceSent(Message, frozen=True):
    """Bytes of a part from ``offset`` on, or none with the reason."""

    digest: str
    offset: int
    content: bytes
    reason: str = ""


class ReleaseClient(Message, frozen=True):
    """A client is gone. Blocks given to it and not in ``delivered`` go to other clients
    of the task.

    ``delivered`` names every task that the worker has to host: of another one nothing
    is given again.

    The worker opens no link for it any more. What it cannot give again it tells by
    ``TaskReport.incomplete``.
    """

    client: str
    delivered: dict[int, Ranges]
