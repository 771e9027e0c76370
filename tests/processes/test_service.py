"""Tests of a training loop with real dispatchers and workers that are killed, frozen,
stuck or restarted, or lack a module.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.client.calls import status
from zmqdata.cluster.processes import ServerProcess
from zmqdata.errors import DataServiceError, FailedPreconditionError
from zmqdata.testing.cluster import await_condition, descendants, frozen, is_running
from zmqdata.worker.child import SWITCH_SECONDS

pytestmark = pytest.mark.realprocess

COUNT = 10_000
START = 30.0
OPTIONS: dict[str, Any] = {"heartbeat_interval_ms": 100, "buffer_bytes": 1 << 16}
"""Workers make so little ahead that a worker which dies in the first half of a job
still has to make most of its part.
"""


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A dispatcher and two workers of one process each, with the options that the test
    requests.
    """
    with LocalCluster(2, **OPTIONS, **getattr(request, "param", {})) as made:
        yield made


@pytest.fixture(scope="module")
def small_cluster() -> Iterator[LocalCluster]:
    """A dispatcher and a worker that no test disturbs."""
    with LocalCluster(1, **OPTIONS) as made:
        yield made


def vectors(cluster: LocalCluster, mode: str = "distributed_epoch") -> Iterator[tuple[int, int]]:
    """Read ``COUNT`` elements of 800 bytes; yield the number in each, and the process
    that made it.

    The job has a name, so it outlives its iteration and stays visible.
    """
    dataset = Dataset.range(COUNT).map(lambda x: (np.full(100, x), os.getpid()))
    read = distribute(mode, cluster.target, "job", max_outstanding_requests=256)
    for element, pid in dataset.apply(read):
        yield int(element[0]), int(pid)


def some(elements: Iterator[Any], count: int = 2_000) -> list[Any]:
    return [next(elements) for _ in range(count)]


def repeated_or_missing(found: list[tuple[int, int]], count: int = COUNT) -> dict[int, int]:
    """Return the number of times that each element came, except elements that came
    once.
    """
    seen = Counter(x for x, _ in found)
    return {x: seen[x] for x in sorted(seen.keys() | set(range(count))) if seen[x] != 1}


def tasks(cluster: LocalCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = status(cluster.target)["tasks"]
    return found


def attempts(cluster: LocalCluster) -> list[int]:
    return sorted(task["attempt"] for task in tasks(cluster))


def server(cluster: LocalCluster, worker: int) -> ServerProcess:
    found = cluster.workers[worker]
    assert isinstance(found, ServerProcess)
    return found


def kill_child(cluster: LocalCluster, worker: int = 0) -> None:
    """Kill the process that runs pipelines; its supervisor lives and starts another."""
    [child] = descendants(server(cluster, worker).pid)
    os.kill(child, signal.SIGKILL)


# --- a worker is lost


def test_a_killed_child_loses_and_repeats_nothing(cluster: LocalCluster) -> None:
    """DYNAMIC delivers every element exactly once when a worker's process is killed in
    mid-stream.
    """
    elements = vectors(cluster)
    found = some(elements)
    kill_child(cluster)
    found += elements
    assert repeated_or_missing(found) == {}
    assert max(attempts(cluster)) > 1


@pytest.mark.full
def test_killed_one_after_the_other(cluster: LocalCluster) -> None:
    """DYNAMIC delivers every element exactly once when both workers' processes are
    killed in turn.
    """
    elements = vectors(cluster)
    found = some(elements, 500)
    for worker in (0, 1):
        kill_child(cluster, worker)
        found += some(elements, 500)
    found += elements
    assert repeated_or_missing(found) == {}
    assert max(attempts(cluster)) > 1


def test_the_lost_copy_is_dropped(cluster: LocalCluster) -> None:
    """Under OFF the copy of a killed process ends where it was, all others are
    complete, and the iteration ends.
    """
    elements = vectors(cluster, "parallel_epochs")
    found = some(elements)
    killed = found[-1][1]
    os.kill(killed, signal.SIGKILL)
    found += elements
    copies: dict[int, list[int]] = {}
    for x, pid in found:
        copies.setdefault(pid, []).append(x)
    lost = copies.pop(killed)
    assert lost == [*range(len(lost))]
    assert len(lost) < COUNT
    assert copies
    assert all(copy == [*range(COUNT)] for copy in copies.values())
    assert [task["delivered"] for task in tasks(cluster) if task["removed"]] == [len(lost)]


CLIENT = """
    import json, sys
    import numpy as np
    from zmqdata import Dataset, distribute

    count = int(sys.argv[2])
    dataset = Dataset.range(count).map(lambda x: np.full(100, x))
    read = distribute("distributed_epoch", sys.argv[1], "shared", max_outstanding_requests=256)
    elements = iter(dataset.apply(read))
    found = [int(next(elements)[0]) for _ in range(500)]
    print("reading", flush=True)
    sys.stdin.readline()
    found += [int(element[0]) for element in elements]
    print(json.dumps(found), flush=True)
"""


def start_script(text: str, *arguments: str, path: Path | None = None) -> subprocess.Popen[str]:
    """Start a script that imports what we can import, in a process group of its own, as
    a terminal does.
    """
    text = textwrap.dedent(text)
    if path is not None:
        path.write_text(text, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, *(["-c", text] if path is None else [str(path)]), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line that a script prints; fail with its errors if it has
    ended.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        pytest.fail(f"the script printed nothing more: {process.communicate(timeout=START)[1]}")
    return line.rstrip("\n")


@pytest.mark.full
def test_clients_that_share_a_job_lose_and_repeat_nothing(cluster: LocalCluster) -> None:
    """Each element comes to exactly one of two clients that share a DYNAMIC job when a
    worker's process is killed.
    """
    clients = [start_script(CLIENT, cluster.target, str(COUNT)) for _ in range(2)]
    try:
        assert [line_of(client) for client in clients] == ["reading"] * 2
        kill_child(cluster)
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go on\n")
            client.stdin.flush()
        parts = [json.loads(client.communicate(timeout=START)[0]) for client in clients]
    finally:
        for client in clients:
            client.kill()
            client.wait()
    assert repeated_or_missing([(x, part) for part in range(2) for x in parts[part]]) == {}
    assert min(map(len, parts)) >= 500
    assert max(attempts(cluster)) > 1


# --- a worker is silent


def test_a_held_interpreter_is_no_death(tmp_path: Path) -> None:
    """A worker whose user code holds the GIL for over twice the time-out keeps its task
    and its connection.
    """
    begun, release = tmp_path / "begun", tmp_path / "release"
    os.mkfifo(release)

    def stuck(x: Any) -> Any:
        import ctypes

        if x == 50:
            await_condition(
                begun.exists, what="the first element, which could not be sent any more"
            )
            ctypes.PyDLL(None).open(
                os.fsencode(release), os.O_RDONLY
            )  # returns when the test opens it for writing
        return x

    with LocalCluster(1, worker_timeout_ms=2_000, **OPTIONS) as cluster:
        elements = iter(
            Dataset.range(100)
            .map(stuck)
            .apply(distribute("distributed_epoch", cluster.target, "job"))
        )
        found = [(int(next(elements)), 0)]
        begun.touch()
        silences: list[float] = []

        def is_long_silent() -> bool:
            [worker] = status(cluster.target)["workers"]
            assert worker["state"] in ("connected", "silent")
            silences.append(worker["silent_seconds"])
            return max(silences) > 4.0

        await_condition(is_long_silent, what="silence of the worker that is stuck")
        release.open("wb").close()
        found += ((int(x), 0) for x in elements)
        assert repeated_or_missing(found, 100) == {}
        assert attempts(cluster) == [1]


@pytest.mark.parametrize("cluster", [{"worker_timeout_ms": 1_000}], indirect=True)
def test_a_frozen_worker_that_counts_as_lost(cluster: LocalCluster) -> None:
    """No element is lost or repeated when a worker is stopped (SIGSTOP) for longer than
    the time-out and comes back.
    """
    elements = vectors(cluster)
    found = some(elements)
    with frozen(server(cluster, 0)):
        await_condition(
            lambda: len(status(cluster.target)["workers"]) == 1,
            what="the loss of the frozen worker",
        )
        found += some(elements)
    found += elements
    assert repeated_or_missing(found) == {}
    assert max(attempts(cluster)) >= 2  # more if the worker that returns takes it again
    await_condition(lambda: len(status(cluster.target)["workers"]) == 2, what="its return")


@pytest.mark.full
def test_a_briefly_frozen_worker(cluster: LocalCluster) -> None:
    """A worker that is stopped (SIGSTOP) briefly keeps its task; no element is lost or
    repeated.
    """

    def longest_silence() -> float:
        return max(float(worker["silent_seconds"]) for worker in status(cluster.target)["workers"])

    elements = vectors(cluster)
    found = some(elements)
    with frozen(server(cluster, 0)):
        await_condition(lambda: longest_silence() > 1.0, what="its silence")
        found += some(elements, 500)
    found += elements
    assert repeated_or_missing(found) == {}
    assert attempts(cluster) == [1, 1]


# --- the dispatcher is lost


@pytest.mark.parametrize("cluster", [{"fault_tolerant_mode": False}], indirect=True)
@pytest.mark.full
def test_a_dispatcher_without_journal_ends_its_jobs(cluster: LocalCluster) -> None:
    """A restarted dispatcher without a journal knows no job: the iteration ends with an
    error that says so.
    """
    elements = vectors(cluster)
    some(elements)
    cluster.dispatcher.kill()
    cluster.dispatcher.restart()
    with pytest.raises(DataServiceError, match=r"dispatcher was restarted.*new iterator"):
        list(elements)
    await_condition(lambda: len(status(cluster.target)["workers"]) == 2, what="the workers' return")
    assert repeated_or_missing(list(vectors(cluster))) == {}


@pytest.mark.full
def test_a_dispatcher_learns_a_dataset_anew() -> None:
    """A dataset read before its dispatcher forgot everything keeps its identity,
    whatever was registered since.
    """
    with LocalCluster(1, fault_tolerant_mode=False, **OPTIONS) as cluster:
        read = distribute("distributed_epoch", cluster.target)
        mine, other = (
            Dataset.range(3).apply(read),
            Dataset.range(3).map(lambda x: x + 100).apply(read),
        )
        assert sorted(map(int, mine)) == [0, 1, 2]
        cluster.dispatcher.kill()
        cluster.dispatcher.restart()
        assert sorted(map(int, other)) == [100, 101, 102]
        assert sorted(map(int, mine)) == [0, 1, 2]
        cluster.dispatcher.restart()
        assert sorted(map(int, mine)) == [0, 1, 2]


# --- code that workers lack


def test_a_missing_module_is_named(
    small_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that the workers lack is a FailedPreconditionError with its name, both
    sides' versions, and the remedy.
    """
    (tmp_path / "only_at_the_client.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("only_at_the_client")
    # The test forgets the module again at the end, with its folder.
    monkeypatch.setitem(sys.modules, module.__name__, sys.modules.pop(module.__name__))
    dataset = (
        Dataset.range(3)
        .map(module.double)
        .apply(distribute("distributed_epoch", small_cluster.target))
    )
    with pytest.raises(FailedPreconditionError) as caught:
        list(dataset)
    text = str(caught.value)
    version = ".".join(map(str, sys.version_info[:2]))
    assert "'only_at_the_client'" in text
    assert re.search(rf"the worker at \S+:\d+ \({os.uname().nodename}, Python {version}", text)
    assert f"client: Python {version}, zmqdata " in text
    assert "install it for the worker at" in text


@pytest.mark.full
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Functions, classes, lambdas and closures of a script without ``__main__`` guard
    run on the workers.
    """
    script = """
        import os
        from dataclasses import dataclass
        import zmqdata

        FACTOR = 3

        @dataclass
        class Shift:
            by: int
            def __call__(self, x):
                return x + self.by

        def times(factor):
            return lambda x: x * factor

        def triple(x):
            return times(FACTOR)(x)

        print("begin", flush=True)
        cluster = zmqdata.LocalCluster(2)
        here = os.getpid()
        dataset = (
            zmqdata.Dataset.range(100).map(triple).map(times(2)).map(Shift(by=1)).filter(lambda x: os.getpid() != here)
        )
        found = dataset.apply(zmqdata.distribute("distributed_epoch", cluster.target))
        print(sorted(map(int, found)) == [x * 6 + 1 for x in range(100)])
    """
    process = start_script(script, path=tmp_path / "script.py")
    output, errors = process.communicate(timeout=START)
    assert (output, errors, process.returncode) == ("begin\nTrue\n", "", 0)


# --- the training script ends

TRAINING = """
    import os
    import zmqdata
    from zmqdata.testing.cluster import descendants

    cluster = zmqdata.LocalCluster(1)
    print(*descendants(os.getpid()), flush=True)
    dataset = zmqdata.Dataset.range(10**12).map(lambda x: x + 1).batch(10)
    for number, batch in enumerate(dataset.apply(zmqdata.distribute("distributed_epoch", cluster.target))):
        if number == 100:
            print("training", flush=True)
"""


@contextlib.contextmanager
def training(path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A script that trains without end, and the processes of its cluster.

    All of them must have ended at the end.
    """
    process = start_script(TRAINING, path=path)
    with process:
        servers = [int(pid) for pid in line_of(process).split()]
        assert len(servers) == 3
        assert all(map(is_running, servers))
        assert line_of(process) == "training"
        yield process, servers
        await_condition(lambda: not any(map(is_running, servers)), what="the end of the servers")


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in a training loop ends the script with KeyboardInterrupt within seconds,
    and its servers, too.
    """
    with training(tmp_path / "train.py") as (process, _):
        os.killpg(process.pid, signal.SIGINT)
        errors = process.communicate(timeout=START)[1]
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1


@pytest.mark.full
def test_a_killed_script_leaves_no_worker(tmp_path: Path) -> None:
    """A script that is killed (SIGKILL) while it reads leaves no process of its
    cluster.
    """
    with training(tmp_path / "train.py") as (process, _):
        process.kill()


# --- the state is visible


def test_pipelines_let_others_in(small_cluster: LocalCluster) -> None:
    """A computing thread of a worker yields to other threads after a millisecond
    instead of Python's five.
    """
    pauses = Dataset.range(4).map(lambda _: sys.getswitchinterval())
    read = distribute("parallel_epochs", small_cluster.target)
    assert set(pauses.apply(read)) == {SWITCH_SECONDS}
    assert sys.getswitchinterval() > SWITCH_SECONDS


@pytest.mark.full
def test_status_shows_rates(cluster: LocalCluster) -> None:
    """``zmqdata status --json`` shows the elements per second of each worker while a
    client reads.
    """
    elements = iter(Dataset.range(10**12).apply(distribute("distributed_epoch", cluster.target)))

    def shown() -> dict[str, Any]:
        command = [
            sys.executable,
            "-m",
            "zmqdata",
            "status",
            "--json",
            "--dispatcher",
            cluster.target,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                some(elements, 1_000)
            assert process.stdout is not None
            answer: dict[str, Any] = json.load(process.stdout)
            return answer

    def rates_are_there() -> bool:
        found.update(shown())
        return found["jobs"][0]["delivered"] > 0 and all(
            one["elements_per_second"] > 0 for one in found["workers"]
        )

    found: dict[str, Any] = {}
    await_condition(rates_are_there, what="rates of all workers, and a report of the client")
    assert len(found["workers"]) == 2
    assert [job["clients"] for job in found["jobs"]] == [1]
    assert {task["worker"] for task in found["tasks"]} == {
        worker["worker"] for worker in found["workers"]
    }
