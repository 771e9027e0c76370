"""Test what a worker answers to a person who looks at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from zmqdata import messages as m
from zmqdata.config.checks import MOST_CHARACTERS
from zmqdata.config.worker import WorkerConfig
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.worker.answers import WorkerAnswers
from zmqdata.worker.measuring import Measuring


@pytest.fixture
def answers() -> Iterator[WorkerAnswers]:
    core = WorkerCore(WorkerProfile("w", "tcp://w:1"))
    measuring = Measuring({}, lambda key: (0.0, 0.0))
    measuring.recorder.clock = lambda: 0.0
    yield WorkerAnswers(core, WorkerConfig("d:1"), Counter(), measuring, lambda: 5.0)
    measuring.close()


def test_requests_of_a_person_are_answered(answers: WorkerAnswers) -> None:
    """State, echo and trace are answered; anything else is left to the decider."""
    found = answers.to(m.RequestStatus("r"))
    assert isinstance(found, m.StatusReported)
    assert msgspec.json.decode(found.status)["worker"] == "tcp://w:1"
    assert answers.to(m.RequestEcho("r", 3)) == m.EchoSent("r", 5.0, bytes(3))
    assert answers.to(m.RequestTrace("r", "t", 2.0)) == m.TraceRecorded("r", 2.0)
    assert answers.to(m.Probe()) is None


def test_long_ids_are_not_repeated(answers: WorkerAnswers) -> None:
    """An answer repeats the beginning of a very long id."""
    long = "x" * 100_000
    for ask in (m.RequestStatus(long), m.RequestEcho(long), m.RequestTrace(long, "t")):
        found = answers.to(ask)
        assert found is not None
        assert len(m.request_of(found)) == MOST_CHARACTERS
