"""Facts about elements that are made again by a person, on real sockets."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Service
from zmqdata import Dataset
from zmqdata.client.replaying import FetchedTask, fetch_task
from zmqdata.errors import FailedPreconditionError, NotFoundError, PipelineError
from zmqdata.pipelines import packing
from zmqdata.worker.tasks.replay import ReplayedElement, TaskReplay


def failing(dataset: Dataset) -> tuple[int, int]:
    """Read until an element fails; return the numbers of its task and itself, as the
    error tells them.
    """
    with pytest.raises(PipelineError) as caught:
        list(dataset)
    told = re.search(r"`zmqdata replay (\d+) (\d+)`", str(caught.value.args[0]))
    assert told is not None
    return int(told[1]), int(told[2])


def replayed(task: FetchedTask, element: int) -> ReplayedElement:
    return TaskReplay(task.definition, task.pipeline, task.parts.get).run(element)


@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
def test_the_element_of_an_error_is_made_again_after_its_job(
    make_service: Callable[..., Service], mode: str
) -> None:
    """The command in the error of an element works after the job without a name has
    ended, until the dispatcher forgets it.
    """
    service = make_service(1)
    table = np.arange(300_000)  # travels as a part

    def looked_up(x: int) -> int:
        if x == 37:
            raise ValueError(f"no {table[x]}")
        return int(table[x])

    task, element = failing(service.read(Dataset.range(100).map(looked_up), mode))
    fetched = fetch_task(service.target, task, 30)
    assert fetched.parts
    assert element == 37
    assert str(replayed(fetched, element).error.__cause__) == "no 37"  # type: ignore[union-attr]
    assert replayed(fetched, element - 1).elements == (36,)


def test_what_a_person_lacks_is_not_said_of_a_worker(
    make_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that is missing where an element is made again is missing there."""
    service = make_service(1)
    task, _ = failing(service.read(Dataset.range(9).map(lambda x: np.ones(1) / [][x])))
    fetched = fetch_task(service.target, task, 30)
    monkeypatch.setattr(packing, "_can_import", lambda name: False)
    with pytest.raises(
        FailedPreconditionError, match=r"module 'numpy' which `zmqdata replay` .* cannot import"
    ) as caught:
        TaskReplay(fetched.definition, fetched.pipeline, fetched.parts.get)
    assert "worker" not in str(caught.value)


def test_the_task_of_a_living_job_is_known(make_service: Callable[..., Service]) -> None:
    """A task can be fetched while its job reads, and its elements are still delivered
    once.
    """
    service = make_service(1)
    elements = iter(service.read(Dataset.range(50).batch(2), job_name="job"))
    first = next(elements)
    [known] = service.dispatcher._started().core.state.tasks
    fetched = fetch_task(service.target, known, 30)
    assert fetched.job == "job"
    assert not fetched.definition.ticket
    assert [first.tolist(), *(one.tolist() for one in elements)] == [
        [at, at + 1] for at in range(0, 50, 2)
    ]


def test_an_unknown_task_is_refused(make_service: Callable[..., Service]) -> None:
    """The error says which tasks a dispatcher knows."""
    arguments: dict[str, Any] = {"timeout": 30}
    with pytest.raises(NotFoundError, match="Task 17 is unknown"):
        fetch_task(make_service(0).target, 17, **arguments)
