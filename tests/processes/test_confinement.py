"""Tests of worker processes with limits and with the rights of another user, as
pipelines and their owners meet them.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.full import full
from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.client.calls import status
from zmqdata.cluster.processes import ServerProcess
from zmqdata.errors import PipelineError
from zmqdata.testing.cluster import await_condition, descendants
from zmqdata.worker.processes.accounts import account_of, check_account

pytestmark = [pytest.mark.realprocess, pytest.mark.timeout(120)]

COUNT = 300
BAD = 123
REST = [x for x in range(COUNT) if x != BAD]
START = 30.0
LIMIT = 512 << 20
STRANGER = str(30_000 + os.getpid() % 30_000)
"""User id for each process of tests, as they share the temporary folder."""


@contextlib.contextmanager
def worker_of(cluster: LocalCluster, *options: str) -> Iterator[ServerProcess]:
    command = ["--dispatcher", cluster.target, "--heartbeat-interval-ms", "200", *options]
    with contextlib.closing(ServerProcess("zmqdata.worker", command)) as worker:
        worker.launch()
        worker.await_ready(START)
        yield worker


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A dispatcher; each test has workers of its own."""
    with LocalCluster(0, heartbeat_interval_ms=200) as made:
        yield made


def read(cluster: LocalCluster, dataset: Dataset, **options: Any) -> list[int]:
    return sorted(
        int(x) for x in dataset.apply(distribute("distributed_epoch", cluster.target, **options))
    )


# --- memory


def greedy(x: Any) -> Any:
    if x == BAD:
        return np.ones(2 * LIMIT, np.uint8)[:1].astype(np.int64)[0]
    return x


def hoarding(x: Any) -> Any:
    """Allocate memory until none is left."""
    taken = []
    while x == BAD:
        taken.append(bytearray(1 << 20))
    return x


def mapping(x: Any) -> Any:
    """Take memory from the system instead of Python's allocator."""
    if x == BAD:
        mmap.mmap(-1, 2 * LIMIT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return x


@pytest.mark.parametrize("function", [greedy, full(hoarding), full(mapping)])
def test_an_element_that_takes_too_much_is_found_and_named(
    cluster: LocalCluster, function: Any
) -> None:
    """A job with an element that takes too much memory fails after three deaths and
    names node, file, line and limit; the worker lives on.
    """
    place = rf"map\({function.__name__}\) at test_confinement.py:\d+"
    how = "it needed more memory than its limit of 512 MiB, 3 times"
    with worker_of(cluster, "--memory-limit=512MiB") as worker:
        with pytest.raises(
            PipelineError, match=rf"Element {BAD} that came to {place} \(task \d+.* 3 times: {how}"
        ):
            read(cluster, Dataset.range(COUNT).map(function))
        assert read(cluster, Dataset.range(10)) == list(range(10))
        assert worker.alive


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_parallel_calls": 4},
        {"on_error": "skip"},
        {"num_parallel_calls": 4, "on_error": "skip"},
    ],
)
def test_it_is_left_out_on_request(cluster: LocalCluster, options: dict[str, Any]) -> None:
    """``on_poison="skip"`` delivers every other element exactly once; ``on_error`` is
    for errors that harm no other element.
    """
    with worker_of(cluster, "--memory-limit=512MiB"):
        assert read(cluster, Dataset.range(COUNT).map(greedy, **options), on_poison="skip") == REST


def leaking(x: Any) -> Any:
    vars(sys).setdefault("kept", []).append(np.ones(LIMIT // 50, np.uint8))
    return x


def needing(x: Any) -> Any:
    return x + np.zeros(LIMIT // 2, np.uint8)[0]


def test_what_others_have_left_behind_is_nobodys_fault(cluster: LocalCluster) -> None:
    """An element without room in a process where another job leaked is made in a new
    process, and comes once.
    """
    with worker_of(cluster, "--memory-limit=512MiB") as worker:
        assert read(cluster, Dataset.range(20).map(leaking)) == list(range(20))
        assert worker.log.count("needed more memory") == 0
        assert read(cluster, Dataset.range(100).map(needing)) == list(range(100))
        assert worker.log.count("needed more memory than its limit of 512 MiB") == 1


def leaking_slowly(x: Any) -> Any:
    """Leak 1 MiB in 20 ms. The first element of a process reserves memory, so that
    the process is full soon.
    """
    kept = vars(sys).setdefault("kept", [])
    if not kept:
        kept.append(mmap.mmap(-1, LIMIT // 2, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    threading.Event().wait(0.02)
    kept.append(np.ones(1 << 20, np.uint8))
    return x


@pytest.mark.full
def test_a_leaking_process_is_recycled_between_elements(cluster: LocalCluster) -> None:
    """A process that leaks is replaced before it reaches its limit: a client gets every
    element once, no process dies within an element, and both the log and the status say
    what happened.
    """
    with worker_of(cluster, "--memory-limit=512MiB") as worker:
        assert read(cluster, Dataset.range(120).map(leaking_slowly)) == list(range(120))
        assert "needed more memory" not in worker.log
        found = r"has 4\d\d MiB of memory, at least 90% of its limit of 512 MiB"
        assert re.search(found, worker.log)
        assert "because of its memory (memory_limit), 1 times so far" in worker.log
        [row] = status(cluster.target)["workers"]
        assert row["recycles"] >= 1
        assert row["memory_limit_bytes"] == LIMIT
        assert 20 << 20 < row["rss_bytes"] < row["memory_bytes"] < LIMIT


# --- tasks


@pytest.mark.parametrize("lives", [2, full(3)])
def test_processes_are_replaced_after_their_tasks(cluster: LocalCluster, lives: int) -> None:
    """Jobs continue while the process of each of two workers is replaced; no element is
    lost or repeated.
    """
    with (
        worker_of(cluster, "--max-tasks=1") as first,
        worker_of(cluster, "--max-tasks=1") as second,
    ):
        dataset = Dataset.range(4_000).shuffle(100, seed=3).map(lambda x: x)
        turns = itertools.count()
        while min(first.said.count("listening"), second.said.count("listening")) < lives:
            assert read(cluster, dataset, job_name=f"{lives} lives, job {next(turns)}") == list(
                range(4_000)
            )
        for worker in (first, second):
            assert worker.alive
            assert "started again" not in worker.log
            assert "max_tasks" in worker.log


@pytest.mark.full
def test_a_process_that_has_had_its_tasks_hands_over_the_others(cluster: LocalCluster) -> None:
    """A long job beside short ones moves to the successor of its process; no element is
    lost or repeated.
    """
    with worker_of(cluster, "--max-tasks=2") as worker:
        options: dict[str, Any] = {"max_outstanding_requests": 4}
        elements = iter(
            Dataset.range(20_000).apply(
                distribute("distributed_epoch", cluster.target, "long", **options)
            )
        )
        found = [int(next(elements)) for _ in range(100)]
        for turn in range(2):
            assert read(cluster, Dataset.range(50), job_name=f"short {turn}") == list(range(50))
        await_condition(lambda: worker.said.count("listening") == 2, START, "its successor")
        found += [int(x) for x in elements]
        assert sorted(found) == list(range(20_000))
        assert [one["address"] for one in status(cluster.target)["workers"]] == worker.addresses


# --- rights


@pytest.fixture
def stranger() -> Iterator[str]:
    """A user without a name, for whom this machine has room."""
    try:
        check_account(account_of(STRANGER), None)
    except PermissionError as refusal:
        pytest.skip(f"no process can be another user's here: {refusal}")
    yield STRANGER
    shutil.rmtree(Path(tempfile.gettempdir()) / f"zmqdata-{STRANGER}", ignore_errors=True)


def rights(x: Any) -> Any:
    """Return the ids of the process as numbers, and whether it is kept from changing
    them.
    """
    told = Path("/proc/self/status").read_text(encoding="ascii")
    words = {line.partition(":")[0]: line.split()[1:] for line in told.splitlines()}
    found = [
        *words["Uid"],
        *words["Gid"],
        *words["Groups"],
        int(words["CapEff"][0], 16),
        words["NoNewPrivs"][0],
    ]
    return np.array([int(one) for one in found])


def test_pipelines_run_with_the_rights_of_another_user(
    cluster: LocalCluster, stranger: str
) -> None:
    """The process has only the ids and the group of the user, no capability, and no way
    back.
    """
    with worker_of(cluster, "--user", stranger) as worker:
        dataset = Dataset.range(4).map(rights)
        for row in dataset.apply(distribute("distributed_epoch", cluster.target)):
            assert row.tolist() == [int(STRANGER)] * 9 + [0, 1]
        [child] = descendants(worker.pid)
        assert os.stat(f"/proc/{child}").st_uid == int(STRANGER)
        assert os.stat(f"/proc/{worker.pid}").st_uid == os.geteuid()


def test_what_it_makes_is_its_own(cluster: LocalCluster, stranger: str, tmp_path: Path) -> None:
    """Sockets and caches lie in a folder of the user; the home of the supervisor and
    its files stay closed.
    """
    secret, home = str(tmp_path / "secret"), os.environ.get("HOME", "")
    Path(secret).touch(0o600)

    def looks(x: Any) -> Any:
        return np.array(
            [os.environ["HOME"] == home, os.access(secret, os.R_OK), os.umask(0o022) & 0o002]
        )

    with worker_of(cluster, "--user", stranger):
        dataset = Dataset.range(1).map(looks)
        assert [
            x.tolist() for x in dataset.apply(distribute("distributed_epoch", cluster.target))
        ] == [[0, 0, 2]]
        folder = (Path(tempfile.gettempdir()) / f"zmqdata-{STRANGER}").stat()
        assert (folder.st_uid, stat.S_IMODE(folder.st_mode)) == (int(STRANGER), 0o700)


def test_it_is_killed_and_replaced_like_any_other(cluster: LocalCluster, stranger: str) -> None:
    """The supervisor notices the deaths of the process, kills it if it is stuck, and
    leaves nothing behind at its own end.
    """

    def stuck(x: Any) -> Any:
        while x == BAD:
            pass
        return x

    with worker_of(cluster, "--user", stranger) as worker:
        found = read(cluster, Dataset.range(COUNT).map(stuck), on_poison="skip", task_timeout=5.0)
        assert found == REST
        [child] = descendants(worker.pid)
        worker.kill()
        await_condition(lambda: not Path(f"/proc/{child}").exists(), what="the end of its process")


def test_a_folder_that_it_cannot_have_is_told_at_the_start(stranger: str, tmp_path: Path) -> None:
    """A worker that cannot have its folder does not start; a single line on standard
    error names the folder.
    """
    tmp_path.chmod(0o700)
    command = [
        sys.executable,
        "-m",
        "zmqdata.worker",
        "--dispatcher",
        "tcp://127.0.0.1:1",
        "--user",
        stranger,
    ]
    command += ["--pipeline-cache-dir", str(tmp_path / "cache")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 2
    [line] = ran.stderr.splitlines()
    assert f"a process of '{STRANGER}' cannot work here" in line
    assert str(tmp_path) in line
