"""Taking back splits that nobody has started, for tasks that have nothing left to do:
the dispatcher's side.

What is remembered here is not durable: whoever waits asks again. What is taken back is
a fact, ``CutLedgerUpdate``. Towards the end of a repetition thousands of tasks may wait
for what thousands of others have: nothing here looks at all of either for each of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.liveness import Roster
from zmqdata.core.dispatcher.placement import WorkerFacts
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Task

PATIENCE = 1.0
REPEAT = 0.4

Place = tuple[int, int, int]
Extent = tuple[int, int, int]


@dataclass
class WaitingAsk:
    """An ask that gets what comes back, or else the end."""

    peer: e.Peer
    ask: m.RequestSplits
    since: float


class TakingBack:
    """Knows who waits for splits that others hold, and what these have started.

    Args:
        out: state and commands.
        workers: the living workers.
        facts: what is known of them.
        grant: answers an ask, with splits that came back, with the end, or by
            ``awaits``.

    Attributes:
        waiting: by place (iteration, source and repetition) and task; who waits for
            longest comes first.
        started: by iteration, and by task and source: how much there was when there was
            nothing to give back.
    """

    def __init__(
        self,
        out: Outbox,
        workers: Roster,
        facts: Mapping[str, WorkerFacts],
        grant: Callable[[e.Peer, m.RequestSplits, float], None],
    ) -> None:
        self.out = out
        self.workers = workers
        self.facts = facts
        self.waiting: dict[Place, dict[int, WaitingAsk]] = {}
        self.started: dict[int, dict[tuple[int, int], Extent]] = {}
        self._holders: dict[Place, OrderedDict[int, float]] = {}
        self._grant = grant
        self._waits_on = False
        self._ticked = 0.0

    # --- who has something

    def hosted(self, task: Task) -> None:
        """A task has a new host, which has started nothing."""
        for source, ledger in enumerate(task.ledger):
            if ledger.entries:
                self.assigned(task, source, -REPEAT)

    def assigned(self, task: Task, source: int, now: float) -> None:
        """A task has more of a source than before: it is to be asked next, but for one
        that has waited for it.
        """
        place = (task.iteration, source, task.ledger[source].entries[-1].repetition)
        holders = self._holders.get(place)
        if holders is not None and task.task not in holders:
            waited = task.task in self.waiting.get(place, {})
            holders[task.task] = now if waited else -REPEAT
            holders.move_to_end(task.task, last=waited)

    def _holders_of(self, place: Place) -> OrderedDict[int, float]:
        """The tasks that may have something that they have not started, and when each
        was asked.

        Who was never asked comes first, then who was asked longest ago.
        """
        if place not in self._holders:
            found = [task.task for task in self.out.state.iterations[place[0]].live_tasks]
            self._holders[place] = OrderedDict.fromkeys(found, -REPEAT)
        return self._holders[place]

    def _may_return(self, number: int, place: Place) -> bool:
        iteration, source, repetition = place
        task = self.out.state.tasks.get(number)
        if task is None or task.removed or task.total is not None or task.worker not in self.facts:
            return False
        entries = task.ledger[source].entries
        behind = not entries or entries[-1].is_end or entries[-1].repetition != repetition
        return not behind and self.started.get(iteration, {}).get((number, source)) != _extent(
            task, source
        )

    # --- who waits

    def awaits(self, peer: e.Peer, ask: m.RequestSplits, now: float) -> bool:
        """Whether an ask for which nothing is left has to wait: others may have what
        they have not started.

        An ask ahead of time waits, too: until there is nothing left to do, the end need
        not be known.
        """
        if not ask.waiting:
            return True
        place = (self.out.state.tasks[ask.task].iteration, ask.source, ask.repetition)
        known = self.waiting.get(place, {}).get(ask.task)
        since = now if known is None else known.since
        if now - since >= PATIENCE or not self._ask_holders(place, ask.task, now):
            self._forget(place, ask.task)
            return False
        self.waiting.setdefault(place, {})[ask.task] = WaitingAsk(peer, ask, since)
        self._waits_on = True
        return True

    def served(self, ask: m.RequestSplits) -> None:
        """Expects nothing more for an ask that got splits."""
        self._forget(
            (self.out.state.tasks[ask.task].iteration, ask.source, ask.repetition), ask.task
        )

    def _forget(self, place: Place, task: int) -> None:
        alike = self.waiting.get(place, {})
        if alike.pop(task, None) is not None and not alike:
            del self.waiting[place]

    def _ask_holders(self, place: Place, waiting: int, now: float) -> bool:
        """Asks those who may have something, but for those who were just asked; whether
        there is any.
        """
        if self.out.state.iterations[place[0]].job.num_tasks is not None:
            return False  # each task has its own
        holders = self._holders_of(place)
        holders.pop(waiting, None)  # it has started all that it was given
        while holders:
            number, asked = next(iter(holders.items()))
            if not self._may_return(number, place):
                del holders[number]
            elif now - asked < REPEAT:
                return True
            else:
                holders[number] = now
                holders.move_to_end(number)
                task = self.out.state.tasks[number]
                self.ask(self.workers.peer(task.worker), task, place[1])
        return False

    def ask(self, peer: e.Peer | None, task: Task, source: int) -> None:
        """Asks a worker for what it has not started of a ledger, or what it had not
        when it was asked before.
        """
        self.out.send(
            peer, m.TakeBackSplits(task.task, task.attempt, source, task.cuts.get(source, 0) + 1)
        )

    def take(self, peer: e.Peer, report: m.SplitsReturned, now: float) -> None:
        """Takes what a worker gives back, each cut once, and passes it on to those who
        wait.
        """
        task = self.out.state.tasks.get(report.task)
        if (
            task is None
            or (task.worker, task.attempt) != (report.worker, report.attempt)
            or task.total is not None
        ):
            return
        if not 0 <= report.source < len(task.ledger):
            return
        ledger, cut = task.ledger[report.source], task.cuts.get(report.source, 0)
        if report.cut == cut + 1:
            if ledger.parted(report.entries, report.stop) is None:
                return
            self.out.commit(
                u.CutLedgerUpdate(
                    task.task,
                    source=report.source,
                    cut=report.cut,
                    entries=report.entries,
                    stop=report.stop,
                )
            )
        elif report.cut != cut:
            return
        if report.cut > cut or report.entries == ledger.length:
            self._keeps_all(task, report.source)
        # Else it has more by now, or the end: then nobody waits for it any longer.
        for where in [
            where for where in self.waiting if where[:2] == (task.iteration, report.source)
        ]:
            self._pass_on(where, now)

    def _keeps_all(self, task: Task, source: int) -> None:
        """It has started all that it has of a source, and is not asked again before it
        has more.
        """
        self.started.setdefault(task.iteration, {})[task.task, source] = _extent(task, source)
        for where, holders in self._holders.items():
            if where[:2] == (task.iteration, source):
                holders.pop(task.task, None)

    def _pass_on(self, place: Place, now: float) -> None:
        """Answers those that wait, up to the first that has to wait on: those behind it
        would, too.
        """
        for waiting in list(self.waiting.get(place, {}).values()):
            self._waits_on = False
            self._grant(waiting.peer, waiting.ask, now)
            if self._waits_on:
                break

    def tick(self, now: float) -> None:
        """Asks again, ends waits that were too long, and forgets what is over."""
        if now - self._ticked < REPEAT:
            return
        self._ticked = now
        iterations = self.out.state.iterations
        for place in [place for place in self._holders if self._is_over(place)]:
            del self._holders[place]
        for number in [number for number in self.started if number not in iterations]:
            del self.started[number]
        for place, alike in list(self.waiting.items()):
            for task in [
                number for number, waiting in alike.items() if not self._is_there(waiting)
            ]:
                self._forget(place, task)
            self._pass_on(place, now)

    def _is_over(self, place: Place) -> bool:
        iteration, source, repetition = place
        one = self.out.state.iterations.get(iteration)
        return one is None or (
            place not in self.waiting and repetition < one.cursors[source].repetition
        )

    def _is_there(self, waiting: WaitingAsk) -> bool:
        task = self.out.state.tasks.get(waiting.ask.task)
        return (
            task is not None
            and task.attempt == waiting.ask.attempt
            and bool(task.worker)
            and task.total is None
        )


def _extent(task: Task, source: int) -> Extent:
    return task.attempt, task.cuts.get(source, 0), task.ledger[source].length
