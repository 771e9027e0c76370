"""Dask as an engine: a cluster whose nannies are processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster, SubprocessWorker

from tests.engines.engines import Deed, processes
from zmqdata import hosts


class DaskEngine:
    """A Dask cluster that a host enlarges.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def make(self, service: str, **options: Any) -> hosts.Host:
        return hosts.Dask(service, self.cluster, **options)

    def kill_dask_worker(self, host: hosts.Host, name: str) -> None:
        """Kill the Dask worker of a worker."""
        self._signal(host, name, os.getpid)

    def kill_nanny(self, host: hosts.Host, name: str) -> None:
        """Kill the process that supervises the Dask worker of a worker."""
        self._signal(host, name, os.getppid)

    def retire(self, host: hosts.Host, name: str) -> None:
        """Have Dask close the Dask worker of a worker."""
        address = self._address(host, name)
        with Client(self.cluster, set_as_default=False) as client:
            client.retire_workers([address])

    def end_worker(self, host: hosts.Host, name: str) -> None:
        """Drain a worker behind the back of its host."""
        self._tell(name, signal.SIGTERM)

    def kill_worker(self, host: hosts.Host, name: str) -> None:
        """Kill a worker."""
        self._tell(name, signal.SIGKILL)

    kill, end = kill_dask_worker, retire

    @property
    def deeds(self) -> Mapping[str, Deed]:
        return {
            "nanny killed": self.kill_nanny,
            "Dask worker killed": self.kill_dask_worker,
            "retire_workers": self.retire,
            "SIGTERM": self.end_worker,
            "SIGKILL": self.kill_worker,
        }

    def hurry(self) -> None:
        """Nothing waits for long."""

    def left(self, prefix: str) -> list[str]:
        return processes(prefix)

    def dask_workers(self) -> int:
        """Return the number of Dask workers."""
        return len(self.cluster.scheduler_info["workers"])

    def _address(self, host: hosts.Host, name: str) -> str:
        assert isinstance(host, hosts.Dask)
        place = host._places.get(name)
        return place.address if place else ""

    def _signal(self, host: hosts.Host, name: str, which: Any) -> None:
        address = self._address(host, name)
        with Client(self.cluster, set_as_default=False) as client:
            for pid in client.run(which, workers=[address], on_error="ignore").values():
                os.kill(pid, signal.SIGKILL)

    def _tell(self, name: str, number: int) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended a moment ago
                words = path.read_text().split("\0")
                if {f"--name={name}", "--exit-with-parent"} <= {*words}:
                    os.kill(int(path.parent.name), number)


class NamedWorker(SubprocessWorker):  # type: ignore[misc]  # a class of Dask
    """A Dask worker that has the name by which its cluster knows it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.worker_kwargs["name"] = self.name


@contextlib.contextmanager
def dask_processes(count: int) -> Iterator[Any]:
    """Run a cluster whose scheduler and nannies are processes of their own."""
    # A Dask worker that is lost is replaced after a second, not after 15.
    with (
        dask.config.set(
            {
                "distributed.deploy.lost-worker-timeout": "1s",
                "distributed.comm.timeouts.connect": "5s",
            }
        ),
        SubprocessCluster(
            n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
    ):
        cluster.new_spec["cls"] = NamedWorker
        cluster.scale(count)
        cluster.wait_for_workers(count, 60)
        yield cluster
