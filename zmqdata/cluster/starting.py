"""The handle of a server, and time limit and error for its start, shared by both ways
to run servers.
"""

from __future__ import annotations

from typing import Protocol

from zmqdata.errors import UnavailableError

START_SECONDS = 60.0
"""Enough for a cold machine that compiles every import; a healthy start takes less than
a second.
"""

NOT_HERE = "Leave it to its process, or make a new LocalCluster here."
"""Advice to a forked child that uses its parent's cluster or server."""


class ServerStartError(UnavailableError):
    """Raised if a server ended, or sent nothing, before it was ready. The text has the
    end of its log.
    """


class ServerHandle(Protocol):
    """Handle on a dispatcher or a worker on this machine."""

    @property
    def address(self) -> str: ...
    @property
    def addresses(self) -> list[str]: ...
    @property
    def alive(self) -> bool: ...
    @property
    def ending(self) -> str: ...
    @property
    def log(self) -> str: ...

    def launch(self) -> None: ...
    def await_ready(self, deadline: float) -> None: ...
    def ask_to_stop(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def restart(self, deadline: float = START_SECONDS) -> None: ...
    def close(self, patience: float | None = None) -> None: ...
