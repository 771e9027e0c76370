"""A timeline in the trace-event format, made of recorded spans. Perfetto and Chrome
open it.

A process is a process of the format, with its address as its name. A task is a thread
of it. The format is described in "Trace Event Format" by the authors of Chrome.

Decision 0046.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from zmqdata.measures.trace import ARRIVED, LINK, SENT
from zmqdata.messages import Span, Track

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

Row = tuple[int, str]
"""A row of a process: task, or 0, and name."""


def timeline(
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
        >>> found = timeline([track], {7: "train"}, {})
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


NEGLIGIBLE = 1e-6
"""Seconds by which neighbours may overlap, because numbers are rounded."""


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
    events of a timeline added at their time.

    Args:
        ours: the timeline.
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
