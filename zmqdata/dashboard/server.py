"""The web server of the page: files, and a stream of views to each browser.

Needs starlette and uvicorn, which only this module imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import Any

from zmqdata.config.dashboard import DashboardSettings
from zmqdata.dashboard.access import HEADERS, Doorkeeper, Entry
from zmqdata.dashboard.report import KINDS, page_file
from zmqdata.dashboard.watching import StatusWatch, asker, encoded
from zmqdata.errors import FailedPreconditionError, UnavailableError
from zmqdata.transport.addresses import is_loopback

MOST_VIEWERS = 64
"""Maximum number of browser windows that are served at a time."""
STILL_HERE = 15.0
"""Seconds without a view after which a stream sends a comment, so that a closed
connection is noticed.
"""
STARTS_WITHIN = 10.0
"""Seconds within which the server has to start."""
GRACE = 2
"""Seconds that open streams may take to end."""
EVERYWHERE = ("", "*", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class DashboardServer:
    """Serves the page of a dispatcher, in threads of this process, from ``start`` to
    ``stop``.

    Args:
        settings: addresses and token.
        watch: asks the dispatcher; None makes it from the settings.

    Attributes:
        link: address of the page for a browser, with the token if it needs one.

    Raises:
        FailedPreconditionError: starlette or uvicorn is not installed.
        OSError: the address cannot be bound.
    """

    def __init__(self, settings: DashboardSettings, watch: StatusWatch | None = None) -> None:
        uvicorn = _library("uvicorn")
        self._stopped = threading.Event()
        self._watch = watch or StatusWatch(
            asker(settings.dispatcher_address, self._stopped), self._stopped
        )
        host = "" if settings.host in EVERYWHERE else settings.host
        is_local = is_loopback(settings.host)
        token = settings.token or ("" if is_local else secrets.token_urlsafe(24))
        self._socket = _listening(host, settings.port)
        port = self._socket.getsockname()[1]
        names = [platform.node(), settings.host, *settings.names]
        if not is_local:
            names.append(socket.getfqdn())  # may ask the name server, which takes time
        seen = host or platform.node()
        seen = f"[{seen}]" if ":" in seen else seen
        self.link = f"http://{seen}:{port}/" + (f"?token={token}" if token else "")
        app = guarded(application(self._watch, self._stopped), Doorkeeper(token, names, port))
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,  # it would contain the token
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="zmqdata-dashboard-http",
            daemon=True,
        )

    def start(self) -> None:
        """Start to ask the dispatcher and to answer browsers.

        Raises:
            UnavailableError: the server has not started in time.
        """
        self._watch.start()
        self._thread.start()
        ends = time.monotonic() + STARTS_WITHIN
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() >= ends:
                raise UnavailableError(f"The server of {self.link} has not started.")
            time.sleep(0.01)

    def stop(self) -> None:
        """End all streams, the server and the polls."""
        self._stopped.set()
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(GRACE + 1)
        self._socket.close()
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


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise FailedPreconditionError(
            f"`zmqdata dashboard` needs {name.partition('.')[0]}, which is not installed: {error}. "
            "Install the extra: pip install 'zmqdata[dashboard]'. `zmqdata report FILE.html` "
            "writes the same page as a file without it."
        ) from None


# --- the application


def application(watch: StatusWatch, stopped: threading.Event) -> Any:
    """Return the application: the page, its files, the history and the stream.

    Args:
        watch: asks the dispatcher.
        stopped: ends all streams.
    """
    responses, routing = _library("starlette.responses"), _library("starlette.routing")

    async def page(request: Any) -> Any:
        name = request.path_params.get("name", "index.html")
        kind = KINDS.get(name)
        if kind is None:
            return responses.PlainTextResponse("There is no such file.", 404)
        return responses.Response(page_file(name), media_type=kind)

    async def history(request: Any) -> Any:
        return responses.Response(encoded(watch.whole()), media_type="application/json")

    async def events(request: Any) -> Any:
        if watch.viewers >= MOST_VIEWERS:
            text = f"{MOST_VIEWERS} windows show this page already. Close some of them."
            return responses.PlainTextResponse(text, 503)
        return responses.StreamingResponse(
            views(watch, stopped),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    return _library("starlette.applications").Starlette(
        routes=[
            routing.Route("/", page),
            routing.Route("/static/{name}", page),
            routing.Route("/history", history),
            routing.Route("/events", events),
        ]
    )


async def views(watch: StatusWatch, stopped: threading.Event) -> AsyncIterator[str]:
    """Yield server-sent events: the history, and then each new view. A slow viewer
    leaves out views.

    Args:
        watch: asks the dispatcher.
        stopped: ends the stream.
    """
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    forget = watch.listen(lambda: loop.call_soon_threadsafe(news.set))
    try:
        yield f"retry: 2000\nevent: whole\ndata: {encoded(watch.whole())}\n\n"
        number, silent = watch.number, 0.0
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), 0.5)
            news.clear()
            silent += 0.5
            if watch.number != number:
                number, silent = watch.number, 0.0
                yield f"event: view\nid: {number}\ndata: {watch.newest}\n\n"
            elif silent >= STILL_HERE:
                silent = 0.0
                yield ": the dispatcher has not answered since\n\n"
    finally:
        forget()


def guarded(app: Any, keeper: Doorkeeper) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Return the application behind a doorkeeper, with the headers of every answer.

    Args:
        app: an ASGI application.
        keeper: decides which requests it gets.
    """
    responses = _library("starlette.responses")

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # a websocket is closed by that

        async def send_guarded(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        query = scope["query_string"].decode("latin-1")
        verdict = keeper.judge(scope["method"], scope["path"], query, headers)
        if verdict is None:
            await app(scope, receive, send_guarded)
        elif isinstance(verdict, Entry):
            answer = responses.RedirectResponse("/", 303, {"Set-Cookie": verdict.cookie})
            await answer(scope, receive, send_guarded)
        else:
            answer = responses.PlainTextResponse(verdict.text, verdict.status)
            await answer(scope, receive, send_guarded)

    return run
