"""Workers in a real Ray, and the page on Ray: ``make test-engines``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.engines.engines import processes
from tests.engines.ray_engine import RayEngine, pids
from tests.engines.test_hosts import PATIENCE, await_running, ends
from zmqdata.testing.cluster import await_condition

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ray.md").read_text(encoding="utf-8")

pytestmark = [
    pytest.mark.skipif(
        "ZMQDATA_ENGINES" not in os.environ, reason="only `make test-engines` runs it"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(180),
]


def program(word: str) -> str:
    """Return the program of the page that has a word."""
    programs = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return next(text for text in programs if word in text)


def run(text: str, folder: Path, address: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program in a folder.

    Args:
        text: the program.
        folder: an empty folder.
        address: address of a Ray cluster; ``""`` for a user without one, and without a
            key.
    """
    (folder / "train.py").write_text(text)
    alone = {"RAY_ADDRESS": "local", "XDG_CONFIG_HOME": str(folder / "config")}
    return subprocess.run(
        [sys.executable, "train.py"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=os.environ
        | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT)}
        | ({"RAY_ADDRESS": address} if address else alone),
    )


def test_the_worker_of_a_dead_node_comes_back_once(ray_cluster: RayEngine, service: str) -> None:
    """A killed node costs no worker: each comes back once, under its name."""
    with ray_cluster.make(service, num_cpus=2) as host:
        host.scale(2)
        names = await_running(host, service, 2)
        old = pids(names[0])
        ray_cluster.remove_node(host, names[0])
        await_condition(lambda: not {*old} & {*pids(names[0])}, 15.0, "the end of the old worker")
        await_condition(lambda: pids(names[0]), PATIENCE, "its successor")
        assert await_running(host, service, 2) == names
        assert [len(pids(name)) for name in names] == [1, 1]
        ends(ray_cluster, host, names)


def test_the_log_names_what_is_missing(
    ray_cluster: RayEngine, service: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that no node can take is queued. Within 5 seconds the log says what is
    missing, and a node that has it gets the worker.
    """
    with ray_cluster.make(service, num_cpus=3) as host:
        [name] = host.start(1)
        text = "Workers wait: each needs num_cpus=3, and no node of the Ray cluster has more"
        await_condition(lambda: text in caplog.text, 5.0, "the missing CPUs")
        assert host.running() == {name: "queued"}
        node = ray_cluster.cluster.add_node(num_cpus=3)
        assert await_running(host, service, 1) == [name]
        ends(ray_cluster, host, [name])
        ray_cluster.cluster.remove_node(node)


TASK = """
import zmqdata
def count(service):
    read = zmqdata.distribute("distributed_epoch", service, job_name="tasks")
    return [int(row) for row in zmqdata.Dataset.range(2000).apply(read)]
"""


def test_tasks_read_together(ray_cluster: RayEngine, service: str) -> None:
    """Plain tasks of a run share the elements of a job."""
    import ray

    space: dict[str, object] = {}
    exec(TASK, space)
    with ray_cluster.make(service) as host:
        host.scale(2)
        names = await_running(host, service, 2)
        options = {
            "num_cpus": 0,
            "max_calls": 1,
            "runtime_env": {"env_vars": {"ZMQDATA_RUN_ID": "run"}},
        }
        count = ray.remote(**options)(space["count"])
        parts = ray.get([count.remote(service) for _ in range(3)], timeout=60)
        assert Counter(row for part in parts for row in part) == Counter(range(2000))
        ends(ray_cluster, host, names)


def test_the_first_program_trains(tmp_path: Path) -> None:
    """The first program of the page reads all batches without a Ray that runs and
    without a key. Nothing is left of it.
    """
    ran = run(program("print(batch.shape)"), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("(100,)\n") == 100
    await_condition(lambda: processes("ray-") == [], 15.0, "the end of all workers")


def test_the_program_with_tasks_counts(ray_cluster: RayEngine, tmp_path: Path) -> None:
    """The tasks of the page read each row once together."""
    ran = run(program("uuid"), tmp_path, ray_cluster.cluster.address)
    assert ran.returncode == 0, ran.stderr
    assert "1000 rows in three tasks\n" in ran.stdout


WITHIN = """
import ray, zmqdata
from zmqdata import hosts
def train():
    dispatcher = zmqdata.DispatchServer()
    with dispatcher, hosts.Ray(dispatcher.target) as host:
        [name] = host.start(1)
        read = zmqdata.distribute("distributed_epoch", dispatcher.target)
        return name, sum(1 for row in zmqdata.Dataset.range(1000).apply(read))
"""


def test_a_task_of_ray_has_a_host(ray_cluster: RayEngine) -> None:
    """A host within a task uses the Ray of the task, and leaves it to it."""
    import ray

    space: dict[str, object] = {}
    exec(WITHIN, space)
    name, count = ray.get(ray.remote(num_cpus=1)(space["train"]).remote(), timeout=90)
    assert count == 1000
    await_condition(lambda: processes(name) == [], 15.0, "the end of the worker")


READS = """
import os, signal, threading, zmqdata
from tests.engines.ray_engine import daemons
from zmqdata import hosts
from zmqdata.testing.cluster import await_condition
dispatcher = zmqdata.DispatchServer()
host = hosts.Ray(dispatcher.target, num_cpus=0.5)
[name] = host.start(1)
await_condition(lambda: host.running() == {name: "running"}, 60.0)
print(name, flush=True)
read = zmqdata.distribute("distributed_epoch", dispatcher.target)
reader = iter(zmqdata.Dataset.range(10**6).apply(read))
next(reader)
"""


DRAINS = """
drain = host._drain
def told(names):
    print(*names)
    drain(names)
host._drain = told
"""


def test_a_program_that_ends_drains_its_worker(ray_cluster: RayEngine, tmp_path: Path) -> None:
    """The end of a program that does not close its host drains the worker before the
    program leaves Ray.
    """
    ran = run(READS + DRAINS, tmp_path, ray_cluster.cluster.address)
    assert ran.returncode == 0, ran.stderr
    name, *drained = ran.stdout.split()
    assert drained == [name]
    assert processes(name) == []


@pytest.mark.parametrize("has_cluster", [True, False])
def test_a_killed_program_leaves_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, has_cluster: bool
) -> None:
    """SIGKILL of a program ends its workers, also with the Ray that it started."""
    address = ""
    if has_cluster:
        address = request.getfixturevalue("ray_cluster").cluster.address
    ran = run(READS + "os.kill(os.getpid(), signal.SIGKILL)", tmp_path, address)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    name, *_ = ran.stdout.split()
    assert re.fullmatch(r"ray-\w+-0", name), ran.stdout
    prefix = name.rpartition("-")[0]
    await_condition(lambda: processes(prefix) == [], 15.0, "the end of all workers")


GONE = """
head = daemons(os.getpid())
assert len(head) >= 2
def kill():
    for pid in head:
        os.kill(pid, signal.SIGKILL)
threading.Timer(0.05, kill).start()
try:
    host.close()
except hosts.HostError as error:
    print(error)
"""


def test_a_head_that_dies_at_close_leaves_nothing(tmp_path: Path) -> None:
    """If the daemons of Ray are killed while ``close`` drains, the workers end, and
    ``close`` returns or names those that may still run.
    """
    ran = run(READS + GONE, tmp_path)
    name, *_ = ran.stdout.split()
    assert re.fullmatch(r"ray-\w+-0", name), ran.stderr
    assert "Traceback" not in ran.stderr
    assert "\n" not in ran.stdout.strip() or f"may still run: {name}" in ran.stdout
    prefix = name.rpartition("-")[0]
    await_condition(lambda: processes(prefix) == [], 15.0, "the end of all workers")
