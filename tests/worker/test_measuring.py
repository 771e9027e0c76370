"""Test that a worker measures the tasks that run, and reports them in turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zmqdata.messages import TaskMeasures, TaskSums
from zmqdata.testing.cluster import await_condition
from zmqdata.worker.measuring import AT_ONCE, REPORT, Measuring


class FixedMeter:
    """A meter that counts the looks at it."""

    def __init__(self, number: int, is_making: bool = True) -> None:
        self.number, self.is_making, self.looks = number, is_making, 0

    def sample(self) -> None:
        self.looks += 1

    def report(self, linked: tuple[float, float]) -> TaskMeasures | None:
        if self.number < 0:
            return None
        return TaskMeasures(self.number, 1, TaskSums(), TaskSums(), linked=linked)


def runners(*meters: FixedMeter) -> dict[tuple[int, int], Any]:
    return {(meter.number, 1): SimpleNamespace(meter=meter) for meter in meters}


def test_only_tasks_at_work_are_looked_at() -> None:
    """A task that waits costs nothing."""
    busy, idle = FixedMeter(1), FixedMeter(2, is_making=False)
    measuring = Measuring(runners(busy, idle), lambda key: (0.0, 0.0))
    try:
        await_condition(lambda: busy.looks >= 2, what="two looks")
    finally:
        measuring.close()
    assert idle.looks == 0


def test_each_task_is_reported_in_turn() -> None:
    """Each task is reported once in a period, some of many at a tick; a task that has
    not begun is not reported.
    """
    meters = [FixedMeter(number, is_making=False) for number in range(-1, 2 * AT_ONCE)]
    measuring = Measuring(runners(*meters), lambda key: (0.25, float(key[0])))
    measuring.close()
    told: list[int] = []
    for tick in range(4):
        found = list(measuring.reports(10.0 + tick * REPORT / 8))
        assert len(found) <= AT_ONCE
        told += [event.task for event in found]
        assert all(event.measures.linked == (0.25, float(event.task)) for event in found)
    assert sorted(told) == list(range(2 * AT_ONCE))
    assert len(list(measuring.reports(10.0 + REPORT))) > 0


@pytest.mark.parametrize("left", [{}, {(1, 1): SimpleNamespace(meter=FixedMeter(1))}])
def test_a_task_that_is_gone_is_forgotten(left: dict[tuple[int, int], Any]) -> None:
    """Nothing is kept of a task that the worker no longer hosts."""
    hosted = runners(FixedMeter(1, is_making=False), FixedMeter(2, is_making=False))
    measuring = Measuring(hosted, lambda key: (0.0, 0.0))
    measuring.close()
    assert len(list(measuring.reports(1.0))) == 2
    hosted.clear()
    hosted.update(left)
    assert [event.task for event in measuring.reports(9.0)] == [key[0] for key in left]
    assert set(measuring._reported) == set(left)
