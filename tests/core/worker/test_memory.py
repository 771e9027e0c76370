"""Tests of the memory of a worker's process, and of when the process is recycled."""

from __future__ import annotations

import pytest

from tests.core.worker.test_decider import D, Host, definition
from tests.definitions import changed
from zmqdata import messages as m
from zmqdata.config.worker import DRAIN_SECONDS
from zmqdata.core.worker import events as e
from zmqdata.core.worker.draining import RECYCLE_SECONDS
from zmqdata.core.worker.memory import (
    EARLY_SECONDS,
    LONGEST_PAUSE,
    RECYCLED_AT,
    MemoryLimit,
    MemoryWatch,
    recycle_pause,
)

LIMIT = 512 << 20
FULL = int(RECYCLED_AT * LIMIT) + 1
FREE = FULL // 2


def read(watch: MemoryWatch, now: float, *counted: int) -> MemoryWatch:
    """Let a watch have readings, a tick apart, of which the first is at ``now``."""
    for index, one in enumerate(counted):
        watch.record(now + index / 4, e.MemoryRead(rss=one // 2, counted=one))
    return watch


def full_host(**past: int) -> Host:
    """Return a worker with a task and a limited memory, which has just started."""
    host = Host()
    host.core.memory = MemoryWatch(MemoryLimit(LIMIT, **past))
    fill(host, FREE)
    return host


def fill(host: Host, *counted: int) -> None:
    """Feed readings. ``host.commands`` then contains what the core returned for all."""
    commands = []
    for one in counted:
        host.feed(e.MemoryRead(rss=one // 2, counted=one))
        commands += host.commands
    host.commands = commands


def said(host: Host) -> list[str]:
    return [line.text for line in host.all_of(e.LogLine) if line.level == "warning"]


def test_a_process_without_a_limit_is_never_over() -> None:
    """Any size is fine without a limit, and the reading is kept for the status."""
    watch = read(MemoryWatch(), 0.0, 1 << 50, 1 << 50, 1 << 50)
    assert not watch.may_recycle(1e9)
    assert watch.notice(1e9, 0) == ""
    assert watch.use == m.MemoryUse(1 << 49, 1 << 50, 0, 0)


def test_memory_that_is_returned_recycles_nothing() -> None:
    """An element may need much memory for a moment: only two successive readings
    count.
    """
    watch = read(MemoryWatch(MemoryLimit(LIMIT)), 0.0, FULL, FREE, FULL, FREE, FULL)
    assert not watch.may_recycle(60.0)
    assert watch.wants_another
    assert read(watch, 2.0, FULL).may_recycle(60.0)
    assert not watch.wants_another


def test_a_process_over_early_makes_the_next_wait() -> None:
    """A process is recycled at once unless three processes before it were over right
    after their start, too. The wait doubles with each further one, up to ten minutes.
    """
    for early, pause in enumerate([0.0, 0.0, 0.0, 10.0, 20.0]):
        watch = read(MemoryWatch(MemoryLimit(LIMIT, early, early)), 100.0, FULL, FULL)
        assert watch.is_early
        assert not watch.may_recycle(100.0 + pause - 0.01)
        assert watch.may_recycle(100.0 + pause)
    assert recycle_pause(10**9) == LONGEST_PAUSE


def test_early_is_counted_from_the_start_until_the_limit_was_reached() -> None:
    """A process that waits for its recycling stays one that was over early. One that
    fills slowly is not early, and neither is one that was below its limit meanwhile.
    """
    waiting = read(MemoryWatch(MemoryLimit(LIMIT, 5, 5)), 0.0, FULL, FULL)
    assert read(waiting, 5 * EARLY_SECONDS, FULL).is_early
    slow = read(MemoryWatch(MemoryLimit(LIMIT)), 0.0, FREE)
    assert not read(slow, EARLY_SECONDS, FULL, FULL).is_early
    assert not read(waiting, 6 * EARLY_SECONDS, FREE, FULL, FULL).is_early


def test_a_full_process_stops_and_hands_over() -> None:
    """At nine tenths of its limit a worker stops production, says so with size and
    limit, and drains. The dispatcher learns of both with the next heartbeat, which is
    sent at once.
    """
    host = full_host(recycles=3)
    fill(host, FULL)
    assert host.all_of(e.FallQuiet) == []
    fill(host, FULL)
    assert host.all_of(e.FallQuiet) == [e.FallQuiet()]
    beat = host.all_of(m.WorkerHeartbeat)[-1]
    assert beat.draining
    assert beat.memory == m.MemoryUse(FULL // 2, FULL, LIMIT, 3)
    assert said(host) == [
        "This process has 461 MiB of memory, at least 90% of its limit of 512 MiB "
        "(`memory_limit`). It stops between elements and hands its tasks over, and another "
        "process replaces it."
    ]
    host.hear(D, m.DropTask(1, 1))
    assert (host.core.draining.recycled, host.core.draining.done) == (True, True)
    fill(host, FULL, FULL)
    assert host.all_of(e.FallQuiet) == [], "it recycles once"


def test_a_full_process_without_a_successor_waits_only_for_its_clients() -> None:
    """A worker whose tasks no other worker takes ends a second after its clients have
    all of its elements. If they do not take them, it ends as late as any draining
    worker.
    """
    for takes, seconds in ((True, RECYCLE_SECONDS), (False, DRAIN_SECONDS)):
        host = full_host()
        host.link()
        host.grant(8)
        host.make(0)
        if takes:
            host.hear("k", m.Grant("k-1", 2, (m.StreamGrant(1, 1, 8, 1000, 1),)))
        fill(host, FULL, FULL)
        began = host.now
        while not host.core.draining.done:
            host.now += 0.25
            host.feed(e.Tick())
        assert host.now - began == pytest.approx(seconds, abs=0.3), takes
        lines = [line.text for line in host.all_of(e.LogLine)]
        assert "1 tasks continue in the process that replaces this" in lines


def test_copies_of_the_input_end_first() -> None:
    """A worker that hosts a copy of the input is not recycled, because another host
    would begin the copy anew. It says so once, and is recycled when the copy has ended.
    """
    host = full_host()
    host.hear(D, m.HostTask(changed(definition(2), processing_mode="OFF")))
    fill(host, FULL, FULL, FULL)
    assert host.all_of(e.FallQuiet) == []
    [line] = said(host)
    assert line.endswith("It is recycled when its 1 copies of the input have ended.")
    host.hear(D, m.DropTask(2, 1))
    fill(host, FULL)
    assert host.all_of(e.FallQuiet) == [e.FallQuiet()]


def test_a_limit_that_is_too_small_is_named_and_recycles_seldom() -> None:
    """If process after process is over right after its start, the worker names the
    cause, goes on, and is recycled after the pause.
    """
    host = full_host(recycles=7, early=7)
    fill(host, FULL, FULL, FULL)
    [line] = said(host)
    assert "It is process 8 in a row to need that within 10 s of its start" in line
    assert "the limit is too small for its pipelines, or they leak fast. Raise it" in line
    assert "It goes on, and is recycled in 160 s at the earliest." in line
    assert host.all_of(e.FallQuiet) == []
    host.now += recycle_pause(7)
    fill(host, FULL)
    assert host.all_of(e.FallQuiet) == [e.FallQuiet()]


def test_a_worker_that_leaves_anyway_is_not_recycled() -> None:
    """A worker that was told to leave stays one that is not replaced."""
    host = full_host()
    host.feed(e.DrainRequested(5.0))
    fill(host, FULL, FULL)
    assert not host.core.draining.recycled
    assert host.all_of(e.FallQuiet) == []
    assert said(host) == []


KEPT = frozenset({"7", "8"})


def test_opened_datasets_go_before_the_process() -> None:
    """A full process first drops the opened datasets that it keeps, and says so. It is
    recycled if it is still full then.
    """
    host = full_host()
    for _ in range(2):
        host.feed(e.MemoryRead(FULL, FULL, KEPT))
    assert [one.datasets for one in host.all_of(e.DropParcels)] == [KEPT]
    assert len(said(host)) == 1
    assert "opened datasets" in said(host)[0]
    fill(host, FULL)
    assert not host.core.draining.begun
    fill(host, FULL)
    assert host.core.draining.begun


def test_opened_datasets_do_not_keep_a_full_process() -> None:
    """A process that stays full is recycled, also if the next passes have opened
    datasets again meanwhile.
    """
    host = full_host()
    for _ in range(4):
        host.feed(e.MemoryRead(FULL, FULL, KEPT))
    assert host.core.draining.begun


def test_opened_datasets_are_named_until_nobody_uses_them() -> None:
    """Heartbeats name the datasets of which opened parcels are kept, and these are
    dropped when the dispatcher says that they are unused.
    """
    host = full_host()
    host.feed(e.MemoryRead(FREE, FREE, KEPT))
    host.hear(D, m.WorkerHeartbeatAnswered("w", True, unused=("8", "9")))
    assert [one.datasets for one in host.all_of(e.DropParcels)] == [{"8"}]
    host.wait(1.0)
    assert host.sent(m.WorkerHeartbeat).parcels == ("7",)
