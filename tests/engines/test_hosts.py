"""Each host keeps its promises on its engine: ``make test-engines``."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

from tests.engines.engines import Engine, SlurmEngine, victim
from zmqdata import Dataset, distribute, hosts
from zmqdata.client.calls import status
from zmqdata.errors import FailedPreconditionError
from zmqdata.testing.cluster import await_condition

pytestmark = [
    pytest.mark.skipif(
        "ZMQDATA_ENGINES" not in os.environ, reason="only `make test-engines` runs it"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(300),
]
PATIENCE = 90.0
COUNT = 9_000
PACE = 0.004
STORM = 20.0
LEAST_DEEDS = 3
SEED = 7


def connected(service: str) -> list[str]:
    """Return the names of the workers that the dispatcher knows as connected."""
    return sorted(
        worker["name"] for worker in status(service)["workers"] if worker["state"] == "connected"
    )


def rows(service: str, job: str, count: int = COUNT) -> Dataset:
    return Dataset.range(count).apply(distribute("distributed_epoch", service, job))


def await_running(host: hosts.Host, service: str, count: int) -> list[str]:
    """Wait until so many workers run and are registered, and return their names."""

    def all_run() -> bool:
        states = host.running()
        running = sorted(name for name, state in states.items() if state == "running")
        return len(states) == count == len(running) and running == connected(service)

    await_condition(all_run, PATIENCE, f"{count} registered workers")
    return connected(service)


def ends(engine: Engine, host: hosts.Host, names: list[str]) -> None:
    """Close a host, and check that nothing of it is left after 15 seconds."""
    host.close()
    prefix = names[0].rpartition("-")[0]
    await_condition(lambda: engine.left(prefix) == [], 15.0, "the end of all processes")


def takes_over(host: hosts.Host) -> bool:
    """Return True if a host follows the dispatcher from now on."""
    with suppress(FailedPreconditionError):
        host.adapt(0, 2)
        return True
    return False


def test_as_many_run_as_are_wished_for(engine: Engine, service: str) -> None:
    """Start, stop and scale change the workers that run. The dispatcher shows the names
    that the host has. Nothing is left after ``close``.
    """
    with engine.make(service) as host:
        first = host.start(1)
        assert await_running(host, service, 1) == first
        names = first + host.start(2)
        assert await_running(host, service, 3) == sorted(names)
        host.stop([names[1], "unknown"])
        assert await_running(host, service, 2) == sorted({*names} - {names[1]})
        host.scale(1)
        assert await_running(host, service, 1) == first
        host.scale(0)
        await_running(host, service, 0)
        host.scale(2)
        names = await_running(host, service, 2)
        ends(engine, host, names)


def test_a_host_follows_the_dispatcher(engine: Engine, service: str) -> None:
    """A loop that reads gets a worker without anybody's wish. Another host is refused
    meanwhile, and a wish ends the following.
    """
    with engine.make(service) as host, engine.make(service) as other:
        host.adapt(0, 2, interval=1.0)
        assert Counter(int(np.asarray(x)) for x in rows(service, "followed", 200)) == Counter(
            range(200)
        )
        names = list(host.running())
        assert 1 <= len(names) <= 2
        with pytest.raises(FailedPreconditionError, match=type(host).__name__):
            other.adapt(0, 2)
        host.scale(0)
        await_condition(lambda: takes_over(other), 10.0, "the end of the following")
        other.scale(0)
        await_running(host, service, 0)
        ends(engine, host, names)


@pytest.mark.parametrize("how", ["kill", "end"])
def test_a_worker_that_its_engine_ended_is_replaced(engine: Engine, service: str, how: str) -> None:
    """A worker that the engine kills or ends is started again under its name."""
    with engine.make(service) as host:
        host.scale(2)
        names = await_running(host, service, 2)
        before = {worker["worker"] for worker in status(service)["workers"]}
        getattr(engine, how)(host, names[0])
        await_condition(
            lambda: {one["worker"] for one in status(service)["workers"]} - before != set(),
            PATIENCE,
            "another worker",
        )
        assert await_running(host, service, 2) == names
        ends(engine, host, names)


@pytest.mark.parametrize("how", ["requeue", "limit", "preempt"])
def test_a_requeued_job_is_the_same_worker(queue: SlurmEngine, service: str, how: str) -> None:
    """A job that is requeued by hand, at its time limit, or by a preemption waits in
    the queue and runs again. It is not submitted again, and ``close`` ends it.
    """
    with queue.make(service) as host:
        host.scale(3)
        names = await_running(host, service, 3)
        jobs = queue.jobs()
        getattr(queue, how)(host, names[0])
        await_condition(lambda: "queued" in host.running().values(), PATIENCE, "the queue")
        assert sorted(host.running()) == names
        queue.hurry()
        assert await_running(host, service, 3) == names
        assert queue.jobs().keys() == jobs.keys()
        ends(queue, host, names)


def test_a_stopped_worker_never_comes_back(queue: SlurmEngine, service: str) -> None:
    """A worker that is stopped while Slurm requeues it does not come back."""
    with queue.make(service) as host:
        host.scale(1)
        names = await_running(host, service, 1)
        queue.requeue(host, names[0])
        host.scale(0)
        await_condition(lambda: queue.left(names[0]) == [], PATIENCE, "the end of the job")
        assert host.running() == {}


def test_a_queue_that_never_starts_a_job_is_no_failure(queue: SlurmEngine, service: str) -> None:
    """A held job stays in the queue while a loop reads from another worker. ``close``
    takes it away.
    """
    with queue.make(service, sbatch=["--hold"]) as host, hosts.Local(service) as local:
        names = host.start(1)
        local.scale(1)
        assert sum(1 for _ in rows(service, "held", 100)) == 100
        assert host.running() == {names[0]: "queued"}
        ends(queue, host, names)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key_file": "/no/such/key"}, "zmqdata keygen"),
        ({"dispatcher_timeout_ms": 1_500}, "--death-timeout"),
    ],
)
def test_the_log_says_why_a_worker_ends(
    engine: Engine, options: dict[str, object], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker without its key, or without a dispatcher, ends. The log of the host has
    the remedy, and nothing is left.
    """
    with engine.make("tcp://127.0.0.1:1", **options) as host:
        names = host.start(1)
        await_condition(lambda: text in caplog.text, 30.0, "the remedy")
        ends(engine, host, names)


class Reader(threading.Thread):
    """Reads a job at a steady pace, and notes the longest wait.

    Attributes:
        alone_at: time at which no worker was left, for which no wait is blamed.
    """

    def __init__(self, service: str) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.had: Counter[int] = Counter()
        self.longest = self.alone_at = 0.0

    def run(self) -> None:
        asked_at = 0.0
        for element in rows(self.service, "storm"):
            if asked_at and self.alone_at < asked_at:
                self.longest = max(self.longest, time.monotonic() - asked_at)
            self.had[int(np.asarray(element))] += 1
            threading.Event().wait(PACE)
            asked_at = time.monotonic()


def test_a_storm_costs_no_element(engine: Engine, service: str) -> None:
    """For 20 seconds the engine ends, kills, requeues and preempts workers, one after
    the other. Each element comes once, and no wait exceeds 5 seconds while a worker is
    left. Nothing is left after ``close``.
    """
    chosen, done = random.Random(SEED), Counter[str]()
    deeds = list(engine.deeds)
    with engine.make(service) as host:
        host.scale(3)
        names = await_running(host, service, 3)
        reader = Reader(service)
        reader.start()
        await_condition(lambda: len(reader.had) > 20, PATIENCE, "the first elements")
        until = time.monotonic() + STORM
        # A queue may keep workers waiting, so that none can be taken away meanwhile.
        while time.monotonic() < until or (sum(done.values()) < LEAST_DEEDS and reader.is_alive()):
            left = connected(service)
            name = victim(host, chosen)
            if name in left and len(left) > 1:
                deed = deeds[sum(done.values()) % len(deeds)]
                engine.deeds[deed](host, name)
                done[deed] += 1
            if not left:
                reader.alone_at = time.monotonic()
            engine.hurry()
            threading.Event().wait(0.5)
        while reader.is_alive():
            engine.hurry()
            if not connected(service):
                reader.alone_at = time.monotonic()
            reader.join(0.5)
        print(f"{dict(done)}; longest wait {reader.longest:.2f} s")
        assert reader.had == Counter(range(COUNT))
        assert reader.longest <= 5.0
        assert sum(done.values()) >= LEAST_DEEDS, done
        ends(engine, host, names)
