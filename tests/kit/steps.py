"""The laws of coordinated reads, as facts checked whenever a training loop of a
simulated world takes elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.kit.checks import Laws
from tests.kit.runner import Name, SimulatedPipeline
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.messages import Block, JobParameters
from zmqdata.updates import OpenClientUpdate

Place = tuple[int, int]
"""Task and round of a step."""


@dataclass
class Path:
    """The elements that a consumer was handed."""

    steps: dict[int, tuple[str, Name]] = field(default_factory=dict)
    """Client and element, by step."""
    lost: dict[tuple[str, int], Name] = field(default_factory=dict)
    """Elements handed to clients that were given up, by process and step. They count
    again if the same process returns.
    """
    last: dict[str, int] = field(default_factory=dict)
    """Last step of each process."""


class StepLaws:
    """Observer of the consumers of a world.

    Args:
        laws: the laws that all worlds have, which report breaches.
    """

    def __init__(self, laws: Laws) -> None:
        self.laws = laws
        self.places: dict[int, dict[int, Place]] = {}
        self.last_steps: dict[tuple[int, int, int], Place] = {}
        self.names: dict[tuple[int, int, int], Name] = {}
        self.paths: dict[tuple[int, int], Path] = {}
        self._where: dict[str, int] = {}
        laws.on_opened.append(self._opened)
        laws.on_gone.append(self._client_gone)
        laws.on_passed.append(self._passed)

    def _opened(self, update: OpenClientUpdate) -> None:
        self._where[update.client] = update.iteration

    def _newest(self) -> Iteration:
        return self.laws.state.iterations[max(self.laws.state.iterations)]

    def of_consumer(self, consumer: int) -> dict[int, tuple[str, Name]]:
        """Return the clients and elements of a consumer in the newest iteration, by
        step.
        """
        newest = max(self.laws.state.iterations, default=0)
        return self.paths.get((newest, consumer), Path()).steps

    def handed_out(
        self,
        client: str,
        consumer: int,
        step: int,
        header: Block,
        names: tuple[Name, ...],
        number: int,
    ) -> None:
        """Check the elements that a training loop takes of a block, from a number on,
        beginning at ``step``.
        """
        for at, name in enumerate(names):
            self._take(client, consumer, step + at, (header.task, number + at), name)

    def _take(self, client: str, consumer: int, step: int, place: Place, name: Name) -> None:
        laws, number = self.laws, self._where[client]
        path = self.paths.setdefault((number, consumer), Path())
        iteration = laws.state.iterations.get(number)
        last = None if iteration is None else iteration.last_rounds
        if last is None or step < last.first_step:
            former = self.places.setdefault(number, {}).setdefault(step, place)
            if former != place:
                text = f"step {step} is {former} for other clients and {place} for {client}"
                laws.fail(text, place[0])
        elif last.view(consumer).tasks[step - last.first_step] != place:
            laws.fail(f"step {step} of the last rounds is {place} for {client}", place[0])
        else:
            self.last_steps[number, step, consumer] = place
        known, process = self.names.setdefault((*place, consumer), name), _reader(client)
        if known != name:
            laws.fail(f"round {place} of consumer {consumer} was {known}, then {name}", place[0])
        if step <= path.last.get(process, -1):
            laws.fail(f"step {step} of {client} follows {path.last[process]}", client)
        path.last[process] = step
        is_gone = client in laws.gone or client not in laws.state.client_iteration
        if iteration is None or is_gone:
            path.lost[process, step] = name
            return
        if step >= iteration.horizon:
            laws.fail(f"{client} reads step {step} at the horizon {iteration.horizon}", client)
        other = path.steps.get(step, ("", name))[0]
        if other and other not in laws.excused:
            text = f"step {step} of consumer {consumer} was handed out by {other} and by {client}"
            laws.fail(text, client)
        path.steps[step] = (client, name)

    def _client_gone(self, client: str) -> None:
        """Record as lost what a client took and did not report. Its successor gets it
        again.
        """
        iteration = self.laws.state.iterations.get(self._where.get(client, 0))
        if iteration is None or iteration.rounds is None:
            return
        for (number, consumer), path in self.paths.items():
            if number != iteration.iteration:
                continue
            reported = iteration.rounds.steps[consumer]
            for step, (owner, name) in list(path.steps.items()):
                if owner == client and step >= reported:
                    path.lost[_reader(client), step] = name
                    del path.steps[step]

    def _passed(self, number: int, consumer: int, steps: int) -> None:
        """Count again what a returning client had taken. No other client may have taken
        it meanwhile.
        """
        iteration = self.laws.state.iterations[number]
        # A goodbye may come after its client was given up.
        client = iteration.consumers.get(consumer) or iteration.numbered.seats[consumer]
        path = self.paths.get((number, consumer))
        if client is None or path is None:
            return
        for (process, step), name in list(path.lost.items()):
            if process == _reader(client) and step < steps:
                if step in path.steps:
                    text = f"{client} returns with step {step}, which {path.steps[step][0]} has"
                    self.laws.fail(text, client)
                path.steps[step] = (client, name)
                del path.lost[process, step]

    # --- at the end

    def check_end(self, everything: list[Name]) -> None:
        """Check that every consumer has had every step, and together all elements
        except permitted rests.

        Args:
            everything: the elements of the whole input.
        """
        iteration = self._newest()
        consumers, last = len(iteration.numbered.steps), iteration.last_rounds
        for task in iteration.live_tasks:
            self.laws.check_settled(task)
        due = set(self.places.get(iteration.iteration, ()))
        if last is not None:
            due |= set(range(last.first_step, last.stop))
        for consumer in range(consumers):
            found = set(self.of_consumer(consumer))
            if found != due:
                lacking = sorted(due - found)[:9]
                numbers = [self._place(iteration, step, consumer)[0] for step in lacking]
                self.laws.fail(f"consumer {consumer} has skipped steps {lacking}", *numbers)
        tasks = [*iteration.live_tasks]
        parts = [[task] for task in tasks] if iteration.job.processing_mode == "OFF" else [tasks]
        missing = sum(self._check_elements(part, everything, iteration) for part in parts)
        if missing != iteration.dropped or missing >= consumers:
            self.laws.fail(f"{missing} elements are missing, {iteration.dropped} dropped")

    def _place(self, iteration: Iteration, step: int, consumer: int) -> Place:
        number = iteration.iteration
        place = self.last_steps.get((number, step, consumer))
        return place or self.places.get(number, {}).get(step, (0, 0))

    def _check_elements(self, tasks: list[Task], names: list[Name], iteration: Iteration) -> int:
        """Return the number of elements of some tasks that are missing."""
        numbers = {task.task for task in tasks}
        everything = self.laws.without_slips(numbers, names)
        found = Counter(
            name
            for consumer in range(iteration.job.num_consumers or 0)
            for step, (_, name) in self.of_consumer(consumer).items()
            if self._place(iteration, step, consumer)[0] in numbers
        )
        lacking, surplus = sum((everything - found).values()), sum((found - everything).values())
        padded = iteration.job.finite == "pad"
        most = len(tasks) * ((iteration.job.num_consumers or 1) - 1) if padded else 0
        if (padded and lacking) or surplus > most:
            self.laws.fail(f"{lacking} elements are missing and {surplus} surplus", *numbers)
        return lacking

    def check_order(self, pipeline: SimulatedPipeline, job: JobParameters) -> None:
        """Check that the element of each consumer at each step follows from the
        pipeline and the number of tasks alone.
        """
        iteration = self._newest()
        taken, consumers = self.places.get(iteration.iteration, {}), job.num_consumers or 1
        shards = {number: task.shard or 0 for number, task in iteration.tasks.items()}
        places = [(number, shards[task]) for _, (task, number) in sorted(taken.items())]
        if places != sorted(places):
            self.laws.fail(f"tasks do not take turns: {places}")
        left_out = {(shards[task], at) for task, at in self.laws.left_out if task in shards}
        expected = [_made(pipeline, job, shard, left_out) for shard in range(job.num_tasks or 0)]
        for consumer in range(job.num_consumers or 0):
            for step, (client, name) in sorted(self.of_consumer(consumer).items()):
                task, number = self._place(iteration, step, consumer)
                place = number * consumers + consumer
                if (iteration.iteration, step, consumer) in self.last_steps:
                    place = self._place_in_rest(task, number, consumer)
                due = expected[shards[task]][place]
                if name != due:
                    text = f"step {step} of consumer {consumer} was {name} for {client}"
                    self.laws.fail(f"{text}, expected {due}", task)

    def _place_in_rest(self, task: int, full: int, consumer: int) -> int:
        """Return the number of an element that a consumer gets of a rest."""
        last = self._newest().last_rounds
        assert last is not None
        first = last.places[task][0]
        return full * last.num_consumers + (consumer - first) % last.num_consumers


def _reader(client: str) -> str:
    """Return the process behind a client's name. A client that was given up takes
    another name.
    """
    return client.partition(".")[0]


def _made(
    pipeline: SimulatedPipeline,
    job: JobParameters,
    shard: int,
    left_out: Collection[tuple[int, int]],
) -> list[Name]:
    """Return what a task of a job with a promised order produces: every n-th split, or
    in a static mode every n-th element.
    """
    names, count, consumers = pipeline.all_names(), job.num_tasks or 1, job.num_consumers or 1
    if job.processing_mode == "DYNAMIC":
        made = [name for name in names if name[1] % count == shard]
    else:
        made = names[shard::count]
    kept = [name for at, name in enumerate(made) if (shard, at) not in left_out]
    made = [name for name in kept if not pipeline.is_poison(name)]
    rest = len(made) % consumers
    if rest and job.finite == "pad":
        made += [made[len(made) - rest + at % rest] for at in range(rest, consumers)]
    return made
