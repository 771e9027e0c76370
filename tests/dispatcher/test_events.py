"""Tests of the events in a dispatcher's status."""

from __future__ import annotations

import pytest

from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    distribute,
)
from zmqdata.client.calls import status
from zmqdata.dispatcher import status as states
from zmqdata.dispatcher.status import EventLog
from zmqdata.testing.cluster import await_condition


def test_events_are_bounded() -> None:
    """The newest events are kept, each to a maximum length, and details are none."""
    events = EventLog()
    for number in range(1_000):
        events.add(float(number), "info", f"{number} {'x' * 10_000}")
        events.add(float(number), "debug", "a detail")
    shown = list(events.shown())
    assert len(shown) == states.EVENTS_KEPT
    assert [one["time"] for one in (shown[0], shown[-1])] == [800.0, 999.0]
    assert {len(one["text"]) for one in shown} == {states.EVENT_CHARACTERS}


@pytest.mark.realprocess
def test_joining_and_leaving_are_events() -> None:
    """Joining and leaving are events, oldest first."""
    with (
        DispatchServer(DispatcherConfig()) as dispatcher,
        WorkerServer(WorkerConfig(dispatcher.target)) as first,
        WorkerServer(WorkerConfig(dispatcher.target)),
    ):
        elements = iter(
            Dataset.range(10_000).apply(distribute("distributed_epoch", dispatcher.target, "job"))
        )
        next(elements)
        first.drain()
        first.stop()

        def texts() -> list[str]:
            return [one["text"] for one in status(dispatcher.target)["events"]]

        address = f"worker {first.address}"
        await_condition(lambda: any(f"{address} has left" in text for text in texts()))
        found = [text for text in texts() if text.startswith(address)]
        assert "is registered" in found[0]
        assert "has left" in found[-1]
        elements.close()
