"""Tests of ``zmqdata.iterators.crew``, without the iterator that consumes the results
of a crew.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators import crew as crews
from zmqdata.iterators.base import ElementIterator
from zmqdata.iterators.crew import Crew
from zmqdata.iterators.guarding import Outcome

DEADLINE = 10.0


class Source(ElementIterator):
    """Yield the numbers below ``stop``, raise the exceptions in ``failures``, and count
    the calls of close().
    """

    def __init__(self, stop: int, failures: dict[int, BaseException] | None = None) -> None:
        self.stop, self.failures = stop, failures or {}
        self.number = self.closed = 0

    def __next__(self) -> int:
        if self.number >= self.stop:
            raise StopIteration
        self.number += 1
        if self.number - 1 in self.failures:
            raise self.failures[self.number - 1]
        return self.number - 1

    def state(self) -> int:
        return self.number

    def restore(self, state: int) -> None:
        self.number = state

    def close(self) -> None:
        self.closed += 1


def echo(number: int, element: Any) -> Outcome:
    """Return the element unchanged."""
    return element, None


def started(
    source: Source,
    call: Callable[[int, Any], Outcome] = echo,
    ordered: bool = True,
    **arguments: Any,
) -> Crew:
    """Start a crew of two threads with a window of four."""
    crew = Crew(source, call, ordered, **arguments)
    crew.resize(2, 4)
    return crew


def taken(crew: Crew) -> Iterator[tuple[int, Outcome]]:
    """Take all remaining outcomes."""
    while True:
        try:
            outcome = crew.take()
        except StopIteration:
            return
        yield outcome


def wait_until(condition: Callable[[], bool]) -> None:
    """Await a condition, with a deadline."""
    changed, deadline = threading.Event(), time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        changed.wait(0.002)


def ended(crew: Crew) -> bool:
    """True if none of its threads is alive."""
    return not any(thread.is_alive() for thread in crew._threads)


@pytest.mark.parametrize("stop", [0, 1, 100])
def test_an_ordered_crew_hands_out_in_order(stop: int) -> None:
    """Every element comes once, under its number, in the order of the source."""
    assert list(taken(started(Source(stop)))) == [(x, (x, None)) for x in range(stop)]


@pytest.mark.parametrize("stop", [0, 1, 100])
def test_an_unordered_crew_hands_out_everything(stop: int) -> None:
    """Every element comes once, under its number, in any order. Nothing is remembered
    as done at the end.
    """
    crew = started(Source(stop), ordered=False)
    assert sorted(taken(crew), key=lambda outcome: outcome[0]) == [
        (x, (x, None)) for x in range(stop)
    ]
    assert (crew.low, crew.done) == (stop, set())


def test_an_ordered_crew_waits_for_a_slow_call() -> None:
    """Elements after a call that does not return are made and kept, and come after
    it.
    """
    release = threading.Event()
    crew = started(
        Source(4), lambda number, x: (x, None) if number or release.wait(DEADLINE) else (None, None)
    )
    wait_until(lambda: len(crew._results) == 3)
    assert not crew.is_ready
    assert sorted(crew.unclaimed()) == [1, 2, 3]
    release.set()
    wait_until(lambda: crew.is_ready)
    assert [number for number, _ in taken(crew)] == [0, 1, 2, 3]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_waiting_consumer_is_woken(ordered: bool) -> None:
    """A take() that begins before the outcome returns once the call does."""
    waiting: list[Crew] = []
    release = threading.Event()

    def call(number: int, element: Any) -> Outcome:
        release.wait(DEADLINE)
        wait_until(lambda: waiting[0]._waiting)
        return element, None

    crew = started(Source(1), call, ordered)
    waiting.append(crew)
    release.set()
    assert crew.take() == (0, (0, None))


def test_a_consumer_looks_and_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer waits for a call that takes longer than the interval at which it
    checks the threads.
    """
    monkeypatch.setattr(crews, "_LOOK_AFTER", 0.005)
    looks: list[int] = []

    class Looking(Crew):
        def _await_outcome(self) -> None:
            looks.append(len(looks))
            super()._await_outcome()

    def call(number: int, element: Any) -> Outcome:
        wait_until(lambda: len(looks) >= 3)
        return element, None

    crew = Looking(Source(1), call, True)
    crew.resize(1, 1)
    assert crew.take() == (0, (0, None))


def test_calls_run_on_named_threads_at_the_same_time() -> None:
    """A crew runs as many calls at once as its size, each on the thread of its place in
    the crew.
    """
    meeting = threading.Barrier(2, timeout=DEADLINE)

    def meet(number: int, element: Any) -> Outcome:
        meeting.wait()
        return threading.current_thread().name, None

    names = {outcome[0] for _, outcome in taken(started(Source(6), meet))}
    assert names == {"zmqdata-map-0", "zmqdata-map-1"}


def test_a_failure_of_the_source_has_its_place() -> None:
    """An exception of the source is the outcome of its number, and the elements after
    it come.
    """
    error = ValueError("bad")
    crew = started(Source(4, {1: error}))
    assert list(taken(crew)) == [(0, (0, None)), (1, (None, error)), (2, (2, None)), (3, (3, None))]


def test_what_is_no_exception_ends_the_crew() -> None:
    """After a SystemExit of the source, which is raised at its place, nothing is pulled
    and all threads end.
    """
    error = SystemExit(3)
    source = Source(100, {1: error})
    crew = started(source)
    assert [crew.take(), crew.take()] == [(0, (0, None)), (1, (None, error))]
    with pytest.raises(FailedPreconditionError, match="The threads of this operation are gone"):
        crew.take()
    assert source.number == 2
    wait_until(lambda: source.closed == 1)


def test_not_more_than_the_window_is_pulled() -> None:
    """Without a consumer, the crew stops at its window, and continues when the window
    has room.
    """
    source = Source(20)
    crew = started(source)
    wait_until(lambda: crew._full)
    assert source.number == 4
    assert [number for number, _ in taken(crew)] == list(range(20))


def test_a_stuck_call_is_overtaken_only_so_far() -> None:
    """Out of order, up to 64 windows of elements come after a call that does not
    return.
    """
    release = threading.Event()
    source = Source(300)
    crew = started(
        source,
        lambda number, x: (x, None) if number or release.wait(DEADLINE) else (None, None),
        ordered=False,
    )
    assert sorted(crew.take()[0] for _ in range(255)) == list(range(1, 256))
    wait_until(lambda: crew._full)
    assert (source.number, crew.low, len(crew.done)) == (256, 0, 255)
    release.set()
    assert crew.take() == (0, (0, None))
    assert (crew.low, crew.done) == (256, set())
    assert sorted(number for number, _ in taken(crew)) == list(range(256, 300))


@pytest.mark.parametrize("ordered", [True, False])
def test_what_was_handed_out_before_is_dropped(ordered: bool) -> None:
    """Numbers below ``low`` are pulled again, but not passed to the function and not
    returned.
    """
    called: list[int] = []
    source = Source(8)
    source.restore(2)
    crew = started(source, lambda number, x: (called.append(number), None), ordered, start=2, low=5)
    assert sorted(number for number, _ in taken(crew)) == sorted(called) == [5, 6, 7]


def test_what_was_done_out_of_order_is_dropped() -> None:
    """Numbers in ``done`` are not returned again either."""
    crew = started(Source(6), ordered=False, low=1, done=[2, 4])
    assert sorted(number for number, _ in taken(crew)) == [1, 3, 5]
    assert (crew.low, crew.done) == (6, set())


def test_results_behind_a_slow_call_are_held_up() -> None:
    """A crew whose threads are idle is held up while its first call has not returned,
    but only if the user may choose another order. It is not once that call returns.
    """
    for may_reorder, ordered in ((True, True), (False, True), (True, False)):
        gate = threading.Event()

        def call(number: int, x: Any, gate: threading.Event = gate) -> Outcome:
            return (number or gate.wait(DEADLINE)) and x, None

        crew = started(Source(20), call, ordered, may_reorder=may_reorder)
        wait_until(lambda crew=crew: crew._full)  # type: ignore[misc]
        is_held_up = crew.fill.is_held_up
        assert (crew.fill.ready, is_held_up) == (3, may_reorder and ordered)
        gate.set()
        wait_until(lambda crew=crew: crew.is_ready)  # type: ignore[misc]
        assert not crew.fill.is_held_up
        crew.stop()


def test_marks_follow_what_was_handed_out() -> None:
    """A mark is the source's state before a number, at most 32 below the oldest
    undelivered number.
    """
    crew = Crew(Source(100), echo, True)
    assert not crew.has_mark
    crew.resize(2, 4)
    for number, _ in taken(crew):
        mark, state = crew.mark()
        assert mark == state
        assert number + 1 - 32 <= mark <= number + 1
    assert crew.has_mark
    assert crew.mark() == (96, 96)


def test_resizing_keeps_hires_and_lets_go() -> None:
    """A larger crew starts the missing threads. In a smaller crew the threads beyond
    its size leave, and no element is lost.
    """
    gate = threading.Event()
    crew = started(Source(2000), lambda number, x: (gate.wait(DEADLINE) and x, None))
    wait_until(lambda: len(crew._threads) == 2)
    before = list(crew._threads)
    gate.set()
    crew.resize(1, 2)
    read = []
    while [thread.name for thread in crew._threads if thread.is_alive()] != ["zmqdata-map-0"]:
        read.append(crew.take()[0])  # a thread needs a turn to see that it may leave
    gate.clear()
    crew.resize(3, 6)
    while len(crew._calling) < 3:
        if crew.is_ready:
            read.append(crew.take()[0])
    wait_until(lambda: len(crew._threads) == 3)
    assert crew._threads[0] is before[0]
    gate.set()
    assert read + [number for number, _ in taken(crew)] == list(range(2000))


def test_threads_are_started_for_what_there_is_to_do() -> None:
    """A crew has no more threads than elements, plus the thread that finds the end."""
    crew = Crew(Source(3), echo, True)
    crew.resize(10**6, 10**6)
    assert [number for number, _ in taken(crew)] == [0, 1, 2]
    assert len(crew._threads) <= 4


def test_fewer_threads_than_asked_for_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system refuses further threads, the existing threads continue. Without any
    thread it is an error.
    """
    some, asked = 2, []

    class Scarce(crews.Background):
        def start(self) -> None:
            asked.append(self.name)
            if len(asked) > some:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(crews, "Background", Scarce)
    meeting = threading.Barrier(2, timeout=DEADLINE)
    crew = Crew(Source(6), lambda number, x: (meeting.wait() and None, None), True)
    crew.resize(5, 10)
    assert [number for number, _ in taken(crew)] == list(range(6))
    wait_until(lambda: ended(crew))
    some = 0
    with pytest.raises(RuntimeError, match="can't start"):
        Crew(Source(1), echo, True).resize(2, 4)


def test_a_child_of_a_fork_is_told() -> None:
    """A forked child gets the finished outcomes and then an error, even if a thread
    holds a lock at the fork.
    """
    crew = started(Source(100))
    wait_until(lambda: crew._full and len(crew._results) == 4)
    with crew._changed:
        pid = os.fork()
        if pid == 0:
            os._exit(_reads_in_child(crew))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
    assert len(list(taken(crew))) == 100


def _reads_in_child(crew: Crew) -> int:
    signal.alarm(int(DEADLINE))
    read = 0
    try:
        for _ in taken(crew):
            read += 1
    except FailedPreconditionError:
        crew.stop()
        return read
    return 99


@pytest.mark.parametrize("stopped", [True, False])
def test_nobody_is_hired_at_the_end(stopped: bool) -> None:
    """A crew that was stopped, or whose source ended, starts no more threads, and has
    closed its source once.
    """
    source = Source(3)
    crew = started(source)
    if stopped:
        crew.stop()
    wait_until(lambda: ended(crew))
    crew.resize(5, 10)
    assert crew._threads == []
    assert source.closed == 1


def test_outcomes_that_nobody_claimed_are_told() -> None:
    """After stop() and join() either kind of crew still holds its unclaimed
    outcomes.
    """
    for ordered in (True, False):
        crew = started(Source(100), ordered=ordered)
        wait_until(lambda crew=crew: crew._full and len(crew.unclaimed()) == 4)  # type: ignore[misc]
        crew.stop()
        crew.join()
        assert ended(crew)
        assert sorted(crew.unclaimed()) == [0, 1, 2, 3]


def test_join_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """join() gives up on a call that does not return, and its thread ends with the
    call.
    """
    monkeypatch.setattr(crews, "_JOIN_WITHIN", 0.01)
    release = threading.Event()
    source = Source(9)
    crew = started(source, lambda number, x: (release.wait(DEADLINE), None))
    wait_until(lambda: source.number == 2)
    crew.stop()
    crew.join()
    assert not ended(crew)
    release.set()
    wait_until(lambda: ended(crew))
    assert source.closed == 1


def test_join_from_a_thread_of_the_crew_returns() -> None:
    """A call may join its own crew, as it does not wait for itself."""
    ready = threading.Event()
    joining: list[Crew] = []

    def call(number: int, element: Any) -> Outcome:
        ready.wait(DEADLINE)
        joining[0].join()
        return element, None

    crew = started(Source(1), call)
    joining.append(crew)
    ready.set()
    assert crew.take() == (0, (0, None))
    crew.join()
    assert ended(crew)


@pytest.mark.timeout(20)
def test_a_crew_without_threads_does_not_spin() -> None:
    """Without any thread, take() raises an error instead of waiting forever."""
    with pytest.raises(FailedPreconditionError, match="The threads of this operation are gone"):
        Crew(Source(3), echo, True).take()


def test_a_crew_that_never_worked_closes_its_source() -> None:
    """Without threads, stop() closes the source once, and no thread starts
    afterwards.
    """
    source = Source(3)
    crew = Crew(source, echo, True)
    crew.stop()
    crew.stop()
    crew.resize(2, 4)
    assert (source.closed, crew._threads) == (1, [])
