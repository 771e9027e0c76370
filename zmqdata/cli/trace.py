"""The command that records what a service does for some seconds, as a file for
Perfetto.

Every worker and, through the dispatcher, every client records, and this process
collects the spans. The clocks of the machines are compared by round trips, at the
beginning and at the end.

Protocol 11.4.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from zmqdata import messages as m
from zmqdata.cli.asking import DispatcherSettings, opened
from zmqdata.cli.options import command_parser, complain, guarded, say
from zmqdata.client.calls import client_context, new_request, status
from zmqdata.client.probing import MeasuredConnection, measured
from zmqdata.config.endpoints import Service, parse_service
from zmqdata.config.keys import KeySettings
from zmqdata.errors import DataServiceError, UnavailableError
from zmqdata.measures.trace import BASE, merged, render_trace
from zmqdata.printable import printable

AT_ONCE = 32
"""Number of servers that are asked at the same time."""
LONGEST_PAUSE = 1.0
"""Most seconds until a server is asked again whether its trace is complete."""
LEAST = 0.05
"""Least seconds of a trace."""


def trace_main(arguments: Sequence[str], program: str = "zmqdata trace") -> int:
    """Record a service; return the exit code: 0 if any process was recorded, else 1."""
    parser = command_parser(
        program,
        "Records what workers and training loops do for some seconds, and writes a file in the "
        "trace-event format, which https://ui.perfetto.dev and chrome://tracing open.",
        DispatcherSettings,
        KeySettings,
    )
    parser.add_argument("out", metavar="FILE", help="the file to write: .json, or .json.gz")
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="duration in seconds, at most 300 (default: 10)",
    )
    parser.add_argument(
        "--merge",
        metavar="FILE",
        help="a trace of torch's profiler: FILE gets its events, too, on the same clock",
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: trace(chosen, program))


def trace(chosen: argparse.Namespace, program: str) -> int:
    """Record, and write the file."""
    wanted = opened(DispatcherSettings, chosen)
    out = Path(chosen.out)
    check_out(out)
    if chosen.merge is not None:
        check_other(chosen.merge)
    found = record_trace(wanted.dispatcher_address, chosen.seconds, wanted.timeout)
    about = found["otherData"]
    content, unmerged = encoded(found, chosen.merge)
    write_trace(out, content)
    for name, reason in about["not_recorded"].items():
        complain(program, f"{name} was not recorded: {reason}")
    spans = sum(one["spans"] for one in about["processes"])
    dropped = sum(one["dropped_spans"] for one in about["processes"])
    worst = max((one["clock_error_us"] for one in about["processes"]), default=0)
    lost = f"; the oldest {dropped:,} were dropped" if dropped else ""
    processes = len(about["processes"])
    say(
        printable(
            f"{out}: {spans:,} spans of {processes} processes{lost}; clocks agree within "
            f"{worst / 1000:.3g} ms. Open it at https://ui.perfetto.dev"
        )
    )
    if unmerged:
        text = f"{out} has our spans only, without the events of {chosen.merge}: {unmerged}"
        complain(program, text)
    if not processes:
        complain(program, "no worker is registered, and no client reads")
    return 1 if unmerged or not processes else 0


def check_out(path: Path) -> None:
    """Raise if a file surely cannot be written. Nothing is written.

    Raises:
        ValueError: the file cannot be written.
    """
    if path.is_dir():
        raise ValueError(f"{path} cannot be written: it is a folder; give the name of a file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: its folder is missing, or is not writable")
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{path} cannot be written: the file exists and is not writable")


def check_other(path: str) -> None:
    """Raise if a file surely cannot be merged. A file that is missing may still be
    written meanwhile if its folder exists.

    Raises:
        ValueError: the file is no trace, or its folder is missing.
        OSError: the file cannot be read.
    """
    if os.path.exists(path):
        read_trace(path)
    elif not Path(path).parent.is_dir():
        raise ValueError(f"{path} cannot be read: its folder is missing")


def encoded(ours: Any, other: str | None) -> tuple[bytes, str]:
    """Return our trace as JSON, and why it lacks the events of another; empty
    if it lacks none.

    Args:
        ours: our trace.
        other: path of the trace to merge; None merges none.
    """
    if other is None:
        return msgspec.json.encode(ours), ""
    try:
        # The file is read now, because its program may have written it meanwhile.
        return msgspec.json.encode(merged(ours, read_trace(other))), ""
    except Exception as error:  # our trace must outlive whatever the other file holds
        return msgspec.json.encode(ours), str(error) or type(error).__name__


def read_trace(path: str) -> Any:
    """Return the content of a trace file.

    Raises:
        ValueError: the file is no trace; the error names it.
        OSError: the file cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        found = json.loads(gzip.decompress(content) if path.endswith(".gz") else content)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        raise ValueError(f"{path} is no trace, because it is no JSON: {error}") from None
    if not is_trace(found):
        raise ValueError(
            f"{path} is no trace: a JSON object with `traceEvents` was expected, as torch's "
            "`export_chrome_trace` writes it"
        )
    return found


def is_trace(found: Any) -> bool:
    """Return True if a value has the parts of a trace that merging needs.

    Example:
        >>> is_trace({"traceEvents": []}), is_trace([]), is_trace({"traceEvents": 1})
        (True, False, False)
    """
    return (
        isinstance(found, dict)
        and isinstance(found.get("traceEvents"), list)
        and isinstance(found.get(BASE, 0), int | float)
        and isinstance(found.get("otherData", {}), dict)
    )


def write_trace(path: Path, content: bytes) -> None:
    """Write a trace, compressed if the file's name ends with ``.gz``."""
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


# --- the servers


@dataclass
class TracedServer:
    """A server that records its part of a trace."""

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
        """Begin the trace.

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


def _fetched(connection: MeasuredConnection, trace: str, until: float) -> Iterator[m.Track]:
    """Yield the tracks of a server, complete."""
    found: dict[int, list[m.Track]] = {}
    first, total = 0, 1
    while first < total:
        ask = partial(_next_page, trace=trace, first=first)
        page = connection.ask(ask, m.TraceRecorded, until)
        if page.left > 0:
            if time.monotonic() + page.left >= until:
                raise UnavailableError("The trace was not complete in time.")
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


def record_trace(service: Service, seconds: float, timeout: float = 15.0) -> dict[str, Any]:
    """Record what all workers and clients of a dispatcher do, and return the trace.

    Args:
        service: address of the dispatcher, ``"tcp://host:port"``.
        seconds: duration of the trace, at most 300.
        timeout: seconds that each server has to answer.

    Returns:
        A trace in the trace-event format, as a JSON-compatible dict.

    Raises:
        ValueError: an argument has an invalid value.
        UnavailableError: the dispatcher has not answered within ``timeout``.
        DataServiceError: the dispatcher refuses, for example because another trace
            is running.

    Example:
        >>> from zmqdata.dispatcher.server import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     found = record_trace(dispatcher.target, seconds=0.1)
        >>> found["traceEvents"], found["otherData"]["processes"]
        ([], [])

    Has no counterpart in tf.data.
    """
    if not 0 < seconds <= m.MOST_TRACE_SECONDS:
        raise ValueError(
            f"`seconds` must be above 0 and at most {m.MOST_TRACE_SECONDS:.0f}, got {seconds!r}"
        )
    trace, known = new_request(), status(service, timeout)
    dispatcher = TracedServer(parse_service(service), "dispatcher")
    workers = [TracedServer(str(one["address"]), "worker") for one in known["workers"]]
    client_context()  # before threads would each make one
    ends = time.monotonic() + seconds
    dispatcher.begin(trace, ends, timeout)
    _each(workers, lambda one: one.begin(trace, ends, timeout))
    threading.Event().wait(max(0.0, ends - time.monotonic()))
    servers = [*workers, dispatcher]
    _each(servers, lambda one: one.fetch(trace, timeout))
    tracks = [track for one in servers for track in one.tracks]
    missing = {one.name: one.failure for one in servers if one.failure}
    return render_trace(tracks, jobs_of(known, status(service, timeout)), missing)


def _each(servers: Sequence[TracedServer], act: Callable[[TracedServer], None]) -> None:
    """Act on all servers that have not failed. Note why others fail."""

    def guard(one: TracedServer) -> None:
        try:
            act(one)
        except DataServiceError as error:
            one.failure = str(error)

    left = [one for one in servers if not one.failure]
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(left)))) as pool:
        list(pool.map(guard, left))


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
