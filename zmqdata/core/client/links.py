"""The client's ends of the links to its workers: asking for them, counting what
arrives, replacing broken ones.

What the messages on a link mean is the consumer core's affair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.limits import Rotation
from zmqdata.errors import ResourceExhaustedError

REPEAT = 1.0
VOUCHING = 4
"""So many workers at a time are asked to tell the dispatcher that they hear us, while
it answers us. If thousands told of all always, it would be busy with nothing else; and
when it does not answer, nobody knows which of them it hears.
"""
STALE_LINK = 30.0
"""Seconds after which messages that were sent and have not come count as lost, though
nothing says that they are.

A gap or a broken connection is noticed at once, and ZeroMQ's heartbeats find a
connection on which nothing passes; so this is for the last message before a pause,
dropped by something between two living ends. It cannot be told from one that is on its
way: messages arrive whole, and one of some hundred megabytes takes that long on a slow
network. To be wrong costs sending it again, which would never end if the time were too
short.
"""
NOTE_AGAIN = 10.0
LAPSE = 10.0
"""Seconds after which a refusal says nothing any more: a worker is asked each second,
and has not answered since.
"""
SILENT = 20.0
"""Seconds without a word of a worker after which it counts as out of reach. Longer than
it takes to find it dead.
"""
INCOMPLETE = 60.0
"""Seconds in which nothing comes over a link that has been promised, after which its
worker is out of reach, too.
"""


@dataclass(frozen=True)
class LinkProfile:
    """Who opens links. What follows ``client`` is told to workers as it is."""

    client: str
    host: str
    transports: tuple[str, ...]
    reader: m.Reader = field(default_factory=m.Reader)
    process: str = field(default="", repr=False)
    decompresses: bool = True


@dataclass
class ReadLink:
    """The link to one worker. ``seen`` is the number of its last message; ``shares``:
    its memory is mapped.

    ``progress`` is when it was last known to lack nothing, ``asked`` and ``granted``
    when we last spoke. ``refused``: since when the worker cannot have one more, as it
    said at ``refusal`` last, and ``reason`` why; ``noted``: when that was last said.
    ``patience``: how long one message may be on its way.
    """

    name: str
    address: str
    replaces: str = ""
    have_through: int = 0
    opened: bool = False
    shares: bool = False
    seen: int = 0
    asked: float = 0.0
    granted: float = 0.0
    progress: float = 0.0
    refused: float | None = None
    refusal: float = 0.0
    reason: str = ""
    noted: float | None = None
    patience: float = STALE_LINK


@dataclass
class Reach:
    """When a worker was last ``heard``, and when all that it had sent was
    ``complete``.
    """

    heard: float
    complete: float


class ReadLinks:
    """All links of one client, at most one to each worker.

    Args:
        profile: who we are.
        do: takes the commands that result.
        streams: tells the grants for all streams of the worker at an address.
    """

    def __init__(
        self,
        profile: LinkProfile,
        do: Callable[[e.ClientCommand], None],
        streams: Callable[[str], tuple[m.StreamGrant, ...]],
    ) -> None:
        self.profile = profile
        self._ticket = 0
        self.by_address: dict[str, ReadLink] = {}
        self.by_name: dict[str, ReadLink] = {}
        self._do = do
        self._streams = streams
        self._reach: dict[str, Reach] = {}
        self._made = 0
        self._rotation = Rotation(VOUCHING)
        self._vouching: set[str] = set()
        self._turned = -math.inf
        self.asks = 0

    def tend(self, wanted: Iterable[str], now: float, ticket: int = 0) -> None:
        """Has a link to each of the wanted addresses, and to no other. The ticket shows
        workers what we read.
        """
        wanted, self._ticket = set(wanted), ticket
        for address in [address for address in self.by_address if address not in wanted]:
            self._drop(self.by_address[address])
        for address in sorted(wanted):
            link = self.by_address.get(address)
            if link is None:
                self._reach[address] = Reach(now, now)
                self._ask(self._make(address), now)
            elif link.opened:
                self._grant_all(link, now)

    def tick(self, now: float, pause: float = REPEAT, all_vouch: bool = False) -> None:
        """Repeats asks and grants after a ``pause`` without any; so often other workers
        are asked to vouch for us.

        ``all_vouch``: all of them are, at once.
        """
        if all_vouch or now - self._turned >= pause:
            opened = [address for address, link in self.by_address.items() if link.opened]
            before, self._turned = self._vouching, now
            self._vouching = set(opened if all_vouch else self._rotation.take(opened))
            for address in sorted(self._vouching - before):
                self._grant_all(self.by_address[address], now)
        for link in self.by_address.values():
            if not link.opened:
                if now - link.asked >= pause:
                    self._ask(link, now)
            elif now - link.granted >= pause:
                self._grant_all(link, now)

    def grant(self, address: str, streams: Sequence[m.StreamGrant]) -> None:
        """Tells the worker at an address how far some of its streams may go."""
        link = self.by_address.get(address)
        if link is not None and link.opened:
            self._do(e.Send(address, self._grant(link, tuple(streams))))

    def _grant_all(self, link: ReadLink, now: float) -> None:
        link.granted = now
        sent = now if link.address in self._vouching else 0.0
        self._do(e.Send(link.address, self._grant(link, self._streams(link.address), sent)))

    def _grant(
        self, link: ReadLink, streams: tuple[m.StreamGrant, ...], sent: float = 0.0
    ) -> m.Grant:
        return m.Grant(
            link.name, link.seen, streams, len(self.by_address), link.shares, self.asks, sent
        )

    # --- making and dropping

    def _make(self, address: str, replaces: str = "", have_through: int = 0) -> ReadLink:
        self._made += 1
        link = ReadLink(f"{self.profile.client}-{self._made}", address, replaces, have_through)
        self.by_address[address] = self.by_name[link.name] = link
        return link

    def _ask(self, link: ReadLink, now: float) -> None:
        link.asked = now
        who = self.profile
        self._do(
            e.Send(
                link.address,
                m.OpenLink(
                    who.client,
                    link.name,
                    link.replaces,
                    link.have_through,
                    host=who.host,
                    transports=who.transports,
                    reader=who.reader,
                    process=who.process,
                    ticket=self._ticket,
                    decompresses=who.decompresses,
                ),
            )
        )

    def _forget(self, link: ReadLink) -> None:
        del self.by_address[link.address], self.by_name[link.name]
        if link.opened:
            self._do(e.DisconnectLink(link.name))

    def _drop(self, link: ReadLink) -> None:
        self._reach.pop(link.address, None)
        self._do(e.Send(link.address, m.CloseLink(link.name)))
        self._forget(link)

    def _replace(self, link: ReadLink, reason: str, now: float) -> None:
        """Opens a new link that begins after the last message seen on the old one."""
        self._do(
            e.LogLine("debug", f"link to {link.address} is broken ({reason}): opening a new one")
        )
        self._forget(link)
        if link.opened:
            fresh = self._make(link.address, link.name, link.seen)
        else:
            fresh = self._make(link.address, link.replaces, link.have_through)
        # A new link at once, unless the one before was as young: then with the next
        # repetition.
        fresh.asked, fresh.patience = now, link.patience
        if now - link.asked >= REPEAT:
            self._ask(fresh, now)

    # --- who is out of reach

    def unreached(self, now: float) -> tuple[str, ...]:
        """The addresses of workers from which nothing comes, though something
        should.
        """
        return tuple(
            address
            for address, reach in self._reach.items()
            if now - reach.heard >= SILENT or now - reach.complete >= INCOMPLETE
        )

    def forgive(self, seconds: float) -> None:
        """Discounts time in which we did not listen."""
        for reach in self._reach.values():
            reach.heard += seconds
            reach.complete += seconds
        for link in self.by_address.values():
            if link.refused is not None:
                link.refused += seconds
                link.refusal += seconds

    def _note_sign(self, link: ReadLink, now: float, complete: bool = False) -> None:
        reach = self._reach[link.address]
        reach.heard = now
        if complete:
            reach.complete = now

    # --- what workers and sockets say

    def opened(self, message: m.LinkOpened, now: float) -> None:
        """The worker has bound a socket for a link: connect, and say what may be
        sent.
        """
        link = self.by_name.get(message.link)
        if link is not None and not link.opened:
            self._note_sign(link, now)
            link.opened, link.progress = True, now
            if len(self._vouching) < VOUCHING:
                self._vouching.add(link.address)
            self._do(e.ConnectLink(link.name, message.address, message.secret, message.memory))
            self._grant_all(link, now)

    def mapped(self, event: e.MemoryMapped, now: float) -> None:
        """The memory of a link can be read: the worker may use it."""
        link = self.by_name.get(event.link)
        if link is not None:
            link.shares = True
            self._grant_all(link, now)

    def refused(self, message: m.LinkRefused, now: float) -> None:
        """The worker does not know a link, or cannot have one now."""
        link = self.by_name.get(message.link)
        if link is None:
            return
        self._note_sign(link, now)
        if message.error == "NotFoundError":
            self._replace(link, message.text, now)
        else:
            link.asked, link.reason = now, message.text
            if message.error == ResourceExhaustedError.__name__:
                if link.refused is None or now - link.refusal >= LAPSE:
                    link.refused = now
                link.refusal = now
            if link.noted is None or now - link.noted >= NOTE_AGAIN:
                link.noted = now
                self._do(
                    e.LogLine(
                        "warning",
                        f"worker {link.address} refuses a link: {message.text}; trying again",
                    )
                )

    def refused_for(self, seconds: float, now: float) -> ReadLink | None:
        """A link that a worker has refused for so long, and still does; None when there
        is none.
        """
        asking = [
            link
            for link in self.by_address.values()
            if not link.opened and now - link.refusal < LAPSE
        ]
        return next(
            (link for link in asking if link.refused is not None and now - link.refused >= seconds),
            None,
        )

    def broken(self, event: e.LinkBroken, now: float) -> None:
        """The connection of a link is gone."""
        link = self.by_name.get(event.link)
        if link is not None:
            self._replace(link, event.reason, now)

    def reject(self, event: e.Arrived, reason: str, now: float) -> None:
        """The message counted last should not have been sent: its link is broken before
        it, and it counts as unseen.
        """
        link = self.by_name[event.link]
        link.seen -= 1
        self._replace(link, reason, now)

    def reported(self, message: m.LinkReported, now: float) -> None:
        """Compares what the worker has sent with what has come."""
        link = self.by_name.get(message.link)
        if link is None:
            return
        self._note_sign(link, now, message.sent <= link.seen)
        if message.sent <= link.seen:
            link.progress = now
        elif now - link.progress >= link.patience:
            # It may have been a large block on a slow cable: that must not be begun
            # anew for ever.
            link.patience *= 2
            self._replace(link, f"{message.sent - link.seen} messages never arrived", now)

    def count(self, event: e.Arrived, now: float) -> bool:
        """Counts a message; False when it is an old one, or there is a gap before
        it.
        """
        link, number = self.by_name.get(event.link), event.header.number
        if link is None or number <= link.seen:
            return False
        if number != link.seen + 1:
            self._replace(link, f"message {number} follows {link.seen}", now)
            return False
        link.seen, link.progress = number, now
        self._note_sign(link, now, complete=True)
        return True
