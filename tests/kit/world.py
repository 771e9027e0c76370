"""A whole cluster in a single thread, by seed: the real cores as nodes of a simulated
network, on a simulated clock.

Here are the simulated workers and training loops, and the world that connects them.
``tests.kit.scenario`` decides what goes wrong, and ``tests.kit.checks`` checks what
must hold.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from tests.kit.dispatcher import DATASET, FirstAddresses, registration
from tests.kit.recovery import JournalLaws
from tests.kit.runner import (
    Fatal,
    Name,
    RunnerEvent,
    SimulatedPipeline,
    SimulatedRunner,
    Slipped,
)
from tests.kit.standing import Had, Standings
from tests.kit.steps import StepLaws
from zmqdata import messages as m
from zmqdata.core import events
from zmqdata.core.client import events as client_events
from zmqdata.core.client.decider import ClientCore, ClientProfile
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.worker import events as worker_events
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.testing.clock import Clock
from zmqdata.testing.disk import SimulatedDisk
from zmqdata.testing.network import CALM, Faults, SimulatedNetwork
from zmqdata.testing.nodes import (
    AnyCommand,
    AnyEvent,
    SimulatedDispatcher,
    SimulatedNode,
    WorldObserver,
)

DISPATCHER = "dispatcher"
FINE = frozenset({"end", "killed", "closed early"})
"""Outcomes of readers that met no error."""
CHECKPOINTS = 0.01
"""Share of the occasions on which a training loop takes a checkpoint."""


def was_awake(node: SimulatedNode, since: float) -> bool:
    """Return True if a node lives, and was not frozen since a time."""
    return node.alive and node.missed is None and node.awake_since < since


class CarryingNode(SimulatedNode):
    """A node that has a function for each command of its core."""

    def __init__(self, world: World, name: str, core: Any) -> None:
        super().__init__(world, name, core)
        self._carriers = events.Carriers()

    def carry_out(self, command: Any) -> None:
        carrier = self._carriers.get(type(command), super().carry_out)
        carrier(command)


class SimulatedWorker(CarryingNode):
    """A worker with runners of simulated tasks.

    Attributes:
        is_fast: True if its runners produce more than any training loop takes.
    """

    core: WorkerCore
    world: World

    def __init__(
        self, world: World, name: str, buffer_bytes: int, deaths: tuple[m.Death, ...] = ()
    ) -> None:
        profile = WorkerProfile(name, name, buffer_bytes=buffer_bytes, deaths=deaths)
        super().__init__(world, name, WorkerCore(profile))
        self.runners: dict[tuple[int, int], SimulatedRunner] = {}
        self.is_fast = False
        self._leaving = False
        on = self._carriers.on
        on(worker_events.StartTask, self._start)
        on(worker_events.StopTask, self._stop)
        on(worker_events.FeedSplits, lambda x: self._runner(x).feed(x.source, x.splits))
        on(worker_events.ReturnSplits, lambda x: self.feed(self._runner(x).give_back(x.source)))
        on(worker_events.AllowProduction, lambda x: self._runner(x).allow(x.size, x.elements))
        on(worker_events.FlushTask, lambda x: self._runner(x).flush())
        on(worker_events.FallQuiet, lambda x: self._fall_quiet())
        on(worker_events.BindLink, self._bind)
        on(worker_events.UnbindLink, lambda x: world.network.unbind(x.link))
        on(worker_events.Push, lambda x: world.network.push(x.link, x))

    def _runner(self, command: Any) -> SimulatedRunner:
        return self.runners[command.task, command.attempt]

    def _start(self, command: worker_events.StartTask) -> None:
        definition, seed, world = command.definition, self.random.getrandbits(32), self.world
        runner = world.make_runner(definition, world.pipeline, world.clock, seed, self._hear)
        if self.is_fast:
            runner.pace = 0.0001
        self.runners[definition.task, definition.attempt] = runner

    def _hear(self, event: RunnerEvent) -> None:
        if isinstance(event, Fatal):
            self._succumb(event.work)
        elif isinstance(event, Slipped):
            self.world.laws.slipped(event.task, event.number, event.name)
        else:
            self.feed(event)

    def _succumb(self, work: m.Work) -> None:
        """Let the process die at an element. Its supervisor starts another process,
        which reports the death.
        """
        if not self.alive:
            return
        self.world.laws.tell(self.name, f"dies at {work}")
        in_progress = (work, *[note for one in self.runners.values() for note in one.noted()])
        death = m.Death(self.name, "was killed by SIGSEGV", False, tuple(self.runners), in_progress)
        deaths, size = (*self.core.profile.deaths, death), self.core.profile.buffer_bytes
        self.die()
        # Sometimes long after its tasks have found other hosts.
        pause = self.random.choice([0.1, 0.5, 3.0])
        self.world.clock.after(pause, lambda: self.world.add_worker(size, deaths))

    def _stop(self, command: worker_events.StopTask) -> None:
        runner = self.runners.pop((command.task, command.attempt), None)
        if runner is not None:
            runner.stop()

    def _bind(self, command: worker_events.BindLink) -> None:
        if self.random.random() < self.world.network.faults.bind_error:
            self.soon(worker_events.LinkBound(command.link, "", "", "no port is free"))
            return
        self.world.network.bind(command.link, self.name)
        event = worker_events.LinkBound(command.link, f"data-of-{self.name}", "secret")
        self.world.clock.after(self.random.uniform(0.0, 0.01), lambda: self.feed(event))

    def obey(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        super().obey(event, commands)
        if self.core.draining.done and not self._leaving:
            self._leaving = True
            self.leave()

    def _fall_quiet(self) -> None:
        for runner in list(self.runners.values()):
            runner.stop()
            self.feed(runner.give_back(0))

    def drain(self) -> None:
        """Tell the worker to hand its tasks over and to leave."""
        self.feed(worker_events.DrainRequested(self.random.choice([0.0, 2.0, 7.0])))

    def leave(self) -> None:
        """End in good order."""
        self.world.network.send(self.name, DISPATCHER, m.WorkerStopped(self.name))
        self.alive = False
        self.world.clock.after(0.1, self.die)

    def die(self) -> None:
        super().die()
        for runner in self.runners.values():
            runner.stop()


@dataclass(eq=False)
class Taking:
    """A block from which a training loop takes elements."""

    header: m.Block
    """Header of the block."""
    names: tuple[Name, ...]
    """Its elements."""
    at: int
    """Position of the next element."""
    stop: int
    """Position at which to stop."""
    step: int | None = None
    """Step of a numbered consumer, if it is not the step of its core."""
    is_begun: bool = False
    """True once an element was taken."""


class SimulatedClient(CarryingNode):
    """A client and its training loop, which takes elements at a seeded speed.

    Attributes:
        known_as: every name under which it has read.
        asked: when it began to ask for its iteration.
        died: when its process or its iterator ended, or None.
        opened: the dispatcher's first answer, or None.
        outcome: None while it reads, then ``"end"`` or the name of the error.
        closed: True once its goodbye is over.
        isolated: time since which it can reach no node, or None.
        is_steady: True if it takes equally long for each element, and takes no
            checkpoints.
    """

    core: ClientCore
    world: World

    def __init__(self, world: World, profile: ClientProfile) -> None:
        name, self.consumer = profile.client, profile.reader.consumer_index
        self.opened: m.IterationOpened | None = None
        self.known_as = {name}
        self.asked = world.clock.now
        self.died: float | None = None
        super().__init__(world, name, ClientCore(profile))
        self.queue: deque[Taking] = deque()
        self.pace = self.random.choice([0.0005, 0.01, 0.05])
        self.gulp = self.random.choice([1, 4, 30])
        self.stalled_until = 0.0
        self.is_steady = False
        self.taken = 0
        self.outcome: str | None = None
        self.isolated: float | None = None
        self.closed = False
        self.had, self._had_as = Had(), name
        self._moments = random.Random(f"{world.seed}/{name}/moments")
        self._finish: str | None = None
        self._planned = self._at_work = False
        network = world.network
        on = self._carriers.on
        on(client_events.ConnectLink, lambda x: self._connect(x.link))
        on(client_events.DisconnectLink, lambda x: network.disconnect(x.link))
        on(client_events.Deliver, self._deliver)
        on(client_events.Weave, self._weave)
        on(events.Finish, self._finished)
        on(client_events.DropQueued, lambda x: self.queue.clear())
        on(client_events.DropUnbegun, self._drop_unbegun)
        on(client_events.Closed, self._closed)

    def receive(self, sender: Hashable, message: Any) -> None:
        if self.opened is None and isinstance(message, m.IterationOpened):
            self.opened = message
        super().receive(sender, message)

    def _connect(self, link: str) -> None:
        self.world.network.connect(
            link,
            self.name,
            lambda push: self.feed(client_events.Arrived(link, push.header, push.frames)),
            lambda reason: self.feed(events.LinkBroken(link, reason)),
        )

    def _deliver(self, command: client_events.Deliver) -> None:
        self.queue.append(Taking(command.header, command.content, command.skip, command.stop))
        self._plan()

    def _weave(self, command: client_events.Weave) -> None:
        for turn in range(command.parts[0].stop - command.parts[0].skip):
            for part, first in zip(command.parts, command.steps, strict=True):
                at, step = part.skip + turn, first + turn * command.cycle
                self.queue.append(Taking(part.header, part.content, at, at + 1, step))
        self._plan()

    def _drop_unbegun(self, command: client_events.DropUnbegun) -> None:
        left, ranges = command.count, []
        for taking in [*self.queue][::-1]:
            header, count = taking.header, taking.stop - taking.at
            if (header.task, header.attempt) != (command.task, command.attempt):
                continue
            if taking.is_begun or count > left:
                break
            left -= count
            ranges.append((header.first + taking.at, header.first + taking.stop))
            self.queue.remove(taking)
        key = (command.task, command.attempt, command.recall)
        self.feed(client_events.UnbegunDropped(*key, tuple(ranges)))

    def _finished(self, command: events.Finish) -> None:
        self._finish = command.error or "end"
        self._plan()

    def _closed(self, command: client_events.Closed) -> None:
        self.closed = True
        self.die()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            spread = 1.0 if self.is_steady else self.random.uniform(0.5, 1.5)
            wait = max(self.pace * spread, self.stalled_until - self.world.clock.now)
            self.world.clock.after(wait, self._step)

    @property
    def _needs_no_lease(self) -> bool:
        """True if it may read on without the dispatcher, because workers can hear it
        and it believes to be alone.
        """
        lease, timeout = self.core.lease, self.world.times.client_timeout
        heard = self.isolated is None or self.world.clock.now < self.isolated + timeout
        return lease.until == math.inf or (lease.alone and heard)

    def rejoin(self) -> None:
        """Record that nodes can reach it again."""
        self.isolated = None

    def awake(self) -> None:
        """Let the training loop go first now and then, faster than the thread that
        reads the network.
        """
        if self.random.random() < 0.5:
            self._step()

    def _step(self) -> None:
        self._planned = False
        if not self.alive or self.outcome is not None:
            return
        waits = self.missed is not None or (self.queue and not self.core.lease.holds(self.now))
        if waits or self.stalled_until > self.world.clock.now:
            self._plan()
            return
        if self._at_work:
            self._at_work, self.world.worked = False, self.world.clock.now
            self.feed(client_events.PartsHandedOut(()))
        elif self.queue:
            self._take(self.queue[0])
        elif self._finish is not None:
            self.outcome = self._finish
            self.feed(client_events.CloseRequested())
        if self.queue or self._finish is not None or self._at_work:
            self._plan()

    def _take(self, taking: Taking) -> None:
        header = taking.header
        stop = min(taking.at + self.random.randint(1, self.gulp), taking.stop)
        first, taking.at, taking.is_begun = taking.at, stop, True
        if stop == taking.stop:
            self.queue.popleft()
        self.taken += stop - first
        self.world.progress = self.world.clock.now
        me, names, number = self.core.client, taking.names[first:stop], header.first + first
        if self.consumer is None:
            self.world.laws.handed_out(me, header, names, number, self._needs_no_lease)
        else:
            step = self.core.reading.steps if taking.step is None else taking.step
            self.world.steps.handed_out(me, self.consumer, step, header, names, number)
        size = header.size if stop == header.stop else 0
        if self._had_as != me:  # it was given up: former elements are not part of its position
            self.had, self._had_as = Had(), me
            self.known_as.add(me)
        key = (header.task, header.attempt)
        part = client_events.TakenElements(*key, number, header.first + stop, size)
        # Only other clients could make use of knowing when it comes back.
        self._at_work = not self.queue and len(self.world.clients) > 1
        self.feed(client_events.PartsHandedOut((part,), self._at_work))
        self.had.add(header.task, number, names)
        if self._moments.random() < CHECKPOINTS and not self.is_steady:
            self.check_standing()

    def check_standing(self) -> None:
        """Take a checkpoint and check it."""
        world, core = self.world, self.core
        checkpoint = core.standing.checkpoint(core.reading.passed.count)
        indices = {task: kept.origin.index for task, kept in core.standing.kept.tasks.items()}
        known = (self.name, checkpoint, self.had, indices)
        if self.consumer is not None:
            world.standings.check_consumer(*known, world.steps.names)
        else:
            joined_once = self._had_as == self.name
            is_alone = len(world.clients) == 1 and not core.profile.resume and joined_once
            world.standings.check(*known, is_alone)

    def stall(self, seconds: float) -> None:
        """Take nothing for a while."""
        self.stalled_until = self.world.clock.now + seconds

    def close(self) -> None:
        """Stop reading before the end."""
        if self.outcome is None:
            self.outcome = "closed early"
            self.feed(client_events.CloseRequested())

    def die(self) -> None:
        if self.alive:
            self.died = self.world.clock.now
        super().die()
        self.outcome = self.outcome or "killed"


class World:
    """A dispatcher, and the workers and training loops of a job.

    Args:
        seed: decides everything.
        mode: the processing mode.
        pipeline: what every task produces.
        faults: how badly the network behaves.
        times: timeouts of the dispatcher.
        shards: number of configured workers, for a static mode.
        journalled: True if the dispatcher has a journal, from which it resumes after
            its death.
        job: other parameters of the job.

    Example:
        >>> world = World(seed=1, pipeline=SimulatedPipeline(splits=20))
        >>> worker, client = world.add_worker(), world.add_client()
        >>> world.run_until(lambda: client.outcome is not None)
        >>> client.outcome, client.taken == len(world.pipeline.names())
        ('end', True)
    """

    make_runner: type[SimulatedRunner] = SimulatedRunner
    worker_node: type[SimulatedWorker] = SimulatedWorker
    dispatcher_node: type[SimulatedDispatcher] = SimulatedDispatcher

    def __init__(
        self,
        seed: int,
        mode: str = "DYNAMIC",
        pipeline: SimulatedPipeline | None = None,
        faults: Faults = CALM,
        times: DispatcherTimes | None = None,
        shards: int = 0,
        journalled: bool = False,
        **job: Any,
    ) -> None:
        self.seed = seed
        self.shards = shards
        self.pipeline = pipeline or SimulatedPipeline(splits=100)
        self.random = random.Random(f"{seed}/world")
        self.clock = Clock()
        self.network = SimulatedNetwork(self.clock, self.random.getrandbits(32), faults)
        self.laws = JournalLaws(seed, self.clock, self.pipeline)
        self.observer: WorldObserver = self.laws
        self.steps = StepLaws(self.laws)
        self.standings = Standings(self.laws, self.pipeline, self.make_runner)
        self.job = m.JobParameters("job", DATASET, mode, **job)
        self.workers: list[SimulatedWorker] = []
        self.clients: list[SimulatedClient] = []
        self._processes = itertools.count()
        self.progress = self.worked = 0.0
        beat_share = random.Random(f"{seed}/beats").choice([0.0, 0.0, 1.0])
        self.times = replace(times or DispatcherTimes(), beat_share=beat_share)
        self.disk = SimulatedDisk(self.clock, self.random.getrandbits(32)) if journalled else None
        self.dispatcher = self._make_dispatcher()

    def _make_dispatcher(self) -> SimulatedDispatcher:
        core = DispatcherCore(self.random.getrandbits(32), self.times, durable=bool(self.disk))
        core.places = core.hosting.placement.places = FirstAddresses(self.shards)
        dispatcher = self.dispatcher_node(self, DISPATCHER, core)
        dispatcher.feed(registration(self.pipeline.splits))
        return dispatcher

    # --- people come

    def add_worker(
        self, buffer_bytes: int = 16 << 20, deaths: tuple[m.Death, ...] = ()
    ) -> SimulatedWorker:
        """Add a worker, which reports the deaths of former processes."""
        name = f"worker-{len(self.workers)}-{self.random.getrandbits(16):04x}"
        self.workers.append(self.worker_node(self, name, buffer_bytes, deaths))
        return self.workers[-1]

    def add_client(
        self,
        repetition: int = 0,
        limit: int | None = None,
        consumer: int | None = None,
        job: m.JobParameters | None = None,
        **profile: Any,
    ) -> SimulatedClient:
        """Add a training loop that reads the job's iteration, as a numbered consumer if
        the job is coordinated, or reads another job. ``profile`` is more of its
        ``ClientProfile``.
        """
        name = f"client-{len(self.clients)}-{self.random.getrandbits(16):04x}"
        job = structs.replace(job or self.job, max_outstanding_requests=limit)
        reader = m.Reader(consumer)
        known = ClientProfile(name, job, repetition, "simulation", reader=reader, **profile)
        self.clients.append(SimulatedClient(self, known))
        return self.clients[-1]

    def new_process(self) -> str:
        """Return the name of another training process."""
        return f"process {next(self._processes)}"

    def restart_dispatcher(self, seconds: float = 0.0) -> None:
        """Kill the dispatcher and start another after a while, which knows only what
        its journal says.
        """
        if not self.dispatcher.alive:
            return
        self.dispatcher.die()
        self.laws.forget_measures()
        if self.disk is None:
            self.laws.forget()
        if seconds:
            self.clock.after(seconds, self._return_dispatcher)
        else:
            self._return_dispatcher()

    def _return_dispatcher(self) -> None:
        self.dispatcher = self._make_dispatcher()

    # --- time passes

    def run_until(self, condition: Callable[[], bool], patience: float = 120.0) -> None:
        """Let time pass until the condition holds.

        Raises:
            LawBroken: for ``patience`` simulated seconds, no training loop gets an
                element or ends its work on its last one, and no other element is found
                to be fatal. Numbered consumers may need many of those to be found
                before they get the next element.
        """
        self.progress = self.clock.now
        while not condition():
            if self.clock.now > max(self.progress, self.worked, self.laws.found) + patience:
                self.laws.fail(f"no training loop has received an element for {patience:g} s")
            self.clock.run_next()

    @property
    def all_done(self) -> bool:
        """True if no training loop reads any more."""
        return all(client.outcome is not None for client in self.clients)
