"""The worker's side of decisions: they are durable before anybody sees what was made
since.

That waits here, in order. A long way to the dispatcher makes the portions that wait
larger, not more.
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
"""Decisions in an ask, about: more than are made in a round trip, and far from the
usual limit of a message.
"""
MOST_KEPT = 50_000
"""Decisions that are kept for clients that come late though no attempt needs them any
more.
"""


class Agreeing:
    """Tells the dispatcher what was decided, and holds back what was made since until
    it knows.

    Args:
        worker: who we are.
        find: the task that an event or message is for, if it is here under that
            attempt.
        do: takes the commands that result.
        handlers: by kind of event, what takes one that was held back.
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
        """Whether an event has to wait; then it does, here."""
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
        """Tells what is known by now, which is more than what waits for it; of very
        much the beginning.
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
        # What was decided while this was under way holds back what came behind it, and
        # nothing before.
        while one.waiting and not isinstance(one.waiting[0], e.Decided):
            event = one.waiting.popleft()
            self._handlers[type(event)](event, now)
        if one.waiting:
            self._ask(task, now)
