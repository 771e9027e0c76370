"""The decider of a client: what it tells the dispatcher and workers, and when its
iteration ends.

Each iterator has a decider. It owns no socket, queue or clock. The shell decodes
elements, which are opaque here. ``core.client.tasks`` counts what is read of each task,
and ``core.client.links`` keeps the links.

Decisions 0017, 0019, 0047 and 0048; protocol 3.1 to 3.9, 5.11, 6.6, 8.2, 8.4b and 9.6.
"""

from __future__ import annotations

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.checkpoint import Standing
from zmqdata.core.client.coordinated import reading_of
from zmqdata.core.client.lease import ClientLease
from zmqdata.core.client.leaving import Goodbye, ReadingEnd
from zmqdata.core.client.links import REPEAT, ReadLinks
from zmqdata.core.client.notices import Notices
from zmqdata.core.client.profile import ClientProfile as ClientProfile
from zmqdata.core.client.profile import link_profile, opening
from zmqdata.core.client.tasks import Grants, ReadTask, taking_more
from zmqdata.core.job_rules import is_copied
from zmqdata.core.lineage import WrittenBefore
from zmqdata.errors import (
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
)

MOST_BREACHES = 3
"""Number of blocks in a row beyond their grants after which the iterator fails."""
REPORT_BYTES = 4 << 20
"""Taken but unreported bytes of a numbered consumer that cause an early report."""
LINK_PATIENCE = 30.0
"""Seconds to continue without a link that a worker refuses. Other clients may end
meanwhile and release their ports.
"""
REPORT_PAUSE = 0.1
"""Shortest pause between two early reports, in seconds."""
OWN_LAG = 5.0
"""Seconds without an event that show that this process was stopped or asleep."""
ASK_AGAIN = 0.25
"""Seconds between two heartbeats of a client that waits for an answer."""
SETTLE = 0.5
"""Seconds after which every element that a training loop took before its lease was
ended has been counted.
"""


class ClientCore:
    """Decisions for an iterator of a training loop.

    Args:
        profile: what to read, and in which role.

    Attributes:
        iteration: number of the iteration; None if the dispatcher has never let the
            client in, under this name or a former one.
    """

    def __init__(self, profile: ClientProfile) -> None:
        self.profile = profile
        self.finished = False
        self.is_numbered = profile.reader.consumer_index is not None
        self._is_copied = is_copied(profile.job)
        self._commands: list[e.ClientCommand] = []
        self._handled: float | None = None
        self.iteration: int | None = None
        self._step, self._former = 0, ""
        self._names = 0
        self.notices = Notices(
            job=profile.job.name,
            reader=profile.reader,
            service=profile.service,
            patience=profile.dispatcher_timeout,
            cardinality=profile.cardinality,
            do=self._do,
        )
        self._begin(profile.client)
        self._near = self._unreported_bytes = 0
        self.handlers = e.Handlers()
        self.messages = e.Handlers()
        self._handle_events()
        self._handle_messages()

    def _handle_events(self) -> None:
        on = self.handlers.on
        on(e.Received, self._received)
        on(e.Tick, lambda event, now: self._tick(now))
        on(e.Arrived, self._arrived)
        on(e.PartsHandedOut, self._handed_out)
        on(e.LinkBroken, lambda event, now: self.links.broken(event, now))
        on(e.MemoryMapped, lambda event, now: self.links.mapped(event, now))
        on(e.UnbegunDropped, lambda event, now: self._grant(self.reading.give_back(event)))
        on(e.LoopMeasured, lambda event, now: self.reading.note(event.measures))
        on(e.Wanted, lambda event, now: self.notices.wanted())
        on(e.ShutOut, lambda event, now: self._shut_out(event.error, event.text, now))
        on(e.CloseRequested, lambda event, now: self._close(now))

    def _handle_messages(self) -> None:
        # `links`, `ending` and `goodbye` are replaced at each rejoin, so the handlers
        # look them up when a message arrives.
        on = self.messages.on
        on(m.IterationOpened, self._iteration_opened)
        on(m.OpenAwaited, lambda message, now: self.notices.waits(message, self.client))
        on(m.ClientHeartbeatAnswered, self._heartbeat_answered)
        on(m.MayEnd, lambda message, now: self.ending.may_end(message))
        on(m.Probe, self._asked_by_dispatcher)
        on(m.TasksChanged, self._tasks_changed)
        on(m.RequestRefused, self._refused)
        on(m.RequestHoldings, self._holdings)
        on(m.IterationClosed, lambda message, now: self.goodbye.stop(message))
        on(m.DispatcherClosed, lambda message, now: self._dispatcher_closed())
        on(m.LinkOpened, lambda message, now: self.links.opened(message, now))
        on(m.LinkRefused, self._link_refused)
        on(m.LinkReported, self._link_reported)

    def _begin(self, client: str) -> None:
        """Start to read under a new name, without any element."""
        profile, self.client, job = self.profile, client, self.profile.job
        self.opened, self.task_list = False, m.TaskList(-1, (), False)
        self.written = WrittenBefore()
        self.reading = reading_of(
            job, profile.reader, profile.job.max_outstanding_requests, self._do
        )
        who = link_profile(client, profile)
        self.links = ReadLinks(who, self._do, self.reading.grants, self.reading.loop)
        self.notices.silences = self.links.silences
        self.standing = Standing(client, job, profile.reader, self.reading, profile.repetition)
        self.lease = ClientLease()
        self._began: float | None = None
        self._asked: float | None = None
        self._retold: m.Question | None = None
        self._given_up: tuple[float, str] | None = None
        self._has_ended = False
        self.ending = ReadingEnd(client, job, self.is_numbered, self.reading, self.notices)
        self.goodbye = Goodbye(client, self.reading, self.notices, not job.anonymous, self._do)

    def handle(self, now: float, event: e.ClientEvent) -> list[e.ClientCommand]:
        """Handle an event and return the resulting commands.

        Args:
            now: time of the event, in seconds, of a clock that counts while the machine
                sleeps.
            event: the event.
        """
        self._note_clock(now)
        self.reading.now = now
        self.handlers[type(event)](event, now)
        self._check_end(now)
        if self.finished and not self.reading.waiting and not self.goodbye.has_begun:
            self._leave(now)
        commands, self._commands = self._commands, []
        return commands

    def _note_clock(self, now: float) -> None:
        lag = 0.0 if self._handled is None else now - self._handled
        if self._handled is None:
            self.notices.heard = now
        elif lag > OWN_LAG:
            # This process was stopped or asleep, and could not have heard any peer.
            self.notices.forgive(lag)
            self.ending.forgive(lag)
            self.goodbye.forgive(lag)
            self.links.forgive(lag)
        self._handled = now

    def _do(self, command: e.ClientCommand) -> None:
        self._commands.append(command)

    def _send(self, message: m.Message) -> None:
        self._commands.append(e.Send(e.DISPATCHER, message))

    def _received(self, event: e.Received, now: float) -> None:
        if event.peer == e.DISPATCHER:
            self.notices.heard = now
        handler = self.messages.get(type(event.message))
        if handler is not None:
            handler(event.message, now)

    # --- the dispatcher

    def _tick(self, now: float) -> None:
        if self.goodbye.has_begun:
            self.goodbye.tick(now)
            return
        if self._given_up is not None and now - self._given_up[0] >= SETTLE:
            self._join_again(self._given_up[1], now)
        if self.notices.quarantine.awaits_unlisted:
            self._receive_list(self.task_list, now)
        if self._is_time_to_speak(now):
            self._speak(now)
        self._grant(self.reading.ask_back({}))
        self.links.tick(now, self.lease.pause(REPEAT), all_vouch=self.lease.is_unanswered(now))
        if not self.finished:
            self._wait(now)

    def _wait(self, now: float) -> None:
        reads_on = self.ending.has_begun or (self.reading.waiting and self.lease.holds(now))
        too_silent = "" if reads_on else self.notices.is_too_silent(now)
        if too_silent:
            if self.reading.waiting:
                self._drop_queued()
            self._finish("UnavailableError", too_silent, now)
            return
        starved = self.notices.complain(
            now, self.opened, self.lease.holds(now), self.reading, self.task_list
        )
        refused = self.links.why_refused(LINK_PATIENCE, now) if starved >= LINK_PATIENCE else ""
        if refused:
            self._finish(ResourceExhaustedError.__name__, refused, now)
        self.notices.tell_skipped(now)

    def _is_time_to_speak(self, now: float) -> bool:
        # A request with a state may be large, and is awaited for minutes.
        awaits = bool(self.notices.awaited) and not self.profile.resume
        is_usual = self.lease.holds(now) and not self.ending.has_begun and not awaits
        pause = self.lease.pause(self.profile.heartbeat) if is_usual else ASK_AGAIN
        return self._asked is None or now - self._asked >= pause

    def _asked_by_dispatcher(self, probe: m.Probe, now: float) -> None:
        """Answer a question of the dispatcher, unless the client is leaving."""
        self.links.hear(probe.question)
        if probe.retells:
            self._retold = probe.question
            self.reading.retell()
        if not self.goodbye.has_begun:
            self._speak(now)

    def _speak(self, now: float) -> None:
        """Ask to join the iteration, or send a heartbeat."""
        self._asked = now
        self._began = now if self._began is None else self._began
        if not self.opened or self.standing.is_behind:
            ask = opening(self.profile, self.client, self.iteration, now - self._began)
            self._send(structs.replace(ask, step=self._step, former=self._former))
        if not self.opened:
            return
        report, delivered, steps = self.reading.next_report()
        self._near = self.reading.near
        self._unreported_bytes = 0
        beat = self.lease.speak(now)
        self._send(
            m.ClientHeartbeat(
                self.client,
                task_version=self.task_list.version,
                task_mark=self.task_list.start,
                report=report,
                delivered=delivered,
                steps=steps,
                near=self._near,
                beat=beat,
                alone=self.lease.alone,
                repeats=self.reading.repeats,
                given_back=self.reading.given_back,
                unreached=self.links.unreached(now),
                done=self.ending.number(beat),
                question=self.links.question,
                retold=self._retold,
                written=self.written.heard,
                measures=self.reading.measures,
            )
        )

    def _iteration_opened(self, message: m.IterationOpened, now: float) -> None:
        if message.client == self.client:
            if not self.opened:
                self.notices.joined(message, goes_on=self.iteration is not None)
                self.reading.begin(message.step)
                # The client's own checkpoint says what was delivered before, if this is
                # the iteration that was begun from it.
                goes_on = self.profile.resume and self.iteration is None
                self.standing.begin(
                    message, m.decode_checkpoint(self.profile.resume) if goes_on else None
                )
                self.lease.begin(message.lease, now if self._began is None else self._began, now)
            is_first = self.iteration is None
            self.opened, self.iteration = True, message.iteration
            if message.finished and self.profile.was_read and is_first:
                self._finish(FailedPreconditionError.__name__, self.notices.was_read(), now)
                return
            self._receive_list(message.task_list, now)
            if message.task_list is self.task_list:
                self.standing.catch_up(message)

    def _heartbeat_answered(self, message: m.ClientHeartbeatAnswered, now: float) -> None:
        if message.client != self.client:
            return
        self.reading.acknowledge(message.report)
        self._hear_written(message.written, now)
        self.notices.idle = message.idle
        is_newest = self.lease.record_answer(message.beat, message.lease, now)
        if message.task_list is not None:
            self._receive_list(message.task_list, now, is_newest)

    def _hear_written(self, written: m.JournalCounts | None, now: float) -> None:
        """Note what the dispatcher has written. Tell a new dispatcher everything again:
        its journal may have lost what the former one had counted.
        """
        if self.written.record(written):
            self.reading.retell()
            self._speak(now)

    def _refused(self, message: m.RequestRefused, now: float) -> None:
        if message.request != self.client:
            return
        if message.error == PermissionDeniedError.__name__:
            self._shut_out(message.error, message.text, now)
        elif self.finished:
            return
        elif message.given_up:
            self._give_up(message, now)
        else:
            self._finish(message.error, message.text, now, message.failure)

    def _give_up(self, message: m.RequestRefused, now: float) -> None:
        """Rejoin, because other clients may have received the elements of this client.

        A numbered consumer first waits until its position is known.
        """
        # A client that was given up before it heard that it was let in has been part of
        # the iteration all the same.
        self.iteration = message.iteration if self.iteration is None else self.iteration
        if not self.is_numbered or not self.opened:
            self._join_again(message.text, now)
        elif self._given_up is None:
            self._given_up = (now, message.text)
            self.lease = ClientLease()
            self.lease.end()

    def _join_again(self, why: str, now: float) -> None:
        """Continue under another name without any element. A numbered consumer
        continues at the step of its training loop.
        """
        held = self.reading.waiting
        self._drop_queued()
        unreported = self.reading.count_unreported()
        self._step, self._former = max(self._step, self.reading.steps), self.client
        self.notices.given_up(why, held, unreported)
        self.links.tend((), now)
        self._names += 1
        self._begin(f"{self.profile.client}.{self._names}")
        self._speak(now)

    def _link_refused(self, message: m.LinkRefused, now: float) -> None:
        """Retry a refused link later, unless the two sides can never connect.

        The elements of that worker would never arrive, so the iterator then fails.
        """
        if message.error == PermissionDeniedError.__name__ and message.link in self.links.by_name:
            self._finish(message.error, message.text, now)
        elif message.error == "InvalidArgumentError" and message.link in self.links.by_name:
            # `NotFoundError` is tf.data's class for a transport that a worker does not
            # offer.
            self._finish(NotFoundError.__name__, message.text, now)
        else:
            self.links.refused(message, now)

    def _drop_queued(self) -> None:
        self.lease.end()
        self.reading.waiting = 0
        self._do(e.DropQueued())

    def _holdings(self, ask: m.RequestHoldings, now: float) -> None:
        if ask.client != self.client:
            return
        task = self.reading.task(ask.task)
        if ask.attempt > task.place.attempt:
            self.reading.move(task, m.TaskPlace(ask.task, ask.attempt, "", ""))
        self._send(m.HoldingsReported(self.client, ask.task, ask.attempt, task.received.ranges))

    # --- tasks and their elements

    def _tasks_changed(self, message: m.TasksChanged, now: float) -> None:
        if message.client == self.client:
            self._receive_list(message.task_list, now)

    def _receive_list(self, task_list: m.TaskList, now: float, answers: bool = False) -> None:
        # Before the client has heard that it was let in, it has no lease and does not
        # know its first element.
        if not self.opened or self.finished or not self.standing.is_newest(task_list, answers):
            return
        self.task_list = task_list
        self.notices.quarantine.add_poison(task_list.left_out)
        self.standing.list(task_list)
        self.lease.read_with(task_list.readers)
        is_free = self.is_numbered or self.profile.job.cache
        self.reading.share(len(task_list.readers) > 1 and not is_free)
        self.reading.list(self.notices.quarantine.extended(task_list, self.reading, now))
        self.links.asks = self.standing.asks
        self.links.tend(self.reading.addresses, now, task_list.ticket)
        self._hear_written(task_list.written, now)
        self._ask_on(now)

    def _arrived(self, event: e.Arrived, now: float) -> None:
        if not self.links.count(event, now):
            return
        header = event.header
        task = self.reading.current(header)
        if task is None:
            return
        match header:
            case m.Block():
                breach = self.reading.store(task, header, event.content)
                if breach:
                    self._reject(task, event, breach, now)
            case m.Lineage():
                self._hear_written(header.written, now)
                self.standing.receive_lineage(header)
            case m.EndOfTask():
                self.notices.quarantine.of_task[header.task] = header.left_out
                self.links.evidence.end(header)
                self._grant(self.reading.hear_end(task, header))
            case m.ElementsLeftOut():
                self.notices.quarantine.add(header.elements)
            case m.TaskLogged() if self.profile.shows_task_log:
                self._do(e.ShowTaskLog(task.place.address, header))
            case m.TakeBackElements():
                self.reading.asked_back(task, header)

    def _reject(self, task: ReadTask, event: e.Arrived, breach: str, now: float) -> None:
        """Break the link of a worker that sends beyond its grants, and fail the
        iterator after several breaches.

        The client alone decides how much of its memory a worker may fill.
        """
        self.links.reject(event, breach, now)
        if task.window.breaches >= MOST_BREACHES:
            self._finish("DataLossError", taking_more(task.place.address, breach), now)

    def _link_reported(self, message: m.LinkReported, now: float) -> None:
        self.lease.renew(message.heard, now)
        self.links.reported(message, now)
        self.notices.count_skipped(message.link, message.skipped)

    def _handed_out(self, event: e.PartsHandedOut, now: float) -> None:
        grants: Grants = {}
        for part in event.parts:
            for address, streams in self.reading.hand_out(part).items():
                grants.setdefault(address, []).extend(streams)
            self.reading.settle(part.oldest)
            self._unreported_bytes += part.size
        self.reading.loop_seen(event.at_work)
        self._grant(self.reading.ask_back(grants))
        # Workers keep unreported elements for a successor of this consumer, but only up
        # to a small limit.
        pause = now - (self._asked or 0.0)
        if self.is_numbered and self._unreported_bytes >= REPORT_BYTES and pause >= REPORT_PAUSE:
            self._speak(now)
        self._ask_on(now)

    def _grant(self, grants: Grants) -> None:
        for address, streams in grants.items():
            self.links.grant(address, streams)

    def _ask_on(self, now: float) -> None:
        """Ask for a further horizon before a numbered consumer reaches the present
        one.
        """
        if self.reading.near > self._near:
            self._speak(now)

    # --- the end

    def _check_end(self, now: float) -> None:
        """End the iteration when nothing more will arrive.

        If other clients hold elements that they may never hand out, the iteration ends
        only once another client is there to receive them.
        """
        closed = self.task_list.closed or (self._is_copied and self.reading.has_ended_task)
        if not self.opened or self.finished or not self.reading.is_over(closed):
            was_done, self.links.done = self.links.done, False
            self.ending.revoke()
            if was_done and not self.finished:
                self._speak(now)  # others that are done wait to hear of a reader that stays
            return
        if self.is_numbered and self.notices.quarantine.awaited(self.task_list, self.reading, now):
            return
        if self.ending.has_come(now, self.task_list, self.lease):
            self.notices.quarantine.tell_all(self.notices.repetition)
            self._has_ended = True
            self._finish("", "", now)
        elif not self.links.done:
            self.links.done = True
            self._speak(now)

    def _finish(self, error: str, text: str, now: float, failure: bytes = b"") -> None:
        """Stop reading.

        After an error the lease never ends, because the dispatcher gives none of the
        elements held here to a loop that has ended.
        """
        if not self.finished:
            self.finished = True
            if error:
                self.lease.free()
            if self.goodbye.closing is None:
                self._do(e.Finish(error, text, failure))
            self.links.tend((), now)

    def _dispatcher_closed(self) -> None:
        """Wait for no answer any more. No report can be counted, and no dispatcher can
        give the elements held here to other clients.
        """
        self.notices.close()
        self.lease.keep()
        if self.goodbye.has_begun:
            self.goodbye.omit()

    def _shut_out(self, error: str, text: str, now: float) -> None:
        """End without a goodbye, which the server would not hear."""
        self._finish(error, text, now)
        self.goodbye.omit()

    def _close(self, now: float) -> None:
        if self.goodbye.closing is not None:
            return
        self.goodbye.close(now)
        self._finish("", "", now)
        if not self.goodbye.has_begun:
            self._leave(now)

    def _leave(self, now: float) -> None:
        if self._asked is None or self.notices.is_closed:
            self.goodbye.omit()
        else:
            self.goodbye.begin(now, at_end=self._has_ended and not self.reading.waiting)
