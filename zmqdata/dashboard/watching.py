"""One poll a second of a dispatcher's status for all viewers, with a bounded history.

The next request is sent when the former is answered or given up, so a slow dispatcher
never has two of them. Until then viewers keep the last answer and are told so. An
answer that takes long costs the dispatcher much, so it is then asked less often.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zmqdata import messages as m
from zmqdata.client.calls import status
from zmqdata.config.endpoints import parse_service
from zmqdata.dashboard.view import view_of
from zmqdata.errors import DataServiceError

Point = tuple[float, ...]
"""Seconds since 1970, and a value for each of ``SHOWN``."""

SHOWN = ("rate", "wait_share", "making_share")
"""Fields of a job in the view that have a history."""
EVERY = 1.0
"""Seconds between two polls."""
MOST_SHARE = 0.1
"""Share of the dispatcher's time that its answers may take at most."""
LONGEST_PAUSE = 30.0
"""Maximum number of seconds between two polls."""
PATIENCE = 5.0
"""Seconds after which a poll without an answer is given up."""
RECENT = 300
"""Number of newest points that are kept as they are."""
MOST_POINTS = 600
"""Maximum number of averaged points since the beginning."""
MOST_SERIES = 32
"""Maximum number of iterations whose history is kept."""


class ThinnedSeries:
    """Points since the beginning in bounded memory: the fuller it gets, the more points
    are averaged into one.

    Args:
        most: maximum number of points, an even number.

    Example:
        >>> series = ThinnedSeries(4)
        >>> for second in range(8):
        ...     series.add((float(second), 10.0 * second))
        >>> series.points()
        [(0.5, 5.0), (2.5, 25.0), (4.5, 45.0), (6.5, 65.0)]
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._each = 1
        self._full: list[Point] = []
        self._open: list[Point] = []

    def add(self, point: Point) -> None:
        """Add a point that is newer than all others."""
        if not self._open and len(self._full) == self._most:
            self._full = [
                _averaged(self._full[place : place + 2]) for place in range(0, self._most, 2)
            ]
            self._each *= 2
        self._open.append(point)
        if len(self._open) == self._each:
            self._full.append(_averaged(self._open))
            self._open = []

    def points(self) -> list[Point]:
        """Return the points, oldest first."""
        return self._full + ([_averaged(self._open)] if self._open else [])


def _averaged(points: list[Point]) -> Point:
    return tuple(sum(column) / len(points) for column in zip(*points, strict=True))


class History:
    """The recent points of each iteration, and all of its time in averages. Bounded.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._recent: dict[int, deque[Point]] = {}
        self._whole: dict[int, ThinnedSeries] = {}

    def add(self, view: Mapping[str, Any]) -> dict[int, Point]:
        """Add a point for each unfinished job of a view, and return these points."""
        points = {
            job["iteration"]: (
                round(view["time"], 2),
                *(float(f"{job[name]:.4g}") for name in SHOWN),
            )
            for job in view["jobs"]
            if not job["is_over"]
        }
        for iteration, point in points.items():
            # Most recently used last.
            recent = self._recent.pop(iteration, None) or deque(maxlen=RECENT)
            self._recent[iteration] = recent
            recent.append(point)
            self._whole.setdefault(iteration, ThinnedSeries()).add(point)
        while len(self._recent) > MOST_SERIES:
            oldest = next(iter(self._recent))
            del self._recent[oldest], self._whole[oldest]
        return points

    def shown(self, iterations: Iterable[int]) -> dict[str, Any]:
        """Return the history of iterations, as a JSON-compatible dict."""
        return {
            str(iteration): {
                "recent": list(self._recent[iteration]),
                "whole": self._whole[iteration].points(),
            }
            for iteration in iterations
            if iteration in self._recent
        }


def pause(took: float, every: float = EVERY) -> float:
    """Return the seconds from one poll to the next.

    Args:
        took: seconds that the last answer took.
        every: seconds if answers are fast.

    Example:
        >>> pause(0.01), pause(0.4), pause(60.0)
        (1.0, 4.0, 30.0)
    """
    return min(max(every, took / MOST_SHARE), LONGEST_PAUSE)


def asker(service: str, stopped: threading.Event) -> Callable[[], dict[str, Any]]:
    """Return a function that asks a dispatcher for its status.

    Args:
        service: address of the dispatcher.
        stopped: ends a wait for the answer.

    Raises:
        ValueError: the address is none.
    """
    parse_service(service)
    return lambda: status(service, PATIENCE, stopped=stopped)


class StatusWatch:
    """Asks a dispatcher each second in a thread of its own, and keeps what all viewers
    show.

    Args:
        ask: returns the status of the dispatcher.
        stopped: ends the thread; set by ``stop``, too.
        every: seconds between two polls.
        clock: returns the seconds since 1970.

    Attributes:
        number: number of polls that have ended.
        newest: the newest view as JSON, with the points that it adds to the history.
    """

    def __init__(
        self,
        ask: Callable[[], dict[str, Any]],
        stopped: threading.Event,
        every: float = EVERY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._stopped = stopped
        self._every = every
        self._clock = clock
        self._history = History()
        self._lock = threading.Lock()
        self._listeners: set[Callable[[], object]] = set()
        self._view: dict[str, Any] = {
            **view_of(m.ServiceStatus(), clock()),
            "trouble": "The dispatcher has not answered yet.",
        }
        self.number = 0
        self.newest = encoded({"view": self._view, "points": {}})
        self._thread = threading.Thread(target=self._run, name="zmqdata-dashboard", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self.poll()
            took = time.monotonic() - began
            every = self._every if self._view["trouble"] else pause(took, self._every)
            self._stopped.wait(max(0.0, every - took))

    def poll(self) -> None:
        """Ask once, and tell all viewers."""
        points: dict[int, Point] = {}
        try:
            view = view_of(m.known_status(self._ask()), self._clock())
        except (DataServiceError, OSError) as error:
            view = {**self._view, "trouble": str(error)}
        with self._lock:
            if not view["trouble"]:
                points = self._history.add(view)
            self._view = view
            self.newest = encoded({"view": view, "points": points})
            self.number += 1
            listeners = list(self._listeners)
        for wake in listeners:
            wake()

    def whole(self) -> dict[str, Any]:
        """Return the newest view and the history of its jobs."""
        with self._lock:
            shown = self._history.shown(job["iteration"] for job in self._view["jobs"])
            return {"view": self._view, "history": shown}

    def listen(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Call a function in the thread after each poll. Return a function that ends
        that.
        """
        with self._lock:
            self._listeners.add(wake)
        return lambda: self._forget(wake)

    def _forget(self, wake: Callable[[], object]) -> None:
        with self._lock:
            self._listeners.discard(wake)

    @property
    def viewers(self) -> int:
        """Number of functions that are called after each poll."""
        return len(self._listeners)


def encoded(found: object) -> str:
    """Return JSON on one line, in which no character has a meaning in HTML.

    Example:
        >>> encoded({"job": "</script>"})
        '{"job":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
