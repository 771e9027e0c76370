"""Servers of a cluster as threads of this process, with the same handles as processes.
For tests and debuggers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from zmqdata.cluster.starting import NOT_HERE, START_SECONDS, ServerStartError
from zmqdata.config.checks import check_wait
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.worker import WorkerConfig
from zmqdata.dispatcher.server import DispatchServer, OwnedDispatcher
from zmqdata.transport.forks import check_process
from zmqdata.worker.server import WorkerServer


class _Stoppable(Protocol):
    def stop(self) -> None: ...


ServerT = TypeVar("ServerT", bound=_Stoppable)


class ServerThread(Generic[ServerT]):
    """A restartable server in a thread of this process.

    Args:
        make: creates and starts the server, given the address of its last life (``""``
            at first).
        address_of: returns the address of a started server.
        ready: waits up to the given seconds until a started server is ready; returns
            False if it is not.
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
        """Its address in a list, for the interface of servers with several
        processes.
        """
        return [self.address] if self.address else []

    @property
    def alive(self) -> bool:
        """True if the server is started and not stopped."""
        self._check_process()
        return self.server is not None

    @property
    def ending(self) -> str:
        """Description of its end."""
        return "was stopped"

    def launch(self) -> None:
        """Start the server and return at once."""
        self._check_process()
        if self.server is None:
            self.server = self._make(self.address)
            self.address = self._address_of(self.server)

    def await_ready(self, deadline: float) -> None:
        """Wait until the server is ready, ``deadline`` seconds at most.

        Raises:
            ServerStartError: the server is not ready in time.
        """
        self._check_process()
        check_wait("deadline", deadline, forever=False)
        if self.server is None or not self._ready(self.server, deadline):
            raise ServerStartError(
                f"the server at {self.address or '(not started)'} is not ready after {deadline:g} s"
            )

    def ask_to_stop(self) -> None:
        """Stop the server at once, since no signal can be sent to a thread."""
        self.stop()

    def stop(self) -> None:
        """Stop the server.

        Raises:
            RuntimeError: this process was forked from the process that owns the server.
        """
        self._check_process()
        server, self.server = self.server, None
        if server is not None:
            server.stop()

    def kill(self) -> None:
        """Stop the server: a thread cannot be killed. Use processes to test crashes."""
        self.stop()

    def restart(self, deadline: float = START_SECONDS) -> None:
        """Start the server again, after stopping it if it runs, and wait until it is
        ready.
        """
        check_wait("deadline", deadline, forever=False)
        self.stop()
        self.launch()
        self.await_ready(deadline)

    def close(self, patience: float | None = None) -> None:
        """Stop the server, however long that takes; in a forked child do nothing."""
        if self._owner == os.getpid():
            self.stop()

    def _check_process(self) -> None:
        check_process(self._owner, "server of a LocalCluster", NOT_HERE)


def dispatcher_thread(
    config: DispatcherConfig, is_temporary: bool = False
) -> ServerThread[DispatchServer]:
    """Return a dispatcher that is ready as soon as it is made, and keeps its port after
    a restart.

    Args:
        config: its configuration.
        is_temporary: True if its work folder is deleted with its cluster.
    """

    def make(last: str) -> DispatchServer:
        here = replace(config, port=int(last.rpartition(":")[2])) if last else config
        return OwnedDispatcher(here, synced=not is_temporary)

    return ServerThread(make, lambda server: server.target, lambda server, deadline: True)


def worker_thread(config: WorkerConfig) -> ServerThread[WorkerServer]:
    """Return a worker that is ready once it is registered."""
    return ServerThread(
        lambda last: WorkerServer(config),
        lambda server: server.address,
        lambda server, deadline: server.wait_registered(deadline),
    )
