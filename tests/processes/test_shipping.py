"""Tests of the functions, modules and large arrays of a training script that real
worker processes get.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from zmqdata import Dataset, LocalCluster, distribute, register_dataset
from zmqdata.client.calls import status
from zmqdata.cluster.processes import ServerProcess
from zmqdata.errors import FailedPreconditionError
from zmqdata.testing.cluster import await_condition, descendants

pytestmark = [pytest.mark.realprocess, pytest.mark.timeout(180)]

MEGABYTE = 1 << 20
SIZE = 144 * MEGABYTE
COUNT = 1_000
START = 150.0

PACKAGE = {
    "__init__.py": "",
    "words.py": "from . import letters\n\ndef shout(x):\n    return letters.upper(f'word {x}')\n",
    "letters.py": "def upper(text):\n    from tongues import marks\n    return text.upper() + marks.MARK\n",
    "marks.py": "MARK = '!'\n",
}

SCRIPT = """
    import dataclasses, functools, json, sys
    import zmqdata
    from zmqdata import Dataset, LocalCluster, distribute

    @dataclasses.dataclass
    class Scale:
        factor: int
        def __call__(self, x):
            return triple(x) * self.factor

    def triple(x):
        return x * WIDTH

    def make_adder(n):
        def add(x):
            return x + n + (make_adder(n - 1)(0) if n > 1 else 0)
        return add

    WIDTH = 3
    cluster = LocalCluster(1)
    # Only now: the workers of this cluster cannot import what lies there.
    sys.path.insert(0, sys.argv[1])
    from tongues import words
    import tongues.letters

    found = {}
    def read(name, function, **options):
        dataset = Dataset.range(3).map(function)
        try:
            found[name] = list(dataset.apply(distribute("distributed_epoch", cluster.target, **options)))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"

    read("class", Scale(2))
    read("closure", make_adder(3))
    read("partial", functools.partial(lambda x, y: x - y, y=1))
    cell = "OFFSET = 100\\ndef shifted(x):\\n    return inner(x) + OFFSET\\ninner = lambda x: x * triple(1)"
    exec(compile(cell, "<ipython-input-1-abc>", "exec"))
    read("cell", shifted)
    read("lacking", words.shout)
    read("shipped", words.shout, ship=[tongues])
    read("by_path", lambda x: tongues.letters.upper(str(x)), ship=[sys.argv[1] + "/tongues"])
    def late(x):
        from tongues.words import shout
        return shout(x)
    read("late", late, ship=["tongues"])
    cluster.close()
    print(json.dumps(found, default=int))
"""


def test_a_script_needs_nothing_but_its_workers(tmp_path: Path) -> None:
    """Functions and classes of a script and of a notebook's cell travel by themselves,
    modules by ``ship``.
    """
    (tmp_path / "lib" / "tongues").mkdir(parents=True)
    for name, text in PACKAGE.items():
        (tmp_path / "lib" / "tongues" / name).write_text(text)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "lib")],
        capture_output=True,
        text=True,
        timeout=START,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["class"] == [0, 6, 12]
    assert found["closure"] == [6, 7, 8]
    assert found["partial"] == [-1, 0, 1]
    assert found["cell"] == [100, 103, 106]
    assert found["shipped"] == found["late"] == ["WORD 0!", "WORD 1!", "WORD 2!"]
    assert found["by_path"] == ["0!", "1!", "2!"]
    for said in (
        "FailedPreconditionError: the pipeline needs module 'tongues'",
        "ship=",
        "pip install",
        "PYTHONPATH",
    ):
        assert said in found["lacking"]


# --- large arrays


def pid_of(cluster: LocalCluster, worker: int) -> int:
    server = cluster.workers[worker]
    assert isinstance(server, ServerProcess)
    return server.pid


def resident(pid: int) -> int:
    """Return the bytes of memory that a process shares with no other."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:"))


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    words = np.random.default_rng(0).integers(0, 1 << 63, SIZE // 8)
    return np.frombuffer(words.tobytes(), np.uint8)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A dispatcher and two workers with a cache and a work folder of their own."""
    options = {"pipeline_cache_dir": str(tmp_path / "cache"), "work_dir": str(tmp_path / "work")}
    with LocalCluster(2, heartbeat_interval_ms=200, **options) as made:
        yield made


def read(cluster: LocalCluster, table: np.ndarray) -> list[int]:
    step = SIZE // COUNT
    dataset = Dataset.range(COUNT).map(lambda x: int(table[x * step]))
    return sorted(dataset.apply(distribute("distributed_epoch", cluster.target)))


def expected(table: np.ndarray) -> list[int]:
    return sorted(table[:: SIZE // COUNT][:COUNT].tolist())


def test_a_large_pipeline_goes_through_once_and_is_never_in_memory(
    cluster: LocalCluster, table: np.ndarray, tmp_path: Path
) -> None:
    """Dispatcher and workers stay small; a second reader sends nothing, and a new
    worker finds the array on its disk.
    """
    assert read(cluster, table) == expected(table)
    dispatcher = cluster.dispatcher
    assert isinstance(dispatcher, ServerProcess)
    children = [child for worker in range(2) for child in descendants(pid_of(cluster, worker))]
    assert max(map(resident, [dispatcher.pid, *children])) < SIZE / 2
    [part] = (tmp_path / "cache").iterdir()
    stored = tmp_path / "work" / "pipelines" / part.name
    before = stored.stat().st_mtime_ns, part.stat().st_ino
    cluster.workers[0].restart()
    assert read(cluster, table) == expected(table)
    assert (stored.stat().st_mtime_ns, part.stat().st_ino) == before


def in_background(cluster: LocalCluster, table: np.ndarray) -> tuple[threading.Thread, list[int]]:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(read(cluster, table)))
    thread.start()
    return thread, found


def has_partial(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.glob("*.partial"))


@pytest.mark.full
def test_a_dispatcher_that_starts_again_midway_gets_the_rest(
    cluster: LocalCluster, table: np.ndarray, tmp_path: Path
) -> None:
    """The training loop waits for a dispatcher that restarts midway, sends the missing
    part, and reads.
    """
    thread, found = in_background(cluster, table)
    await_condition(
        lambda: has_partial(tmp_path / "work" / "pipelines"),
        what="a part on its way to the dispatcher",
    )
    cluster.dispatcher.kill()
    cluster.dispatcher.restart()
    thread.join(START)
    assert sorted(found) == expected(table)


@pytest.mark.full
def test_a_worker_that_is_killed_midway_is_made_up_for(
    cluster: LocalCluster, table: np.ndarray, tmp_path: Path
) -> None:
    """A worker continues the fetch of a part if the worker that fetches it for all is
    killed.
    """
    thread, found = in_background(cluster, table)
    await_condition(lambda: has_partial(tmp_path / "cache"), START, "a part on its way to a worker")
    for worker in range(2):
        for child in descendants(pid_of(cluster, worker)):
            os.kill(child, signal.SIGKILL)
    thread.join(START)
    assert sorted(found) == expected(table)
    assert [path.stat().st_size for path in (tmp_path / "cache").iterdir()] == [SIZE]


# --- mapped files


@pytest.fixture
def path(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a path under which only this process finds a file: its workers have
    another current folder.
    """
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.zeros(32 * MEGABYTE, dtype=np.uint32).tofile("rows.bin")
    return "/proc/self/cwd/rows.bin"


@pytest.mark.full
def test_a_file_that_workers_lack_is_an_error(cluster: LocalCluster, path: str) -> None:
    """A map of over 100 MB of a file that workers do not see is an error that says so,
    at the call that leaves no reader behind, and of the task otherwise.
    """
    rows = np.memmap(path, np.uint32, "r")
    dataset = Dataset.range(9).map(lambda i: int(rows[i]))
    for reads in (
        lambda: register_dataset(cluster.target, dataset),
        lambda: list(dataset.apply(distribute("distributed_epoch", cluster.target))),
    ):
        with pytest.raises(FailedPreconditionError, match=r"rows\.bin.*np\.array"):
            reads()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_gigabyte_of_records_is_packed_and_opened_within_a_short_lease() -> None:
    """Client and workers report to the dispatcher while they pack and open a gigabyte
    of records, which takes longer than their leases.
    """
    records = [{"number": i, "text": f"{i} " * 60, "box": [1.5 * i, 2.5]} for i in range(3_000_000)]
    with LocalCluster(1, worker_timeout_ms=5_000, client_timeout_ms=5_000) as cluster:
        dataset = Dataset.range(10).map(lambda i: records[int(i)]["number"])
        read = iter(dataset.apply(distribute("distributed_epoch", cluster)))
        first = int(next(read))
        assert [task["attempt"] for task in status(cluster.target)["tasks"]] == [1]
        assert sorted([first, *map(int, read)]) == list(range(10))
