"""A Dask whose scheduler and workers are objects of this process, and a package
``distributed`` that finds it.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from zmqdata.hosts.workers import WorkerOptions

KNOWN: dict[str, FakeDask] = {}
OWN = f"{sys.version_info.major}.{sys.version_info.minor}.0.final.0"


class FakeDaskWorker:
    """A Dask worker.

    Args:
        name: its name.
        python: its version of Python.
    """

    def __init__(self, name: int, python: str) -> None:
        self.name, self.python = name, python
        self.address = f"tcp://10.0.0.7:{40_000 + name}"
        self.status = SimpleNamespace(name="running")
        self.plugins: dict[str, Any] = {}
        self.executing = 0
        self.error: Exception | None = None
        self.hangs = False
        self.asked = 0

    async def plugin_add(self, plugin: Any, name: str) -> None:
        self.plugins[name] = plugin
        await plugin.setup(worker=self)

    def workers(self) -> dict[str, FakeWorker]:
        """Return the workers of all hosts here."""
        return {k: v for plugin in self.plugins.values() for k, v in plugin.workers.items()}


class FakeDask:
    """A scheduler, and its Dask workers by address."""

    def __init__(self, count: int = 0, python: str = OWN) -> None:
        self.address = f"tcp://10.0.0.7:{8786 + len(KNOWN)}"
        self.security = Security()
        self.python = python
        self.workers: dict[str, FakeDaskWorker] = {}
        self.made = 0
        self.is_gone = self.is_old = False
        KNOWN[self.address] = self
        for _ in range(count):
            self.add()

    def add(self, python: str = OWN) -> FakeDaskWorker:
        """Let another Dask worker join."""
        worker = FakeDaskWorker(self.made, python)
        self.made += 1
        self.workers[worker.address] = worker
        return worker

    def placed(self) -> dict[str, FakeWorker]:
        """Return the workers of all hosts in all Dask workers."""
        return {k: v for one in list(self.workers.values()) for k, v in one.workers().items()}


class FakeWorker:
    """A worker that a test moves from state to state."""

    def __init__(self, name: str, options: WorkerOptions) -> None:
        self.name, self.options = name, options
        self.now = "running"
        self.takes_long = self.is_closed = self.is_killed = False

    def state(self) -> str:
        told = self.now
        if told == "draining" and not self.takes_long:
            self.now = "ended"
        return told

    def ending(self) -> str:
        return "exited with code 2, and wrote: no key"

    def drain(self) -> None:
        if self.now == "running":
            self.now = "draining"

    def kill(self) -> None:
        self.now, self.is_killed = "ended", True

    def close(self) -> None:
        self.now, self.is_closed = "ended", True


class Security:
    """Settings of TLS."""

    def get_connection_args(self, role: str) -> dict[str, Any]:
        return {}


class Rpc:
    """A connection to a Dask, as far as hosts use it."""

    def __init__(self, address: str, connection_args: dict[str, Any]) -> None:
        self._dask = KNOWN[address]

    async def __aenter__(self) -> Rpc:
        if self._dask.is_gone:
            raise OSError("Timed out during handshake")
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def broadcast(self, msg: dict[str, str], on_error: str) -> dict[str, Any]:
        return {address: versions(one.python) for address, one in self._dask.workers.items()}

    async def versions(self) -> dict[str, Any]:
        return versions(self._dask.python)


def versions(python: str) -> dict[str, Any]:
    """Return the versions of a process."""
    return {"host": {"python": python}, "packages": {"distributed": "2024.8.0"}}


class Client:
    """A client, as far as hosts use it."""

    def __init__(self, address: str, **options: Any) -> None:
        self.scheduler = KNOWN[address]
        self.security = Security()
        self.status = "running"
        if self.scheduler.is_gone or self.scheduler.is_old:
            raise TypeError("identity() got an unexpected keyword argument")

    def sync(self, question: Callable[[], Awaitable[Any]], callback_timeout: float) -> Any:
        async def ask() -> Any:
            return await question()

        if self.scheduler.is_gone:
            raise OSError("Timed out")
        return asyncio.run(ask())

    async def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self.scheduler.workers, 1)

    async def run(
        self, function: Any, *args: Any, workers: list[str], on_error: str = "raise"
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for address in workers:
            worker = self.scheduler.workers.get(address)
            try:
                if worker is None:
                    raise OSError(f"{address} has left")
                worker.asked += 1
                if worker.error is not None:
                    raise worker.error
                if worker.hangs:
                    await asyncio.Event().wait()
                function, given = pickle.loads(pickle.dumps((function, args)))
                result = function(*given, dask_worker=worker)
                found[address] = await result if inspect.isawaitable(result) else result
                if worker.python != OWN:
                    found[address].python = worker.python
            except Exception as error:
                if on_error == "raise":
                    raise
                if on_error == "return":
                    found[address] = error
        return found

    def close(self, timeout: float) -> None:
        self.status = "closed"


class Adaptive:
    """The base of classes that size a cluster, which a test lets act by ``tick``."""

    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        self.cluster = cluster
        self.periodic_callback: object | None = object()
        self.scheduler = SimpleNamespace(retire_workers=self._retire, processing=self._processing)

    @property
    def plan(self) -> set[int]:
        return self.cluster.plan

    observed = plan

    async def recommendations(self, target: int) -> dict[str, Any]:
        if target < len(self.cluster.plan):
            return {"workers": await self.workers_to_close(target)}  # type: ignore[attr-defined]
        return {}

    async def _processing(self) -> dict[str, list[str]]:
        return {k: ["key"] * one.executing for k, one in self.cluster.scheduler.workers.items()}

    async def _retire(self, **options: Any) -> None:
        assert options["close_workers"] is False

    def stop(self) -> None:
        self.periodic_callback = None


class FakeDescriptions:
    """Facts that a cluster has on its Dask workers, by address."""

    def __init__(self, dask: FakeDask) -> None:
        self._dask = dask

    def __getitem__(self, key: str) -> dict[str, Any]:
        assert key == "workers"
        return {address: {"name": one.name} for address, one in self._dask.workers.items()}


class FakeCluster:
    """A cluster that adds and removes Dask workers.

    Args:
        count: number of its Dask workers.
    """

    asynchronous = False

    def __init__(self, count: int = 0, **options: Any) -> None:
        self.scheduler = FakeDask(count)
        self.scheduler_address = self.scheduler.address
        self.security = Security()
        self.scheduler_info = FakeDescriptions(self.scheduler)
        self.worker_spec: dict[str, Any] = {}
        self.options = options
        self.is_closed = False
        self.status = SimpleNamespace(name="running")
        self._adaptive: Any = None

    @property
    def plan(self) -> set[int]:
        return {worker.name for worker in self.scheduler.workers.values()}

    async def scale_down(self, names: list[Any]) -> None:
        for address, worker in list(self.scheduler.workers.items()):
            if worker.name in names:
                del self.scheduler.workers[address]

    def tick(self) -> None:
        """Size the cluster as its class wants."""
        target = asyncio.run(self._adaptive.target())
        while len(self.plan) < target:
            self.scheduler.add()
        change = asyncio.run(self._adaptive.recommendations(target))
        asyncio.run(self._adaptive.scale_down(change.get("workers", ())))

    def sync(self, function: Any, *args: Any, callback_timeout: float) -> Any:
        return asyncio.run(function(*args))

    def close(self, timeout: float) -> None:
        self.is_closed, self.status.name = True, "closed"
        self.scheduler.workers.clear()


class FakeKubernetes(FakeCluster):
    """A cluster that chooses itself which Dask workers it removes."""

    def __getattribute__(self, name: str) -> Any:
        if name == "scale_down":
            raise AttributeError(name)
        return super().__getattribute__(name)

    async def scale(self, count: int) -> None:
        while len(self.plan) > count:
            self.scheduler.workers.popitem()


class WorkerPlugin:
    """The base of plugins."""


def package() -> ModuleType:
    """Return the package ``distributed``."""
    made = ModuleType("distributed")
    vars(made).update(
        __version__="2026.8.0",
        Client=Client,
        Security=Security,
        rpc=Rpc,
        Adaptive=Adaptive,
        WorkerPlugin=WorkerPlugin,
        LocalCluster=lambda **options: FakeCluster(options.pop("n_workers"), **options),
    )
    return made


DISTRIBUTED = package()
