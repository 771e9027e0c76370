"""Servers of a cluster as threads of this process, with the same handles as processes
have. For tests and debuggers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from zmqdata.cluster.starting import NOT_HERE, START_SECONDS, ServerStartError
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.settings import check_wait
from zmqdata.config.worker import WorkerConfig
from zmqdata.dispatcher.server import DispatchServer
from zmqdata.transport.forks import check_process
from zmqdata.worker.server import WorkerServer


class _Stoppable(Protocol):
    def stop(self) -> None: ...


ServerT = TypeVar("ServerT", bound=_Stoppable)


class ServerThread(Generic[ServerT]):
    """A server of this process that can be started again.

    Args:
        make: makes and starts the server, given the address of its last life, ``""`` at
            first.
        address_of: where a started one listens.
        ready: waits up to so many seconds until a started one is ready; False when it
            is not.
    """

    def __init__(
        self,
        make: Callable[[str], ServerT],
        address_of: Callable[[ServerT], str],
        ready: Callable[[ServerT, float], bool],
    ) -> None:
        self._make = make
        self._address_of = address_of
        self._ready = ready
        self._owner = os.getpid()
        self.server: ServerT | None = None
        self.address = ""
        self.log = ""

    @property
    def addresses(self) -> list[str]:
        """Its address in a list, as a server of several processes has several."""
        return [self.address] if self.address else []

    @property
    def alive(self) -> bool:
        """Whether it is started and not stopped."""
        self._check_process()
        return self.server is not None

    def launch(self) -> None:
        """Starts it and returns at once."""
        self._check_process()
        if self.server is None:
            self.server = self._make(self.address)
            self.address = self._address_of(self.server)

    def await_ready(self, deadline: float) -> None:
        """Waits until it is ready, ``deadline`` seconds at most.

        Raises:
            ServerStartError: it is not ready in time.
        """
        self._check_process()
        check_wait("deadline", deadline, forever=False)
        if self.server is None or not self._ready(self.server, deadline):
            raise ServerStartError(
                f"the server at {self.address or '(not started)'} is not ready after {deadline:g} s"
            )

    def ask_to_stop(self) -> None:
        """Stops it; a thread has nobody else to do so later."""
        self.stop()

    def stop(self) -> None:
        """Stops it.

        Raises:
            RuntimeError: this process was forked from the one that made the server, and
                owns nothing of it.
        """
        self._check_process()
        server, self.server = self.server, None
        if server is not None:
            server.stop()

    def kill(self) -> None:
        """Stops it: a thread cannot be killed. Use processes to see what a crash
        does.
        """
        self.stop()

    def restart(self, deadline: float = START_SECONDS) -> None:
        """Starts it again, after stopping it if it runs, and waits until it is
        ready.
        """
        check_wait("deadline", deadline, forever=False)
        self.stop()
        self.launch()
        self.await_ready(deadline)

    def close(self) -> None:
        """Stops it; in a forked child nothing happens."""
        if self._owner == os.getpid():
            self.stop()

    def _check_process(self) -> None:
        check_process(self._owner, "server of a LocalCluster", NOT_HERE)


def dispatcher_thread(config: DispatcherConfig) -> ServerThread[DispatchServer]:
    """A dispatcher that is ready as soon as it is made, and keeps its port when it is
    started again.
    """

    def make(last: str) -> DispatchServer:
        return DispatchServer(
            replace(config, port=int(last.rpartition(":")[2])) if last else config
        )

    return ServerThread(make, lambda server: server.target, lambda server, deadline: True)


def worker_thread(config: WorkerConfig) -> ServerThread[WorkerServer]:
    """A worker that is ready once it is registered."""
    return ServerThread(
        lambda last: WorkerServer(config),
        lambda server: server.address,
        lambda server, deadline: server.wait_registered(deadline),
    )
