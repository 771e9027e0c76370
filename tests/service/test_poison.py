"""Facts about calls that do not return, on workers in this process. Workers abandon
their threads, and their tasks continue elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.service.conftest import Service, wait_until
from zmqdata import Dataset
from zmqdata.client.calls import status
from zmqdata.errors import PipelineError

COUNT = 60
BAD = 23
RELEASE = threading.Event()
"""Event that ends stuck calls. Workers and the test are in one process, and functions
of an importable module are pickled by name.
"""
CALLS: list[int] = []


@pytest.fixture(autouse=True)
def _nobody_stays_stuck() -> Iterator[None]:
    RELEASE.clear()
    CALLS.clear()
    yield
    RELEASE.set()


def stick(x: Any) -> Any:
    if x == BAD:
        CALLS.append(int(x))
        RELEASE.wait(60)
    return x


def stick_once(x: Any) -> Any:
    return x if CALLS else stick(x)


@pytest.fixture
def lively(make_service: Callable[..., Service]) -> Service:
    return make_service(worker_options={"heartbeat_interval_ms": 100})


def read(service: Service, function: Callable[[Any], Any], **options: Any) -> list[int]:
    dataset = Dataset.range(COUNT).map(function)
    return sorted(int(x) for x in service.read(dataset, task_timeout=0.5, **options))


def test_a_stuck_task_goes_on_elsewhere(lively: Service) -> None:
    """The worker gives up a call that takes longer than task_timeout, and every element
    of the task comes once.
    """
    assert read(lively, stick_once) == list(range(COUNT))


def test_what_is_always_stuck_fails_by_name(lively: Service) -> None:
    """After the third time alone the job fails with an error that has the element, the
    node's place in the code, and the cause.
    """
    text = r"came to map\(stick\) at test_poison.py:\d+ .*was stuck for \d+ s, 3 times"
    with pytest.raises(PipelineError, match=text):
        read(lively, stick)
    assert len(CALLS) == 4


def test_what_is_always_stuck_is_left_out_on_request(
    lively: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Every other element comes once with on_poison="skip", and the status, the
    quarantine and states name the skipped element.
    """
    dataset = lively.read(
        Dataset.range(COUNT).map(stick), task_timeout=0.5, job_name="job", on_poison="skip"
    )
    iterator = iter(dataset)
    assert sorted(int(x) for x in iterator) == [x for x in range(COUNT) if x != BAD]
    [left_out] = iterator.quarantine
    assert left_out.node.startswith("map(stick) at test_poison.py")
    assert "has brought its worker down 3 times" in left_out.error
    assert [one["error"] for one in iterator.state_dict()["quarantine"]] == [left_out.error]
    [told] = [
        record.getMessage() for record in caplog.records if "ended without" in record.getMessage()
    ]
    assert (
        "ended without 1 elements that workers could not produce. They were skipped because the "
        "job (on_poison='skip') "
        "asks for it" in told
    )
    [job] = status(lively.target)["jobs"]
    [text] = job["poisoned"]
    assert "came to map(stick)" in text


def test_the_status_tells_what_is_stuck(lively: Service) -> None:
    """Without a timeout the worker keeps a stuck task, and the status shows how long
    and at what it is stuck.
    """
    iterator = iter(lively.read(Dataset.range(COUNT).map(stick), job_name="job"))
    thread = threading.Thread(target=lambda: list(iterator))
    thread.start()
    wait_until(
        lambda: any(task["busy_seconds"] > 0.8 for task in status(lively.target)["tasks"]),
        "it is busy",
    )
    [task] = [task for task in status(lively.target)["tasks"] if task["busy_seconds"] > 0.8]
    assert "came to map(stick) at test_poison.py" in task["busy_with"]
    assert task["attempt"] == 1
    RELEASE.set()
    thread.join()


def test_who_waits_is_not_stuck(make_service: Callable[..., Service]) -> None:
    """A task without a reader for longer than task_timeout stays on its worker."""
    service = make_service(worker_options={"heartbeat_interval_ms": 100, "buffer_bytes": 1000})
    dataset = Dataset.range(300).map(lambda x: x)
    iterator = iter(
        service.read(dataset, job_name="job", task_timeout=1.0, max_outstanding_requests=1)
    )
    next(iterator)
    waiting = threading.Event()
    waiting.wait(1.6)
    tasks = status(service.target)["tasks"]
    assert all(task["attempt"] == 1 for task in tasks)
    assert any(task["total"] is None for task in tasks)
    assert len(list(iterator)) == 299
