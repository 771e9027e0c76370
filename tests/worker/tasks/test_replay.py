"""Tests of tasks that a person runs again in a process of their own."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.definitions import changed, define
from zmqdata import Dataset
from zmqdata.blocks import decode_block
from zmqdata.core.worker import events as e
from zmqdata.errors import FailedPreconditionError, NotFoundError, PipelineError
from zmqdata.messages import TaskDefinition
from zmqdata.pipelines import pack_pipeline
from zmqdata.splits import Split
from zmqdata.worker.tasks.replay import ReplayedElement, TaskReplay, nearest_state
from zmqdata.worker.tasks.runner import TaskRunner

COUNT = 40


def definition_for(dataset: Dataset, count: int = COUNT, **changes: Any) -> TaskDefinition:
    """Return a task that has been given single splits, and the end if these are all."""
    ledger = tuple(Split(0, number, number + 1) for number in range(count))
    if count == COUNT:
        ledger += (Split(0, COUNT, COUNT),)
    task = define(
        1,
        1,
        7,
        "dataset",
        pack_pipeline(dataset.node).digest,
        "DYNAMIC",
        9,
        None,
        (ledger,),
        (),
        iteration_seed=8,
    )
    return changed(task, **changes)


def replayed(dataset: Dataset, task: TaskDefinition, number: int) -> ReplayedElement:
    return TaskReplay(task, pack_pipeline(dataset.node).encoded, lambda _: None).run(number)


def fails_at_17(x: int) -> int:
    if x == 17:
        raise ValueError(f"no {x}")
    return x


@pytest.mark.parametrize("parallel", [None, 4])
def test_an_element_fails_as_on_the_worker(parallel: int | None) -> None:
    """The error has the traceback of the user's function, and the elements around it do
    not fail.
    """
    dataset = Dataset.range(COUNT).map(fails_at_17, num_parallel_calls=parallel).prefetch(4)
    task = definition_for(dataset)
    found = replayed(dataset, task, 17)
    assert isinstance(found.error, PipelineError)
    assert str(found.error.__cause__) == "no 17"
    assert found.error.__cause__ is not None
    raised = found.error.__cause__.__traceback__
    while raised is not None and raised.tb_next is not None:
        raised = raised.tb_next
    assert raised is not None
    assert raised.tb_frame.f_locals == {"x": 17}
    assert replayed(dataset, task, 16).elements == (16,)
    after = replayed(dataset, task, 18)
    assert (after.elements, after.failed_before) == ((18,), (17,))


def test_draws_are_those_of_the_worker() -> None:
    """Shuffled and random elements come out as the runner of a worker made them."""

    def noisy(x: int, rng: np.random.Generator) -> float:
        return float(x) + float(rng.random())

    dataset = Dataset.range(COUNT).shuffle(8).random_map(noisy)
    task, made = definition_for(dataset), list[e.Produced]()

    def take(event: Any) -> None:
        if isinstance(event, e.Produced):
            made.append(event)

    packed = pack_pipeline(dataset.node)
    runner = TaskRunner(e.StartTask(task, packed.encoded), take, "worker", lambda _: None)
    runner.allow(1 << 30)
    runner._run()
    blocks = [decode_block(one.meta, one.frames) for one in made]
    by_worker = [float(element) for block in blocks for element in block.elements()]
    assert len(by_worker) == COUNT
    here = [float(replayed(dataset, task, number).elements[0]) for number in (0, 7, COUNT - 1)]
    assert here == [by_worker[0], by_worker[7], by_worker[COUNT - 1]]


def test_a_replay_continues_from_the_nearest_state() -> None:
    """Entries before the state are not needed, and elements keep their numbers."""
    dataset = Dataset.range(COUNT).map(fails_at_17)
    states = []

    def take(event: Any) -> None:
        if isinstance(event, e.StateNoted):
            states.append(event.state)

    task = definition_for(dataset)
    packed = pack_pipeline(dataset.node)
    runner = TaskRunner(e.StartTask(task, packed.encoded), take, "worker", lambda _: None)
    clock = iter(range(10**9))
    # The clock of the machine, which may have run for hours, must not decide when the
    # first state is due.
    runner._states.clock, runner._states.due = lambda: float(next(clock)), 30.0
    runner.allow(1 << 30)
    runner._run()
    before = [state for state in states if state.number <= 17][-1]
    base = before.needs[0]
    assert 0 < base <= 17
    later = changed(task, ledger=(task.ledger[0][base:],), bases=(base,), states=(before,))
    found = replayed(dataset, later, 17)
    assert (found.began, str(found.error.__cause__)) == (before.number, "no 17")  # type: ignore[union-attr]
    assert replayed(dataset, later, COUNT - 1).elements == (COUNT - 1,)
    with pytest.raises(FailedPreconditionError, match=f"Element {before.number} is the first"):
        replayed(dataset, later, before.number - 1)


def test_a_task_that_was_delivered_cannot_be_made_again() -> None:
    """Without splits and states, the error says that they are forgotten."""
    task = definition_for(Dataset.range(COUNT), ledger=((),), bases=(COUNT,))
    with pytest.raises(FailedPreconditionError, match="It has none of its elements left"):
        nearest_state(task, 3)
    assert nearest_state(definition_for(Dataset.range(COUNT), bases=(0,)), 3) is None


def test_an_element_beyond_the_splits_is_refused() -> None:
    """A replay that has used up the splits of its task ends with an error and does not
    wait for more. After the end of the input, the error says how many elements there
    are.
    """
    dataset = Dataset.range(COUNT).map(fails_at_17, num_parallel_calls=2).prefetch(4)
    with pytest.raises(FailedPreconditionError, match="end after element 9"):
        replayed(dataset, definition_for(dataset, 10), 10)
    with pytest.raises(NotFoundError, match=f"ends here after {COUNT} elements"):
        replayed(dataset, definition_for(dataset), COUNT)


@pytest.mark.parametrize("changes", [{}, {"by_reference": True}, {"cache": True}])
def test_a_copy_is_made_from_the_beginning(changes: dict[str, Any]) -> None:
    """A task that shares no splits needs no ledger, however its elements travel."""
    dataset = Dataset.range(COUNT).map(fails_at_17)
    task = definition_for(dataset, processing_mode="OFF", ledger=(), **changes)
    assert replayed(dataset, task, 16).elements == (16,)
    assert str(replayed(dataset, task, 17).error.__cause__) == "no 17"  # type: ignore[union-attr]


def test_a_shard_is_made_alone() -> None:
    """A static shard reads its own part of the input."""
    dataset = Dataset.range(COUNT).map(fails_at_17)
    task = definition_for(dataset, processing_mode="DATA", ledger=(), num_shards=4, shard=1)
    found = [replayed(dataset, task, number).elements for number in range(3)]
    assert found == [(1,), (5,), (9,)]
    assert str(replayed(dataset, task, 4).error.__cause__) == "no 17"  # type: ignore[union-attr]


def test_a_round_is_made_for_all_consumers() -> None:
    """In coordinated reads, a number means one element for each consumer."""
    dataset = Dataset.range(COUNT).map(fails_at_17)
    task = definition_for(dataset, num_consumers=2)
    assert replayed(dataset, task, 7).elements == (14, 15)
    assert str(replayed(dataset, task, 8).error.__cause__) == "no 17"  # type: ignore[union-attr]
    assert replayed(dataset, task, 9).failed_before == (8,)


def test_an_element_that_cannot_be_sent_fails() -> None:
    """An object that cannot be pickled is an error here, too."""
    dataset = Dataset.range(COUNT).map(lambda x: (x, threading.Lock()))
    found = replayed(dataset, definition_for(dataset), 3)
    assert found.error is not None
    assert "lock" in str(found.error)


def test_skipped_elements_are_told() -> None:
    """Elements that an operation skips have no number, and are listed."""
    dataset = Dataset.range(COUNT).map(fails_at_17, on_error="skip")
    found = replayed(dataset, definition_for(dataset), 20)
    assert found.elements == (21,)
    assert [one.number for one in found.left_out] == [17]
