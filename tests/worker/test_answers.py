"""Test what a worker answers to a person who looks at it."""

from __future__ import annotations

from collections import Counter

import msgspec

from zmqdata import messages as m
from zmqdata.config.worker import WorkerConfig
from zmqdata.core.limits import MOST_CHARACTERS
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.measures.recorder import Recorder
from zmqdata.worker.answers import WorkerAnswers


def answers() -> WorkerAnswers:
    core = WorkerCore(WorkerProfile("w", "tcp://w:1"))
    recorder = Recorder(lambda: 0.0, lambda: 0.0)
    return WorkerAnswers(core, WorkerConfig("d:1"), Counter(), {}, recorder, lambda: 5.0)


def test_requests_of_a_person_are_answered() -> None:
    """State, echo and recording are answered; anything else is left to the decider."""
    one = answers()
    found = one.to(m.RequestStatus("r"))
    assert isinstance(found, m.StatusReported)
    assert msgspec.json.decode(found.status)["worker"] == "tcp://w:1"
    assert one.to(m.RequestEcho("r", 3)) == m.EchoSent("r", 5.0, bytes(3))
    assert one.to(m.RequestTrace("r", "t", 2.0)) == m.TraceRecorded("r", 2.0)
    assert one.to(m.Probe()) is None


def test_long_ids_are_not_repeated() -> None:
    """An answer repeats the beginning of a very long id."""
    long = "x" * 100_000
    for ask in (m.RequestStatus(long), m.RequestEcho(long), m.RequestTrace(long, "t")):
        found = answers().to(ask)
        assert found is not None
        assert len(m.request_of(found)) == MOST_CHARACTERS
