"""The worker's decider: which tasks run, and what follows from each event and message.
It has no socket and no clock.

What a client gets of a task is in ``core.worker.distribution``, links are in
``core.worker.links``, and splits in ``core.worker.splits``.

Protocol 4.1 to 4.9, 6.8, 7.4, 8.4 and 8.7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import TypeVar, get_args

from zmqdata import messages as m
from zmqdata.core.limits import Rotation
from zmqdata.core.worker import events as e
from zmqdata.core.worker.cross_trainer import fitting
from zmqdata.core.worker.dealing import dealing_for
from zmqdata.core.worker.decisions import Agreeing
from zmqdata.core.worker.distribution import Distribution
from zmqdata.core.worker.draining import Draining
from zmqdata.core.worker.heartbeats import Heartbeats, heard_again, notices
from zmqdata.core.worker.links import SendLinks, news_for
from zmqdata.core.worker.memory import MemoryWatch
from zmqdata.core.worker.pipelines import REPEAT, Pipelines
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.core.worker.saving import Writing
from zmqdata.core.worker.splits import Feeding
from zmqdata.core.worker.tasks import HostedTask

MEASURED_AT_ONCE = 64
"""Number of tasks whose measures a heartbeat has."""
DROPPED_KEPT = 10_000
"""Maximum number of dropped tasks that the worker remembers."""

Kind = TypeVar("Kind")
TaskKind = TypeVar("TaskKind", bound=e.OfTask)


class WorkerCore:
    """The decider of a worker process.

    Args:
        profile: identity and limits of the worker.
    """

    def __init__(self, profile: WorkerProfile) -> None:
        self.profile = profile
        self.registered = False
        self.tasks: dict[int, HostedTask] = {}
        self.links = SendLinks(self._do)
        self.distribution = Distribution(profile, self.links, self._do)
        self.writing = Writing(
            profile.worker, profile.snapshot_chunk_bytes, self._task, self._distribute
        )
        self.feeding = Feeding(profile.worker, self._task, self._do)
        self.pipelines = Pipelines(profile.worker, self._do)
        self.draining = Draining(self._do, profile.drain_seconds, profile.max_tasks)
        self.memory = MemoryWatch(profile.memory)
        self._dropped: dict[int, int] = {}
        self._commands: list[e.WorkerCommand] = []
        self._now = 0.0
        self.handlers = e.Handlers()
        self.messages = e.PeerHandlers()
        self.heartbeats = Heartbeats(profile.heartbeat, profile.dispatcher_timeout)
        self._measured: Rotation[int] = Rotation(MEASURED_AT_ONCE)
        self._neighbours: Counter[int] = Counter()  # number of hosted tasks by iteration
        self.agreeing = Agreeing(profile.worker, self._task, self._do, self.handlers)
        self._handle_events()
        self._handle_messages()

    def _handle_events(self) -> None:
        on = self.handlers.on
        on(e.Received, self._received)
        on(e.Tick, lambda event, now: self._tick(now))
        on(e.Produced, self._of_task(self._produced))
        on(e.StateNoted, self._of_task(self._state_taken))
        on(e.Exhausted, self._of_task(self._exhausted))
        on(e.TaskFailed, self._of_task(self._task_failed))
        on(e.LinesCollected, self._of_task(self._logged))
        on(e.LinkBound, self._link_bound)
        on(e.LinkBroken, lambda event, now: self._close_link(None, m.CloseLink(event.link), now))
        on(e.DrainRequested, self._drain)
        on(e.MemoryRead, self._memory_read)
        # A dispatcher that saw this worker without a connection waits for a message
        # from it, and only for a short time.
        on(e.Connected, lambda event, now: self._heartbeat(now) if self.registered else None)
        on(e.Disconnected, lambda event, now: self.heartbeats.disconnect(now))
        on(e.FilesChecked, self.pipelines.files_checked)
        on(e.PartClaimed, self._then_start(self.pipelines.claimed))
        on(e.PieceKept, self._then_start(self.pipelines.kept))
        for kind in get_args(e.Noticed):
            on(kind, self._of_task(self._noticed))
        self.handlers.update(self.writing.events | self.feeding.events | self.agreeing.events)

    def _handle_messages(self) -> None:
        on = self.messages.on
        piece_sent = self._then_start(self.pipelines.piece_sent)
        on(m.WorkerRegistered, lambda peer, message, now: self._registered(now))
        on(m.WorkerHeartbeatAnswered, self._heartbeat_answered)
        on(m.RequestRefused, self._refused)
        on(m.HostTask, self._host)
        deal_rest = self._of_task(self._deal_rest)
        on(m.DealRest, lambda peer, message, now: deal_rest(message, now))
        on(m.DropTask, self._drop)
        on(m.PipelineSent, self._pipeline_sent)
        on(m.CheckMaps, self.pipelines.check_maps)
        on(m.PieceSent, lambda peer, message, now: piece_sent(message, now))
        on(m.ReleaseClient, self._release)
        on(m.OpenLink, self.links.open)
        on(m.Grant, self._grant)
        on(m.CloseLink, self._close_link)
        self.messages.update(self.writing.messages | self.feeding.messages | self.agreeing.messages)

    def handle(self, now: float, event: e.WorkerEvent) -> list[e.WorkerCommand]:
        """Handle an event that was noticed at ``now``, and return the commands to carry
        out.
        """
        self._now = now
        if not self.agreeing.holds(event):
            self.handlers[type(event)](event, now)
        if self.draining.concerns:
            self.draining.check_done(now, self._staying, self.owes_elements)
        commands, self._commands = self._commands, []
        return commands

    @property
    def _staying(self) -> list[m.TaskDefinition]:
        """Tasks that end or move before the worker leaves."""
        return [task.definition for task in self.tasks.values() if not task.is_spent_copy]

    @property
    def dropped(self) -> Collection[int]:
        """Tasks that the dispatcher has taken from this worker; only the most recent
        ones.
        """
        return self._dropped.keys()

    @property
    def owes_elements(self) -> bool:
        """True if something that was produced waits for a client that reads here, or
        was sent and not yet seen.
        """
        unsent = any(task.owes_elements for task in self.tasks.values())
        return unsent or any(link.unacknowledged for link in self.links.by_client.values())

    def _do(self, command: e.WorkerCommand) -> None:
        self._commands.append(command)

    def _send(self, message: m.Message) -> None:
        self._commands.append(e.Send(e.DISPATCHER, message))

    def _received(self, event: e.Received, now: float) -> None:
        if event.peer == e.DISPATCHER:
            self._commands += heard_again(self.heartbeats, self.profile.dispatcher, now)
        handler = self.messages.get(type(event.message))
        if handler is not None:
            handler(event.peer, event.message, now)

    # --- the dispatcher

    def _tick(self, now: float) -> None:
        if self.heartbeats.is_due(now, len(self.tasks)):
            self._heartbeat(now)
        self._commands += notices(self.heartbeats, self.profile, self.registered, now)
        self.pipelines.tick(now)
        self.writing.tick(self.tasks.values(), now)
        for task in self.tasks.values():
            if not task.started:
                self.pipelines.want(task.definition, now)
            for ask in filter(None, task.overdue_requests(now, REPEAT)):
                self._send(ask)
            if task.total is not None:
                # Some clients wait for the answer of another client.
                self.distribution.finish(task, now)
        self.links.close_silent(now)

    def _heartbeat(self, now: float) -> None:
        self.heartbeats.spoke(now)
        measured = set(self._measured.next_items(self.tasks))
        reports = tuple(task.report(now, number in measured) for number, task in self.tasks.items())
        if self.registered:
            pause = self.heartbeats.pause
            self._send(
                m.WorkerHeartbeat(
                    self.profile.worker,
                    tasks=reports,
                    clients=self.links.next_clients(),
                    readers=self.links.readers(now, pause),
                    draining=self.draining.begun,
                    every=pause,
                    memory=self.memory.use,
                    written=self.feeding.written.of(self._neighbours),
                    parcels=tuple(sorted(self.pipelines.parcels)),
                ),
            )
        else:
            self._send(self.profile.registration(reports))

    def _tell(self, now: float) -> None:
        """Report news of a task at once if heartbeats are not too frequent, otherwise
        with a later tick.
        """
        if self.heartbeats.may_tell(now, len(self.tasks)):
            self._heartbeat(now)

    def _registered(self, now: float) -> None:
        if not self.registered:
            self.registered = True
            self.profile.deaths = ()
            who = self.profile
            name = f" ({who.name})" if who.name else ""
            where = f"at the dispatcher at {who.dispatcher} as {who.address}{name}"
            self._do(e.LogLine("info", f"registered {where}; this worker waits for tasks"))

    def _heartbeat_answered(
        self, peer: e.Peer, answer: m.WorkerHeartbeatAnswered, now: float
    ) -> None:
        self.heartbeats.adopt_interval(answer.every)
        if not answer.known and self.registered:
            self.registered = False
            self._heartbeat(now)
        if answer.draining:
            self._drain(e.DrainRequested(self.profile.drain_seconds), now)
        self.links.ask(answer.questions, now)
        self.pipelines.drop_parcels(answer.unused)
        for task in [self.tasks[number] for number in answer.unwanted if number in self.tasks]:
            task.skip(answer.unwanted[task.definition.task])
            self._distribute(task)

    def _drain(self, event: e.DrainRequested, now: float) -> None:
        if self.draining.begin(now, event.patience, self._staying):
            self._heartbeat(now)

    def _memory_read(self, event: e.MemoryRead, now: float) -> None:
        self.memory.record(now, event)
        self.pipelines.spare(self.memory, event.parcels)
        if self.draining.consider(self.memory, now, self._staying):
            self._heartbeat(now)

    def _refused(self, peer: e.Peer, refusal: m.RequestRefused, now: float) -> None:
        if refusal.request == self.profile.worker:
            self._do(e.Finish(refusal.error, refusal.text))

    # --- tasks

    def _host(self, peer: e.Peer, message: m.HostTask, now: float) -> None:
        definition = message.definition
        self.feeding.written.record(definition.written)
        if definition.attempt <= self._dropped.get(definition.task, -1):
            return
        hosted = self.tasks.get(definition.task)
        if hosted is not None:
            if hosted.definition.attempt >= definition.attempt:
                return
            self._remove(hosted)
        dealing = self.writing.dealing_of(definition) or dealing_for(
            definition, self.profile.cache_bytes
        )
        task = HostedTask.of(definition, dealing, now)
        self.tasks[definition.task] = task
        self._neighbours[definition.iteration] += 1
        self._start_ready(task)
        if not task.started:
            self.pipelines.want(definition, now)
        for link in self.links.by_client.values():
            self.distribution.apply_grant(link, task, now)
        self._distribute(task)

    def _pipeline_sent(self, peer: e.Peer, message: m.PipelineSent, now: float) -> None:
        self.pipelines.sent(message, {task.definition.digest for task in self.tasks.values()}, now)
        self._start_ready()

    def _then_start(self, change: Callable[[Kind, float], None]) -> Callable[[Kind, float], None]:
        """Return a handler that changes the pipelines, and then starts the tasks that
        are ready.
        """

        def changed(event: Kind, now: float) -> None:
            change(event, now)
            self._start_ready()

        return changed

    def _start_ready(self, *these: HostedTask) -> None:
        """Start the tasks whose pipelines are present with all parts, or cannot be had.

        Args:
            *these: the tasks to consider; all tasks if empty.
        """
        for task in these or self.tasks.values():
            found = None if task.started else self.pipelines.find(task.definition)
            if found is None:
                continue
            task.started = True
            self._do(e.StartTask(task.definition, found.pipeline, found.reason))
            self._allow(task)
            if task.hungry:
                self._do(e.FlushTask(*task.key))
        self.pipelines.forget_failures()

    def _drop(self, peer: e.Peer, message: m.DropTask, now: float) -> None:
        self._dropped[message.task] = max(message.attempt, self._dropped.pop(message.task, -1))
        if len(self._dropped) > DROPPED_KEPT:
            del self._dropped[next(iter(self._dropped))]
        task = self.tasks.get(message.task)
        if task is not None and task.may_go(message.attempt, now):
            self._remove(task)
            self.links.drop_task(message.task)

    def _remove(self, task: HostedTask) -> None:
        self.draining.tasks += self.tasks.pop(task.definition.task).started
        self._neighbours -= Counter([task.definition.iteration])
        self.writing.forget(task.dealing)
        self._do(e.StopTask(*task.key))

    def _task(self, event: e.OfTask) -> HostedTask | None:
        task = self.tasks.get(event.task)
        return task if task is not None and task.definition.attempt == event.attempt else None

    def _of_task(
        self, handle: Callable[[HostedTask, TaskKind, float], None]
    ) -> Callable[[TaskKind, float], None]:
        """Return a handler that ignores what concerns no attempt of this worker."""

        def handle_hosted(event: TaskKind, now: float) -> None:
            task = self._task(event)
            if task is not None:
                handle(task, event, now)

        return handle_hosted

    def _produced(self, task: HostedTask, event: e.Produced, now: float) -> None:
        if task.definition.job.cache:
            event = fitting(event, self.profile.cache_bytes, self.profile.address)
        task.add(event, now)
        self._distribute(task)

    def _state_taken(self, task: HostedTask, event: e.StateNoted, now: float) -> None:
        """Record a state, and report it to the dispatcher if that listens. A lost
        report does no harm, because a newer state replaces it.
        """
        task.states.append(event.state)
        if self.heartbeats.listens(now):
            self._send(m.StateTaken(self.profile.worker, *task.key, event.state))

    def _exhausted(self, task: HostedTask, event: e.Exhausted, now: float) -> None:
        if task.total is None:
            task.end(event)
            self.writing.end(task.dealing)
            self._distribute(task)
            self._tell(now)

    def _deal_rest(self, task: HostedTask, message: m.DealRest, now: float) -> None:
        task.deal_rest(message)
        self._distribute(task)

    def _task_failed(self, task: HostedTask, event: e.TaskFailed, now: float) -> None:
        task.failure = event.failure
        task.measures = event.measures or task.measures
        self.writing.fail(task.dealing, event.failure)
        self._tell(now)

    def _logged(self, task: HostedTask, event: e.LinesCollected, now: float) -> None:
        task.lines.add(event.lines, event.suppressed)
        self.links.send_lines(task.lines, task.key, task.dealing.streams.values())

    def _noticed(self, task: HostedTask, event: e.Noticed, now: float) -> None:
        if task.notice(event):
            self._tell(now)

    # --- distribution

    def _distribute(self, task: HostedTask) -> None:
        """Send the blocks of a task that may be sent, and let it produce as much as it
        may.
        """
        self.distribution.deal(task, self._now)
        self._commands += self.writing.drain(task.dealing)
        self.distribution.finish(task, self._now)
        self._allow(task)

    def _allow(self, task: HostedTask) -> None:
        self.distribution.allow(task, self._neighbours[task.definition.iteration])

    # --- links

    def _link_bound(self, event: e.LinkBound, now: float) -> None:
        link = self.links.bound(event, now)
        if link is not None:
            for task in self.tasks.values():
                if link.client in task.dealing.streams:
                    self._distribute(task)

    def _grant(self, peer: e.Peer, grant: m.Grant, now: float) -> None:
        link = self.links.record_grant(peer, grant, now)
        if link is None:
            return
        if link.takes_answer(grant.question):
            self._heartbeat(now)  # readers that are done wait for the answer
        numbers = dict.fromkeys(stream.task for stream in grant.streams)
        granted = [self.tasks[number] for number in numbers if number in self.tasks]
        for task in granted:
            self.distribution.apply_grant(link, task, now)
        for task in granted:
            self._distribute(task)
        self.links.report(link, grant, now, lambda: news_for(link, self.tasks.values()))

    def _close_link(self, peer: e.Peer, message: m.CloseLink, now: float) -> None:
        link = self.links.close(message.link)
        if link is None:
            return
        link.grants.clear()
        for task in self.tasks.values():
            if link.client in task.dealing.streams:
                task.dealing.streams[link.client].open = False
                self._allow(task)

    def _release(self, peer: e.Peer, message: m.ReleaseClient, now: float) -> None:
        self.links.release(message.client)
        for task in list(self.tasks.values()):
            if message.client in task.dealing.streams:
                task.release(message)
                self._distribute(task)
        if any(task.incomplete for task in self.tasks.values()):
            self._tell(now)
