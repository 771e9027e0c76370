"""Two machines with a slow link between them, in network namespaces: servers on the
first, clients on the second.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.processes import NotInstalledError, PeerError
from tests.netns.lan import Lan, NotPermittedError

__all__ = ["Link", "NotPermittedError"]
PORTS = {"zmqdata": "5050", "tfdata": "5060"}


class Link:
    """The network with the peers' servers, until it is closed.

    Args:
        rate: bandwidth of the servers' machine, for ``tc``.
        folder: folder for the output of programs.

    Raises:
        NotPermittedError: this process may not create network namespaces.
    """

    def __init__(self, rate: str, folder: Path) -> None:
        self._lan = Lan(["servers", "client"], folder)
        self._known: dict[str, str] = {}
        try:
            self._lan.limit("servers", rate)
        except BaseException:
            self._lan.close()
            raise
        self.within = self._lan.within("client")

    def serve(self, peer: str) -> str:
        """Return the address of a peer's servers, which the first call starts.

        Raises:
            NotInstalledError: the peer's library is not installed.
            PeerError: its servers did not start.
        """
        if peer not in self._known:
            if peer == "tfdata" and find_spec("tensorflow") is None:
                raise NotInstalledError("tensorflow is not installed")
            start = {"zmqdata": self._serve_zmqdata, "tfdata": self._serve_tfdata}[peer]
            try:
                self._known[peer] = start(PORTS[peer])
            except (pytest.fail.Exception, AssertionError, TimeoutError) as error:
                raise PeerError(f"its servers did not start: {error}") from error
        return self._known[peer]

    def _serve_zmqdata(self, port: str) -> str:
        service = self._lan.serve("servers", "dispatcher", "--port", port)
        self._lan.serve("servers", "worker", "--dispatcher", service)
        return service

    def _serve_tfdata(self, port: str) -> str:
        own = self._lan.address("servers")
        program = self._lan.start(
            "servers", "-m", "benchmarks.peers.tfdata_service", f"--host={own}", f"--port={port}"
        )
        return program.await_line("tf.data service at (.*)")[1]

    def close(self) -> None:
        """End the servers and remove the network."""
        self._lan.close()
