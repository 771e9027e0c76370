"""Test the stopwatch and the meter of an attempt, on a clock that the test moves."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.iterators.ownthreads import QueueFill
from zmqdata.measures.sums import OperationCounts
from zmqdata.measures.trace import TraceRecorder
from zmqdata.messages import NodeTime
from zmqdata.worker.tasks.meter import (
    FOR_SPLITS,
    MOST_NODES,
    NAMES,
    AttemptObserver,
    Doing,
    NodeTimes,
    Stopwatch,
    TaskMeter,
)


class Hands:
    """A clock whose time the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FixedSpan:
    """A span that keeps what it is told."""

    traceparent = ""

    def __init__(self) -> None:
        self.told, self.errors = list[dict[str, Any]](), list[BaseException]()

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)

    def end(self, attributes: Mapping[str, Any]) -> None:
        self.told.append(dict(attributes))


class FixedSampler:
    """Sees one thread in one node."""

    def look(self) -> Counter[tuple[str, str]]:
        return Counter({("0", "map(f)"): 1})

    def queues(self) -> dict[tuple[str, str], QueueFill]:
        return {("", "prefetch(8)"): QueueFill(3, 8), ("0", "map(f)"): QueueFill(7, 8, True)}


def test_time_is_summed_by_what_keeps_the_attempt() -> None:
    """Making, waiting for readers, for splits and for the turn are summed apart, and
    nothing counts after the end.
    """
    watch = Stopwatch(0.0)
    watch.wait_for_split(1, 1.0)
    watch.wait_for_split(-1, 3.0)
    watch.turn(Doing.FOR_TURN, 4.0)
    watch.turn(Doing.MAKING, 6.0)
    watch.turn(Doing.FOR_READERS, 7.0)
    watch.turn(Doing.ENDED, 12.0)
    assert watch.times(50.0) == (12.0, 3.0, 5.0, 2.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.sampled_from([*Doing][:3]) | st.sampled_from([1, -1])),
        max_size=20,
    )
)
def test_stretches_are_the_time_that_is_summed(turns: list[tuple[float, Doing | int]]) -> None:
    """The stretches told one after the other have no gap, and those of a kind last as
    long as its sum.
    """
    told: list[tuple[str, float, float]] = []
    now, waits = 0.0, 0
    watch = Stopwatch(now, lambda *stretch: told.append(stretch))
    for seconds, turn in turns:
        now += seconds
        if isinstance(turn, Doing):
            watch.turn(turn, now)
        elif waits + turn >= 0:
            waits += turn
            watch.wait_for_split(turn, now)
    watch.cut(now + 1.0)
    watch.cut(now + 1.0)
    assert all(one[2] == other[1] for one, other in itertools.pairwise(told))
    assert (told[0][1], told[-1][2]) == (0.0, now + 1.0)
    sums = [
        sum(until - since for name, since, until in told if name == wanted)
        for wanted in (NAMES[Doing.MAKING], NAMES[Doing.FOR_READERS], FOR_SPLITS)
    ]
    assert sums == pytest.approx(watch.times(now + 1.0)[1:])


def test_an_attempt_is_recorded_while_its_worker_records() -> None:
    """Stretches and looks at nodes become spans of the task, and the end of the attempt
    ends them.
    """
    clock, output = Hands(), SimpleNamespace(made=7, moved=70)
    recorder, span = TraceRecorder(clock, lambda: 1_000.0, threading.Lock()), FixedSpan()
    meter = TaskMeter((5, 2), clock, output, AttemptObserver(recorder, span))
    meter.begin(FixedSampler(), OperationCounts({"mix/a": 2.0}))  # type: ignore[arg-type]  # it only looks
    clock.now = 1.0
    recorder.begin("t", 10.0)
    clock.now = 3.0
    meter.sample()
    meter.turn(Doing.FOR_READERS)
    clock.now = 4.0
    meter.end()
    clock.now = 5.0
    meter.cut()
    meter.end()
    found = [(one.task, one.row, one.name, one.seconds) for one in recorder.spans()]
    assert found == [
        (5, "0 map(f)", "map(f)", 2.0),
        (5, "", "making elements", 2.0),
        (5, "", "waiting for readers (credit)", 1.0),
    ]
    meter.fail(ValueError("x"))
    assert span.told[0] == {
        "elements": 7,
        "bytes": 70,
        "making_seconds": 3.0,
        "waiting_for_readers_seconds": 1.0,
        "waiting_for_splits_seconds": 0.0,
    }
    assert [str(error) for error in span.errors] == ["x"]


@pytest.mark.parametrize(("waits", "makes"), [(0, True), (1, False), (2, False)])
def test_a_pipeline_with_a_waiting_source_makes_nothing(waits: int, makes: bool) -> None:
    """The attempt counts as making unless any source waits for splits."""
    watch = Stopwatch(0.0)
    for _ in range(waits):
        watch.wait_for_split(1, 0.0)
    assert watch.is_making is makes


def test_nodes_get_the_time_between_looks() -> None:
    """Time since the last look goes to the node seen now, and only the time in which
    the pipeline made elements.
    """
    clock, output = Hands(), SimpleNamespace(made=0, moved=0)
    meter = TaskMeter((1, 2), clock, output)
    assert (meter.report(), meter.is_making) == (None, False)
    meter.sample()
    meter.begin(FixedSampler(), OperationCounts())  # type: ignore[arg-type]
    clock.now = 2.0
    meter.sample()
    meter.turn(Doing.FOR_READERS)
    clock.now = 5.0
    meter.sample()
    meter.turn(Doing.MAKING)
    clock.now = 6.0
    with meter.waiting_for_split():
        clock.now = 9.0
    output.made, output.moved = 7, 700
    meter.sample()
    meter.turn(Doing.ENDED)
    found = meter.report((0.5, 9.0))
    assert found is not None
    assert (found.task, found.attempt, found.linked) == (1, 2, (0.5, 9.0))
    assert (found.total.seconds, found.total.making) == (9.0, 3.0)
    assert (found.total.for_readers, found.total.for_splits) == (3.0, 3.0)
    assert (found.total.elements, found.total.nbytes) == (7.0, 700.0)
    assert [(node.label, node.total, node.queue) for node in found.nodes] == [
        ("prefetch(8)", 0.0, (3, 8)),
        ("map(f)", 3.0, (7, 8)),
    ]
    assert [node.held_up_recent > 0 for node in found.nodes] == [False, True]


def test_a_node_that_waits_gets_no_processor_seconds() -> None:
    """The seconds in which a processor works go to the nodes that are seen meanwhile,
    and no thread gets more than its own time. The other seconds they wait.
    """
    times = NodeTimes()
    waiting, computing = ("0", "map(fetch)"), ("1", "map(decode)")
    times.see({waiting: 3}, 1.0, processor=0.0)
    times.see({computing: 2}, 1.0, processor=5.0)
    times.see({waiting: 1, computing: 1}, 1.0, processor=1.0)
    found = {one.label: (one.total, one.waited_recent) for one in times.report(1.0)}
    assert found == {"map(fetch)": (4.0, 3.5), "map(decode)": (3.0, 0.5)}


def test_seconds_behind_a_slow_call_are_summed() -> None:
    """A node gets the seconds in which its queue is held up, of the recent ones."""
    times, name = NodeTimes(), ("0", "map(f)")
    for seconds, is_held_up in ((1.0, True), (2.0, False), (0.5, True)):
        times.note_queues({name: QueueFill(3, 4, is_held_up)}, seconds)
    (found,) = times.report(0.0)
    assert (found.queue, found.held_up_recent, found.total) == ((3, 4), 1.5, 0.0)
    (later,) = times.report(10.0)
    assert later.held_up_recent == 0.75


def test_a_report_names_a_limited_number_of_nodes() -> None:
    """A report has the nodes that took the most time, in their order."""
    times = NodeTimes()
    for number in range(MOST_NODES + 9):
        times.see({(f"{number:03}", "map(f)"): 1}, 1.0 + number)
    found = times.report(1.0)
    assert len(found) == MOST_NODES
    assert found[0] == NodeTime("009", "map(f)", 10.0, 10.0, 1, (0, 0), 10.0)
