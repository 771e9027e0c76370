"""A host whose workers are processes, or threads, of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from zmqdata.cluster.fleet import DRAINING, RUNNING, STARTING
from zmqdata.cluster.host import Host, HostError
from zmqdata.cluster.starting import ServerHandle
from zmqdata.config.endpoints import Service
from zmqdata.errors import DataServiceError


class LocalHost(Host):
    """A host on this machine, for any way to make a worker.

    Args:
        service: address of the dispatcher.
        kind: beginning of the names of its workers.
        processes: number of processes of each worker.
        patience: seconds that a worker may take to drain and end.
        make: returns the handle of a new worker, given its name.
        listed: called with each worker and True once it is started, and with False once
            it has ended.
    """

    def __init__(
        self,
        service: Service,
        kind: str,
        processes: int | None,
        patience: float,
        make: Callable[[str], ServerHandle],
        listed: Callable[[ServerHandle, bool], None],
    ) -> None:
        super().__init__(service, kind, processes, patience)
        self._make, self._listed = make, listed
        self._servers: dict[str, ServerHandle] = {}
        self._stopping: dict[str, threading.Thread] = {}
        self._endings: dict[str, str] = {}

    def adopt(self, servers: Iterable[ServerHandle]) -> None:
        """Wish for workers that run already, and own them from now on."""
        for server in servers:
            [name] = self._fleet.grow(1)
            self._fleet.accepted(name)
            self._servers[name] = server

    def _states(self) -> dict[str, str]:
        with self._state:
            for name, server in list(self._servers.items()):
                if not server.alive and name not in self._stopping:
                    del self._servers[name]
                    self._endings[name] = server.ending
                    self._listed(server, False)
            return {
                name: DRAINING
                if name in self._stopping
                else (RUNNING if server.address else STARTING)
                for name, server in self._servers.items()
            }

    def _launch(self, name: str) -> None:
        server = self._make(name)
        try:
            server.launch()
        except (OSError, DataServiceError) as error:
            server.close()
            raise HostError(str(error)) from None
        with self._state:
            self._listed(server, True)
            self._servers[name] = server

    def _drain(self, names: Iterable[str]) -> None:
        for name in names:
            with self._state:
                if name in self._stopping or name not in self._servers:
                    continue
                thread = threading.Thread(
                    target=self._stop_server, args=(name,), name="zmqdata-drain", daemon=True
                )
                self._stopping[name] = thread
            thread.start()

    def _stop_server(self, name: str) -> None:
        try:
            self._servers[name].stop()
        finally:
            with self._state:
                del self._stopping[name]

    def _kill(self, names: Iterable[str]) -> None:
        for name in names:
            server = self._servers.get(name)
            if server is not None:
                server.kill()

    def _known(self) -> list[str]:
        return list(self._servers)

    def _last_words(self, name: str) -> str:
        return self._endings.pop(name, "has ended")
