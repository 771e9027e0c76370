"""A TCP proxy between clients and a worker on another loopback address. Tests can sever
its connections.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading


class SeveringProxy:
    """Forwards ``127.0.0.2:port`` to ``127.0.0.1:port`` until its connections are
    severed.

    Args:
        ports: the ports to forward.
    """

    def __init__(self, ports: list[int]) -> None:
        self.carried = 0
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        for port in ports:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.2", port))
            listener.listen()
            self._selector.register(listener, selectors.EVENT_READ, port)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="cutting-proxy", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(0.05):
                with self._lock:
                    self._serve(key)

    def _serve(self, key: selectors.SelectorKey) -> None:
        sock = key.fileobj
        assert isinstance(sock, socket.socket)
        if key.data is not None:
            self._accept(sock, key.data)
            return
        other = self._pairs.get(sock)
        if other is None:
            return
        try:
            received = sock.recv(1 << 16)
        except OSError:
            received = b""
        if not received:
            self._drop(sock, other)
            return
        self.carried += len(received)
        with contextlib.suppress(OSError):
            other.sendall(received)

    def _accept(self, listener: socket.socket, port: int) -> None:
        near, _ = listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", port), timeout=1)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _drop(self, *sockets: socket.socket) -> None:
        for sock in sockets:
            if self._pairs.pop(sock, None) is not None:
                self._selector.unregister(sock)
                sock.close()

    def sever(self) -> None:
        """Break every open connection. The content of its buffers is lost."""
        with self._lock:
            self._drop(*list(self._pairs))

    def close(self) -> None:
        """End the proxy."""
        self._stopping = True
        self._thread.join(5)
        self.sever()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


def free_ports(count: int) -> list[int]:
    """Return consecutive ports that are free now. The system assigns only higher ports
    to sockets that ask for any port.
    """
    draw = random.SystemRandom()
    while True:
        first = draw.randrange(20_000, 32_000)
        ports = list(range(first, first + count))
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in ports:
                for host in ("127.0.0.1", "127.0.0.2"):
                    stack.enter_context(contextlib.closing(socket.socket())).bind((host, port))
            return ports
