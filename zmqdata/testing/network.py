"""A network in memory that behaves badly on purpose: it delays, drops, repeats,
reorders and is severed, by seed.

It carries control messages between named nodes, and blocks over links of one worker to
one client. What the messages mean is none of its affair; who sends and receives them is
``zmqdata.testing.world``'s.
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
    """How badly the network behaves. Probabilities are per message, seconds are
    simulated.

    ``drop``, ``repeat`` and ``reorder`` concern control messages; ``break_link`` is the
    probability that sending a block breaks its link. ``delay`` is the shortest and the
    longest time on the way; ``notice`` how long a broken connection goes unnoticed.
    ``hold``: the share of messages that a severed connection keeps for later instead of
    losing them.
    """

    delay: tuple[float, float] = (0.0005, 0.005)
    drop: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    break_link: float = 0.0
    bind_error: float = 0.0
    notice: tuple[float, float] = (0.05, 2.5)
    hold: float = 0.3


CALM = Faults()


@dataclass
class Line:
    """The data link of one worker to one client. What is sent before the client has
    connected waits for it.
    """

    name: str
    worker: str
    deliver: Callable[[Any], None] | None = None
    broken: Callable[[str], None] | None = None
    waiting: list[Any] = field(default_factory=list)
    client: str = ""
    dead: bool = False
    arrival: float = 0.0


class SimulatedNetwork:
    """Joins nodes by name.

    Args:
        clock: the time on which messages travel.
        seed: decides every misfortune.
        faults: how badly it behaves; may be replaced at any time.

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
        self.faults = faults
        self.random = random.Random(seed)
        self.lines: dict[str, Line] = {}
        self._receivers: dict[Hashable, Receiver] = {}
        self._arrivals: dict[Pair, float] = {}
        self._severed: dict[Pair, float] = {}
        self._held: dict[Pair, list[Any]] = {}

    # --- nodes

    def join(self, name: Hashable, receive: Receiver) -> None:
        """Adds a node, or gives the name to a fresh one; ``receive(sender, message)``
        gets its messages.
        """
        self._receivers[name] = receive

    def leave(self, name: Hashable) -> None:
        """Removes a node with all its links; what is on the way to it is lost."""
        self._receivers.pop(name, None)
        for line in [line for line in self.lines.values() if name in (line.worker, line.client)]:
            self.break_line(line, "the peer is gone")

    def connected(self, one: Hashable, other: Hashable) -> bool:
        """Whether a connection would be noticed to exist: both are there, and nothing
        is severed for long.
        """
        if one not in self._receivers or other not in self._receivers:
            return False
        patience = self.faults.notice[1]
        since_when = (self._severed.get(pair) for pair in ((one, other), (other, one)))
        return all(since is None or self.clock.now - since < patience for since in since_when)

    # --- control messages

    def send(self, sender: Hashable, receiver: Hashable, message: Any) -> None:
        """Sends a message, which arrives once, twice, late or never."""
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
        """Lets nothing through from ``one`` to ``other``, nor back unless told
        otherwise.
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

    def heal(self, one: Hashable, other: Hashable) -> None:
        """Lets everything through again; some of what was sent in between arrives
        now.
        """
        for pair in ((one, other), (other, one)):
            self._severed.pop(pair, None)
            for message in self._held.pop(pair, ()):
                self._carry(*pair, message, out_of_order=False)

    def _is_severed(self, line: Line) -> bool:
        return (line.worker, line.client) in self._severed or (
            line.client,
            line.worker,
        ) in self._severed

    # --- links

    def bind(self, name: str, worker: str) -> None:
        """Makes the worker's end of a link."""
        self.lines[name] = Line(name, worker)

    def unbind(self, name: str) -> None:
        """Takes away the worker's end; what has not arrived is lost."""
        line = self.lines.get(name)
        if line is not None:
            self.break_line(line, "the worker has closed it")

    def connect(
        self, name: str, client: str, deliver: Callable[[Any], None], broken: Callable[[str], None]
    ) -> None:
        """Makes the client's end: ``deliver`` gets what arrives, ``broken`` the reason
        once it ends.
        """
        line = self.lines.get(name)
        if line is None or line.dead or line.client:
            self.clock.after(self.random.uniform(0.0, 1.0), lambda: broken("nobody is there"))
            return
        line.client, line.deliver, line.broken = client, deliver, broken
        waiting, line.waiting = line.waiting, []
        for message in waiting:
            self.push(name, message)

    def disconnect(self, name: str) -> None:
        """Takes away the client's end without a word to it."""
        line = self.lines.pop(name, None)
        if line is not None:
            line.dead, line.broken = True, None

    def push(self, name: str, message: Any) -> None:
        """Sends on a link: in order, once, until the link breaks; from then on into
        nothing.
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

    def break_line(self, line: Line, reason: str) -> None:
        """Loses what is on its way; the client learns of it some time later."""
        line.dead = True
        self.lines.pop(line.name, None)
        broken, line.broken = line.broken, None
        if broken is not None:
            self.clock.after(self.random.uniform(*self.faults.notice), lambda: broken(reason))
