"""Tests of the memory of real workers and clients: a loop that stops, and a loop that
reads for long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zmqdata import LocalCluster
from zmqdata.core.credit import FEW_BYTES, FEW_SHARED_BYTES, MOST_BYTES
from zmqdata.testing.cluster import await_condition, descendants

# `make test` leaves these tests out: the resident size of a process varies by tens
# of megabytes from run to run.
pytestmark = [pytest.mark.realprocess, pytest.mark.full]

BUFFER = 8 << 20
SHARED = 32 << 20
OPTIONS: dict[str, Any] = {
    "heartbeat_interval_ms": 100,
    "buffer_bytes": BUFFER,
    "shared_memory_bytes": SHARED,
}

READER = """
    import sys
    import numpy as np
    from zmqdata import Dataset, distribute
    ds = Dataset.range(10**9)
    if int(sys.argv[2]):
        ds = ds.map(lambda x: np.full(150_000, x % 251, np.uint8))
    # Each time that a loop has to wait, it lets twice as many small elements come ahead: at some time or other.
    most = None if int(sys.argv[2]) else 100_000
    options = {"data_transfer_protocol": sys.argv[3] or None, "max_outstanding_requests": most}
    it = iter(ds.apply(distribute("distributed_epoch", sys.argv[1], **options)))
    for line in sys.stdin:
        for _ in range(int(line)):
            next(it)
        print("read", flush=True)
"""


class Reader:
    """A training loop in a process of its own, which reads as many elements as
    requested.
    """

    def __init__(self, cluster: LocalCluster, large: bool = True, protocol: str = "") -> None:
        command = [
            sys.executable,
            "-c",
            textwrap.dedent(READER),
            cluster.target,
            str(int(large)),
            protocol,
        ]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self, count: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(count, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "read\n"


def resident(pid: int) -> int:
    """Return the bytes of memory of a process, shared ones included."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def settled(pid: int) -> int:
    """Return the memory of a process once it has stopped growing."""
    sizes: list[int] = []

    def is_still() -> bool:
        sizes.append(resident(pid))
        return len(sizes) > 100 and max(sizes[-100:]) - min(sizes[-100:]) < 1 << 18

    await_condition(is_still, 60, "the memory to settle")
    return sizes[-1]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    # Freed blocks leave holes in the heap of the C library, up to as much again as is
    # in use. Their number is chance. With pages of its own for each block, only memory
    # in use counts.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    with LocalCluster(1, **OPTIONS) as made:
        yield made


@pytest.mark.timeout(180)
@pytest.mark.parametrize("protocol", ["", "tcp"])
def test_a_loop_that_stops_bounds_everybody(cluster: LocalCluster, protocol: str) -> None:
    """While a loop takes nothing, worker and client grow by no more than their limits
    in flight plus a fifth.
    """
    pids = [pid for pid in descendants(os.getpid()) if resident(pid)]
    reader = Reader(cluster, protocol=protocol)
    reader.read(1)
    small = {pid: resident(pid) for pid in [*pids, reader.process.pid]}
    reader.read(3_000)
    shared = SHARED if not protocol else 0
    # The worker keeps what the client has not handed out, what it makes ahead, and a
    # block in the making.
    of_worker = MOST_BYTES + BUFFER + 2 * (FEW_BYTES if protocol else FEW_SHARED_BYTES) + shared
    # The client keeps what it has not handed out, what it keeps for reuse, and its end
    # of a socket.
    of_client = 2 * MOST_BYTES + shared
    assert settled(reader.process.pid) - small[reader.process.pid] < 1.2 * of_client
    for pid in pids:
        assert settled(pid) - small[pid] < 1.2 * of_worker
    reader.process.kill()
    reader.process.communicate()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1_000_000, id="1M", marks=pytest.mark.timeout(180)),
        pytest.param(10_000_000, id="10M", marks=[pytest.mark.full, pytest.mark.timeout(900)]),
    ],
)
def test_a_loop_that_reads_for_long_stays_as_it_is(cluster: LocalCluster, count: int) -> None:
    """Client and worker do not grow over millions of elements, once their windows are
    open.
    """
    reader = Reader(cluster, large=False)
    reader.read(3_000_000)
    pids = [reader.process.pid, *[pid for pid in descendants(os.getpid()) if resident(pid)]]
    before = {pid: settled(pid) for pid in pids}
    reader.read(count)
    for pid, size in before.items():
        assert settled(pid) - size < 16 << 20
    reader.process.kill()
    reader.process.communicate()
