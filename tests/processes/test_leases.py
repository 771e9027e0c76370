"""Tests of clients that are stopped for longer than their lease, while another client
reads the same job.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.client.calls import status
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess

COUNT = 3_000
FIRST = 200
OPTIONS: dict[str, Any] = {
    "heartbeat_interval_ms": 100,
    "buffer_bytes": 1 << 16,
    "client_timeout_ms": 4_000,
}

READER = """
    import sys
    from zmqdata import Dataset, distribute
    ds = Dataset.range(int(sys.argv[2]))
    options = {"consumer_index": 0, "num_consumers": 2, "finite": "drop"} if sys.argv[3] == "consumer" else {}
    it = iter(ds.apply(distribute("distributed_epoch", sys.argv[1], "job", max_outstanding_requests=64, **options)))
    for line in sys.stdin:
        for _ in range(int(line)):
            x = next(it, None)
            print("end" if x is None else int(x), flush=True)
            if x is None:
                sys.exit()
"""


class StoppedReader:
    """A training loop in a process of its own, which reads as many elements as
    requested.
    """

    def __init__(self, cluster: LocalCluster, kind: str = "client") -> None:
        command = [sys.executable, "-c", textwrap.dedent(READER), cluster.target, str(COUNT), kind]
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process: subprocess.Popen[str] = subprocess.Popen(command, text=True, **streams)
        self.found: list[int] = []

    def read(self, count: int) -> None:
        """Read ``count`` elements, or all that are left."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(count, file=self.process.stdin, flush=True)
        for _ in range(count):
            line = self.process.stdout.readline().strip()
            if not line.isdigit():
                assert line == "end"
                return
            self.found.append(int(line))


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2, **OPTIONS) as made:
        yield made


@pytest.fixture
def stopped(cluster: LocalCluster) -> Iterator[StoppedReader]:
    made = StoppedReader(cluster)
    yield made
    made.process.kill()
    made.process.communicate()


def job(cluster: LocalCluster) -> dict[str, Any]:
    [found] = status(cluster.target)["jobs"]
    return dict(found)


def reader(cluster: LocalCluster) -> Iterator[int]:
    distributed = distribute(
        "distributed_epoch", cluster.target, "job", max_outstanding_requests=64
    )
    return iter(int(x) for x in Dataset.range(COUNT).apply(distributed))


@pytest.fixture(autouse=True)
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all processes of a test one run, which shares a job while one is stopped."""
    monkeypatch.setenv("ZMQDATA_RUN_ID", "one run")


@pytest.mark.full
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "alone"])
def test_a_client_that_was_stopped_hands_out_nothing_that_others_were_given(
    cluster: LocalCluster, stopped: StoppedReader, shared: bool
) -> None:
    """The elements of a stopped client go to another client; awake, it joins anew, and
    no element is repeated or missing.
    """
    stopped.read(FIRST)
    await_condition(lambda: job(cluster)["delivered"] == FIRST, what="the reports")
    other, found = reader(cluster), []
    if shared:
        found.append(next(other))
        await_condition(lambda: job(cluster)["clients"] == 2, what="the second client")
    stopped.process.send_signal(signal.SIGSTOP)
    found.append(next(other))
    await_condition(lambda: job(cluster)["clients"] == 1, what="the stopped client to be given up")
    found += [next(other) for _ in range(FIRST)]
    stopped.process.send_signal(signal.SIGCONT)
    stopped.read(FIRST)
    found += list(other)
    stopped.read(COUNT)
    assert Counter(found) + Counter(stopped.found) == Counter(range(COUNT))


@pytest.fixture
def frozen(cluster: LocalCluster) -> Iterator[StoppedReader]:
    made = StoppedReader(cluster, "consumer")
    yield made
    made.process.kill()
    made.process.communicate()


def consumer(cluster: LocalCluster, index: int) -> Iterator[int]:
    options: dict[str, Any] = {"consumer_index": index, "num_consumers": 2, "finite": "drop"}
    distributed = distribute(
        "distributed_epoch", cluster.target, "job", max_outstanding_requests=64, **options
    )
    return iter(int(x) for x in Dataset.range(COUNT).apply(distributed))


def freeze(cluster: LocalCluster, frozen: StoppedReader) -> tuple[Iterator[int], list[int]]:
    """Stop a consumer after it has read a while, until it is given up.

    The other consumer has read as much by then.
    """
    other, found = consumer(cluster, 1), []
    reading = threading.Thread(target=lambda: found.extend(next(other) for _ in range(FIRST)))
    reading.start()
    frozen.read(FIRST)
    reading.join()
    frozen.process.send_signal(signal.SIGSTOP)
    await_condition(
        lambda: job(cluster)["clients"] == 1, what="the stopped consumer to be given up"
    )
    return other, found


@pytest.mark.full
def test_a_consumer_that_was_stopped_goes_on_at_its_step(
    cluster: LocalCluster, frozen: StoppedReader
) -> None:
    """A stopped consumer without a successor gets its seat back: both consumers have
    every step once, and stay in step.
    """
    other, found = freeze(cluster, frozen)
    frozen.process.send_signal(signal.SIGCONT)
    reading = threading.Thread(target=lambda: found.extend(other))
    reading.start()
    frozen.read(COUNT)
    reading.join()
    assert len(frozen.found) == len(found)
    assert len(set(frozen.found + found)) == len(frozen.found + found) >= COUNT - 4


@pytest.mark.full
def test_a_consumer_that_was_replaced_gets_an_error(
    cluster: LocalCluster, frozen: StoppedReader
) -> None:
    """The successor of a stopped consumer resumes at its step; awake, the consumer
    hands out nothing more and ends with the reason.
    """
    other, found = freeze(cluster, frozen)
    successor, rest = consumer(cluster, 0), list[int]()
    reading = threading.Thread(target=lambda: found.extend(other))
    reading.start()
    rest.append(next(successor))
    frozen.process.send_signal(signal.SIGCONT)
    _, errors = frozen.process.communicate(f"{COUNT}\n", timeout=30)
    assert (
        "FailedPreconditionError: Consumer 0 of job job was silent for longer than client_timeout"
        in errors
    )
    rest.extend(successor)
    reading.join()
    assert len(set(rest + found)) == len(rest + found)
    assert len(found) - FIRST <= len(rest)
