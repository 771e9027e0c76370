"""Tests of shared memory when real processes die, fork, or cannot see each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, DispatchServer, LocalCluster, distribute
from zmqdata.testing.cluster import await_condition, descendants
from zmqdata.transport.memory import NAME

pytestmark = pytest.mark.realprocess

LENGTH = 100_032
OPTIONS: dict[str, Any] = {"heartbeat_interval_ms": 100}


def images(count: int) -> Dataset:
    return Dataset.range(count).map(lambda x: (np.full(100_032, x % 251, np.uint8), x, os.getpid()))


def read(target: str, count: int, **options: Any) -> Iterator[Any]:
    return iter(images(count).apply(distribute("distributed_epoch", target, **options)))


def is_right(element: Any) -> bool:
    return bool((element[0] == element[1] % 251).all())


def memories(pid: int) -> int:
    """Return the number of shared memories that a process has open."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            count += NAME in os.readlink(entry)
    return count


def mapped(pid: int) -> int:
    """Return the number of shared memories that a process has mapped."""
    return sum(
        NAME in line for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    )


def test_arrays_outlive_their_worker() -> None:
    """Arrays that a loop holds outlive their killed worker; the job continues
    elsewhere, each element once.
    """
    with LocalCluster(2, **OPTIONS) as cluster:
        it = read(cluster.target, 3_000)
        held = [next(it) for _ in range(200)]
        assert mapped(os.getpid())
        victim = held[-1][2]
        os.kill(victim, signal.SIGKILL)
        rest = list(it)
        assert sorted(one[1] for one in held + rest) == list(range(3_000))
        assert all(map(is_right, held + rest))
        assert victim not in {one[2] for one in rest[-500:]}
        assert all(map(is_right, held))
        del held, rest, it
        await_condition(lambda: not mapped(os.getpid()), what="the memory to be freed")
        await_condition(lambda: not memories(os.getpid()), what="the memory to be closed")


READER = """
    import sys
    import numpy as np
    from zmqdata import Dataset, distribute
    ds = Dataset.range(10**9).map(lambda x: np.zeros(100_032, np.uint8))
    it = iter(ds.apply(distribute("distributed_epoch", sys.argv[1])))
    held = [next(it) for _ in range(100)]
    print("reading", flush=True)
    for _ in it:
        pass
"""


def test_a_killed_client_leaves_nothing_at_its_workers() -> None:
    """A worker closes the memory of a client that is killed as it reads; no memory has
    a name that could stay behind.
    """
    named = set(Path("/dev/shm").iterdir())
    soon: dict[str, Any] = {
        "client_timeout_ms": 4_000,
        "job_gc_timeout_ms": 0,
        "job_gc_check_interval_ms": 100,
    }
    with LocalCluster(1, **OPTIONS, **soon) as cluster:
        pids = descendants(os.getpid())
        assert not sum(map(memories, pids))
        client = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(READER), cluster.target],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "reading\n"
        assert sum(map(mapped, pids)) == 1
        assert sum(map(memories, pids))
        client.kill()
        client.communicate()
        await_condition(lambda: not sum(map(memories, pids)), 25, "the worker to close the memory")
        await_condition(lambda: not sum(map(mapped, pids)), what="the worker to free the memory")
    await_condition(
        lambda: set(Path("/dev/shm").iterdir()) <= named,
        what="what others have there for a moment to go",
    )


@pytest.mark.full
def test_many_clients_of_many_workers() -> None:
    """Each pair of a worker and a client has a memory of its own, and each element
    comes to one client.
    """
    with LocalCluster(3, **OPTIONS) as cluster:
        found: list[list[Any]] = [[] for _ in range(4)]

        def loop(place: int) -> None:
            found[place].extend(read(cluster.target, 4_000, job_name="shared"))

        threads = [threading.Thread(target=loop, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together = [one for part in found for one in part]
        assert sorted(one[1] for one in together) == list(range(4_000))
        assert all(map(is_right, together))


def start_in_another_namespace(target: str) -> subprocess.Popen[bytes]:
    """Start a worker whose process ids have no meaning here."""
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "zmqdata.worker"]
    return subprocess.Popen([*command, "--dispatcher", target])


@pytest.mark.skipif(
    subprocess.run(
        ["unshare", "--pid", "--fork", "true"], capture_output=True, check=False
    ).returncode
    != 0,
    reason="this user may not make a namespace of process ids",
)
def test_memory_of_another_namespace_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    """A client that cannot open a worker's memory warns once with the reason, and reads
    everything through a socket.
    """
    with DispatchServer() as dispatcher:
        worker = start_in_another_namespace(dispatcher.target)
        try:
            await_condition(lambda: dispatcher.num_workers() == 1, 30, "the worker")
            found = list(read(dispatcher.target, 500))
        finally:
            worker.kill()
            worker.wait()
    assert sorted(one[1] for one in found) == list(range(500))
    assert all(map(is_right, found))
    assert not mapped(os.getpid())
    assert (
        sum("cannot be used by this process" in record.getMessage() for record in caplog.records)
        == 1
    )
