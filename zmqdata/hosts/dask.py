"""``Dask``: workers in the processes of a Dask cluster.

The host places each worker by name, and asks all Dask workers for theirs: their answers
are the truth. A worker ends with the process of its Dask worker, since its standard
input is a pipe of that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from zmqdata.client import lifetime
from zmqdata.cluster.fleet import DRAINING, QUEUED, STARTING
from zmqdata.cluster.host import Host, HostError
from zmqdata.cluster.processes import stop_seconds
from zmqdata.config.endpoints import Service
from zmqdata.errors import FailedPreconditionError
from zmqdata.hosts.workers import (
    WorkerOptions,
    engine_package,
    loopback_address,
    warn_of_loopback,
    worker_interface,
)

if TYPE_CHECKING:
    from zmqdata.hosts.daskworkers import DaskReport

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

DEADLINE = 15.0
"""Seconds within which the scheduler of Dask has answered."""
WAITS_FOR = 10.0
"""Seconds for which workers wait for a Dask worker before the log says so. Workers that
drain, and Dask workers that start, take less.
"""
ANSWERS_WITHIN = 3.0
"""Seconds within which a Dask worker has answered. Its workers count as before if it
has not.
"""
PAUSES = 0.5, 2.0
"""Seconds between two questions to all Dask workers while a worker waits for one of
them, and otherwise. Each question is a line in the log of each Dask worker.
"""


@dataclass(eq=False)
class _Place:
    """The Dask worker that has a worker of this host."""

    address: str = ""
    """Its address; ``""`` while the worker waits for a Dask worker."""
    state: str = QUEUED
    """State of the worker in the last answer."""


class Dask(Host):
    """Keeps workers of a dispatcher running in the processes of a Dask cluster.

    Each Dask worker has at most a single worker of all hosts, as a process that ends
    with it. The host adds Dask workers to the cluster if it needs more, and removes
    those that it needs no longer, down to the number that it has found. A worker for
    which no Dask worker is left waits as ``queued``. Dask workers compute tasks of
    Dask, too.

    Args:
        service: address of the dispatcher, as for ``distribute``.
        cluster: a cluster of Dask, such as ``LocalCluster`` or ``SLURMCluster``; None
            for processes of this machine, which ``close`` ends. A ``Client``, the
            address of a scheduler, or a cluster that adapts already is used as it is:
            the host adds no Dask workers to it.
        worker_options: as for ``Local``. Unless given, ``host`` is ``"0.0.0.0"``, or
            ``"127.0.0.1"`` if the dispatcher is on loopback. ``key_file`` is a path on
            the machines of the Dask workers.

    Raises:
        TypeError: an option does not exist, or has the wrong type, or ``cluster`` is
            none.
        ValueError: an option is out of its range, or contradicts another.
        ImportError: ``distributed`` is not installed.
        FailedPreconditionError: the Dask scheduler or a Dask worker runs another minor
            version of Python, ``cluster`` is asynchronous, or a process that this
            program starts imports it.
        HostError: the Dask scheduler does not answer.

    Example: ::

        cluster = dask_jobqueue.SLURMCluster(cores=4, memory="8GB")
        with hosts.Dask("tcp://head:5050", cluster, processes=4) as host:
            host.adapt(0, 16)
            train()

    Ours. Dask's ``Cluster.adapt`` resembles it.
    """

    def __init__(self, service: Service, cluster: Any = None, **worker_options: Any) -> None:
        worker_options = {"host": worker_interface(service)} | worker_options
        self._options = WorkerOptions("Dask", service, worker_options, shows_key=cluster is None)
        distributed = engine_package("distributed", "Dask")
        from zmqdata.hosts import daskworkers

        lifetime.end_before_others()  # Dask's own end would take the cluster away
        self._distributed, self._remote = distributed, daskworkers
        patience = stop_seconds(self._options.config) + DEADLINE
        super().__init__(service, "dask", self._options.count, patience)
        self._plugin = f"zmqdata-{secrets.token_hex(4)}"
        self._places: dict[str, _Place] = {}
        self._stopped: set[str] = set()
        self._free: list[str] = []
        self._unfit: set[str] = set()  # Dask workers that can never have a worker
        self._count = 0  # Dask workers that the scheduler knows
        self._placed_at = time.monotonic()  # when no worker waited
        self._client: Any = None
        self._adaptive: Any = None
        self._own = _local_cluster(distributed) if cluster is None else None
        cluster = cluster or self._own
        self._cluster, self._address, self._security = _parts(distributed, cluster)
        self._release = ""
        try:
            self._check_versions()
            self._connect()
            self._grow()
        except BaseException:
            self._disconnect()
            raise
        scheme, _, place = self._address.rpartition("//")
        if scheme != "inproc:" and not loopback_address(f"tcp://{place}"):
            warn_of_loopback(service)

    def _connect(self) -> None:
        """Make a client, unless there is one. A client gives up after half a minute
        without a scheduler.
        """
        if self._client is None or self._client.status == "closed":
            with self._asking():
                self._client = self._distributed.Client(
                    self._address,
                    security=self._security,
                    timeout=DEADLINE,
                    set_as_default=False,
                    name=self._plugin,
                )

    def _check_versions(self) -> None:
        # A client of another release fails, and ends only after half a minute. The user
        # may be within an event loop.
        with self._asking(), ThreadPoolExecutor(1) as pool:
            told = pool.submit(asyncio.run, asyncio.wait_for(self._versions(), DEADLINE)).result()
        self._release = told["scheduler"]["packages"]["distributed"]
        for side, about in told.items():
            python = ".".join(about["host"]["python"].split(".")[:2])
            if python != self._remote.PYTHON:
                raise FailedPreconditionError(
                    f"The Dask {side} runs Python {python}, and this program Python "
                    f"{self._remote.PYTHON}. Pipelines need the same minor version everywhere. "
                    "Start this program, the scheduler and the Dask workers in equal environments"
                )

    async def _versions(self) -> dict[str, Any]:
        """Return the versions that the scheduler and each Dask worker have."""
        options = self._security.get_connection_args("client")
        async with self._distributed.rpc(self._address, connection_args=options) as dask:
            workers = await dask.broadcast(msg={"op": "versions"}, on_error="ignore")
            found = {f"worker {address}": about for address, about in workers.items()}
            return {"scheduler": await dask.versions()} | found

    def _grow(self) -> None:
        """Let the cluster have as many Dask workers as this host needs, if it can."""
        adapts = getattr(self._cluster, "_adaptive", None)
        if isinstance(adapts, self._remote.HostAdaptive) and adapts.needs:
            self._adaptive = adapts  # of another host
        elif self._cluster and not getattr(adapts, "periodic_callback", None):
            # Not all clusters have an `adapt` that takes a class.
            self._adaptive = self._cluster._adaptive = self._remote.HostAdaptive(self._cluster)
        self._say_needs()

    def _say_needs(self, *chosen: str) -> None:
        """Tell the cluster what this host needs, and which Dask workers it uses: those
        that have a worker, and those that are chosen now.
        """
        if self._adaptive:
            with self._state:
                used = {place.address for place in self._places.values()} | {*chosen}
                self._adaptive.needs[self._plugin] = len(self._fleet.wanted), used

    def _is_over(self) -> bool:
        """Return True if the cluster was closed. Its Dask workers have ended."""
        status = getattr(self._cluster, "status", None)
        return getattr(status, "name", "") in ("closing", "closed")

    def close(self) -> None:
        if self._owner != os.getpid() or self._is_ended:
            return
        with contextlib.suppress(HostError):
            if not self._is_over():
                self._connect()
        try:
            super().close()
        except HostError:
            if self._own:  # its processes end, and the workers with them
                self._disconnect()
                self._end()
            raise
        self._disconnect()

    def _disconnect(self) -> None:
        if self._adaptive and not self._is_over():
            try:
                self._cluster.sync(self._adaptive.leave, self._plugin, callback_timeout=DEADLINE)
            except Exception as error:
                self._say("size", HostError(f"The Dask cluster keeps its size: {error!r}"))
            self._adaptive = None
        for one in (self._client, self._own):
            if one:
                with contextlib.suppress(Exception):  # it is gone
                    one.close(timeout=DEADLINE)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Raise what Dask raises as an error of the engine."""
        try:
            yield
        except Exception as error:
            release = "Check that it runs at this address."
            if self._release:
                own = self._distributed.__version__
                release = f"It has distributed {self._release}, and this program {own}."
            raise HostError(
                f"The Dask scheduler at {self._address} does not answer: {error!r}. {release}"
            ) from None

    def _ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer of a coroutine that runs in the loop of the client."""
        with self._asking():
            answer: Answer = self._client.sync(question, callback_timeout=DEADLINE)
        return answer

    async def _reports(
        self, carries_out: bool, kills: bool = False
    ) -> dict[str, DaskReport | Exception]:
        with self._state:
            kept = {
                place.address: [name]
                for name, place in self._places.items()
                if name not in self._stopped
            }

        async def report(address: str) -> DaskReport | Exception:
            names = kept.get(address, []) if carries_out else None
            run = self._client.run(
                *(self._remote.report, self._plugin, names, kills),
                workers=[address],
                on_error="return",
            )
            try:
                answers = await asyncio.wait_for(run, ANSWERS_WITHIN)
                answer: DaskReport | Exception = answers[address]
            except Exception as error:
                return error
            return answer

        found = await self._client.nthreads()
        self._count = len(found)
        self._unfit &= found.keys()
        addresses = [address for address in found if address not in self._unfit]
        return dict(zip(addresses, await asyncio.gather(*map(report, addresses)), strict=True))

    def _states(self) -> dict[str, str]:
        if self._halted.is_set() and self._is_over():
            self._places.clear()
            return {}
        with self._state:
            known = {name: place for name, place in self._places.items() if place.address}
        # An answer that another thread has asked for may be older than a placement.
        carries_out = threading.current_thread() is self._thread or self._halted.is_set()
        reports = self._ask(lambda: self._reports(carries_out))
        with self._state:
            for name, place in known.items():
                if self._places.get(name) is place:
                    self._note(name, place, reports)
            found = {
                name: DRAINING if name in self._stopped else place.state
                for name, place in self._places.items()
            }
            occupied = {place.address for place in self._places.values()}
            free = [
                address
                for address, told in reports.items()
                if address not in occupied and self._accepts(address, told)
            ]
            if carries_out:
                self._free = free
        # Of a start that was reported to have failed.
        left = [name for one in reports.values() for name in getattr(one, "states", ())]
        return dict.fromkeys(left, DRAINING) | found

    def _note(self, name: str, place: _Place, reports: dict[str, DaskReport | Exception]) -> None:
        told = reports.get(place.address)
        if isinstance(told, Exception):
            return
        if told is not None and name in told.states:
            place.state = told.states[name]
            return
        del self._places[name]
        self._stopped.discard(name)
        ending = None if told is None else told.endings.get(name)
        text = f"ended with its Dask worker {place.address}"
        if told is not None:
            text = (
                f"is gone: Dask worker {place.address} has restarted, or was not asked for a minute"
            )
        self._endings.setdefault(name, ending or text)

    def _accepts(self, address: str, told: DaskReport | Exception) -> bool:
        """Return True if a Dask worker can have a worker now. A Dask worker that never
        can is not asked again, as each question would be an error in its log.
        """
        if isinstance(told, (OSError, asyncio.TimeoutError, KeyError)):
            return False  # It does not answer, or has left.
        if isinstance(told, Exception):
            reason = f"its error is {told}. It needs zmqdata, in the release of this program"
        elif told.python != self._remote.PYTHON:
            reason = f"it runs Python {told.python}, and this program {self._remote.PYTHON}"
        else:
            return told.is_free
        self._unfit.add(address)
        log.warning("Dask worker %s gets no worker: %s", address, reason)
        return False

    def _launch(self, name: str) -> None:
        with self._state:
            self._places[name] = _Place()

    def _turn(self) -> None:
        self._connect()
        super()._turn()
        with self._state:
            queue = [name for name, place in self._places.items() if not place.address]
        self.look_every, now = PAUSES[not queue], time.monotonic()
        self._say_needs(*self._free[: len(queue)])
        for name, address in zip(queue, self._free, strict=False):
            if self._halted.is_set():
                return
            self._place(name, address)
        if len(queue) <= len(self._free):
            self._said.pop("queue", None)
            self._placed_at = now
        can_grow = self._adaptive and self._count < self._adaptive.size()
        if now - self._placed_at > WAITS_FOR and not can_grow:
            text = (
                f"Workers wait for a Dask worker. The cluster has {self._count}, and each has a "
                "worker already, or is paused, closing or unfit. `running()` shows what waits"
            )
            self._say("queue", HostError(text))

    def _place(self, name: str, address: str) -> None:
        error: object
        try:
            answers = self._ask(
                lambda: self._client.run(
                    *(self._remote.place, self._plugin, name, self._options),
                    workers=[address],
                    on_error="return",
                )
            )
            error = answers.get(address)
        except HostError as silence:
            error = silence
        with self._state:
            self._places[name] = _Place(address, STARTING)
        self._endings.pop(name, None)
        if error is not None:
            self._endings[name] = f"could not be started on Dask worker {address}: {error}"

    def _drain(self, names: Iterable[str]) -> None:
        with self._state:
            for name in names:
                place = self._places.get(name)
                if place and place.address:
                    self._stopped.add(name)
                else:
                    self._places.pop(name, None)
        self._states()

    def _kill(self, names: Iterable[str]) -> None:
        self._ask(lambda: self._reports(True, kills=True))

    def _known(self) -> list[str]:
        with self._state:
            return [
                f"{name} (Dask worker {place.address})"
                for name, place in self._places.items()
                if place.address
            ]


def _local_cluster(distributed: Any) -> Any:
    """Return a cluster of this machine that has no Dask worker yet."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise FailedPreconditionError(
            "A Dask worker that this program has started runs the program again, since Python "
            "imports the main module in such a process. Put the code of the program below "
            '`if __name__ == "__main__":`'
        )
    return distributed.LocalCluster(
        n_workers=0,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        # Ctrl-C in a terminal is only for this program, which closes the cluster.
        preload=["import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"],
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # unless given, a fixed port
    )


def _parts(distributed: Any, given: Any) -> tuple[Any, str, Any]:
    """Return the cluster that a user has given, if it can grow, and address and
    security of its scheduler.
    """
    if isinstance(given, str):
        return None, given, distributed.Security()
    if isinstance(given, distributed.Client) and given.scheduler:
        return None, given.scheduler.address, given.security
    if isinstance(given, type) or not hasattr(given, "scheduler_address"):
        raise TypeError(
            f"`cluster` must be a cluster of Dask, an open Client or the address of a scheduler, "
            f"got {given!r}"
        )
    if given.asynchronous:
        raise FailedPreconditionError(
            "`cluster` runs in the event loop of this thread, which a host would stop while it "
            "waits. Make the cluster without `asynchronous=True`; a notebook can use it"
        )
    # A cluster of Dask Gateway has no plan.
    return given if hasattr(given, "plan") else None, given.scheduler_address, given.security
