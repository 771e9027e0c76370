"""The nodes of a simulated world, each a core with its place in the network, and the
node of the dispatcher.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Protocol

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.worker_addresses import WorkerAddresses
from zmqdata.dispatcher.gate import Gate
from zmqdata.testing.checks import AnyCommand, AnyEvent, Laws, splits_of
from zmqdata.testing.clock import Clock
from zmqdata.testing.disk import SimulatedDisk
from zmqdata.testing.network import SimulatedNetwork

LONG = 30_000
"""Bytes at which a simulated journal is replaced by a snapshot."""


class Surroundings(Protocol):
    """The parts of a world that a node uses."""

    seed: int
    """Seed of the world."""
    clock: Clock
    """Clock of the world."""
    network: SimulatedNetwork
    """Network of the world."""
    laws: Laws
    """Laws that are checked."""
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
        self.world.laws.check(self.name, self.core, event, commands)
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


class FirstAddresses(WorkerAddresses):
    """Configured addresses that the first workers take in the order in which they join,
    whatever their own address.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._indices: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    def place(self, address: str) -> int | None:
        """Return the next free place, or None if all are taken."""
        if address not in self._indices and len(self._indices) < self._count:
            self._indices[address] = len(self._indices)
        return self._indices.get(address)

    def restore(self, held: Mapping[int, str], present: Collection[str]) -> None:
        """Restore the places as they were held."""
        self._indices = {address: index for index, address in held.items()}

    def index(self, address: str) -> int | None:
        """Return the place of the worker at an address, or None."""
        return self._indices.get(address)


class SimulatedDispatcher(SimulatedNode):
    """The dispatcher. Its routing reports peers that are not connected, and with a disk
    it keeps a journal.

    Attributes:
        found: when it last found an element to be fatal.
    """

    core: DispatcherCore

    def __init__(self, world: Surroundings, name: str, core: DispatcherCore) -> None:
        super().__init__(world, name, core)
        self.found = 0.0
        self.gate = Gate()
        if world.disk is not None:
            self._take_up()

    def _take_up(self) -> None:
        disk, laws = self.world.disk, self.world.laws
        assert disk is not None
        disk.read(self.core.state.apply)
        commands = self.core.resume(self.world.clock.now)
        laws.check(self.name, self.core, e.Tick(), commands)
        if disk.is_set_back:
            disk.is_set_back = False
            self._set_back(laws)
        self._check_equal(laws.state, "what was announced and what was committed")
        disk.begin(snapshot(self.core.state))
        self._check_equal(self._copy(), "a state and its snapshot")

    def _copy(self) -> DispatcherState:
        copy = DispatcherState()
        for update in snapshot(self.core.state):
            copy.apply(update)
        return copy

    def _set_back(self, laws: Laws) -> None:
        """Let the laws know what a journal knows that has lost its last records.

        What only clients had reported that are gone, or unknown to it, is owed again.
        """
        state = laws.state = self._copy()
        laws.leased = {
            key: task.task
            for task in state.tasks.values()
            for source, ledger in enumerate(task.ledger)
            for split in ledger.entries
            for key in splits_of(task.iteration, source, split)
        }
        laws.gone -= state.client_iteration.keys()
        laws.excused |= laws.gone
        laws.owned = {}
        for (task, number), owner in list(laws.owners.items()):
            if owner not in state.client_iteration and not _is_known(state, task, number):
                del laws.owners[task, number]
                laws.lost.add((task, number))
            else:
                laws.owned.setdefault(owner, set()).add((task, number))
        laws.is_set_back = True

    def _check_equal(self, state: DispatcherState, what: str) -> None:
        ours, theirs = vars(self.core.state), vars(state)
        for field, value in ours.items():
            if value != theirs[field]:
                self.world.laws.fail(f"{what} differ in {field}: {value} and {theirs[field]}")

    def _check_blamed(self, update: u.Update) -> None:
        if isinstance(update, u.PoisonUpdate):
            self.found = self.world.clock.now
        if isinstance(update, u.CountDeathUpdate) and update.proof:
            place = update.crumbs[0].place
            if place not in self.world.laws.pipeline.poison():
                self.world.laws.fail(f"{place} does not kill, and is blamed", update.task)

    def obey(self, event: AnyEvent, commands: Sequence[Any]) -> None:
        for command in commands:
            if isinstance(command, e.Commit):
                self._check_blamed(command.update)
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
            self._check_equal(self._copy(), "a state and its snapshot")
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
        self.world.laws.check(self.name, self.core, e.Tick(), list(facts))


def _is_known(state: DispatcherState, task: int, number: int) -> bool:
    return task in state.tasks and number in state.tasks[task].delivered
