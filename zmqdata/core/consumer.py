"""The client's decider: what is said to the dispatcher and to workers, and when it is over.

One for each iterator. Knows no socket, no queue and no clock; decoding is the shell's, elements are opaque here. What
is read of each task is kept by ``core.reading``, links by ``core.readlinks``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata.core.reading import Reading, ReadTask
from zmqdata.core.readlinks import LinkProfile, ReadLinks
from zmqdata.core.standing import Standing
from zmqdata.core.stepping import Stepping
from zmqdata.errors import NotFoundError, ResourceExhaustedError

HEARTBEAT = 1.0
REPEAT = 1.0
SAY_SO_AFTER = 5.0
WAITING_AFTER = 10.0
GOODBYE = 2.0
MOST_BREACHES = 3
REPORT_BYTES = 4 << 20
LINK_PATIENCE = 30.0
"""Seconds to go without a link that a worker cannot have: others may end meanwhile, and leave their ports."""
REPORT_PAUSE = 0.1


@dataclass(frozen=True)
class ConsumerProfile:
    """Who reads what.

    ``dispatcher_timeout`` is how many seconds to do without a dispatcher before giving up; ``heartbeat``: seconds
    between two reports; ``local_workers`` and ``process``: who is in our own process, and its secret; ``resume``: the
    encoded checkpoint from which to go on.
    """

    client: str
    job: m.JobParameters
    repetition: int
    service: str
    dispatcher_timeout: float = 3600.0
    heartbeat: float = HEARTBEAT
    max_outstanding: int | None = None
    host: str = ""
    transports: tuple[str, ...] = ("ipc", "tcp")
    reader: m.Reader = field(default_factory=m.Reader)
    local_workers: tuple[str, ...] = ()
    process: str = ""
    resume: bytes = b""


class ConsumerCore:
    """Decides for one iterator of a training loop.

    Args:
        profile: who reads what.
    """

    def __init__(self, profile: ConsumerProfile) -> None:
        self.profile = profile
        self.opened = False
        self.finished = False
        self.task_list = m.TaskList(-1, (), False)
        self.is_numbered = profile.reader.consumer_index is not None
        self.reading = (Stepping if self.is_numbered else Reading)(profile.max_outstanding, self._do)
        who = LinkProfile(profile.client, profile.host, profile.transports, profile.reader, profile.process)
        self.links = ReadLinks(who, self._do, self.reading.grants)
        self.standing = Standing(profile.client, profile.job, profile.repetition, profile.reader, self.reading)
        self._commands: list[object] = []
        self._began: float | None = None
        self._asked: float | None = None
        self._near = 0
        self._awaited = ""
        self._unreported_bytes = 0
        self._heard = 0.0
        self._said = -WAITING_AFTER
        self._skipped: dict[str, int] = {}
        self._told_skipped = 0
        self._starving: float | None = None
        self._leaving = self._left = False
        self._closing: float | None = None
        self._handlers: dict[type[Any], Callable[[Any, float], None]] = {
            c.Received: self._received,
            c.Tick: lambda event, now: self._tick(now),
            c.Arrived: self._arrived,
            c.HandedOut: self._handed_out,
            c.LinkBroken: lambda event, now: self.links.broken(event, now),
            c.CloseRequested: lambda event, now: self._close(now),
        }
        self._messages: dict[type[m.Message], Callable[[Any, float], None]] = {
            m.IterationOpened: self._iteration_opened,
            m.ResumeAwaited: self._resume_awaited,
            m.ClientHeartbeatAnswered: self._heartbeat_answered,
            m.TasksChanged: lambda message, now: self._take_list(message.task_list, now),
            m.RequestRefused: self._refused,
            m.RequestHoldings: self._holdings,
            m.IterationClosed: self._iteration_closed,
            m.LinkOpened: self.links.opened,
            m.LinkRefused: self._link_refused,
            m.LinkReported: self._link_reported,
        }

    def handle(self, now: float, event: object) -> list[object]:
        """Takes an event noticed at ``now``; returns what to do."""
        if self._began is None:
            self._began = self._heard = now
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, now)
        if self._is_over:
            self._finish("", "", now)
        if self.finished and not self.reading.waiting and not self._leaving:
            self._leave(now)
        commands, self._commands = self._commands, []
        return commands

    def _do(self, command: object) -> None:
        self._commands.append(command)

    def _send(self, message: m.Message) -> None:
        self._commands.append(c.Send(c.DISPATCHER, message))

    def _received(self, event: c.Received, now: float) -> None:
        if event.peer == c.DISPATCHER:
            self._heard = now
        handler = self._messages.get(type(event.message))
        if handler is not None:
            handler(event.message, now)

    # --- the dispatcher

    def _tick(self, now: float) -> None:
        if self._leaving:
            self._tick_leaving(now)
            return
        if self._asked is None or now - self._asked >= self.profile.heartbeat:
            self._speak(now)
        self.links.tick(now)
        if not self.finished:
            self._complain(now)
            self._tell_what_is_skipped(now)

    def _speak(self, now: float) -> None:
        self._asked = now
        who = self.profile
        if self.opened:
            report, delivered, steps = self._next_report()
            self._near = self.reading.near
            self._unreported_bytes = 0
            self._send(m.ClientHeartbeat(who.client, self.task_list.version, report, delivered, steps, self._near))
        else:
            self._send(m.OpenIteration(who.client, who.job, who.repetition, who.reader, who.local_workers, who.resume))

    def _next_report(self) -> tuple[int, dict[int, m.Ranges], int]:
        self.reading.collect_report()
        return self.reading.report, self.reading.unreported, self.reading.steps

    def _iteration_opened(self, message: m.IterationOpened, now: float) -> None:
        if message.client == self.profile.client:
            if not self.opened:
                self._tell_what_is_gone(message)
                self.reading.begin(message.step)
                resumed = m.decode_checkpoint(self.profile.resume) if self.profile.resume else None
                self.standing.begin(message, resumed)
                if resumed is not None and resumed.order and not self.is_numbered:
                    # An operation behind had elements, which have to come again as they came then.
                    self.reading.keep_order(list(resumed.order), self.standing.indices)
            self.opened = True
            self._take_list(message.task_list, now)

    def _resume_awaited(self, message: m.ResumeAwaited, now: float) -> None:
        if message.client == self.profile.client:
            self._awaited = message.missing

    def _tell_what_is_gone(self, message: m.IterationOpened) -> None:
        if self.is_numbered:
            if message.step:
                who = f"consumer {self.profile.reader.consumer_index} of job {self.profile.job.name!r}"
                self._do(c.Note("info", f"{who} goes on at step {message.step}, where the one before it was"))
        elif message.delivered and not self.profile.resume and (message.finished or not message.shared):
            job = self.profile.job.name
            rest = "nothing is left" if message.finished else "this client gets the rest"
            text = (
                f"job {job!r}, repetition {self.profile.repetition}: {message.delivered} elements were delivered "
                f"before this client joined; {rest}. Use another job_name to read it again from the beginning"
            )
            self._do(c.Note("warning", text))

    def _heartbeat_answered(self, message: m.ClientHeartbeatAnswered, now: float) -> None:
        self.reading.acknowledge(message.report)
        if message.task_list is not None:
            self._take_list(message.task_list, now)

    def _refused(self, message: m.RequestRefused, now: float) -> None:
        if message.request == self.profile.client:
            self._finish(message.error, message.text, now, message.failure)

    def _link_refused(self, message: m.LinkRefused, now: float) -> None:
        """Tries again later, but where two sides can never talk: the elements of that worker would not come."""
        if message.error == "InvalidArgumentError" and message.link in self.links.by_name:
            # tf.data's class for a transport that a worker has not.
            self._finish(NotFoundError.__name__, message.text, now)
        else:
            self.links.refused(message, now)

    def _holdings(self, ask: m.RequestHoldings, now: float) -> None:
        task = self.reading.task(ask.task)
        if ask.attempt > task.place.attempt:
            self.reading.move(task, m.TaskPlace(ask.task, ask.attempt, "", ""))
        self._send(m.HoldingsReported(self.profile.client, ask.task, ask.attempt, task.received.ranges))

    # --- tasks and their elements

    def _take_list(self, task_list: m.TaskList, now: float) -> None:
        # Before it is told where it begins, a numbered consumer cannot say what it lacks.
        too_early = self.is_numbered and not self.opened
        if task_list.version < self.task_list.version or self.finished or too_early:
            return
        self.task_list = task_list
        self.standing.list(task_list)
        self.reading.list(task_list)
        self.links.tend(self.reading.addresses, now)
        self._ask_on(now)

    def _arrived(self, event: c.Arrived, now: float) -> None:
        if not self.links.count(event, now):
            return
        header = event.header
        task = self.reading.current(header)
        if task is None:
            return
        if isinstance(header, m.EndOfTask):
            self.reading.end(task, header.total)
            return
        if isinstance(header, m.Lineage):
            self.standing.take(header)
            return
        breach = self.reading.take(task, header, event.content)
        if breach:
            self._reject(task, event, breach, now)

    def _reject(self, task: ReadTask, event: c.Arrived, breach: str, now: float) -> None:
        """Our memory is ours to give away: a worker that takes more breaks its link, and in the end the iteration."""
        self.links.reject(event, breach, now)
        if task.window.breaches >= MOST_BREACHES:
            text = (
                f"The worker at {task.place.address} goes on sending more than it may: {breach}. Restart that worker."
            )
            self._finish("DataLossError", text, now)

    def _link_reported(self, message: m.LinkReported, now: float) -> None:
        self.links.reported(message, now)
        self._skipped[message.link] = message.skipped

    def _tell_what_is_skipped(self, now: float) -> None:
        skipped = sum(self._skipped.values())
        if skipped > self._told_skipped and now - self._said >= WAITING_AFTER:
            self._said, fresh, self._told_skipped = now, skipped - self._told_skipped, skipped
            text = (
                f"{fresh} elements fell out of the cross-trainer cache of job {self.profile.job.name!r} before trainer "
                f"{self.profile.reader.trainer_id!r} read them: others are faster. Give workers a larger "
                "cross_trainer_cache_size_bytes, or this training job more time"
            )
            self._do(c.Note("warning", text))

    def _handed_out(self, event: c.HandedOut, now: float) -> None:
        grant = self.reading.hand_out(event)
        self.reading.settle(event.oldest)
        if grant is not None:
            self.links.grant(self.reading.tasks[event.task].place.address, grant)
        self._unreported_bytes += event.size
        self._report_soon(now)
        self._ask_on(now)

    def _report_soon(self, now: float) -> None:
        """Workers keep for a successor what is not reported yet, but not much of it."""
        pause = now - (self._asked or 0.0)
        if self.is_numbered and self._unreported_bytes >= REPORT_BYTES and pause >= REPORT_PAUSE:
            self._speak(now)

    def _ask_on(self, now: float) -> None:
        """Has the horizon moved before a numbered consumer gets there."""
        if self.reading.near > self._near:
            self._speak(now)

    def checkpoint(self, place: int) -> m.Checkpoint:
        """Where the training loop was after so many elements of this iterator, which it may go back to."""
        return self.standing.checkpoint(place)

    # --- silence

    def _complain(self, now: float) -> None:
        silence = now - self._heard
        if silence >= self.profile.dispatcher_timeout and not self.reading.waiting:
            text = (
                f"The dispatcher at {self.profile.service} has not answered for {silence:.0f} s "
                f"(dispatcher_timeout={self.profile.dispatcher_timeout:g} s). Is it running, and can this machine "
                "reach it?"
            )
            self._finish("UnavailableError", text, now)
            return
        idle = (self.opened or self._awaited) and not self.reading.waiting
        self._starving = (self._starving if self._starving is not None else now) if idle else None
        starved = now - self._starving if self._starving is not None else 0.0
        refused = self.links.refused_for(LINK_PATIENCE, now) if starved >= LINK_PATIENCE else None
        if refused is not None:
            text = f"Worker {refused.address} has refused a link for {LINK_PATIENCE:g} s: {refused.reason}."
            self._finish(ResourceExhaustedError.__name__, text, now)
            return
        late = silence >= SAY_SO_AFTER or starved >= WAITING_AFTER
        if late and now - self._said >= WAITING_AFTER:
            self._said = now
            self._do(c.Note("warning", self._what_is_missing(silence, starved)))

    def _what_is_missing(self, silence: float, starved: float) -> str:
        if silence >= SAY_SO_AFTER:
            return (
                f"no answer from the dispatcher at {self.profile.service} for {silence:.0f} s; still trying "
                f"(dispatcher_timeout={self.profile.dispatcher_timeout:g} s)"
            )
        if not self.opened:
            return f"waiting for {starved:.0f} s for {self._awaited}"
        if not self.task_list.tasks and not self.task_list.closed:
            return f"waiting for {starved:.0f} s: no worker has registered at {self.profile.service}"
        plan = self.task_list.plan
        if plan is not None and plan.missing:
            names = ", ".join(map(str, plan.missing))
            return f"waiting for {starved:.0f} s for consumer {names} of job {self.profile.job.name}, who is not there"
        places = [self.reading.tasks[number].place for number in self.reading.unended]
        names = ", ".join(sorted({place.address or "a new host" for place in places})) or "the end of the iteration"
        return f"waiting for elements for {starved:.0f} s, from {names}"

    # --- the end

    @property
    def _is_over(self) -> bool:
        return self.opened and self.reading.is_over(self.task_list.closed)

    def _finish(self, error: str, text: str, now: float, failure: bytes = b"") -> None:
        """Reads no more: nobody may be left waiting for elements given to a training loop that has ended."""
        if not self.finished:
            self.finished = True
            if self._closing is None:
                self._do(c.Finish(error, text, failure))
            self.links.tend((), now)

    def _close(self, now: float) -> None:
        if self._closing is not None:
            return
        self._closing = now
        self._finish("", "", now)
        if self._left:
            self._do(c.Closed())
        elif not self._leaving:
            self._leave(now)

    def _leave(self, now: float) -> None:
        self._leaving = True
        if self._asked is None:
            self._iteration_closed(m.IterationClosed(self.profile.client), now)
        else:
            self._goodbye(now)

    def _goodbye(self, now: float) -> None:
        self._asked = now
        self._send(m.CloseIteration(self.profile.client, *self._next_report()))

    def _tick_leaving(self, now: float) -> None:
        if self._left:
            return
        if self._closing is not None and now - self._closing >= GOODBYE:
            self._iteration_closed(m.IterationClosed(self.profile.client), now)
        elif self._asked is None or now - self._asked >= REPEAT / 2:
            self._goodbye(now)

    def _iteration_closed(self, message: m.IterationClosed, now: float) -> None:
        if self._leaving and not self._left and message.client == self.profile.client:
            self._left = True
            if self._closing is not None:
                self._do(c.Closed())
