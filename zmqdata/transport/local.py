"""Links within a process: a registry of its workers, and handovers that pass blocks
to a client without a copy.

A handover replaces both ends of a data connection. The receiver owns what is put into
it.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from typing import Any

SCHEME = "local://"
_process = secrets.token_hex(16)
_workers: set[str] = set()
_handovers: dict[str, Handover] = {}
_lock = threading.Lock()


def token_of_process() -> str:
    """Return a secret that only this process knows. A client that presents it can
    receive objects directly.
    """
    return _process


def announce_worker(address: str) -> None:
    """Register the address of a worker in this process."""
    with _lock:
        _workers.add(address)


def withdraw_worker(address: str) -> None:
    """Remove the address of a worker that has ended."""
    with _lock:
        _workers.discard(address)


def local_workers() -> tuple[str, ...]:
    """Return the addresses of the workers in this process."""
    with _lock:
        return tuple(sorted(_workers))


class Handover:
    """The data connection of a link within a process. The worker creates it.

    Messages that are put in before a receiver is attached wait for it. Both sides may
    close it, from any thread.
    """

    def __init__(self) -> None:
        self.address = f"{SCHEME}{secrets.token_hex(8)}"
        self._waiting: list[Any] = []
        self._receive: Callable[[Any], None] | None = None
        self._broken: Callable[[], None] | None = None
        self._open = True
        self._lock = threading.Lock()
        with _lock:
            _handovers[self.address] = self

    def put(self, message: Any) -> None:
        """Hand a message to the receiver; after the end it is dropped."""
        with self._lock:
            if self._receive is None:
                self._waiting.append(message)
            elif self._open:
                self._receive(message)

    def attach(self, receive: Callable[[Any], None], broken: Callable[[], None]) -> None:
        """Attach the receiver: ``receive`` gets every message, ``broken`` is called
        when the worker closes the handover.
        """
        with self._lock:
            self._receive, self._broken = receive, broken
            for message in self._waiting:
                receive(message)
            self._waiting.clear()
            if not self._open:
                broken()

    def detach(self) -> None:
        """Detach the receiver; later messages are dropped."""
        with self._lock:
            self._open, self._broken = False, None

    def close(self) -> None:
        """Close the worker's end, and tell the receiver."""
        with _lock:
            _handovers.pop(self.address, None)
        with self._lock:
            if self._open and self._broken is not None:
                self._broken()
            self._open = False


def find_handover(address: str) -> Handover | None:
    """Return the open handover with this address; None if none is open."""
    with _lock:
        return _handovers.get(address)


def _forget_all() -> None:
    """Clear the registry in a forked child, which has none of its parent's threads and
    must not pass for it.
    """
    global _process, _lock
    _process, _lock = secrets.token_hex(16), threading.Lock()
    _workers.clear()
    _handovers.clear()


os.register_at_fork(after_in_child=_forget_all)
