"""Who is alive: when each peer was last heard, since when it has no connection, and who
has thereby died.

A connection that is up proves that process and host live, even while user code keeps
the peer from speaking; a lost connection proves nothing for a moment (it may be made
anew), then it counts as death.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import takewhile

from zmqdata.core.dispatcher.events import Peer


@dataclass
class Member:
    """A peer by the name it gave itself. ``unreachable``: since when there is no
    connection, None while there is.

    ``noticed``: when somebody else has last heard it; ``asked``: when it was last asked
    for a sign. ``peer`` is None while it was only heard of. ``heard`` leaves out time
    in which we did not listen; ``spoke``, and ``seen`` by somebody else: when it truly
    was.
    """

    name: str
    peer: Peer | None
    heard: float
    noticed: float
    unreachable: float | None = None
    asked: float = 0.0
    spoke: float = -math.inf
    seen: float = -math.inf

    @property
    def sign(self) -> float:
        """When it last gave a sign of life, to us or to others."""
        return max(self.heard, self.noticed)


class Hearing:
    """Whether anybody is heard: who hears nobody at all is cut off itself, and cannot
    tell who is alive.

    Args:
        patience: seconds in which somebody has spoken if anybody is there.

    Example:
        >>> hearing = Hearing(patience=5.0)
        >>> [hearing.heard(now) for now in (0.0, 4.0, 20.0, 21.0)]
        [0.0, 0.0, 16.0, 0.0]
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.last: float | None = None

    def heard(self, now: float) -> float:
        """Somebody speaks. Returns for how many seconds before nobody did, if for too
        many.
        """
        quiet = now - self.last if self.last is not None and self.is_deaf(now) else 0.0
        self.last = now
        return quiet

    def is_deaf(self, now: float) -> bool:
        """Whether nobody has spoken for too long."""
        return self.last is not None and now - self.last >= self.patience


class Roster:
    """The peers of one kind that count as alive.

    Attributes:
        members: in the order of their last words, so that those who are silent are
            found without a look at the others.
        num_present: how many of them have spoken to us.
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

    def heard(self, name: str, peer: Peer, now: float) -> None:
        """Notes that ``name`` spoke through ``peer``, and adds it if it is new."""
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
        """Counts on a peer that somebody else knew: without a word of it, its
        connection is lost in ``patience``.
        """
        self.members[name] = Member(name, None, now, now, now + patience)
        self._unreachable[name] = None

    def notice(self, heard: Mapping[str, float]) -> None:
        """Notes when somebody else has heard these, which may be out of our own
        reach.
        """
        members = self.members
        for name, when in heard.items():
            member = members.get(name)
            if member is not None:
                member.noticed, member.seen = max(member.noticed, when), max(member.seen, when)

    def lost_contact(self, peer: Peer, now: float) -> None:
        """Notes that nothing can be sent to ``peer`` at present."""
        name = self._by_peer.get(peer)
        if name is not None and self.members[name].unreachable is None:
            self.members[name].unreachable = now
            self._unreachable[name] = None

    def peer(self, name: str) -> Peer | None:
        """Where to send to ``name``; None when it is not alive."""
        member = self.members.get(name)
        return None if member is None else member.peer

    def silent(self, now: float, seconds: float) -> list[Member]:
        """Those not heard for at least this long, the most silent one first."""
        return list(takewhile(lambda member: now - member.heard >= seconds, self.members.values()))

    def doubtful(self, now: float, seconds: float, most: int) -> list[Member]:
        """Those of them to ask for a sign now, at most so many: who has given none, and
        was not asked, for longest.
        """
        found = nsmallest(
            most, self.silent(now, seconds), key=lambda member: max(member.heard, member.asked)
        )
        for member in found:
            member.asked = now
        return found

    def disconnected(self, now: float, seconds: float) -> list[Member]:
        """Those without a connection for at least this long."""
        lost = [self.members[name] for name in self._unreachable]
        return [
            one for one in lost if one.unreachable is not None and now - one.unreachable >= seconds
        ]

    def remove(self, name: str) -> None:
        """Forgets a peer."""
        member = self.members.pop(name, None)
        if member is not None:
            self._leave(member)
            self._unreachable.pop(name, None)
            self.num_present -= member.peer is not None

    def num_of(self, peer: Peer) -> int:
        """How many speak through ``peer``."""
        return self._counts[peer]

    def _leave(self, member: Member) -> None:
        """It does not speak through its peer any more."""
        peer = member.peer
        if peer is None:
            return
        if self._by_peer.get(peer) == member.name:
            del self._by_peer[peer]
        self._counts[peer] -= 1
        if not self._counts[peer]:
            del self._counts[peer]

    def forgive(self, seconds: float, now: float, names: Iterable[str] | None = None) -> None:
        """Discounts time in which we ourselves did not listen: silence then was ours.
        ``names``: whose; None: all.
        """
        for member in [self.members[name] for name in (self.members if names is None else names)]:
            member.heard = min(now, member.heard + seconds)
            member.noticed = min(now, member.noticed + seconds)
            if member.unreachable is not None:
                member.unreachable = member.unreachable + seconds
        for member in sorted(self.members.values(), key=lambda one: one.heard):
            self.members.move_to_end(member.name)
