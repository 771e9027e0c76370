"""A store of objects behind HTTP, on this machine, which counts requests and bytes, and
answers wrongly when it is told to.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit


class ObjectStore:
    """Objects by path, as ``/a/b.txt``.

    Attributes:
        objects: their contents; they may be changed at any time.
        faults: what the next requests meet, the first first: a status; ``"reset"``, a
            closed connection; ``"short"``, half of the body; ``"cut"``, half of it
            before the connection ends; ``"whole"``, the whole object for a range;
            ``"drip"``, a byte each tenth of a second; a URL, a redirection to it. The
            words of a status have path and query, and the values of the query, as those
            of stores do.
        requests: method, path and range of each request.
        headers: headers of the latest request.
        sent: bytes of bodies that were sent.
        latency: seconds before each answer.
    """

    def __init__(self, port: int) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: deque[int | str] = deque()
        self.requests: list[tuple[str, str, str]] = []
        self.headers: Any = {}
        self.sent = 0
        self.latency = 0.0
        self.root = f"http://127.0.0.1:{port}"

    def url(self, path: str) -> str:
        """Return the URL of an object."""
        return f"{self.root}{path}"

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request."""
        path = unquote(handler.path.partition("?")[0])
        asked = handler.headers.get("Range", "")
        self.requests.append((handler.command, path, asked))
        self.headers = handler.headers
        threading.Event().wait(self.latency)
        fault = self.faults.popleft() if self.faults else ""
        content = self.objects.get(path)
        if content is None:
            fault = fault or 404
        if fault == "reset":
            handler.close_connection = True
            return
        if isinstance(fault, int):
            values = parse_qs(urlsplit(handler.path).query)
            words = f"the store says {fault} for {handler.path} {values}"
            self._send(handler, fault, {}, words.encode())
            return
        if "://" in fault:
            self._send(handler, 302, {"Location": fault}, b"")
            return
        assert content is not None
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:16]}"'}
        found = re.fullmatch(r"bytes=(\d*)-(\d+)", asked)
        status, body = 200, content
        if found and fault != "whole":
            size, number = len(content), int(found[2])
            start = int(found[1]) if found[1] else max(0, size - number) if number else size
            end = min(number + 1, size) if found[1] else size
            status, body = (206, content[start:end]) if start < len(content) else (416, b"")
            place = f"{start}-{end - 1}" if status == 206 else "*"
            headers["Content-Range"] = f"bytes {place}/{len(content)}"
        half = body[: len(body) // 2]
        if fault == "short":
            body = half
        if fault == "drip":
            handler.wfile = cast(Any, _Dripping(handler.wfile))
        self._send(handler, status, headers, body, half if fault == "cut" else body)

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        body: bytes,
        part: bytes | None = None,
    ) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        sent = body if part is None else part
        self.sent += len(sent)  # before the client can look
        handler.wfile.write(sent)
        handler.close_connection = part is not None


class _Dripping:
    """File to which a body of 1000 bytes or more is written slowly."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, content: bytes) -> None:
        if len(content) < 1000:
            self._file.write(content)
            return
        for place in range(len(content)):
            self._file.write(content[place : place + 1])
            threading.Event().wait(0.1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start a store and stop it at the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            store.respond(self)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store = ObjectStore(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
