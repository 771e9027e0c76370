"""What messages are made of: their base, and the structs that several of them carry."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, field

from zmqdata.decisions import Decision
from zmqdata.messages.deaths import Crumb, Place
from zmqdata.messages.discreet import Discreet
from zmqdata.splits import Split, SplitSource

PROTOCOL_VERSION = 1
"""Major version of the protocol. Peers of another version are refused; unknown fields
of the same version ignored.
"""

MOST_NUMBER = 1 << 53
Number = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]
"""A count, or the number of something: sums of thousands of them are still numbers that
everybody can write down.
"""
Ranges = tuple[tuple[Number, Number], ...]
"""Sorted, disjoint, half-open ranges of element numbers."""


class Message(Discreet, frozen=True, tag=True):
    """Base of all messages."""


DIGEST = re.compile("[0-9a-f]{64}")

PIECE_BYTES = 2 << 20
"""Parts travel in pieces of so many bytes at most."""
MOST_PIECE_BYTES = 16 << 20
"""Longer pieces are refused."""
MOST_WHOLE_BYTES = 32 << 10
"""A packed pipeline longer than this travels as a part, in pieces: no dispatcher
refuses messages of this size.
"""


def is_digest(text: str) -> bool:
    """Whether it is 64 hexadecimal characters, and so may name a file."""
    return DIGEST.fullmatch(text) is not None


class Part(Discreet, frozen=True):
    """A piece of a pipeline's content: the SHA-256 of its bytes, in 64 hexadecimal
    characters, and their number.
    """

    digest: str
    size: int


class DatasetDescription(Discreet, frozen=True):
    """What the dispatcher and clients need to know of a pipeline without opening it.

    ``sources`` holds one entry per source in left-to-right order, or is None with the
    reason in ``unsplittable``. ``element_spec`` is the encoded spec, or None when
    unknown. ``python`` is the client's interpreter version. ``digest`` is that of the
    packed pipeline, which names its ``parts``: large arrays and shipped code, stored
    and sent apart from it. It is a part itself where it is too large to go along with
    ``RegisterDataset``.
    """

    digest: str
    fingerprint: str
    sources: tuple[SplitSource, ...] | None
    unsplittable: str
    element_spec: bytes | None
    cardinality: int
    compression: str | None
    python: str
    version: str
    parts: tuple[Part, ...] = ()


class SaveParameters(Discreet, frozen=True):
    """Where the elements of a job go that nobody reads: ``distributed_save``. ``run``
    tells this save from others.
    """

    path: str
    run: str


class JobParameters(Discreet, frozen=True):
    """What defines a job. A second client that opens the same name must bring equal
    parameters.

    ``cache``: every trainer reads all, out of a window that workers keep.
    ``by_reference``: all clients are in the processes of their workers and take
    elements as they are. ``finite``: what becomes of a last round that is not full
    ("drop" or "pad"), where a coordinated job may end. Not compared:
    ``block_elements``, most elements in a block, where the job's first client wants few
    on their way; ``consumer_timeout``, seconds that the others of a coordinated job
    wait for one that is missing, and ``task_timeout``, the longest that a call of a
    user's function may take. ``save``: workers write the elements to files, and no
    client reads it. ``num_tasks``: the order is promised: there are so many tasks,
    whoever hosts them, each has every so many-th split, and consumers take from them in
    turn; all that is random follows from ``seed`` then. ``on_poison``: what becomes of
    an element that kills its process again and again, "fail" or "skip".
    ``fingerprint``: the content that the client knows under ``dataset_id``, which must
    be what the dispatcher has there; not compared with other clients'.
    """

    name: str
    dataset_id: str
    processing_mode: str
    num_consumers: int | None = None
    target_workers: str = "AUTO"
    compression: str | None = "AUTO"
    anonymous: bool = False
    block_elements: int | None = None
    cache: bool = False
    finite: str | None = None
    by_reference: bool = False
    consumer_timeout: float = 300.0
    save: SaveParameters | None = None
    num_tasks: int | None = None
    seed: int = 0
    on_poison: str = "fail"
    task_timeout: float | None = None
    fingerprint: str = ""


class Reader(Discreet, frozen=True):
    """As whom a client reads: one of the numbered consumers of a coordinated job, or a
    trainer that shares a cache.
    """

    consumer_index: int | None = None
    trainer_id: str = ""


class TaskPlace(Discreet, frozen=True):
    """Where a client finds a task, number ``index`` of its iteration. ``worker == ""``:
    between two hosts, wait.
    """

    task: int
    attempt: int
    worker: str
    address: str
    index: int = -1


class View(Discreet, frozen=True):
    """From ``first_step`` on, each step is one round of one of these tasks, in turn;
    until the next view begins.

    ``tasks``: the number of each, and its round at its first step.
    """

    first_step: int
    tasks: tuple[tuple[int, int], ...]


class Plan(Discreet, frozen=True):
    """Which steps the consumers of a coordinated job may read, and what they consist
    of.

    Steps below ``horizon`` may be read; what they are never changes. ``totals``: the
    rounds of the tasks that have come to their end. ``missing``: the consumers that
    nobody is at present, which the others wait for. ``end``: the step before which
    everything lies, once that is known. ``indices``: which tasks of the iteration those
    in views are.
    """

    views: tuple[View, ...]
    horizon: int
    totals: dict[int, int]
    missing: tuple[int, ...] = ()
    end: int | None = None
    indices: tuple[tuple[int, int], ...] = ()


class LeftOutElement(Discreet, frozen=True, array_like=True):
    """An element that a node of a task leaves out, as it has brought its worker down:
    ``error`` says how.

    ``number`` counts what came to the node, which errors call ``label``; ``split`` is
    the last one that the task had begun.
    """

    task: int
    number: int
    label: str
    error: str
    split: tuple[int, int] | None = None


class TaskList(Discreet, frozen=True):
    """All tasks of an iteration that may still give elements. ``closed``: no task will
    be added any more.

    A list replaces the one before; a lower version than the last one seen is out of
    date and ignored. In coordinated jobs it has a ``plan``, in others the ids of all
    clients that read the iteration. ``left_out``: by all tasks of the iteration, for
    the reader's quarantine. ``ticket``: what a reader shows workers, which give
    elements to nobody else.
    """

    version: int
    tasks: tuple[TaskPlace, ...]
    closed: bool
    plan: Plan | None = None
    readers: tuple[str, ...] = ()
    left_out: tuple[LeftOutElement, ...] = ()
    ticket: int = 0


class TaskState(Discreet, frozen=True, array_like=True):
    """A place in a task: with ``content`` its pipeline goes on where it makes element
    (or round) ``number`` next.

    ``needs``: per source, the first entry of the ledger that must be there for that;
    ``decisions``: the first decision. What is in ``content`` is the worker's affair:
    what the pipeline's iterator says of itself, in msgpack.
    """

    number: int
    content: bytes
    needs: tuple[int, ...] = ()
    decisions: int = 0


class TaskDefinition(Discreet, frozen=True):
    """What a worker needs to host a task: its lineage.

    ``ledger`` holds the splits handed out so far, per source, without the first
    ``bases`` entries of each, which nobody needs any more; ``skip`` the ranges of
    elements that consumers have already, which are made again but not sent. ``states``,
    oldest first: the pipeline goes on from one of them as soon as all before its number
    is in ``skip``, from the beginning on. ``decisions``, from number ``first_decision``
    on, say which elements its operations have left out, and which not: it must be the
    same this time. ``shard`` of ``num_shards`` is the task's static part, where there
    are any. ``num_consumers``, ``finite``, ``cache`` and ``by_reference`` are the
    job's; ``passed``: how many rounds each numbered consumer has behind it. What is
    random follows from ``seed``, or from ``iteration_seed`` where all tasks of the
    iteration must draw the same, or from a seed in the pipeline together with
    ``repetition``, the repetition of the job. ``save_path``: where the worker writes
    what the task makes, as stream number ``stream``; empty: it sends it to clients. So
    many of its elements from the first one on were ``delivered``. ``poisoned`` are the
    elements that nodes leave out, ``suspects`` those at which a process died and that
    are called for one at a time. ``task_timeout`` is the job's. Only those get elements
    of it who show the ``ticket`` with their link.
    """

    task: int
    attempt: int
    iteration: int
    dataset_id: str
    digest: str
    processing_mode: str
    seed: int
    compression: str | None
    ledger: tuple[tuple[Split, ...], ...]
    skip: Ranges
    block_elements: int | None = None
    num_shards: int = 0
    shard: int = 0
    num_consumers: int | None = None
    finite: str | None = None
    passed: tuple[int, ...] = ()
    cache: bool = False
    by_reference: bool = False
    iteration_seed: int = 0
    repetition: int = 0
    save_path: str = ""
    stream: int = 0
    delivered: int = 0
    bases: tuple[int, ...] = ()
    states: tuple[TaskState, ...] = ()
    first_decision: int = 0
    decisions: tuple[Decision, ...] = ()
    poisoned: tuple[Place, ...] = ()
    suspects: tuple[Place, ...] = ()
    task_timeout: float | None = None
    ticket: int = 0


class Lease(Discreet, frozen=True):
    """For how many ``seconds`` after a client has said what is answered it may hand out
    what it holds.

    ``alone``: nobody else reads, so it needs no further answer, as long as it is not
    itself kept from running. ``free``: what it holds is nobody else's, and may be
    handed out at any time; it only has to be heard of so often.
    """

    seconds: float
    alone: bool = False
    free: bool = False


class TaskReport(Discreet, frozen=True):
    """What a worker says of a task it hosts: elements produced, total once known,
    seconds without progress.

    ``incomplete``: a client that is gone was handed elements that it did not report,
    and the worker has forgotten them; the dispatcher begins a new attempt, which makes
    them again. ``skipped``: elements that each trainer of a shared cache was too slow
    for. ``dropped``: elements at its end that were too few for a round. ``failure``:
    why the task as a whole can not run, in the form of ``Block.failure``; it has no end
    then. ``busy``: the seconds for which it has been in one call of a user's function,
    or has made one element, and ``crumb``: which. ``left_out``: elements that could not
    be made, and were left out as the pipeline wants it, known at the end.
    ``compressed``: what its blocks are compressed with and how much that saves, for
    people.
    """

    task: int
    attempt: int
    produced: Number
    total: Number | None
    idle: float = 0.0
    incomplete: bool = False
    skipped: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    failure: bytes = b""
    busy: float = 0.0
    crumb: Crumb | None = None
    left_out: int = 0
    compressed: str = ""


class StreamGrant(Discreet, frozen=True):
    """Absolute permission on one stream, counted from its beginning under this link's
    client.

    ``elements``/``bytes``: the stream may send through this many. ``handed_out``: so
    many elements, in the order sent, have reached the training loop and may be
    forgotten. ``reported``: so many the dispatcher has counted. ``first``: the round
    with which the stream of a numbered consumer begins.
    """

    task: int
    attempt: int
    elements: Number
    bytes: Number
    handed_out: Number
    reported: Number = 0
    first: Number = 0
