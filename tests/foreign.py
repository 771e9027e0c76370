"""Peers that are independent of the package: a dispatcher of another protocol version,
and a context for their sockets.
"""

from __future__ import annotations

import threading
from typing import Any

import zmq

FIRST_FRAME = b"ZD8"


class ForeignContext(zmq.Context[zmq.Socket[bytes]]):
    """A context that keeps its sockets until it is destroyed, so that a test leaves
    none to the garbage collector.
    """

    kept: tuple[zmq.Socket[bytes], ...] = ()

    def socket(self, *options: Any, **more: Any) -> Any:
        """Make a socket."""
        made = super().socket(*options, **more)
        self.kept += (made,)
        return made


class ForeignDispatcher:
    """A dispatcher without a key that answers every message in its own version.

    Only that version knows the form of its answers.

    Args:
        address: where to listen, ``"tcp://host:port"``; by default on any free port.

    Attributes:
        target: where it listens.
        heard: how many messages it has received.
    """

    def __init__(self, address: str = "tcp://127.0.0.1:*") -> None:
        self._context = zmq.Context()
        self._context.linger = 0
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(address)
        self.target = self._router.get_string(zmq.LAST_ENDPOINT)
        self.heard = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._answer_all, daemon=True)
        self._thread.start()

    def _answer_all(self) -> None:
        while not self._ending.is_set():
            if self._router.poll(20):
                peer, *_ = self._router.recv_multipart()
                self.heard += 1
                self._router.send_multipart([peer, FIRST_FRAME, b"\xc1", b"and a frame more"])

    def __enter__(self) -> ForeignDispatcher:
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        self._thread.join()
        self._context.destroy(linger=0)
