"""Test sums in which the last seconds count most."""

from __future__ import annotations

import pytest

from zmqdata.measures.sums import (
    HALVED,
    MOST_COUNTS,
    OperationCounts,
    Recent,
    RecentLoop,
    added,
    kept,
    values_of,
)
from zmqdata.messages import LoopSums, TaskSums


def test_recent_sums_halve() -> None:
    """A sum counts half after ``HALVED`` seconds, and what came since in full."""
    recent = Recent(2)
    assert recent.look(0.0, (0.0, 0.0)) == (0.0, 0.0)
    assert recent.look(1.0, (4.0, 1.0)) == (4.0, 1.0)
    assert recent.look(1.0 + HALVED, (6.0, 1.0)) == (4.0, 0.5)


def test_recent_sums_never_shrink_below_zero() -> None:
    """A total that is smaller than before, as of two racing threads, adds nothing."""
    recent = Recent(1)
    recent.look(0.0, (5.0,))
    assert recent.look(0.0, (4.0,)) == (5.0,)


@pytest.mark.parametrize("seconds", [-1.0, 0.0])
def test_nothing_fades_without_time(seconds: float) -> None:
    """A clock that goes back, or stands still, lets nothing fade."""
    assert kept(seconds) == 1.0


def test_sums_are_added_by_field() -> None:
    """Sums of tasks are added by field, and no sums are nothing."""
    both = added([TaskSums(1.0, 2.0, elements=3.0), TaskSums(1.0, nbytes=7.0)], TaskSums())
    assert values_of(both) == (2.0, 2.0, 0.0, 0.0, 3.0, 7.0)
    assert added([], LoopSums()) == LoopSums()


class WatchedLoop:
    """A loop whose sums are looked at four times a second."""

    def __init__(self) -> None:
        self.recent = RecentLoop()
        self.now = 0.0
        self._waited = self._worked = self._taken = 0.0

    def take(self, wait: float, work: float, times: int = 1) -> None:
        """Wait for an element and work on it, several times."""
        for _ in range(times):
            self._pass(wait, waited=wait)
            self._taken += 1
            self._pass(work, worked=work)

    def _pass(self, seconds: float, waited: float = 0.0, worked: float = 0.0) -> None:
        waited_before, worked_before, before = self._waited, self._worked, self.now
        for part in (*(at / 4 / seconds for at in range(int(4 * seconds))), 1.0):
            self.now = before + part * seconds
            self._waited = waited_before + part * waited
            self._worked = worked_before + part * worked
            sums = (self._waited + self._worked, self._waited, self._taken, 0.0)
            self.recent.look(self.now, sums)


@pytest.mark.parametrize(("wait", "work"), [(0.01, 0.1), (1.5, 0.25), (0.5, 3.0), (0.0, 0.005)])
def test_the_pace_is_the_time_of_a_step(wait: float, work: float) -> None:
    """The pace is what the loop takes itself for an element, whatever it waits; it is
    unknown at the first element.
    """
    loop = WatchedLoop()
    loop.take(wait or 0.001, work)
    assert loop.recent.pace == 0.0
    loop.take(wait or 0.001, work, times=1 + int(4 / work))
    assert loop.recent.pace == pytest.approx(work, rel=0.1)


@pytest.mark.parametrize(("before", "after"), [(0.1, 0.02), (0.1, 0.4), (1.5, 0.1), (0.1, 1.0)])
def test_a_change_of_pace_shows_within_five_seconds(before: float, after: float) -> None:
    """Four seconds after the steps have become longer or shorter, the pace is that of
    the new ones, and a heartbeat tells it in the fifth.
    """
    loop = WatchedLoop()
    loop.take(0.001, before, times=int(20 / before))
    loop.take(0.001, after, times=int(4 / after))
    assert loop.recent.pace == pytest.approx(after, rel=0.15)


def test_a_pause_changes_no_pace() -> None:
    """A minute in which a loop takes nothing is a single piece of its time, and the
    pace afterwards is as before.
    """
    loop = WatchedLoop()
    loop.take(0.001, 0.1, times=100)
    loop.take(0.001, 60.0)
    loop.take(0.001, 0.1, times=10)
    assert loop.recent.pace == pytest.approx(0.1, rel=0.1)


def test_a_loop_is_idle_while_it_neither_takes_nor_waits() -> None:
    """A loop is idle since it took its last element, and not while it waits for one, or
    for its first.
    """
    loop = WatchedLoop()
    loop.recent.look(5.0, (0.0, 0.0, 0.0, 0.0))
    assert loop.recent.idle == 0.0
    loop = WatchedLoop()
    loop.take(0.5, 30.0)
    assert loop.recent.idle == pytest.approx(30.0)
    loop.take(20.0, 0.25)
    assert loop.recent.idle == pytest.approx(0.25)


def test_a_tally_has_a_limit_of_names() -> None:
    """Names beyond the limit are counted together, and nothing is left out."""
    counts = OperationCounts()
    for number in range(MOST_COUNTS + 5):
        counts.add(f"mix/{number}", 2.0)
    counts.add("mix/0")
    assert (len(counts), counts["mix/0"], counts["mix/others"]) == (MOST_COUNTS + 1, 3.0, 10.0)
