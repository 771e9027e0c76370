"""The client's ends of the links to its workers: asking for links, counting messages,
replacing broken links.

What the messages on a link mean is decided in ``core.client.decider``.

Protocol 3.6, 6.1 to 6.4, 6.7 and 8.13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.evidence import Evidence
from zmqdata.core.limits import Rotation
from zmqdata.errors import ResourceExhaustedError

REPEAT = 1.0
"""Seconds between two repetitions of an ask or a grant."""
VOUCHING = 4
"""Number of workers at a time that are asked to vouch for this client while the
dispatcher answers it.

If thousands of workers vouched for every client all the time, the dispatcher could do
nothing else. When it does not answer, all workers are asked, because the client cannot
know which of them the dispatcher hears.
"""
STALE_LINK = 30.0
"""Seconds after which messages that were sent and have not arrived count as lost,
without any other sign of loss.

A gap or a broken connection is noticed at once, and the heartbeats of ZeroMQ find a
connection on which nothing passes. This limit is for the last message before a pause,
dropped between two living ends. Such a message cannot be told from a slow one: messages
arrive whole, and some hundred megabytes take that long on a slow network. A false alarm
costs sending the message again, which would never end if the limit were too short.
"""
NOTE_AGAIN = 10.0
"""Seconds between two log lines about the same refused link."""
LAPSE = 10.0
"""Seconds after which a refusal no longer counts. A worker is asked every second, and
has not answered since.
"""
UNREACHABLE_AFTER = 20.0
"""Seconds without a message of a worker after which it counts as unreachable. Longer
than finding a dead worker takes.
"""
INCOMPLETE_AFTER = 60.0
"""Seconds without an outstanding message of a link after which its worker counts as
unreachable too.
"""


@dataclass(frozen=True)
class LinkProfile:
    """The client that opens links. Workers receive every field after ``client``
    unchanged.
    """

    client: str
    """Id of the client."""
    host: str
    """Name of its machine, by which workers recognise a client of their host."""
    transports: tuple[str, ...]
    """Transports that it supports."""
    reader: m.Reader = field(default_factory=m.Reader)
    """The role in which it reads."""
    process: str = field(default="", repr=False)
    """Secret of its process, which the process's own workers know."""
    decompresses: bool = True
    """False if it has no codec."""
    shows_task_log: bool = False
    """True if it shows what functions print."""


@dataclass
class ReadLink:
    """The link to a worker."""

    name: str
    """Name of the link."""
    address: str
    """Address of the worker."""
    replaces: str = ""
    """Name of the link that this one replaces, or empty."""
    have_through: int = 0
    """Number of the last message seen on the replaced link."""
    opened: bool = False
    """True once the worker has opened the link."""
    shares: bool = False
    """True once its shared memory is mapped."""
    received: int = 0
    """Number of the last message received in order."""
    asked: float = 0.0
    """Time of the last ``OpenLink``."""
    granted: float = 0.0
    """Time of the last ``Grant`` for all streams."""
    progress: float = 0.0
    """Time at which the link was last known to lack no message."""
    refused: float | None = None
    """Time since which the worker has had no resources for the link, or None."""
    refusal: float = 0.0
    """Time of the last such refusal."""
    reason: str = ""
    """Reason that the worker gave last."""
    noted: float | None = None
    """Time at which a refusal was last logged, or None."""
    patience: float = STALE_LINK
    """Seconds that a message may be in flight."""


@dataclass
class Reach:
    """Last signs of life of a worker."""

    heard: float
    """Time of its last message."""
    complete: float
    """Time at which all that it had sent had arrived."""


class ReadLinks:
    """All links of a client, at most one per worker.

    Args:
        profile: the client.
        do: receives the resulting commands.
        streams: returns the grants for all streams of the worker at an address.
        loop: returns the seconds that the training loop takes for an element, and
            whether it has nothing left.

    Attributes:
        by_address: links by the address of their worker.
        by_name: links by name.
        asks: number that grants carry, so that workers send lineage again when it
            grows.
        evidence: what workers tell of their tasks.
        question: the newest question of the dispatcher that the client has heard.
        done: True if the client is done.
    """

    def __init__(
        self,
        profile: LinkProfile,
        do: Callable[[e.ClientCommand], None],
        streams: Callable[[str], tuple[m.StreamGrant, ...]],
        loop: Callable[[], tuple[float, bool]],
    ) -> None:
        self.profile = profile
        self._ticket = 0
        self.by_address: dict[str, ReadLink] = {}
        self.by_name: dict[str, ReadLink] = {}
        self._do = do
        self._streams = streams
        self._loop = loop
        self._reach: dict[str, Reach] = {}
        self._made = 0
        self._rotation: Rotation[str] = Rotation(VOUCHING)
        self._vouching: set[str] = set()
        self._turned = -math.inf
        self.asks = 0
        self.question: m.Question | None = None
        self.done = False
        self.evidence = Evidence(profile.reader.consumer_index)

    def tend(self, wanted: Iterable[str], now: float, ticket: int = 0) -> None:
        """Keep exactly the links to the wanted addresses.

        Args:
            wanted: addresses of the workers to read from.
            now: present time.
            ticket: shows workers what this client may read.
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
        """Repeat asks and grants, and ask other workers to vouch for this client.

        Args:
            now: present time.
            pause: seconds between two repetitions.
            all_vouch: True to ask all workers at once.
        """
        if all_vouch or now - self._turned >= pause:
            opened = [address for address, link in self.by_address.items() if link.opened]
            before, self._turned = self._vouching, now
            self._vouching = set(opened if all_vouch else self._rotation.next_items(opened))
            for address in sorted(self._vouching - before):
                self._grant_all(self.by_address[address], now)
        for link in self.by_address.values():
            if not link.opened:
                if now - link.asked >= pause:
                    self._ask(link, now)
            elif now - link.granted >= pause:
                self._grant_all(link, now)

    def grant(self, address: str, streams: Sequence[m.StreamGrant]) -> None:
        """Send grants for some streams to the worker at an address."""
        link = self.by_address.get(address)
        if link is not None and link.opened:
            self._do(e.Send(address, self._grant(link, tuple(streams))))

    def _grant_all(self, link: ReadLink, now: float, vouches: bool = False) -> None:
        link.granted = now
        sent = now if vouches or link.address in self._vouching else 0.0
        self._do(e.Send(link.address, self._grant(link, self._streams(link.address), sent)))

    def _grant(
        self, link: ReadLink, streams: tuple[m.StreamGrant, ...], sent: float = 0.0
    ) -> m.Grant:
        pace, waits = self._loop()
        return m.Grant(
            link.name,
            link.received,
            streams,
            len(self.by_address),
            link.shares,
            self.asks,
            sent,
            pace,
            waits,
            self.question,
            self.done,
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
                    shows_task_log=who.shows_task_log,
                ),
            )
        )

    def _forget(self, link: ReadLink) -> None:
        del self.by_address[link.address], self.by_name[link.name]
        if link.opened:
            self._do(e.DisconnectLink(link.name))

    def _drop(self, link: ReadLink) -> None:
        self._reach.pop(link.address, None)
        if link.opened and self.profile.reader.trainer_id:
            # The next client with this id must not get what was handed out since
            # the last grant. The dispatcher does not count elements per trainer.
            told = self._streams(link.address)
            streams = tuple(structs.replace(one, elements=0, bytes=0) for one in told)
            self._do(e.Send(link.address, self._grant(link, streams)))
        self._do(e.Send(link.address, m.CloseLink(link.name)))
        self._forget(link)

    def _replace(self, link: ReadLink, reason: str, now: float) -> None:
        """Open a new link that begins after the last message seen on the old link."""
        self._do(
            e.LogLine("debug", f"link to {link.address} is broken ({reason}): opening a new one")
        )
        self._forget(link)
        if link.opened:
            fresh = self._make(link.address, link.name, link.received)
        else:
            fresh = self._make(link.address, link.replaces, link.have_through)
        # Ask at once, unless the former link was as young. Then ask at the next
        # repetition.
        fresh.asked, fresh.patience = now, link.patience
        if now - link.asked >= REPEAT:
            self._ask(fresh, now)

    # --- who is out of reach

    def unreached(self, now: float) -> tuple[str, ...]:
        """Return the addresses of the workers from which nothing arrives, although
        something should.
        """
        return tuple(
            address
            for address, reach in self._reach.items()
            if now - reach.heard >= UNREACHABLE_AFTER or now - reach.complete >= INCOMPLETE_AFTER
        )

    def silences(self, now: float) -> dict[str, float]:
        """Return the seconds since the last message of each worker, by address."""
        return {address: now - reach.heard for address, reach in self._reach.items()}

    def forgive(self, seconds: float) -> None:
        """Discount time in which this process did not listen."""
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
        """Connect to the socket that a worker has bound for a link, and grant its
        streams.
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
        """Tell the worker that it may use the memory of a link, because it is
        mapped.
        """
        link = self.by_name.get(event.link)
        if link is not None:
            link.shares = True
            self._grant_all(link, now)

    def refused(self, message: m.LinkRefused, now: float) -> None:
        """Handle a refusal of a worker that does not know a link or cannot open it
        now.
        """
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

    def why_refused(self, seconds: float, now: float) -> str:
        """Return why a worker has refused a link for so many seconds and still refuses
        it; an empty text if no worker has.
        """
        for link in self.by_address.values():
            is_refused = not link.opened and now - link.refusal < LAPSE
            if is_refused and link.refused is not None and now - link.refused >= seconds:
                return (
                    f"Worker `{link.address}` has refused a link for {seconds:g} s, and no element "
                    f"can be read from it without a link: {link.reason}."
                )
        return ""

    def broken(self, event: e.LinkBroken, now: float) -> None:
        """Replace a link whose connection is gone."""
        link = self.by_name.get(event.link)
        if link is not None:
            self._replace(link, event.reason, now)

    def reject(self, event: e.Arrived, reason: str, now: float) -> None:
        """Break the link before the message counted last, which counts as unseen
        because it should not have been sent.
        """
        link = self.by_name[event.link]
        link.received -= 1
        self._replace(link, reason, now)

    def hear(self, question: m.Question | None) -> None:
        """Repeat a question from now on, if it is newer than the last one."""
        if question is not None and question.follows(self.question):
            self.question = question

    def reported(self, message: m.LinkReported, now: float) -> None:
        """Compare what the worker has sent with what has arrived, and answer a question
        that it passes on.
        """
        link = self.by_name.get(message.link)
        if link is None:
            return
        if message.question is not None:
            self.hear(message.question)
            self._grant_all(link, now, vouches=True)
        self.evidence.hear(message, link.address)
        self._note_sign(link, now, message.sent <= link.received)
        if message.sent <= link.received:
            link.progress = now
        elif now - link.progress >= link.patience:
            # A large block on a slow cable may be in flight, and must not be sent anew
            # for ever.
            link.patience *= 2
            self._replace(link, f"{message.sent - link.received} messages never arrived", now)

    def count(self, event: e.Arrived, now: float) -> bool:
        """Count a message. Return False for an old message, or if messages before it
        are missing.
        """
        link, number = self.by_name.get(event.link), event.header.number
        if link is None or number <= link.received:
            return False
        if number != link.received + 1:
            self._replace(link, f"message {number} follows {link.received}", now)
            return False
        link.received, link.progress = number, now
        self._note_sign(link, now, complete=True)
        return True
