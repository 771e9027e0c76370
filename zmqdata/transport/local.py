"""Workers and clients of one process: who is here, and how a worker hands blocks to a
client as they are.

A handover stands in for the two ends of a data connection. What is put into it belongs
to the receiver.
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
    """A secret that only this process knows: who brings it can be handed objects."""
    return _process


def announce_worker(address: str) -> None:
    """Says that the worker at this address is in this process."""
    with _lock:
        _workers.add(address)


def withdraw_worker(address: str) -> None:
    """Says that it is gone."""
    with _lock:
        _workers.discard(address)


def local_workers() -> tuple[str, ...]:
    """The addresses of the workers in this process."""
    with _lock:
        return tuple(sorted(_workers))


class Handover:
    """The data connection of a link within one process; made by the worker, which is
    called ``sender`` here.

    What is put in before the receiver comes waits for it. Both sides may close it, from
    any thread.
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
        """Hands a message over; after the end it is dropped."""
        with self._lock:
            if self._receive is None:
                self._waiting.append(message)
            elif self._open:
                self._receive(message)

    def attach(self, receive: Callable[[Any], None], broken: Callable[[], None]) -> None:
        """Begins to receive: ``receive`` gets every message, ``broken`` is called when
        the sender closes.
        """
        with self._lock:
            self._receive, self._broken = receive, broken
            for message in self._waiting:
                receive(message)
            self._waiting.clear()
            if not self._open:
                broken()

    def detach(self) -> None:
        """Receives no more."""
        with self._lock:
            self._open, self._broken = False, None

    def close(self) -> None:
        """Ends it for the sender."""
        with _lock:
            _handovers.pop(self.address, None)
        with self._lock:
            if self._open and self._broken is not None:
                self._broken()
            self._open = False


def find_handover(address: str) -> Handover | None:
    """The handover with this address, if it is open."""
    with _lock:
        return _handovers.get(address)


def _forget_all() -> None:
    """A forked child has none of its parent's threads, and must not be taken for it."""
    global _process, _lock
    _process, _lock = secrets.token_hex(16), threading.Lock()
    _workers.clear()
    _handovers.clear()


os.register_at_fork(after_in_child=_forget_all)
