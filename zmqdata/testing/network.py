"""A network in memory with faults: by seed, it delays, drops, repeats and reorders
messages, and severs connections.

It carries control messages between named nodes, and blocks over the links of workers to
clients. It does not know what messages mean.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from zmqdata.testing.clock import Clock

Receiver = Callable[[Hashable, Any], None]
Pair = tuple[Hashable, Hashable]


@dataclass(frozen=True)
class Faults:
    """Degree of misbehaviour of the network. Probabilities are per message, and seconds
    are simulated.
    """

    delay: tuple[float, float] = (0.0005, 0.005)
    """Shortest and longest time in flight, in seconds."""
    drop: float = 0.0
    """Probability that a control message is lost."""
    repeat: float = 0.0
    """Probability that a control message arrives twice."""
    reorder: float = 0.0
    """Probability that a control message is overtaken by later ones."""
    break_link: float = 0.0
    """Probability that sending a block breaks its link."""
    bind_error: float = 0.0
    """Probability that a worker cannot bind a link."""
    notice: tuple[float, float] = (0.05, 2.5)
    """Shortest and longest time for which a broken connection goes unnoticed, in
    seconds.
    """
    hold: float = 0.3
    """Share of the messages that a severed connection keeps for later instead of losing
    them.
    """

    @property
    def is_lossy(self) -> bool:
        """True if messages are lost, or overtaken by later ones, by chance."""
        return bool(self.drop or self.reorder)


CALM = Faults()
"""A network that only delays messages."""


@dataclass
class Line:
    """The data link of a worker to a client. Messages sent before the client has
    connected wait for it.
    """

    name: str
    """Name of the link."""
    worker: str
    """Name of the worker."""
    deliver: Callable[[Any], None] | None = None
    """Receives what arrives, or None before the client has connected."""
    broken: Callable[[str], None] | None = None
    """Receives the reason once the link is broken."""
    waiting: list[Any] = field(default_factory=list)
    """Messages sent before the client has connected."""
    client: str = ""
    """Name of the client, or empty before it has connected."""
    dead: bool = False
    """True once the link is broken."""
    arrival: float = 0.0
    """Time at which the last message arrives."""


class SimulatedNetwork:
    """A network that connects nodes by name.

    Args:
        clock: the clock by which messages travel.
        seed: decides every fault.
        faults: how badly it behaves. May be replaced at any time.

    Attributes:
        aliases: names of the nodes that have other addresses, by address.
        was_lossy: True if the network has ever been lossy.

    Example:
        >>> clock = Clock()
        >>> network = SimulatedNetwork(clock, seed=1)
        >>> network.join("b", lambda sender, message: print(sender, "says", message))
        >>> network.send("a", "b", "hello")
        >>> clock.advance(1.0)
        a says hello
    """

    def __init__(self, clock: Clock, seed: int, faults: Faults = CALM) -> None:
        self.clock = clock
        self.was_lossy = False
        self.faults = faults
        self.random = random.Random(seed)
        self.lines: dict[str, Line] = {}
        self.aliases: dict[Hashable, Hashable] = {}
        self._receivers: dict[Hashable, Receiver] = {}
        self._arrivals: dict[Pair, float] = {}
        self._severed: dict[Pair, float] = {}
        self._healed: dict[Pair, float] = {}
        self._held: dict[Pair, list[Any]] = {}

    @property
    def faults(self) -> Faults:
        """Faults of the network. Others may be set at any time."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults
        self._changed = self.clock.now
        self.was_lossy |= faults.is_lossy

    def is_steady(self, since: float) -> bool:
        """Return True if the faults are the same since a time, and lose nothing by
        chance.
        """
        return not self.faults.is_lossy and self._changed <= max(0.0, since)

    # --- nodes

    def join(self, name: Hashable, receive: Receiver) -> None:
        """Add a node, or give its name to a fresh node. ``receive(sender, message)``
        gets its messages.
        """
        self._receivers[name] = receive

    def leave(self, name: Hashable) -> None:
        """Remove a node with all its links. Messages in flight to it are lost."""
        self._receivers.pop(name, None)
        for line in [line for line in self.lines.values() if name in (line.worker, line.client)]:
            self.break_line(line, "the peer is gone")

    def connected(self, one: Hashable, other: Hashable) -> bool:
        """True if the nodes would see a connection: both are present, and neither way
        has been severed for long.
        """
        if one not in self._receivers or other not in self._receivers:
            return False
        patience = self.faults.notice[1]
        since_when = (self._severed.get(pair) for pair in ((one, other), (other, one)))
        return all(since is None or self.clock.now - since < patience for since in since_when)

    # --- control messages

    def send(self, sender: Hashable, receiver: Hashable, message: Any) -> None:
        """Send a message, which arrives once, twice, late or never."""
        receiver = self.aliases.get(receiver, receiver)
        if (sender, receiver) in self._severed:
            if self.random.random() < self.faults.hold:
                self._held.setdefault((sender, receiver), []).append(message)
            return
        faults, draw = self.faults, self.random.random
        if draw() < faults.drop:
            return
        for _ in range(2 if draw() < faults.repeat else 1):
            self._carry(sender, receiver, message, out_of_order=draw() < faults.reorder)

    def _carry(
        self, sender: Hashable, receiver: Hashable, message: Any, out_of_order: bool
    ) -> None:
        low, high = self.faults.delay
        arrival = self.clock.now + self.random.uniform(low, high)
        if out_of_order:
            arrival += self.random.uniform(0.0, 40 * high)
        else:
            arrival = max(arrival, self._arrivals.get((sender, receiver), 0.0))
            self._arrivals[sender, receiver] = arrival
        self.clock.after(arrival - self.clock.now, lambda: self._arrive(sender, receiver, message))

    def _arrive(self, sender: Hashable, receiver: Hashable, message: Any) -> None:
        receive = self._receivers.get(receiver)
        if receive is not None:
            receive(sender, message)

    # --- severed connections

    def sever(self, one: Hashable, other: Hashable, both_ways: bool = True) -> None:
        """Block all messages from ``one`` to ``other``, and back unless ``both_ways``
        is False.
        """
        for pair in ((one, other), (other, one)) if both_ways else ((one, other),):
            self._severed.setdefault(pair, self.clock.now)
        self.clock.after(
            self.random.uniform(*self.faults.notice), lambda: self._break_severed_lines(one, other)
        )

    def _break_severed_lines(self, one: Hashable, other: Hashable) -> None:
        for line in list(self.lines.values()):
            if {line.worker, line.client} == {one, other} and self._is_severed(line):
                self.break_line(line, "the connection was severed")

    def was_severed(self, name: Hashable, since: float, other: Hashable = None) -> bool:
        """Return True if a node was cut off from another, or from any if none is named,
        at any time since then.
        """
        healed = [pair for pair, when in self._healed.items() if when >= since]
        wanted = {name} if other is None else {name, other}
        return any(wanted.issubset(pair) for pair in [*self._severed, *healed])

    def heal(self, one: Hashable, other: Hashable) -> None:
        """Let all messages through again. Some of those sent meanwhile arrive now."""
        for pair in ((one, other), (other, one)):
            if self._severed.pop(pair, None) is not None:
                self._healed[pair] = self.clock.now
            for message in self._held.pop(pair, ()):
                self._carry(*pair, message, out_of_order=False)

    def _is_severed(self, line: Line) -> bool:
        return (line.worker, line.client) in self._severed or (
            line.client,
            line.worker,
        ) in self._severed

    # --- links

    def bind(self, name: str, worker: str) -> None:
        """Make the worker's end of a link."""
        self.lines[name] = Line(name, worker)

    def unbind(self, name: str) -> None:
        """Remove the worker's end of a link. Messages in flight are lost."""
        line = self.lines.get(name)
        if line is not None:
            self.break_line(line, "the worker has closed it")

    def connect(
        self, name: str, client: str, deliver: Callable[[Any], None], broken: Callable[[str], None]
    ) -> None:
        """Make the client's end of a link.

        ``deliver`` gets what arrives, and ``broken`` gets the reason once the link
        ends.
        """
        line = self.lines.get(name)
        if line is None or line.dead or line.client:
            self.clock.after(
                self.random.uniform(0.0, 1.0), lambda: broken("no worker is bound there")
            )
            return
        line.client, line.deliver, line.broken = client, deliver, broken
        waiting, line.waiting = line.waiting, []
        for message in waiting:
            self.push(name, message)

    def disconnect(self, name: str) -> None:
        """Remove the client's end of a link without notifying the client."""
        line = self.lines.pop(name, None)
        if line is not None:
            line.dead, line.broken = True, None

    def push(self, name: str, message: Any) -> None:
        """Send on a link: in order and once until the link breaks. Later messages are
        lost.
        """
        line = self.lines.get(name)
        if line is None or line.dead:
            return
        if line.deliver is None:
            line.waiting.append(message)
        elif self._is_severed(line):
            self.break_line(line, "the connection was severed")
        elif self.random.random() < self.faults.break_link:
            self.break_line(line, "the connection was reset")
        else:
            line.arrival = max(
                line.arrival, self.clock.now + self.random.uniform(*self.faults.delay)
            )
            self.clock.after(line.arrival - self.clock.now, lambda: self._deliver(line, message))

    def _deliver(self, line: Line, message: Any) -> None:
        if not line.dead and line.deliver is not None:
            line.deliver(message)

    def cut_links(self, client: str) -> None:
        """Break all links to a client. It opens new ones."""
        for line in [line for line in self.lines.values() if line.client == client]:
            self.break_line(line, "the connection was cut")

    def break_line(self, line: Line, reason: str) -> None:
        """Break a link. Messages in flight are lost, and the client learns of it
        later.
        """
        line.dead = True
        self.lines.pop(line.name, None)
        broken, line.broken = line.broken, None
        if broken is not None:
            self.clock.after(self.random.uniform(*self.faults.notice), lambda: broken(reason))
