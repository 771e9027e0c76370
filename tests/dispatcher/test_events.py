"""Tests of the events in a dispatcher's status."""

from __future__ import annotations

import pytest

from tests.core.dispatcher.test_hosting import Hosts
from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    distribute,
)
from zmqdata import updates as u
from zmqdata.client.calls import status
from zmqdata.core.dispatcher import events as e
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


def test_tasks_that_move_are_told() -> None:
    """The log says how many tasks a lost worker leaves to others, and says nothing of a
    worker without tasks.
    """
    hosts = Hosts("k")
    hosts.add("a", "b")
    hosts.done()
    hosts.hosting.lose_worker("a")
    assert e.LogLine("info", "1 task of worker tcp://a must continue at other workers") in (
        hosts.done()
    )
    idle = Hosts()
    idle.out.commit(u.CloseTaskListUpdate(2000))
    idle.add("c")
    idle.done()
    idle.hosting.lose_worker("c")
    assert [one for one in idle.done() if isinstance(one, e.LogLine)] == []


@pytest.mark.realprocess
def test_a_drain_is_seen_in_events() -> None:
    """Joining, moving tasks and leaving are events, oldest first."""
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

        await_condition(lambda: f"worker {first.address} left" in texts())
        found = texts()
        expected = [
            f"worker {first.address} joined",
            f"1 task of worker {first.address} must continue at other workers",
            f"worker {first.address} left",
        ]
        assert [text for text in found if text in expected] == expected
        elements.close()
