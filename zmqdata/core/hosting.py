"""Which worker hosts which task: the part of the dispatcher core that deals with workers.

A task of a DYNAMIC iteration outlives its host. When the host is lost the task is fenced (a new attempt begins, without
a host), every living client says what it has received of it, and then another worker makes again what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.liveness import Roster
from zmqdata.core.outbox import Outbox
from zmqdata.core.ranges import RangeSet
from zmqdata.core.state import Iteration, Task


@dataclass
class Fence:
    """A task between two hosts: which clients have still to say what they hold."""

    waiting: set[str]


@dataclass
class WorkerFacts:
    """What a worker said of itself, and what it was last heard to do. Not durable.

    ``leases``: size and time of the last range of splits, per task it hosts and source.
    """

    address: str
    tags: tuple[str, ...]
    python: str
    tasks: set[int] = field(default_factory=set)
    reports: dict[int, m.TaskReport] = field(default_factory=dict)
    leases: dict[int, dict[int, tuple[int, float]]] = field(default_factory=dict)
    reported_at: float = 0.0
    rate: float = 0.0

    def drop(self, task: int) -> None:
        """Forgets a task that is not here any more."""
        self.tasks.discard(task)
        self.leases.pop(task, None)


class Hosting:
    """Places tasks on workers and keeps clients told where their tasks are.

    Args:
        out: state and commands.
        workers: the living workers.
        clients: the living clients.
    """

    def __init__(self, out: Outbox, workers: Roster, clients: Roster) -> None:
        self.out = out
        self.workers = workers
        self.clients = clients
        self.facts: dict[str, WorkerFacts] = {}
        self.fences: dict[int, Fence] = {}
        self.held: dict[int, dict[str, RangeSet]] = {}
        self.versions: dict[int, int] = {}
        self._changed: set[int] = set()

    # --- workers come, report and go

    def add_worker(self, name: str, facts: WorkerFacts) -> None:
        """Gives a new worker an orphaned task of each iteration, or a task of its own."""
        self.facts[name] = facts
        for iteration in list(self.out.state.iterations.values()):
            self._employ(name, iteration)

    def lose_worker(self, name: str) -> None:
        """Takes all tasks from a worker that is dead or has said goodbye."""
        self.workers.remove(name)
        facts = self.facts.pop(name)
        for number in sorted(facts.tasks):
            task = self.out.state.tasks.get(number)
            if task is None or task.settled:
                continue
            if self._outlives_host(task):
                self.fence(task)
            else:
                iteration = self.out.state.iterations[task.iteration]
                self.out.commit(u.RemoveTaskUpdate(number))
                self.tell_clients(iteration)
                self.close_if_ended(iteration)

    def _outlives_host(self, task: Task) -> bool:
        """Whether a task goes on elsewhere; otherwise it is a copy, nobody's loss."""
        return self.out.state.iterations[task.iteration].job.processing_mode != "OFF"

    def take_report(self, name: str, reports: tuple[m.TaskReport, ...], now: float) -> None:
        """Compares what a worker hosts with what it should host, and mends the difference."""
        facts, peer = self.facts[name], self.workers.peer(name)
        self._measure(facts, reports, now)
        facts.reports = {report.task: report for report in reports}
        for report in reports:
            task = self.out.state.tasks.get(report.task)
            if task is None or task.worker != name or task.attempt != report.attempt or task.settled:
                self.out.send(peer, m.DropTask(report.task, report.attempt))
            elif report.incomplete and self._outlives_host(task):
                self.fence(task)
            elif report.total is not None and task.total is None:
                self._end(task, report.total)
        for number in sorted(facts.tasks):
            task = self.out.state.tasks.get(number)
            if task is None or task.worker != name or task.settled:
                facts.drop(number)
            elif number not in facts.reports or facts.reports[number].attempt != task.attempt:
                self.out.send(peer, m.HostTask(self._definition(task)))

    def _measure(self, facts: WorkerFacts, reports: tuple[m.TaskReport, ...], now: float) -> None:
        made = sum(
            report.produced - facts.reports[report.task].produced if report.task in facts.reports else report.produced
            for report in reports
        )
        seconds = now - facts.reported_at
        if seconds >= 0.5:
            facts.rate = max(0.0, made / seconds)
            facts.reported_at = now

    def settle(self, task: Task) -> None:
        """Notes that every element of a task has been delivered."""
        self.held.pop(task.task, None)
        self.fences.pop(task.task, None)
        self.tell_clients(self.out.state.iterations[task.iteration])

    def _end(self, task: Task, total: int) -> None:
        iteration = self.out.state.iterations[task.iteration]
        self.out.commit(u.EndTaskUpdate(task.task, total))
        if task.settled:
            self.settle(task)
        self.close_if_ended(iteration)

    # --- tasks get hosts

    def staff(self, iteration: Iteration) -> None:
        """Gives every living worker its part in a new iteration."""
        for name in self.facts:
            self._employ(name, iteration)

    def _employ(self, name: str, iteration: Iteration) -> None:
        orphans = [t for t in iteration.live_tasks if not t.worker and t.task not in self.fences and self._owed(t)]
        for task in orphans:
            self._host(task, name)
        if not orphans and not iteration.closed and self._wants_more(iteration):
            number = self.out.state.next_task
            seed = self.out.derive_seed(iteration.seed, len(iteration.tasks))
            self.out.commit(u.CreateTaskUpdate(number, iteration.iteration, seed))
            self._host(self.out.state.tasks[number], name)

    def _wants_more(self, iteration: Iteration) -> bool:
        if iteration.job.processing_mode == "OFF":
            return True
        return iteration.running < len(self.facts)

    def _host(self, task: Task, name: str) -> None:
        self.out.commit(u.HostTaskUpdate(task.task, max(1, task.attempt), name))
        self.facts[name].tasks.add(task.task)
        self.out.send(self.workers.peer(name), m.HostTask(self._definition(task)))
        self.tell_clients(self.out.state.iterations[task.iteration])

    def _definition(self, task: Task) -> m.TaskDefinition:
        iteration = self.out.state.iterations[task.iteration]
        return m.TaskDefinition(
            task=task.task,
            attempt=task.attempt,
            iteration=task.iteration,
            dataset_id=iteration.job.dataset_id,
            digest=self.out.state.datasets[iteration.job.dataset_id].digest,
            processing_mode=iteration.job.processing_mode,
            seed=task.seed,
            compression=iteration.job.compression,
            ledger=tuple(tuple(entries) for entries in task.ledger),
            skip=self._taken(task).ranges,
            block_elements=iteration.job.block_elements,
            iteration_seed=iteration.seed,
            repetition=iteration.repetition,
        )

    def _taken(self, task: Task) -> RangeSet:
        """The elements that need not be sent again: delivered, or held by a living client."""
        taken = task.delivered.copy()
        for held in self.held.get(task.task, {}).values():
            taken.update(held)
        return taken

    def _owed(self, task: Task) -> bool:
        return task.total is None or not self._taken(task).covers(0, task.total)

    # --- tasks lose hosts

    def fence(self, task: Task) -> None:
        """Begins a new attempt without a host and asks the living clients what they have."""
        iteration = self.out.state.iterations[task.iteration]
        if task.worker in self.facts:
            self.facts[task.worker].drop(task.task)
            self.out.send(self.workers.peer(task.worker), m.DropTask(task.task, task.attempt))
        self.out.commit(u.HostTaskUpdate(task.task, task.attempt + 1, ""))
        self.held[task.task] = {}
        self.fences[task.task] = Fence(set(iteration.clients))
        self.tell_clients(iteration)
        self._ask_holdings(task)
        self._lift(task)

    def _ask_holdings(self, task: Task) -> None:
        for client in sorted(self.fences[task.task].waiting):
            self.out.send(self.clients.peer(client), m.RequestHoldings(client, task.task, task.attempt))

    def take_holdings(self, report: m.HoldingsReported) -> None:
        """Counts what a client has of a fenced task; with the last of them the task gets a host."""
        task = self.out.state.tasks.get(report.task)
        fence = self.fences.get(report.task)
        if task is None or fence is None or task.attempt != report.attempt or report.client not in fence.waiting:
            return
        fence.waiting.discard(report.client)
        self.held[task.task][report.client] = RangeSet(report.ranges)
        self._lift(task)

    def _lift(self, task: Task) -> None:
        if self.fences[task.task].waiting:
            return
        del self.fences[task.task]
        if self._owed(task) and self.facts:
            self._host(task, min(self.facts, key=lambda name: (len(self.facts[name].tasks), name)))

    def ask_again(self) -> None:
        """Repeats the questions that have no answer yet."""
        for number in self.fences:
            self._ask_holdings(self.out.state.tasks[number])

    # --- clients

    def forget_client(self, name: str, iteration: Iteration) -> None:
        """Passes on what a client that is gone had received and not reported."""
        for number in [number for number in self.fences if number in iteration.tasks]:
            self.fences[number].waiting.discard(name)
            self.held[number].pop(name, None)
            self._lift(iteration.tasks[number])
        for task in iteration.live_tasks:
            held = self.held.get(task.task, {}).pop(name, None)
            if held is None or task.task in self.fences:
                continue
            if any(not task.delivered.covers(first, stop) for first, stop in held):
                self.fence(task)
        for worker in sorted({task.worker for task in iteration.live_tasks} & self.facts.keys()):
            self.release(worker, name)

    def forget_iteration(self, iteration: Iteration) -> None:
        """Drops what is remembered of an iteration that is collected. Its hosts learn of it by their heartbeats."""
        self.versions.pop(iteration.iteration, None)
        for number in iteration.tasks:
            self.held.pop(number, None)
            self.fences.pop(number, None)

    def release(self, worker: str, client: str) -> None:
        """Tells a worker that a client reads no more, and what of its tasks has been delivered to anybody."""
        tasks = [self.out.state.tasks[n] for n in sorted(self.facts[worker].tasks) if n in self.out.state.tasks]
        delivered = {task.task: task.delivered.ranges for task in tasks}
        self.out.send(self.workers.peer(worker), m.ReleaseClient(client, delivered))

    # --- task lists

    def task_list(self, iteration: Iteration) -> m.TaskList:
        """Where the tasks are that still owe elements to somebody."""
        places = tuple(
            m.TaskPlace(task.task, task.attempt, task.worker, self._address(task))
            for task in iteration.live_tasks
            if not task.settled and (task.worker or task.task in self.fences or self._owed(task))
        )
        return m.TaskList(self.versions.get(iteration.iteration, 0), places, iteration.closed)

    def _address(self, task: Task) -> str:
        return self.facts[task.worker].address if task.worker in self.facts else ""

    def tell_clients(self, iteration: Iteration) -> None:
        """Has the task list pushed to every client of an iteration at the end of this turn."""
        self._changed.add(iteration.iteration)

    def push_changes(self) -> None:
        """Pushes the task lists that changed in this turn, each once."""
        for number in sorted(self._changed & self.out.state.iterations.keys()):
            self.versions[number] = self.versions.get(number, 0) + 1
            iteration = self.out.state.iterations[number]
            task_list = self.task_list(iteration)
            for client in sorted(iteration.clients):
                self.out.send(self.clients.peer(client), m.TasksChanged(client, task_list))
        self._changed.clear()

    def close_if_ended(self, iteration: Iteration) -> None:
        """Closes the task list once a new task could find nothing to do."""
        dynamic = iteration.job.processing_mode != "OFF"
        over = not iteration.running or (dynamic and iteration.splits_exhausted)
        if not iteration.closed and iteration.ended and over:
            self.out.commit(u.CloseTaskListUpdate(iteration.iteration))
            self.tell_clients(iteration)
