"""Recordings of a whole service: every worker and, through the dispatcher, every client
records for some seconds, and one process collects the spans.

The clocks of the machines are compared by round trips, at the beginning and at the end.

Protocol 11.4.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from msgspec import structs

from zmqdata import messages as m
from zmqdata.client.calls import client_context, new_request, status
from zmqdata.client.probing import MeasuredConnection, measured
from zmqdata.config.endpoints import Service, parse_service
from zmqdata.errors import DataServiceError, UnavailableError
from zmqdata.measures.timeline import timeline

T = TypeVar("T")
AT_ONCE = 32
"""Number of servers that are asked at the same time."""
LONGEST_PAUSE = 1.0
"""Most seconds until a server is asked again whether its recording is complete."""


@dataclass
class Recorded:
    """A server that records."""

    endpoint: str
    """Its address."""
    role: str
    """Kind of server."""
    clocks: list[tuple[float, float]] = field(default_factory=list)
    """Seconds of the round trip, and by which its clock is ahead, of each
    comparison.
    """
    tracks: list[m.Track] = field(default_factory=list)
    """The spans that it has sent."""
    failure: str = ""
    """Reason why nothing was recorded; empty if it was."""

    @property
    def name(self) -> str:
        """Kind and address, for a person."""
        return f"{self.role} {self.endpoint}"

    def begin(self, trace: str, ends: float, timeout: float) -> None:
        """Begin the recording.

        Args:
            trace: its name.
            ends: time of ``time.monotonic`` at which it ends.
            timeout: seconds that the server has to answer.
        """
        until = time.monotonic() + timeout
        with measured(self.endpoint, self.role) as connection:
            self.clocks.append(connection.clock(until))
            seconds = max(LEAST, ends - time.monotonic())
            connection.ask(
                lambda request: m.RequestTrace(request, trace, seconds), m.TraceRecorded, until
            )

    def fetch(self, trace: str, timeout: float) -> None:
        """Fetch what was recorded. See ``begin``."""
        until = time.monotonic() + timeout
        with measured(self.endpoint, self.role) as connection:
            self.clocks.append(connection.clock(until))
            trip, ahead = min(self.clocks)
            for track in _fetched(connection, trace, until):
                self.tracks.append(
                    structs.replace(track, ahead=ahead + track.ahead, error=trip / 2 + track.error)
                )


LEAST = 0.05
"""Least seconds of a recording."""


def _fetched(connection: MeasuredConnection, trace: str, until: float) -> Iterator[m.Track]:
    """Yield the tracks of a server, complete."""
    found: dict[int, list[m.Track]] = {}
    first, total = 0, 1
    while first < total:
        ask = partial(_next_page, trace=trace, first=first)
        page = connection.ask(ask, m.TraceRecorded, until)
        if page.left > 0:
            if time.monotonic() + page.left >= until:
                raise UnavailableError("The recording was not complete in time.")
            threading.Event().wait(min(page.left, LONGEST_PAUSE))
            continue
        total = page.total
        for at, track in enumerate(page.tracks):
            found.setdefault(at, []).append(track)
        count = sum(len(track.spans) for track in page.tracks)
        if not count:
            break
        first += count
    for parts in found.values():
        spans = tuple(span for part in parts for span in part.spans)
        yield structs.replace(parts[-1], spans=spans)


def _next_page(request: str, trace: str, first: int) -> m.RequestTrace:
    return m.RequestTrace(request, trace, first=first)


def record(service: Service, seconds: float, timeout: float = 15.0) -> dict[str, Any]:
    """Record what all workers and clients of a dispatcher do, and return the timeline.

    Args:
        service: address of the dispatcher, ``"tcp://host:port"``.
        seconds: duration of the recording, at most 300.
        timeout: seconds that each server has to answer.

    Returns:
        A trace in the trace-event format, as a JSON-compatible dict.

    Raises:
        ValueError: an argument has an invalid value.
        UnavailableError: the dispatcher has not answered within ``timeout``.
        DataServiceError: the dispatcher refuses, for example because another recording
            is running.

    Example:
        >>> from zmqdata.dispatcher.server import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     found = record(dispatcher.target, seconds=0.1)
        >>> found["traceEvents"], found["otherData"]["processes"]
        ([], [])

    Has no counterpart in tf.data.
    """
    if not 0 < seconds <= m.MOST_TRACE_SECONDS:
        raise ValueError(
            f"`seconds` must be above 0 and at most {m.MOST_TRACE_SECONDS:.0f}, got {seconds!r}"
        )
    trace, known = new_request(), status(service, timeout)
    dispatcher = Recorded(parse_service(service), "dispatcher")
    workers = [Recorded(str(one["address"]), "worker") for one in known["workers"]]
    client_context()  # before threads would each make one
    ends = time.monotonic() + seconds
    dispatcher.begin(trace, ends, timeout)
    _each(workers, lambda one: one.begin(trace, ends, timeout))
    threading.Event().wait(max(0.0, ends - time.monotonic()))
    servers = [*workers, dispatcher]
    _each(servers, lambda one: one.fetch(trace, timeout))
    tracks = [track for one in servers for track in one.tracks]
    missing = {one.name: one.failure for one in servers if one.failure}
    return timeline(tracks, jobs_of(known, status(service, timeout)), missing)


def _each(servers: Sequence[Recorded], act: Callable[[Recorded], None]) -> None:
    """Act on all servers that have not failed. Note why others fail."""

    def guarded(one: Recorded) -> None:
        try:
            act(one)
        except DataServiceError as error:
            one.failure = str(error)

    left = [one for one in servers if not one.failure]
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(left)))) as pool:
        list(pool.map(guarded, left))


def jobs_of(*states: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of the jobs of all tasks in states of a dispatcher.

    Example:
        >>> jobs_of({"iterations": [{"iteration": 1, "job": "train"}],
        ...          "tasks": [{"task": 7, "iteration": 1}]})
        {7: 'train'}
    """
    found: dict[int, str] = {}
    for state in states:
        names = {int(one["iteration"]): str(one["job"]) for one in state["iterations"]}
        for task in state["tasks"]:
            if task["iteration"] in names:
                found[int(task["task"])] = names[task["iteration"]]
    return found
