"""What clients and workers say to each other, and what travels on a link."""

from __future__ import annotations

from zmqdata.decisions import Decision
from zmqdata.messages.deaths import Place
from zmqdata.messages.discreet import Discreet
from zmqdata.messages.parts import Message, Number, Reader, StreamGrant, TaskState
from zmqdata.splits import Split

# --- client -> worker
# ---------------------------------------------------------------------------------------------


class Memory(Discreet, frozen=True, array_like=True):
    """The memory that a worker shares with the client of a link: a memfd of ``size``
    bytes that begins with ``token``.

    It is open in ``process`` as ``descriptor``, and has the number ``inode``.
    """

    process: int
    descriptor: int
    inode: int
    size: int
    token: bytes


class Slot(Discreet, frozen=True, array_like=True):
    """Where frames of a block lie in the link's shared memory: from ``start`` on,
    behind its head.

    ``sizes``: for each frame of the block its bytes; -1: it follows in the message.
    They lie one behind the other, each at the next multiple of 64. The client writes
    ``turn`` to place ``number`` of the memory's table when it needs none of them any
    more.
    """

    number: int
    turn: int
    start: int
    sizes: tuple[int, ...]


class OpenLink(Message, frozen=True):
    """From a client that wants blocks. The worker binds a PUSH for it and answers
    ``LinkOpened``; repeated until then.

    ``replaces``: the link before this one, broken after message ``have_through``: what
    followed is sent again. ``host`` is equal on both sides when they share kernel,
    network and files. ``transports`` in order of preference. ``reader`` is the same for
    all links of a client. ``process`` is a secret of the client's process: a worker
    that knows it too hands over the elements themselves. ``ticket``: that of the
    ``TaskList``; a worker gives elements of a task only to those who know it.
    """

    client: str
    link: str
    replaces: str
    have_through: Number
    host: str
    transports: tuple[str, ...]
    reader: Reader = Reader()
    process: str = ""
    ticket: int = 0


class Grant(Message, frozen=True):
    """From a client whenever it consumed, and every second. ``seen``: last message
    number of the link.

    Grants are absolute, so a repeated, lost or late one does no harm: the highest
    counts. ``links``: over so many the client reads, and decompresses what comes over
    them with one thread; the worker takes that into account. ``shares``: the client has
    mapped the link's memory, so that blocks may lie in it from now on. ``asks``: how
    often it has seen others leave, or missed something; the worker tells it by
    ``Lineage`` what can have been theirs. ``sent``: when, in seconds by its own clock,
    if the worker shall tell the dispatcher that it hears the client; 0 if others shall.
    """

    link: str
    seen: Number
    streams: tuple[StreamGrant, ...]
    links: Number = 1
    shares: bool = False
    asks: Number = 0
    sent: float = 0.0


class CloseLink(Message, frozen=True):
    """From a client that stops reading from this worker. Its streams end; nothing is
    answered.
    """

    link: str


# --- worker -> client (control)
# -----------------------------------------------------------------------------------


class LinkOpened(Message, frozen=True):
    """The client connects a PULL to ``address`` with this one-time user name and
    secret.

    ``memory``: it may map this, and say so with its grants.
    """

    link: str
    address: str
    secret: str
    memory: Memory | None = None


class LinkRefused(Message, frozen=True):
    """The worker has no such link, or cannot bind one. The client opens another after a
    while.
    """

    link: str
    error: str
    text: str


class LinkReported(Message, frozen=True):
    """Answers a ``Grant``, unless one was answered lately: messages sent so far.

    A client that stays behind it has lost some: it opens anew. ``skipped``: elements
    that those with the client's trainer id were too slow for; it warns its user.
    ``heard``: what the grant says as ``sent``; a client that reads alone knows by it
    that the dispatcher will hear of it.
    """

    link: str
    sent: int
    skipped: int = 0
    heard: float = 0.0


# --- worker -> client (data)
# --------------------------------------------------------------------------------------


class Block(Message, frozen=True):
    """Header of a block: elements ``first ... first + count - 1`` of a task; their
    frames follow it.

    ``number`` counts the messages of the link from 1. ``skip`` leading elements were
    handed out before by somebody else. ``size`` is what the credit is charged.
    ``failure`` stands in place of one element that could not be made. ``slot``: frames
    of it lie there, and do not follow.
    """

    number: int
    task: int
    attempt: int
    first: int
    count: int
    skip: int
    size: int
    meta: bytes = b""
    failure: bytes = b""
    slot: Slot | None = None


class EndOfTask(Message, frozen=True):
    """Every element of the task has been given to somebody. Blocks may follow when
    their receiver dies.

    ``left_out``: elements that could not be made, and were left out as the pipeline
    wants it; the client tells its user.
    """

    number: int
    task: int
    attempt: int
    total: int
    left_out: int = 0


class Origin(Discreet, frozen=True):
    """What a stream begins with: the ``index`` of a task among those of its iteration,
    its seed, and its static part.

    ``iteration_seed`` and ``num_shards`` are the iteration's. ``shard`` is None where
    there are none. When this attempt began, so many elements from the first one on were
    ``delivered``: to somebody, maybe long ago. ``poisoned``: what its operations leave
    out, as it has killed its process.
    """

    index: int
    seed: int
    shard: int | None
    iteration_seed: int
    num_shards: int
    delivered: int = 0
    poisoned: tuple[Place, ...] = ()


class Lineage(Message, frozen=True):
    """What the messages behind it on this link depend on: the client keeps it, so that
    a state of it is complete.

    ``ledger``: per source, the entries from number ``bases`` on that the task has
    started, the last of them cut where it has got to. They take the place of what the
    client has from there on, unless it has more. ``states``: new places at which the
    task can be continued. ``decisions``: which elements its operations have left out
    and which not, from number ``first_decision`` on; they take the place of what the
    client has. ``origin`` comes with the first one of a stream, which has everything.
    ``asks``: of the last ``Grant``. With it, this is all that elements below number
    ``upto`` depend on, whoever has them.
    """

    number: int
    task: int
    attempt: int
    bases: tuple[int, ...] = ()
    ledger: tuple[tuple[Split, ...], ...] = ()
    states: tuple[TaskState, ...] = ()
    origin: Origin | None = None
    first_decision: int = 0
    decisions: tuple[Decision, ...] = ()
    asks: int = 0
    upto: int = 0
