"""Tests of coordinated reads with real processes: consumers stay in step when workers
and consumers are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.full import full
from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.client.calls import status
from zmqdata.client.lifetime import INTERRUPTED
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import await_condition, descendants

pytestmark = pytest.mark.realprocess

EDGES = [10, 30, 60]
COUNT = 20_000


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A dispatcher and two workers that make few elements ahead."""
    with LocalCluster(2, heartbeat_interval_ms=100, buffer_bytes=1 << 16) as made:
        yield made


def consumer(
    cluster: LocalCluster, index: int, count: int, dataset: Dataset, mode: str, **options: Any
) -> Iterator[Any]:
    read = distribute(
        mode, cluster.target, "job", index, count, max_outstanding_requests=64, **options
    )
    return iter(dataset.apply(read))


def consumers(cluster: LocalCluster, count: int, *rest: Any, **options: Any) -> list[Iterator[Any]]:
    return [consumer(cluster, index, count, *rest, **options) for index in range(count)]


def kill_child(cluster: LocalCluster, worker: int) -> None:
    """Kill the process that runs pipelines; its supervisor starts another."""
    server = cluster.workers[worker]
    assert isinstance(server, ServerProcess)
    [child] = descendants(server.pid)
    os.kill(child, signal.SIGKILL)


def hosts(cluster: LocalCluster) -> list[int]:
    return [task["attempt"] for task in status(cluster.target)["tasks"]]


def drain(readers: list[Iterator[Any]]) -> list[list[int]]:
    """Read all consumers to the end at the same time; return the elements of each."""
    found: list[list[int]] = [[] for _ in readers]

    def read(index: int) -> None:
        found[index].extend(int(x) for x in readers[index])

    threads = [
        threading.Thread(target=read, args=(index,), daemon=True) for index in range(len(readers))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return found


def test_buckets_stay_together_when_a_worker_is_killed(cluster: LocalCluster) -> None:
    """Four consumers get batches of a single bucket at every step, before and after a
    worker's process is killed.
    """
    sentences = Dataset.counter().map(lambda x: np.zeros(int(x * 7919 % 97) + 1, np.int8))
    batches = sentences.bucket_by_sequence_length(len, EDGES, [4] * 4)
    rows = batches.group_by_window(
        lambda batch: int(np.searchsorted(EDGES, batch.shape[1])), lambda key, ds: ds, 4
    )
    readers = consumers(cluster, 4, rows, "parallel_epochs")

    def buckets(steps: int) -> list[set[int]]:
        return [
            {int(np.searchsorted(EDGES, next(reader).shape[1])) for reader in readers}
            for _ in range(steps)
        ]

    seen = buckets(100)
    kill_child(cluster, 0)
    seen += buckets(300)
    assert [len(found) for found in seen] == [1] * 400
    assert len(set.union(*seen)) == 4
    assert max(hosts(cluster)) > 1


@pytest.mark.full
@pytest.mark.parametrize("finite", ["drop", full("pad")])
def test_nothing_is_lost_or_repeated_and_nobody_hangs_when_a_worker_is_killed(
    cluster: LocalCluster, finite: str
) -> None:
    """Finite input reaches four consumers in full rounds, and all of them end after the
    same number of steps.
    """
    readers = consumers(cluster, 4, Dataset.range(COUNT), "distributed_epoch", finite=finite)
    found = [[int(next(reader))] for reader in readers]
    for one, reader in zip(found, readers, strict=True):
        one += [int(x) for x in islice(reader, 200)]
    kill_child(cluster, 1)
    for one, rest in zip(found, drain(readers), strict=True):
        one += rest
    given = [x for one in found for x in one]
    left_over = 3 * len(hosts(cluster))
    assert max(hosts(cluster)) > 1
    assert len({len(one) for one in found}) == 1
    if finite == "drop":
        assert len(set(given)) == len(given) >= COUNT - left_over
    else:
        assert set(given) == set(range(COUNT))
        assert len(given) <= COUNT + left_over


CONSUMER = """
    import sys, threading
    from zmqdata import Dataset, distribute

    target, index, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dataset = Dataset.counter().apply(distribute("parallel_epochs", target, "job", index, count))
    for x in dataset:
        print(int(x), flush=True)
        threading.Event().wait(0.005)
"""


def start_consumer(cluster: LocalCluster, index: int, count: int) -> subprocess.Popen[str]:
    arguments = [
        sys.executable,
        "-c",
        textwrap.dedent(CONSUMER),
        cluster.target,
        str(index),
        str(count),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)


def lines(process: subprocess.Popen[str], count: int) -> list[int]:
    assert process.stdout is not None
    return [int(line) for line in islice(process.stdout, count)]


def end(process: subprocess.Popen[str]) -> list[int]:
    """Kill a process; return the rest of its output."""
    process.kill()
    rest, _ = process.communicate(timeout=10)
    return [int(line) for line in rest.splitlines()]


@pytest.mark.full
def test_a_killed_consumer_is_replaced(cluster: LocalCluster) -> None:
    """The successor of a killed consumer resumes at most a second of steps before its
    end, and misses none.
    """
    mine = consumer(cluster, 0, 2, Dataset.counter(), "parallel_epochs")
    first = start_consumer(cluster, 1, 2)
    told = lines(first, 400)
    told += end(first)
    second = start_consumer(cluster, 1, 2)
    again = lines(second, 200)
    end(second)
    partner = [int(x) + 1 for x in islice(mine, len(told) + 200)]
    assert told == partner[: len(told)]
    [begin] = [at for at in range(len(told) + 1) if partner[at : at + 200] == again]
    assert begin > 0


@pytest.mark.full
def test_a_worker_that_is_added_is_read(cluster: LocalCluster) -> None:
    """Consumers at different steps read a new worker from the same step on."""
    dataset = Dataset.counter().map(lambda x: (x, os.getpid()))
    ahead, behind = consumers(cluster, 2, dataset, "parallel_epochs")
    found: list[list[tuple[int, int]]] = [[], []]
    for _ in range(30):
        found[0].append(next(ahead))
    cluster.add_worker()
    await_condition(lambda: len(status(cluster.target)["workers"]) == 3, 30.0, "the third worker")

    def all_seen() -> bool:
        found[0].extend(islice(ahead, 50))
        found[1].extend(islice(behind, 50))
        return len({int(pid) for _, pid in found[1]}) == 3

    await_condition(all_seen, 30.0, "elements of the third worker")
    pairs = list(zip(*found, strict=False))
    assert all(int(x) + 1 == int(y) and one == other for (x, one), (y, other) in pairs)


RANK = """
import signal, sys
from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.testing.cluster import await_condition
signal.signal(signal.SIGINT, signal.default_int_handler)
rank, count, target = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if rank == 0:
    cluster = LocalCluster(1)
    target = cluster.target
    print(target, flush=True)
read = distribute("distributed_epoch", target, "job", rank, count, finite="drop")
rows = iter(Dataset.range(100 * count).apply(read))
for step, row in enumerate(rows):
    if step == 90 and (rank or count == 1):
        core = rows._shell.core
        await_condition(lambda: core.reading.step == core.task_list.plan.end, 30.0, "all steps")
        print("holds the rest", flush=True)
        sys.stdin.readline()
        if count == 1:
            cluster.dispatcher.kill()
print(step + 1, flush=True)
sys.stdin.readline()
"""
"""A rank reads 100 steps and stops at the 90th, when the others have arrived. The first
owns the cluster. The only one kills the dispatcher there.
"""


@contextlib.contextmanager
def started_ranks(count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start ranks, and wait until each has all steps."""
    ranks: list[subprocess.Popen[str]] = []
    target = ""
    try:
        for rank in range(count):
            command = [sys.executable, "-c", RANK, str(rank), str(count), target]
            streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            ranks.append(subprocess.Popen(command, text=True, **streams))
            if rank == 0:
                target = said(ranks[0])
        for rank, process in enumerate(ranks):
            assert said(process) == ("100" if rank == 0 and count > 1 else "holds the rest")
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def said(rank: subprocess.Popen[str]) -> str:
    """Return the next line of a rank."""
    assert rank.stdout is not None
    return rank.stdout.readline().strip()


def test_ranks_end_after_the_owner_of_their_cluster() -> None:
    """After the first rank has closed its cluster, the others take what they have
    received, and end at once, with success and in silence.
    """
    with started_ranks(3) as ranks:
        for rank in ranks:
            _, errors = rank.communicate("\n\n", timeout=20)
            assert (rank.returncode, errors) == (0, "")


def test_an_interrupt_ends_the_wait_for_a_dispatcher() -> None:
    """Ctrl-C ends a program that waits at its end for a dead dispatcher, with a line
    and no traceback.
    """
    with started_ranks(1) as [rank]:
        assert rank.stdin is not None
        assert rank.stderr is not None
        rank.stdin.write("\n\n")
        rank.stdin.flush()
        # A worker may tell of the dead dispatcher, too.
        told = (line for line in rank.stderr if not line.startswith("["))
        assert "The program waits for the answer" in next(told)
        rank.send_signal(signal.SIGINT)
        assert [line.strip() for line in told] == [INTERRUPTED]
        assert rank.wait(20) == 0
