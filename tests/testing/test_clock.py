"""Facts about the clock that tests advance."""

from __future__ import annotations

from zmqdata.testing import Clock


def test_time_stands_still_until_it_is_moved() -> None:
    """Calls run at their times, in order of time and then in order of request."""
    clock, done = Clock(10.0), []
    for seconds, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (-5.0, "first")):
        clock.after(seconds, lambda name=name: done.append((clock.now, name)))  # type: ignore[misc]
    clock.advance(1.5)
    assert done == [(10.0, "first"), (11.0, "a"), (11.0, "b")]
    assert (clock.now, len(clock)) == (11.5, 1)
    assert clock.run_next()
    assert (clock.now, clock.run_next()) == (12.0, False)


def test_what_happens_may_ask_for_more() -> None:
    """A call that falls due may schedule another call within the same advance."""
    clock, done = Clock(), []
    clock.after(1.0, lambda: clock.after(1.0, lambda: done.append(clock.now)))
    clock.advance(3.0)
    assert done == [2.0]
