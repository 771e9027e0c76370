"""The worker's ends of the links to its clients: binding, numbering, and resending
after a link has broken.

A link carries the streams of all tasks to a client. Its messages are numbered and kept
until the client has seen them. Their meaning does not matter here; see
``core.worker.distribution``.

Protocol 6.1 to 6.4 and 6.7 to 6.10.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from zmqdata import messages as m
from zmqdata.config.checks import MOST_CHARACTERS
from zmqdata.core.limits import Rotation, too_long
from zmqdata.core.worker import events as e
from zmqdata.core.worker.coordinated import LaneStream
from zmqdata.core.worker.streams import Stream
from zmqdata.core.worker.tasklog import KeptLines
from zmqdata.core.worker.tasks import HostedTask

LINK_SILENCE = 30.0
"""Seconds without a message from the client after which its port is closed."""
MAX_GRANTS = 10_000
"""Maximum number of tasks whose grants a link keeps."""
RELEASED_KEPT = 10_000
"""Maximum number of released clients that the worker remembers."""
RETIRED_KEPT = 100
"""Maximum number of closed links that the worker remembers for each client."""
MAX_LINKS = 4096
"""Maximum number of clients with a link."""
MAX_IDLE_LINKS = 16
"""Maximum number of unused links for each peer."""
NAMED_AT_ONCE = 32
"""Number of clients that a heartbeat names."""
SPOKE_LATELY = 5.0
"""Seconds for which a client counts as heard after a message."""
MOST_PACES = 64
"""Maximum number of consumers whose paces a client is told."""
MEASURES_AT_ONCE = 16
"""Number of tasks whose measures a client gets with an answer to a grant."""
LEAST_PACE = 1e-9
MOST_PACE = 1e9
"""Least and most seconds for an element that count as a pace. Any other number stands
for an unknown pace, so that no client can make shares meaningless.
"""
ANSWER_PAUSE = 0.5
"""Seconds between two answers to grants that request nothing; less than the interval at
which clients repeat grants. With large blocks, answering the grant for every block took
a tenth of all processor time.
"""


@dataclass(frozen=True)
class LinkNews:
    """News of the tasks that a client reads."""

    skipped: int = 0
    """Number of elements that the client was too slow for."""
    tasks: tuple[m.TaskMeasures, ...] = ()
    """Measures of these tasks."""
    paces: tuple[m.ConsumerPace, ...] = ()
    """Paces of the other numbered consumers."""
    demand: float = 0.0
    """Elements per second that the other clients take, if they have no numbers."""


@dataclass
class Link:
    """The data connection to a client."""

    name: str
    """Name of the link."""
    client: str
    """Id of the client."""
    peer: e.Peer
    """Peer name of the client on the ROUTER."""
    reader: m.Reader
    """The reader as which the client reads."""
    ticket: int = field(default=0, repr=False)
    """Ticket of the iteration that the client claims to read."""
    address: str = ""
    """Address of the bound socket; "" while it is not bound."""
    secret: str = field(default="", repr=False)
    """One-time secret of the socket."""
    memory: m.Memory | None = None
    """Shared memory that the client may map; None if there is none."""
    shares: bool = False
    """True once the client has mapped ``memory``."""
    sent: int = 0
    """Number of messages sent."""
    unacknowledged: deque[tuple[m.OnLink, Any]] = field(default_factory=deque)
    """Messages sent and not yet seen by the client, oldest first."""
    grants: dict[int, m.StreamGrant] = field(default_factory=dict)
    """Latest grants by task, including tasks that this worker does not host yet."""
    used: bool = False
    """True once the client has granted anything."""
    retired: deque[str] = field(default_factory=lambda: deque(maxlen=RETIRED_KEPT))
    """Names of the client's last closed links. A late request must not reopen them,
    because their message numbers have been used.
    """
    links: int = 1
    """Number of links that the client has, including this one."""
    asks: int = 0
    """Number of times that the client has seen others leave."""
    made: float = 0.0
    """Time at which the link was created."""
    heard: float = 0.0
    """Time of the last message of the client."""
    asked: m.Question | None = None
    """A question of the dispatcher that the client has not repeated yet."""
    answer: m.Question | None = None
    """The newest question that the client has repeated."""
    done: bool = False
    """True if the client was done at the last grant."""
    vouched: float = -math.inf
    """Time at which the client last asked the worker to confirm to the dispatcher that
    it hears the client.
    """
    reported: float = -math.inf
    """Time at which the client was last told how much was sent."""
    decompresses: bool = True
    """False if the client has no codec."""
    pace: float = 0.0
    """Seconds that the client's training loop takes for an element; 0 if unknown."""
    waits: bool = False
    """True if its training loop had nothing left at the last grant."""
    measures_due: Rotation[int] = field(default_factory=lambda: Rotation(MEASURES_AT_ONCE))
    """Tasks whose measures the client gets next."""
    shows_task_log: bool = False
    """True if the client shows what functions print."""

    @property
    def bound(self) -> bool:
        return bool(self.address)

    def acknowledge(self, number: int) -> None:
        """Remove the messages that have arrived."""
        while self.unacknowledged and self.unacknowledged[0][0].number <= number:
            self.unacknowledged.popleft()

    def admits(self, grant: m.StreamGrant, task: m.TaskDefinition) -> bool:
        """Return True if a grant is for this attempt of the task, and its client is a
        reader that the dispatcher knows.
        """
        return grant.attempt == task.attempt and self.ticket == task.ticket

    def takes_answer(self, answer: m.Question | None) -> bool:
        """Return True if the client repeats a question that it was asked here, for the
        first time.
        """
        if self.asked is None or self.asked.follows(answer):
            return False
        self.asked = None
        return True

    def keep(self, grant: m.StreamGrant) -> None:
        """Record a grant, unless the client already names more tasks than any iteration
        has.
        """
        self.used = True
        if len(self.grants) < MAX_GRANTS or grant.task in self.grants:
            self.grants[grant.task] = grant


class SendLinks:
    """All links of a worker, at most one for each client.

    Args:
        do: receives the resulting commands.
    """

    def __init__(self, do: Callable[[e.WorkerCommand], None]) -> None:
        self.by_name: dict[str, Link] = {}
        self.by_client: dict[str, Link] = {}
        self._released: dict[str, None] = {}
        self._rotation: Rotation[str] = Rotation(NAMED_AT_ONCE)
        self._do = do

    def is_bound(self, client: str) -> bool:
        """Return True if messages can be sent to a client."""
        link = self.by_client.get(client)
        return link is not None and link.bound

    def _shows_task_log(self, stream: Stream) -> bool:
        link = self.by_client.get(stream.client)
        return stream.open and link is not None and link.shows_task_log

    def send_lines(self, lines: KeptLines, key: e.TaskKey, streams: Iterable[Stream]) -> None:
        """Send what functions of a task have printed to the first of its readers that
        shows it. The lines of a task then appear once, and in order.
        """
        if not lines:
            return
        reader = next(filter(self._shows_task_log, streams), None)
        if reader is not None and self.is_bound(reader.client):
            self.push(reader.client, lines.drain(key.task, key.attempt), ())

    def memory_of(self, stream: Stream) -> int:
        """Return the size of the memory that the client of a stream has mapped, in
        bytes.
        """
        link = self.by_client.get(stream.client)
        memory = link.memory if link is not None and link.shares else None
        return 0 if memory is None else memory.size

    def push(self, client: str, header: m.OnLink, frames: Any) -> None:
        """Send the next message to a client whose link is bound."""
        self._push(self.by_client[client], header, frames)

    def _push(self, link: Link, header: m.OnLink, frames: Any) -> None:
        link.sent += 1
        header = structs.replace(header, number=link.sent)
        link.unacknowledged.append((header, frames))
        self._do(e.Push(link.name, header, frames))

    # --- opening

    def open(self, peer: e.Peer, ask: m.OpenLink, now: float) -> None:
        """Bind a socket for a client, or repeat the answer if it is bound already."""
        names = {"client": ask.client, "link": ask.link, "trainer": ask.reader.trainer_id}
        text = too_long({f"name of a {what}": name for what, name in names.items()})
        if text or not ask.link:
            text = text or "The name of a link must not be empty."
            self._do(
                e.Send(
                    peer, m.LinkRefused(ask.link[:MOST_CHARACTERS], "InvalidArgumentError", text)
                )
            )
            return
        if ask.client in self._released:
            text = "the dispatcher has released this client: it does not read any more"
            self._do(e.Send(peer, m.LinkRefused(ask.link, "FailedPreconditionError", text)))
            return
        link = self.by_name.get(ask.link)
        if link is not None and link.client != ask.client:
            self._refuse_unknown(peer, ask.link)
            return
        if link is not None:
            link.peer, link.heard = peer, now
            if link.bound:
                self._tell_opened(link)
            return
        before = self.by_client.get(ask.client)
        excess = "" if before is not None else self._excess(peer)
        if excess:
            self._do(e.Send(peer, m.LinkRefused(ask.link, "ResourceExhaustedError", excess)))
            return
        link = Link(ask.link, ask.client, peer, ask.reader, ask.ticket, made=now, heard=now)
        link.decompresses, link.shows_task_log = ask.decompresses, ask.shows_task_log
        if before is not None:
            if ask.link in before.retired:
                self._refuse_unknown(peer, ask.link)
                return
            self._take_over(link, before, ask)
        self.by_name[link.name] = self.by_client[ask.client] = link
        self._do(e.BindLink(link.name, ask.host, ask.transports, ask.process, ask.decompresses))

    def _excess(self, peer: e.Peer) -> str:
        """Return the reason why another client cannot get a link; "" if it can."""
        if len(self.by_client) >= MAX_LINKS:
            return f"this worker has links to {MAX_LINKS} clients, which is the maximum"
        if (
            sum(link.peer == peer and not link.used for link in self.by_client.values())
            >= MAX_IDLE_LINKS
        ):
            return f"{MAX_IDLE_LINKS} links of this peer are not in use yet, which is the maximum"
        return ""

    def _take_over(self, link: Link, before: Link, ask: m.OpenLink) -> None:
        if ask.replaces == before.name:
            before.acknowledge(ask.have_through)
        link.unacknowledged = before.unacknowledged
        link.grants = before.grants
        link.used = before.used
        link.vouched, link.answer, link.done = before.vouched, before.answer, before.done
        if before.name in self.by_name:
            self._unbind(before)
        link.retired = before.retired

    def bound(self, event: e.LinkBound, now: float) -> Link | None:
        """Record that a socket is bound, and resend the messages that its client has
        not seen. Return None if the link no longer exists or could not be bound.
        """
        link = self.by_name.get(event.link)
        if link is None:
            self._do(e.UnbindLink(event.link))
            return None
        if event.error:
            self._do(e.Send(link.peer, m.LinkRefused(link.name, event.kind, event.error)))
            del self.by_name[link.name]
            self._forget_unused(link)
            self._free_silent(now)
            return None
        link.address, link.secret, link.memory = event.address, event.secret, event.memory
        link.heard = now
        self._tell_opened(link)
        again, link.unacknowledged = link.unacknowledged, deque()
        for header, frames in again:
            self._push(link, header, frames)
        return link

    def _tell_opened(self, link: Link) -> None:
        self._do(e.Send(link.peer, m.LinkOpened(link.name, link.address, link.secret, link.memory)))

    def record_grant(self, peer: e.Peer, grant: m.Grant, now: float) -> Link | None:
        """Record the acknowledgements of a grant. Return its link, or None."""
        link = self.by_name.get(grant.link)
        if link is None:
            self._refuse_unknown(peer, grant.link)
            return None
        link.peer, link.heard, link.links = peer, now, grant.links
        if grant.sent:
            link.vouched = now
        link.asks = max(link.asks, grant.asks)
        link.answer, link.done = grant.question, grant.done
        link.pace = grant.pace if LEAST_PACE <= grant.pace <= MOST_PACE else 0.0
        link.waits = grant.waits
        link.acknowledge(grant.seen)
        if grant.shares and link.memory is not None and not link.shares:
            link.shares = True
            self._do(e.ShareMemory(link.name))
        for stream in grant.streams:
            link.keep(stream)
        return link

    def _refuse_unknown(self, peer: e.Peer, link: str) -> None:
        text = "this worker has no such link"
        self._do(e.Send(peer, m.LinkRefused(link[:MOST_CHARACTERS], "NotFoundError", text)))

    def report(
        self, link: Link, grant: m.Grant, now: float, news: Callable[[], LinkNews] = LinkNews
    ) -> None:
        """Answer a grant with the number of messages sent to its client, and with news
        of the tasks that it reads. Do nothing if a grant was answered recently.

        Args:
            link: link of the client.
            grant: the grant.
            now: present time.
            news: returns the news.
        """
        if not grant.sent and now - link.reported < ANSWER_PAUSE:
            return
        told = news()
        self._report(link, now, grant.sent, told)

    def ask(self, questions: Mapping[str, m.Question], now: float) -> None:
        """Pass questions of the dispatcher on to clients."""
        for client, question in questions.items():
            link = self.by_client.get(client)
            if link is not None and link.bound and question.follows(link.answer):
                link.asked = question
                self._report(link, now)

    def _report(
        self, link: Link, now: float, heard: float = 0.0, told: LinkNews = LinkNews()
    ) -> None:
        link.reported = now
        self._do(
            e.Send(
                link.peer,
                m.LinkReported(
                    link.name,
                    link.sent,
                    told.skipped,
                    heard,
                    told.tasks,
                    told.paces,
                    told.demand,
                    link.asked,
                ),
            )
        )

    # --- closing

    def close(self, name: str) -> Link | None:
        """Close the port of a link that its client does not read any more."""
        link = self.by_name.get(name)
        if link is not None:
            self._unbind(link)
        return link

    def close_silent(self, now: float) -> None:
        """Close the ports of clients that have been silent for long, and remove links
        that were never used.
        """
        for link in list(self.by_name.values()):
            if now - (link.heard if link.bound and link.used else link.made) >= LINK_SILENCE:
                self._unbind(link)
                self._forget_unused(link)

    def _free_silent(self, now: float) -> None:
        """Close the ports of silent clients to make room. A reading client sends a
        grant every second; a client that was only slow opens a new link.
        """
        for link in list(self.by_name.values()):
            if link.bound and link.used and now - link.heard >= SPOKE_LATELY:
                self._unbind(link)

    def _forget_unused(self, link: Link) -> None:
        """Remove an unused link. A client that never had a stream loses nothing if its
        link begins anew.
        """
        if not link.used and not link.unacknowledged:
            del self.by_client[link.client]

    def _unbind(self, link: Link) -> None:
        """Close the port of a link. The link is kept for a client that comes back."""
        del self.by_name[link.name]
        link.retired.append(link.name)
        if link.bound:
            self._do(e.UnbindLink(link.name))
        link.address = ""

    def release(self, client: str) -> None:
        """Remove a client permanently. It may not open a link again."""
        self._released[client] = None
        if len(self._released) > RELEASED_KEPT:
            del self._released[next(iter(self._released))]
        link = self.by_client.pop(client, None)
        if link is not None and link.name in self.by_name:
            self._unbind(link)

    def next_clients(self) -> tuple[str, ...]:
        """Return some of the clients, taking turns among all. The dispatcher answers
        which of them no longer read.
        """
        return self._rotation.next_items(self.by_client)

    def readers(self, now: float, pause: float) -> dict[str, m.ReaderSign]:
        """Return the clients that recently asked the worker to vouch for them, each
        with what it said.
        """
        lately = max(SPOKE_LATELY, 2 * pause)
        return {
            client: m.ReaderSign(now - one.vouched, one.answer, one.done)
            for client, one in self.by_client.items()
            if now - one.vouched < lately
        }

    def drop_task(self, task: int) -> None:
        """Remove the grants for a task that this worker no longer hosts."""
        for link in self.by_client.values():
            link.grants.pop(task, None)


def news_for(link: Link, tasks: Collection[HostedTask]) -> LinkNews:
    """Return the news of the tasks that the client of a link reads.

    Args:
        link: the link.
        tasks: all tasks of the worker.
    """
    read = [task for task in tasks if link.client in task.dealing.streams]
    known = {one.definition.task: one.measures for one in read if one.measures is not None}
    return LinkNews(
        sum(task.skipped.get(link.reader.trainer_id, 0) for task in tasks),
        tuple(known[number] for number in link.measures_due.next_items(known)),
        paces_of(read, link.client),
        demand_of(read, link.client),
    )


def demand_of(tasks: Iterable[HostedTask], client: str) -> float:
    """Return the elements per second that the other clients of tasks take, as far as
    their paces are known. Numbered consumers do not count.

    Args:
        tasks: the tasks that a client reads.
        client: id of the client.
    """
    paces = {
        name: stream.pace
        for task in tasks
        for name, stream in task.dealing.streams.items()
        if name != client and stream.open and not isinstance(stream, LaneStream)
    }
    return sum(1 / pace for pace in paces.values() if pace > 0)


def paces_of(tasks: Iterable[HostedTask], client: str) -> tuple[m.ConsumerPace, ...]:
    """Return the paces of the other numbered consumers of tasks, the slowest first.

    Args:
        tasks: the tasks that a client reads.
        client: id of the client.
    """
    found: dict[int, m.ConsumerPace] = {}
    for task in tasks:
        for name, stream in task.dealing.streams.items():
            consumer = stream.consumer if isinstance(stream, LaneStream) else None
            if name != client and consumer is not None and stream.open:
                found[consumer] = m.ConsumerPace(consumer, stream.pace, stream.waits)
    return tuple(sorted(found.values(), key=lambda one: -one.step)[:MOST_PACES])
