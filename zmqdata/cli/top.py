"""``zmqdata top``: asks a server for its status again and again, and shows the answers.

In a terminal it draws a picture on a screen of its own, and ends with ``q`` or Ctrl-C.
Otherwise it prints each answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from zmqdata.cli.options import say_or_end
from zmqdata.cli.screen import ANY_WIDTH, screen
from zmqdata.cli.tables import worker_tables
from zmqdata.errors import DataServiceError
from zmqdata.messages import known_status
from zmqdata.printable import printable

QUIT = "q"
"""The key that ends the command."""

Ask = Callable[[], dict[str, Any]]
Show = Callable[[dict[str, Any], str], None]


def watch(ask: Ask, interval: float, as_json: bool) -> int:
    """Show the status of a server until the user ends it; return the exit code.

    Args:
        ask: returns the status. Its first error is raised; later ones are shown, and
            the server is asked again.
        interval: seconds between an answer and the next question.
        as_json: True to print a line of JSON for each answer.

    Raises:
        DataServiceError: the server does not answer the first question.
        SystemExit: standard output is a pipe whose reader has closed it.
    """
    console = new_console()
    with contextlib.suppress(KeyboardInterrupt), _ending_on_signals():
        found = ask()
        if as_json:
            _repeat(ask, found, _print_json, lambda: _sleep(interval))
        elif console.file.isatty():
            with _keys() as pressed, _drawing(console) as show:
                _repeat(ask, found, show, lambda: pressed(interval))
        else:
            _repeat(ask, found, _printing(console), lambda: _sleep(interval))
    return 0


def _repeat(ask: Ask, found: dict[str, Any], show: Show, pause: Callable[[], bool]) -> None:
    """Show statuses until a pause returns true."""
    note, since = "", time.monotonic()
    while True:
        show(found, note)
        if pause():
            return
        try:
            found = ask()
            note, since = "", time.monotonic()
        except DataServiceError as error:
            silent = time.monotonic() - since
            note = f"No answer for {silent:.0f} s; the last one is shown. Asking again. {error}"


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _print_json(found: dict[str, Any], note: str) -> None:
    say_or_end(json.dumps({"unavailable": note} if note else found))


def _printing(console: Console) -> Show:
    def show(found: dict[str, Any], note: str) -> None:
        console.print(_picture(found, note, console.width, None))
        console.print()

    return show


@contextlib.contextmanager
def _drawing(console: Console) -> Iterator[Show]:
    """Return what draws on a screen of its own."""
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(found: dict[str, Any], note: str) -> None:
            width, height = console.size
            live.update(_picture(found, note, width, height), refresh=True)

        yield show


def new_console() -> Console:
    """Return a console. The lines of a pipe are as long as they need to be, also if
    ``FORCE_COLOR`` colours them.
    """
    console = Console()
    return console if console.file.isatty() else Console(width=ANY_WIDTH)


def picture_of(found: Mapping[str, Any]) -> list[RenderableType]:
    """Return all of a status, once."""
    return [_picture(found, "", new_console().width, None)]


def _picture(found: Mapping[str, Any], note: str, width: int, height: int | None) -> RenderableType:
    if "workers" not in found:
        warning = [Text(printable(note), "bold reverse red")] if note else []
        return Group(*warning, *worker_tables(found))
    return screen(known_status(found), width, height, time.strftime("%H:%M:%S"), note)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Return a function that waits for seconds, and returns True if the user ends the
    command meanwhile.
    """
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                typed = os.read(terminal, 1)
                if typed.lower() == QUIT.encode() or not typed:
                    return True
        return False

    try:
        tty.setcbreak(terminal)
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _ending_on_signals() -> Iterator[None]:
    """End as on Ctrl-C if the process is told to end, so that the terminal is left as
    it was.
    """

    def end(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
