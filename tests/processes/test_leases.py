"""What is seen of clients that are stopped for longer than their lease, while another one reads the same job."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
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
OPTIONS: dict[str, Any] = {"heartbeat_interval_ms": 100, "buffer_bytes": 1 << 16, "client_timeout_ms": 1_500}

READER = """
    import sys
    from zmqdata import Dataset, distribute
    ds = Dataset.range(int(sys.argv[2]))
    it = iter(ds.apply(distribute("distributed_epoch", sys.argv[1], "job", max_outstanding_requests=64)))
    for line in sys.stdin:
        for _ in range(int(line)):
            x = next(it, None)
            print("end" if x is None else int(x), flush=True)
            if x is None:
                sys.exit()
"""


class StoppedReader:
    """A training loop in a process of its own, which reads as many elements as it is asked for."""

    def __init__(self, cluster: LocalCluster) -> None:
        command = [sys.executable, "-c", textwrap.dedent(READER), cluster.target, str(COUNT)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.found: list[int] = []

    def read(self, count: int) -> None:
        """Reads so many elements, or as many as there are."""
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
    distributed = distribute("distributed_epoch", cluster.target, "job", max_outstanding_requests=64)
    return iter(int(x) for x in Dataset.range(COUNT).apply(distributed))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "alone"])
def test_a_client_that_was_stopped_hands_out_nothing_that_others_were_given(
    cluster: LocalCluster, stopped: StoppedReader, shared: bool
) -> None:
    """What it held goes to the other client; awake again it joins anew, and nothing comes twice or is missing."""
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
