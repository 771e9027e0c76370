"""Test how a worker estimates the speed of a link from the counts of its connection
(``zmqdata.core.worker.speeds``).
"""

from __future__ import annotations

import math

import pytest

from zmqdata.core.worker.speeds import GROWTH, LinkSpeed, task_speed


class Counted:
    """A connection with its counts, checked four times a second."""

    def __init__(self) -> None:
        self.speed = LinkSpeed()
        self.now = self.sent = self.busy = 0.0
        self.look(0, 0)

    def look(self, rate: float, share: float) -> float | None:
        """Send at a rate during a share of the next quarter of a second, and return the
        estimated speed.
        """
        self.now += 0.25
        self.busy += 0.25 * share
        self.sent += rate * 0.25 * share
        self.speed.observe(self.now, round(self.sent), self.busy)
        return self.speed.bytes_per_second


def test_a_busy_connection_tells_the_speed() -> None:
    """The speed is the rate during the time in flight, and the estimate follows another
    rate soon.
    """
    link = Counted()
    assert link.look(1e8, 1.0) == pytest.approx(1e8)
    assert link.look(1.2e9, 0.9) == pytest.approx(6.5e8)
    for _ in range(10):
        link.look(1.2e9, 1.0)
    assert link.look(1.2e9, 1.0) == pytest.approx(1.2e9, rel=0.01)


def test_an_idle_connection_tells_nothing() -> None:
    """The speed stays the same while little is in flight, for a while or always."""
    link = Counted()
    assert [link.look(1e8, 0.3), link.look(0, 0), link.look(0, 1.0)] == [None, None, None]
    link.look(1e8, 1.0)
    assert [link.look(1e6, 0.2), link.look(0, 0)] == pytest.approx([1e8, 1e8])


def test_bursts_are_believed_little_by_little() -> None:
    """A connection with pauses raises the speed by steps, at most to its own rate."""
    link = Counted()
    link.look(1e8, 1.0)
    assert link.look(1e10, 0.3) == pytest.approx(1e8 * GROWTH)
    for _ in range(200):
        link.look(1e9, 0.3)
    assert link.look(1e9, 0.3) == pytest.approx(1e9, rel=1e-3)


def test_a_new_connection_begins_anew() -> None:
    """Counts that decrease belong to a new connection, and the speed of the link stays
    known.
    """
    link = Counted()
    link.look(1e8, 1.0)
    link.sent = link.busy = 0.0
    assert link.look(1e6, 1.0) == pytest.approx(1e8)
    assert link.look(2e8, 1.0) == pytest.approx(1.5e8)


def test_the_speed_of_a_task_is_that_of_its_readers_together() -> None:
    """Shared elements flow at the sum of speeds, equal parts at the slowest and copies
    at the fastest; no reader sets no bound.
    """
    speeds = [1e8, 3e8]
    assert [
        task_speed(speeds),
        task_speed(speeds, numbered=True),
        task_speed(speeds, cached=True),
    ] == [4e8, 2e8, 3e8]
    assert [task_speed([]), task_speed([1e8, math.inf])] == [math.inf, math.inf]
    assert task_speed([1e8, math.inf], numbered=True) == 2e8
