"""Test the timeline that is made of recorded spans."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata.measures.timeline import lanes, merged, timeline
from zmqdata.measures.trace import ARRIVED, SENT, block_numbers, link_row

ROW = link_row("secret-1")
HEADER = m.Block(1, 7, 2, 100, 16, 0, 4096)


def mark(name: str, began: float, number: int = 1) -> m.Span:
    numbers = block_numbers(m.Block(number, 7, 2, 100, 16, 0, 4096))
    return m.Span(7, ROW, name, began, 0.0, numbers)


def named(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [one for one in trace["traceEvents"] if one["name"] == name]


def test_a_block_travels_from_its_worker_to_its_client() -> None:
    """The two instants of a block become a span on the worker's row, by one clock."""
    worker = m.Track("worker tcp://a:1", (mark(SENT, 103.0),), ahead=3.0, error=0.01)
    client = m.Track("client", (mark(ARRIVED, 95.25),), ahead=-5.0, error=0.02)
    found = timeline([worker, client], {7: "train"}, {})
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
    found = timeline([worker, client], {}, {})
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
    found = timeline([m.Track("worker tcp://a:1", made)], {7: "train"}, {"worker b": "gone"})
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
    """Events of torch's profiler and a timeline lie at the same time in a merged
    file.
    """
    path = tmp_path / "torch.json"
    # In a process of its own, because the profiler's threads stay.
    command = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    began, ended = map(float, done.stdout.split())
    theirs = json.loads(path.read_text())
    ours = timeline([m.Track("w", (m.Span(7, "", "making", began, ended - began),))], {}, {})
    whole = merged(ours, theirs)
    assert len(whole["traceEvents"]) == len(theirs["traceEvents"]) + len(ours["traceEvents"])
    [inner] = named(whole, "mine")
    [outer] = named(whole, "making")
    assert outer["ts"] - 1000 <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1000
