"""Test traces: recorded on simulated time, in pages, gathered from reports, and as a
file.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata.measures.trace import (
    ARRIVED,
    KEPT,
    SENT,
    ReportedSpans,
    TraceRecorder,
    block_numbers,
    lanes,
    link_row,
    merged,
    page_of,
    render_trace,
)
from zmqdata.testing.clock import Clock

WALL = 1_000_000.0
ROW = link_row("secret-1")
HEADER = m.Block(1, 7, 2, 100, 16, 0, 4096)


def recorder(clock: Clock, most: int = 100) -> TraceRecorder:
    return TraceRecorder(lambda: clock.now, lambda: WALL + clock.now, threading.Lock(), most)


def test_nothing_is_recorded_by_default() -> None:
    """A recorder that was not begun, or has ended, keeps nothing."""
    clock = Clock()
    one = recorder(clock)
    one.note(1, "", "making", 0.0, 1.0)
    one.mark(1, "", "sent", {})
    assert (one.is_on, one.spans(), one.left) == (False, (), 0.0)
    one.begin("t", 1.0)
    clock.now += 1.0
    assert one.look(lambda: None)
    one.note(1, "", "making", clock.now - 0.5, clock.now)
    assert (one.is_on, one.spans()) == (False, ())


def test_spans_end_with_the_trace() -> None:
    """A span that begins before a trace, or ends after it, is cut; what lasts on at
    the end is noted once.
    """
    clock = Clock()
    one = recorder(clock)
    clock.now += 10.0
    began = clock.now
    one.begin("t", 2.0)
    one.note(1, "", "early", began - 5.0, began + 0.5)
    clock.now += 2.5
    one.mark(1, "link", "sent", {})
    assert one.look(lambda: one.note(1, "", "late", began + 1.0, clock.now))
    one.note(1, "", "late", began + 1.0, clock.now)
    assert [(span.name, span.began - WALL, span.seconds) for span in one.spans()] == [
        ("early", began, 0.5),
        ("late", began + 1.0, 1.0),
    ]
    assert not one.look(lambda: None)
    clock.now += KEPT
    assert not one.look(lambda: None)
    assert (one.spans(), one.trace) == ((), "")


def test_neighbours_of_one_name_are_one_span() -> None:
    """Consecutive looks at a node become a span; a gap or another name begins a new
    one, and so does a span of another task.
    """
    clock = Clock()
    one = recorder(clock)
    one.begin("t", 10.0)
    begins = clock.now
    for name, since, until in (
        ("a", 0.0, 1.0),
        ("a", 1.001, 2.0),
        ("b", 2.0, 3.0),
        ("b", 4.0, 5.0),
    ):
        one.note(1, "node", name, begins + since, begins + until, merges=True)
        one.note(2, "node", name, begins + since, begins + until)
    found = [(span.name, round(span.seconds, 6)) for span in one.spans() if span.task == 1]
    assert found == [("a", 2.0), ("b", 1.0), ("b", 1.0)]
    assert len([span for span in one.spans() if span.task == 2]) == 4


def test_memory_is_bounded() -> None:
    """The oldest spans are dropped and counted, and a reader of the queue sees the
    gap.
    """
    clock = Clock()
    one = recorder(clock, most=3)
    one.begin("t", 100.0)
    for at in range(5):
        one.note(1, "", str(at), clock.now + at, clock.now + at + 1)
    assert ([span.name for span in one.spans()], one.dropped) == (["2", "3", "4"], 2)
    first, spans = one.take(2)
    assert (first, [span.name for span in spans]) == (2, ["2", "3"])
    first, spans = one.take(2)
    assert (first, [span.name for span in spans]) == (4, ["4"])
    assert one.take(2)[1] == ()


def test_a_request_may_be_repeated() -> None:
    """A repeated request begins nothing anew; another is refused meanwhile; the spans
    are sent in pages, as often as they are requested.
    """
    clock = Clock()
    one = recorder(clock, most=m.MOST_SPANS_TOLD + 100)
    ask = m.RequestTrace("r", "t", 5.0)
    assert one.answer(ask, "w") == m.TraceRecorded("r", 5.0)
    begins = clock.now
    for at in range(m.MOST_SPANS_TOLD + 1):
        one.note(1, "", str(at), begins + at / 1000, begins + (at + 1) / 1000)
    clock.now += 2.0
    again = one.answer(ask, "w")
    assert isinstance(again, m.TraceRecorded)
    assert (again.left, again.tracks) == (3.0, ())
    other = one.answer(m.RequestTrace("r", "u", 5.0), "w")
    assert isinstance(other, m.RequestRefused)
    assert other.error == "ResourceExhaustedError"
    clock.now += 3.0
    one.look(lambda: None)
    found: list[str] = []
    for _ in range(2):
        page = one.answer(m.RequestTrace("r", "t", first=len(found)), "w")
        assert page == one.answer(m.RequestTrace("r", "t", first=len(found)), "w")
        assert isinstance(page, m.TraceRecorded)
        assert (page.left, page.total) == (0.0, m.MOST_SPANS_TOLD + 1)
        found += [span.name for track in page.tracks for span in track.spans]
    assert found == [str(at) for at in range(m.MOST_SPANS_TOLD + 1)]
    unknown = one.answer(m.RequestTrace("r", "v"), "w")
    assert isinstance(unknown, m.RequestRefused)
    assert unknown.error == "NotFoundError"
    assert isinstance(one.answer(m.RequestTrace("r", "v", 1.0), "w"), m.TraceRecorded)
    assert one.spans() == ()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2),
            st.floats(-2, 12),
            st.floats(-2, 12),
            st.booleans(),
            st.sampled_from("ab"),
        )
    )
)
def test_spans_of_a_row_never_overlap(
    noted: list[tuple[int, float, float, bool, str]],
) -> None:
    """In whatever order spans are noted, those of a row follow each other, within the
    trace.
    """
    clock = Clock()
    one = recorder(clock)
    one.begin("t", 10.0)
    begins = clock.now
    for task, since, until, merges, name in noted:
        one.note(task, "", name, begins + since, begins + until, merges=merges)
    for task in (1, 2):
        found = [span for span in one.spans() if span.task == task]
        assert all(a.began + a.seconds <= b.began + 1e-6 for a, b in itertools.pairwise(found))
        assert all(begins - 1e-6 <= span.began - WALL for span in found)
        assert all(span.began - WALL + span.seconds <= begins + 10 + 1e-6 for span in found)
        assert all(span.seconds > 0 for span in found)


# --- pages and reports


def spans(first: int, count: int) -> tuple[m.Span, ...]:
    return tuple(m.Span(at, "", str(at), 0.0, 1.0) for at in range(first, first + count))


@given(st.lists(st.integers(0, 3_000), max_size=5))
def test_pages_have_each_span_once(sizes: list[int]) -> None:
    """A reader that asks for page after page gets all spans of all processes."""
    tracks = [m.Track(str(at), spans(0, size), dropped=at) for at, size in enumerate(sizes)]
    found: list[list[m.Span]] = [[] for _ in tracks]
    first = 0
    while first < sum(sizes):
        page = page_of(m.RequestTrace("r", "t", first=first), tracks)
        count = sum(len(track.spans) for track in page.tracks)
        assert (page.total, 0 < count <= m.MOST_SPANS_TOLD) == (sum(sizes), True)
        first += count
        for at, track in enumerate(page.tracks):
            assert (track.name, track.dropped) == (str(at), at)
            found[at] += track.spans
    assert [tuple(one) for one in found] == [track.spans for track in tracks]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12))
def test_reports_count_once(reports: list[tuple[int, int]]) -> None:
    """Reports may be lost, repeated and late: each known span is there once, and what
    is missing counts as dropped.
    """
    one = ReportedSpans()
    expected: list[int] = []
    for first, count in reports:
        fresh = range(max(first, expected[-1] + 1 if expected else 0, one.seen), first + count)
        one.add(first, spans(first, count), 1_000)
        expected += fresh
    assert [span.task for span in one.spans] == expected
    assert one.track.dropped == one.seen - len(expected)


def test_the_newest_reported_spans_are_kept() -> None:
    """The oldest of too many spans are dropped."""
    one = ReportedSpans()
    one.add(0, spans(0, 5), 4)
    one.add(5, spans(5, 2), 4)
    assert [span.task for span in one.spans] == [3, 4, 5, 6]
    assert one.track.dropped == 3
    one.add(7, spans(7, 2), 0)
    assert (one.spans, one.track.dropped) == ((), 9)


# --- the file


def mark(name: str, began: float, number: int = 1) -> m.Span:
    numbers = block_numbers(m.Block(number, 7, 2, 100, 16, 0, 4096))
    return m.Span(7, ROW, name, began, 0.0, numbers)


def named(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [one for one in trace["traceEvents"] if one["name"] == name]


def test_a_block_travels_from_its_worker_to_its_client() -> None:
    """The two instants of a block become a span on the worker's row, by one clock."""
    worker = m.Track("worker tcp://a:1", (mark(SENT, 103.0),), ahead=3.0, error=0.01)
    client = m.Track("client", (mark(ARRIVED, 95.25),), ahead=-5.0, error=0.02)
    found = render_trace([worker, client], {7: "train"}, {})
    [block] = named(found, "block")
    assert (block["ph"], block["ts"], block["dur"]) == ("X", 100e6, 0.25e6)
    assert block["args"] == {
        "task": 7,
        "attempt": 2,
        "message": 1,
        "first": 100,
        "elements": 16,
        "bytes": 4096,
    }
    [arrived] = named(found, ARRIVED)
    assert (arrived["ph"], arrived["ts"], arrived["pid"] != block["pid"]) == ("i", 100.25e6, True)
    assert [one["clock_error_us"] for one in found["otherData"]["processes"]] == [10_000, 20_000]
    assert "secret" not in json.dumps(found)


def test_a_block_that_arrives_before_it_was_sent_takes_no_time() -> None:
    """An error of the clocks makes no negative duration; a block without an arrival
    stays an instant.
    """
    worker = m.Track("worker", (mark(SENT, 100.0), mark(SENT, 101.0, 2)))
    client = m.Track("client", (mark(ARRIVED, 99.9),))
    found = render_trace([worker, client], {}, {})
    assert [one["dur"] for one in named(found, "block")] == [0.0]
    assert [one["ph"] for one in named(found, SENT)] == ["i"]


def test_processes_and_tasks_have_their_names() -> None:
    """A worker is a process with its address, a task a thread with its job; each node
    has a row below its task.
    """
    made = (
        m.Span(7, "", "making elements", 1.0, 0.5),
        m.Span(7, "0 map(f)", "map(f)", 1.0, 0.5),
        m.Span(0, "loop", "step", 1.0, 0.5),
    )
    found = render_trace([m.Track("worker tcp://a:1", made)], {7: "train"}, {"worker b": "gone"})
    assert found["otherData"]["not_recorded"] == {"worker b": "gone"}
    assert [one["args"]["name"] for one in named(found, "process_name")] == ["worker tcp://a:1"]
    rows = {one["tid"]: one["args"]["name"] for one in named(found, "thread_name")}
    assert rows[7] == "task 7 of job train"
    assert set(rows.values()) == {"loop", "task 7 of job train", "task 7: 0 map(f)"}
    spans = [one for one in found["traceEvents"] if one["ph"] == "X"]
    assert {rows[one["tid"]] for one in spans} == set(rows.values())
    assert json.loads(json.dumps(found)) == found


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=30))
def test_spans_of_a_lane_do_not_overlap(times: list[tuple[float, float]]) -> None:
    """Blocks that are under way together are placed on rows beside each other, and none
    is lost.
    """
    spans = [m.Span(at, ROW, "block", *one) for at, one in enumerate(times)]
    found = lanes(spans)
    assert sorted(span.task for lane in found for span in lane) == list(range(len(spans)))
    for lane in found:
        for one, other in itertools.pairwise(lane):
            assert one.began + one.seconds <= other.began + 2e-6


PROGRAM = """
import sys, time, torch
began = time.time()
with torch.profiler.profile() as profile, torch.profiler.record_function("mine"):
    torch.ones(1) + 1
print(began, time.time())
profile.export_chrome_trace(sys.argv[1])
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_trace_of_torch_is_on_the_same_clock(tmp_path: Path) -> None:
    """Events of torch's profiler and ours lie at the same time in a merged
    file.
    """
    path = tmp_path / "torch.json"
    # In a process of its own, because the profiler's threads stay.
    command = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    began, ended = map(float, done.stdout.split())
    theirs = json.loads(path.read_text())
    ours = render_trace([m.Track("w", (m.Span(7, "", "making", began, ended - began),))], {}, {})
    whole = merged(ours, theirs)
    assert len(whole["traceEvents"]) == len(theirs["traceEvents"]) + len(ours["traceEvents"])
    [inner] = named(whole, "mine")
    [outer] = named(whole, "making")
    assert outer["ts"] - 1000 <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1000
