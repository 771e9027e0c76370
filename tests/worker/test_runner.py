"""Facts about task runners: what they note of where they are, and how one goes on from what another one noted."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from zmqdata import Dataset
from zmqdata import commands as c
from zmqdata.blocks import decode_block
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures import decode_failure
from zmqdata.messages import TaskDefinition
from zmqdata.pipelines import pack_pipeline
from zmqdata.splits import Split
from zmqdata.worker.runner import TaskRunner
from zmqdata.worker.states import StateTaker

COUNT = 200


class Run:
    """A runner that runs in the test's own thread to its end, over a ledger of single splits; and what it posted."""

    def __init__(self, dataset: Dataset, definition: TaskDefinition | None = None, **changes: Any) -> None:
        packed = pack_pipeline(dataset.node)
        ledger = (*(Split(0, number, number + 1) for number in range(COUNT)), Split(0, COUNT, COUNT))
        self.definition = definition or TaskDefinition(
            1, 1, 7, "dataset", packed.digest, "DYNAMIC", 9, None, (ledger,), (), iteration_seed=8
        )
        self.definition = msgspec.structs.replace(self.definition, **changes)
        self.posted: list[Any] = []
        command = c.StartTask(self.definition, packed.encoded)
        self.runner = TaskRunner(command, self.posted.append, "worker", lambda: False, lambda _: None, 1 << 30)
        self.runner.allow(1 << 30)
        self._hurry(self.runner._states)
        self.runner._run()

    def _hurry(self, states: StateTaker) -> None:
        """Makes a state due before every element: hours pass there, and no time while one is taken."""
        now, take = 0.0, states.take

        def hours_later() -> float:
            nonlocal now
            now += 3600.0
            return now

        def take_at_once(*args: Any) -> Any:
            states.clock = lambda: now
            try:
                return take(*args)
            finally:
                states.clock = hours_later

        states.clock, states.take = hours_later, take_at_once  # type: ignore[method-assign]  # as a clock would not do

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.posted if isinstance(one, kind)]

    @property
    def elements(self) -> dict[int, Any]:
        """By number; of a failure its text."""
        found: dict[int, Any] = {}
        for made in self.of(c.Produced):
            made_of = [str(decode_failure(made.failure))] if made.failure else _elements(made)
            for at, element in enumerate(made_of):
                assert made.first + at not in found
                found[made.first + at] = element
        return found

    @property
    def total(self) -> int:
        (ended,) = self.of(c.Exhausted)
        return int(ended.total)

    def again(self, dataset: Dataset, number: int, *skip: tuple[int, int]) -> Run:
        """Another attempt that is told the states up to a number, and no entry that the first of them does not need."""
        states = [one.state for one in self.of(c.StateTaken) if one.state.number <= number]
        useful = [states[-1]] if len(skip) == 1 else [states[0], states[-1]]
        base = min(state.needs[0] for state in useful)
        ledger = (self.definition.ledger[0][base:],)
        return Run(dataset, self.definition, ledger=ledger, bases=(base,), states=tuple(useful), skip=skip, attempt=2)


def _elements(made: c.Produced) -> list[Any]:
    return [np.asarray(element).tolist() for element in decode_block(made.meta, made.frames).elements()]


def shuffled() -> Dataset:
    return Dataset.range(COUNT).shuffle(8).map(lambda x: x * 2)


def test_another_runner_goes_on_from_a_state() -> None:
    """With the entries that the state needs it makes what follows, and the same."""
    first = Run(shuffled())
    second = first.again(shuffled(), 150, (0, 153))
    assert second.definition.bases[0] > 60
    assert second.elements == {number: first.elements[number] for number in range(153, COUNT)}
    assert first.total == second.total == COUNT


def test_a_runner_leaps_over_what_nobody_needs() -> None:
    """It makes what is missing early on, and goes on from the last state; what lies between is not made again."""
    first = Run(shuffled())
    second = first.again(shuffled(), 150, (0, 4), (6, 153))
    numbers = [4, 5, *range(153, COUNT)]
    assert second.elements == {number: first.elements[number] for number in numbers}
    assert second.total == COUNT
    taken = [one.state.number for one in second.of(c.StateTaken)]
    assert min(taken) >= 150


def test_states_lie_between_rounds() -> None:
    """Where an element goes to each of three consumers, no state is taken between them."""
    run = Run(shuffled(), num_consumers=3, finite="drop")
    numbers = [one.state.number for one in run.of(c.StateTaken)]
    assert numbers == sorted(set(numbers))
    assert run.total == COUNT // 3


def test_a_state_that_does_not_fit_fails_the_task() -> None:
    """Nothing is made from it: the failure is the job's, with the reason."""
    first = Run(shuffled())
    second = first.again(Dataset.range(COUNT).batch(2), 150, (0, 153))
    packed = pack_pipeline(Dataset.range(COUNT).batch(2).node)
    second = Run(Dataset.range(COUNT).batch(2), second.definition, digest=packed.digest)
    [failed] = second.of(c.TaskFailed)
    assert str(decode_failure(failed.failure))
    assert (second.elements, second.of(c.Exhausted)) == ({}, [])


PATIENCE = 10.0


@contextmanager
def running(dataset: Dataset, reason: str = "") -> Iterator[tuple[TaskRunner, queue.SimpleQueue[Any]]]:
    """A runner of this pipeline, and what it posts."""
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    packed = pack_pipeline(dataset.node)
    definition = TaskDefinition(1, 1, 7, "dataset", packed.digest, "OFF", 9, None, (), ())
    command = c.StartTask(definition, packed.encoded, reason)
    runner = TaskRunner(command, events.put, "tcp://w", lambda: False, lambda digest: None, 1 << 30)
    runner.start()
    yield runner, events
    runner.stop()
    assert runner.join(PATIENCE)


def test_elements_are_bounded_while_nobody_reads() -> None:
    """It stops at a number of elements and hands over what it has; without such a number it goes on to the end."""
    with running(Dataset.range(20)) as (runner, events):
        runner.allow(1 << 20, 8)
        made = events.get(timeout=PATIENCE)
        assert (type(made), made.first, made.count) == (c.Produced, 0, 8)
        runner.allow(1 << 20)
        made = events.get(timeout=PATIENCE)
        assert (type(made), made.first, made.count) == (c.Produced, 8, 12)
        assert events.get(timeout=PATIENCE) == c.Exhausted(1, 1, 20)


def test_a_pipeline_that_cannot_be_opened_fails_the_task() -> None:
    """It makes no element and has no end: the failure stands for all of it."""
    with running(Dataset.range(20), reason="the part is lost") as (_, events):
        failed = events.get(timeout=PATIENCE)
        assert isinstance(failed, c.TaskFailed)
        error = decode_failure(failed.failure)
        assert (type(error), str(error)) == (FailedPreconditionError, "the part is lost")
