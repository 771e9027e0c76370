"""The worker's messages about splits, and their dispatch to the tasks concerned.

``core.worker.ledger`` keeps the copy of each ledger.

Decision 0012; protocol 5.2 and 5.6 to 5.9.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqdata import messages as m
from zmqdata.core.lineage import WrittenBefore
from zmqdata.core.worker import events as e
from zmqdata.core.worker.tasks import HostedTask


class Feeding:
    """Requests splits, passes them to runners, and returns splits that were not
    started.

    Args:
        worker: id of this worker.
        find: returns the task of an event or message, or None if this worker does not
            host that attempt.
        do: receives the resulting commands.

    Attributes:
        written: what dispatchers had written of the iterations of the tasks.
    """

    def __init__(
        self,
        worker: str,
        find: Callable[[e.OfTask], HostedTask | None],
        do: Callable[[e.WorkerCommand], None],
    ) -> None:
        self.written = WrittenBefore()
        self._worker = worker
        self._find = find
        self._do = do
        self.events = e.Handlers()
        self.events.on(e.SplitsWanted, self._wanted)
        self.events.on(e.LedgerCut, self._ledger_cut)
        self.events.on(e.SplitsStarted, self._started)
        self.messages = e.PeerHandlers()
        self.messages.on(m.SplitsAssigned, self._assigned)
        self.messages.on(m.TakeBackSplits, self._take_back)

    def _send(self, message: m.Message) -> None:
        self._do(e.Send(e.DISPATCHER, message))

    def _wanted(self, event: e.SplitsWanted, now: float) -> None:
        task = self._find(event)
        if task is None or event.have < task.feeds[event.source].have:
            return
        feed = task.feeds[event.source]
        ask = m.RequestSplits(
            self._worker,
            *task.key,
            source=event.source,
            repetition=event.repetition,
            have=feed.have,
            cut=feed.cut,
            waiting=event.waiting,
            pace=event.pace,
            produced=event.produced,
        )
        if feed.want(ask, now):
            self._send(ask)

    def _started(self, event: e.SplitsStarted, now: float) -> None:
        task = self._find(event)
        if task is not None:
            task.reach(event.places)

    def _assigned(self, peer: e.Peer, message: m.SplitsAssigned, now: float) -> None:
        task = self._find(message)
        if task is not None and 0 <= message.source < len(task.feeds):
            self.written.record(message.written)
            task.written = message.written
            fresh = task.feeds[message.source].append(message)
            if fresh:
                self._do(e.FeedSplits(*task.key, message.source, fresh))

    def _take_back(self, peer: e.Peer, message: m.TakeBackSplits, now: float) -> None:
        task = self._find(message)
        if task is None or not 0 <= message.source < len(task.feeds):
            return
        feed = task.feeds[message.source]
        if message.cut == feed.cut:
            self._give_back(task, message.source, feed.kept, feed.stop)
        elif message.cut == feed.cut + 1:
            if task.started:
                self._do(e.ReturnSplits(*task.key, message.source))
            else:
                self._give_back(task, message.source, feed.have, 0)

    def _ledger_cut(self, event: e.LedgerCut, now: float) -> None:
        task = self._find(event)
        if task is None:
            return
        feed = task.feeds[event.source]
        if event.changed:
            feed.shorten(event.entries, event.stop)
        self._give_back(task, event.source, event.entries, event.stop)
        if event.changed and feed.ask is not None:
            self._send(feed.ask)

    def _give_back(self, task: HostedTask, source: int, entries: int, stop: int) -> None:
        self._send(
            m.SplitsReturned(
                self._worker,
                *task.key,
                source=source,
                cut=task.feeds[source].cut,
                entries=entries,
                stop=stop,
            )
        )
