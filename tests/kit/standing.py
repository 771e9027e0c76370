"""Checks of clients' checkpoints, taken at any moment of a simulated world.

A task is computed again from its part of the checkpoint, by a runner with a clock of
its own.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from tests.kit.checks import Laws
from tests.kit.runner import Name, RunnerEvent, SimulatedPipeline, SimulatedRunner
from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.rounds import LastRounds, rounds_before
from zmqdata.core.worker import events as e
from zmqdata.splits import Split
from zmqdata.testing.clock import Clock

PLENTY = 1 << 60
"""Credit that is never used up, in bytes."""

Round = tuple[int, int, int]
"""A task, its round, and a consumer."""


@dataclass
class Had:
    """The elements that a training loop has taken."""

    names: dict[int, dict[int, Name]] = field(default_factory=dict)
    """Elements per task, by number."""

    def add(self, task: int, first: int, names: tuple[Name, ...]) -> None:
        """Count elements of a block."""
        self.names.setdefault(task, {}).update(enumerate(names, first))


class Standings:
    """Checks of checkpoints.

    Args:
        laws: the laws of the world, which report breaches.
        pipeline: what its tasks produce.
        make_runner: class of their runners.
    """

    def __init__(
        self, laws: Laws, pipeline: SimulatedPipeline, make_runner: type[SimulatedRunner]
    ) -> None:
        self.laws = laws
        self.pipeline = pipeline
        self.make_runner = make_runner
        self.checked = 0

    def check(
        self,
        client: str,
        checkpoint: m.Checkpoint,
        had: Had,
        indices: dict[int, int],
        is_alone: bool,
    ) -> None:
        """Check a checkpoint of a client without a consumer number.

        Args:
            client: name of the client.
            checkpoint: its checkpoint.
            had: what its training loop has taken.
            indices: index of each task.
            is_alone: True if no other client has read the iteration. Then no element
                may be missing.
        """
        self.checked += 1
        parts = {part.index: part for part in checkpoint.tasks}
        found: Counter[Name] = Counter()
        for task, names in had.names.items():
            part = parts[indices[task]]
            delivered = RangeSet(part.delivered)
            lost = [number for number in names if number not in delivered]
            if lost:
                text = f"{client} has taken {lost[:9]} of task {task}"
                self.laws.fail(f"{text}, which are not in its checkpoint", task)
            if is_alone and len(delivered) != len(names):
                text = f"the checkpoint of {client} contains too much of task {task}: {delivered}"
                self.laws.fail(text, task)
            self._check_started(client, task, part, checkpoint, names)
            found.update(names.values())
        numbers = {index: task for task, index in indices.items()}
        for part in checkpoint.tasks:
            made, free = self.remake(checkpoint, part)
            self._check_same(client, numbers[part.index], made, free)
            self._check_decided(client, numbers[part.index], had, free)
            found.update(made.values())
        if is_alone and checkpoint.job.processing_mode == "DYNAMIC":
            self._check_whole(client, checkpoint, found)

    def check_consumer(
        self,
        client: str,
        checkpoint: m.Checkpoint,
        had: Had,
        indices: dict[int, int],
        names: dict[Round, Name],
    ) -> None:
        """Check a checkpoint of a numbered consumer.

        Args:
            client: name of the client.
            checkpoint: its checkpoint.
            had: what its training loop has taken.
            indices: index of each task.
            names: known elements of the rounds of each task and consumer.
        """
        self.checked += 1
        consumer, rests = checkpoint.reader.consumer_index or 0, _rests_taken(checkpoint)
        numbers = {index: task for task, index in indices.items()}
        for part in checkpoint.tasks:
            task, taken = numbers[part.index], had.names.get(numbers[part.index], {})
            rounds = _rounds_taken(checkpoint, part)
            said = rounds + (part.index in rests)
            if taken and max(taken) >= said:
                text = f"{client} has taken round {max(taken)} of task {task}"
                self.laws.fail(f"{text}, but its checkpoint says {said} rounds", task)
            made, free = self.remake(checkpoint, part, consumer, RangeSet([(0, rounds)]))
            if sorted(made) != list(range(rounds, rounds + len(made))):
                text = f"rounds {sorted(made)[:9]} of task {task} follow {rounds}"
                self.laws.fail(f"from the checkpoint of {client}, {text}", task)
            self._check_decided(client, task, had, free)
            for number, name in made.items():
                if number < free and names.get((task, number, consumer), name) != name:
                    text = f"round {number} of task {task} differs from the checkpoint of {client}"
                    self.laws.fail(text, task)

    def _check_started(
        self,
        client: str,
        task: int,
        part: m.TaskPart,
        checkpoint: m.Checkpoint,
        names: dict[int, Name],
    ) -> None:
        """Check that every split from which an element was produced is known as
        started.
        """
        job = checkpoint.job
        if job.processing_mode != "DYNAMIC" or job.num_tasks is not None:
            return
        known = _splits(part) | _gone(checkpoint)
        for name in names.values():
            if name[:2] not in known:
                text = f"{client} has {name} of task {task}, but does not know its split: {part}"
                self.laws.fail(text, task)

    def _check_decided(self, client: str, task: int, had: Had, free: float) -> None:
        """Check that every decision before the last taken element is known."""
        last = max(had.names.get(task, ()), default=-1)
        if free <= last:
            text = f"{client} has taken element {last} of task {task}"
            self.laws.fail(f"{text}, but does not know what was decided about element {free}", task)

    def _check_same(self, client: str, task: int, made: dict[int, Name], free: float) -> None:
        for number, name in made.items():
            before = self.laws.names.get((task, number), name)
            if before != name and number < free:
                text = f"element {number} of task {task} was {before}, and is {name}"
                self.laws.fail(f"{text} from the checkpoint of {client}", task)

    def _check_whole(self, client: str, checkpoint: m.Checkpoint, found: Counter[Name]) -> None:
        """Check that the elements taken, those that tasks produce again, and the splits
        not started are everything.
        """
        assigned = _gone(checkpoint).union(*map(_splits, checkpoint.tasks))
        everything = self.pipeline.all_names()
        found.update(name for name in everything if name[:2] not in assigned)
        may_lack = {*filter(self.pipeline.is_poison, everything), *self.laws.slips.values()}
        text = f"from the checkpoint of {client}: "
        self.laws.check_same(found, Counter(everything), may_lack, text)

    def remake(
        self,
        checkpoint: m.Checkpoint,
        part: m.TaskPart,
        lane: int = 0,
        delivered: RangeSet | None = None,
    ) -> tuple[dict[int, Name], float]:
        """Compute again what a task still owes of the splits that it has started.

        Returns:
            The elements by number, for the given lane, and the number of the first
            element whose skipping is still undecided.
        """
        done = RangeSet(part.delivered) if delivered is None else delivered
        if part.total is not None and done.covers(0, part.total):
            return {}, math.inf
        made: dict[int, Name] = {}
        definition = m.TaskDefinition(
            0, 0, 0, checkpoint.job, "", part.seed, part.ledger, done.ranges,
            num_shards=checkpoint.num_shards, shard=part.shard or 0,
            bases=part.bases, states=part.states, first_decision=part.first_decision,
            decisions=part.decisions, poisoned=part.poisoned,
        )  # fmt: skip

        def emit(event: RunnerEvent) -> None:
            if isinstance(event, e.Produced) and event.lane == lane:
                made.update(enumerate(event.frames, event.first))
            elif isinstance(event, e.SplitsWanted) and event.waiting and runner.holds:
                # Only an end brings what it holds back. Other splits may bring other
                # elements first.
                runner.free = runner.next_number if runner.free is None else runner.free
                end = self.pipeline.splits
                runner.feed(0, (Split(event.repetition, end, end),))

        clock = Clock()
        # What killed or failed no longer does. Elements keep their numbers all the
        # same.
        healed = replace(self.pipeline, healed=True)
        runner = self.make_runner(definition, healed, clock, self.checked, emit)
        runner.slips_now = 0.0
        runner.allow(PLENTY)
        clock.advance(100_000.0)
        runner.flush()
        clock.advance(1.0)
        return made, math.inf if runner.free is None else runner.free


def _rounds_taken(checkpoint: m.Checkpoint, part: m.TaskPart) -> int:
    """Return the number of rounds of a task that its checkpoint counts as taken.

    A consumer that has read to the end needs nothing of the elements after the last
    full round. Until then other consumers are owed some of them.
    """
    if checkpoint.over and part.total is not None:
        return part.total
    if any(index == part.index for view in checkpoint.views for index, _ in view.tasks):
        rounds = rounds_before(checkpoint.views, part.index, checkpoint.step)
    else:
        rounds = max((stop for _, stop in part.delivered), default=0)
    return rounds if part.total is None else min(rounds, part.total - (part.rest > 0))


def _rests_taken(checkpoint: m.Checkpoint) -> set[int]:
    """Return the tasks of which the client has taken an element of the rest, as its
    checkpoint says. The result is empty at the end of the iteration.
    """
    if checkpoint.last is None or checkpoint.over:
        return set()
    rests = [
        (part.index, part.total - 1, part.rest)
        for part in checkpoint.tasks
        if part.total is not None and part.rest
    ]
    last = LastRounds(checkpoint.last, tuple(sorted(rests)), checkpoint.job.num_consumers or 1)
    view = last.view(checkpoint.reader.consumer_index or 0)
    return {index for index, _ in view.tasks[: checkpoint.step - checkpoint.last]}


def _splits(part: m.TaskPart) -> set[tuple[int, int]]:
    return {
        (entry.repetition, index)
        for entries in part.ledger
        for entry in entries
        for index in range(entry.start, entry.stop, entry.step)
    }


def _gone(checkpoint: m.Checkpoint) -> set[tuple[int, int]]:
    return {
        (part.repetition, index)
        for part in checkpoint.sources
        for first, stop in part.gone
        for index in range(first, stop)
    }
