"""The talk about splits of a worker: the part of the worker core that brings them to
the tasks they are for.

What is known of one ledger is kept by ``core.worker.ledger``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.ledger import SplitFeed


class Fed(Protocol):
    """A task that this worker hosts."""

    feeds: list[SplitFeed]
    started: bool

    @property
    def key(self) -> tuple[int, int]: ...

    def reach(self, places: tuple[tuple[int, int], ...]) -> None: ...


class Feeding:
    """Asks for splits, hands them to runners, and gives back those that were not
    started.

    Args:
        worker: who we are.
        find: the task that an event or message is for, if it is here under that
            attempt.
        do: takes the commands that result.
    """

    def __init__(
        self, worker: str, find: Callable[[Any], Fed | None], do: Callable[[object], None]
    ) -> None:
        self._worker = worker
        self._find = find
        self._do = do
        self.events: dict[type[Any], Callable[[Any, float], None]] = {
            e.SplitsWanted: self._wanted,
            e.LedgerCut: self._ledger_cut,
            e.SplitsStarted: self._started,
        }
        self.messages: dict[type[m.Message], Callable[[e.Peer, Any, float], None]] = {
            m.SplitsAssigned: self._assigned,
            m.TakeBackSplits: self._take_back,
        }

    def _send(self, message: m.Message) -> None:
        self._do(e.Send(e.DISPATCHER, message))

    def _wanted(self, event: e.SplitsWanted, now: float) -> None:
        task = self._find(event)
        if task is None or event.have < task.feeds[event.source].have:
            return
        feed = task.feeds[event.source]
        place = (*task.key, event.source, event.repetition, feed.have, feed.cut)
        ask = m.RequestSplits(self._worker, *place, event.waiting, event.pace)
        if feed.want(ask, now):
            self._send(ask)

    def _started(self, event: e.SplitsStarted, now: float) -> None:
        task = self._find(event)
        if task is not None:
            task.reach(event.places)

    def _assigned(self, peer: e.Peer, message: m.SplitsAssigned, now: float) -> None:
        task = self._find(message)
        if task is not None and 0 <= message.source < len(task.feeds):
            fresh = task.feeds[message.source].take(message)
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

    def _give_back(self, task: Fed, source: int, entries: int, stop: int) -> None:
        place = (*task.key, source, task.feeds[source].cut, entries, stop)
        self._send(m.SplitsReturned(self._worker, *place))
