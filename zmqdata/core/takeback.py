"""Taking back splits that nobody has started, for tasks that have nothing left to do: the dispatcher's side.

What is remembered here is not durable: whoever waits asks again. What is taken back is a fact, ``CutLedgerUpdate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.liveness import Roster
from zmqdata.core.outbox import Outbox
from zmqdata.core.placement import WorkerFacts
from zmqdata.core.state import Task

PATIENCE = 1.0
REPEAT = 0.4


@dataclass
class Waiting:
    """An ask that gets what comes back, or else the end."""

    peer: c.Peer
    ask: m.RequestSplits
    since: float


class TakingBack:
    """Knows who waits for splits that others hold, and what these have started.

    Args:
        out: state and commands.
        workers: the living workers.
        facts: what is known of them.
        grant: answers an ask, with splits that came back, with the end, or by ``awaits``.
    """

    def __init__(
        self,
        out: Outbox,
        workers: Roster,
        facts: Mapping[str, WorkerFacts],
        grant: Callable[[c.Peer, m.RequestSplits, float], None],
    ) -> None:
        self.out = out
        self.workers = workers
        self.facts = facts
        self.waiting: dict[tuple[int, int], Waiting] = {}
        self.started: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._grant = grant
        self._asked: dict[tuple[int, int], float] = {}
        self._ticked = 0.0

    def awaits(self, peer: c.Peer, ask: m.RequestSplits, now: float) -> bool:
        """Whether an ask for which nothing is left has to wait: others may have what they have not started.

        An ask ahead of time waits, too: until there is nothing left to do, the end need not be known.
        """
        if not ask.waiting:
            return True
        key = (ask.task, ask.source)
        since = self.waiting[key].since if key in self.waiting else now
        holders = self._holders(ask) if now - since < PATIENCE else []
        if not holders:
            self.waiting.pop(key, None)
            return False
        self.waiting[key] = Waiting(peer, ask, since)
        for task in holders:
            self._ask(task, ask.source, now)
        return True

    def served(self, ask: m.RequestSplits) -> None:
        """Expects nothing more for an ask that got splits."""
        self.waiting.pop((ask.task, ask.source), None)

    def _holders(self, ask: m.RequestSplits) -> list[Task]:
        iteration = self.out.state.iterations[self.out.state.tasks[ask.task].iteration]
        if iteration.job.num_tasks is not None:
            return []  # each task has its own
        others = (task for task in iteration.live_tasks if task.task != ask.task)
        return [task for task in others if self._may_return(task, ask.source, ask.repetition)]

    def _may_return(self, task: Task, source: int, repetition: int) -> bool:
        entries = task.ledger[source].entries
        if task.total is not None or task.worker not in self.facts or not entries:
            return False
        last = entries[-1]
        behind = last.is_end or last.repetition != repetition
        return not behind and self.started.get((task.task, source)) != self._extent(task, source)

    def _extent(self, task: Task, source: int) -> tuple[int, int, int]:
        return task.attempt, task.cuts.get(source, 0), task.ledger[source].length

    def _ask(self, task: Task, source: int, now: float) -> None:
        key = (task.task, source)
        if now - self._asked.get(key, -REPEAT) >= REPEAT:
            self._asked[key] = now
            self.ask(self.workers.peer(task.worker), task, source)

    def ask(self, peer: c.Peer | None, task: Task, source: int) -> None:
        """Asks a worker for what it has not started of a ledger, or what it had not when it was asked before."""
        self.out.send(peer, m.TakeBackSplits(task.task, task.attempt, source, task.cuts.get(source, 0) + 1))

    def take(self, peer: c.Peer, report: m.SplitsReturned, now: float) -> None:
        """Takes what a worker gives back, each cut once, and passes it on to those who wait."""
        task = self.out.state.tasks.get(report.task)
        if task is None or (task.worker, task.attempt) != (report.worker, report.attempt) or task.total is not None:
            return
        if not 0 <= report.source < len(task.ledger):
            return
        ledger, cut = task.ledger[report.source], task.cuts.get(report.source, 0)
        if report.cut == cut + 1:
            if ledger.parted(report.entries, report.stop) is None:
                return
            place = (report.source, report.cut, report.entries, report.stop)
            self.out.commit(u.CutLedgerUpdate(task.task, *place))
        elif report.cut != cut or report.entries != ledger.length:
            return
        key = (task.task, report.source)
        self.started[key] = self._extent(task, report.source)
        self._asked.pop(key, None)
        self._pass_on(task.iteration, report.source, now)

    def _pass_on(self, iteration: int, source: int, now: float) -> None:
        for waiting in list(self.waiting.values()):
            task = self.out.state.tasks.get(waiting.ask.task)
            if task is not None and task.iteration == iteration and waiting.ask.source == source:
                self._grant(waiting.peer, waiting.ask, now)

    def tick(self, now: float) -> None:
        """Asks again, ends waits that were too long, and forgets what is over."""
        if now - self._ticked < REPEAT:
            return
        self._ticked = now
        tasks = self.out.state.tasks
        for key, waiting in list(self.waiting.items()):
            task = tasks.get(key[0])
            if task is None or task.attempt != waiting.ask.attempt or not task.worker or task.total is not None:
                del self.waiting[key]
            else:
                self._grant(waiting.peer, waiting.ask, now)
        for known in (self.started, self._asked):
            for key in [key for key in known if key[0] not in tasks]:
                del known[key]
