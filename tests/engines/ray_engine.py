"""Ray, and what it can do to the workers of a host."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engines.engines import Deed, processes
from zmqdata import hosts

SOON = {
    "health_check_period_ms": 200,
    "health_check_timeout_ms": 500,
    "health_check_initial_delay_ms": 0,
}
"""Settings by which Ray notes the death of a node within seconds."""

CPUS = 2
"""Number of CPUs of each node."""


def made_cluster(nodes: int = 3) -> Iterator[RayEngine]:
    """Yield a Ray cluster of this machine, whose nodes have 2 CPUs each and whose head
    has none. This process is connected to it.
    """
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": SOON}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(nodes):
                cluster.add_node(num_cpus=CPUS)
            ray.init(address=cluster.address, log_to_driver=False)
            yield RayEngine(cluster)
        finally:
            ray.shutdown()
            cluster.shutdown()


class RayEngine:
    """A Ray cluster of three nodes and a head that has no CPU.

    Args:
        cluster: the ``ray.cluster_utils.Cluster``, to which this process is connected.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def make(self, service: str, **options: Any) -> hosts.Host:
        return hosts.Ray(service, **options)

    def kill(self, host: hosts.Host, name: str) -> None:
        """Kill the process of a worker."""
        self._signal(name, signal.SIGKILL)

    def end(self, host: hosts.Host, name: str) -> None:
        self._signal(name, signal.SIGTERM)

    def kill_actor(self, host: hosts.Host, name: str) -> None:
        """Kill the process of the actor of a worker, which Ray starts again."""
        for pid in pids(name):
            with contextlib.suppress(OSError):
                os.kill(parent(pid), signal.SIGKILL)

    def remove_node(self, host: hosts.Host, name: str) -> None:
        """Kill the node of a worker, and add another."""
        for pid in pids(name):
            raylet = parent(parent(pid))
            for node in list(self.cluster.worker_nodes):
                if node.all_processes["raylet"][0].process.pid == raylet:
                    self.cluster.remove_node(node, allow_graceful=False)
                    self.cluster.add_node(num_cpus=CPUS)

    @property
    def deeds(self) -> Mapping[str, Deed]:
        return {
            "remove_node": self.remove_node,
            "kill of an actor": self.kill_actor,
            "SIGKILL": self.kill,
            "SIGTERM": self.end,
        }

    def hurry(self) -> None:
        """Nothing waits for longer than Ray needs."""

    def left(self, prefix: str) -> list[str]:
        return processes(prefix)

    def _signal(self, name: str, number: int) -> None:
        for pid in pids(name):
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def pids(name: str) -> list[int]:
    """Return the processes of a worker whose parent is no process of a worker."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"--name={name}\0".encode() in (path / "cmdline").read_bytes():
                found[int(path.name)] = parent(int(path.name))
    return [pid for pid, above in found.items() if above not in found]


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def daemons(driver: int) -> list[int]:
    """Return the processes of the head node that a program has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = (path / "cmdline").read_bytes().split(b"\0")[0]
            is_daemon = program.endswith((b"/gcs_server", b"/raylet"))
            if is_daemon and parent(int(path.name)) == driver:
                found.append(int(path.name))
    return found
