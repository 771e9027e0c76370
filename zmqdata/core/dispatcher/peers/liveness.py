"""Liveness of peers: when each was last heard, since when it has no connection, which
of them are dead, which questions clients have answered, and when workers send
heartbeats.

A connection proves that process and host live, even while user code keeps the peer from
speaking. A lost connection proves nothing at first, because it may be made anew; after
a while it counts as death.

Times serve only to give peers up. A socket may hold the last words of a dead client
while the dispatcher stalls, so only an answer to a question proves that a client lives.

Decisions 0003 and 0047; protocol 3.4a, 3.6, 4.1 and 4.5.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice, takewhile

from zmqdata import messages as m
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.state.outbox import Outbox

NEGLIGIBLE = 0.1
"""Seconds. A shorter pause is not sent, because no worker sends heartbeats that
often.
"""
OPEN = 5.0
"""Seconds for which workers pass a question on. It is asked again while it matters."""
PASSED_ON = 64
"""Maximum number of clients whose questions a worker is told at a time."""


@dataclass
class Member:
    """A peer, by the name it gave itself."""

    name: str
    """The name."""
    peer: Peer | None
    """The connection; None if it has not spoken to this dispatcher yet."""
    heard: float
    """When the dispatcher last heard it, without the time in which the dispatcher did
    not listen.
    """
    noticed: float
    """When another process last heard it, without the time in which the dispatcher did
    not listen.
    """
    unreachable: float | None = None
    """Since when it has no connection; None while it has one."""
    asked: float = 0.0
    """When it was last probed."""
    spoke: float = -math.inf
    """When the dispatcher truly last heard it."""
    seen: float = -math.inf
    """When another process truly last heard it."""
    answered: int = 0
    """Newest question that a client has answered."""
    answered_reading: int = 0
    """Newest question that it has answered when it was not done."""

    @property
    def sign(self) -> float:
        """The time of the last sign of life, to the dispatcher or to others."""
        return max(self.heard, self.noticed)


class Hearing:
    """Tracks whether any peer is heard. A process that hears none is cut off itself,
    and cannot tell which peers live.

    Args:
        patience: seconds in which some peer has spoken, if any is alive.

    Example:
        >>> hearing = Hearing(patience=5.0)
        >>> [hearing.hear(now) for now in (0.0, 4.0, 20.0, 21.0)]
        [0.0, 0.0, 16.0, 0.0]
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.last: float | None = None

    def hear(self, now: float) -> float:
        """Note that a peer speaks. Return the seconds of silence before; 0 if they are
        below the patience.
        """
        quiet = now - self.last if self.last is not None and self.is_deaf(now) else 0.0
        self.last = now
        return quiet

    def is_deaf(self, now: float) -> bool:
        """Return True if no peer has spoken for too long."""
        return self.last is not None and now - self.last >= self.patience


class Roster:
    """The living peers of a kind.

    Attributes:
        members: in the order of their last words, so that silent ones are found without
            looking at the others.
        num_present: number of members that have spoken to this dispatcher.
    """

    def __init__(self) -> None:
        self.members: OrderedDict[str, Member] = OrderedDict()
        self._by_peer: dict[Peer, str] = {}
        self._counts: Counter[Peer] = Counter()
        self._unreachable: dict[str, None] = {}
        self.num_present = 0

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def __len__(self) -> int:
        return len(self.members)

    def hear(self, name: str, peer: Peer, now: float) -> None:
        """Note that ``name`` spoke through ``peer``, and add it if it is new."""
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(name, None, now, now)
        if member.peer != peer:
            self.num_present += member.peer is None
            self._leave(member)
            self._by_peer[peer] = name
            self._counts[peer] += 1
        member.peer, member.unreachable = peer, None
        member.heard = member.spoke = now
        self.members.move_to_end(name)
        self._unreachable.pop(name, None)

    def expect(self, name: str, now: float, patience: float) -> None:
        """Expect a peer known to a former dispatcher. If it does not speak, its
        connection counts as lost after ``patience``.
        """
        self.members[name] = Member(name, None, now, now, now + patience)
        self._unreachable[name] = None

    def notice(self, heard: Mapping[str, float]) -> None:
        """Note when another process has heard these peers, which may be out of the
        dispatcher's own reach.
        """
        for name, when in heard.items():
            member = self.members.get(name)
            if member is not None:
                member.noticed, member.seen = max(member.noticed, when), max(member.seen, when)

    def lose_contact(self, peer: Peer, now: float) -> None:
        """Note that nothing can be sent to ``peer`` at present."""
        name = self._by_peer.get(peer)
        if name is not None and self.members[name].unreachable is None:
            self.members[name].unreachable = now
            self._unreachable[name] = None

    def peer(self, name: str) -> Peer | None:
        """Return the connection of ``name``; None if it is not alive."""
        member = self.members.get(name)
        return None if member is None else member.peer

    def silent(self, now: float, seconds: float) -> list[Member]:
        """Return the members not heard for at least this long, the most silent
        first.
        """
        return list(takewhile(lambda member: now - member.heard >= seconds, self.members.values()))

    def doubtful(self, now: float, seconds: float, most: int) -> list[Member]:
        """Return the silent members to probe now, at most ``most``. Members without a
        sign and without a probe for longest come first.
        """
        found = nsmallest(
            most, self.silent(now, seconds), key=lambda member: max(member.heard, member.asked)
        )
        for member in found:
            member.asked = now
        return found

    def disconnected(self, now: float, seconds: float) -> list[Member]:
        """Return the members without a connection for at least this long."""
        lost = [self.members[name] for name in self._unreachable]
        return [
            one for one in lost if one.unreachable is not None and now - one.unreachable >= seconds
        ]

    def remove(self, name: str) -> None:
        """Forget a peer."""
        member = self.members.pop(name, None)
        if member is not None:
            self._leave(member)
            self._unreachable.pop(name, None)
            self.num_present -= member.peer is not None

    def num_of(self, peer: Peer) -> int:
        """Return the number of members that speak through ``peer``."""
        return self._counts[peer]

    def _leave(self, member: Member) -> None:
        """Detach a member from its connection."""
        peer = member.peer
        if peer is None:
            return
        if self._by_peer.get(peer) == member.name:
            del self._by_peer[peer]
        self._counts[peer] -= 1
        if not self._counts[peer]:
            del self._counts[peer]

    def forgive(self, seconds: float, now: float, names: Iterable[str] | None = None) -> None:
        """Discount time in which the dispatcher itself did not listen. ``names``: the
        members concerned; None for all.
        """
        for member in [self.members[name] for name in (self.members if names is None else names)]:
            member.heard = min(now, member.heard + seconds)
            member.noticed = min(now, member.noticed + seconds)
            if member.unreachable is not None:
                member.unreachable = member.unreachable + seconds
        for member in sorted(self.members.values(), key=lambda one: one.heard):
            self.members.move_to_end(member.name)


class Questions:
    """Asks clients whether they are alive, and records their answers.

    Args:
        out: sends the questions.
        clients: the living clients.
    """

    def __init__(self, out: Outbox, clients: Roster) -> None:
        self.out = out
        self.clients = clients
        self._count = 0
        self._open: dict[str, tuple[m.Question, float]] = {}

    def pose(self) -> int:
        """Return the number of a new question."""
        self._count += 1
        return self._count

    def ask(self, client: str, count: int, now: float, retells: bool = False) -> None:
        """Send a question to a client, also by way of workers.

        Args:
            client: the client.
            count: number of the question.
            now: the time.
            retells: as in ``Probe``.
        """
        member = self.clients.members.get(client)
        if member is not None:
            member.asked = now
            question = m.Question(self.out.mark, count)
            self._open.pop(client, None)
            self._open[client] = question, now
            self.out.send(member.peer, m.Probe(question, retells))

    def ask_some(
        self, clients: Iterable[str], most: int, count: int, now: float, since: float
    ) -> None:
        """Send a question to a few of some clients: those that were not asked ``since``
        come first, and of these the ones heard last.
        """

        def turn(client: str) -> tuple[float, float, str]:
            member = self.clients.members[client]
            return member.asked if member.asked >= since else -math.inf, -member.heard, client

        known = filter(self.clients.members.__contains__, clients)
        for client in nsmallest(most, known, key=turn):
            self.ask(client, count, now)

    def hear(self, client: str, answer: m.Question | None, done: bool) -> bool:
        """Record the question that a client has repeated. Return True if it is the
        newest that the client has answered when it was not done.

        Args:
            client: the client.
            answer: the newest question that it has heard.
            done: True if it was done when it answered.
        """
        member = self.clients.members.get(client)
        if member is None or answer is None or answer.mark != self.out.mark:
            return False
        if answer.count > self._count:
            return False  # from a peer that does not follow the protocol
        is_news = not done and answer.count > member.answered_reading
        member.answered = max(member.answered, answer.count)
        if is_news:
            member.answered_reading = answer.count
        if client in self._open and self._open[client][0].count <= answer.count:
            del self._open[client]
        return is_news

    def has_answered(self, client: str, count: int) -> bool:
        """Return True if a client was alive after a question was posed."""
        member = self.clients.members.get(client)
        return member is not None and member.answered >= count

    def newest_of_reader(self, client: str) -> int:
        """Return the newest question that a client has answered when it was not done; 0
        if there is none.
        """
        member = self.clients.members.get(client)
        return 0 if member is None else member.answered_reading

    def unanswered(self, now: float) -> dict[str, m.Question]:
        """Return the questions that workers pass on, because no answer has come yet."""
        while self._open and now - next(iter(self._open.values()))[1] >= OPEN:
            del self._open[next(iter(self._open))]
        newest = islice(reversed(self._open.items()), PASSED_ON)
        return {client: question for client, (question, _) in newest}


class Beats:
    """Assigns the times of the workers' next heartbeats in order. With few workers it
    assigns no pause: each heartbeat takes time, and thousands of workers would leave
    the dispatcher none for other work.

    Args:
        share: seconds between two of these times.
        most: maximum number of seconds between two heartbeats of a worker. With more
            workers than times in that period, times are assigned twice.

    Example:
        >>> beats = Beats(share=0.1, most=5.0)
        >>> [beats.next(now=10.0) for _ in range(4)], beats.next(now=20.0)
        ([0.0, 0.1, 0.2, 0.3], 0.0)
    """

    def __init__(self, share: float, most: float) -> None:
        self._share = share
        self._most = most
        self._given = 0.0

    def next(self, now: float) -> float:
        """Return the seconds after which the worker that sends a heartbeat now should
        send the next; 0 if it may choose.

        Times are assigned in the order of heartbeats. Thousands of workers that start
        at once therefore do not send heartbeats at once for ever.
        """
        self._given = max(self._given + self._share, now)
        if self._given > now + self._most:
            # With so many workers, some would be silent for too long: the rest of a
            # period is assigned a second time.
            self._given = min(self._given - self._most / 4, now + self._most)
        pause = round(self._given - now, 3)
        return pause if pause >= NEGLIGIBLE else 0.0
