"""Dask's own means, and the page on Dask: ``make test-engines``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines.engines import processes
from tests.engines.test_hosts import await_running, connected, ends, rows
from tests.frameworks.slurm import Slurm
from zmqdata import DispatcherConfig, DispatchServer, hosts
from zmqdata.client.calls import status
from zmqdata.cluster.host import HostError
from zmqdata.errors import FailedPreconditionError
from zmqdata.testing.cluster import await_condition

if TYPE_CHECKING:
    from tests.engines.dask_engine import DaskEngine

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "dask.md").read_text(encoding="utf-8")

pytestmark = [
    pytest.mark.skipif(
        "ZMQDATA_ENGINES" not in os.environ, reason="only `make test-engines` runs it"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(180),
]


def programs() -> list[str]:
    """Return the Python programs of the page."""
    return re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user who has no key yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_program_trains(home: Path) -> None:
    """The first program of the page reads all batches without a key, and leaves no
    process behind.
    """
    (home / "train.py").write_text(programs()[0])
    ran = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["(100,)"] * 100
    await_condition(lambda: processes("dask-") == [], 15.0, "the end of all workers")


def test_a_program_without_its_guard_says_so(home: Path) -> None:
    """The processes of a program without ``if __name__`` name that line."""
    text = programs()[0].replace('if __name__ == "__main__":', "if True:")
    (home / "train.py").write_text(text)
    with subprocess.Popen(
        [sys.executable, "train.py"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as program:
        assert program.stderr is not None
        assert any('`if __name__ == "__main__":`' in line for line in program.stderr)
        program.kill()


def test_tasks_of_dask_read_from_the_service(dask_cluster: DaskEngine, service: str) -> None:
    """The tasks of the page read a job together: the sum of their elements is that of
    all.
    """
    from distributed import Client

    [program] = [one for one in programs() if "client.submit" in one]
    with dask_cluster.make(service) as host, Client(dask_cluster.cluster) as client:
        names = host.start(1)

        class Dispatcher:
            target = service

        space: dict[str, Any] = {"client": client, "dispatcher": Dispatcher}
        exec("import zmqdata\n" + program, space)
        assert sum(client.gather(space["totals"])) == sum(range(1000))
        ends(dask_cluster, host, names)


def test_a_killed_nanny_costs_a_single_restart(dask_cluster: DaskEngine, service: str) -> None:
    """The death of a nanny ends the worker of its Dask worker. A single worker comes
    back under its name, and each element comes once.
    """
    with dask_cluster.make(service) as host:
        host.scale(2)
        names = await_running(host, service, 2)
        had: Counter[int] = Counter()
        reader = iter(rows(service, "nanny", 3000))
        for _ in range(10):
            had[int(next(reader))] += 1
        before = {one["worker"] for one in status(service)["workers"]}
        dask_cluster.kill_nanny(host, names[0])
        for element in reader:
            had[int(element)] += 1
            threading.Event().wait(0.002)
        assert had == Counter(range(3000))
        await_running(host, service, 2)
        now = {one["worker"] for one in status(service)["workers"] if one["state"] == "connected"}
        assert len(now - before) == 1
        assert sum(f"--name={names[0]} " in line for line in processes(names[0])) <= 2
        ends(dask_cluster, host, names)


def test_a_cluster_has_its_size_again(dask_cluster: DaskEngine, service: str) -> None:
    """A host adds Dask workers as it needs them, and the cluster has two again at the
    end.
    """
    with dask_cluster.make(service) as host:
        host.scale(3)
        names = await_running(host, service, 3)
        assert dask_cluster.dask_workers() == 3
        host.scale(1)
        await_running(host, service, 1)
        await_condition(lambda: dask_cluster.dask_workers() == 2, 15.0, "two Dask workers")
        host.scale(3)
        await_running(host, service, 3)
        ends(dask_cluster, host, names)
    await_condition(lambda: dask_cluster.dask_workers() == 2, 15.0, "two Dask workers")


def test_an_address_and_a_client_are_used_as_they_are(
    dask_cluster: DaskEngine, service: str
) -> None:
    """A host that has only a client, or an address, uses the two Dask workers that it
    finds. The third worker waits.
    """
    from distributed import Client

    with Client(dask_cluster.cluster) as client, hosts.Dask(service, client) as host:
        names = host.start(3)
        await_condition(
            lambda: sorted(host.running().values()) == ["queued", "running", "running"],
            30.0,
            "two workers",
        )
        host.close()
        with hosts.Dask(service, client.scheduler.address) as other:
            names = other.start(1)
            await_running(other, service, 1)
            ends(dask_cluster, other, names)


def test_nothing_is_left_when_the_engine_goes_while_a_host_closes(service: str) -> None:
    """The scheduler dies while workers drain. The error names them, and they end with
    their Dask workers.
    """
    from tests.engines.dask_engine import dask_processes

    with suppress(OSError), dask_processes(2) as cluster:  # which cannot end in order
        host = hosts.Dask(service, cluster)
        names = host.start(2)
        await_running(host, service, 2)
        drain = type(host)._drain

        def dying(self: hosts.Dask, chosen: Any) -> None:
            drain(self, chosen)
            cluster.scheduler.process.kill()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(host), "_drain", dying)
            with suppress(HostError):
                host.close()
        prefix = names[0].rpartition("-")[0]
        await_condition(lambda: processes(prefix) == [], 15.0, "the end of all workers")
        assert connected(service) == []


def test_workers_end_with_the_program_of_a_host(home: Path) -> None:
    """A program that is killed leaves no process of its own cluster."""
    program = programs()[0].replace("print(batch.shape)", "print(batch.shape, flush=True)")
    program = program.replace("range(10_000)", "range(10_000_000)")
    (home / "train.py").write_text(program)
    with subprocess.Popen(
        [sys.executable, "train.py"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as ran:
        assert ran.stdout is not None
        ran.stdout.readline()
        ran.kill()
        ran.stdout.read()
    await_condition(lambda: processes("dask-") == [], 15.0, "the end of all workers")


def test_an_interrupt_closes_the_host(home: Path) -> None:
    """Ctrl-C in a terminal reaches all processes of an own cluster. The workers drain,
    and neither Dask nor the host logs an error.
    """
    program = programs()[0].replace("print(batch.shape)", "print(batch.shape, flush=True)")
    program = program.replace("range(10_000)", "range(100_000_000)")
    (home / "train.py").write_text(program)
    with subprocess.Popen(
        [sys.executable, "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as ran:
        assert ran.stdout is not None
        ran.stdout.readline()
        os.killpg(ran.pid, signal.SIGINT)
        _, errors = ran.communicate(timeout=60)
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert "distributed." not in errors
    assert processes("dask-") == []


USES_A_CLUSTER = """
import sys, threading
from zmqdata import hosts
host = hosts.Dask(*sys.argv[1:])
host.start(2)
while list(host.running().values()) != ["running", "running"]:
    threading.Event().wait(0.1)
print(*host.running(), flush=True)
threading.Event().wait()
"""


def test_a_killed_program_leaves_a_cluster_free(dask_cluster: DaskEngine, service: str) -> None:
    """The workers of a program that is killed drain when its lease is over. Another
    host gets its Dask workers.
    """
    from distributed import Client

    with (
        Client(dask_cluster.cluster, set_as_default=False) as client,
        subprocess.Popen(
            [sys.executable, "-c", USES_A_CLUSTER, service, client.scheduler.address],
            stdout=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        assert program.stdout is not None
        names = program.stdout.readline().split()
        prefix = names[0].rpartition("-")[0]
        assert len(processes(prefix)) >= 2
        program.kill()
        client.run(exec, "from zmqdata.hosts import daskworkers; daskworkers.LEASE = 1.0")
        await_condition(lambda: processes(prefix) == [], 30.0, "the end of all workers")
        client.run(exec, "from zmqdata.hosts import daskworkers; daskworkers.LEASE = 60.0")
        with hosts.Dask(service, client) as host:
            names = host.start(2)
            assert await_running(host, service, 2) == names
            ends(dask_cluster, host, names)


def test_another_python_is_refused_at_once(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that names another minor version of Python is refused, with both
    versions in the text.
    """
    from distributed import LocalCluster, versions

    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster:
        told = versions.get_system_info() | {"python": "3.9.1.final.0"}
        monkeypatch.setattr(versions, "get_system_info", lambda: told)
        with pytest.raises(FailedPreconditionError, match=r"runs Python 3\.9, and .* Python 3\.1"):
            hosts.Dask(service, cluster)


LEFT_OPEN = """
import logging, threading, zmqdata
from zmqdata import hosts
if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    dispatcher = zmqdata.DispatchServer()
    host = hosts.Dask(dispatcher.target)
    host.start(2)
    while list(host.running().values()) != ["running", "running"]:
        threading.Event().wait(0.1)
"""


def test_the_end_of_a_program_closes_its_host(home: Path) -> None:
    """A host that a program leaves open drains its workers before Dask ends them."""
    (home / "train.py").write_text(LEFT_OPEN)
    ran = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, timeout=90)
    assert ran.returncode == 0, ran.stderr
    assert "may still run" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count(") has left") == 2
    assert processes("dask-") == []


def test_jobs_of_slurm_are_dask_workers(slurm: Slurm, home: Path) -> None:
    """A host lets a cluster of ``dask_jobqueue`` submit jobs for its workers, and
    cancels them at its end.
    """
    handler = signal.getsignal(signal.SIGINT)
    from dask_jobqueue import SLURMCluster

    signal.signal(signal.SIGINT, handler)  # which the import has replaced
    with (
        SLURMCluster(
            queue="spot",
            cores=1,
            processes=1,
            memory="2GB",
            walltime="00:30:00",
            job_extra_directives=["--exclusive"],
            job_directives_skip=["--mem"],
            local_directory=str(home),
            log_directory=str(home),
            interface="lo",
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        DispatchServer(DispatcherConfig(worker_timeout_ms=4_000)) as dispatcher,
        hosts.Dask(dispatcher.target, cluster) as host,
    ):
        names = host.start(2)
        assert await_running(host, dispatcher.target, 2) == names
        assert len(slurm.call("squeue", "-h", "-o", "%j").split()) == 2
        assert sum(1 for _ in rows(dispatcher.target, "jobs", 100)) == 100
        host.close()
        await_condition(lambda: slurm.call("squeue", "-h").split() == [], 15.0, "no job")
        assert processes(names[0].rpartition("-")[0]) == []
