"""Facts about a client's side of its lease."""

from __future__ import annotations

import math

import pytest

from zmqdata.core.client.lease import BEATS_KEPT, ClientLease
from zmqdata.messages import Lease


def test_a_lease_counts_from_what_was_said() -> None:
    """It begins when the heartbeat was sent, not when its answer came."""
    lease = ClientLease()
    beat = lease.speak(10.0)
    lease.answered(beat, Lease(15.0), 20.0)
    assert lease.holds(24.9)
    assert not lease.holds(25.0)


def test_an_older_answer_changes_nothing() -> None:
    """Answers that overtake each other leave the newest lease; a repeated or an unknown
    one is ignored.
    """
    lease = ClientLease()
    first, second = lease.speak(0.0), lease.speak(1.0)
    lease.answered(second, Lease(10.0), 1.5)
    for beat in (first, second, 77):
        lease.answered(beat, Lease(100.0, alone=True), 2.0)
    assert (lease.until, lease.alone) == (11.0, False)


def test_a_lease_says_when_the_dispatcher_is_silent() -> None:
    """After half of it, whoever has renewed it meanwhile; where there is none nobody
    waits for an answer.
    """
    lease = ClientLease()
    assert not lease.is_unanswered(1000.0)
    lease.answered(lease.speak(10.0), Lease(15.0, alone=True), 10.5)
    assert not lease.is_unanswered(17.4)
    lease.heard(17.0, 17.2)
    assert lease.is_unanswered(17.5)
    lease.answered(lease.speak(18.0), Lease(15.0, alone=True), 18.5)
    assert not lease.is_unanswered(25.4)
    lease.free()
    assert not lease.is_unanswered(1000.0)


def test_nothing_is_remembered_of_a_dispatcher_that_is_away_for_long() -> None:
    """Heartbeats that were never answered are forgotten, and the lease is over."""
    lease = ClientLease()
    lease.opened(Lease(10.0), 0.0, 0.0)
    beats = [lease.speak(float(at)) for at in range(3 * BEATS_KEPT)]
    lease.answered(beats[0], Lease(1e9), 300.0)
    assert not lease.holds(10.0)
    lease.answered(beats[-1], Lease(10.0), 300.0)
    assert lease.until == 309.0


def test_workers_are_enough_for_who_reads_alone() -> None:
    """Without a dispatcher it goes on for hours, by what workers have heard, counted
    from when that was sent.
    """
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    for now in range(1, 10_000, 5):
        lease.heard(float(now) - 1.0, float(now))
    assert lease.until == 10_005.0


def test_a_lease_that_is_over_is_not_renewed_by_workers() -> None:
    """The dispatcher may have given the client up, and the worker not know that yet."""
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    lease.heard(10.5, 11.0)
    assert not lease.holds(11.0)


@pytest.mark.parametrize("sent", [9.0, math.nan, math.inf])
def test_a_worker_cannot_vouch_for_what_is_to_come(sent: float) -> None:
    """What it says to have heard and was never sent counts for nothing."""
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    lease.heard(sent, 5.0)
    assert lease.until == 10.0


def test_an_answer_takes_back_nothing_from_who_stays_alone() -> None:
    """What a worker has heard after the heartbeat that is answered goes on to count."""
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    beat = lease.speak(1.0)
    lease.heard(4.0, 5.0)
    lease.answered(beat, Lease(10.0, alone=True), 6.0)
    assert lease.until == 14.0


def test_others_make_the_lease_count_at_once() -> None:
    """Told that it is not alone any more, a client holds no longer than from what it
    said last.
    """
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    beat = lease.speak(1.0)
    lease.heard(7.0, 8.0)
    lease.answered(beat, Lease(10.0), 8.0)
    lease.heard(8.5, 9.0)
    assert lease.until == 11.0


def test_where_nothing_could_be_given_away_no_lease_is_needed() -> None:
    """Without one, elements may be handed out at any time, and heartbeats are as rare
    as the user wants.
    """
    lease = ClientLease()
    lease.opened(None, 0.0, 0.0)
    assert lease.holds(1e12)
    assert lease.pause(30.0) == 30.0


def test_a_free_lease_says_how_often_to_be_heard() -> None:
    """It never ends, and its holder is heard of several times within it, however rarely
    the user wants that.
    """
    lease = ClientLease()
    lease.opened(Lease(9.0, free=True), 0.0, 0.0)
    assert lease.holds(1e12)
    assert lease.pause(30.0) == 3.0
    assert lease.pause(1.0) == 1.0
    assert not lease.alone


def test_heartbeats_come_before_the_lease_ends() -> None:
    """Several fit into a lease."""
    lease = ClientLease()
    lease.opened(Lease(0.9), 0.0, 0.0)
    assert abs(lease.pause(30.0) - 0.3) < 1e-9
    assert lease.pause(0.1) == 0.1


def test_a_lease_may_be_ended_or_needed_no_more() -> None:
    """What belongs to others is never handed out, what nobody else wants always is."""
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    lease.end()
    lease.heard(0.5, 1.0)
    assert not lease.holds(1.0)
    lease.free()
    assert lease.holds(1e12)
