"""The HTTP server of the metrics and of the page: a bounded number of visitors, each of
which has to complete its request in a bounded time, before anything else is judged.
"""

from __future__ import annotations

import ipaddress
import logging
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, BinaryIO, Generic, TypeVar, cast

from zmqdata.machine.descriptors import is_shortage, left

log = logging.getLogger(__name__)
V = TypeVar("V")

REQUEST_SECONDS = 10.0
"""Seconds within which a request has to be complete. An answer that the visitor does
not take for as long is given up.
"""
MOST_HEAD_BYTES = (64 << 10) + 2
"""Maximum length of a request's line and headers: just more than a line, so that
``http.server`` answers a line that is too long.
"""
POLL = 0.1
"""Seconds between two looks at the requests that are not complete."""
RESERVED = 32
"""File descriptors that visitors leave to the rest of the process."""
LEAST = 4
"""Number of places if descriptors are scarce."""
LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})


class Places(Generic[V]):
    """Decides which visitors stay. A visitor whose request is not complete makes room
    for others, the one that began first before all others.

    Args:
        most: maximum number of visitors.

    Example:
        >>> places = Places(2)
        >>> places.enter("slow", now=0.0), places.enter("quick", now=1.0)
        (None, None)
        >>> places.complete("quick")
        >>> places.enter("third", now=2.0)
        'slow'
        >>> places.complete("third")
        >>> places.enter("fourth", now=3.0)
        'fourth'
        >>> places.enter("fifth", now=4.0), places.overdue(now=99.0)
        ('fifth', [])
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._served: set[V] = set()
        self._incomplete: dict[V, float] = {}  # in the order in which they came

    def enter(self, visitor: V, now: float) -> V | None:
        """Add a visitor, and return the one that has to leave for it: itself, if all
        others have asked.
        """
        leaving = None
        if len(self._served) + len(self._incomplete) >= self._most:
            leaving = next(iter(self._incomplete), visitor)
            self._incomplete.pop(leaving, None)
        if leaving is not visitor:
            self._incomplete[visitor] = now
        return leaving

    def complete(self, visitor: V) -> None:
        """Record that the request of a visitor is complete."""
        if self._incomplete.pop(visitor, None) is not None:
            self._served.add(visitor)

    def leave(self, visitor: V) -> None:
        """Forget a visitor."""
        self._served.discard(visitor)
        self._incomplete.pop(visitor, None)

    def overdue(self, now: float) -> list[V]:
        """Return the visitors whose requests take too long."""
        return [one for one, since in self._incomplete.items() if now - since >= REQUEST_SECONDS]


class HostNames:
    """The names under which a server is visited.

    A foreign page could have its own name resolved to this server's address, and read
    what the server shows. Addresses cannot be resolved to another, so they always pass.

    Args:
        names: names that pass, in addition to those of this machine.

    Example:
        >>> names = HostNames(["Proxy.example"])
        >>> [names.has(host) for host in ("[::1]:80", "proxy.example:80", "evil")]
        [True, True, False]
    """

    def __init__(self, names: Iterable[str]) -> None:
        own = platform.node()
        self._names = {one.lower() for one in (*names, own, own.partition(".")[0])}
        self._names = (self._names | LOOPBACK_NAMES) - {""}

    def has(self, host: str) -> bool:
        """Return True if a Host header has an address or a known name."""
        name = _without_port(host).lower()
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names or (bool(name) and name == _full_name())
        return True


@lru_cache(maxsize=1)
def _full_name() -> str:
    """Return the full name of this machine. It may ask the name server, which takes
    time.
    """
    return socket.getfqdn().lower()


def _without_port(host: str) -> str:
    """Return the name or address in a Host header.

    Example:
        >>> [_without_port(host) for host in ("a:80", "[::1]:80", "[::1]", "[::1", "a")]
        ['a', '::1', '::1', '[::1', 'a']
    """
    if host.startswith("["):
        name, closed, _ = host[1:].partition("]")
        return name if closed else host
    return host.rpartition(":")[0] if ":" in host else host


class VisitorServer(ThreadingHTTPServer):
    """Serves visitors on a socket that listens, from ``start`` to ``stop``.

    Args:
        listening: the socket, which is closed by ``stop``.
        visit: makes the handler of a connection.
        most: maximum number of visitors.
        name: name of the thread.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, listening: socket.socket, visit: Callable[..., Visit], most: int, name: str
    ) -> None:
        address = listening.getsockname()[:2]
        super().__init__(address, visit, bind_and_activate=False)
        self.socket.close()
        self.socket, self.server_address = listening, address
        self._places: Places[socket.socket] = Places(max(LEAST, min(most, left() - RESERVED)))
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(POLL,), name=name, daemon=True
        )

    def start(self) -> None:
        """Start to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering, and close the socket."""
        if self._thread.ident is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a visitor, a moment later if no descriptor is left."""
        try:
            return super().get_request()
        except OSError as error:
            if is_shortage(error):
                time.sleep(POLL)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return False for a visitor for which nobody makes room; it is sent away."""
        with self._lock:
            leaving = self._places.enter(request, time.monotonic())
        if leaving not in (None, request):
            _hang_up(leaving)
        return leaving is not request

    def service_actions(self) -> None:
        """Hang up on visitors whose requests take too long."""
        with self._lock:
            overdue = self._places.overdue(time.monotonic())
        for one in overdue:
            _hang_up(one)

    def complete(self, request: socket.socket) -> None:
        """Record that the request of a visitor is complete."""
        with self._lock:
            self._places.complete(request)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection of a visitor, also of one that is sent away."""
        with self._lock:
            self._places.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of a visit; a visitor that goes away is none."""
        log.debug("a visitor was not answered", exc_info=True)


def _hang_up(connection: socket.socket | None) -> None:
    """End a connection that another thread uses, and that this thread closes then."""
    try:
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the visitor, or its thread, has closed it
        pass


class _ShortHead:
    """The lines of a request, as far as they are not too long together."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, MOST_HEAD_BYTES
        self.close = file.close

    def readline(self, size: int) -> bytes:
        """Return the next line."""
        line = self._file.readline(min(size, self._left))
        self._left -= len(line)
        if not self._left:
            raise LineTooLong("head")
        return line


class Visit(BaseHTTPRequestHandler):
    """Answers one request of a connection. A subclass says how."""

    server: VisitorServer
    timeout = REQUEST_SECONDS
    protocol_version = default_request_version = "HTTP/1.1"
    always: Mapping[str, str] = MappingProxyType({})
    """Headers of every answer."""

    def visit(self) -> None:
        """Answer the request by ``answer``, or by ``begin`` and writing."""
        raise NotImplementedError

    def handle(self) -> None:
        """Answer the request, and close the connection."""
        self.rfile = cast(Any, _ShortHead(cast(BinaryIO, self.rfile)))
        self.handle_one_request()

    def do_GET(self) -> None:
        """Answer a request that is complete."""
        self.server.complete(self.connection)
        self.visit()

    do_HEAD = do_GET

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer."""
        self.send_response_only(status)
        for name, text in {**headers, **self.always, "Connection": "close"}.items():
            self.send_header(name, text)
        self.end_headers()

    def answer(
        self,
        status: int,
        content: str | bytes,
        kind: str = "text/plain; charset=utf-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a whole answer.

        Args:
            status: status of HTTP.
            content: what is shown.
            kind: its media type.
            headers: further headers.
        """
        whole = content.encode() if isinstance(content, str) else content
        described = {"Content-Type": kind, "Content-Length": str(len(whole))}
        self.begin(status, {**described, **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(whole)

    def send_error(self, code: int, message: str | None = None, explain: object = None) -> None:
        """Answer a request that is none, or that has a method to change something."""
        status = 405 if code == HTTPStatus.NOT_IMPLEMENTED else int(code)
        self.answer(status, f"{message or 'This can only be read'}.\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a probe comes every few seconds, and a link may have a token."""
