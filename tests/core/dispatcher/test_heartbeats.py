"""Test when workers send heartbeats."""

from __future__ import annotations

import heapq

import pytest

from zmqdata.core.dispatcher.heartbeats import Beats

MOST = 3.0


@pytest.mark.parametrize(("workers", "heard"), [(10, 10), (90, 90), (200, 100), (290, 100)])
def test_so_many_are_heard_in_a_second(workers: int, heard: int) -> None:
    """The dispatcher hears workers at their own rate up to its limit per second, even
    if all started at once.
    """
    assert rates(workers) == pytest.approx([heard] * 20, abs=heard / 10)


@pytest.mark.parametrize("workers", [400, 2000])
def test_no_worker_is_silent_for_too_long(workers: int) -> None:
    """The dispatcher hears more workers per second above that limit, spread evenly even
    if all started at once.
    """
    found = rates(workers)
    assert sum(found) / len(found) <= 1.25 * workers / MOST
    assert max(found) <= 3 * workers / MOST


def rates(workers: int) -> list[int]:
    """Return the number of heartbeats in each of 20 seconds."""
    beats = Beats(share=0.01, most=MOST)
    turns = [(0.0, number) for number in range(workers)]
    when = []
    while turns[0][0] < 30.0:
        now, number = turns[0]
        pause = max(1.0, beats.next(now))
        assert pause <= MOST
        heapq.heapreplace(turns, (now + pause, number))
        when.append(now)
    return [sum(second <= now < second + 1 for now in when) for second in range(10, 30)]
