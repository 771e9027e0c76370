"""Tests of when an incomplete block is handed over to a client that waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zmqdata.worker.flushing import PAUSE, Flushes


class Runner:
    def __init__(self, number: int) -> None:
        self.key = (number, 1)
        self.flushed = 0

    def flush(self) -> None:
        self.flushed += 1


class Desk:
    """A clock that is moved, and the pending calls."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        self.flushes = Flushes(
            lambda wait, call: self.waiting.append((self.now + wait, call)), lambda: self.now
        )

    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [call for when, call in self.waiting if when <= self.now]
        self.waiting = [one for one in self.waiting if one[0] > self.now]
        for call in due:
            call()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_who_waits_after_a_while_waits_no_longer(desk: Desk) -> None:
    """The first flush of a task happens at once, as does each flush that comes long
    enough after the last.
    """
    runner = Runner(1)
    for count in range(1, 4):
        desk.flushes.ask(runner)
        assert (runner.flushed, desk.waiting) == (count, [])
        desk.wait(PAUSE)


def test_who_waits_again_at_once_waits_a_moment(desk: Desk) -> None:
    """Repeated requests are answered together after a moment, with all elements made
    meanwhile. Other tasks are not affected.
    """
    runner, other = Runner(1), Runner(2)
    desk.flushes.ask(runner)
    for _ in range(3):
        desk.wait(PAUSE / 4)
        desk.flushes.ask(runner)
    desk.flushes.ask(other)
    assert (runner.flushed, other.flushed, len(desk.waiting)) == (1, 1, 1)
    desk.wait(PAUSE / 2)
    assert (runner.flushed, desk.waiting) == (2, [])
    desk.flushes.ask(runner)
    assert runner.flushed == 2
    desk.wait(PAUSE)
    assert runner.flushed == 3


def test_a_task_that_was_stopped_is_left_alone(desk: Desk) -> None:
    """A stopped task leaves no record and is not flushed any more. Its next attempt
    begins anew.
    """
    runner = Runner(1)
    desk.flushes.ask(runner)
    desk.flushes.ask(runner)
    desk.flushes.forget(runner.key)
    desk.wait(PAUSE)
    assert runner.flushed == 1
    desk.flushes.ask(runner)
    assert runner.flushed == 2
