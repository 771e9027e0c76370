"""Facts about the thread that runs a task's pipeline."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zmqdata import Dataset
from zmqdata import commands as c
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures import decode_failure
from zmqdata.messages import TaskDefinition
from zmqdata.pipelines import pack_pipeline
from zmqdata.worker.runner import TaskRunner

PATIENCE = 10.0


@contextmanager
def running(dataset: Dataset, reason: str = "") -> Iterator[tuple[TaskRunner, queue.SimpleQueue[Any]]]:
    """A runner of this pipeline, and what it posts."""
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    packed = pack_pipeline(dataset.node)
    definition = TaskDefinition(1, 1, 7, "dataset", packed.digest, "OFF", 9, None, (), ())
    encoded = packed.encoded
    runner = TaskRunner(definition, encoded, reason, events.put, "tcp://w", lambda: False, lambda digest: None)
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
