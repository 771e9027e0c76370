"""A trace: spans of time that processes record while a person asks for them.

A process records for a limited time, in limited memory. It is off by default: a place
that could record asks ``is_on`` first, and does nothing else. Spans travel in pages of
a limited size. Together they become a file in the trace-event format, which Perfetto
and Chrome open.

A process is a process of the format, with its address as its name. A task is a thread
of it. The format is described in "Trace Event Format" by the authors of Chrome.

Decision 0046; protocol 11.4 and 11.5.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from msgspec import structs

from zmqdata.errors import NotFoundError, ResourceExhaustedError
from zmqdata.messages import (
    MOST_LABEL,
    MOST_SPANS_TOLD,
    MOST_TRACE_SECONDS,
    Block,
    Message,
    RequestRefused,
    RequestTrace,
    Span,
    TraceRecorded,
    Track,
    shown_name,
)

MOST_SPANS = 20_000
"""Maximum number of spans that a process keeps: the newest, of about 300 bytes each."""
KEPT = 60.0
"""Seconds for which a trace is kept after its end."""
SENT, ARRIVED = "block sent", "block arrived"
"""Instants of a block, recorded by its worker and by its client."""
LINK = "link "
"""Beginning of the names of rows with these instants."""
SHORTEST = 1e-9
"""Seconds below which a span is left out: no clock tells its beginning from its end."""
MERGED = 0.005
"""Most seconds between two spans that are merged."""
NEAR = 8
"""Number of the newest spans among which one is looked for that goes on."""
LEAST_LEFT = 0.05
"""Least seconds after which to ask again: the end of a trace is noticed late."""
NO_NUMBERS: Mapping[str, float] = MappingProxyType({})
FIRST_PID = 5_000_000
"""Number of the first process. Numbers of true processes are smaller on Linux, so a
trace of another program can stand beside this one.
"""
FIRST_ROW = 1_000_000_000
"""Number of the first row that is not a task's own row."""
BLOCK = "block"
CLOCK = "microseconds since 1970, by the clock of the machine that ran `zmqdata trace`"
BASE = "baseTimeNanoseconds"
"""Key of torch's profiler: time in nanoseconds since 1970 to which ``ts`` is added."""
NEGLIGIBLE = 1e-6
"""Seconds by which neighbours may overlap, because numbers are rounded."""

Row = tuple[int, str]
"""A row of a process: task, or 0, and name."""


def link_row(link: str) -> str:
    """Return the name of the row of a link, equal on both of its sides. The id of the
    link itself begins with that of its client, which is a secret.

    Example:
        >>> link_row("secret")
        'link 0ffde1ae45a58146'
    """
    return f"{LINK}{shown_name(link)}"


def block_numbers(block: Block) -> dict[str, float]:
    """Return the numbers of a block that belong to its instants.

    Example:
        >>> block_numbers(Block(1, 7, 1, 0, 16, 0, 128))["bytes"]
        128.0
    """
    return {
        "message": float(block.number),
        "attempt": float(block.attempt),
        "first": float(block.first),
        "elements": float(block.count),
        "bytes": float(block.size),
    }


def refusal_of(ask: RequestTrace, left: float) -> RequestRefused | None:
    """Return the refusal of a request for a trace that is not the present one; None
    if it may begin.

    Args:
        ask: the request.
        left: seconds until the end of the present trace.

    Example:
        >>> refusal_of(RequestTrace("request", "trace", 10.0), left=3.0).error
        'ResourceExhaustedError'
    """
    if not ask.seconds:
        text = (
            "The trace is unknown: this process was started after it began, or has forgotten "
            f"it. Traces are kept for {KEPT:.0f} s. Record again."
        )
        return RequestRefused(ask.request, NotFoundError.__name__, text)
    if left:
        text = (
            "Another trace is running, and a process records one at a time. Try again in "
            f"{left:.0f} s."
        )
        return RequestRefused(ask.request, ResourceExhaustedError.__name__, text)
    return None


def page_of(ask: RequestTrace, tracks: Sequence[Track]) -> TraceRecorded:
    """Return the spans of tracks that a request asks for, as many as fit into an
    answer.

    Example:
        >>> span = Span(1, "", "making", 0.0, 1.0)
        >>> tracks = [Track("a", (span,)), Track("b", (span,))]
        >>> page = page_of(RequestTrace("request", "trace", first=1), tracks)
        >>> page.total, [(track.name, len(track.spans)) for track in page.tracks]
        (2, [('a', 0), ('b', 1)])
    """
    found, at, room = [], 0, MOST_SPANS_TOLD
    for track in tracks:
        first = max(0, ask.first - at)
        spans = track.spans[first : first + room]
        at += len(track.spans)
        room -= len(spans)
        found.append(Track(track.name, spans, track.dropped, track.ahead, track.error))
    return TraceRecorded(ask.request, 0.0, at, tuple(found))


@dataclass
class ReportedSpans:
    """The spans of another process, as it has reported them so far."""

    name: str = ""
    """Name of the process for a person."""
    spans: tuple[Span, ...] = ()
    """The newest spans."""
    seen: int = 0
    """Number of spans that the process has recorded, as far as is known."""
    ahead: float = 0.0
    """Seconds by which its clock is ahead."""
    error: float = 0.0
    """Seconds by which ``ahead`` may be wrong."""

    def add(self, first: int, spans: Iterable[Span], most: int) -> None:
        """Add spans. Spans that are known already change nothing.

        Args:
            first: number of the spans before them.
            spans: the spans.
            most: maximum number of spans to keep.

        Example:
            >>> span = Span(1, "", "making", 0.0, 1.0)
            >>> found = ReportedSpans()
            >>> for first in (0, 0, 3):
            ...     found.add(first, [span, span], 3)
            >>> found.seen, found.track.dropped
            (5, 2)
        """
        new = tuple(spans)
        new = new[max(0, self.seen - first) :]
        self.seen = max(self.seen, first + len(new)) if first >= self.seen else self.seen + len(new)
        self.spans = (self.spans + new)[-most:] if most else ()

    @property
    def track(self) -> Track:
        """The spans as they are sent on."""
        dropped = self.seen - len(self.spans)
        return Track(self.name, self.spans, dropped, self.ahead, self.error)


class TraceRecorder:
    """Records spans while somebody looks. Thread-safe.

    Args:
        clock: returns the time of the spans, in seconds.
        wall: returns the seconds since 1970.
        lock: held while the spans are read or changed.
        most: maximum number of spans that are kept.

    Example:
        >>> from threading import Lock
        >>> recorder = TraceRecorder(lambda: 0.0, lambda: 1_000.0, Lock())
        >>> recorder.note(7, "", "making", 0.0, 2.0)
        >>> recorder.begin("trace", 1.5)
        >>> recorder.note(7, "", "making", -1.0, 2.0)
        >>> recorder.spans()
        (Span(task=7, row='', name='making', began=1000.0, seconds=1.5, numbers={}),)
    """

    def __init__(
        self,
        clock: Callable[[], float],
        wall: Callable[[], float],
        lock: AbstractContextManager[object],
        most: int = MOST_SPANS,
    ) -> None:
        self.clock, self._wall, self._lock, self._most = clock, wall, lock, most
        self.is_on = False
        self.trace = ""
        self._began = self._until = self._offset = 0.0
        self._noted = 0
        self._spans: deque[Span] = deque()
        self._rows: dict[tuple[int, str], float] = {}

    def begin(self, trace: str, seconds: float) -> None:
        """Begin a trace, and forget the one before.

        Args:
            trace: its name.
            seconds: its duration.
        """
        with self._lock:
            self.trace = trace
            self._began = self.clock()
            self._offset = self._wall() - self._began
            self._until = self._began + min(seconds, MOST_TRACE_SECONDS)
            self._spans = deque(maxlen=self._most)
            self._noted = 0
            self._rows = {}
            self.is_on = True

    @property
    def left(self) -> float:
        """Seconds until the end of the trace; 0 if it has ended."""
        return max(0.0, self._until - self.clock()) if self.is_on else 0.0

    def look(self, cut: Callable[[], None]) -> bool:
        """Return True if the trace has just ended.

        Args:
            cut: notes what lasts on at the end.
        """
        now = self.clock()
        if self.is_on and now >= self._until:
            cut()
            self.is_on = False
            return True
        if not self.is_on and self._spans and now >= self._until + KEPT:
            self.forget()
        return False

    def forget(self) -> None:
        """Forget the trace, and end it."""
        with self._lock:
            self.is_on, self.trace = False, ""
            self._spans, self._rows = deque(), {}

    # --- spans

    def note(
        self,
        task: int,
        row: str,
        name: str,
        since: float,
        until: float,
        numbers: Mapping[str, float] = NO_NUMBERS,
        merges: bool = False,
    ) -> None:
        """Record a span. The part that lies outside of the trace, or overlaps an
        earlier span of the row, is left out.

        Args:
            task: id of the task; 0 if it belongs to none.
            row: name of the row.
            name: name of the work, or of the wait.
            since: its beginning, by ``clock``.
            until: its end.
            numbers: counts and sizes that belong to it.
            merges: True to make one span with the span before it, if that has the same
                name.
        """
        with self._lock:
            if not self.is_on or since > self._until:
                return
            row, name = row[:MOST_LABEL], name[:MOST_LABEL]
            last = self._rows.get((task, row), self._began)
            since, until = max(since, last), min(until, self._until)
            if until - since < SHORTEST:
                return
            self._rows[task, row] = until
            merged = merges and since - last <= MERGED and self._merge(task, row, name, until)
            if not merged:
                self._append(task, row, name, since, until - since, dict(numbers))

    def mark(self, task: int, row: str, name: str, numbers: Mapping[str, float]) -> None:
        """Record an instant, which is now. See ``note``."""
        with self._lock:
            now = self.clock()
            if self.is_on and now <= self._until:
                self._append(task, row[:MOST_LABEL], name[:MOST_LABEL], now, 0.0, dict(numbers))

    def _merge(self, task: int, row: str, name: str, until: float) -> bool:
        """Lengthen the newest span if it is of this row and name, or one of the few
        before it is.
        """
        for at in range(1, 1 + min(len(self._spans), NEAR)):
            span = self._spans[-at]
            if (span.task, span.row) == (task, row):
                if span.name != name:
                    return False
                seconds = until + self._offset - span.began
                self._spans[-at] = Span(task, row, name, span.began, seconds, span.numbers)
                return True
        return False

    def _append(
        self,
        task: int,
        row: str,
        name: str,
        since: float,
        seconds: float,
        numbers: dict[str, float],
    ) -> None:
        self._spans.append(Span(task, row, name, since + self._offset, seconds, numbers))
        self._noted += 1

    def spans(self) -> tuple[Span, ...]:
        """Return the recorded spans that are kept."""
        with self._lock:
            return tuple(self._spans)

    @property
    def dropped(self) -> int:
        """Number of the oldest spans that were dropped."""
        return self._noted - len(self._spans)

    def take(self, most: int) -> tuple[int, tuple[Span, ...]]:
        """Remove the oldest spans. Return the number of spans before them, and them."""
        with self._lock:
            first = self._noted - len(self._spans)
            count = min(most, len(self._spans))
            return first, tuple(self._spans.popleft() for _ in range(count))

    # --- answers

    def answer(self, ask: RequestTrace, name: str) -> Message:
        """Return the answer to a request: the trace begins, goes on, or is sent.

        Args:
            ask: the request.
            name: name of this process for a person.
        """
        if ask.trace != self.trace:
            refusal = refusal_of(ask, self.left)
            if refusal is not None:
                return refusal
            self.begin(ask.trace, ask.seconds)
        if self.is_on:
            return TraceRecorded(ask.request, max(self.left, LEAST_LEFT))
        return page_of(ask, [Track(name, self.spans(), self.dropped)])


# --- the file


def render_trace(
    tracks: Sequence[Track], jobs: Mapping[int, str], missing: Mapping[str, str]
) -> dict[str, Any]:
    """Return a trace as a JSON-compatible dict.

    Args:
        tracks: the spans of each process, with the difference of its clock.
        jobs: names of the jobs of tasks.
        missing: processes that were not recorded, each with the reason.

    Example:
        >>> span = Span(7, "", "making elements", 100.0, 0.5)
        >>> track = Track("worker tcp://a:1", (span,), ahead=1.0)
        >>> found = render_trace([track], {7: "train"}, {})
        >>> [one for one in found["traceEvents"] if one["ph"] == "X"]
        ... # doctest: +NORMALIZE_WHITESPACE
        [{'ph': 'X', 'name': 'making elements', 'cat': 'zmqdata', 'pid': 5000000,
          'tid': 7, 'ts': 99000000.0, 'dur': 500000.0, 'args': {}}]
    """
    shifted = [_shifted(track) for track in tracks]
    arrivals = {
        (span.row, span.numbers.get("message")): span.began
        for track in shifted
        for span in track.spans
        if span.name == ARRIVED
    }
    events: list[dict[str, Any]] = []
    numbers = iter(range(FIRST_ROW, FIRST_ROW * 2))
    for pid, track in enumerate(shifted, FIRST_PID):
        events += _events(pid, track, jobs, arrivals, numbers)
    described = [
        {
            "pid": pid,
            "name": track.name,
            "clock_ahead_us": round(track.ahead * 1e6),
            "clock_error_us": round(track.error * 1e6),
            "spans": len(track.spans),
            "dropped_spans": track.dropped,
        }
        for pid, track in enumerate(tracks, FIRST_PID)
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        BASE: 0,
        "otherData": {"clock": CLOCK, "processes": described, "not_recorded": dict(missing)},
    }


def _shifted(track: Track) -> Track:
    """Return a track whose spans have the time of the local clock."""
    spans = tuple(structs.replace(one, began=one.began - track.ahead) for one in track.spans)
    return structs.replace(track, spans=spans)


def _events(
    pid: int,
    track: Track,
    jobs: Mapping[int, str],
    arrivals: Mapping[tuple[str, float | None], float],
    numbers: Iterator[int],
) -> Iterator[dict[str, Any]]:
    yield _named("process_name", pid, 0, name=track.name)
    yield _named("process_sort_index", pid, 0, sort_index=pid)
    rows: dict[Row, list[Span]] = defaultdict(list)
    for span in track.spans:
        if span.name == SENT and (span.row, span.numbers.get("message")) in arrivals:
            until = arrivals[span.row, span.numbers.get("message")]
            seconds = max(0.0, until - span.began)
            span = structs.replace(span, name=BLOCK, seconds=seconds)
        is_of_link = span.row.startswith(LINK)
        rows[0 if is_of_link else span.task, span.row].append(span)
    ordered = sorted(rows, key=lambda row: (row[1].startswith(LINK), row))
    at = 0
    for task, name in ordered:
        for lane, spans in enumerate(lanes(rows[task, name])):
            tid = task if task and not name else next(numbers)
            at += 1
            shown = _row_name(task, name, jobs) + (f" #{lane + 1}" if lane else "")
            yield _named("thread_name", pid, tid, name=shown)
            yield _named("thread_sort_index", pid, tid, sort_index=at)
            yield from (_event(pid, tid, span) for span in spans)


def lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """Return spans as rows in which none overlap, as the format wants.

    Example:
        >>> spans = [Span(0, "", "block", began, 1.0) for began in (0.0, 0.5, 1.0)]
        >>> [[span.began for span in lane] for lane in lanes(spans)]
        [[0.0, 1.0], [0.5]]
    """
    found: list[list[Span]] = []
    for span in sorted(spans, key=lambda one: one.began):
        for lane in found:
            if lane[-1].began + lane[-1].seconds <= span.began + NEGLIGIBLE:
                lane.append(span)
                break
        else:
            found.append([span])
    return found


def _row_name(task: int, name: str, jobs: Mapping[int, str]) -> str:
    if not task:
        return name
    job = f" of job {jobs[task]}" if task in jobs else ""
    return f"task {task}: {name}" if name else f"task {task}{job}"


def _named(what: str, pid: int, tid: int, **value: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": value}


def _event(pid: int, tid: int, span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {"ph": "X", "name": span.name, "cat": "zmqdata", "pid": pid, "tid": tid}
    found["ts"] = round(span.began * 1e6, 3)
    if span.name in (SENT, ARRIVED):
        found |= {"ph": "i", "s": "t"}
    else:
        found["dur"] = round(span.seconds * 1e6, 3)
    numbers = {
        name: int(value) if value.is_integer() else value for name, value in span.numbers.items()
    }
    if span.row.startswith(LINK):
        numbers["task"] = span.task
    return found | {"args": numbers}


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace of another program, such as one of torch's profiler, with the
    events of ours added at their time.

    Args:
        ours: our trace.
        theirs: the other trace. Its times count from its ``baseTimeNanoseconds``.

    Example:
        >>> ours = {"traceEvents": [{"ph": "X", "ts": 3.0}], "otherData": {}}
        >>> theirs = ours | {"baseTimeNanoseconds": 1000}
        >>> [one["ts"] for one in merged(ours, theirs)["traceEvents"]]
        [3.0, 2.0]
    """
    base = theirs.get(BASE, 0) / 1000
    moved = [
        one | {"ts": round(one["ts"] - base, 3)} if "ts" in one else one
        for one in ours["traceEvents"]
    ]
    return {
        **theirs,
        "traceEvents": [*theirs["traceEvents"], *moved],
        "otherData": {**theirs.get("otherData", {}), "zmqdata": ours["otherData"]},
    }
