"""Tests of ``zmqdata.measures.fields``: measures as the data of a status."""

from __future__ import annotations

from statistics import median_low

from hypothesis import given
from hypothesis import strategies as st

from zmqdata.measures import fields
from zmqdata.measures.fields import loop_fields, task_fields, unequal_loops
from zmqdata.messages import LoopMeasures, LoopSums, NodeTime, TaskMeasures, TaskSums


def test_what_has_ended_has_no_rates() -> None:
    """The last seconds of a task that has ended are over, and its totals stay."""
    sums = TaskSums(seconds=2.0, making=1.0, elements=10.0, nbytes=4.0)
    node = NodeTime("0", "map(f)", 1.0, 1.0)
    measures = TaskMeasures(1, 1, sums, sums, (node,), linked=(0.5, 9.0))
    running, ended = task_fields(measures), task_fields(measures, has_ended=True)
    assert (running["elements_per_second"], running["link_busy_share"]) == (5.0, 0.5)
    rates = {
        name: value for name, value in ended.items() if name not in ("nodes", "buffered_bytes")
    }
    assert set(rates.values()) == {0}
    assert ended["nodes"][0]["seconds"] == running["nodes"][0]["seconds"] == 1.0


def test_a_loop_behind_local_operations_is_shown_as_it_is() -> None:
    """Shares and steps are those of the loop, although its reader waits all the time,
    as with ``prefetch`` between them.
    """
    reader, outer = LoopSums(10.0, 9.0, 400.0), LoopSums(10.0, 1.0, 50.0)
    found = loop_fields(LoopMeasures(reader, reader, 0.5, outer=outer, outer_total=outer))
    assert (found["wait_share"], found["step_ms"], found["waited_seconds"]) == (0.1, 180.0, 1.0)
    assert found["elements"] == 400


@given(st.lists(st.integers(1, 5), min_size=2, max_size=9))
def test_the_median_of_the_others(values: list[int]) -> None:
    """The usual step is the lower median of the steps of all other loops."""
    for place, value in enumerate(values):
        others = values[:place] + values[place + 1 :]
        assert fields._median_of_others(sorted(values), value) == median_low(others)


def test_a_loop_without_measures_is_not_compared() -> None:
    """Only loops that have sent measures are compared with each other."""
    begun, fresh = {"elements": 9, "step_ms": 12.0}, {"elements": 0, "step_ms": 0.0}
    assert unequal_loops([fresh, begun]) == [0.0, 0.0]
    assert unequal_loops([begun]) == [0.0]
    assert unequal_loops([begun, fresh, fresh, {**begun, "step_ms": 24.0}]) == [0.0, 0.0, 0.0, 2.0]
