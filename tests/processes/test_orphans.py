"""Tests that a cluster never outlives the script that started it, and that a script
never loses its cluster by accident.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zmqdata.testing.cluster import await_condition, is_running

pytestmark = pytest.mark.realprocess

START = 30.0
PRELUDE = """
import os, signal, sys, threading
# Whoever runs the tests in the background has it ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
from zmqdata.cluster import LocalCluster
from zmqdata.testing.cluster import descendants
cluster = LocalCluster(1)
print(*descendants(os.getpid()), flush=True)
"""


class Script:
    """A running script with a cluster; ``servers`` are the processes of the cluster."""

    def __init__(self, path: Path, rest: str) -> None:
        path.write_text(PRELUDE + rest, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # The script has a process group of its own, as a terminal makes for a command
        # in the foreground.
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.servers = [int(pid) for pid in self.line().split()]

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def await_no_servers(self) -> None:
        await_condition(
            lambda: not any(map(is_running, self.servers)), START, "the end of the servers"
        )


@pytest.fixture
def script_path(tmp_path: Path) -> Path:
    return tmp_path / "script.py"


def test_a_killed_script_takes_its_cluster_along(script_path: Path) -> None:
    """Dispatcher, supervisor and worker processes end when SIGKILL ends their
    script.
    """
    script = Script(script_path, "sys.stdin.read()")
    with script.process:
        assert len(script.servers) == 3
        assert all(map(is_running, script.servers))
        script.process.kill()
        script.await_no_servers()


def test_a_script_that_forgets_to_close_leaves_nothing(script_path: Path) -> None:
    """A script that ends without closing its cluster ends with success, needs no
    ``__main__`` guard, and leaves no process.
    """
    script = Script(script_path, "")
    with script.process:
        assert script.process.wait(START) == 0
        script.await_no_servers()


def test_an_interrupted_script_leaves_nothing(script_path: Path) -> None:
    """Ctrl-C raises KeyboardInterrupt in the script, the servers stay until they are
    closed, and then no process is left.
    """
    rest = """
try:
    print("training", flush=True)
    threading.Event().wait(60)
except KeyboardInterrupt:
    print(cluster.dispatcher.alive and cluster.workers[0].alive, flush=True)
    raise
"""
    script = Script(script_path, rest)
    with script.process:
        assert script.line() == "training\n"
        os.killpg(script.process.pid, signal.SIGINT)
        assert script.line() == "True\n"
        assert script.process.wait(START) != 0
        script.await_no_servers()


def test_a_forked_child_keeps_nothing_alive(script_path: Path) -> None:
    """A forked child, as data loaders make, holds no lifeline: the cluster of the
    killed script ends.
    """
    rest = """
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
sys.stdin.read()
"""
    script = Script(script_path, rest)
    with script.process:
        child = int(script.line())
        script.process.kill()
        script.await_no_servers()
        assert is_running(child)
        os.kill(child, signal.SIGKILL)


@pytest.mark.full
def test_a_forked_child_ends_nothing(script_path: Path) -> None:
    """A forked child that ends, or closes its copy of the cluster, leaves the parent's
    servers alone; other calls raise.
    """
    rest = """
if os.fork() == 0:
    with cluster:
        pass
    worker = cluster.workers[0]
    for use in (worker.kill, worker.restart, worker.ask_to_stop, lambda: worker.alive, cluster.add_worker):
        try:
            use()
            os._exit(1)
        except RuntimeError as error:
            assert "was forked from it" in str(error)
    worker.close()
    assert repr(cluster).endswith(f" of process {os.getppid()}>")
    sys.exit(0)
assert os.wait()[1] == 0
print(cluster.dispatcher.alive and cluster.workers[0].alive, flush=True)
cluster.close()
"""
    script = Script(script_path, rest)
    with script.process:
        assert script.line() == "True\n"
        assert script.process.wait(START) == 0
        script.await_no_servers()
