"""Tests of the events in a dispatcher's status."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    shown = list(events.shown({}))
    assert len(shown) == states.EVENTS_KEPT
    assert [one.time for one in (shown[0], shown[-1])] == [800.0, 999.0]
    assert {len(one.text) for one in shown} == {states.EVENT_CHARACTERS}


def test_jobs_do_not_displace_warnings() -> None:
    """A warning is kept, at its place, among any number of jobs that begin and end."""
    events = EventLog()
    for number in range(1_000):
        events.add(float(number), "info" if number != 900 else "warning", "text")
    events.add(1000.0, "error", "text")
    shown = list(events.shown({}))
    assert [one.time for one in shown] == sorted(one.time for one in shown)
    assert {900.0, 1000.0} <= {one.time for one in shown}
    for number in range(1_000):
        events.add(2000.0 + number, "info", "text")
    assert [one.time for one in events.shown({})][:2] == [900.0, 1000.0]


def told_of(target: str, job: str) -> list[str]:
    """Return the events of a job, without its name and its durations."""
    events = [one["text"] for one in status(target)["events"]]
    prefix = f"job {job}, repetition "
    told = [one.removeprefix(prefix) for one in events if one.startswith(prefix)]
    return [re.sub(r"[0-9a-f]{16}|\d{4,}|[\d.]+ s$", "#", one) for one in told]


def test_each_job_begins_and_ends_with_an_event(tmp_path: Path) -> None:
    """Each repetition of a job has an event for its beginning, and an event for its end
    with its elements and its duration. A restarted dispatcher tells none of them again.
    """
    config = DispatcherConfig(work_dir=str(tmp_path))
    with DispatchServer(config) as dispatcher:
        target = dispatcher.target
        with WorkerServer(WorkerConfig(target)):
            elements = Dataset.range(20).apply(distribute("distributed_epoch", target, "named"))
            for _ in range(2):
                assert len(list(elements)) == 20
            assert told_of(target, "named") == [
                "0, begins: # reads dataset #",
                "0, has ended: 20 elements in #",
                "1, begins: # reads dataset #",
                "1, has ended: 20 elements in #",
            ]
    config = replace(config, port=int(target.rpartition(":")[2]))
    with DispatchServer(config) as dispatcher:
        assert status(target)["iterations"]
        assert told_of(target, "named") == []


@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
def test_a_job_that_nobody_reads_to_its_end_ends_with_an_event(mode: str) -> None:
    """An endless job without a name ends with its reader, and a named one when it is
    collected. The event tells the elements that its reader got.
    """
    config = DispatcherConfig(job_gc_check_interval_ms=50, job_gc_timeout_ms=100)
    with DispatchServer(config) as dispatcher, WorkerServer(WorkerConfig(dispatcher.target)):
        for name in ("named", None):
            endless = Dataset.range(20).repeat()
            elements = iter(endless.apply(distribute(mode, dispatcher.target, name)))
            for _ in range(50):
                next(elements)
            job = elements.audit()["job"]
            elements.close()

            def has_ended(job: str = job) -> bool:
                return len(told_of(dispatcher.target, job)) == 2

            await_condition(has_ended)
            begun, ended = told_of(dispatcher.target, job)
            assert begun.startswith("0, begins")
            assert ended == "0, ends unfinished, without readers: 50 elements in #"


def test_an_event_of_an_earlier_incarnation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a job has begun anew, the events of its earlier incarnation say so. Those of
    the job that runs, and of no job, are as in the log.
    """
    config = DispatcherConfig(job_gc_check_interval_ms=50, job_gc_timeout_ms=100)
    with DispatchServer(config) as dispatcher, WorkerServer(WorkerConfig(dispatcher.target)):

        def events() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = status(dispatcher.target)["events"]
            return found

        read = distribute("distributed_epoch", dispatcher.target, "job")
        monkeypatch.setenv("ZMQDATA_RUN_ID", "first run")
        assert len(list(Dataset.range(20).apply(read))) == 20
        await_condition(lambda: "is collected" in events()[-1]["text"])
        former = [one for one in events() if one["job"]]
        assert all(one["text"].startswith("job job") for one in former)
        monkeypatch.setenv("ZMQDATA_RUN_ID", "second run")
        elements = iter(Dataset.range(20).apply(read))
        next(elements)
        told = [one for one in events() if one["job"] == "job"]
        number = former[0]["incarnation"]
        for one in told:
            is_former = one["incarnation"] == number
            assert one["text"].startswith("earlier incarnation: job") is is_former
        assert {one["incarnation"] for one in told} == {number, number + 1}
        (registered,) = [one for one in events() if not one["job"]]
        assert registered["text"].startswith("worker tcp://")
        elements.close()


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
