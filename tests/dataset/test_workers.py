"""Test the advice on a pipeline that workers run."""

from __future__ import annotations

import pytest

from zmqdata.dataset import workers
from zmqdata.dataset.workers import WorkerWatch, advice_on_workers, slow_workers
from zmqdata.iterators.watching import OUTSIDE, WAITS_FOR_READERS, WAITS_FOR_SPLITS
from zmqdata.nodes import Activity, Range, TaskActivity
from zmqdata.testing.cluster import await_condition


def tasks(seen: dict[str, int], made: tuple[int, ...] = (9, 9, 9)) -> list[TaskActivity]:
    return [TaskActivity(f"tcp://w{number}:1", seen, one) for number, one in enumerate(made)]


@pytest.mark.parametrize(
    ("seen", "each", "advice"),
    [
        (
            {"map(slow) at x.py:1": 9, OUTSIDE: 1},
            0.01,
            "most often with map(slow) at x.py:1 (90 % of the time). Add workers, or make "
            "map(slow) faster. If it waits rather than computes, num_parallel_calls=AUTOTUNE",
        ),
        ({"filter(f) at x.py:1": 9}, 0.01, "Add workers, or make filter(f) faster."),
        ({"from_generator(g) at x.py:1": 9}, 0.01, "Make the generator faster, or use files"),
        ({"map(slow)": 4, WAITS_FOR_READERS: 6}, 0.01, "The workers wait for this process"),
        ({"map(slow)": 4, WAITS_FOR_READERS: 3, OUTSIDE: 3}, 0.01, "most often with map(slow)"),
        ({OUTSIDE: 9, "map(slow)": 1}, 0.01, "profile() the dataset before distribute()"),
        ({WAITS_FOR_SPLITS: 9, OUTSIDE: 1}, 0.01, "Use more and smaller files"),
        ({OUTSIDE: 9, "map(light)": 1}, 2e-6, "batch() before distribute(), or a larger batch"),
        ({WAITS_FOR_READERS: 9, "map(light)": 1}, 2e-6, "batch() before distribute()"),
        ({"map(light)": 9}, 2e-6, "most often with map(light)"),
        ({}, 2e-6, "batch() before distribute()"),
        ({}, 0.01, "The run was too short to see what the workers do"),
    ],
)
def test_the_advice_for_workers_follows_what_they_do(
    seen: dict[str, int], each: float, advice: str
) -> None:
    """If workers are busy, more of them or a faster function help; if they wait, what
    they wait for has to change; if elements are small, there should be fewer.
    """
    assert advice in advice_on_workers(tasks(seen), each)


def test_a_slow_worker_is_named() -> None:
    """A worker that takes much longer for an element than the others is named, unless
    it waits.
    """
    busy = {"map(slow)": 9}
    assert "tcp://w2:1 (10 times)" in advice_on_workers(tasks(busy, (100, 110, 10)), 0.01)
    assert slow_workers(tasks(busy, (100, 110, 50))) == slow_workers(tasks(busy, (10,))) == {}
    waits = TaskActivity("tcp://w3:1", {WAITS_FOR_SPLITS: 9, "map(slow)": 1}, 9)
    assert slow_workers([*tasks(busy, (100, 110)), waits]) == {}
    stuck = TaskActivity("tcp://w3:1", {"map(slow)": 9}, 0)
    assert list(slow_workers([*tasks(busy, (100, 110)), stuck])) == ["tcp://w3:1"]


class _Elsewhere(Range):
    @property
    def runs_elsewhere(self) -> bool:
        return True

    def activity(self) -> Activity:
        answers: list[Activity] = _ANSWERS
        return answers.pop(0) if answers else {}


_ANSWERS: list[Activity] = []


def test_what_workers_were_at_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer about each attempt of a task counts, also if later answers lack
    it; nodes that run here are not asked.
    """
    monkeypatch.setattr(workers, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(workers, "EVERY", 0.001)
    (early, late, other) = tasks({"map(f)": 1})
    _ANSWERS[:] = [{(1, 1): early}, {(1, 1): late, (1, 2): other}]
    there, here = _Elsewhere(start=0, stop=3), Range(start=0, stop=3)
    watch = WorkerWatch([there, here])
    await_condition(lambda: not _ANSWERS, what="both answers")
    watch.end()
    watch.end()
    assert watch.of(there) == [late, other]
    assert watch.of(here) == []
