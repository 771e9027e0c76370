"""Hosting: the part of the dispatcher core that deals with workers and assigns tasks to
them.

A task of a DYNAMIC iteration outlives its host. When the host is lost, the dispatcher
fences the task: a new attempt begins, without a host. Every living client then reports
what it has received of the task. Finally another worker makes the missing elements
again.

Decisions 0015 and 0021; protocol 4.2, 4.3, 4.6 to 4.8, 8.1 to 8.3 and 9.9.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.state.measures import Measures
from zmqdata.core.dispatcher.state.outbox import Outbox, derived
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.holdings import Holdings, holders_of
from zmqdata.core.dispatcher.tasks.lineage import Replays, contradiction, definition_of
from zmqdata.core.dispatcher.tasks.placement import Placement, WorkerFacts
from zmqdata.core.dispatcher.tasks.tasklists import TaskLists
from zmqdata.core.job_rules import is_copied, is_seeded, outlives_host
from zmqdata.core.ranges import RangeSet
from zmqdata.errors import DataLossError, UnavailableError
from zmqdata.failures.codec import told_by

MOST_FORMER = 10_000
"""Maximum number of tasks of former passes whose workers are remembered."""
MOST_COPIES = 3
"""Maximum number of workers at an address, one after the other, that begin copies of an
input.
"""


class Hosting:
    """Places tasks on workers. ``lists`` tells clients where they are.

    Args:
        out: state and commands.
        workers: the living workers.
        clients: the living clients.
        placement: which workers a task may go to; this class keeps it up to date.
        orphan_timeout: seconds to wait for the worker of a static shard.

    Attributes:
        hosted: called with each task that gets a host.
    """

    def __init__(
        self,
        out: Outbox,
        workers: Roster,
        clients: Roster,
        placement: Placement | None = None,
        orphan_timeout: float = 10.0,
    ) -> None:
        self.out = out
        self.workers = workers
        self.clients = clients
        self.placement = placement or Placement()
        self.facts = self.placement.facts
        self.orphan_timeout = orphan_timeout
        self.holdings = Holdings()
        self.measures = Measures(out.state.iterations)
        self.replays = Replays(out)
        self.hosted: Callable[[Task], None] = lambda task: None
        self._orphaned: dict[int, float] = {}
        self._former: dict[tuple[str, int], str] = {}
        self.lists = TaskLists(out, clients, self.placement, self.holdings)

    def resume(self) -> None:
        """Continue where a former dispatcher left off. Its workers may still run its
        tasks.
        """
        self.placement.restore(self.out.state)
        for iteration in self.out.state.iterations.values():
            self.close_if_ended(iteration)  # the journal may end between two facts of a turn
            for task in iteration.tasks.values():
                if task.attempt and not task.worker and not task.settled:
                    self.holdings.ask_rest(task, holders_of(task, iteration))

    # --- workers come, report and go

    def add_worker(self, name: str, facts: WorkerFacts) -> None:
        """Add a worker, and give it an orphaned or a new task of each iteration."""
        self.placement.add(name, facts)
        self.out.commit(
            u.AddWorkerUpdate(
                name, facts.address, facts.tags, facts.python, facts.process, facts.name
            )
        )
        for iteration in list(self.out.state.iterations.values()):
            self._employ(name, iteration)

    def lose_worker(self, name: str) -> None:
        """Take all tasks from a worker that is dead or has said goodbye."""
        tasks = self._hosted_by(name)
        self.workers.remove(name)
        self.placement.remove(name)
        self.out.commit(u.RemoveWorkerUpdate(name))
        for task in tasks:
            self.evict(task)

    def drain(self, name: str) -> None:
        """Take the tasks of a worker that will leave, if another worker can host them
        or no client reads them.
        """
        self.placement.drain(name)
        for task in self._hosted_by(name):
            iteration = self.out.state.iterations[task.iteration]
            unread = not iteration.clients and iteration.saving is None
            may_go = unread or self.placement.best(task, iteration) is not None
            if may_go and self._outlives_host(task):
                self.fence(task)

    def _hosted_by(self, worker: str) -> list[Task]:
        """Return the tasks of a worker, oldest first, without those that are
        settled.
        """
        known = self.out.state.tasks
        hosted = [known[one] for one in sorted(self.facts[worker].tasks) if one in known]
        return [task for task in hosted if not task.settled]

    def give_up(self, task: Task) -> None:
        """Remove a copy that no client reads any more."""
        iteration = self.out.state.iterations[task.iteration]
        self.out.commit(u.RemoveTaskUpdate(task.task))
        self.lists.tell(iteration)
        self.close_if_ended(iteration)

    def _outlives_host(self, task: Task) -> bool:
        return outlives_host(self.out.state.iterations[task.iteration].job)

    def apply_report(self, name: str, reports: tuple[m.TaskReport, ...]) -> None:
        """Compare what a worker hosts with what it should host, and correct the
        difference.
        """
        facts, peer = self.facts[name], self.workers.peer(name)
        facts.record_reports(reports)
        self.measures.record_tasks(facts.address, reports, self.out.state.tasks)
        for report in reports:
            task = self.out.state.tasks.get(report.task)
            if task is None or not task.runs(name, report.attempt):
                self.out.send(peer, m.DropTask(report.task, report.attempt))
            elif report.incomplete and self._outlives_host(task):
                self.fence(task)
            elif report.failure:
                self._fail_with(task, report.failure)
            elif report.total is not None and (report.total, report.rest) != (
                task.total,
                task.rest,
            ):
                self._end(task, report.total, report)
        missing: list[int] = []
        for number in sorted(facts.tasks):
            task = self.out.state.tasks.get(number)
            if task is None or task.worker != name or task.settled:
                self.placement.drop(name, number)
            elif number not in facts.reports or facts.reports[number].attempt != task.attempt:
                missing.append(number)
        for number in facts.lost_tasks(missing):
            task = self.out.state.tasks[number]
            if number in facts.inherited:
                # The worker may have dropped this attempt for a former dispatcher, of
                # which the journal has lost the end.
                self.evict(task)
                self.staff(self.out.state.iterations[task.iteration])
            else:
                self.out.send(peer, m.HostTask(self._definition(task)))

    def settle(self, task: Task) -> None:
        """Note that every element of a task has been delivered."""
        iteration = self.out.state.iterations[task.iteration]
        self.holdings.forget(task.task)
        self.lists.tell(iteration)
        self._note_end(iteration)
        if is_copied(iteration.job):
            self.close_if_ended(iteration)

    def _end(self, task: Task, total: int, report: m.TaskReport) -> None:
        iteration = self.out.state.iterations[task.iteration]
        wrong = contradiction(task, iteration, self.holdings.taken(task), total, report.rest)
        if wrong and self._outlives_host(task):
            self.fail(iteration, DataLossError.__name__, wrong)
        if task.total is not None or task.removed:
            return
        ends = u.EndTaskUpdate(task.task, total, report.rest, report.left_out)
        self.commit_and_settle(iteration, ends, task)
        if iteration.rounds is not None:
            # Consumers pass the steps of an ended task only once they know that it has
            # ended.
            self.lists.tell(iteration)
        self.close_if_ended(iteration)

    def commit_and_settle(self, iteration: Iteration, update: u.AnyUpdate, *ended: Task) -> None:
        """Commit an update, and note which tasks of an iteration it settles: those that
        end, and with numbered consumers any.
        """
        concerned = ended if iteration.rounds is None else iteration.live_tasks
        before = [task for task in concerned if not task.settled]
        self.out.commit(update)
        for task in [task for task in before if task.settled]:
            self.settle(task)

    def deal_rest(self, task: Task, consumer: int, count: int) -> None:
        """Tell the host of an ended task which consumers get its rest."""
        if task.worker in self.facts and not task.settled:
            deal = m.DealRest(task.task, task.attempt, consumer, count)
            self.out.send(self.workers.peer(task.worker), deal)

    # --- tasks get hosts

    def staff(self, iteration: Iteration) -> None:
        """Give every living worker its part in an iteration that is new or has new
        clients.
        """
        if iteration.num_shards and not iteration.tasks:
            for shard in range(iteration.num_shards):
                self._create(iteration, shard)
            self.close(iteration)
        everyone = iteration.job.num_tasks is not None or self._orphans(iteration)
        for name in list(self.facts) if everyone else self.placement.idle(iteration):
            self._employ(name, iteration)

    def _create(self, iteration: Iteration, shard: int | None = None) -> Task:
        number = self.out.state.next_task
        seed = self.out.derive_seed(iteration.seed, len(iteration.tasks))
        if is_seeded(iteration.job):
            seed = derived(iteration.seed, len(iteration.tasks))
        self.out.commit(u.CreateTaskUpdate(number, iteration.iteration, seed, shard))
        return self.out.state.tasks[number]

    def _employ(self, name: str, iteration: Iteration) -> None:
        if iteration.failure is not None or not self.placement.takes_tasks(name, iteration):
            return
        if iteration.suspected and not outlives_host(iteration.job):
            return  # the next copy is made alone
        if iteration.job.num_tasks is not None:
            for task in self.placement.share_of(name, iteration, self._orphans(iteration)):
                if task.worker:
                    self.fence(task, name)
                else:
                    self._host(task, name)
            return
        orphans = self.placement.parts_of(name, self._orphans(iteration))
        for task in orphans:
            if self.placement.has_room(name, iteration):
                self._host(task, name)
        if orphans or iteration.closed or iteration.hosts.has(name):
            return
        spare = self.placement.spare(iteration)
        if spare is not None:
            self.fence(spare, name)
        elif self._wants_more(name, iteration):
            self._host(self._create(iteration), name)

    def _wants_more(self, name: str, iteration: Iteration) -> bool:
        if iteration.num_shards or not self.placement.has_room(name, iteration):
            return False
        if not outlives_host(iteration.job):
            # A process that dies at each start must not begin copies for ever.
            copies = iteration.tally.copies.get(self.facts[name].address, 0)
            return copies < MOST_COPIES and self._is_beyond_copies(iteration)
        # A worker that replaces a lost one does not begin another copy, or replacements
        # could go on for ever.
        is_copied = iteration.job.processing_mode == "OFF"
        tasks = iteration.running + (iteration.ended if is_copied else 0)
        return tasks < self.placement.hosts(iteration)

    def _is_beyond_copies(self, iteration: Iteration) -> bool:
        """Return True if the idle workers that may host a copy outnumber the copies of
        a state, ended or not, that lack a worker of their own (decision 0020).
        """
        lacking = iteration.running + iteration.ended - iteration.hosts.count
        if not lacking:
            return True  # none of them came from a state
        able = (
            self.placement.takes_tasks(one, iteration) for one in self.placement.idle(iteration)
        )
        return sum(able) > lacking

    def _orphans(self, iteration: Iteration) -> list[Task]:
        return [task for task in self._hostless(iteration) if not iteration.suspects(task)]

    def _hostless(self, iteration: Iteration) -> list[Task]:
        waiting = [iteration.tasks[number] for number in iteration.hosts.of("")]
        return [task for task in waiting if self.is_ready(task)]

    def is_ready(self, task: Task) -> bool:
        """Return True if a task without a host can continue on another."""
        return not self.holdings.is_open(task) and self.holdings.owes(task)

    def adopt(self, now: float) -> None:
        """Find hosts for static shards whose own worker has been away too long.

        A local shard that no client beside its worker reads waits for such a client.
        """
        orphans = [
            task
            for iteration in self.out.state.iterations.values()
            if iteration.num_shards and iteration.failure is None
            for task in self._hostless(iteration)
            if not self.placement.stays(task, iteration) or iteration.readers_of(task)
        ]
        self._orphaned = {task.task: self._orphaned.get(task.task, now) for task in orphans}
        for task in orphans:
            iteration = self.out.state.iterations[task.iteration]
            if now - self._orphaned[task.task] < self.orphan_timeout:
                continue
            if self.placement.stays(task, iteration):
                if not self.placement.has_place_of(task):
                    self._refuse_orphaned(task, iteration)
            else:
                self.find_host(task)

    def host_alone(self, iteration: Iteration, task: Task | None) -> Task | None:
        """Host a suspect task, or a new copy of the input, on a worker that has no
        other task from now on. Return the task; None if it cannot be hosted now.
        """
        name = self.placement.best_alone(task, iteration, self._count_copies)
        if name is None or (task is None and not self._wants_more(name, iteration)):
            return None
        self.placement.reserved = name
        for other in self._hosted_by(name):
            self.evict(other)
        task = task or self._create(iteration)
        self._host(task, name)
        return task

    def _count_copies(self, worker: str) -> int:
        return sum(not self._outlives_host(task) for task in self._hosted_by(worker))

    def evict(self, task: Task) -> None:
        """Take a task from its host. It continues on another, unless it is a copy."""
        if self._outlives_host(task):
            self.fence(task)
        else:
            self.give_up(task)

    def resume_all(self) -> None:
        """Let every worker host tasks again, after suspects were made."""
        self.placement.reserved = ""
        for iteration in list(self.out.state.iterations.values()):
            for task in [] if iteration.num_shards else self._orphans(iteration):
                self.find_host(task)
            self.staff(iteration)

    def _refuse_orphaned(self, task: Task, iteration: Iteration) -> None:
        """Tell the readers of a local shard that its worker is away. Readers of other
        shards read on. The refusal may be lost, so it is repeated until they close.
        """
        text = (
            f"The worker of shard {task.shard} of {iteration.num_shards} of job "
            f"{iteration.job.name} has been away for {self.orphan_timeout:g} s, and a local "
            "shard cannot be read elsewhere. Start that worker again, then start a new iterator."
        )
        for client in sorted(iteration.readers_of(task)):
            self.out.refuse(self.clients.peer(client), client, UnavailableError, text)

    def find_host(self, task: Task) -> None:
        """Give a task without a host to the least busy worker, if any may host it.
        Suspect tasks wait until they are made alone.
        """
        iteration = self.out.state.iterations[task.iteration]
        dataset = self.out.state.datasets.get(iteration.job.dataset_id)
        key = "" if dataset is None else dataset.parcel_key
        place = key, task.index
        former = self._former.get(place, "") if key else ""
        suspects = iteration.suspects(task)
        name = None if suspects else self.placement.best(task, iteration, former)
        if name is None:
            return
        if key:
            self._former.pop(place, None)
            self._former[place] = name
            while len(self._former) > MOST_FORMER:
                del self._former[next(iter(self._former))]
        self._host(task, name)

    def _fail_with(self, task: Task, failure: bytes) -> None:
        """Fail the iteration of a task that cannot run. It lacks that task's part of
        the input, even if other tasks can run.
        """
        iteration = self.out.state.iterations[task.iteration]
        if iteration.saving is None:  # a save's failure comes in a message of its own
            error, text = told_by(failure)
            self.fail(iteration, error, text, failure)

    def fail(self, iteration: Iteration, error: str, text: str, failure: bytes = b"") -> None:
        """End an iteration with an error, for its present and future readers."""
        self.out.note("error", f"job {iteration.job.name}: {text}", iteration)
        self.out.commit(u.FailIterationUpdate(iteration.iteration, error, text, failure))
        for task in iteration.live_tasks:
            if task.worker in self.facts:
                self.placement.drop(task.worker, task.task)
                self.out.send(self.workers.peer(task.worker), m.DropTask(task.task, task.attempt))
            self.holdings.forget(task.task)
            self.out.commit(u.RemoveTaskUpdate(task.task))
        for client in sorted(iteration.clients):
            self.refuse_failed(client, iteration)

    def refuse_failed(self, client: str, iteration: Iteration) -> None:
        """Tell a client why its iteration failed."""
        if iteration.failure is not None:
            error, text, failure = iteration.failure
            refusal = m.RequestRefused(client, error, text, failure)
            self.out.send(self.clients.peer(client), refusal)

    def _host(self, task: Task, name: str) -> None:
        self.out.commit(u.HostTaskUpdate(task.task, max(1, task.attempt), name))
        self.placement.assign(name, task, self.out.state.iterations[task.iteration])
        self.hosted(task)
        self.out.send(self.workers.peer(name), m.HostTask(self._definition(task)))
        self.lists.tell(self.out.state.iterations[task.iteration])

    def _definition(self, task: Task) -> m.TaskDefinition:
        iteration = self.out.state.iterations[task.iteration]
        dataset = self.out.state.datasets[iteration.job.dataset_id]
        ticket = self.out.ticket(iteration.iteration)
        definition = definition_of(task, iteration, dataset, self.holdings.taken(task), ticket)
        return structs.replace(definition, written=self.out.counts_of(iteration))

    # --- tasks lose hosts

    def fence(self, task: Task, successor: str | None = None) -> None:
        """Begin a new attempt without a host, and ask the living clients for their
        holdings.

        Args:
            task: the task.
            successor: the next host, used only if no client has to answer first; None
                for the best available.
        """
        iteration = self.out.state.iterations[task.iteration]
        if task.worker in self.facts:
            self.placement.drop(task.worker, task.task)
            self.out.send(self.workers.peer(task.worker), m.DropTask(task.task, task.attempt))
        self.out.commit(u.HostTaskUpdate(task.task, task.attempt + 1, ""))
        self.holdings.ask(task, holders_of(task, iteration))
        self.lists.tell(iteration)
        self._ask_holdings(task)
        self._lift(task, successor)

    def _ask_holdings(self, task: Task) -> None:
        for client in sorted(self.holdings.waiting[task.task]):
            self.out.send(
                self.clients.peer(client), m.RequestHoldings(client, task.task, task.attempt)
            )

    def record_holdings(self, report: m.HoldingsReported) -> None:
        """Record what a client has of a fenced task. With the last answer, the task
        gets a host.
        """
        task = self.out.state.tasks.get(report.task)
        if task is None or task.attempt != report.attempt:
            return
        if self.holdings.answer(task, report.client):
            self.out.commit(u.HoldUpdate(task.task, report.client, RangeSet(report.ranges).ranges))
            self._lift(task)

    def _lift(self, task: Task, successor: str | None = None) -> None:
        iteration = self.out.state.iterations[task.iteration]
        if not self.holdings.close(task):
            return
        if not self.holdings.owes(task):
            self.lists.tell(iteration)  # it needs no place
        elif successor is not None and not iteration.suspects(task):
            self._host(task, successor)
        else:
            self.find_host(task)

    def ask_again(self) -> None:
        """Repeat the questions that have no answer yet."""
        for number in self.holdings.waiting:
            self._ask_holdings(self.out.state.tasks[number])

    # --- clients

    def forget_client(self, name: str, iteration: Iteration) -> None:
        """Close a client and pass on what it had received and not reported."""
        held = self.holdings.only_with(name, iteration)
        self.out.commit(u.CloseClientUpdate(name))
        for task in iteration.live_tasks:
            self.holdings.drop(task, name)
            if self.holdings.is_open(task):
                self._lift(task)
            elif task.task in held:
                self.fence(task)
        for worker in sorted({task.worker for task in iteration.live_tasks} & self.facts.keys()):
            self.release(worker, name)
        self._retreat(iteration)

    def _retreat(self, iteration: Iteration) -> None:
        """Take tasks away from workers that no client can read from any more."""
        for task in iteration.live_tasks if iteration.clients else ():
            is_hosted = task.worker in self.facts and not task.settled
            if is_hosted and not self.placement.may_host(task.worker, iteration):
                self.evict(task)

    def forget_iteration(self, iteration: Iteration) -> None:
        """Forget an iteration that is collected. Its hosts learn of it by their
        heartbeats. Its unfinished tasks can still be run again by a person.
        """
        self.measures.forget(iteration)
        self.replays.keep(iteration)
        self.lists.forget(iteration.iteration)
        for number in iteration.tasks:
            self.holdings.forget(number)

    def release(self, worker: str, client: str) -> None:
        """Tell a worker that a client reads no more, and which elements of its tasks
        have been delivered.
        """
        delivered = {task.task: task.delivered.ranges for task in self._hosted_by(worker)}
        self.out.send(self.workers.peer(worker), m.ReleaseClient(client, delivered))

    def close_if_ended(self, iteration: Iteration) -> None:
        """Close the task list once a new task would find nothing to do. Copies are
        begun until the others are delivered.
        """
        if iteration.closed or not iteration.ended:
            return
        if is_copied(iteration.job):
            over = all(task.settled for task in iteration.live_tasks)
        else:
            dynamic = iteration.job.processing_mode == "DYNAMIC"
            over = not iteration.running or (dynamic and iteration.splits_exhausted)
        if over:
            self.close(iteration)

    def close_copies(self, iteration: Iteration) -> None:
        """Close the task list of copies, because every client has read all that it was
        given, whether or not some of it was lost with a worker or a client.
        """
        if not iteration.closed and is_copied(iteration.job):
            self.close(iteration)

    def close(self, iteration: Iteration) -> None:
        """Close a task list: no task will be added."""
        self.commit_and_settle(iteration, u.CloseTaskListUpdate(iteration.iteration))
        self.lists.tell(iteration)
        self._note_end(iteration)

    def _note_end(self, iteration: Iteration) -> None:
        # A save ends with its marker.
        if iteration.saving is None and iteration.closed and iteration.finished:
            self.out.note_end(iteration, "has ended")
