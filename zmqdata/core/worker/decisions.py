"""The worker's side of decisions. Decisions become durable before anything that was
produced after them is sent.

Until then, later events of the task wait here in order. A long round trip to the
dispatcher makes the waiting portions larger, not more numerous.

Decision 0028; protocol 8.4a.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.lineage import Held
from zmqdata.core.worker.tasks import HostedTask
from zmqdata.decisions import Decisions

MOST_TOLD = 10_000
"""Approximate maximum number of decisions in a message. It exceeds the decisions of one
round trip, and keeps the message far below its usual size limit.
"""
MOST_KEPT = 50_000
"""Number of decisions above which the worker forgets those that no attempt needs any
more. Until then it keeps them for clients that join late.
"""


class Agreeing:
    """Reports decisions to the dispatcher, and holds back later events until it
    acknowledges them.

    Args:
        worker: id of this worker.
        find: returns the task of an event or message, or None if this worker does not
            host that attempt.
        do: receives the resulting commands.
        handlers: handlers for the events that were held back, by class of event.
    """

    def __init__(
        self,
        worker: str,
        find: Callable[[e.OfTask], HostedTask | None],
        do: Callable[[e.WorkerCommand], None],
        handlers: e.Handlers,
    ) -> None:
        self._worker = worker
        self._find = find
        self._do = do
        self._handlers = handlers
        self.events = e.Handlers()
        self.events.on(e.Decided, self._decided)
        self.messages = e.PeerHandlers()
        self.messages.on(m.DecisionsKept, self._kept)

    def holds(self, event: e.WorkerEvent) -> bool:
        """Return True if an event must wait for an acknowledgement; it is then queued
        here.
        """
        if not isinstance(event, Held):
            return False
        task = self._find(event)
        if task is None or task.agreement.ask is None:
            return False
        task.agreement.waiting.append(event)
        return True

    def _decided(self, event: e.Decided, now: float) -> None:
        task = self._find(event)
        if task is None:
            return
        task.agreement.waiting.append(event)
        if task.agreement.ask is None:
            self._ask(task, now)

    def _ask(self, task: HostedTask, now: float) -> None:
        """Report all decisions known so far, up to a limit. They include decisions made
        after the event that waits.
        """
        one = task.agreement
        told, growing = Decisions(), 0
        rest: deque[Held | e.Decided] = deque()
        for event in one.waiting:
            if not isinstance(event, e.Decided) or len(told.entries) >= MOST_TOLD:
                rest.append(event)
                continue
            if not told.entries:
                told.base = event.first
            told.take(event.first, event.decisions)
            growing = event.first
        one.waiting = rest
        one.ask = m.ElementsDecided(
            self._worker, *task.key, one.version + 1, told.base, tuple(told.entries)
        )
        one.asked = now
        one.growing_then = growing
        self._do(e.Send(e.DISPATCHER, one.ask))

    def _kept(self, peer: e.Peer, message: m.DecisionsKept, now: float) -> None:
        task = self._find(message)
        if (
            task is None
            or task.agreement.ask is None
            or task.agreement.ask.report != message.report
        ):
            return
        one = task.agreement
        assert one.ask is not None
        one.kept.take(one.ask.first, one.ask.decisions)
        if len(one.kept.entries) > MOST_KEPT:
            one.kept.trim(message.needed)
        one.version, one.growing, one.ask = one.ask.report, one.growing_then, None
        # Decisions made during the round trip hold back the events after them, but no
        # event before them.
        while one.waiting and not isinstance(one.waiting[0], e.Decided):
            event = one.waiting.popleft()
            self._handlers[type(event)](event, now)
        if one.waiting:
            self._ask(task, now)
