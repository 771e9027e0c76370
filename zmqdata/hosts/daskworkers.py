"""Workers in the processes of a Dask cluster, and the number of these processes.

The processes of Dask import this module, and it imports ``distributed``. ``hosts.dask``
imports it when a host is made.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from distributed import Adaptive, WorkerPlugin

from zmqdata.cluster.host import HostError
from zmqdata.hosts.workers import ENDED, PlacedWorker, WorkerOptions

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Version of Python of this process, without the patch level."""
LEASE = 60.0
"""Seconds without a question of their host after which workers drain. Its program was
killed, or is stopped.
"""
LOOKS = 12
"""Number of questions that a plugin waits for within the lease. A Dask worker that was
stopped for longer finds those that have waited.
"""


class DaskPlugin(WorkerPlugin):  # type: ignore[misc]  # a class of Dask
    """Holds workers of a host in the process of a Dask worker.

    Args:
        name: name of the plugin. Each host has a name of its own.

    Attributes:
        workers: the workers by name.
        unasked: number of looks since the last question of the host.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.workers: dict[str, PlacedWorker] = {}
        self.unasked = 0

    async def setup(self, worker: Any) -> None:
        """Watch for the end of the host."""
        self._watch = asyncio.create_task(self.expire(worker))

    async def expire(self, worker: Any) -> None:
        """Drain all workers when the lease of the host is over. Leave the Dask worker
        when they have ended.
        """
        while self.unasked <= LOOKS or any(one.state() != ENDED for one in self.workers.values()):
            await asyncio.sleep(LEASE / LOOKS)
            self.unasked += 1
            if self.unasked > LOOKS:
                for one in self.workers.values():
                    one.drain()
        self._close()
        del worker.plugins[self.name]

    async def teardown(self, worker: Any) -> None:
        """Drain all workers, and wait until they have ended."""
        self._watch.cancel()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for worker in self.workers.values():
            worker.drain()
        for worker in self.workers.values():
            worker.close()


@dataclass
class DaskReport:
    """State of a Dask worker, and of its workers of a host."""

    is_free: bool
    """True if it accepts a worker, and has none of any host."""
    python: str = PYTHON
    """Its version of Python."""
    states: dict[str, str] = field(default_factory=dict)
    """States of the workers that run, by name."""
    endings: dict[str, str] = field(default_factory=dict)
    """Ends of workers since the last report, in words, by name."""


async def place(plugin: str, name: str, options: WorkerOptions, *, dask_worker: Any) -> None:
    """Start a worker in this Dask worker, unless it has this worker.

    Raises:
        HostError: the Dask worker is about to end, or has another worker.
        OSError: the process cannot be started.
    """
    # The plugin of a Dask worker that closes has drained its workers already.
    if dask_worker.status.name != "running":
        raise HostError(f"the Dask worker is {dask_worker.status.name}")
    if _occupants(dask_worker) - {name}:  # another host was faster
        raise HostError("the Dask worker has a worker already")
    if plugin not in dask_worker.plugins:
        await dask_worker.plugin_add(plugin=DaskPlugin(plugin), name=plugin)
    workers = dask_worker.plugins[plugin].workers
    if name not in workers:
        workers[name] = PlacedWorker(name, options)


def report(
    plugin: str, kept: Collection[str] | None, kills: bool, *, dask_worker: Any
) -> DaskReport:
    """Return the state of this Dask worker and of its workers.

    Args:
        plugin: name of the plugin of the host.
        kept: names of the workers that are wanted here; all others drain. None if none
            is to drain.
        kills: True to end the others at once.
        dask_worker: this Dask worker, which Dask passes.
    """
    told = DaskReport(dask_worker.status.name == "running" and not _occupants(dask_worker))
    held: dict[str, PlacedWorker] = {}
    if plugin in dask_worker.plugins:
        dask_worker.plugins[plugin].unasked = 0
        held = dask_worker.plugins[plugin].workers
    for name, worker in list(held.items()):
        if kept is not None and name not in kept:
            (worker.kill if kills else worker.drain)()
        if (state := worker.state()) != ENDED:
            told.states[name] = state
        else:
            told.endings[name] = held.pop(name).ending()
            worker.close()
    return told


def _occupants(dask_worker: Any) -> set[str]:
    """Return the names of the workers of all hosts that run in this Dask worker."""
    held = [one.workers for one in dask_worker.plugins.values() if isinstance(one, DaskPlugin)]
    return {name for one in held for name, worker in one.items() if worker.state() != ENDED}


class HostAdaptive(Adaptive):  # type: ignore[misc]  # a class of Dask
    """Keeps as many Dask workers as hosts need together, and as many as the cluster had
    before them.

    Args:
        cluster: the cluster.

    Attributes:
        needs: number of Dask workers that each host needs, and the addresses of those
            that it uses, by the name of its plugin.
    """

    def __init__(self, cluster: Any) -> None:
        self.needs: dict[str, tuple[int, set[str]]] = {}
        self._first = set(cluster.plan)
        super().__init__(cluster, interval="500ms", minimum=0, maximum=math.inf, wait_count=1)

    def size(self) -> int:
        """Return the number of Dask workers to keep."""
        return max(len(self._first), sum(count for count, _ in list(self.needs.values())))

    async def target(self) -> int:
        """Return ``size``, which Dask asks for."""
        return self.size()

    async def workers_to_close(self, target: int) -> list[Any]:
        """Return names of Dask workers without work, newer than the first ones if
        possible. A job of a queue that has several is named as a whole or not at all.
        """
        occupied = set().union(*(used for _, used in list(self.needs.values())))
        tasks = await self.scheduler.processing()
        spec = getattr(self.cluster, "worker_spec", {})
        jobs = {f"{job}{end}": job for job, one in spec.items() for end in one.get("group", ())}
        members: dict[Any, list[Any]] = {}
        busy = set()
        for address, about in self.cluster.scheduler_info["workers"].items():
            job = jobs.get(about["name"], about["name"])
            members.setdefault(job, []).append(about["name"])
            if address in occupied or tasks.get(address):
                busy.add(job)
        surplus, chosen = len(self.observed) - target, []
        for names in sorted(members.values(), key=lambda names: names[0] in self._first):
            if jobs.get(names[0], names[0]) not in busy and len(names) <= surplus:
                chosen += names
                surplus -= len(names)
        return chosen

    async def scale_down(self, workers: Collection[Any]) -> None:
        """Close Dask workers, given their names, after others have taken their data."""
        # If the scheduler closed a Dask worker, too, the nanny would wait for seconds.
        await self.scheduler.retire_workers(names=list(workers), remove=False, close_workers=False)
        if hasattr(self.cluster, "scale_down"):
            await self.cluster.scale_down(workers)
        else:  # one of Kubernetes, which chooses them itself
            await self.cluster.scale(len(self.plan) - len(workers))

    def stop(self, **options: Any) -> None:
        """Stop sizing the cluster if no host needs it. Older releases of Dask stop at
        the first error of a scheduler that is gone for a moment.
        """
        if not self.needs or self.cluster.status.name != "running":
            super().stop(**options)

    async def leave(self, host: str) -> None:
        """Need no Dask worker for a host any more, given the name of its plugin. The
        cluster is as large as before when the last host has left.
        """
        del self.needs[host]
        if not self.needs:
            self.stop()
            change = await self.recommendations(len(self._first))
            await self.scale_down(change.get("workers", ()))
