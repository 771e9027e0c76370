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
        title: what the host is called in texts.
    """

    def __init__(
        self,
        service: Service,
        kind: str,
        processes: int,
        patience: float,
        make: Callable[[str], ServerHandle],
        listed: Callable[[ServerHandle, bool], None],
        title: str | None = None,
    ) -> None:
        super().__init__(service, kind, processes, patience, title)
        self._make, self._listed, self._count = make, listed, processes
        self._servers: dict[str, ServerHandle] = {}
        self._stopping: set[str] = set()

    def adopt(self, servers: Iterable[ServerHandle]) -> None:
        """Wish for workers that run already, and own them from now on."""
        with self._changing():
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
            return {name: self._state_of(name, one) for name, one in self._servers.items()}

    def _state_of(self, name: str, server: ServerHandle) -> str:
        if name in self._stopping:
            return DRAINING
        return RUNNING if len(server.addresses) >= self._count else STARTING

    def _launch(self, name: str) -> None:
        try:
            server = self._make(name)
            try:
                server.launch()
            except BaseException:
                server.close()
                raise
        except (OSError, DataServiceError) as error:
            raise HostError(str(error)) from None
        with self._state:  # before its launch it would count as ended
            self._listed(server, True)
            self._servers[name] = server

    def _drain(self, names: Iterable[str]) -> None:
        for name in names:
            with self._state:
                if name in self._stopping or name not in self._servers:
                    continue
                self._stopping.add(name)
            try:
                threading.Thread(
                    target=self._stop_server, args=(name,), name="zmqdata-drain", daemon=True
                ).start()
            except RuntimeError as error:  # no thread is left
                self._stopping.discard(name)
                raise HostError(str(error)) from None

    def _stop_server(self, name: str) -> None:
        try:
            self._servers[name].stop()
        finally:
            with self._state:
                self._stopping.discard(name)

    def _kill(self, names: Iterable[str]) -> None:
        for name in names:
            server = self._servers.get(name)
            if server is not None:
                server.kill()

    def _known(self) -> list[str]:
        return list(self._servers)
