"""Test the meter of a loop, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zmqdata.measures.meter import FAST, LoopMeter, MeteredIterator
from zmqdata.measures.situation import Situation
from zmqdata.measures.sums import RecentLoop, values_of
from zmqdata.messages import LoopSums


class Hands:
    """A clock whose time the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Input:
    """Elements that take a time each to come."""

    def __init__(self, clock: Hands, seconds: float, count: int) -> None:
        self._clock, self._seconds, self._left = clock, seconds, count

    def __call__(self) -> int:
        if not self._left:
            raise StopIteration
        self._left -= 1
        self._clock.now += self._seconds
        return self._left


def run(wait: float, step: float, count: int) -> tuple[LoopMeter, list[int]]:
    """Read ``count`` elements that take ``wait`` seconds to come, in steps of ``step``
    seconds.
    """
    clock = Hands()
    meter = LoopMeter(clock)
    taken = []
    for element in MeteredIterator(Input(clock, wait, count), meter):
        taken.append(element)
        clock.now += step
    return meter, taken


@pytest.mark.parametrize(("wait", "step"), [(0.5, 1.5), (0.001, 0.0), (0.0, 0.25)])
def test_waits_and_steps_are_told_apart(wait: float, step: float) -> None:
    """The meter knows the seconds of all waits but the first, and of all steps."""
    meter, taken = run(wait, step, 11)
    assert meter.first == wait
    expected = (10 * wait + 11 * step, 10 * wait, 11.0, 0.0)
    assert values_of(meter.sums()) == pytest.approx(expected)
    assert len(taken) == 11


def test_a_fast_loop_is_measured_now_and_then() -> None:
    """Most elements of a fast loop are not measured, and all are counted; the share of
    its waits is that of the measured elements.
    """
    meter, taken = run(FAST / 8, FAST / 4, 10_000)
    sums = meter.sums()
    assert taken == list(range(9_999, -1, -1))
    assert sums.elements == pytest.approx(10_000, abs=256)
    assert sums.waiting / sums.seconds == pytest.approx(1 / 3, rel=0.05)


def test_an_error_of_an_element_is_passed_on() -> None:
    """An error leaves the iterator as it was: the next call returns what follows."""
    clock = Hands()
    answers: Iterator[int | Exception] = iter([1, ValueError("bad"), 2])

    def take() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    metered = MeteredIterator(take, LoopMeter(clock))
    assert next(metered) == 1
    with pytest.raises(ValueError, match="bad"):
        next(metered)
    assert list(metered) == [2]


def test_a_wait_counts_while_it_lasts() -> None:
    """Somebody who looks while the loop waits sees the wait so far."""
    clock = Hands()
    meter = LoopMeter(clock)
    meter.ask()
    meter.give()
    meter.ask()
    clock.now = 3.0
    assert meter.sums().waiting == 3.0
    assert meter.measures(RecentLoop()).recent.waiting == 3.0


def test_before_the_first_element_there_is_nothing() -> None:
    """The wait for the first element is no wait of the loop: it is told apart."""
    clock = Hands()
    meter = LoopMeter(clock)
    meter.ask()
    clock.now = 9.0
    assert meter.sums() == LoopSums()
    meter.give()
    measures = meter.measures(RecentLoop(), elements=1, late=0.5)
    assert (measures.first, measures.total) == (9.0, LoopSums(0.0, 0.0, 1.0, 0.5))


class Reader:
    """A reader of the service that knows nothing."""

    def situation(self, recent: RecentLoop) -> Situation:
        return Situation(LoopSums())


def test_a_dropped_reader_is_forgotten() -> None:
    """A meter keeps no reader alive, and still knows that the loop is distributed."""
    meter, first, second = LoopMeter(lambda: 0.0), Reader(), Reader()
    assert not meter.is_distributed
    meter.add_reader("first", first)
    meter.add_reader("second", second)
    del first
    assert meter.readers == [("second", second)]
    del second
    assert meter.readers == []
    assert meter.is_distributed


class Odd:
    """An element that equals everything, or refuses to be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __hash__(self) -> int:
        return 0


def test_elements_are_not_compared() -> None:
    """A fast loop gets every element, whatever its ``==`` does."""
    clock = Hands()
    odd = Odd()
    left = iter([odd] * 1000)

    def take() -> Odd:
        clock.now += FAST / 10
        return next(left)

    assert sum(element is odd for element in MeteredIterator(take, LoopMeter(clock))) == 1000


def test_no_time_counts_after_the_end() -> None:
    """Sums stay as they are after the last element, and may go on with another."""
    clock = Hands()
    meter = LoopMeter(clock)
    metered = MeteredIterator(Input(clock, 0.5, 2), meter)
    assert list(metered) == [1, 0]
    sums = meter.sums()
    clock.now += 60.0
    with pytest.raises(StopIteration):
        next(metered)
    assert meter.sums() == sums
    meter.ask()
    clock.now += 1.0
    meter.give()
    assert meter.sums().waiting == sums.waiting + 1.0


def test_a_pause_of_the_loop_is_work() -> None:
    """The time since the last element counts for the loop while it lasts."""
    clock = Hands()
    meter = LoopMeter(clock)
    meter.ask()
    meter.give()
    clock.now = 8.0
    assert values_of(meter.sums()) == (8.0, 0.0, 1.0, 0.0)


def test_the_meter_of_a_reader_tells_of_the_loop_around_it() -> None:
    """If operations lie between, the measures of a reader include those of the loop."""
    clock = Hands()
    loop = LoopMeter(clock)
    reader = LoopMeter(clock, loop)
    for meter in (loop, reader):
        meter.ask()
        meter.give()
    loop.ask()
    clock.now = 2.0
    outer = reader.measures(RecentLoop()).outer
    assert outer is not None
    assert (outer.waiting, loop.measures(RecentLoop()).outer) == (2.0, None)


def test_the_reader_of_a_later_pass_tells_of_the_loop_since_it_began() -> None:
    """A loop over ``repeat`` has a reader for each pass, and what it did in passes
    before is not told again.
    """
    clock = Hands()
    loop = LoopMeter(clock)
    loop.ask()
    loop.give(30)
    clock.now = 5.0
    reader = LoopMeter(clock, loop)
    reader.ask()
    reader.give()
    loop.ask()
    clock.now = 7.0
    loop.give(4)
    found = reader.measures(RecentLoop())
    assert found.outer == found.outer_total
    assert found.outer is not None
    assert (found.outer.seconds, found.outer.waiting, found.outer.elements) == (2.0, 2.0, 4.0)


def test_the_pace_and_the_rest_of_a_loop_are_measured() -> None:
    """The measures have the pace of the loop, and how long it has taken nothing. If
    operations lie between, both are those of the loop itself, which is not idle while
    its reader is busy.
    """
    clock = Hands()
    loop = LoopMeter(clock)
    reader, recent = LoopMeter(clock, loop), RecentLoop()
    for _ in range(8):
        for meter in (loop, reader):
            meter.ask()
            meter.give()
        found = reader.measures(recent)
        clock.now += 1.0
    assert (found.pace, found.idle) == (1.0, 0.0)
    clock.now += 7.0
    assert reader.measures(recent).idle == 8.0
    reader.ask()
    clock.now += 1.0
    assert reader.measures(recent).idle == 0.0
    own = RecentLoop()
    assert (loop.measures(own).idle, loop.measures(own).pace) == (0.0, 0.0)
