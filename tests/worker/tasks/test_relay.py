"""Tests of how tasks take turns: which task continues next, and how far."""

from __future__ import annotations

import itertools
import queue
import threading

import pytest

from tests.definitions import changed, define
from zmqdata.core.credit import FEW_BYTES
from zmqdata.worker.tasks.output import BLOCK_BYTES, FEW_ELEMENTS
from zmqdata.worker.tasks.relay import (
    LONGEST,
    LONGEST_ALONE,
    MOST_ELEMENTS,
    WORK,
    Relay,
    Relays,
    Stint,
)

PATIENCE = 10.0
DEFINITION = define(1, 1, 7, "dataset", "digest", "DYNAMIC", 9, None, (), (), num_consumers=1)


class Task:
    """A task that makes an element in each turn, up to ``last``, and may pause within
    an element until the test releases it.
    """

    def __init__(
        self, track: Track, name: str, number: int = 0, last: int = 1 << 30, allowed: int = 1 << 30
    ) -> None:
        self.track, self.name = track, name
        self.number, self.last, self.allowed = number, last, allowed
        self.stays = False
        self.let_go = threading.Event()

    def may_go_on(self) -> bool:
        return self.number < self.allowed

    def go_on(self) -> bool:
        self.track.ran.put((self.name, threading.get_ident()))
        if self.stays:
            assert self.let_go.wait(PATIENCE)
        self.number += 1
        return self.number >= self.last


class Track:
    """A relay, and a record of which task had a turn in which thread."""

    def __init__(self) -> None:
        self.relay = Relay()
        self.ran: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()

    def turns(self, count: int) -> list[str]:
        """Return the tasks that had the next turns."""
        return [self.ran.get(timeout=PATIENCE)[0] for _ in range(count)]

    def add(self, name: str, *limits: int, stays: bool = False) -> Task:
        task = Task(self, name, *limits)
        task.stays = stays
        self.relay.add(task)
        return task


def test_the_task_that_has_made_least_goes_on() -> None:
    """The task with the fewest elements continues, however long others wait, as its
    elements are needed first. All continue in the thread of the previous turn.
    """
    track = Track()
    first = track.add("a", 0, 1, stays=True)
    assert track.turns(1) == ["a"]
    for name, number in (("b", 30), ("c", 10), ("d", 20)):
        track.add(name, number, number + 1)
    first.let_go.set()
    assert track.turns(3) == ["c", "d", "b"]


def test_one_thread_carries_all_on() -> None:
    """A single thread carries all tasks while none of them is stuck."""
    track = Track()
    tasks = [track.add(name, 0, 100, 50) for name in "abc"]
    found = [track.ran.get(timeout=PATIENCE) for _ in range(150)]
    for task in tasks:
        task.allowed = 100
    track.relay.wake(tasks[0])
    found = [track.ran.get(timeout=PATIENCE) for _ in range(50)]
    assert len(set(found)) == 1
    for task in tasks[1:]:
        track.relay.wake(task)
    assert len({thread for _, thread in (track.ran.get(timeout=PATIENCE) for _ in range(100))}) <= 2


def test_a_task_rests_until_it_may_go_on() -> None:
    """A resting task is woken when it may continue. Waking changes nothing for a task
    that still may not continue, or does not rest.
    """
    track = Track()
    task = track.add("a", 0, 9, 2)
    assert track.turns(2) == ["a", "a"]
    other = track.add("b", 0, 1)
    assert track.turns(1) == ["b"]
    track.relay.wake(task)
    track.relay.wake(other)
    task.allowed = 3
    track.relay.wake(task)
    assert track.turns(1) == ["a"]
    assert track.ran.empty()


def test_who_is_stuck_is_left_behind() -> None:
    """The turn of a stuck task can be given away from outside. Another thread takes
    over, and the first returns for more.
    """
    track = Track()
    stuck = track.add("stuck", 0, 2, stays=True)
    assert track.turns(1) == ["stuck"]
    track.add("next", 1, 3)
    assert track.ran.empty()
    track.relay.leave(stuck)
    assert track.turns(2) == ["next", "next"]
    track.relay.leave(stuck)
    stuck.let_go.set()
    assert track.turns(1) == ["stuck"]


class Waiting(Task):
    """A task that waits for an external event in its turn."""

    def go_on(self) -> bool:
        with self.track.relay.away(self):
            super().go_on()
        self.track.ran.put(("back", threading.get_ident()))
        return True


def test_who_waits_for_something_else_gives_its_turn_away() -> None:
    """Other tasks continue during the wait. Afterwards the task waits for its turn
    again, in the same thread.
    """
    track = Track()
    task = Waiting(track, "waits")
    task.stays = True
    track.relay.add(task)
    _, thread = track.ran.get(timeout=PATIENCE)
    other = track.add("other", 5, 6, stays=True)
    assert track.turns(1) == ["other"]
    task.let_go.set()
    assert track.ran.empty()
    other.let_go.set()
    assert track.ran.get(timeout=PATIENCE) == ("back", thread)


def test_a_wait_that_is_broken_off_has_no_turn_after_it() -> None:
    """No task waits for the turn of a stopped task."""
    track = Track()
    task = Task(track, "a")
    with pytest.raises(ValueError, match="stopped"), track.relay.away(task):
        raise ValueError("stopped")
    track.add("b", 0, 1)
    assert track.turns(1) == ["b"]


def test_tasks_of_one_iteration_that_are_read_in_turn_take_turns() -> None:
    """Only tasks of an iteration that is read in turn share a relay. After the last of
    them leaves, no relay remains.
    """
    relays = Relays()
    one = relays.of(DEFINITION)
    assert one is not None
    assert relays.of(changed(DEFINITION, task=2)) is one
    assert relays.of(changed(DEFINITION, iteration=8)) is not one
    assert relays.of(changed(DEFINITION, num_consumers=None)) is None
    del one
    assert not relays._relays


class Pace:
    """The stints of a task that needs the given seconds and bytes for each element."""

    def __init__(self) -> None:
        self.now = 0.0
        self.number = 0
        self.stint = Stint(lambda: self.now)

    def go(self, seconds: float, size: int = 1) -> int:
        """Run a stint to its end, and return the number of the element before which it
        ends.
        """
        self.stint.begin(self.number, self.now)
        first, made, is_over = self.number, 0, False
        while not is_over:
            self.number += 1
            self.now += seconds
            made = (self.number - first) * size
            full = BLOCK_BYTES if self.number - first >= FEW_ELEMENTS else FEW_BYTES
            is_over = self.number == self.stint.stop or self.now > self.stint.until or made >= full
        self.stint.end(self.number, made, self.now)
        return self.number


def test_stints_grow_to_what_is_worth_while() -> None:
    """Stints end at multiples of powers of two, so that the blocks of equally fast
    tasks end together.
    """
    pace = Pace()
    assert [pace.go(1e-4) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert pace.go(1e-4) - pace.number == 0
    later = Pace()
    later.number = 100
    ends = [later.go(1e-4) for _ in range(20)]
    assert all(end % 64 == 0 for end in ends[-5:])
    assert ends[-1] - ends[-2] == 64
    assert WORK / 2 <= 64 * 1e-4 <= WORK


def test_a_stint_that_is_cut_short_because_somebody_waits_is_as_long_the_next_time() -> None:
    """Only a stint that took too long becomes shorter; a stint cut short for a waiting
    client does not.
    """
    pace = Pace()
    for _ in range(8):
        pace.go(1e-6)
    pace.stint.begin(pace.number, pace.now)
    stop = pace.stint.stop
    assert stop > pace.number + 64
    pace.stint.end(pace.number + 1, 8, pace.now)
    pace.stint.begin(pace.number + 1, pace.now)
    assert pace.stint.stop == stop
    pace.stint.end(pace.number + 1, 8, pace.stint.until)
    pace.stint.begin(pace.number + 1, pace.now)
    assert pace.stint.stop < stop


def test_a_stint_is_longer_while_nobody_waits_for_the_turn() -> None:
    """A task that is alone keeps its turn: fewer, longer blocks relieve a machine on
    which every turn takes long.
    """
    pace = Pace()
    for _ in range(5):
        pace.go(1e-4)
    stint, begun = pace.stint, pace.now
    stint.begin(16, begun)
    assert stint.stop == 32
    assert not stint.is_over(31, begun + 0.9 * LONGEST, is_wanted=True)
    assert stint.is_over(17, begun + 1.1 * LONGEST, is_wanted=True)
    assert not stint.is_over(31, begun + 0.9 * LONGEST_ALONE, is_wanted=False)
    assert stint.is_over(17, begun + 1.1 * LONGEST_ALONE, is_wanted=False)
    assert stint.is_over(32, begun, is_wanted=False)


def test_a_relay_knows_whether_a_task_waits_for_the_turn() -> None:
    """A task that may run is waiting; one that rests, or runs, is not."""
    track = Track()
    first = track.add("a", 0, 1, stays=True)
    assert track.turns(1) == ["a"]
    assert not track.relay.is_wanted
    track.add("b", 0, 1)
    assert track.relay.is_wanted
    first.let_go.set()
    assert track.turns(1) == ["b"]


def test_slow_elements_make_short_stints() -> None:
    """An element slower than a whole stint is alone in it, and stints of fast elements
    are bounded as well.
    """
    pace = Pace()
    for _ in range(12):
        pace.go(1e-4)
    ends = [pace.go(1.0) for _ in range(8)]
    assert [after - before for before, after in itertools.pairwise(ends)] == [1] * 7
    fast = Pace()
    ends = [fast.go(1e-9) for _ in range(40)]
    assert ends[-1] - ends[-2] == MOST_ELEMENTS


@pytest.mark.parametrize(
    ("size", "length"), [(20_000, 64), (150_000, 16), (300_000, 8), (1_500_000, 2), (5_000_000, 1)]
)
def test_a_stint_fits_into_a_block(size: int, length: int) -> None:
    """A stint is no longer than a block that is handed over because it is full, nor
    does its length alternate.
    """
    pace = Pace()
    ends = [pace.go(1e-6, size) for _ in range(14)]
    assert [after - before for before, after in itertools.pairwise(ends[6:])] == [length] * 7
