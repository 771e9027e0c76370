"""The nodes of a simulated world, each a core with its place in the network, and the
node of the dispatcher.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from zmqdata import messages as m
from zmqdata.core.client import events as client_events
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.worker import events as worker_events
from zmqdata.dispatcher.gate import Gate
from zmqdata.testing.clock import Clock
from zmqdata.testing.disk import SimulatedDisk
from zmqdata.testing.network import SimulatedNetwork

AnyEvent = e.DispatcherEvent | worker_events.WorkerEvent | client_events.ClientEvent
AnyCommand = e.DispatcherCommand | worker_events.WorkerCommand | client_events.ClientCommand

LONG = 30_000
"""Bytes at which a simulated journal is replaced by a snapshot."""


class WorldObserver:
    """Receives what the nodes of a simulated world do, and ignores it. A subclass may
    check it.
    """

    def check(
        self, name: str, core: object, event: AnyEvent, commands: Sequence[AnyCommand]
    ) -> None:
        """Receive what the core of a node returned for an event."""

    def decided(self, commands: Sequence[AnyCommand]) -> None:
        """Receive what a dispatcher returned, before its journal contains it."""

    def recovered(self, core: DispatcherCore, is_set_back: bool) -> None:
        """Receive the core of a dispatcher that has read its journal.

        Args:
            core: the core.
            is_set_back: True if the disk has lost synced content.
        """

    def compacted(self, core: DispatcherCore) -> None:
        """Receive the core of a dispatcher that replaces its journal by a snapshot."""

    def forget(self) -> None:
        """Receive the death of a dispatcher without a journal."""


class Surroundings(Protocol):
    """The parts of a world that a node uses."""

    seed: int
    """Seed of the world."""
    clock: Clock
    """Clock of the world."""
    network: SimulatedNetwork
    """Network of the world."""
    observer: WorldObserver
    """WorldObserver of all nodes."""
    disk: SimulatedDisk | None
    """Disk of the dispatcher's journal, or None."""


class SimulatedNode:
    """A core with its place in the network.

    Args:
        world: the world that it belongs to.
        name: its name in the network, by which peers reach it.
        core: decides for it.

    Attributes:
        awake_since: when it was started, or resumed after it was frozen.
        asleep_since: when it was last frozen.
    """

    def __init__(self, world: Surroundings, name: str, core: Any) -> None:
        self.world = world
        self.name = name
        self.core = core
        self.alive = True
        self.rate = 1.0
        self.missed: list[AnyEvent] | None = None
        self.awake_since = self.asleep_since = world.clock.now
        self.random = random.Random(f"{world.seed}/{name}")
        self._period = self.random.uniform(0.2, 0.4)
        world.network.join(name, self.receive)
        world.clock.after(self.random.uniform(0.0, 0.1), self._tick)

    def _tick(self) -> None:
        if self.alive:
            if self.missed is None:
                self.feed(e.Tick())
            self.world.clock.after(self._period, self._tick)

    def receive(self, sender: Hashable, message: Any) -> None:
        """Take a control message from the network."""
        self.feed(e.Received(sender, message))

    def feed(self, event: AnyEvent) -> None:
        """Let the core decide, check the laws, and carry out the commands."""
        if self.missed is not None:
            self.missed.append(event)
        elif self.alive:
            self.obey(event, self.core.handle(self.now, event))

    @property
    def now(self) -> float:
        """Time by its own clock, which may run at another ``rate`` than the world's."""
        return self.world.clock.now * self.rate

    def freeze(self, seconds: float) -> None:
        """Do nothing for a while, as after SIGSTOP. Events that arrive meanwhile
        wait.
        """
        if self.missed is None:
            self.missed, self.asleep_since = [], self.world.clock.now
            self.world.clock.after(seconds, self._thaw)

    def _thaw(self) -> None:
        missed, self.missed = self.missed or [], None
        self.awake_since = self.world.clock.now
        self.awake()
        for event in missed:
            self.feed(event)

    def obey(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        """Carry out the commands that the core returned for an event."""
        self.world.observer.check(self.name, self.core, event, commands)
        for command in commands:
            self.carry_out(command)

    def awake(self) -> None:
        """Resume after being frozen, before the missed events are fed."""

    def soon(self, event: AnyEvent) -> None:
        """Feed an event after the present one is handled."""
        self.world.clock.after(0.0, lambda: self.feed(event))

    def carry_out(self, command: Any) -> None:
        """Carry out a command of the core."""
        if isinstance(command, e.Send):
            self.world.network.send(self.name, command.peer, command.message)

    def die(self) -> None:
        """End at once and lose everything."""
        self.alive = False
        self.world.network.leave(self.name)


class SimulatedDispatcher(SimulatedNode):
    """The dispatcher. Its routing reports peers that are not connected, and with a disk
    it keeps a journal.
    """

    core: DispatcherCore

    def __init__(self, world: Surroundings, name: str, core: DispatcherCore) -> None:
        super().__init__(world, name, core)
        self.gate = Gate()
        if world.disk is not None:
            self._take_up()

    def _take_up(self) -> None:
        disk, observer = self.world.disk, self.world.observer
        assert disk is not None
        disk.read(self.core.state.apply)
        commands = self.core.resume(self.world.clock.now)
        observer.check(self.name, self.core, e.Tick(), commands)
        observer.recovered(self.core, disk.is_set_back)
        disk.is_set_back = False
        disk.begin(snapshot(self.core.state))

    def obey(self, event: AnyEvent, commands: Sequence[Any]) -> None:
        self.world.observer.decided(commands)
        disk = self.world.disk
        if disk is None:
            super().obey(event, commands)
            return
        now, updates = self.gate.admit(commands)
        super().obey(event, now)
        if updates:
            disk.write(self.gate.turn, updates, self._written)

    def _written(self, turn: int) -> None:
        super().obey(e.Tick(), self.gate.written(turn))
        disk = self.world.disk
        if disk is not None and disk.idle and self.gate.is_open and len(disk.content) > LONG:
            self.world.observer.compacted(self.core)
            disk.begin(snapshot(self.core.state))

    def carry_out(self, command: Any) -> None:
        if isinstance(command, e.Send) and not self.world.network.connected(
            self.name, command.peer
        ):
            self.soon(e.Unreachable(command.peer))
        elif isinstance(command, e.SendPipeline):
            message = m.PipelineSent(command.dataset_id, command.digest, b"pipeline")
            self.world.network.send(self.name, command.peer, message)
        else:
            super().carry_out(command)

    def close(self) -> None:
        """End in order, and for good."""
        for command in self.core.close():
            self.carry_out(command)
        self.die()

    def die(self) -> None:
        """Lose everything except the content of the disk. No peer has seen the effect
        of its last writes.
        """
        super().die()
        if self.world.disk is None:
            return
        survived = self.gate.last_written + self.world.disk.crash()
        facts = [
            command for command in self.gate.written(survived) if isinstance(command, e.Commit)
        ]
        self.world.observer.check(self.name, self.core, e.Tick(), list(facts))
