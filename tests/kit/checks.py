"""The laws of the design as facts checked after every event of a simulated world. A
breach is reported with its story.

Checks look at cores from outside, at what they receive and return. They look inside
only to bound memory.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, NoReturn

from tests.kit.runner import Name, SimulatedPipeline
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core import events
from zmqdata.core.client import events as client_events
from zmqdata.core.client.coordinated import Stepping
from zmqdata.core.client.decider import ClientCore
from zmqdata.core.credit import BlockEnds
from zmqdata.core.dispatcher import events as dispatcher_events
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.tasks import Task
from zmqdata.core.worker import events as worker_events
from zmqdata.core.worker.dealing import FirstCome
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.streams import occupied
from zmqdata.splits import Split
from zmqdata.testing.clock import Clock
from zmqdata.testing.nodes import AnyCommand, AnyEvent, WorldObserver

Element = tuple[int, int]
"""Task and number: the name of an element in flight."""

SIZE = attrgetter("size")
STORY = 400
"""Most lines of a story that are shown."""
QUIET = frozenset(
    {
        events.Tick,
        worker_events.AllowProduction,
        m.Probe,
        m.LinkReported,
        m.WorkerHeartbeat,
        m.WorkerHeartbeatAnswered,
    }
)
"""Messages and events left out of a story, because they are frequent and say little."""


@dataclass
class Flow:
    """Record of a stream, as seen from outside."""

    recall: int = 0
    """Number of the last request that the client has answered."""
    granted: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Elements and bytes granted, and elements handed out."""
    sent: list[int] = field(default_factory=lambda: [0, 0])
    """Elements and bytes sent."""
    ends: BlockEnds = field(default_factory=BlockEnds)
    """The ends of the blocks that were sent."""


class Hook(list[Callable[..., object]]):
    """Functions that observers have added, called one after the other."""

    def __call__(self, *facts: object) -> None:
        for call in self:
            call(*facts)


class LawBroken(AssertionError):
    """Raised if a law of the design does not hold. The text ends with the relevant part
    of what happened before.
    """


class Laws(WorldObserver):
    """WorldObserver of a simulated world, which checks the laws.

    The nodes of the world call ``check`` for every event, and its training loops call
    ``handed_out``.

    Args:
        seed: seed of the world, for the story.
        clock: clock of the world.
        pipeline: what its tasks produce.
    """

    turn_bytes: ClassVar[int] = 0
    """Number of bytes by which a turn of a task may exceed its memory."""

    def __init__(self, seed: int, clock: Clock, pipeline: SimulatedPipeline) -> None:
        self.seed = seed
        self.clock = clock
        self.pipeline = pipeline
        self.story: deque[tuple[float, str, object]] = deque(maxlen=200_000)
        self.on_client, self.on_gone, self.on_opened = Hook(), Hook(), Hook()
        self.on_asked_back, self.on_passed, self.on_collected = Hook(), Hook(), Hook()
        self.forget()
        self.flows: dict[tuple[str, int, int], Flow] = {}
        self.pushed: set[tuple[str, int, int, int, int, int]] = set()
        self.numbers: dict[str, int] = {}
        self.places: dict[tuple[str, int], int] = {}
        self.last: dict[tuple[str, int, int], int] = {}
        self.recalled: set[tuple[int, int]] = set()
        self.largest = 0

    def forget(self) -> None:
        """Forget the state of the dispatcher, because a new dispatcher without a
        journal is not bound by it.
        """
        self.state = DispatcherState()
        self.owners: dict[Element, str] = {}
        self.owned: dict[str, set[Element]] = {}
        self.names: dict[Element, Name] = {}
        self.lost: set[Element] = set()
        self.slips: dict[Element, Name] = {}
        self.forget_measures()
        self.left_out: set[Element] = set()
        self.leased: dict[tuple[int, int, int, int], int] = {}
        # Clients that have left, those of them whose reports a journal has lost, and
        # whether splits that it has lost may make other elements.
        self.gone, self.excused, self.is_set_back = set[str](), set[str](), False

    def forget_measures(self) -> None:
        """Forget what workers reported, because a new dispatcher has not heard it."""
        self.measured: dict[tuple[int, int], float] = {}

    # --- telling

    def tell(self, who: str, what: object) -> None:
        """Add an event to the story that no core caused, such as a severed connection
        or a death.
        """
        self.story.append((self.clock.now, who, what))

    def fail(self, text: str, *keys: object) -> NoReturn:
        """End the run with the part of its story that mentions any of the keys, or with
        all of it.
        """
        lines = [
            f"{when:9.4f} {who:>16} {what}"
            for when, who, what in self.story
            if isinstance(what, str) or not keys or any(str(key) in f"{who} {what}" for key in keys)
        ]
        told = "\n".join(lines[-STORY:])
        raise LawBroken(f"seed {self.seed}: {text}\n{told}\nseed {self.seed}: {text}")

    # --- after every event

    def check(
        self, name: str, core: object, event: AnyEvent, commands: Sequence[AnyCommand]
    ) -> None:
        """Check what the core of a node returned for an event."""
        for what in (event, *commands):
            if type(what) not in QUIET and type(getattr(what, "message", None)) not in QUIET:
                self.story.append((self.clock.now, name, what))
        if isinstance(core, DispatcherCore):
            self._check_dispatcher(commands)
            self._note_measures(core, event)
        elif isinstance(core, WorkerCore):
            self._check_worker(name, core, event, commands)
        elif isinstance(core, ClientCore):
            self._check_client(name, core, commands)
            self.on_client(name, core, event, commands)

    # --- dispatcher: facts are written before they are revealed, attempts grow

    def _check_dispatcher(self, commands: Sequence[AnyCommand]) -> None:
        for command in commands:
            if isinstance(command, dispatcher_events.Commit):
                self._check_update(command.update)
            elif isinstance(command, events.Send):
                self._check_revealed(command.message)

    def _check_update(self, update: u.Update) -> None:
        if isinstance(update, u.HostTaskUpdate):
            task = self.state.tasks[update.task]
            if update.attempt < task.attempt or (update.attempt == task.attempt and task.worker):
                text = f"attempt {update.attempt} of task {update.task} follows {task.attempt}"
                self.fail(text, update.task)
        if isinstance(update, u.AssignSplitsUpdate):
            self._check_assigned(update)
        elif isinstance(update, u.CutLedgerUpdate):
            self._take_back(update)
        elif isinstance(update, u.CollectIncarnationUpdate):
            self.on_collected(update.incarnation)
        self.state.apply(update)
        if isinstance(update, u.CloseClientUpdate):
            self._client_gone(update.client)
        elif isinstance(update, u.OpenClientUpdate):
            self.on_opened(update)
        elif isinstance(update, u.PassStepsUpdate):
            self.on_passed(update.iteration, update.consumer, update.step)

    def _check_assigned(self, update: u.AssignSplitsUpdate) -> None:
        """Check that each split is in a single ledger at most, and that no end is
        announced while splits are left.
        """
        task, split = self.state.tasks[update.task], update.split
        iteration = self.state.iterations[task.iteration]
        if task.ledger[update.source].ends(split.repetition):
            text = f"{split} is assigned to {update.task} after the end of its repetition"
            self.fail(text, update.task)
        if split.is_end:
            if iteration.cursor(task, update.source).remaining(split.repetition):
                text = f"task {update.task} is told the end of repetition {split.repetition}"
                self.fail(f"{text} too early", update.task)
            return
        for key in splits_of(iteration.iteration, update.source, split):
            if key in self.leased:
                other = self.leased[key]
                text = f"{split} is assigned to {update.task} while {other} has {key[-1]} of it"
                self.fail(text, other)
            self.leased[key] = update.task

    def _take_back(self, update: u.CutLedgerUpdate) -> None:
        task = self.state.tasks[update.task]
        parts = task.ledger[update.source].parted(update.entries, update.stop)
        for split in parts[1] if parts else ():
            for key in splits_of(task.iteration, update.source, split):
                self.leased.pop(key, None)

    def _check_revealed(self, message: m.Message) -> None:
        if isinstance(message, m.HostTask):
            self._must_stay(message.definition.task)
        elif isinstance(message, m.DecisionsKept):
            self._must_stay(message.task)
        if not self._is_committed(message):
            self.fail(f"revealed before it was committed: {message}")

    def _is_committed(self, message: m.Message) -> bool:
        state = self.state
        if isinstance(message, m.HostTask):
            task = state.tasks.get(message.definition.task)
            attempt = message.definition.attempt
            return task is not None and task.attempt == attempt and bool(task.worker)
        if isinstance(message, m.SplitsAssigned):
            ledger = state.tasks[message.task].ledger[message.source]
            return ledger.since(message.first)[: len(message.splits)] == message.splits
        if isinstance(message, m.IterationOpened):
            return state.client_iteration.get(message.client) == message.iteration
        if isinstance(message, m.DatasetRegistered):
            return message.dataset_id in state.datasets
        if isinstance(message, m.IterationClosed):
            return message.client not in state.client_iteration
        return True

    # --- what is passed over

    def _must_stay(self, task: int) -> None:
        """Record the decisions of a task, which bind every later attempt once they are
        known.
        """
        known = self.state.tasks.get(task)
        for decision in known.decisions.entries if known is not None else ():
            self.left_out |= {(task, number) for number in decision.left_out}

    def slipped(self, task: int, number: int, name: Name) -> None:
        """Check that every attempt skips the same element at a number."""
        if self.slips.setdefault((task, number), name) != name:
            text = f"the element that arrived as number {number} was {self.slips[task, number]}"
            self.fail(f"{text}, then {name}", task)

    def without_slips(self, tasks: Collection[int], names: Iterable[Name]) -> Counter[Name]:
        """Return the elements that these tasks had to deliver of all that they could
        have produced.
        """
        return Counter(names) - Counter(self.slips[one] for one in self.left_out if one[0] in tasks)

    # --- delivery

    def _client_gone(self, client: str) -> None:
        """Record as lost what a client was handed and did not report."""
        self.gone.add(client)
        self.on_gone(client)
        for element in self.owned.pop(client, set()):
            if self._reported(element):
                continue
            del self.owners[element]
            self.lost.add(element)

    def _reported(self, element: Element) -> bool:
        task = self.state.tasks.get(element[0])
        return task is not None and element[1] in task.delivered

    def handed_out(
        self,
        client: str,
        header: m.Block,
        names: tuple[Name, ...],
        number: int,
        alone: bool = False,
    ) -> None:
        """Check elements that a training loop takes of a block, from a number on: no
        client has them, they are in order, and a lease covers them.

        ``alone`` is True if the client believes that no other client reads, and workers
        hear it. It then needs no lease.
        """
        key = (client, header.task, header.attempt)
        task, last = header.task, self.last.get(key, -1)
        if number <= last and not (self.gone or self.is_set_back or key[1:] in self.recalled):
            self.fail(f"element {number} of task {task} follows {last}", task)
        self.last[key] = number + len(names) - 1
        elements = {(task, at): name for at, name in enumerate(names, number)}
        if client in self.gone or client not in self.state.client_iteration:
            if client in self.gone and not alone:
                text = f"{client} hands out {sorted(elements)[:3]} without a lease"
                self.fail(text, client, task)
            for element, name in elements.items():
                self.names.setdefault(element, name)
            self.lost |= elements.keys()
            return
        for element, name in elements.items():
            self._claim(client, element, name)

    def _claim(self, client: str, element: Element, name: Name) -> None:
        owner = self.owners.get(element)
        if owner is not None or self._reported(element):
            text = f"element {element} was handed out by {owner} and again by {client}"
            self.fail(text, element[0])
        if self.names.setdefault(element, name) != name and not self.is_set_back:
            self.fail(f"element {element} was {self.names[element]}, then {name}", element[0])
        self.owners[element] = client
        self.owned.setdefault(client, set()).add(element)

    # --- worker: credit, numbers, memory

    def _check_worker(
        self, name: str, core: WorkerCore, event: AnyEvent, commands: Sequence[AnyCommand]
    ) -> None:
        if isinstance(event, events.Received) and isinstance(event.message, m.Grant):
            self._take_grant(event.message)
        for command in commands:
            if isinstance(command, worker_events.Push):
                self._check_push(name, command)
        if isinstance(event, worker_events.Produced):
            self.largest = max(self.largest, occupied(event.size))
            self._check_memory(name, core, event.task)

    def _take_grant(self, grant: m.Grant) -> None:
        client = grant.link.rpartition("-")[0]
        for one in grant.streams:
            flow = self.flows.setdefault((client, one.task, one.attempt), Flow())
            if one.recall > flow.recall:
                self.recalled.add((one.task, one.attempt))
                flow.recall, flow.granted = one.recall, [0, 0, one.handed_out]
                flow.sent = [one.kept, flow.ends.cut(one.kept)]
            if one.recall == flow.recall:
                counts = (one.elements, one.bytes, one.handed_out)
                flow.granted[:] = map(max, flow.granted, counts)
                flow.ends.hand_out(flow.granted[2])

    def _check_push(self, name: str, push: worker_events.Push) -> None:
        header, client = push.header, push.link.rpartition("-")[0]
        last = self.numbers.get(push.link, 0)
        if header.number != last + 1:
            self.fail(f"message {header.number} on {push.link} follows {last}")
        self.numbers[push.link] = header.number
        if isinstance(header, m.TakeBackElements):
            self.on_asked_back(client)
        if not isinstance(header, m.Block):
            return
        key = (client, header.task, header.attempt)
        block = (*key, header.recall, header.first, header.skip)
        if block in self.pushed:
            return
        self.pushed.add(block)
        flow = self.flows.setdefault(key, Flow())
        sent, (elements, size, handed_out) = flow.sent, flow.granted
        idle = handed_out >= sent[0] and elements > sent[0]
        sent[0] += header.stop - header.skip
        sent[1] += header.size
        flow.ends.add(sent[0], sent[1])
        if not idle and (sent[0] > elements or sent[1] > size):
            text = f"{name} sends {sent} to {client} with credit for {elements}, {size}"
            self.fail(text, header.task)

    def _check_memory(self, name: str, core: WorkerCore, task: int) -> None:
        hosted = core.tasks.get(task)
        if hosted is None:
            return
        # A round is produced as a whole: a block for each numbered consumer.
        round_bytes = self.largest * (hosted.definition.job.num_consumers or 1)
        bound = core.profile.buffer_bytes + max(round_bytes, self.turn_bytes)
        dealing = hosted.dealing
        if not self.gone and dealing.ahead > bound:
            self.fail(f"{name} holds {dealing.ahead} bytes and may hold {bound}", task)
        if isinstance(dealing, FirstCome):
            pending = sum(map(occupied, map(SIZE, dealing.pending)))
            if dealing.ahead != pending:
                self.fail(f"{name} has miscounted its pending bytes", task)

    # --- client: fencing

    def _check_delivery(self, name: str, core: ClientCore, header: m.Block) -> None:
        # A block that arrived in time may be delivered when its step is due.
        held = isinstance(core.reading, Stepping)
        if header.attempt < self.places.get((name, header.task), 0) and not held:
            self.fail(f"{name} takes a block of an old attempt: {header}", header.task)
        if core.finished:
            self.fail(f"{name} receives elements after the end", header.task)

    def _check_client(self, name: str, core: ClientCore, commands: Sequence[AnyCommand]) -> None:
        for command in commands:
            message = command.message if isinstance(command, events.Send) else None
            if isinstance(command, client_events.Deliver):
                self._check_delivery(name, core, command.header)
            elif isinstance(command, client_events.Weave):
                for part in command.parts:
                    self._check_delivery(name, core, part.header)
            elif isinstance(message, m.Grant):
                for stream in message.streams:
                    last = self._move_on(name, stream.task, stream.attempt)
                    if stream.attempt < last:
                        text = f"{name} returns to attempt {stream.attempt} of {stream.task}"
                        self.fail(text, stream.task)
            elif isinstance(message, m.HoldingsReported):
                self._move_on(name, message.task, message.attempt)

    def _move_on(self, name: str, task: int, attempt: int) -> int:
        """Return the newest attempt of a task that a client has named before."""
        last = self.places.get((name, task), 0)
        self.places[name, task] = max(attempt, last)
        return last

    # --- at the end

    def check_end(self) -> None:
        """Check that everything was delivered exactly once, after all training loops
        have ended.
        """
        iteration = next(iter(self.state.iterations.values()))
        names = self.pipeline.names()
        if iteration.job.processing_mode == "OFF":
            for task in iteration.live_tasks:
                self._check_copy(task.task, names, bool(iteration.clients))
            return
        everything = self.without_slips({task.task for task in iteration.live_tasks}, names)
        for task in iteration.live_tasks:
            self.check_settled(task)
        self.check_same(self.had(), everything)

    def had(self, tasks: Container[int] | None = None) -> Counter[Name]:
        """Return the elements, of some tasks, that training loops have taken and
        kept.
        """
        return Counter(self.names[one] for one in self.owners if tasks is None or one[0] in tasks)

    def check_same(
        self,
        found: Counter[Name],
        everything: Counter[Name],
        may_lack: Iterable[Name] = (),
        text: str = "",
    ) -> None:
        """Check that elements are everything, once, except what may be missing."""
        missing, surplus = (everything - found).keys() - {*may_lack}, found - everything
        if missing or surplus:
            keys = {key[0] for key, name in self.names.items() if name in {*missing, *surplus}}
            text += f"missing {sorted(missing)[:9]}, surplus {sorted(surplus)[:9]}"
            self.fail(text, *keys)

    def check_settled(self, task: Task) -> None:
        """Check that all elements of a task were delivered."""
        if not task.settled:
            text = f"task {task.task} is not settled: {task.delivered} of {task.total}"
            self.fail(text, task.task)

    def _check_copy(self, task: int, names: list[Name], is_held: bool) -> None:
        """Check that all elements of a copy were delivered once, except those lost with
        a client.

        ``is_held`` is True if a dead client that was not given up may still own some of
        them. Clients that read a copy to its end wait for no other client.
        """
        everything = self.without_slips({task}, names)
        found = self.had({task})
        died = {self.names[element] for element in self.lost if element[0] == task}
        surplus = sorted(found - everything)[:9]
        missing = [name for name in (everything - found) if name not in died]
        if (missing and not is_held) or surplus:
            self.fail(f"copy {task} lacks {missing[:9]} and has surplus {surplus}", task)

    def _note_measures(self, core: DispatcherCore, event: AnyEvent) -> None:
        beat = getattr(event, "message", None)
        if not isinstance(beat, m.WorkerHeartbeat | m.RegisterWorker):
            return
        for report in beat.tasks if beat.worker in core.workers else ():
            if report.measures is not None and report.task in self.state.tasks:
                key, made = (report.task, report.attempt), report.measures.total.elements
                self.measured[key] = max(made, self.measured.get(key, 0.0))

    def check_measures(self, dispatcher: DispatcherCore) -> None:
        """Check that the totals count each delivered element once, and the newest
        report about each attempt of a task once.
        """
        for iteration in self.state.iterations.values():
            totals = dispatcher.hosting.measures.of_iteration(iteration)
            # A round has an element for each numbered consumer, and a rest has fewer.
            most = iteration.delivered * (iteration.job.num_consumers or 1)
            if totals.delivered > most or (totals.delivered < most and not iteration.rests):
                self.fail(f"{totals.delivered} of {most} elements are counted")
            made = [made for (task, _), made in self.measured.items() if task in iteration.tasks]
            reported = sum(made)
            if totals.sums.elements != reported:
                self.fail(f"{totals.sums.elements} of {reported} elements are counted as made")

    def check_empty(self, dispatcher: DispatcherCore, workers: dict[str, WorkerCore]) -> None:
        """Check that nothing is left of a job that was collected."""
        hosting = dispatcher.hosting
        left: dict[str, Any] = {
            "tasks": dispatcher.state.tasks,
            "iterations": dispatcher.state.iterations,
            "fences": hosting.holdings.waiting,
            "versions": hosting.lists.versions,
            "clients": dispatcher.clients.members,
            "unused jobs": dispatcher.jobs.unused_since,
            "absent clients": dispatcher.jobs.absent,
            "asks that wait": dispatcher.splits.taking_back.waiting,
            "what tasks have started": dispatcher.splits.taking_back.started,
        }
        for name, core in workers.items():
            facts = hosting.facts[name]
            left |= {f"{name} tasks": core.tasks, f"{name} links": core.links.by_client}
            left |= {f"{name} facts": facts.tasks, f"{name} leases": facts.leases}
        for what, rest in left.items():
            if rest:
                self.fail(f"left over: {what}: {rest}")


def splits_of(iteration: int, source: int, entry: Split) -> list[tuple[int, int, int, int]]:
    """Return the splits of an entry of a ledger, each by what identifies it."""
    indices = range(entry.start, entry.stop, entry.step)
    return [(iteration, source, entry.repetition, index) for index in indices]
