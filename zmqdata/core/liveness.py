"""Who is alive: when each peer was last heard, since when it has no connection, and who has thereby died.

A connection that is up proves that process and host live, even while user code keeps the peer from speaking; a lost
connection proves nothing for a moment (it may be made anew), then it counts as death.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zmqdata.commands import Peer


@dataclass
class Member:
    """A peer by the name it gave itself. ``unreachable``: since when there is no connection, None while there is.

    ``noticed``: when somebody else has last heard it. ``peer`` is None while it was only heard of.
    """

    name: str
    peer: Peer | None
    heard: float
    noticed: float
    unreachable: float | None = None

    @property
    def sign(self) -> float:
        """When it last gave a sign of life, to us or to others."""
        return max(self.heard, self.noticed)


class Hearing:
    """Whether anybody is heard: who hears nobody at all is cut off itself, and cannot tell who is alive.

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
        """Somebody speaks. Returns for how many seconds before nobody did, if for too many."""
        quiet = 0.0 if self.last is None else now - self.last
        self.last = now
        return quiet if quiet >= self.patience else 0.0


class Roster:
    """The peers of one kind that count as alive."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._by_peer: dict[Peer, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def __len__(self) -> int:
        return len(self.members)

    @property
    def num_present(self) -> int:
        """How many have spoken to us."""
        return sum(member.peer is not None for member in list(self.members.values()))

    def heard(self, name: str, peer: Peer, now: float) -> None:
        """Notes that ``name`` spoke through ``peer``, and adds it if it is new."""
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(name, peer, now, now)
        elif member.peer != peer:
            self._by_peer.pop(member.peer, None)
        member.peer, member.heard, member.unreachable = peer, now, None
        self._by_peer[peer] = name

    def expect(self, name: str, now: float, patience: float) -> None:
        """Counts on a peer that somebody else knew: without a word of it, its connection is lost in ``patience``."""
        self.members[name] = Member(name, None, now, now, now + patience)

    def notice(self, name: str, now: float) -> None:
        """Notes that somebody else hears ``name``, which may be out of our own reach."""
        member = self.members.get(name)
        if member is not None:
            member.noticed = now

    def lost_contact(self, peer: Peer, now: float) -> None:
        """Notes that nothing can be sent to ``peer`` at present."""
        name = self._by_peer.get(peer)
        if name is not None and self.members[name].unreachable is None:
            self.members[name].unreachable = now

    def peer(self, name: str) -> Peer | None:
        """Where to send to ``name``; None when it is not alive."""
        member = self.members.get(name)
        return None if member is None else member.peer

    def silent(self, now: float, seconds: float) -> list[Member]:
        """Those not heard for at least this long."""
        return [member for member in self.members.values() if now - member.heard >= seconds]

    def disconnected(self, now: float, seconds: float) -> list[Member]:
        """Those without a connection for at least this long."""
        return [m for m in self.members.values() if m.unreachable is not None and now - m.unreachable >= seconds]

    def remove(self, name: str) -> None:
        """Forgets a peer."""
        member = self.members.pop(name, None)
        if member is not None:
            self._by_peer.pop(member.peer, None)

    def forgive(self, seconds: float, names: Iterable[str] | None = None) -> None:
        """Discounts time in which we ourselves did not listen: silence then was ours. ``names``: whose; None: all."""
        for member in [self.members[name] for name in (self.members if names is None else names)]:
            member.heard += seconds
            member.noticed += seconds
            if member.unreachable is not None:
                member.unreachable += seconds
