"""Splits: which worker gets which split, and from which worker unstarted splits are
taken back for tasks that have run out of splits.

Nothing kept here is durable: waiting workers repeat their requests. Assigned splits,
listed files and cut ledgers are durable facts of ``core.dispatcher.state``. Towards the
end of a repetition thousands of tasks may wait for the splits of thousands of others.
No code here may therefore scan all tasks for each waiting task.

Decisions 0004, 0012 and 0044; protocol 5.1 to 5.9.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.passes.resuming import changed_files
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.saving import GrowingSaves
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.core.dispatcher.tasks.placement import WorkerFacts
from zmqdata.core.ledger import (
    MOST_AHEAD,
    MOST_OVER,
    RAMP_SECONDS,
    lease_seconds,
    lease_size,
    own_lease_size,
)
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import DataLossError, NotFoundError
from zmqdata.splits import ChunkSplits, FileSplits, IndexSplits, turn_of

PATIENCE = 1.0
"""Seconds for which a task waits for splits of other tasks."""
FORGETS_EVERY = 10.0
"""Seconds between two looks for tasks that are over."""
REPEAT = 0.4
"""Seconds between two requests to the same holder."""

Place = tuple[int, int, int]
"""Iteration, source and repetition."""
Extent = tuple[int, int, int]
"""Attempt, number of cuts and length of a ledger."""


@dataclass
class WaitingAsk:
    """A request for splits that waits for returned splits or the end mark."""

    peer: e.Peer
    """Peer of the worker."""
    ask: m.RequestSplits
    """The request."""
    since: float
    """When the task began to wait."""


class SplitAssigner:
    """Assigns splits to the tasks that request them, and takes back unstarted splits
    once no others are left.

    Args:
        out: state and commands.
        workers: the living workers.
        hosting: what is known of workers, and how an iteration ends.
    """

    def __init__(self, out: Outbox, workers: Roster, hosting: Hosting) -> None:
        self.out = out
        self.workers = workers
        self.hosting = hosting
        self.taking_back = TakingBack(out, workers, hosting.facts, self.request)
        self.filling = Filling()
        self.growing = GrowingSaves(out, hosting, self.request)
        self._ticked = 0.0
        self._listing: dict[Place, list[tuple[e.Peer, m.RequestSplits]]] = {}
        self._full: dict[Place, dict[int, tuple[e.Peer, m.RequestSplits]]] = {}

    def request(self, peer: e.Peer, ask: m.RequestSplits, now: float) -> None:
        """Answer a request with the splits that follow those which the worker has."""
        task = self.out.state.tasks.get(ask.task)
        if task is None or not task.runs(ask.worker, ask.attempt):
            self.out.send(peer, m.DropTask(ask.task, ask.attempt))
            return
        if ask.worker not in self.workers:
            return  # a worker of a former life; it asks again once it has registered
        if not 0 <= ask.source < len(task.ledger):
            return
        ledger = task.ledger[ask.source]
        if not ledger.base <= ask.have <= ledger.length:
            return
        cut = task.cuts.get(ask.source, 0)
        if ask.cut != cut:
            if ask.cut > cut:  # the worker returned splits, and its report is missing
                self.taking_back.ask(peer, task, ask.source)
            return
        if ask.have == ledger.length and not self._extend(peer, ask, task, now):
            return
        self.taking_back.stop_waiting(ask)
        self.out.send(
            peer,
            m.SplitsAssigned(
                task=ask.task,
                attempt=ask.attempt,
                source=ask.source,
                first=ask.have,
                splits=ledger.since(ask.have),
                cut=cut,
                written=self.out.counts_of(self.out.state.iterations[task.iteration]),
            ),
        )

    def _extend(self, peer: e.Peer, ask: m.RequestSplits, task: Task, now: float) -> bool:
        """Add an entry to the ledger. Return False if files must be listed first,
        splits may come back, or the ledger has ended.
        """
        if task.ledger[ask.source].ends(ask.repetition):
            return False  # a source ignores splits behind its end
        iteration = self.out.state.iterations[task.iteration]
        cursor = iteration.cursor(task, ask.source)
        if cursor.needs_listing(ask.repetition):
            if isinstance(cursor.source, ChunkSplits):
                # Other tasks may have chunks that they have not started.
                self.taking_back.awaits(peer, ask, now)
                self.growing.wait(peer, ask, iteration, now)
            else:
                self._list_files(peer, ask, iteration)
            return False
        if self._extend_by_repetitions(ask, task, iteration, now):
            return True
        if cursor.peek(ask.repetition, 1).is_end and self.taking_back.awaits(peer, ask, now):
            return False
        leases = self.hosting.facts[task.worker].leases.setdefault(task.task, {})
        size, since = leases.get(ask.source, (0, now))
        seconds = lease_seconds(size, ask.pace, now - since)
        if iteration.job.num_tasks is None:
            size = lease_size(size, seconds, cursor.remaining(ask.repetition), iteration.running)
        else:
            size = own_lease_size(size, seconds)
        if iteration.job.num_tasks is None and not cursor.peek(ask.repetition, 1).is_end:
            most = self.filling.most(ask, cursor.count(ask.repetition), iteration.running, now)
            if not most:
                place = (iteration.iteration, ask.source, ask.repetition)
                self._full.setdefault(place, {})[ask.task] = (peer, ask)
                return False
            size = min(size, most)
        split = cursor.peek(ask.repetition, size)
        self.filling.record_lease(ask, split.size)
        leases[ask.source] = (size, now)
        self.out.commit(u.AssignSplitsUpdate(task.task, ask.source, split))
        self.taking_back.record_assigned(task, ask.source, now)
        self.hosting.close_if_ended(iteration)
        if cursor.peek(ask.repetition, 1).is_end:
            self._end_filling((iteration.iteration, ask.source, ask.repetition), now)
        return True

    def _extend_by_repetitions(
        self, ask: m.RequestSplits, task: Task, iteration: Iteration, now: float
    ) -> bool:
        """Add the ends of repetitions that are over, and short repetitions with their
        ends, to the ledger of a source that is repeated without end. Return False if
        there are none.

        An answer for each of them would take longer than the elements.
        """
        cursor, repetition = iteration.cursor(task, ask.source), ask.repetition
        dataset = self.out.state.datasets[iteration.job.dataset_id]
        is_endless = dataset.cardinality == INFINITE_CARDINALITY
        is_listed = isinstance(cursor.source, IndexSplits)
        count = cursor.remaining(cursor.repetition + 1) if is_listed else None
        if not (ask.waiting and repetition and is_endless and count):
            return False
        splits = RAMP_SECONDS / ask.pace if ask.pace else 0.0
        most = MOST_AHEAD // max(1, iteration.running) if count <= splits else 0
        while repetition < ask.repetition + MOST_OVER:
            left, is_over = cursor.remaining(repetition) or 0, repetition < cursor.repetition
            if (left or not is_over) and (not most or left > splits):
                break
            if not left and not is_over and repetition == ask.repetition:
                break  # other tasks may have splits that they have not started
            most, splits = most - bool(left), splits - left
            self._add_rest(ask, task, iteration, repetition, now)
            repetition += 1
        self.hosting.close_if_ended(iteration)
        return repetition > ask.repetition

    def _add_rest(
        self, ask: m.RequestSplits, task: Task, iteration: Iteration, repetition: int, now: float
    ) -> None:
        """Add all that is left of a repetition, and its end."""
        cursor, entry = iteration.cursor(task, ask.source), None
        while entry is None or not entry.is_end:
            entry = cursor.peek(repetition, sys.maxsize)
            self.out.commit(u.AssignSplitsUpdate(task.task, ask.source, entry))
        self._end_filling((iteration.iteration, ask.source, repetition), now)

    def _end_filling(self, place: Place, now: float) -> None:
        """Answer the tasks that had their share of a repetition and wait for more, as
        no split is left. They would ask again only a second later.
        """
        for peer, ask in self._full.pop(place, {}).values():
            self.request(peer, ask, now)

    def _list_files(self, peer: e.Peer, ask: m.RequestSplits, iteration: Iteration) -> None:
        key = (iteration.iteration, ask.source, ask.repetition)
        waiting = self._listing.setdefault(key, [])
        if not waiting:
            source = iteration.cursors[ask.source].source
            assert isinstance(source, FileSplits)
            self.out.commands.append(
                e.FindFiles(
                    iteration=iteration.iteration,
                    source=ask.source,
                    repetition=ask.repetition,
                    files=source,
                )
            )
        if all(one.worker != ask.worker for _, one in waiting):
            waiting.append((peer, ask))

    def listed(self, event: e.FilesListed, now: float) -> None:
        """Keep the order of listed files, and answer the requests that wait for it. The
        iteration fails if no file was found, or a file has another place than before.
        """
        key = (event.iteration, event.source, event.repetition)
        waiting = self._listing.pop(key, [])
        iteration = self.out.state.iterations.get(event.iteration)
        if iteration is None or iteration.failure is not None:
            return
        source = iteration.cursors[event.source].source
        if event.error or not event.names or not isinstance(source, FileSplits):
            self._tell_no_files(iteration, event)
            return
        names = source.ordered(
            event.names, iteration.seed, turn_of(iteration.repetition, event.repetition)
        )
        changed = changed_files(iteration, event.source, event.repetition, names)
        if changed:
            self.hosting.fail(iteration, DataLossError.__name__, changed)
            return
        self.out.commit(u.ListFilesUpdate(event.iteration, event.source, event.repetition, names))
        for peer, ask in waiting:
            self.request(peer, ask, now)

    def _tell_no_files(self, iteration: Iteration, event: e.FilesListed) -> None:
        text = event.error or "no file matches its pattern on the dispatcher's host"
        text = f"list_files of job {iteration.job.name}: {text}"
        self.hosting.fail(iteration, NotFoundError.__name__, text)

    def tick(self, now: float) -> None:
        """Act on what is due, and forget the requests of tasks and iterations that have
        ended.
        """
        self.taking_back.tick(now)
        self.growing.tick(now)
        if now - self._ticked >= FORGETS_EVERY:
            self._ticked = now
            self.filling.forget(self.out.state.tasks)
            iterations = self.out.state.iterations
            self._full = {
                place: asks for place, asks in self._full.items() if place[0] in iterations
            }


@dataclass
class Fill:
    """The leases of a task that has produced nothing of a repetition yet."""

    repetition: int
    """The repetition."""
    produced: int
    """Number of elements that the task had produced at its first lease."""
    leased: int = 0
    """Number of splits leased so far."""
    full_since: float | None = None
    """When it first asked for more than its share."""


class Filling:
    """Bounds the splits of tasks that have produced nothing of a repetition yet, such
    as those that fill the buffer of a shuffle.

    A buffer takes splits as fast as they come. Without a bound, the worker that begins
    first would take those of the others, and have all the work that follows the buffer.
    """

    def __init__(self) -> None:
        self._fills: dict[tuple[int, int, int], Fill] = {}

    def most(self, ask: m.RequestSplits, count: int | None, tasks: int, now: float) -> int:
        """Return how many splits a task may be leased now; 0 if it has to wait.

        Args:
            ask: the request.
            count: number of splits in the repetition; None if it is endless.
            tasks: number of tasks that share them.
            now: the time.
        """
        key = (ask.task, ask.attempt, ask.source)
        fill = self._fills.get(key)
        if fill is None or fill.repetition != ask.repetition:
            fill = self._fills[key] = Fill(ask.repetition, ask.produced)
        if count is None or tasks < 2 or ask.produced > fill.produced:
            return sys.maxsize
        left = -(-count // tasks) - fill.leased
        if left > 0:
            return left
        if fill.full_since is None:
            fill.full_since = now
        # The others may be slow to begin, or gone.
        return 0 if now - fill.full_since < PATIENCE else sys.maxsize

    def record_lease(self, ask: m.RequestSplits, size: int) -> None:
        """Note that a task was leased splits."""
        fill = self._fills.get((ask.task, ask.attempt, ask.source))
        if fill is not None:
            fill.leased += size

    def forget(self, tasks: Container[int]) -> None:
        """Forget all tasks but these."""
        self._fills = {key: fill for key, fill in self._fills.items() if key[0] in tasks}


class TakingBack:
    """Tracks which tasks wait for splits that others hold, and which holders have
    started all of theirs.

    Args:
        out: state and commands.
        workers: the living workers.
        facts: what is known of them.
        grant: answers a request with returned splits or the end mark, or lets it wait
            by ``awaits``.

    Attributes:
        waiting: waiting requests by place and task; the longest waiting comes first.
        started: by iteration, and by task and source: the extent of the ledger when the
            task had no unstarted split.
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

    # --- tasks with unstarted splits

    def record_host(self, task: Task) -> None:
        """Note that a task has a new host, which has started nothing."""
        for source, ledger in enumerate(task.ledger):
            if ledger.entries:
                self.record_assigned(task, source, -REPEAT)

    def record_assigned(self, task: Task, source: int, now: float) -> None:
        """Note that a task has more splits of a source, so that it is asked next. A
        task that has waited for them is asked last.
        """
        place = (task.iteration, source, task.ledger[source].entries[-1].repetition)
        holders = self._holders.get(place)
        if holders is not None and task.task not in holders:
            waited = task.task in self.waiting.get(place, {})
            holders[task.task] = now if waited else -REPEAT
            holders.move_to_end(task.task, last=waited)

    def _holders_of(self, place: Place) -> OrderedDict[int, float]:
        """Return the tasks that may have unstarted splits, and when each was last
        asked.

        Tasks that were never asked come first, followed by tasks asked longest ago.
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

    # --- waiting requests

    def awaits(self, peer: e.Peer, ask: m.RequestSplits, now: float) -> bool:
        """Return True if a request for which no split is left has to wait, because
        other tasks may have unstarted splits.

        A request ahead of time waits too: its source need not know the end before it
        has used up its splits.
        """
        if not ask.waiting:
            return True
        place = (self.out.state.tasks[ask.task].iteration, ask.source, ask.repetition)
        known = self.waiting.get(place, {}).get(ask.task)
        since = now if known is None else known.since
        if self._holders_of(place).pop(ask.task, None) is not None:
            # The task has started all its splits, so others need not wait for them.
            self._pass_on(place, now)
        if now - since >= PATIENCE or not self._ask_holders(place, now):
            self._forget(place, ask.task)
            return False
        self.waiting.setdefault(place, {})[ask.task] = WaitingAsk(peer, ask, since)
        self._waits_on = True
        return True

    def stop_waiting(self, ask: m.RequestSplits) -> None:
        """Stop waiting for a request that got splits."""
        self._forget(
            (self.out.state.tasks[ask.task].iteration, ask.source, ask.repetition), ask.task
        )

    def _forget(self, place: Place, task: int) -> None:
        alike = self.waiting.get(place, {})
        if alike.pop(task, None) is not None and not alike:
            del self.waiting[place]

    def _ask_holders(self, place: Place, now: float) -> bool:
        """Ask the tasks that may have unstarted splits, except tasks asked just now.
        Return False if no such task exists.
        """
        if self.out.state.iterations[place[0]].job.num_tasks is not None:
            return False  # no task may get the splits of another
        holders = self._holders_of(place)
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
        """Ask a worker for the unstarted splits of a ledger. A repeated question refers
        to the same cut.
        """
        self.out.send(
            peer, m.TakeBackSplits(task.task, task.attempt, source, task.cuts.get(source, 0) + 1)
        )

    def receive(self, peer: e.Peer, report: m.SplitsReturned, now: float) -> None:
        """Record the splits that a worker returns, once for each cut, and pass them on
        to waiting tasks.
        """
        task = self.out.state.tasks.get(report.task)
        if task is None or task.total is not None or not task.runs(report.worker, report.attempt):
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
        # Otherwise the task has got more splits or the end mark since, so no request
        # waits for it.
        for where in [
            where for where in self.waiting if where[:2] == (task.iteration, report.source)
        ]:
            self._pass_on(where, now)

    def _keeps_all(self, task: Task, source: int) -> None:
        """Note that a task has started all its splits of a source. It is not asked
        again before it gets more.
        """
        self.started.setdefault(task.iteration, {})[task.task, source] = _extent(task, source)
        for where, holders in self._holders.items():
            if where[:2] == (task.iteration, source):
                holders.pop(task.task, None)

    def _pass_on(self, place: Place, now: float) -> None:
        """Answer the waiting requests, up to the first that must wait on: those behind
        it would have to wait, too.
        """
        for waiting in list(self.waiting.get(place, {}).values()):
            self._waits_on = False
            self._grant(waiting.peer, waiting.ask, now)
            if self._waits_on:
                break

    def tick(self, now: float) -> None:
        """Ask the holders again, end waits that are too long, and forget what is
        over.
        """
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
