"""``Ray``: workers in actors of a Ray cluster, as many as are wanted.

Ray starts an actor again after its node has died. Nothing runs in the new process until
the host asks for its state, so that a worker that was to end does not come back.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from zmqdata.client import lifetime
from zmqdata.cluster.fleet import QUEUED
from zmqdata.cluster.host import Host, HostError
from zmqdata.cluster.processes import stop_seconds
from zmqdata.config.endpoints import Service
from zmqdata.errors import FailedPreconditionError
from zmqdata.hosts.workers import (
    ENDED,
    PlacedWorker,
    WorkerOptions,
    engine_package,
    warn_of_loopback,
    worker_interface,
)

T = TypeVar("T")

DEADLINE = 20.0
"""Seconds within which Ray has answered."""
ANSWERS_WITHIN = 0.5
"""Seconds for which a host waits for the actors that have answered before."""
LOST_AFTER = 3.0
"""Seconds without an answer after which an actor counts as waiting for a node."""
STARTS_WITHIN = 10.0
"""Seconds within which an actor with enough CPUs has started."""
COMPLETES_WITHIN = 10.0
"""Seconds for which the last answers of actors may take."""
VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
"""Versions in Ray's error: those of the cluster, then those of this process."""

_users: weakref.WeakSet[Ray] = weakref.WeakSet()
"""Hosts of runtimes that a host has started. The last one of each shuts it down."""


class RayWorker:
    """The actor of a worker.

    Args:
        name: name of the worker.
        options: its options.
    """

    def __init__(self, name: str, options: WorkerOptions) -> None:
        self._name, self._options = name, options
        self._worker: PlacedWorker | None = None

    def __repr__(self) -> str:
        """Return the name of the worker, which Ray writes before each line of its
        log.
        """
        return self._name

    def look(self, is_wanted: bool) -> tuple[str, str]:
        """Return the state of the worker, and how it has ended.

        Args:
            is_wanted: True to start the worker unless it was started, False to drain
                it.
        """
        if self._worker is None:
            if not is_wanted:
                return ENDED, "was stopped before it started"
            self._worker = PlacedWorker(self._name, self._options)
        if not is_wanted:
            self._worker.drain()
        state = self._worker.state()
        return state, self._worker.ending() if state == ENDED else ""


@dataclass
class _PlacedActor:
    """An actor, as its host knows it."""

    actor: Any
    """Handle of the actor."""
    state: str = QUEUED
    """State of its worker, by the last answer."""
    answer: Any = None
    """Reference to the next answer; None if the host has not asked."""
    heard_at: float = field(default_factory=time.monotonic)
    """Time of the last answer, or of the start."""
    had_room: bool = False
    """True if enough CPUs were free at the start: it has them while it starts."""
    is_stopping: bool = False
    """True if its worker is to drain and end."""


class Ray(Host):
    """Keeps workers of a dispatcher running as actors of a Ray cluster.

    Each worker is a process of an actor, and ends with it. Ray places actors, and
    places them again after the death of a node: the worker is the same one. A worker
    that Ray cannot place is ``queued``, and the log says what it lacks.

    The host uses the Ray runtime of this process. If there is none, it calls
    ``ray.init()``, and the last host that uses that runtime shuts it down in ``close``.

    Args:
        service: address of the dispatcher, as for ``distribute``.
        num_cpus: number of CPUs that Ray reserves for each worker; 0 reserves none.
        worker_options: as for ``Local``. ``host`` is ``"127.0.0.1"`` unless given if
            the dispatcher is reached from its own machine alone, else ``"0.0.0.0"``.
            No key travels: ``key_file`` is a path on the machines of the workers.

    Raises:
        ImportError: Ray is not installed.
        TypeError: an option does not exist, or has the wrong type.
        ValueError: an option is out of its range, or contradicts another.
        FailedPreconditionError: the Ray cluster runs another version of Python or Ray.
            The text names both.
        HostError: the Ray cluster cannot be reached.

    Example: ::

        with hosts.Ray("tcp://head:5050", num_cpus=2) as host:
            host.adapt(0, 16)
            train()

    Ours. The actor pools of Ray Data resemble it.
    """

    def __init__(self, service: Service, num_cpus: float = 1, **worker_options: Any) -> None:
        worker_options = {"host": worker_interface(service)} | worker_options
        options = WorkerOptions("Ray", service, worker_options, shows_key=True)
        self._num_cpus, self._options = _checked_cpus(num_cpus), options
        self._placed: dict[str, _PlacedActor] = {}
        self._late = threading.Thread()  # of the last call that Ray did not answer in time
        self._cpus: list[float] = []  # of each node in this turn; empty if not yet counted
        self._free = self._room = 0.0
        patience = stop_seconds(options.config) + COMPLETES_WITHIN
        super().__init__(service, "ray", options.count, patience)
        self._ray = engine_package("ray", "Ray")
        self._actor_class = self._ray.remote(num_cpus=self._num_cpus, max_restarts=-1)(RayWorker)
        is_first = not self._ray.is_initialized()
        if is_first:
            _connect(self._ray)
        lifetime.end_before_others()  # Ray's own handler ends actors without a drain
        self._runtime = _runtime(self._ray)
        if is_first or self._runtime in {one._runtime for one in _users}:
            _users.add(self)
        if len(self._counted()) > 1:
            warn_of_loopback(service)

    def close(self) -> None:
        super().close()
        # In a forked child, Ray's `shutdown` would wait for ever.
        if self in _users and self._owner == os.getpid():
            _users.discard(self)
            is_last = self._runtime not in {one._runtime for one in _users}
            if is_last and _runtime(self._ray) == self._runtime:
                self._ray.shutdown()

    close.__doc__ = Host.close.__doc__

    def _states(self) -> dict[str, str]:
        if _runtime(self._ray) != self._runtime and self._halted.is_set():
            self._placed.clear()  # Ray ends actors with the runtime of their owner
        with self._state:
            placed = dict(self._placed)
        if not placed:
            return {}
        answers = self._call(lambda: self._ask(placed))
        for name, one in placed.items():
            ending = self._hear(one, answers[name])
            if one.state == QUEUED and one.is_stopping:
                # Ray may place it at any moment.
                one.state, ending = ENDED, "was stopped"
            if one.state == ENDED:
                self._forget(name, one, ending)
        with self._state:
            return {name: one.state for name, one in self._placed.items()}

    def _ask(self, placed: Mapping[str, _PlacedActor]) -> dict[str, Any]:
        """Ask actors for the states of their workers, wait for a moment, and return the
        references to their answers.
        """
        answers = {}
        for name, one in placed.items():
            # Another thread may ask, too.
            answers[name] = one.answer or one.actor.look.remote(not one.is_stopping)
            one.answer = answers[name]
        present = [answers[name] for name, one in placed.items() if one.state != QUEUED]
        if present:
            self._ray.wait(present, num_returns=len(present), timeout=ANSWERS_WITHIN)
        return answers

    def _hear(self, one: _PlacedActor, answer: Any) -> str:
        """Take the state of a worker from an answer, and return how it has ended."""
        from ray.exceptions import ActorUnavailableError, RayError

        now = time.monotonic()
        if not self._ray.wait([answer], timeout=0)[0]:
            if now - one.heard_at >= LOST_AFTER:
                one.state = QUEUED
            return ""
        with self._state:
            if one.answer is not answer:
                return ""  # Another thread has taken it, or a newer one is awaited.
            one.answer = None
        try:
            one.state, ending = self._ray.get(answer, timeout=DEADLINE)
            one.heard_at = now
        except ActorUnavailableError:  # Ray places it again
            one.state, ending = QUEUED, ""
        except RayError as error:
            one.state, ending = ENDED, f"was ended by Ray: {' '.join(str(error).split())}"
        return str(ending)

    def _forget(self, name: str, one: _PlacedActor, ending: str) -> None:
        self._call(lambda: self._ray.kill(one.actor, no_restart=True))
        with self._state:
            if self._placed.get(name) is one:
                del self._placed[name]
                if not one.is_stopping:
                    self._endings[name] = ending

    def _launch(self, name: str) -> None:
        self._counted()
        actor = self._call(lambda: self._actor_class.remote(name, self._options))
        with self._state:
            self._placed[name] = _PlacedActor(actor, had_room=self._room >= self._num_cpus)
        self._room -= self._num_cpus

    def _drain(self, names: Iterable[str]) -> None:
        with self._state:
            placed = {name: self._placed[name] for name in names if name in self._placed}
        for name, one in placed.items():
            one.is_stopping = True
            if one.state == QUEUED:
                self._forget(name, one, "was stopped")
            else:
                one.answer = self._call(partial(one.actor.look.remote, False))

    def _kill(self, names: Iterable[str]) -> None:
        for name in names:
            if one := self._placed.get(name):
                self._forget(name, one, "was killed")

    def _known(self) -> list[str]:
        with self._state:
            return list(self._placed)

    def _turn(self) -> None:
        self._cpus = []
        super()._turn()
        now = time.monotonic()
        with self._state:
            waits = [
                (not one.had_room, now - one.heard_at)
                for one in self._placed.values()
                if one.state == QUEUED and now - one.heard_at > LOST_AFTER
            ]
        if waits and (cause := self._shortage(*max(waits))):
            needs = f"Workers wait: each needs num_cpus={self._num_cpus:g}, and {cause}"
            self._say("queue", HostError(needs))
        else:
            self._said.pop("queue", None)

    def _shortage(self, lacks_room: bool, waited: float) -> str:
        """Return what a worker lacks that has waited for some seconds; ``""`` if that
        is nothing.
        """
        nodes = self._counted()
        largest = max(nodes, default=0.0)
        if largest < self._num_cpus or not nodes:
            return (
                f"no node of the Ray cluster has more than {largest:g}. They start once there is "
                "such a node. Add one, or make the host with a lower `num_cpus`."
            )
        if lacks_room and self._free < self._num_cpus:
            return (
                f"fewer of the {sum(nodes):g} CPUs of the Ray cluster are free. They start once "
                "enough are."
            )
        if (not lacks_room or self._room >= self._num_cpus) and waited < STARTS_WITHIN:
            return ""
        return (
            "their actors have not started. Perhaps no single node has enough free CPUs. Or the "
            "actors start slowly, or cannot: each node needs zmqdata. The output of Ray says why."
        )

    def _counted(self) -> list[float]:
        """Return the number of CPUs of each node, counted once in each turn."""
        if not self._cpus:
            nodes = self._call(self._ray.nodes)
            self._free = self._call(self._ray.available_resources).get("CPU", 0.0)
            self._cpus = [node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]]
            # However they are spread, some node has enough if these are enough.
            self._room = self._free - (len(self._cpus) - 1) * max(0.0, self._num_cpus - 1)
        return self._cpus

    def _call(self, call: Callable[[], T]) -> T:
        """Return what a call of Ray returns.

        Raises:
            HostError: Ray has failed, or has not answered in time. The runtime of the
                host may have been shut down.
        """
        # Without a runtime, Ray's calls would start another one.
        if _runtime(self._ray) != self._runtime:
            raise HostError(
                "The Ray runtime in which this host has placed its workers was shut down, and "
                "they end with it. Make a new `Ray`."
            )
        done: futures.Future[T] = futures.Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

        # Some calls wait for the head node, and have no deadline of their own. While it
        # does not answer, others would wait, too.
        thread = threading.Thread(target=run, name="zmqdata-ray", daemon=True)
        if self._late.is_alive():
            self._late.join(DEADLINE)
        if not self._late.is_alive():
            thread.start()
            thread.join(DEADLINE)
            if thread.is_alive():
                self._late = thread
        if not done.done():
            raise HostError(
                f"Ray has not answered within {DEADLINE:g} s. Its head node may be down or busy: "
                "ask it with `ray status`."
            )
        try:
            return done.result()
        except Exception as error:
            raise HostError(f"Ray has failed: {' '.join(str(error).split())}") from error


def _checked_cpus(number: object) -> float:
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        raise TypeError(f"`num_cpus` must be a number, got {number!r}")
    if not 0 <= number < 1e6 or (number > 1 and number != int(number)):
        raise ValueError(
            f"`num_cpus` must be a whole number or between 0 and 1, as for Ray, got {number!r}"
        )
    return float(number)


def _runtime(ray: Any) -> tuple[str, str]:
    """Return what identifies the runtime of this process; empty if there is none."""
    if not ray.is_initialized():
        return "", ""
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


def _connect(ray: Any) -> None:
    """Connect to the Ray cluster that is found, or start a runtime on this machine."""
    address = os.environ.get("RAY_ADDRESS", "")
    with contextlib.suppress(OSError):  # `ray start` notes the address there
        folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
        address = address or Path(folder, "ray", "ray_current_cluster").read_text().strip()
    host, _, port = address.rpartition("//")[2].rpartition(":")
    try:
        if port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), DEADLINE).close()
        ray.init()
    except Exception as error:
        with contextlib.suppress(Exception):
            ray.shutdown()  # it may be half connected
        found = VERSIONS.findall(str(error))
        if len(found) != 2:
            raise HostError(
                f"The Ray cluster {address or 'of this machine'} cannot be reached: "
                f"{' '.join(str(error).split())}. It may have died. RAY_ADDRESS must be the "
                "address of a cluster that runs, as HOST:6379, or `local` to start another one."
            ) from error
        (cluster_ray, cluster_python), (own_ray, own_python) = found
        raise FailedPreconditionError(
            f"The Ray cluster runs Python {cluster_python} with Ray {cluster_ray}, and this "
            f"program runs Python {own_python} with Ray {own_ray}. Ray needs the same versions "
            f"everywhere. Start this program with Python {cluster_python} and `pip install "
            f"ray=={cluster_ray}`, or start the cluster from the environment of this program."
        ) from None
