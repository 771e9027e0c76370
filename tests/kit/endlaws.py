"""The laws of the end of an iteration: when a reader may end, and when it must.

The laws see what readers receive and send. Whether a reader is done is what its
heartbeats say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.kit.runner import Name
from tests.kit.world import DISPATCHER, SimulatedClient, World, was_awake
from zmqdata import messages as m
from zmqdata.core import events
from zmqdata.core.client import events as client_events
from zmqdata.core.client.decider import ClientCore
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.job_rules import is_copied
from zmqdata.testing.disk import SLOW, STALL
from zmqdata.testing.nodes import AnyCommand, AnyEvent

WARNING = "held by readers that have died may be missing here"
"""Part of the warning of a reader that ends without the dispatcher. No reader that
merely waits for it says so.
"""
SILENCE = 0.9
"""Shortest silence of the dispatcher after which a reader may end without it: a second
of a fast clock.
"""
ASKED_AT_ONCE = 64
"""Maximum number of readers that are asked at a time."""
NEXT_ASKED = 0.25
"""Seconds after which the next readers are asked."""
KNOWN = 2.0
"""Seconds after which a new dispatcher has heard every reader that reaches it."""
HEARTBEAT = 1.4
"""Most seconds between two heartbeats of a worker, with the tick that sends them."""


@dataclass
class ReaderRecord:
    """Facts about a reader that the laws need."""

    client: str = ""
    """Id of the client as which the dispatcher last let it in."""
    done: float | None = None
    """When it last became done; None while it is not."""
    is_ready: bool = False
    """True if it was an heir after its last event: in the iteration and not done."""
    since: float = math.inf
    """Since when it is an heir."""
    ready: float = -math.inf
    """When it was last known to be an heir."""
    heard: float = -math.inf
    """When it last heard the dispatcher."""
    shards: tuple[int, ...] = ()
    """The static shards that it may read; none if it may read all."""
    able: dict[int, float] = field(default_factory=dict)
    """When it last was an heir that could read a task beside it, by task."""
    unable: dict[int, float] = field(default_factory=dict)
    """When it last was an heir that could not, because of the task's host."""
    warned: bool = False
    """True if it has warned that it ends without the dispatcher."""
    unheard: bool = False
    """True if it has rightly ended so."""


class EndLaws:
    """Observer of the readers of a world.

    The first law: a reader ends with success only if no element is owed, if an heir of
    each owed element was there after the reader was done, or without the dispatcher and
    with a warning. The second law: a reader that is done ends soon while an heir runs.

    Numbered consumers, copies of the input and shared caches end by other rules.

    Args:
        world: the world.

    Attributes:
        ends: number of ends with success that the first law has seen.
        elsewhere: elements that were delivered before the job resumed here.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: dict[str, ReaderRecord] = {}
        self.ends = 0
        self.elsewhere: set[Name] = set()
        self._is_beside = world.job.target_workers == "LOCAL" and not world.shards
        self._clients: dict[str, SimulatedClient] = {}
        world.laws.on_client.append(self._look)
        world.laws.on_gone.append(self._gone)

    # --- what readers do

    def _look(
        self, name: str, core: ClientCore, event: AnyEvent, commands: Sequence[AnyCommand]
    ) -> None:
        client, now = self._client(name), self.world.clock.now
        record = self.records.setdefault(name, ReaderRecord())
        if record.is_ready:
            record.ready = now
            self._note_tasks(client, record)
        if isinstance(event, events.Received) and event.peer == client_events.DISPATCHER:
            record.heard = now
            self._note_opened(record, event.message)
            if record.done is not None and isinstance(event.message, m.TasksChanged):
                self._await_end(client, record.done)
        for command in commands:
            if isinstance(command, events.LogLine) and WARNING in command.text:
                record.warned = True
            elif isinstance(command, events.Finish) and not command.error:
                self._check_end(client, record)
            elif isinstance(command, events.Send):
                self._note_done(client, record, command.message)
        was_ready, record.is_ready = record.is_ready, self._is_member(core) and record.done is None
        if record.is_ready and not was_ready:
            record.since = now

    def _note_tasks(self, client: SimulatedClient, record: ReaderRecord) -> None:
        """Note which tasks an heir can read, if only readers beside their hosts can."""
        iteration = self.iteration_of(client)
        for task in iteration.live_tasks if self._is_beside and iteration is not None else ():
            times = record.able if self._may_read(client, task.task) else record.unable
            times[task.task] = self.world.clock.now

    def _client(self, name: str) -> SimulatedClient:
        if name not in self._clients:
            self._clients |= {one.name: one for one in self.world.clients}
        return self._clients[name]

    def _is_member(self, core: ClientCore) -> bool:
        is_known = core.client in self.world.laws.state.client_iteration
        return core.opened and not core.finished and is_known

    def _note_opened(self, record: ReaderRecord, message: m.Message) -> None:
        """Note under which name a reader is let in. It begins anew under another one:
        the dispatcher has given it up.
        """
        if isinstance(message, m.IterationOpened):
            if message.client != record.client:
                record.done = None
            record.client = message.client

    def _note_done(self, client: SimulatedClient, record: ReaderRecord, message: m.Message) -> None:
        if not isinstance(message, m.ClientHeartbeat):
            return
        if not message.done:
            record.done = None
        elif record.done is None:
            record.done = now = self.world.clock.now
            self._await_end(client, now)

    def _gone(self, name: str) -> None:
        for client in self.world.clients:
            record = self.records.get(client.name)
            if record is not None and record.is_ready and client.core.client == name:
                record.ready, record.is_ready = self._last_ready(client, record), False

    def _last_ready(self, client: SimulatedClient, record: ReaderRecord) -> float:
        """Return when a reader was last able to answer as an heir."""
        if not record.is_ready:
            return record.ready
        if client.missed is not None:
            return client.asleep_since
        return self.world.clock.now if client.died is None else client.died

    # --- what is owed

    def owed(self, iteration: Iteration) -> set[Name]:
        """Return the elements of an iteration that no training loop has, or that only
        dead loops have, which did not report them.
        """
        laws, tasks = self.world.laws, iteration.tasks
        if iteration.closed and not tasks:
            return set()  # it was finished before its incarnation was collected
        living = {name for one in self.world.clients if one.alive for name in one.known_as}
        had = {
            laws.names[task, number]
            for (task, number), owner in laws.owners.items()
            if task in tasks and (owner in living or number in tasks[task].delivered)
        }
        pipeline, decided = self.world.pipeline, {one for one in laws.left_out if one[0] in tasks}
        skipped = {laws.slips[one] for one in decided if one in laws.slips}
        if not decided <= laws.slips.keys():
            skipped |= set(filter(pipeline.is_slippery, pipeline.names()))  # not known which
        return set(pipeline.names()) - had - skipped - self.elsewhere

    def _parts(self, iteration: Iteration, owed: set[Name]) -> set[int]:
        """Return the parts of the input that elements are in: static shards, or tasks
        that only readers beside their hosts can read; a single part if any client may
        read all.
        """
        if self._is_beside and owed:
            return self._owing(iteration) or {0}
        if self.world.job.target_workers != "LOCAL" or not iteration.num_shards:
            return {0} if owed else set()
        names = self.world.pipeline.all_names()
        return {at % iteration.num_shards for at, name in enumerate(names) if name in owed}

    def _concerns(self, client: SimulatedClient, part: int) -> bool:
        """Return True if a reader may read a part now, or once a task has another
        host.
        """
        iteration = self.iteration_of(client)
        opening = None if iteration is None else iteration.openings.get(client.core.client)
        record = self.records[client.name]
        if opening is not None:
            record.shards = opening.shards
        return self._is_beside or not record.shards or part in record.shards

    def _may_read(self, client: SimulatedClient, part: int) -> bool:
        """Return True if a reader may read a part now. A task without a host may be
        read wherever it is hosted next.
        """
        state = self.world.laws.state
        task = state.tasks.get(part) if self._is_beside else None
        host = None if task is None else state.workers.get(task.worker)
        is_near = host is None or host.address in client.core.profile.local_workers
        return is_near and self._concerns(client, part)

    def iteration_of(self, client: SimulatedClient) -> Iteration | None:
        """Return the iteration that a reader was let in to, if it has one."""
        number = client.core.iteration
        return None if number is None else self.world.laws.state.iterations.get(number)

    def _subject(self, client: SimulatedClient) -> Iteration | None:
        """Return the iteration of a reader whose end obeys these laws."""
        iteration = self.iteration_of(client)
        if iteration is None or client.consumer is not None or iteration.failure is not None:
            return None
        return None if iteration.job.cache or is_copied(iteration.job) else iteration

    # --- the first law

    def _check_end(self, client: SimulatedClient, record: ReaderRecord) -> None:
        iteration, now = self._subject(client), self.world.clock.now
        if iteration is None:
            return
        self.ends += 1
        owed = self.owed(iteration)
        done = now if record.done is None else record.done
        silence = now - max(record.heard, done, client.awake_since)
        record.unheard = record.warned and silence >= SILENCE
        if record.unheard or self._was_told_before(client):
            return
        for part in self._parts(iteration, owed):
            if not self._concerns(client, part):
                continue
            if not any(self._last_able(one, part) >= done for one in self._others(client)):
                text = f"{client.name} ends, done since {done:.4f}, and no reader is there for"
                self.world.laws.fail(f"{text} {sorted(owed)[:9]}", client.name)

    def _last_able(self, client: SimulatedClient, part: int) -> float:
        """Return when a reader was last able to answer as an heir of a part."""
        record = self.records[client.name]
        ready = self._last_ready(client, record)
        is_certain = not self._is_beside or ready == self.world.clock.now
        if is_certain and self._may_read(client, part):
            return ready
        return record.able.get(part, -math.inf)

    def _was_told_before(self, client: SimulatedClient) -> bool:
        """Return True if a start whose journal was set back since has told a reader
        that nothing is owed, or the reader of an anonymous job that only what it has
        itself. Then training loops have had everything, although only the lost records
        said so.
        """
        told, mark = client.core.task_list, self.world.dispatcher.core.out.mark
        owed = {place.task for place in told.tasks} | {*told.owed_elsewhere}
        is_over = not owed or client.core.profile.job.anonymous
        has_all = told.closed and is_over and client.core.reading.has_all(owed)
        return self.world.laws.is_set_back and told.start != mark and has_all

    def _others(self, client: SimulatedClient) -> list[SimulatedClient]:
        """Return the other readers of the iteration that a reader reads."""
        number = client.core.iteration
        return [
            one
            for one in self.world.clients
            if one is not client and one.name in self.records and one.core.iteration == number
        ]

    # --- the second law

    def _await_end(self, client: SimulatedClient, since: float) -> None:
        iteration, world = self._subject(client), self.world
        if iteration is None:
            return
        owing = self._owing(iteration)
        more = max(0, math.ceil(len(iteration.clients) / ASKED_AT_ONCE) - 1) * NEXT_ASKED
        hop = world.network.faults.delay[1] + SLOW
        beat = HEARTBEAT + world.times.beat_share * len(world.workers)
        for seconds, by_worker in ((4 * hop + more, False), (6 * hop + beat + more, True)):
            check = partial(self._check_over, client, since, by_worker, owing)
            world.clock.after(seconds, check)

    def _check_over(
        self, client: SimulatedClient, since: float, by_worker: bool, owing: set[int]
    ) -> None:
        record, iteration = self.records[client.name], self.iteration_of(client)
        is_calm = self.world.network.is_steady(since)
        if iteration is None or not is_calm or not self._is_undisturbed(client, since):
            return
        is_waiting = record.done == since and not client.core.finished
        # What was settled meanwhile had to have an heir until then.
        parts = owing | self._owing(iteration) if self._owing(iteration) else ()
        mine = [part for part in parts if self._concerns(client, part)]
        heirs = [one for one in self._others(client) if self._is_heir(one, since, by_worker)]
        has_heirs = all(any(self._was_able(one, part, since) for one in heirs) for part in mine)
        if mine and has_heirs and is_waiting:
            me, heir = client.name, heirs[0].name
            text = f"{me} is done since {since:.4f} and has not ended, although {heir} reads on"
            self.world.laws.fail(text, me, heir)

    def _owing(self, iteration: Iteration) -> set[int]:
        """Return the parts of which the dispatcher believes elements to be owed."""
        tasks = [task for task in iteration.live_tasks if not task.settled]
        if self._is_beside:
            return {task.task for task in tasks}
        is_local = self.world.job.target_workers == "LOCAL" and iteration.num_shards
        return {(task.shard or 0) if is_local else 0 for task in tasks}

    def _was_able(self, client: SimulatedClient, part: int, since: float) -> bool:
        """Return True if an heir could read a part all the time."""
        could_not = self.records[client.name].unable.get(part, -math.inf)
        return self._may_read(client, part) and could_not < since

    def _is_undisturbed(self, client: SimulatedClient, since: float) -> bool:
        """Return True if nothing has kept a reader and the dispatcher from speaking."""
        world, disk = self.world, self.world.disk
        return (
            (disk is None or disk.stalled < since - 2 * STALL)
            and was_awake(client, since)
            and was_awake(world.dispatcher, since - KNOWN)
            and not world.network.was_severed(client.name, since, DISPATCHER)
        )

    def _is_heir(self, client: SimulatedClient, since: float, by_worker: bool) -> bool:
        """Return True if a reader was an heir all the time, and could be asked."""
        record, network = self.records[client.name], self.world.network
        if not (record.is_ready and record.since < since and was_awake(client, since)):
            return False
        if not network.was_severed(client.name, since, DISPATCHER):
            return True
        return by_worker and any(
            line.client == client.name and self._carries(line.worker, client.name, since)
            for line in network.lines.values()
        )

    def _carries(self, worker: str, client: str, since: float) -> bool:
        """Return True if a worker has reached a reader and the dispatcher all the
        time.
        """
        network = self.world.network
        nodes = [one for one in self.world.workers if one.name == worker]
        return (
            any(was_awake(one, since) for one in nodes)
            and not network.was_severed(worker, since, DISPATCHER)
            and not network.was_severed(worker, since, client)
        )
