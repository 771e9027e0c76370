"""The worker's ends of the links to its clients: binding, numbering, sending again what
a broken link has lost.

A link carries the streams of all tasks to one client. Its messages are numbered and
kept until the client has seen them. What they mean is the worker core's affair.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.limits import MOST_CHARACTERS, Rotation, too_long
from zmqdata.core.worker import events as e
from zmqdata.core.worker.streams import Stream

LINK_SILENCE = 30.0
MAX_GRANTS = 10_000
RELEASED_KEPT = 10_000
RETIRED_KEPT = 100
MAX_LINKS = 4096
MAX_IDLE_LINKS = 16
NAMED_AT_ONCE = 32
SPOKE_LATELY = 5.0
ANSWER_PAUSE = 0.5
"""Seconds between two answers to grants that ask for nothing: less than between those
that a client repeats. To answer those that come for each block took a tenth of all
processor time where blocks are large.
"""


@dataclass
class Link:
    """The data connection to one client. ``unseen`` holds what was sent and not yet
    seen, oldest first.

    ``memory`` may be mapped by the client, and is when it ``shares`` it. ``grants`` are
    the latest ones per task, also of tasks that have not come here yet; ``used``:
    whether there was ever one. ``retired``: names of the last links to this client that
    are closed; a late ask must not open them again, since their numbers have been used.
    ``links``: how many the client has, this one included. ``asks``: how often it has
    seen others leave. ``ticket``: of the iteration that it says it reads. ``vouched``:
    when it last asked us to tell the dispatcher that we hear it. ``reported``: when it
    was last told how much was sent. ``decompresses``: false if its client has no codec.
    """

    name: str
    client: str
    peer: e.Peer
    reader: m.Reader
    ticket: int = field(default=0, repr=False)
    address: str = ""
    secret: str = field(default="", repr=False)
    memory: m.Memory | None = None
    shares: bool = False
    sent: int = 0
    unseen: deque[tuple[m.OnLink, Any]] = field(default_factory=deque)
    grants: dict[int, m.StreamGrant] = field(default_factory=dict)
    used: bool = False
    retired: deque[str] = field(default_factory=lambda: deque(maxlen=RETIRED_KEPT))
    links: int = 1
    asks: int = 0
    made: float = 0.0
    heard: float = 0.0
    vouched: float = -math.inf
    reported: float = -math.inf
    decompresses: bool = True

    @property
    def bound(self) -> bool:
        return bool(self.address)

    def seen(self, number: int) -> None:
        """Forgets messages that have arrived."""
        while self.unseen and self.unseen[0][0].number <= number:
            self.unseen.popleft()

    def admits(self, grant: m.StreamGrant, task: m.TaskDefinition) -> bool:
        """Whether a grant is for this attempt of a task, of somebody whom the
        dispatcher knows as a reader of it.
        """
        return grant.attempt == task.attempt and self.ticket == task.ticket

    def keep(self, grant: m.StreamGrant) -> None:
        """Remembers a grant, unless a client names more tasks than anybody has."""
        self.used = True
        if len(self.grants) < MAX_GRANTS or grant.task in self.grants:
            self.grants[grant.task] = grant


class SendLinks:
    """All links of one worker, at most one for each client.

    Args:
        do: takes the commands that result.
    """

    def __init__(self, do: Callable[[e.WorkerCommand], None]) -> None:
        self.by_name: dict[str, Link] = {}
        self.by_client: dict[str, Link] = {}
        self._released: dict[str, None] = {}
        self._rotation = Rotation(NAMED_AT_ONCE)
        self._do = do

    def is_bound(self, client: str) -> bool:
        """Whether something can be sent to a client."""
        link = self.by_client.get(client)
        return link is not None and link.bound

    def memory_of(self, stream: Stream) -> int:
        """How many bytes of its link's memory the client of a stream has mapped."""
        link = self.by_client.get(stream.client)
        return (
            link.memory.size if link is not None and link.shares and link.memory is not None else 0
        )

    def push(self, client: str, header: m.OnLink, frames: Any) -> None:
        """Sends the next message to a client, whose link is bound."""
        self._push(self.by_client[client], header, frames)

    def _push(self, link: Link, header: m.OnLink, frames: Any) -> None:
        link.sent += 1
        header = structs.replace(header, number=link.sent)
        link.unseen.append((header, frames))
        self._do(e.Push(link.name, header, frames))

    # --- opening

    def open(self, peer: e.Peer, ask: m.OpenLink, now: float) -> None:
        """Binds a socket for a client, or says again where it is bound."""
        names = {"client": ask.client, "link": ask.link, "trainer": ask.reader.trainer_id}
        text = too_long({f"name of a {what}": name for what, name in names.items()})
        if text or not ask.link:
            text = text or "A link has a name."
            self._do(
                e.Send(
                    peer, m.LinkRefused(ask.link[:MOST_CHARACTERS], "InvalidArgumentError", text)
                )
            )
            return
        if ask.client in self._released:
            text = "the dispatcher says that this client reads no more"
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
        link.decompresses = ask.decompresses
        if before is not None:
            if ask.link in before.retired:
                self._refuse_unknown(peer, ask.link)
                return
            self._take_over(link, before, ask)
        self.by_name[link.name] = self.by_client[ask.client] = link
        self._do(e.BindLink(link.name, ask.host, ask.transports, ask.process, ask.decompresses))

    def _excess(self, peer: e.Peer) -> str:
        """Why there can not be a link for one more client; "" when there can."""
        if len(self.by_client) >= MAX_LINKS:
            return f"this worker has links to {MAX_LINKS} clients already, which is the most"
        if (
            sum(link.peer == peer and not link.used for link in self.by_client.values())
            >= MAX_IDLE_LINKS
        ):
            return f"{MAX_IDLE_LINKS} links of this peer are not in use yet, which is the most"
        return ""

    def _take_over(self, link: Link, before: Link, ask: m.OpenLink) -> None:
        if ask.replaces == before.name:
            before.seen(ask.have_through)
        link.unseen = before.unseen
        link.grants = before.grants
        link.used = before.used
        link.vouched = before.vouched
        if before.name in self.by_name:
            self._unbind(before)
        link.retired = before.retired

    def bound(self, event: e.LinkBound, now: float) -> Link | None:
        """A socket is bound: sends again what its client has not seen. None when nobody
        waits for it any more.
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
        link.address, link.secret, link.memory, link.heard = (
            event.address,
            event.secret,
            event.memory,
            now,
        )
        self._tell_opened(link)
        again, link.unseen = link.unseen, deque()
        for header, frames in again:
            self._push(link, header, frames)
        return link

    def _tell_opened(self, link: Link) -> None:
        self._do(e.Send(link.peer, m.LinkOpened(link.name, link.address, link.secret, link.memory)))

    def granted(self, peer: e.Peer, grant: m.Grant, now: float) -> Link | None:
        """The link of a grant, after noting what its client has seen; None when there
        is none.
        """
        link = self.by_name.get(grant.link)
        if link is None:
            self._refuse_unknown(peer, grant.link)
            return None
        link.peer, link.heard, link.links = peer, now, grant.links
        if grant.sent:
            link.vouched = now
        link.asks = max(link.asks, grant.asks)
        link.seen(grant.seen)
        if grant.shares and link.memory is not None and not link.shares:
            link.shares = True
            self._do(e.ShareMemory(link.name))
        for stream in grant.streams:
            link.keep(stream)
        return link

    def _refuse_unknown(self, peer: e.Peer, link: str) -> None:
        self._do(
            e.Send(
                peer,
                m.LinkRefused(
                    link[:MOST_CHARACTERS], "NotFoundError", "this worker has no such link"
                ),
            )
        )

    def report(self, link: Link, grant: m.Grant, now: float, skipped: Iterable[int] = ()) -> None:
        """Answers a grant, if none was lately: how much was sent to this client, and
        how much it was too slow for.
        """
        if not grant.sent and now - link.reported < ANSWER_PAUSE:
            return
        link.reported = now
        self._do(e.Send(link.peer, m.LinkReported(link.name, link.sent, sum(skipped), grant.sent)))

    # --- closing

    def close(self, name: str) -> Link | None:
        """Frees the port of a link whose client does not read from here any more."""
        link = self.by_name.get(name)
        if link is not None:
            self._unbind(link)
        return link

    def close_silent(self, now: float) -> None:
        """Frees the ports of clients that have said nothing for long, and ends links
        that never came to be used.
        """
        for link in list(self.by_name.values()):
            if now - (link.heard if link.bound and link.used else link.made) >= LINK_SILENCE:
                self._unbind(link)
                self._forget_unused(link)

    def _free_silent(self, now: float) -> None:
        """Makes room: a client that reads says so each second, and one that was only
        slow opens its link anew.
        """
        for link in list(self.by_name.values()):
            if link.bound and link.used and now - link.heard >= SPOKE_LATELY:
                self._unbind(link)

    def _forget_unused(self, link: Link) -> None:
        """A client that never had a stream loses nothing when its link is opened from
        the beginning.
        """
        if not link.used and not link.unseen:
            del self.by_client[link.client]

    def _unbind(self, link: Link) -> None:
        """Frees the port. The link is kept aside for a client that comes back."""
        del self.by_name[link.name]
        link.retired.append(link.name)
        if link.bound:
            self._do(e.UnbindLink(link.name))
        link.address = ""

    def release(self, client: str) -> None:
        """Forgets a client for good: it may not open a link again."""
        self._released[client] = None
        if len(self._released) > RELEASED_KEPT:
            del self._released[next(iter(self._released))]
        link = self.by_client.pop(client, None)
        if link is not None and link.name in self.by_name:
            self._unbind(link)

    def named(self) -> tuple[str, ...]:
        """Some of the clients, all in turn, so that the dispatcher can say which of
        them read no more.
        """
        return self._rotation.take(self.by_client)

    def readers(self, now: float, pause: float) -> dict[str, float]:
        """Return the clients that lately asked for news, and how many seconds ago each
        of them did.
        """
        lately = max(SPOKE_LATELY, 2 * pause)
        return {
            client: now - one.vouched
            for client, one in self.by_client.items()
            if now - one.vouched < lately
        }

    def drop_task(self, task: int) -> None:
        """Forgets the grants for a task that is not here any more."""
        for link in self.by_client.values():
            link.grants.pop(task, None)
