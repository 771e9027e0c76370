"""The web server of the page: files, and a stream of views to each browser."""

from __future__ import annotations

import secrets
import select
import socket
import threading
from collections.abc import Callable, Iterator

from zmqdata.config.dashboard import DashboardSettings
from zmqdata.dashboard.access import HEADERS, Doorkeeper, Entry
from zmqdata.dashboard.report import KINDS, page_file
from zmqdata.dashboard.watching import StatusWatch, asker, encoded
from zmqdata.transport.addresses import is_loopback
from zmqdata.transport.visitors import Visit, VisitorServer

MOST_VIEWERS = 64
"""Maximum number of browser windows that are served at a time."""
MOST_VISITORS = 2 * MOST_VIEWERS
"""Maximum number of connections at a time."""
LOOK_EVERY = 0.5
"""Seconds between two looks for a viewer that has gone."""
STILL_HERE = 15.0
"""Seconds without a view after which a stream sends a comment, so that proxies keep the
connection.
"""
EVERYWHERE = ("", "*", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound


class DashboardServer:
    """Serves the page of a dispatcher, in threads of this process, from ``start`` to
    ``stop``.

    Args:
        settings: addresses and token.
        watch: asks the dispatcher; None makes it from the settings.

    Attributes:
        link: address of the page for a browser, with the token if it needs one.

    Raises:
        OSError: the address cannot be bound.

    Example:
        >>> from urllib.request import urlopen
        >>> settings = DashboardSettings("tcp://127.0.0.1:5050", port=0)
        >>> with DashboardServer(settings) as server, urlopen(server.link) as page:
        ...     page.status
        200
    """

    def __init__(self, settings: DashboardSettings, watch: StatusWatch | None = None) -> None:
        stopped = threading.Event()
        self._stopped = stopped
        self._watch = watch or StatusWatch(asker(settings.dispatcher_address, stopped), stopped)
        host = "" if settings.host in EVERYWHERE else settings.host
        token = settings.token or ("" if is_loopback(settings.host) else secrets.token_urlsafe(24))
        listening = _listening(host, settings.port)
        port = listening.getsockname()[1]
        seen = host or socket.gethostname()
        seen = f"[{seen}]" if ":" in seen else seen
        self.link = f"http://{seen}:{port}/" + (f"?token={token}" if token else "")
        keeper = Doorkeeper(token, [settings.host, *settings.names], port)
        self._server = _PageServer(listening, keeper, self._watch, stopped)

    def start(self) -> None:
        """Start to ask the dispatcher and to answer browsers."""
        self._watch.start()
        self._server.start()

    def stop(self) -> None:
        """End all streams, the server and the polls."""
        self._stopped.set()
        self._server.stop()
        self._watch.stop()

    def __enter__(self) -> DashboardServer:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket: on all interfaces if ``host`` is empty."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


class _PageServer(VisitorServer):
    """Serves the page to those that its doorkeeper lets in."""

    def __init__(
        self,
        listening: socket.socket,
        keeper: Doorkeeper,
        watch: StatusWatch,
        stopped: threading.Event,
    ) -> None:
        super().__init__(listening, _PageVisit, MOST_VISITORS, "zmqdata-dashboard-http")
        self.keeper, self.watch, self.stopped = keeper, watch, stopped


class _PageVisit(Visit):
    """Answers a browser: the page, its files, the history and the stream."""

    server: _PageServer
    always = HEADERS

    def visit(self) -> None:
        """Answer as the doorkeeper decides."""
        path, _, query = self.path.partition("?")
        headers = {name.lower(): text for name, text in self.headers.items()}
        verdict = self.server.keeper.judge(path, query, headers)
        if isinstance(verdict, Entry):
            self.answer(303, b"", headers={"Location": "./", "Set-Cookie": verdict.cookie})
        elif verdict is not None:
            self.answer(verdict.status, verdict.text)
        elif path == "/history":
            self.answer(200, encoded(self.server.watch.whole()), "application/json")
        elif path == "/events":
            self._stream()
        else:
            name = "index.html" if path == "/" else path.removeprefix("/static/")
            if name not in KINDS or (path != "/" and not path.startswith("/static/")):
                self.answer(404, "There is no such file.")
            else:
                self.answer(200, page_file(name), KINDS[name])

    def _stream(self) -> None:
        news = threading.Event()
        watch = self.server.watch
        if watch.viewers >= MOST_VIEWERS:
            self.answer(503, f"{MOST_VIEWERS} windows show this page already. Close some of them.")
            return
        forget = watch.listen(news.set)
        try:
            self.begin(200, {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
            if self.command != "HEAD":
                for text in views(watch, news, self._is_over):
                    self.wfile.write(text.encode())
        finally:
            forget()

    def _is_over(self) -> bool:
        """Return True if the page stops, or the viewer has gone: it sends nothing more
        than its request.
        """
        readable, _, _ = select.select([self.connection], [], [], 0)
        return self.server.stopped.is_set() or bool(readable)


def views(watch: StatusWatch, news: threading.Event, is_over: Callable[[], bool]) -> Iterator[str]:
    """Yield server-sent events: the history, and then each new view. A slow viewer
    leaves out views.

    Args:
        watch: asks the dispatcher.
        news: is set after each poll.
        is_over: tells that the stream has to end.
    """
    yield f"retry: 2000\nevent: whole\ndata: {encoded(watch.whole())}\n\n"
    number, silent = watch.number, 0.0
    while not is_over():
        news.wait(LOOK_EVERY)
        news.clear()
        silent += LOOK_EVERY
        if watch.number != number:
            number, silent = watch.number, 0.0
            yield f"event: view\nid: {number}\ndata: {watch.newest}\n\n"
        elif silent >= STILL_HERE:
            silent = 0.0
            yield ": the dispatcher has not answered since\n\n"
